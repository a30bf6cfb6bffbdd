/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("wrong", "a program that is no hook");

SEC("kprobe/do_exit")
int probe(void *ctx)
{
	return !ctx;
}
