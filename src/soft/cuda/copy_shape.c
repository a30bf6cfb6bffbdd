/* Public functions: copies in two and three dimensions, and batches of copies. */
#include "soft/cuda/array.h"
#include "soft/cuda/copy.h"

/* One end of a copy, from the public structures. */
struct end {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, z, pitch, height;
};

static CUresult end_address(const struct end *end, uint64_t *address)
{
	switch (end->type) {
	case CU_MEMORYTYPE_HOST:
		*address = (uintptr_t)end->host;
		return CUDA_SUCCESS;
	case CU_MEMORYTYPE_DEVICE:
		*address = end->device;
		return range_find(end->device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_MEMORYTYPE_UNIFIED:
		*address = end->device;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Like end_take, for an array: it has its own pitch and height, and the copied part must be inside. */
static CUresult end_take_array(const struct end *end, const struct op_copy *size, uint64_t *address,
			       uint64_t *pitch, uint64_t *slice)
{
	struct array *array;
	CUresult result = array_find(end->array, &array);

	if (result)
		return result;
	if (end->x > array->width || size->width > array->width - end->x || end->y > array->height ||
	    size->height > array->height - end->y || end->z > array->depth ||
	    size->depth > array->depth - end->z)
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = array->pitch;
	*slice = array->slice;
	*address = array->base + end->z * array->slice + end->y * array->pitch + end->x;
	return CUDA_SUCCESS;
}

/* The address of the first byte, and the pitches of lines and planes. A pitch or height of 0 stands for the
 * smallest one; a smaller one is an error. */
static CUresult end_take(const struct end *end, const struct op_copy *size, uint64_t *address,
			 uint64_t *pitch, uint64_t *slice)
{
	uint64_t skip, planes, width, height;
	CUresult result;

	if (end->type == CU_MEMORYTYPE_ARRAY)
		return end_take_array(end, size, address, pitch, slice);
	result = end_address(end, address);
	if (result)
		return result;
	if (__builtin_add_overflow(end->x, size->width, &width) ||
	    __builtin_add_overflow(end->y, size->height, &height))
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = end->pitch ? end->pitch : width;
	if (*pitch < width || (size->depth > 1 && end->height && end->height < height))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(*pitch, end->height ? end->height : height, slice) ||
	    __builtin_mul_overflow(end->z, *slice, &planes) ||
	    __builtin_mul_overflow(end->y, *pitch, &skip) || __builtin_add_overflow(skip, planes, &skip) ||
	    __builtin_add_overflow(skip, end->x, &skip) || __builtin_add_overflow(*address, skip, address))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult copy_between(const struct end *src, const struct end *dst, struct op_copy *copy)
{
	CUresult result = end_take(src, copy, &copy->src, &copy->src_pitch, &copy->src_slice);

	if (!result)
		result = end_take(dst, copy, &copy->dst, &copy->dst_pitch, &copy->dst_slice);
	return result;
}

/* These names are common to the three structures. */
#define END(shape, side) \
	{ \
		.type = (shape)->side##MemoryType, .host = (shape)->side##Host, \
		.device = (shape)->side##Device, .array = (shape)->side##Array, \
		.x = (shape)->side##XInBytes, .y = (shape)->side##Y, .pitch = (shape)->side##Pitch \
	}

static CUresult copy_from_2d(const CUDA_MEMCPY2D *shape, struct op_copy *copy)
{
	const struct end src = END(shape, src), dst = END(shape, dst);

	*copy = (struct op_copy){ .width = shape->WidthInBytes, .height = shape->Height, .depth = 1 };
	return copy_between(&src, &dst, copy);
}

CUresult copy_from_3d(const CUDA_MEMCPY3D *shape, struct op_copy *copy)
{
	struct end src = END(shape, src), dst = END(shape, dst);

	*copy = (struct op_copy){ .width = shape->WidthInBytes,
				  .height = shape->Height,
				  .depth = shape->Depth };
	if (shape->srcLOD || shape->dstLOD || shape->reserved0 || shape->reserved1)
		return CUDA_ERROR_INVALID_VALUE;
	src.z = shape->srcZ;
	src.height = shape->srcHeight;
	dst.z = shape->dstZ;
	dst.height = shape->dstHeight;
	return copy_between(&src, &dst, copy);
}

static CUresult copy_from_peer(const CUDA_MEMCPY3D_PEER *shape, struct op_copy *copy)
{
	struct end src = END(shape, src), dst = END(shape, dst);

	*copy = (struct op_copy){ .width = shape->WidthInBytes,
				  .height = shape->Height,
				  .depth = shape->Depth };
	if (shape->srcLOD || shape->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	if ((shape->srcContext && !context_is((struct context *)shape->srcContext)) ||
	    (shape->dstContext && !context_is((struct context *)shape->dstContext)))
		return CUDA_ERROR_INVALID_CONTEXT;
	src.z = shape->srcZ;
	src.height = shape->srcHeight;
	dst.z = shape->dstZ;
	dst.height = shape->dstHeight;
	return copy_between(&src, &dst, copy);
}

static CUresult shape_run(const struct op_copy *copy, CUstream handle, bool is_sync)
{
	struct stream *stream;
	CUresult result = is_sync ? capture_forbids() : CUDA_SUCCESS;

	if (!result)
		result = stream_find(handle, &stream);
	return result ? result : copy_run(stream, copy, is_sync);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *shape, CUstream stream, bool is_sync)
{
	struct op_copy copy;
	CUresult result = shape ? copy_from_2d(shape, &copy) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : shape_run(&copy, stream, is_sync);
}

EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *shape)
{
	ENTER();
	LEAVE(copy_2d(shape, NULL, true));
}

EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *shape)
{
	ENTER();
	LEAVE(copy_2d(shape, NULL, true));
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *shape, CUstream stream)
{
	ENTER();
	LEAVE(copy_2d(shape, stream, false));
}

static CUresult copy_3d(const CUDA_MEMCPY3D *shape, CUstream stream, bool is_sync)
{
	struct op_copy copy;
	CUresult result = shape ? copy_from_3d(shape, &copy) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : shape_run(&copy, stream, is_sync);
}

EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *shape)
{
	ENTER();
	LEAVE(copy_3d(shape, NULL, true));
}

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *shape, CUstream stream)
{
	ENTER();
	LEAVE(copy_3d(shape, stream, false));
}

