/* Address ranges without memory: a part of a space that a program has reserved for maps. */
#include "base/number.h"
#include "soft/driver/state.h"

enum {
	/* NV_MEMORY_ALLOCATION_PARAMS */
	ALIGN_AT = 72,
	OFFSET_AT = 80,
	LIMIT_AT = 88,
	SPACE_AT = 108,
	FLAG_FIXED = 0x10, /* NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE */
};
#define RANGE_ALIGN (2ull << 20)
#define RANGE_FROM (1ull << 32)
#define ADDRESS_END (1ull << SOFT_ADDRESS_BITS)

static uint32_t place(struct object *space, struct range_wish *wish)
{
	uint64_t align = wish->align > RANGE_ALIGN ? wish->align : RANGE_ALIGN, end;

	if (align & (align - 1))
		return RM_ERR_INVALID_ARGUMENT;
	if (!wish->is_fixed) {
		wish->base = space_pick(space, RANGE_FROM, wish->bytes, align);
		return wish->base ? RM_OK : RM_ERR_NO_MEMORY;
	}
	if (!wish->base || wish->base % SOFT_PAGE_BYTES || wish->base > ADDRESS_END - wish->bytes)
		return RM_ERR_INVALID_ARGUMENT;
	/* A map from before the reservation conflicts with it too. */
	if (space_is_reserved(space, wish->base, wish->bytes, &end) ||
	    hw_space_find(space->space.hw, wish->base, wish->bytes, SOFT_PAGE_BYTES) != wish->base)
		return RM_ERR_NO_MEMORY;
	return RM_OK;
}

static uint32_t reserve(struct site *site, struct range_wish *wish, struct object *range)
{
	struct client *client = client_of(site, site->rm.client);
	struct object *space;
	uint32_t status;

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	space = space_find(client, wish->space ? wish->space : site->rm.parent);
	if (!space)
		return ERR_NOT_FOUND;
	status = place(space, wish);
	if (status)
		return status;
	range->gpu = space->gpu;
	range->range.base = wish->base;
	range->range.bytes = wish->bytes;
	range->range.space = object_get(space);
	list_add(&space->space.ranges, &range->range.of_space);
	return RM_OK;
}

uint32_t range_make(struct site *site, uint32_t class_id, struct range_wish *wish, struct object **made)
{
	struct object *range;
	uint32_t status;

	if (!wish->bytes || wish->bytes > ADDRESS_END)
		return RM_ERR_INVALID_ARGUMENT;
	wish->bytes = bf_round_up(wish->bytes, SOFT_PAGE_BYTES);
	range = object_new(site->driver, class_id, OBJECT_VIRTUAL);
	if (!range)
		return RM_ERR_NO_MEMORY;
	pthread_mutex_lock(&site->driver->lock);
	status = reserve(site, wish, range);
	pthread_mutex_unlock(&site->driver->lock);
	if (status)
		object_put(range);
	else
		*made = range;
	return status;
}

uint32_t range_alloc(struct site *site, uint32_t gpu, struct object **object)
{
	const struct rm_layout *layout = site->driver->layout;
	uint8_t *params = site->call->params;
	struct range_wish wish;
	uint32_t status;

	(void)gpu; /* the space determines it */
	/* NV01_MEMORY_VIRTUAL has other parameters, which no program here needs. */
	if (site->rm.class_id != 0x50a0)
		return RM_ERR_NOT_SUPPORTED;
	if (site->call->params_bytes != layout->memory_size)
		return RM_ERR_INVALID_ARGUMENT;
	wish = (struct range_wish){ .space = bf_get32(params + SPACE_AT),
				    .base = bf_get64(params + OFFSET_AT),
				    .bytes = bf_get64(params + layout->memory_bytes),
				    .align = bf_get64(params + ALIGN_AT),
				    .is_fixed = bf_get32(params + layout->memory_flags) & FLAG_FIXED };
	status = range_make(site, site->rm.class_id, &wish, object);
	if (status)
		return status;
	bf_put64(params + layout->memory_bytes, wish.bytes);
	bf_put64(params + OFFSET_AT, wish.base);
	bf_put64(params + LIMIT_AT, wish.base + wish.bytes - 1);
	return RM_OK;
}
