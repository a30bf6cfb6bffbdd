/* SPDX-License-Identifier: MIT */
/* As much code as a probe can have: 16 programs of 4091 instructions. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_ARRAY(values, __u64, 4);

#define PROGRAM(name) \
	BELFRY_PROBE_AT(kernel_enter) \
	__attribute__((naked)) int name(struct belfry_probe_ctx *ctx) \
	{ \
		asm volatile(".rept 4090\n r0 = 0\n .endr\n exit\n"); \
	}

PROGRAM(fat0)
PROGRAM(fat1)
PROGRAM(fat2)
PROGRAM(fat3)
PROGRAM(fat4)
PROGRAM(fat5)
PROGRAM(fat6)
PROGRAM(fat7)
PROGRAM(fat8)
PROGRAM(fat9)
PROGRAM(fat10)
PROGRAM(fat11)
PROGRAM(fat12)
PROGRAM(fat13)
PROGRAM(fat14)
PROGRAM(fat15)
