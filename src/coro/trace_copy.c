/* Copies to the host. The content is hashed in the order of the stream, by a function that the driver calls there: the library
 * does not wait, because a wait would hide errors in the order of the program's work. Memory that is not pinned is an exception:
 * the driver's call returns when the copy is done, and the program may free the memory at once. */
#include <stdlib.h>

#include "base/hash.h"
#include "coro/trace.h"

/* Copies that were placed and are not done. */
struct later {
	struct trace_event *events;
	struct trace_region *regions;
	size_t count;
};

static void write_region(const struct trace_region *region, const struct trace_event *event)
{
	uint64_t hash = 0;

	for (size_t z = 0; z < region->depth; z++)
		for (size_t y = 0; y < region->height; y++)
			hash = bf_hash_bytes(hash, region->to + z * region->slice + y * region->pitch,
					     region->width);
	trace_write("C %llx %x %llx %zx %llx\n", (unsigned long long)event->number, (unsigned)event->thread,
		    (unsigned long long)event->stream, region->width * region->height * region->depth,
		    (unsigned long long)hash);
}

static void free_later(struct later *later)
{
	free(later->events);
	free(later->regions);
	free(later);
}

static void write_later(void *data)
{
	struct later *later = data;

	for (size_t i = 0; i < later->count; i++)
		write_region(&later->regions[i], &later->events[i]);
	free_later(later);
	trace_end_later();
}

static struct later *later_new(const struct trace_region *regions, size_t count,
			       const struct trace_place *place)
{
	struct later *later = calloc(1, sizeof(*later));

	if (!later)
		return NULL;
	later->events = calloc(count, sizeof(*later->events));
	later->regions = calloc(count, sizeof(*later->regions));
	if (!later->events || !later->regions) {
		free_later(later);
		return NULL;
	}
	later->count = count;
	memcpy(later->regions, regions, count * sizeof(*regions));
	for (size_t i = 0; i < count; i++)
		later->events[i] = trace_event(place);
	return later;
}

static bool is_own_default(const struct trace_place *place)
{
	return !place->placed && place->is_own_default;
}

static void wait_for(const struct trace_place *place)
{
	if (is_own_default(place))
		real.cuStreamSynchronize_ptsz(place->placed);
	else
		real.cuStreamSynchronize(place->placed);
}

void trace_copied(const struct trace_region *regions, size_t count, struct trace_place place, bool is_done)
{
	struct later *later;
	CUresult result;

	if (!count || trace_is_captured(&place))
		return;
	later = later_new(regions, count, &place);
	if (!later)
		return;
	trace_begin_later();
	if (is_done) {
		write_later(later);
		return;
	}
	result = is_own_default(&place) ? real.cuLaunchHostFunc_ptsz(place.placed, write_later, later)
					: real.cuLaunchHostFunc(place.placed, write_later, later);
	if (!result)
		return;
	wait_for(&place); /* a driver without host functions */
	write_later(later);
}

static struct trace_region line(const void *to, size_t bytes)
{
	return (struct trace_region){ .to = to, .width = bytes, .height = 1, .depth = 1 };
}

/* A copy of a call, and not of a graph. */
static void copied(const struct trace_region *region, struct trace_place place, bool is_done)
{
	if (!is_done && !trace_is_pinned(region->to) && !trace_is_captured(&place)) {
		wait_for(&place);
		is_done = true;
	}
	trace_copied(region, 1, place, is_done);
}

static void copied_line(const void *to, size_t bytes, struct trace_place place, bool is_done)
{
	struct trace_region region = line(to, bytes);

	copied(&region, place, is_done);
}

/* Where the driver finds out by the addresses what the copy is. */
static void copied_unified(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct trace_place place,
			   bool is_done)
{
	if (trace_is_host(to) && !trace_is_host(from))
		copied_line((const void *)(uintptr_t)to, bytes, place, is_done);
}

static bool is_from_device(CUmemorytype type, CUdeviceptr address)
{
	return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
	       (type == CU_MEMORYTYPE_UNIFIED && !trace_is_host(address));
}

bool trace_region_of(const CUDA_MEMCPY3D *copy, struct trace_region *region)
{
	size_t pitch = copy->dstPitch ? copy->dstPitch : copy->dstXInBytes + copy->WidthInBytes;
	size_t slice = pitch * (copy->dstHeight ? copy->dstHeight : copy->dstY + copy->Height);
	const unsigned char *to = copy->dstHost;

	if (copy->dstMemoryType == CU_MEMORYTYPE_UNIFIED && trace_is_host(copy->dstDevice))
		to = (const unsigned char *)(uintptr_t)copy->dstDevice;
	else if (copy->dstMemoryType != CU_MEMORYTYPE_HOST)
		return false;
	if (!is_from_device(copy->srcMemoryType, copy->srcDevice))
		return false;
	*region = (struct trace_region){
		.to = to + copy->dstZ * slice + copy->dstY * pitch + copy->dstXInBytes,
		.width = copy->WidthInBytes,
		.height = copy->Height,
		.depth = copy->Depth,
		.pitch = pitch,
		.slice = slice,
	};
	return true;
}

