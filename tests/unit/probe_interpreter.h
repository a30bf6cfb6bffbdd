/* An eBPF interpreter for the tests of probes, written from the instruction set's document (Documentation/bpf/
 * standardization/instruction-set.rst in Linux) and not from the translator. It runs trusted programs only. */
#ifndef BELFRY_TESTS_PROBE_INTERPRETER_H
#define BELFRY_TESTS_PROBE_INTERPRETER_H

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

#include "probe/probe.h"

enum { INTERPRETED_ENTRIES = 256 };

/* A map as a list of entries. Entry i of an array has key i. */
struct interpreted_map {
	const struct probe_map *map;
	uint32_t count;
	uint8_t keys[INTERPRETED_ENTRIES][PROBE_KEY_BYTES_MAX];
	uint64_t values[INTERPRETED_ENTRIES][8]; /* at most 64 bytes */
};

void interpreted_map_init(struct interpreted_map *to, const struct probe_map *map);
/* NULL: there is no such entry. */
void *interpreted_value(struct interpreted_map *map, const void *key);

/* Runs the program and returns r0. */
uint64_t interpret(const struct bpf_insn *insns, const struct belfry_probe_ctx *ctx,
		   struct interpreted_map *maps);

#endif
