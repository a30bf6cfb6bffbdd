/* SPDX-License-Identifier: MIT */
/* Each access as it is, in a ring. */
#include <belfry/probe.h>

BELFRY_PROBE();

struct access {
	__u64 address;
	__u32 size, is_write, site, thread;
};

BELFRY_RING(accesses, 1 << 20);

BELFRY_PROBE_AT(mem_access)
int access(struct belfry_probe_ctx *ctx)
{
	struct access access = { ctx->address, ctx->size, ctx->is_write, ctx->site, ctx->thread[0] };

	bpf_ringbuf_output(&accesses, &access, sizeof(access), 0);
	return 0;
}
