/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

enum { SLOTS = 40, ROW_BYTES = 4096 };

struct child;

/* One allocation. `tag` is the byte it was filled with, checked when it is freed. */
struct slot {
	const struct kind *kind;
	uint64_t ptr, handle;
	void *array;
	size_t bytes;
	size_t rows, slices; /* of an array */
	uint8_t tag;
};

/* A way to allocate. alloc sets bytes to what it really asked for and answers a CUresult. slack_bytes: how
 * much more than `bytes` the driver itself may need to find free in one piece: it grows a pool by 32 MiB
 * at a time and pads arrays to whole tiles. A refusal with less room than that is not Belfry's. */
struct kind {
	int index;
	int (*alloc)(struct child *c, struct slot *s);
	void (*fill)(struct child *c, struct slot *s);
	bool (*is_intact)(struct child *c, struct slot *s);
	void (*free)(struct child *c, struct slot *s);
	size_t slack_bytes;
};

struct child {
	struct memory_shared *shared;
	uint32_t index, live;
	uint64_t random;
	void *stream, *pool, *default_pool;
	struct slot slots[SLOTS];
	uint8_t row[ROW_BYTES];
};

const char *const memory_kind_names[MEMORY_KINDS] = {
	"cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "own pool",
	"VMM",	      "cuArrayCreate",	 "cuArray3DCreate", "mipmapped array",
};

static const struct cu_allocation_prop vmm_prop = {
	.type = CU_ALLOCATION_PINNED,
	.location = { CU_LOCATION_DEVICE, 0 },
};

static size_t round_up(size_t value, size_t to)
{
	return (value + to - 1) / to * to;
}

static uint64_t next_random(struct child *c)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random;
}

/* 4 KiB to 1 GiB, each power of two as likely as the next. */
static size_t random_bytes(struct child *c)
{
	unsigned shift = 12 + (unsigned)(next_random(c) % 18);
	size_t bytes = (1ull << shift) + next_random(c) % (1ull << shift);

	return round_up(bytes, 512);
}

/* Linear memory */

static void fill_linear(struct child *c, struct slot *s)
{
	CU_MUST(cu.MemsetD8Async(s->ptr, s->tag, s->bytes, c->stream));
	CU_MUST(cu.StreamSynchronize(c->stream));
}

static bool linear_is_intact(struct child *c, struct slot *s)
{
	uint8_t ends[2];

	(void)c;
	CU_MUST(cu.MemcpyDtoH(&ends[0], s->ptr, 1));
	CU_MUST(cu.MemcpyDtoH(&ends[1], s->ptr + s->bytes - 1, 1));
	return ends[0] == s->tag && ends[1] == s->tag;
}

static int alloc_plain(struct child *c, struct slot *s)
{
	(void)c;
	return cu.MemAlloc(&s->ptr, s->bytes);
}

static int alloc_pitch(struct child *c, struct slot *s)
{
	size_t width = s->bytes < MIB ? 512 : 8192, height = s->bytes / width, pitch;
	int result = cu.MemAllocPitch(&s->ptr, &pitch, width, height, 4);

	(void)c;
	if (!result)
		s->bytes = pitch * height;
	return result;
}

static void free_plain(struct child *c, struct slot *s)
{
	(void)c;
	CU_MUST(cu.MemFree(s->ptr));
}

static int alloc_async(struct child *c, struct slot *s)
{
	return cu.MemAllocAsync(&s->ptr, s->bytes, c->stream);
}

static int alloc_pool(struct child *c, struct slot *s)
{
	return cu.MemAllocFromPoolAsync(&s->ptr, s->bytes, c->pool, c->stream);
}

static void free_async(struct child *c, struct slot *s)
{
	CU_MUST(cu.MemFreeAsync(s->ptr, c->stream));
	/* without this the room comes back at some later moment, and a refusal says little */
	CU_MUST(cu.StreamSynchronize(c->stream));
}

