#include "warden/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/units.h"

struct pool {
	pthread_mutex_t lock; /* no other lock is taken under it */
	struct pool_use use;
	uint64_t kept_bytes; /* of a move in progress */
	bool is_moving;
};

struct pool *pool_new(uint64_t total_bytes)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pool->use.total_bytes = total_bytes;
	return pool;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

struct pool_use pool_use(struct pool *pool)
{
	struct pool_use use;

	pthread_mutex_lock(&pool->lock);
	use = pool->use;
	pthread_mutex_unlock(&pool->lock);
	return use;
}

static uint64_t less(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

static uint64_t unpromised(const struct pool *pool)
{
	return less(pool->use.total_bytes, pool->use.promised_bytes + pool->kept_bytes);
}

static uint64_t room(const struct pool *pool)
{
	return less(unpromised(pool), pool->use.shared_bytes);
}

static int refuse(const struct pool_use *others, uint64_t bytes, struct bf_error *err)
{
	char want[24], all[24], taken[24], used[24], left[24];
	uint64_t free_bytes = less(others->total_bytes, others->promised_bytes + others->shared_bytes);

	bf_format_size(bytes, want, sizeof(want));
	bf_format_size(others->total_bytes, all, sizeof(all));
	bf_format_size(others->promised_bytes, taken, sizeof(taken));
	bf_format_size(others->shared_bytes, used, sizeof(used));
	bf_format_size(free_bytes, left, sizeof(left));
	if (!others->shared_bytes)
		return bf_fail(
			err, ENOSPC,
			"memory %s cannot be reserved: of the GPU's %s, %s are reserved for other vGPUs, %s "
			"are left",
			want, all, taken, left);
	return bf_fail(
		err, ENOSPC,
		"memory %s cannot be reserved: of the GPU's %s, %s are reserved for other vGPUs and %s are in "
		"use on vGPUs without a limit, %s are left",
		want, all, taken, used, left);
}

static int promise(struct pool *pool, const struct pool_change *change, struct bf_error *err)
{
	struct pool_use next = pool->use;
	uint64_t kept = pool->kept_bytes, grows = less(change->promised_after, change->promised_before),
		 shrinks = less(change->promised_before, change->promised_after);

	next.promised_bytes = less(next.promised_bytes, change->promised_before);
	next.shared_bytes = less(next.shared_bytes, change->shared_before);
	kept = less(kept, grows) + (pool->is_moving ? shrinks : 0);
	/* A limit can always be reduced. */
	if ((grows || change->shared_after > change->shared_before) &&
	    (change->promised_after > next.total_bytes ||
	     next.promised_bytes + next.shared_bytes + kept + change->promised_after + change->shared_after >
		     next.total_bytes))
		return refuse(&next, change->promised_after, err);
	next.promised_bytes += change->promised_after;
	next.shared_bytes += change->shared_after;
	pool->use = next;
	pool->kept_bytes = kept;
	return 0;
}

int pool_promise(struct pool *pool, const struct pool_change *change, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&pool->lock);
	rc = promise(pool, change, err);
	pthread_mutex_unlock(&pool->lock);
	return rc;
}

uint64_t pool_unpromised(struct pool *pool)
{
	uint64_t bytes;

	pthread_mutex_lock(&pool->lock);
	bytes = unpromised(pool);
	pthread_mutex_unlock(&pool->lock);
	return bytes;
}

uint64_t pool_room(struct pool *pool)
{
	uint64_t bytes;

	pthread_mutex_lock(&pool->lock);
	bytes = room(pool);
	pthread_mutex_unlock(&pool->lock);
	return bytes;
}

bool pool_take(struct pool *pool, uint64_t bytes)
{
	bool fits;

	pthread_mutex_lock(&pool->lock);
	fits = bytes <= room(pool);
	if (fits)
		pool->use.shared_bytes += bytes;
	pthread_mutex_unlock(&pool->lock);
	return fits;
}

bool pool_note(struct pool *pool, uint64_t bytes)
{
	bool fits;

	pthread_mutex_lock(&pool->lock);
	pool->use.shared_bytes += bytes;
	fits = pool->use.shared_bytes <= unpromised(pool);
	pthread_mutex_unlock(&pool->lock);
	return fits;
}

void pool_give(struct pool *pool, uint64_t bytes)
{
	pthread_mutex_lock(&pool->lock);
	pool->use.shared_bytes = less(pool->use.shared_bytes, bytes);
	pthread_mutex_unlock(&pool->lock);
}

void pool_begin_move(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->is_moving = true;
	pthread_mutex_unlock(&pool->lock);
}

void pool_end_move(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->is_moving = false;
	pool->kept_bytes = 0;
	pthread_mutex_unlock(&pool->lock);
}
