/* Parses the driver's records of context switches. Pure: memory in, turns out. */
#ifndef BELFRY_WARDEN_TURNS_PARSE_H
#define BELFRY_WARDEN_TURNS_PARSE_H

#include <stddef.h>

#include "warden/turns.h"

enum { TURNS_HEADER_BYTES = 32, TURNS_RECORD_BYTES = 32 };

/* An event buffer as the driver fills it (cl90cd.h, cl90cdfecs.h; measured, docs/driver.md): a header {u32
 * get, u32 put, u64 count, u64 dropped}, and a ring of records, which is empty if get equals put: u16 type at
 * 0, u8 tag at 8, u16 number at 10, u32 context at 12, u32 pid at 16, u64 ns at 24. */
struct turns_image {
	const void *header, *records;
	uint32_t count; /* the size of the ring in records; less than 1 << 15, see is_written() */
};

/* The state of the parser. All zero at first. Times are the GPU's. */
struct turns_parser {
	uint32_t get;
	uint16_t next_number;
	bool has_number;       /* a record has been read */
	bool has_waited;       /* once, for the record at `get`, which was not written yet */
	bool is_on;	       /* a context is on the engine: */
	struct device_turn on; /* its turn so far */
	uint64_t last_ns;      /* time of the last record */
	bool is_empty;	  /* all records were read: report `get` to the driver, whose count then restarts */
	uint64_t dropped; /* records dropped after the last record: the sum of the header's counts */
	uint64_t lost;	  /* records lost in total */
	uint64_t strange; /* records that were ignored: garbage, or part of no turn */
};

/* Returns the turns that have ended, in order, and then the current one if there is room for it. The rest is
 * left for the next call. `now_ns` is the GPU's clock: no record can be later. */
size_t turns_parse(struct turns_parser *parser, const struct turns_image *image, uint64_t now_ns,
		   struct device_turn *to, size_t room);
/* The GPU's clock was set: earlier times cannot be compared with later ones. */
void turns_forget(struct turns_parser *parser);

#endif
