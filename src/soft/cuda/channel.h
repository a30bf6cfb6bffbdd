/* The internals of a channel, shared by channel.c and fence.c. */
#ifndef BELFRY_SOFT_CUDA_CHANNEL_H
#define BELFRY_SOFT_CUDA_CHANNEL_H

#include "rm/rm.h"
#include "soft/cuda/core.h"
#include "soft/link/link.h"

/* The layout of a channel's memory. */
enum {
	RING_ENTRIES = 1024,
	USERD_AT = 0,
	FENCE_AT = SOFT_PAGE_BYTES,    /* on its own page, because other contexts can map it */
	HOST_WORD_AT = FENCE_AT + 256, /* host functions that have returned; the GPU waits for it */
	RING_AT = FENCE_AT + SOFT_PAGE_BYTES,
	SPACE_AT = RING_AT + RING_ENTRIES * 8,
	SPACE_BYTES = 2 * CHANNEL_ROOM_BYTES,
	CHANNEL_BYTES = SPACE_AT + SPACE_BYTES,
};

struct pending { /* a submission that may be incomplete */
	uint64_t value;
	uint32_t space_end;
};
struct shown { /* a context with another address space in which the fence is mapped */
	struct context *context;
	struct shown *next;
};
struct channel_state {
	struct low low;
	bool is_free, has_mask;
	uint64_t pending_first, pending_last; /* counters; modulo RING_ENTRIES they are indices of the ring */
	struct pending pending[RING_ENTRIES];
	uint32_t space_head, space_tail; /* [tail, head) is in use, modulo the size */
	/* The current submission: offsets in the space. */
	uint32_t start, at, commands_end, data_at, end;
	uint64_t host_count; /* host functions queued */
	struct shown *shown;
};

/* fence.c. Map the fence of this channel for the channels of another context. */
CUresult channel_show(struct channel *channel, struct context *to);
void channel_hide(struct channel *channel); /* remove all these mappings */
void channels_hide_from(struct context *context);

#endif
