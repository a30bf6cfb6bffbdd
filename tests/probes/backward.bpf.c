/* SPDX-License-Identifier: MIT */
/* Needs many steps to be checked: each trip around 4000 jumps backwards changes one more register. */
#include <belfry/probe.h>

BELFRY_PROBE();

#define PROGRAM(name) \
	BELFRY_PROBE_AT(kernel_enter) \
	__attribute__((naked)) int name(struct belfry_probe_ctx *ctx) \
	{ \
		asm volatile("r6 = r1\n r0 = 0\n r1 = 1\n r2 = 1\n r3 = 1\n r4 = 1\n r5 = 1\n r7 = 1\n" \
			     "r8 = 1\n r9 = 1\n goto 4011\n" \
			     "r9 = r8\n r8 = r7\n r7 = r5\n r5 = r4\n r4 = r3\n r3 = r2\n r2 = r1\n" \
			     "r1 = *(u32 *)(r6 + 0)\n if r1 == 7 goto 1\n goto 4001\n" \
			     "exit\n goto -12\n .rept 4000\n goto -2\n .endr\n"); \
	}

PROGRAM(backward0)
PROGRAM(backward1)
PROGRAM(backward2)
PROGRAM(backward3)
PROGRAM(backward4)
PROGRAM(backward5)
PROGRAM(backward6)
PROGRAM(backward7)
PROGRAM(backward8)
PROGRAM(backward9)
PROGRAM(backward10)
PROGRAM(backward11)
PROGRAM(backward12)
PROGRAM(backward13)
PROGRAM(backward14)
PROGRAM(backward15)
