/* SPDX-License-Identifier: MIT */
/* The largest numbers there are, and bytes that are no text. */
#include <belfry/policy.h>

BELFRY_POLICY("extreme", "the largest numbers and the strangest bytes");

const volatile __u64 most = ~0ull;

BELFRY_HOOK(enqueue)
int extreme_enqueue(struct belfry_enqueue *ctx)
{
	ctx->deadline_ns = most;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(dump)
int extreme_dump(struct belfry_dump *ctx)
{
	ctx->text[0] = 'a';
	ctx->text[1] = (char)0xff;
	ctx->text[2] = 0x1b;
	ctx->text[3] = (char)0xc3;
	ctx->text[4] = (char)0xa4;
	ctx->text[5] = '\n';
	ctx->text[6] = (char)0xe2;
	ctx->text[7] = 0;
	return BELFRY_PROPOSE;
}
