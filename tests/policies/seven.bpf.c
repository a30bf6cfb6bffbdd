/* SPDX-License-Identifier: MIT */
/* Returns what is no answer, and reads beyond its context. */
#include <belfry/policy.h>

BELFRY_POLICY("seven", "returns what is no answer");

BELFRY_HOOK(init)
int init(struct belfry_init *ctx)
{
	(void)ctx;
	return 7;
}

BELFRY_HOOK(exit)
int exit_beyond(struct belfry_dump *ctx)
{
	return ctx->text[8] == 1;
}
