/* A device for the PTX tests: some memory, a module in it, launches one block after the other. */
#ifndef BELFRY_TESTS_PTX_RUN_H
#define BELFRY_TESTS_PTX_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/ptx/ptx.h"

#define RIG_SPANS 64

struct rig {
	struct ptx_module *module;
	struct ptx_host host;
	struct ptx_span spans[RIG_SPANS];
	unsigned span_count;
	uint64_t addresses[RIG_SPANS];
	struct ptx_fault fault;
	uint64_t cost;
	char printed[1024];
	uint64_t launches;
};

/* Unless NULL: called before each text is loaded. Returns another text, which rig_open_text frees, or NULL. */
extern char *(*rig_change_text)(struct rig *rig, const char *text);

/* tests/data/ptx/NAME.ptx; fails the test if it does not load. */
void rig_open(struct rig *rig, const char *name);
void rig_open_text(struct rig *rig, const char *text);
void rig_close(struct rig *rig);
/* Device memory, holding a copy of `data` or zeros: its address. */
uint64_t rig_alloc(struct rig *rig, size_t bytes, const void *data);
void *rig_host(struct rig *rig, uint64_t address);
uint64_t rig_variable(struct rig *rig, const char *name);

struct rig_shape {
	uint32_t grid[3];
	uint32_t threads[3];
	uint32_t dynamic_bytes;
};

/* Runs every block; the state of the last one. params has the kernel's own layout. */
enum ptx_state rig_run(struct rig *rig, const char *kernel, struct rig_shape shape, const void *params,
		       size_t bytes);
/* The same, and it must end well. */
void rig_launch(struct rig *rig, const char *kernel, struct rig_shape shape, const void *params,
		size_t bytes);

/* One instruction on `count` (at most 1024) sets of operands. `text` uses the registers %d, %a, %b, %c; `types` says
 * what they are, in this order: h, w, d for 16, 32, 64 bits, p for a predicate, - for none. Operands and results are
 * in the low bits of 64-bit words. A predicate operand is a word's lowest bit. */
void rig_op(const char *text, const char *types, unsigned count, const uint64_t *a, const uint64_t *b,
	    const uint64_t *c, uint64_t *d);

uint64_t rig_random(uint64_t *state);
float rig_random_float(uint64_t *state); /* in [-1, 1) */

#endif