static void copied_3d(const CUDA_MEMCPY3D *copy, struct trace_place place, bool is_done)
{
	struct trace_region region;

	if (trace_region_of(copy, &region))
		copied(&region, place, is_done);
}

static void copied_2d(const CUDA_MEMCPY2D *copy, struct trace_place place, bool is_done)
{
	CUDA_MEMCPY3D same = { .srcMemoryType = copy->srcMemoryType,
			       .srcDevice = copy->srcDevice,
			       .dstXInBytes = copy->dstXInBytes,
			       .dstY = copy->dstY,
			       .dstMemoryType = copy->dstMemoryType,
			       .dstHost = copy->dstHost,
			       .dstDevice = copy->dstDevice,
			       .dstPitch = copy->dstPitch,
			       .WidthInBytes = copy->WidthInBytes,
			       .Height = copy->Height,
			       .Depth = 1 };

	copied_3d(&same, place, is_done);
}

/* The forms of the driver's first version, for addresses of 32 bits, are not seen. */
void traced_cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes, struct trace_place place)
{
	(void)from;
	copied_line(to, bytes, place, true);
}

void traced_cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream,
				 struct trace_place place)
{
	(void)from, (void)stream;
	copied_line(to, bytes, place, false);
}

void traced_cuMemcpyAtoH_v2(void *to, CUarray from, size_t offset, size_t bytes, struct trace_place place)
{
	(void)from, (void)offset;
	copied_line(to, bytes, place, true);
}

void traced_cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t bytes, CUstream stream,
				 struct trace_place place)
{
	(void)from, (void)offset, (void)stream;
	copied_line(to, bytes, place, false);
}

void traced_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct trace_place place)
{
	copied_unified(to, from, bytes, place, true);
}

void traced_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
			  struct trace_place place)
{
	(void)stream;
	copied_unified(to, from, bytes, place, false);
}

void traced_cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy, struct trace_place place)
{
	copied_2d(copy, place, true);
}

void traced_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy, struct trace_place place)
{
	copied_2d(copy, place, true);
}

void traced_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream, struct trace_place place)
{
	(void)stream;
	copied_2d(copy, place, false);
}

void traced_cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy, struct trace_place place)
{
	copied_3d(copy, place, true);
}

void traced_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream, struct trace_place place)
{
	(void)stream;
	copied_3d(copy, place, false);
}

static void copied_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count,
			 struct trace_place place)
{
	for (size_t i = 0; i < count; i++)
		copied_unified(to[i], from[i], bytes[i], place, false);
}

void traced_cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
			       CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
			       size_t *failed, CUstream stream, struct trace_place place)
{
	(void)attributes, (void)indices, (void)attribute_count, (void)failed, (void)stream;
	copied_batch(to, from, bytes, count, place);
}

void traced_cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
				  CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,
				  CUstream stream, struct trace_place place)
{
	(void)attributes, (void)indices, (void)attribute_count, (void)stream;
	copied_batch(to, from, bytes, count, place);
}

/* Rows and layers are counted in elements. Where the source is an array, an element may have several bytes: a part of the
 * rows is hashed. */
static void copied_batch_3d(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count, struct trace_place place)
{
	for (size_t i = 0; i < count; i++) {
		const CUmemcpy3DOperand *from = &copies[i].src, *to = &copies[i].dst;
		bool is_array = from->type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
		CUDA_MEMCPY3D same = {
			.srcMemoryType = is_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
			.srcDevice = is_array ? 0 : from->op.ptr.ptr,
			.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			.dstDevice = to->op.ptr.ptr,
			.dstPitch = to->op.ptr.rowLength,
			.dstHeight = to->op.ptr.layerHeight,
			.WidthInBytes = copies[i].extent.width,
			.Height = copies[i].extent.height,
			.Depth = copies[i].extent.depth,
		};

		if (to->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
			copied_3d(&same, place, false);
	}
}

void traced_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed,
				 unsigned long long flags, CUstream stream, struct trace_place place)
{
	(void)failed, (void)flags, (void)stream;
	copied_batch_3d(copies, count, place);
}

void traced_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags,
				    CUstream stream, struct trace_place place)
{
	(void)flags, (void)stream;
	copied_batch_3d(copies, count, place);
}
