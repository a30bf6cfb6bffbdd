/* pool: the card's memory as the vGPUs of one GPU have it. A vGPU with a limit is promised that much, and it is set aside;
 * vGPUs without a limit share what is not promised. Promises and that use together never exceed the card.
 * Any thread may call anything here, under any lock: nothing is waited for. */
#ifndef BELFRY_WARDEN_POOL_H
#define BELFRY_WARDEN_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct pool;

struct pool *pool_new(uint64_t total_bytes); /* NULL: out of memory */
void pool_free(struct pool *pool);

struct pool_use {
	uint64_t total_bytes;
	uint64_t promised_bytes; /* to vGPUs with a limit, used or not */
	uint64_t shared_bytes;	 /* in use by vGPUs without a limit */
};
struct pool_use pool_use(struct pool *pool);

/* One vGPU changes: what it is promised (0: it has no limit), and what it has of the shared part. */
struct pool_change {
	uint64_t promised_before, promised_after;
	uint64_t shared_before, shared_after;
};
/* ENOSPC with the arithmetic, and nothing changes, if the card is too small for it. */
int pool_promise(struct pool *pool, const struct pool_change *change, struct bf_error *err);

/* What is promised to no vGPU; and how much of that is free. */
uint64_t pool_unpromised(struct pool *pool);
uint64_t pool_room(struct pool *pool);
/* Take from the shared part. False: there is no room, and nothing is taken. */
bool pool_take(struct pool *pool, uint64_t bytes);
/* Count what was taken without asking. False: it is more than there is. */
bool pool_note(struct pool *pool, uint64_t bytes);
void pool_give(struct pool *pool, uint64_t bytes);

/* Between these two, what one vGPU is promised less is kept for the next that is promised more, and is not for the
 * vGPUs without a limit meanwhile. */
void pool_begin_move(struct pool *pool);
void pool_end_move(struct pool *pool);

#endif
