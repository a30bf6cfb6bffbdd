/* One instruction on many operands, against C: what ptx_rest.c and ptx_rest_math.c share. */
#ifndef BELFRY_TESTS_PTX_OPERANDS_H
#define BELFRY_TESTS_PTX_OPERANDS_H

#include "ptx_run.h"

#define N 768

/* A thread's own bytes of shared memory, %s, holding its operand a. */
#define IN_SHARED \
	".shared .align 16 .b8 s[16384]; .reg .b32 %s; mov.u32 %s, s; mad.lo.u32 %s, %t, 16, %s; " \
	"ld.global.b64 %w, [%rd+8]; st.shared.b64 [%s], %w; "

extern uint64_t a[N], b[N], c[N], d[N];

typedef uint64_t (*reference)(uint64_t x, uint64_t y, uint64_t z);

void check_operands(const char *text, const char *types, reference expected);
/* Random words, and edges: one of three operands, or all of them. */
void fill_operands(uint64_t seed, const uint64_t *edges, unsigned count);

#endif
