/* Device memory and host memory. Several objects, also of several clients, may refer to the same memory. */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/number.h"
#include "soft/driver/state.h"

enum {
	/* NV_MEMORY_ALLOCATION_PARAMS */
	LIMIT_AT = 88,
	/* NVOS32.data.AllocSize */
	HEAP_SIZE_AT = 88,
	HEAP_ALIGN_AT = 96,
	HEAP_OFFSET_AT = 104,
	HEAP_LIMIT_AT = 112,
	HEAP_SPACE_AT = 12,
	HEAP_TOTAL_AT = 24,
	HEAP_FREE_AT = 32,
	HEAP_FLAG_FIXED = 0x10,
	CLOSING_LIMIT_S = 2,
};
#define ATTR_LOCATION 0x06000000u /* 26:25; 0 is video memory */
#define BYTES_MAX (1ull << 46)

/* Host memory is scarcer here than with a real card: its sum is limited to HOST_FACTOR times the GPUs'
 * memory. */
static uint32_t take_host(struct driver *driver, uint64_t bytes)
{
	uint32_t status = RM_OK;

	pthread_mutex_lock(&driver->lock);
	if (bytes > driver->host_max_bytes - driver->host_bytes)
		status = RM_ERR_NO_MEMORY;
	else
		driver->host_bytes += bytes;
	pthread_mutex_unlock(&driver->lock);
	return status;
}

static void give_host(struct driver *driver, uint64_t bytes)
{
	pthread_mutex_lock(&driver->lock);
	driver->host_bytes -= bytes;
	pthread_mutex_unlock(&driver->lock);
}

/* A program that has ended may still be cleaned up; in the kernel, its exit would have waited for that. True
 * if there was something to wait for. */
static bool wait_closing(struct driver *driver)
{
	struct timespec until;
	bool has_waited;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += CLOSING_LIMIT_S;
	pthread_mutex_lock(&driver->lock);
	has_waited = driver->closing_count > 0;
	while (driver->closing_count)
		if (pthread_cond_timedwait(&driver->is_quiet, &driver->lock, &until))
			break;
	pthread_mutex_unlock(&driver->lock);
	return has_waited;
}

static uint32_t make_hw(struct driver *driver, uint32_t gpu, const struct memory_wish *wish,
			struct hw_memory **hw)
{
	struct bf_error err = { 0 };

	if (!wish->is_vidmem && take_host(driver, wish->bytes))
		return RM_ERR_NO_MEMORY;
	if (!hw_memory_new(driver->gpus[gpu], wish->bytes, wish->is_vidmem, hw, &err) ||
	    (wish->is_vidmem && wait_closing(driver) &&
	     !hw_memory_new(driver->gpus[gpu], wish->bytes, wish->is_vidmem, hw, &err)))
		return RM_OK;
	bf_log(BF_LOG_DEBUG, "%llu bytes refused: %s", (unsigned long long)wish->bytes, err.text);
	if (!wish->is_vidmem)
		give_host(driver, wish->bytes);
	return RM_ERR_NO_MEMORY;
}

uint32_t memory_make(struct driver *driver, uint32_t gpu, uint32_t class_id, struct memory_wish *wish,
		     struct object **made)
{
	struct object *object;
	struct block *block;
	uint32_t status;

	if (!wish->bytes)
		return RM_ERR_INVALID_ARGUMENT;
	if (wish->bytes > BYTES_MAX)
		return RM_ERR_NO_MEMORY;
	wish->bytes = bf_round_up(wish->bytes, wish->is_vidmem ? SOFT_VIDMEM_ROUND : SOFT_PAGE_BYTES);
	object = object_new(driver, class_id, OBJECT_MEMORY);
	block = calloc(1, sizeof(*block));
	status = object && block ? make_hw(driver, gpu, wish, &block->hw) : RM_ERR_NO_MEMORY;
	if (status) {
		free(block);
		free(object);
		return status;
	}
	block->bytes = wish->bytes;
	block->is_vidmem = wish->is_vidmem;
	block->gpu = object->gpu = gpu;
	list_init(&block->holders);
	memory_join(block, object);
	*made = object;
	return RM_OK;
}

/* Call with the lock held, or before other threads know the block. */
void memory_join(struct block *block, struct object *object)
{
	atomic_fetch_add(&block->refs, 1);
	object->memory.block = block;
	list_add(&block->holders, &object->memory.of_block);
}

void memory_leave(struct object *object)
{
	struct block *block = object->memory.block;
	struct driver *driver = object->driver;

	if (!block)
		return;
	/* An object that was never attached is still in the list. */
	pthread_mutex_lock(&driver->lock);
	list_remove(&object->memory.of_block);
	pthread_mutex_unlock(&driver->lock);
	if (atomic_fetch_sub(&block->refs, 1) != 1)
		return;
	hw_memory_put(block->hw);
	if (!block->is_vidmem)
		give_host(driver, block->bytes);
	free(block);
}

struct hw_memory *memory_find(const struct client *client, uint32_t handle)
{
	struct object *object = object_find(client, handle, OBJECT_MEMORY);

	return object ? hw_memory_get(object->memory.block->hw) : NULL;
}

/* NV_MEMORY_ALLOCATION_PARAMS: 0x40 is video memory, and its attributes must not contradict that, as in the
 * driver (video_mem.c); 0x3e is host memory. */
