/* SPDX-License-Identifier: MIT */
/* Refuses memory, and contexts; counts what it was asked and told. */
#include <belfry/policy.h>

BELFRY_POLICY("refuses", "refuses memory and contexts");

const volatile __u64 most_bytes = ~0ull; /* at once */
const volatile __u32 most_contexts = ~0u;
const volatile __u64 timeslice_us = 0;

__u64 asked, contexts, vgpus, strange;

/* There is no table, but a head like everywhere. */
static void look_at(const struct belfry_head *head)
{
	if (!head->now_ns || !head->slice_min_ns || head->round_ns < head->slice_min_ns ||
	    head->window_ns < head->round_ns || head->count || head->vgpu != BELFRY_NOBODY)
		__sync_fetch_and_add(&strange, 1);
}

BELFRY_HOOK(vgpu_init)
int refuses_vgpu_init(struct belfry_vgpu_init *ctx)
{
	(void)ctx;
	__sync_fetch_and_add(&vgpus, 1);
	return BELFRY_DEFAULT;
}

BELFRY_HOOK(vgpu_exit)
int refuses_vgpu_exit(struct belfry_vgpu_init *ctx)
{
	(void)ctx;
	__sync_fetch_and_add(&vgpus, -1);
	return BELFRY_DEFAULT;
}

BELFRY_HOOK(mem_alloc)
int refuses_mem_alloc(struct belfry_mem_alloc *ctx)
{
	__sync_fetch_and_add(&asked, 1);
	look_at(&ctx->head);
	ctx->verdict = ctx->bytes > most_bytes ? BELFRY_MEM_REFUSE : BELFRY_MEM_ALLOW;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(ctx_init)
int refuses_ctx_init(struct belfry_ctx_init *ctx)
{
	__sync_fetch_and_add(&contexts, 1);
	look_at(&ctx->head);
	ctx->refuse = ctx->contexts >= most_contexts;
	ctx->timeslice_us = timeslice_us;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(dump)
int refuses_dump(struct belfry_dump *ctx)
{
	ctx->text[0] = 'v';
	ctx->text[1] = '0' + vgpus % 10;
	ctx->text[2] = asked ? 'm' : '-';
	ctx->text[3] = contexts ? 'c' : '-';
	ctx->text[4] = strange ? 's' : '-';
	ctx->text[5] = 0;
	return BELFRY_PROPOSE;
}
