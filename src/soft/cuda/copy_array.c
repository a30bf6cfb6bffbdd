/* Public functions: copies of bytes to and from arrays. The lines of an array are contiguous: an offset past
 * the end of a line continues in the next. */
#include "soft/cuda/array.h"
#include "soft/cuda/copy.h"

/* The address of [offset, offset + bytes) in an array. */
static CUresult place_in(CUarray handle, size_t offset, size_t bytes, uint64_t *address)
{
	struct array *array;
	CUresult result = array_find(handle, &array);

	if (result)
		return result;
	if (offset > array->range->bytes || bytes > array->range->bytes - offset)
		return CUDA_ERROR_INVALID_VALUE;
	*address = array->base + offset;
	return CUDA_SUCCESS;
}

static CUresult copy_line(uint64_t dst, uint64_t src, size_t bytes, CUstream handle, bool is_sync)
{
	const struct op_copy copy = { .src = src, .dst = dst, .width = bytes, .height = 1, .depth = 1 };
	struct stream *stream;
	CUresult result = is_sync ? capture_forbids() : CUDA_SUCCESS;

	if (!result)
		result = stream_find(handle, &stream);
	return result || !bytes ? result : copy_run(stream, &copy, is_sync);
}

static CUresult copy_in(CUarray array, size_t offset, uint64_t src, size_t bytes, CUstream stream,
			bool is_sync)
{
	uint64_t dst = 0;
	CUresult result = place_in(array, offset, bytes, &dst);

	return result ? result : copy_line(dst, src, bytes, stream, is_sync);
}

static CUresult copy_out(uint64_t dst, CUarray array, size_t offset, size_t bytes, CUstream stream,
			 bool is_sync)
{
	uint64_t src = 0;
	CUresult result = place_in(array, offset, bytes, &src);

	return result ? result : copy_line(dst, src, bytes, stream, is_sync);
}

EXPORT CUresult cuMemcpyHtoA_v2(CUarray array, size_t offset, const void *src, size_t bytes)
{
	ENTER();
	LEAVE(copy_in(array, offset, (uintptr_t)src, bytes, NULL, true));
}

EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray array, size_t offset, const void *src, size_t bytes,
				     CUstream stream)
{
	ENTER();
	LEAVE(copy_in(array, offset, (uintptr_t)src, bytes, stream, false));
}

EXPORT CUresult cuMemcpyAtoH_v2(void *dst, CUarray array, size_t offset, size_t bytes)
{
	ENTER();
	LEAVE(copy_out((uintptr_t)dst, array, offset, bytes, NULL, true));
}

EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray array, size_t offset, size_t bytes, CUstream stream)
{
	ENTER();
	LEAVE(copy_out((uintptr_t)dst, array, offset, bytes, stream, false));
}

EXPORT CUresult cuMemcpyDtoA_v2(CUarray array, size_t offset, CUdeviceptr src, size_t bytes)
{
	ENTER();
	LEAVE(range_find(src) ? copy_in(array, offset, src, bytes, NULL, true) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray array, size_t offset, size_t bytes)
{
	ENTER();
	LEAVE(range_find(dst) ? copy_out(dst, array, offset, bytes, NULL, true) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes)
{
	uint64_t src = 0;
	CUresult result;

	ENTER();
	result = place_in(from, from_offset, bytes, &src);
	LEAVE(result ? result : copy_in(to, to_offset, src, bytes, NULL, true));
}
