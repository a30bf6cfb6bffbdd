/* pool: how the vGPUs of one GPU share its memory. A vGPU with a limit is promised that much, and it is set
 * aside. vGPUs without a limit share the memory that is not promised. Promises and that use together never
 * exceed the GPU's memory. Any thread may call any function here, under any lock: none of them waits. */
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

/* A change of one vGPU: of its promise (0: it has no limit), and of its use of the shared part. */
struct pool_change {
	uint64_t promised_before, promised_after;
	uint64_t shared_before, shared_after;
};
/* If the GPU's memory is too small: ENOSPC with the figures, and nothing changes. */
int pool_promise(struct pool *pool, const struct pool_change *change, struct bf_error *err);

/* The memory that is promised to no vGPU; and the free part of it. */
uint64_t pool_unpromised(struct pool *pool);
uint64_t pool_room(struct pool *pool);
/* Take from the shared part. False: there is no room, and nothing is taken. */
bool pool_take(struct pool *pool, uint64_t bytes);
/* Count memory that is in use already. False: the shared part is exceeded. */
bool pool_note(struct pool *pool, uint64_t bytes);
void pool_give(struct pool *pool, uint64_t bytes);

/* Between these two calls, memory by which one promise is reduced is kept for the next promise that is
 * raised. vGPUs without a limit cannot take it meanwhile. */
void pool_begin_move(struct pool *pool);
void pool_end_move(struct pool *pool);

#endif