static int alloc_vmm(struct child *c, struct slot *s)
{
	const struct cu_access access = { { CU_LOCATION_DEVICE, 0 }, CU_ACCESS_READWRITE };
	int result;

	(void)c;
	s->bytes = round_up(s->bytes, 2 * MIB);
	result = cu.MemCreate(&s->handle, s->bytes, &vmm_prop, 0);
	if (result)
		return result;
	CU_MUST(cu.MemAddressReserve(&s->ptr, s->bytes, 0, 0, 0));
	CU_MUST(cu.MemMap(s->ptr, s->bytes, 0, s->handle, 0));
	CU_MUST(cu.MemSetAccess(s->ptr, s->bytes, &access, 1));
	return 0;
}

static void free_vmm(struct child *c, struct slot *s)
{
	(void)c;
	CU_MUST(cu.MemUnmap(s->ptr, s->bytes));
	CU_MUST(cu.MemAddressFree(s->ptr, s->bytes));
	CU_MUST(cu.MemRelease(s->handle));
}

/* Arrays: rows of ROW_BYTES, written and read at the first and the last one */

static int alloc_array(struct child *c, struct slot *s)
{
	struct cu_array_desc desc = { .format = CU_FORMAT_UINT32, .channels = 4 };

	(void)c;
	/* at most 65536 rows; longer rows for what needs more */
	desc.width = s->bytes > 128 * MIB ? 4096 : ROW_BYTES / 16;
	desc.height = s->bytes / (desc.width * 16);
	s->bytes = desc.width * 16 * desc.height;
	s->rows = desc.height;
	s->slices = 1;
	return cu.ArrayCreate(&s->array, &desc);
}

static int alloc_array3d(struct child *c, struct slot *s)
{
	struct cu_array3d_desc desc = {
		.width = ROW_BYTES / 16, .height = 64, .format = CU_FORMAT_UINT32, .channels = 4
	};

	(void)c;
	desc.depth = s->bytes / (ROW_BYTES * desc.height) + 1;
	s->bytes = ROW_BYTES * desc.height * desc.depth;
	s->rows = desc.height;
	s->slices = desc.depth;
	return cu.Array3DCreate(&s->array, &desc);
}

static void copy_row(struct child *c, struct slot *s, size_t y, size_t z, bool to_array)
{
	struct cu_copy_end host = { .type = CU_MEMORY_HOST, .host = c->row, .pitch = ROW_BYTES, .height = 1 };
	struct cu_copy_end array = { .type = CU_MEMORY_ARRAY, .array = s->array, .y = y, .z = z };
	struct cu_copy3d copy = { .width_bytes = ROW_BYTES, .height = 1, .depth = 1 };

	copy.src = to_array ? host : array;
	copy.dst = to_array ? array : host;
	CU_MUST(cu.Memcpy3D(&copy));
}

static void fill_array(struct child *c, struct slot *s)
{
	memset(c->row, s->tag, sizeof(c->row));
	copy_row(c, s, 0, 0, true);
	copy_row(c, s, s->rows - 1, s->slices - 1, true);
}

static bool array_is_intact(struct child *c, struct slot *s)
{
	bool is_intact;

	copy_row(c, s, 0, 0, false);
	is_intact = c->row[0] == s->tag && c->row[ROW_BYTES - 1] == s->tag;
	copy_row(c, s, s->rows - 1, s->slices - 1, false);
	return is_intact && c->row[0] == s->tag && c->row[ROW_BYTES - 1] == s->tag;
}

static void free_array(struct child *c, struct slot *s)
{
	(void)c;
	CU_MUST(cu.ArrayDestroy(s->array));
}

static int alloc_mipmapped(struct child *c, struct slot *s)
{
	struct cu_array3d_desc desc = { .width = 1024, .format = CU_FORMAT_UINT32, .channels = 4 };

	(void)c;
	desc.height = s->bytes / (desc.width * 16) + 1;
	if (desc.height > 8192)
		desc.height = 8192;
	s->bytes = desc.width * 16 * desc.height;
	return cu.MipmappedArrayCreate(&s->array, &desc, 4);
}

