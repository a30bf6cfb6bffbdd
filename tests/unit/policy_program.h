/* Random eBPF programs that the verifier takes: they look at the context and the table, calculate, and propose what comes
 * of it. */
#ifndef BELFRY_TESTS_POLICY_PROGRAM_H
#define BELFRY_TESTS_POLICY_PROGRAM_H

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

#include "belfry/policy.h"

enum { PROGRAM_MOST = 512 };

/* For this hook, on the table's map. Returns how many instructions. */
size_t program_make(enum belfry_hook hook, int table_fd, uint64_t *seed, struct bpf_insn *to);

#endif
