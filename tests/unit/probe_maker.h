/* Random eBPF programs that the kernel's verifier accepts: arithmetic, jumps, loops, the stack, functions and
 * maps. */
#ifndef BELFRY_TESTS_PROBE_MAKER_H
#define BELFRY_TESTS_PROBE_MAKER_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probe/probe.h"

enum { MADE_MAX = 1024, MADE_ARRAY = 0, MADE_HASH = 1, MADE_MAPS = 2 };

extern const struct probe_map made_maps[MADE_MAPS];

struct made_options {
	bool has_maps;
	bool is_new; /* instructions that Linux before 6.6 does not know */
};
/* Writes at most MADE_MAX instructions and returns their number. */
size_t program_draw(const struct made_options *options, uint64_t *seed, struct bpf_insn *to);

#endif