static void free_mipmapped(struct child *c, struct slot *s)
{
	(void)c;
	CU_MUST(cu.MipmappedArrayDestroy(s->array));
}

static const struct kind kinds[MEMORY_KINDS] = {
	{ 0, alloc_plain, fill_linear, linear_is_intact, free_plain, 0 },
	{ 1, alloc_pitch, fill_linear, linear_is_intact, free_plain, 0 },
	{ 2, alloc_async, fill_linear, linear_is_intact, free_async, 32 * MIB },
	{ 3, alloc_pool, fill_linear, linear_is_intact, free_async, 32 * MIB },
	{ 4, alloc_vmm, fill_linear, linear_is_intact, free_vmm, 0 },
	{ 5, alloc_array, fill_array, array_is_intact, free_array, 32 * MIB },
	{ 6, alloc_array3d, fill_array, array_is_intact, free_array, 32 * MIB },
	/* its levels are reached only through further handles: it is allocated and freed, not filled */
	{ 7, alloc_mipmapped, NULL, NULL, free_mipmapped, 256 * MIB },
};

/* Allocations, with the check that none is refused while there is room */

static int attempt(struct child *c, struct slot *s)
{
	int result = s->kind->alloc(c, s);

	if (result && result != CU_ERROR_OUT_OF_MEMORY) {
		fprintf(stderr, "child %u: %s of %zu bytes: %s\n", c->index,
			memory_kind_names[s->kind->index], s->bytes, cu_error(result));
		exit(1);
	}
	return result;
}

static void refused_with_room(struct child *c, const char *what, size_t bytes, size_t left)
{
	if (atomic_fetch_add(&c->shared->refused_with_room, 1) < 5)
		fprintf(stderr, "child %u: %s of %zu KiB refused with %zu KiB free\n", c->index, what,
			bytes >> 10, left >> 10);
}

/* All that is free must be there for the asking, to the last 2 MiB. */
static void probe_rest(struct child *c)
{
	size_t left, total, bytes;
	uint64_t handle;
	int result;

	CU_MUST(cu.MemGetInfo(&left, &total));
	bytes = left & ~(size_t)(2 * MIB - 1);
	if (!bytes || bytes > 4096 * MIB)
		return;
	result = cu.MemCreate(&handle, bytes, &vmm_prop, 0);
	if (!result)
		CU_MUST(cu.MemRelease(handle));
	else if (result == CU_ERROR_OUT_OF_MEMORY)
		refused_with_room(c, "all that is free", bytes, left);
	else
		CU_MUST(result);
}

/* The same again while nobody else allocates. The room is read before: others' asynchronous frees can only
 * add. */
static int attempt_alone(struct child *c, struct slot *s)
{
	size_t left, total, bytes = s->bytes;
	int result;

	pthread_rwlock_wrlock(&c->shared->lock);
	CU_MUST(cu.MemGetInfo(&left, &total));
	result = attempt(c, s);
	if (result && left >= round_up(bytes + s->kind->slack_bytes, 2 * MIB))
		refused_with_room(c, memory_kind_names[s->kind->index], bytes, left);
	if (result && next_random(c) % 4 == 0)
		probe_rest(c);
	pthread_rwlock_unlock(&c->shared->lock);
	return result;
}

static void allocate(struct child *c)
{
	struct slot *s = &c->slots[c->live];
	size_t bytes = random_bytes(c);
	int result;

	*s = (struct slot){ .kind = &kinds[next_random(c) % MEMORY_KINDS],
			    .bytes = bytes,
			    .tag = (uint8_t)next_random(c) };
	pthread_rwlock_rdlock(&c->shared->lock);
	result = attempt(c, s);
	pthread_rwlock_unlock(&c->shared->lock);
	if (result) {
		s->bytes = bytes;
		result = attempt_alone(c, s);
	}
	if (result) {
		atomic_fetch_add(&c->shared->refused[s->kind->index], 1);
		return;
	}
	if (s->kind->fill)
		s->kind->fill(c, s);
	atomic_fetch_add(&c->shared->given[s->kind->index], 1);
	c->live++;
}