static CUresult copy_peer(const CUDA_MEMCPY3D_PEER *shape, CUstream stream, bool is_sync)
{
	struct op_copy copy;
	CUresult result = shape ? copy_from_peer(shape, &copy) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : shape_run(&copy, stream, is_sync);
}

EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *shape)
{
	ENTER();
	LEAVE(copy_peer(shape, NULL, true));
}

EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *shape, CUstream stream)
{
	ENTER();
	LEAVE(copy_peer(shape, stream, false));
}

/* ---- batches: any order of the copies is allowed, so they run one after the other */

/* A batch does not accept the null stream. */
static CUresult batch_stream(CUstream handle, struct stream **stream)
{
	CUresult result = stream_find(handle, stream);

	return !result && (*stream)->is_null ? CUDA_ERROR_INVALID_VALUE : result;
}

static CUresult batch_run(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count, CUstream handle,
			  size_t *failed)
{
	struct stream *stream;
	CUresult result = dst && src && bytes && count ? batch_stream(handle, &stream)
						       : CUDA_ERROR_INVALID_VALUE;

	if (failed)
		*failed = SIZE_MAX; /* the error is not that of a single copy */
	for (size_t i = 0; i < count && !result; i++) {
		const struct op_copy copy = {
			.dst = dst[i], .src = src[i], .width = bytes[i], .height = 1, .depth = 1
		};

		result = copy_run(stream, &copy, false);
		if (result && failed)
			*failed = i;
	}
	return result;
}

static CUresult attributes_check(const CUmemcpyAttributes *attributes, const size_t *starts, size_t count,
				 size_t copies)
{
	if (!attributes || !starts || !count || count > copies || starts[0])
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
		    attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY || starts[i] >= copies)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
				   CUmemcpyAttributes *attributes, size_t *starts, size_t attribute_count,
				   size_t *failed, CUstream stream)
{
	CUresult result = attributes_check(attributes, starts, attribute_count, count);

	if (result)
		return result;
	ENTER();
	LEAVE(batch_run(dst, src, bytes, count, stream, failed));
}

EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
				      CUmemcpyAttributes *attributes, size_t *starts, size_t attribute_count,
				      CUstream stream)
{
	CUresult result = attributes_check(attributes, starts, attribute_count, count);

	if (result)
		return result;
	ENTER();
	LEAVE(batch_run(dst, src, bytes, count, stream, NULL));
}

static CUresult operand_end(const CUmemcpy3DOperand *operand, struct end *end)
{
	if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return CUDA_ERROR_INVALID_VALUE;
	*end = (struct end){ .type = CU_MEMORYTYPE_UNIFIED,
			     .device = operand->op.ptr.ptr,
			     .pitch = operand->op.ptr.rowLength,
			     .height = operand->op.ptr.layerHeight };
	return CUDA_SUCCESS;
}

static CUresult batch_run_3d(size_t count, const CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
			     unsigned long long flags, CUstream handle)
{
	struct stream *stream;
	struct end src, dst;
	CUresult result = count && list && !flags ? batch_stream(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (failed)
		*failed = SIZE_MAX;
	for (size_t i = 0; i < count && !result; i++) {
		struct op_copy copy = { .width = list[i].extent.width,
					.height = list[i].extent.height,
					.depth = list[i].extent.depth };

		result = operand_end(&list[i].src, &src);
		if (!result)
			result = operand_end(&list[i].dst, &dst);
		if (!result)
			result = copy_between(&src, &dst, &copy);
		if (!result)
			result = copy_run(stream, &copy, false);
		if (result && failed)
			*failed = i;
	}
	return result;
}

EXPORT CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
				     unsigned long long flags, CUstream stream)
{
	ENTER();
	LEAVE(batch_run_3d(count, list, failed, flags, stream));
}

EXPORT CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags,
					CUstream stream)
{
	ENTER();
	LEAVE(batch_run_3d(count, list, NULL, flags, stream));
}
