/* What channel.c and fence.c know of a channel's inside. */
#ifndef BELFRY_SOFT_CUDA_CHANNEL_H
#define BELFRY_SOFT_CUDA_CHANNEL_H

#include "rm/rm.h"
#include "soft/cuda/core.h"
#include "soft/link/link.h"

/* Where things lie in a channel's memory. */
enum {
	RING_ENTRIES = 1024,
	USERD_AT = 0,
	FENCE_AT = SOFT_PAGE_BYTES,    /* a page of its own: other contexts may be shown it */
	HOST_WORD_AT = FENCE_AT + 256, /* counts host functions that have returned; the GPU waits for it */
	RING_AT = FENCE_AT + SOFT_PAGE_BYTES,
	SPACE_AT = RING_AT + RING_ENTRIES * 8,
	SPACE_BYTES = 2 * CHANNEL_ROOM_BYTES,
	CHANNEL_BYTES = SPACE_AT + SPACE_BYTES,
};

struct pending { /* a submission that may not be done */
	uint64_t value;
	uint32_t space_end;
};
struct shown { /* a context of another address space that sees the fence */
	struct context *context;
	struct shown *next;
};
struct channel_state {
	struct low low;
	bool is_free, has_mask;
	uint64_t pending_first, pending_last; /* count up; modulo RING_ENTRIES they are places in the ring */
	struct pending pending[RING_ENTRIES];
	uint32_t space_head, space_tail; /* [tail, head) is in use, around the end */
	/* The submission being written: offsets in the space. */
	uint32_t start, at, commands_end, data_at, end;
	uint64_t host_count; /* host functions queued so far */
	struct shown *shown;
};

/* fence.c. Let another context's channels see this one's fence. */
CUresult channel_show(struct channel *channel, struct context *to);
void channel_hide(struct channel *channel); /* from all it was shown to */
void channels_hide_from(struct context *context);

#endif
