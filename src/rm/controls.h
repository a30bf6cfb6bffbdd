/* rm, private: the format of the control tables. */
#ifndef BELFRY_RM_CONTROLS_H
#define BELFRY_RM_CONTROLS_H

#include "rm/rm.h"
#include "rm/tables.h"

#include <stddef.h>

/* Bits of rm_layout.series_bit, and the combinations that the tables need. */
#define SERIES_570 1u
#define SERIES_580 2u
#define SERIES_590 4u
#define SERIES_595 8u
#define SERIES_TO_580 (SERIES_570 | SERIES_580)
#define SERIES_TO_590 (SERIES_TO_580 | SERIES_590)
#define SERIES_580_590 (SERIES_580 | SERIES_590)
#define SERIES_580_ON (SERIES_580_590 | SERIES_595)
#define SERIES_590_ON (SERIES_590 | SERIES_595)
#define SERIES_ALL (SERIES_TO_590 | SERIES_595)

struct rm_control_entry {
	struct rm_control control;
	uint8_t series; /* the series that the entry is for */
};

/* Each table is sorted by id, and the ranges of the tables do not overlap. */
struct rm_control_table {
	const struct rm_control_entry *entries;
	size_t count;
};
extern const struct rm_control_table rm_controls_root, rm_controls_device, rm_controls_subdevice,
	rm_controls_objects;

/* A control whose parameters hold neither addresses nor files, in some series. */
#define IN(set, number, way_name, size, text) \
	{ \
		.control = { .id = (number), \
			     .name = (text), \
			     .way = RM_WAY_##way_name, \
			     .bytes = (size), \
			     .is_sized = true, \
			     .client_at = -1, \
			     .fd_at = -1 }, \
		.series = (set) \
	}
#define CONTROL(number, way_name, size, text) IN(SERIES_ALL, number, way_name, size, text)
/* A control that names a client. */
#define CLIENT(number, way_name, size, text, client) \
	{ \
		.control = { .id = (number), \
			     .name = (text), \
			     .way = RM_WAY_##way_name, \
			     .bytes = (size), \
			     .is_sized = true, \
			     .client_at = (client), \
			     .fd_at = -1 }, \
		.series = SERIES_ALL \
	}
/* A control that names a descriptor. */
#define DESCRIPTOR(number, way_name, size, text, fd) \
	{ \
		.control = { .id = (number), \
			     .name = (text), \
			     .way = RM_WAY_##way_name, \
			     .bytes = (size), \
			     .is_sized = true, \
			     .client_at = -1, \
			     .fd_at = (fd) }, \
		.series = SERIES_ALL \
	}
/* A control without a public declaration: the firmware handles it, and its parameters are plain bytes. */
#define UNSIZED(number, way_name, text) \
	{ \
		.control = { .id = (number), \
			     .name = (text), \
			     .way = RM_WAY_##way_name, \
			     .client_at = -1, \
			     .fd_at = -1 }, \
		.series = SERIES_ALL \
	}
#define REFUSED(number, text) UNSIZED(number, REFUSED, text)
#define AT(address, counted, entry, exponent, most) \
	{ \
		.at = (address), .count_at = (counted), .entry_bytes = (entry), .power = (exponent), \
		.count_max = (most) \
	}
/* A control whose parameters hold addresses. */
#define POINTERS(number, way_name, size, text, pointers_held, ...) \
	{ \
		.control = { .id = (number), \
			     .name = (text), \
			     .way = RM_WAY_##way_name, \
			     .bytes = (size), \
			     .is_sized = true, \
			     .client_at = -1, \
			     .fd_at = -1, \
			     .pointer_count = (pointers_held), \
			     .pointers = { __VA_ARGS__ } }, \
		.series = SERIES_ALL \
	}

#endif