static void release(struct child *c, uint32_t at)
{
	struct slot *s = &c->slots[at];

	if (s->kind->is_intact && !s->kind->is_intact(c, s))
		atomic_fetch_add(&c->shared->damaged, 1);
	pthread_rwlock_rdlock(&c->shared->lock);
	s->kind->free(c, s);
	pthread_rwlock_unlock(&c->shared->lock);
	*s = c->slots[--c->live];
	atomic_fetch_add(&c->shared->frees, 1);
}

static void trim(struct child *c)
{
	pthread_rwlock_rdlock(&c->shared->lock);
	CU_MUST(cu.MemPoolTrimTo(next_random(c) % 2 ? c->pool : c->default_pool, 0));
	pthread_rwlock_unlock(&c->shared->lock);
}

static void step(struct child *c)
{
	if (next_random(c) % 64 == 0)
		trim(c);
	if (!c->live || (c->live < SLOTS && next_random(c) % 100 < 55))
		allocate(c);
	else
		release(c, (uint32_t)(next_random(c) % c->live));
	atomic_fetch_add(&c->shared->ops, 1);
}

/* Every path once: the driver loads kernels and makes room of its own at first use, which must not happen
 * later when the vGPU is full. */
static void warm_up(struct child *c)
{
	for (int i = 0; i < MEMORY_KINDS; i++) {
		struct slot *s = &c->slots[0];

		*s = (struct slot){ .kind = &kinds[i], .bytes = 4 * MIB, .tag = 1 };
		CU_MUST(attempt(c, s));
		if (s->kind->fill)
			s->kind->fill(c, s);
		c->live = 1;
		release(c, 0);
	}
}

static void child_open(struct child *c)
{
	const struct cu_pool_props props = { .type = CU_ALLOCATION_PINNED,
					     .location = { CU_LOCATION_DEVICE, 0 } };

	cu_open();
	CU_MUST(cu.StreamCreate(&c->stream, CU_STREAM_NON_BLOCKING));
	CU_MUST(cu.MemPoolCreate(&c->pool, &props));
	CU_MUST(cu.DeviceGetDefaultMemPool(&c->default_pool, 0));
	warm_up(c);
}

static void child_quiesce(struct child *c)
{
	CU_MUST(cu.CtxSynchronize());
	CU_MUST(cu.MemPoolTrimTo(c->pool, 0));
	CU_MUST(cu.MemPoolTrimTo(c->default_pool, 0));
}

void memory_wait(struct memory_shared *shared, uint32_t index)
{
	uint32_t point = atomic_load(&shared->point);
	size_t left, total;

	atomic_fetch_add(&shared->arrived, 1);
	while (atomic_load(&shared->point) == point) {
		if (index == 0 && atomic_load(&shared->asked)) {
			CU_MUST(cu.MemGetInfo(&left, &total));
			atomic_store(&shared->told_free, left);
			atomic_store(&shared->told_total, total);
			atomic_store(&shared->asked, 0);
		}
		sleep_us(100);
	}
}

void memory_child(struct memory_shared *shared, uint32_t index)
{
	static struct child child;
	struct child *c = &child;

	c->shared = shared;
	c->index = index;
	c->random = (shared->seed * MEMORY_PROCS_MAX + index + 1) * 0x9e3779b97f4a7c15ull;
	child_open(c);
	child_quiesce(c);
	memory_wait(shared, index);
	for (int round = 0; round < MEMORY_ROUNDS; round++) {
		if (round < MEMORY_EXCHANGES)
			memory_exchange(shared, index);
		for (uint64_t i = 0; i < shared->ops_per_round; i++)
			step(c);
		child_quiesce(c);
		memory_wait(shared, index);
	}
	while (c->live)
		release(c, c->live - 1);
	child_quiesce(c);
	memory_wait(shared, index);
	exit(0);
}
