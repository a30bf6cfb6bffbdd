/* SPDX-License-Identifier: MIT */
/* Room is made for whoever asks, at the cost of the first who is not him. */
#include <belfry/policy.h>

BELFRY_POLICY("makes_room", "makes room for whoever asks");

struct search {
	__u32 but, found;
};

BELFRY_HOOK(mem_alloc)
int makes_room_mem_alloc(struct belfry_mem_alloc *ctx)
{
	ctx->verdict = BELFRY_MEM_MAKE_ROOM;
	return BELFRY_PROPOSE;
}

static long look_at(__u32 entry, struct search *search)
{
	if (entry == search->but)
		return 0;
	search->found = entry;
	return 1;
}

BELFRY_HOOK(mem_pressure)
int makes_room_mem_pressure(struct belfry_mem_pressure *ctx)
{
	struct search search = { .but = ctx->head.vgpu, .found = BELFRY_NOBODY };

	belfry_each(&ctx->head, look_at, &search);
	ctx->victim = search.found;
	return BELFRY_PROPOSE;
}
