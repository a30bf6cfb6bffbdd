/* The driver's record of context switches, taken apart. Pure: memory in, turns out. */
#ifndef BELFRY_WARDEN_TURNS_PARSE_H
#define BELFRY_WARDEN_TURNS_PARSE_H

#include <stddef.h>

#include "warden/turns.h"

enum { TURNS_HEADER_BYTES = 32, TURNS_RECORD_BYTES = 32 };

/* An event buffer as the driver fills it (cl90cd.h, cl90cdfecs.h; measured, docs/driver.md): a header {u32 get, u32
 * put, u64 count, u64 dropped}, and a ring of records, empty when its two ends meet: u16 type at 0, u8 tag at 8, u16
 * number at 10, u32 context at 12, u32 pid at 16, u64 ns at 24. */
struct turns_image {
	const void *header, *records;
	uint32_t count; /* of records the ring has room for; less than 1 << 15, see is_written() */
};

/* How far it has been read. All zero at first. Times are the GPU's. */
struct turns_parser {
	uint32_t get;
	uint16_t next_number;
	bool has_number;       /* a record has been read */
	bool has_waited;       /* for the record at get, which was not written yet */
	bool is_on;	       /* somebody is on the engine: */
	struct device_turn on; /* since when */
	uint64_t last_ns;      /* time of the last record */
	bool is_empty;	  /* everything was read: now tell the driver how far, and its count begins anew */
	uint64_t dropped; /* after the last record, as the header said each time */
	uint64_t lost;	  /* records in all */
	uint64_t strange; /* records that were left out: garbage, or of no turn */
};

/* The turns that have ended, in order, and last the one that is on, if there is room for it. What there is no room for
 * is left for the next time. `now_ns`: the GPU's clock, for a record's time cannot be later. */
size_t turns_parse(struct turns_parser *parser, const struct turns_image *image, uint64_t now_ns,
		   struct device_turn *to, size_t room);
/* The GPU's clock was set: what was read before cannot be compared with what comes. */
void turns_forget(struct turns_parser *parser);

#endif