uint32_t memory_alloc(struct site *site, uint32_t gpu, struct object **object)
{
	const struct rm_layout *layout = site->driver->layout;
	uint8_t *params = site->call->params;
	struct memory_wish wish;
	uint32_t status;

	if (site->call->params_bytes != layout->memory_size)
		return RM_ERR_INVALID_ARGUMENT;
	wish.bytes = bf_get64(params + layout->memory_bytes);
	wish.is_vidmem = site->rm.class_id == 0x40;
	if (wish.is_vidmem && bf_get32(params + layout->memory_attr) & ATTR_LOCATION)
		return RM_ERR_INVALID_ARGUMENT;
	status = memory_make(site->driver, gpu, site->rm.class_id, &wish, object);
	if (status)
		return status;
	bf_put64(params + layout->memory_bytes, wish.bytes);
	bf_put64(params + LIMIT_AT, wish.bytes - 1);
	return RM_OK;
}

/* The GPU of the device that the call names as parent. */
static uint32_t find_gpu(struct site *site, uint32_t *gpu)
{
	struct client *client;
	struct object *device = NULL;

	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	if (client)
		device = object_find(client, site->rm.parent, OBJECT_DEVICE);
	if (device)
		*gpu = device->gpu;
	pthread_mutex_unlock(&site->driver->lock);
	return !client ? RM_ERR_INVALID_CLIENT : !device ? RM_ERR_INVALID_OBJECT_PARENT : RM_OK;
}

static uint32_t heap_range(struct site *site)
{
	uint8_t *arg = site->call->arg;
	struct range_wish wish = { .space = bf_get32(arg + HEAP_SPACE_AT),
				   .base = bf_get64(arg + HEAP_OFFSET_AT),
				   .bytes = site->rm.bytes,
				   .align = bf_get64(arg + HEAP_ALIGN_AT),
				   .is_fixed = site->rm.flags & HEAP_FLAG_FIXED };
	uint32_t handle = site->rm.object, status;
	struct object *object;

	status = range_make(site, 0x50a0, &wish, &object);
	if (!status)
		status = site_attach(site, object, &handle);
	if (status)
		return status;
	bf_put32(arg + site->rm.object_at, handle);
	bf_put64(arg + HEAP_OFFSET_AT, wish.base);
	bf_put64(arg + HEAP_SIZE_AT, wish.bytes);
	bf_put64(arg + HEAP_LIMIT_AT, wish.base + wish.bytes - 1);
	return RM_OK;
}

static uint32_t heap_alloc(struct site *site)
{
	struct memory_wish wish = { site->rm.bytes, site->rm.heap_class == 0x40 };
	uint32_t gpu, handle = site->rm.object, status = find_gpu(site, &gpu);
	uint8_t *arg = site->call->arg;
	struct object *object;

	if (status)
		return status;
	if (site->rm.heap_class == 0x50a0)
		return heap_range(site);
	if (site->rm.heap_class != 0x40 && site->rm.heap_class != 0x3e)
		return RM_ERR_NOT_SUPPORTED;
	status = memory_make(site->driver, gpu, site->rm.heap_class, &wish, &object);
	if (!status)
		status = site_attach(site, object, &handle);
	if (status)
		return status;
	bf_put32(arg + site->rm.object_at, handle);
	bf_put64(arg + HEAP_SIZE_AT, wish.bytes);
	bf_put64(arg + HEAP_LIMIT_AT, wish.bytes - 1);
	return RM_OK;
}

static uint32_t heap_info(struct site *site)
{
	struct driver *driver = site->driver;
	uint32_t gpu, status = find_gpu(site, &gpu);

	if (status)
		return status;
	bf_put64(site->call->arg + HEAP_TOTAL_AT, driver->config.mem_bytes);
	bf_put64(site->call->arg + HEAP_FREE_AT,
		 driver->config.mem_bytes - hw_gpu_used_bytes(driver->gpus[gpu]));
	return RM_OK;
}

uint32_t site_vid_heap(struct site *site)
{
	switch (site->rm.class_id) {
	case RM_HEAP_ALLOC_SIZE:
		return heap_alloc(site);
	case RM_HEAP_FREE:
		return site_free(site, site->rm.object);
	case RM_HEAP_INFO:
		return heap_info(site);
	default:
		return RM_ERR_NOT_SUPPORTED;
	}
}

/* The oldest form, for host memory only. If it names a file, it also prepares the map. */
uint32_t site_alloc_memory(struct site *site)
{
	struct memory_wish wish = { .bytes = site->rm.bytes };
	uint32_t gpu, handle = site->rm.object, status = find_gpu(site, &gpu);
	struct object *object;
	struct client *client;

	if (status)
		return status;
	if (site->rm.class_id != 0x3e)
		return RM_ERR_NOT_SUPPORTED;
	status = memory_make(site->driver, gpu, site->rm.class_id, &wish, &object);
	if (!status)
		status = site_attach(site, object, &handle);
	if (status)
		return status;
	bf_put32(site->call->arg + site->rm.object_at, handle);
	if (!site->call->named)
		return RM_OK;
	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	object = client ? object_find(client, handle, OBJECT_MEMORY) : NULL;
	if (object)
		map_prepare(site, client, object, 0, wish.bytes);
	pthread_mutex_unlock(&site->driver->lock);
	return RM_OK;
}
