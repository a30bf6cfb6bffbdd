/* Device resources: sets of SMs as masks, their splitting, and descriptors. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/green.h"
#include "soft/cuda/handle.h"
#include "soft/cuda/memory.h"

enum { UNIT = 8, SMALL_UNIT = 2, SMALL_GPU = 32 };
#define RESOURCE_MAGIC 0x5e50u

struct inside { /* of CUdevResource::_internal_padding */
	uint32_t magic;
	struct sm_part part;
};

/* ---- parts */

void sm_part_whole(const struct gpu *gpu, struct sm_part *part)
{
	*part = (struct sm_part){ .gpu = gpu->index };
	for (unsigned sm = 0; sm < gpu->shape.sm_count && sm < SOFT_SMS_MAX; sm++)
		part->mask[sm / 64] |= 1ull << sm % 64;
}

unsigned sm_part_count(const struct sm_part *part)
{
	unsigned count = 0;

	for (unsigned i = 0; i < GREEN_WORDS; i++)
		count += (unsigned)__builtin_popcountll(part->mask[i]);
	return count;
}

/* Move the first `count` SMs of a part to another. */
static void part_take(struct sm_part *from, unsigned count, struct sm_part *to)
{
	*to = (struct sm_part){ .gpu = from->gpu, .is_split = true };
	for (unsigned sm = 0; sm < SOFT_SMS_MAX && count; sm++) {
		uint64_t bit = 1ull << sm % 64;

		if (!(from->mask[sm / 64] & bit))
			continue;
		from->mask[sm / 64] &= ~bit;
		to->mask[sm / 64] |= bit;
		count--;
	}
}

static unsigned unit_of(const struct sm_part *part)
{
	return port.gpus[part->gpu].shape.sm_count < SMALL_GPU ? SMALL_UNIT : UNIT;
}

/* ---- the program's structures */

void resource_put(const struct sm_part *part, CUdevResource *resource)
{
	struct inside inside = { .magic = RESOURCE_MAGIC, .part = *part };
	unsigned count = sm_part_count(part);

	_Static_assert(sizeof(inside) <= sizeof(resource->_internal_padding), "it fits");
	memset(resource, 0, sizeof(*resource));
	if (!count) /* CU_DEV_RESOURCE_TYPE_INVALID */
		return;
	resource->type = CU_DEV_RESOURCE_TYPE_SM;
	memcpy(resource->_internal_padding, &inside, sizeof(inside));
	resource->sm.smCount = count;
	if (part->is_split)
		return;
	resource->sm.minSmPartitionSize = unit_of(part);
	resource->sm.smCoscheduledAlignment = unit_of(part);
}

/* The bytes come from the program: check that all SMs exist. */
static bool is_possible(const struct sm_part *part)
{
	struct sm_part whole;

	if (part->gpu >= port.gpu_count)
		return false;
	sm_part_whole(&port.gpus[part->gpu], &whole);
	for (unsigned i = 0; i < GREEN_WORDS; i++)
		if (part->mask[i] & ~whole.mask[i])
			return false;
	return true;
}

CUresult resource_get(const CUdevResource *resource, struct sm_part *part)
{
	struct inside inside;

	if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memcpy(&inside, resource->_internal_padding, sizeof(inside));
	if (inside.magic != RESOURCE_MAGIC || !is_possible(&inside.part) ||
	    sm_part_count(&inside.part) != resource->sm.smCount)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	*part = inside.part;
	return CUDA_SUCCESS;
}

/* ---- splitting */

struct split {
	unsigned size, count; /* of groups */
};

static CUresult split_plan(const struct sm_part *part, unsigned flags, unsigned least, struct split *split)
{
	unsigned total = sm_part_count(part);
	unsigned unit = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? SMALL_UNIT : unit_of(part);

	if (least > total || part->is_split)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	split->size = least ? (least + unit - 1) / unit * unit : unit;
	if (split->size > total) /* the whole part, even if it is not a multiple */
		split->size = total;
	split->count = total / split->size;
	return CUDA_SUCCESS;
}

static void split_do(struct sm_part *part, const struct split *split, CUdevResource *groups, unsigned *count,
		     CUdevResource *remaining)
{
	if (*count > split->count)
		*count = split->count;
	for (unsigned i = 0; i < *count; i++) {
		struct sm_part group;

		part_take(part, split->size, &group);
		resource_put(&group, &groups[i]);
	}
	if (!remaining)
		return;
	part->is_split = true;
	resource_put(part, remaining);
}

EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
					    const CUdevResource *input, CUdevResource *remaining,
					    unsigned int useFlags, unsigned int minCount)
{
	const unsigned known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
			       CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
	struct sm_part part;
	struct split split;
	CUresult rc;

	ENTER();
	if (!nbGroups || !input || useFlags & ~known || (result && !*nbGroups))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	rc = resource_get(input, &part);
	if (!rc)
		rc = split_plan(&part, useFlags, minCount, &split);
	if (rc)
		LEAVE(rc);
	if (result)
		split_do(&part, &split, result, nbGroups, remaining);
	else
		*nbGroups = split.count;
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	struct sm_part part;
	struct gpu *gpu;

	ENTER();
	gpu = gpu_find(device);
	if (!gpu)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	if (!resource)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		LEAVE(CUDA_ERROR_INVALID_RESOURCE_TYPE);
	sm_part_whole(gpu, &part);
	resource_put(&part, resource);
	LEAVE(CUDA_SUCCESS);
}

/* ---- descriptors */

struct desc {
	struct sm_part part;
	struct desc *next;
};
static struct desc *descs;

CUresult desc_make(const struct sm_part *part, CUdevResourceDesc *handle)
{
	struct desc *desc = descs;

	while (desc &&
	       (desc->part.gpu != part->gpu || memcmp(desc->part.mask, part->mask, sizeof(part->mask))))
		desc = desc->next;
	if (!desc) {
		desc = calloc(1, sizeof(*desc));
		if (!desc)
			return CUDA_ERROR_OUT_OF_MEMORY;
		desc->part = *part;
		desc->part.is_split = false;
		desc->next = descs;
		descs = desc;
	}
	*handle = (CUdevResourceDesc)desc;
	return CUDA_SUCCESS;
}

CUresult desc_find(CUdevResourceDesc handle, struct sm_part *part)
{
	for (struct desc *desc = descs; desc; desc = desc->next)
		if (desc == (struct desc *)handle) {
			*part = desc->part;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

/* Join two disjoint parts of one GPU. */
static CUresult part_join(struct sm_part *part, const struct sm_part *other)
{
	if (part->gpu != other->gpu)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	for (unsigned i = 0; i < GREEN_WORDS; i++) {
		if (part->mask[i] & other->mask[i])
			return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		part->mask[i] |= other->mask[i];
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *handle, CUdevResource *resources,
					  unsigned int nbResources)
{
	struct sm_part part, other;
	CUresult result;

	ENTER();
	if (!handle || !resources || !nbResources)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = resource_get(&resources[0], &part);
	for (unsigned i = 1; i < nbResources && !result; i++) {
		result = resource_get(&resources[i], &other);
		if (!result)
			result = part_join(&part, &other);
	}
	LEAVE(result ? result : desc_make(&part, handle));
}
