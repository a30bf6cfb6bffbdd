/* Public functions: copies in one dimension, and fills. */
#include "soft/cuda/copy.h"
#include "soft/cuda/memory.h"

/* The ends that are device memory by the name of the function: the library must know such memory. */
enum ends { ENDS_ANY = 0, DST_IS_DEVICE = 1, SRC_IS_DEVICE = 2, ENDS_DEVICE = 3 };

static struct op_copy copy_line(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return (struct op_copy){ .src = src, .dst = dst, .width = bytes, .height = 1, .depth = 1 };
}

static CUresult copy_linear(CUdeviceptr dst, CUdeviceptr src, size_t bytes, enum ends ends, CUstream handle,
			    bool is_sync)
{
	const struct op_copy copy = copy_line(dst, src, bytes);
	struct stream *stream;
	CUresult result = is_sync ? capture_forbids() : CUDA_SUCCESS;

	if (!result)
		result = stream_find(handle, &stream);
	if (result || !bytes)
		return result;
	if ((ends & DST_IS_DEVICE && !range_find(dst)) || (ends & SRC_IS_DEVICE && !range_find(src)))
		return CUDA_ERROR_INVALID_VALUE;
	return copy_run(stream, &copy, is_sync);
}

EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	ENTER();
	LEAVE(copy_linear(dst, src, bytes, ENDS_ANY, NULL, true));
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	ENTER();
	LEAVE(copy_linear(dst, src, bytes, ENDS_ANY, stream, false));
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
	ENTER();
	LEAVE(copy_linear(dst, (uintptr_t)src, bytes, DST_IS_DEVICE, NULL, true));
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	ENTER();
	LEAVE(copy_linear(dst, (uintptr_t)src, bytes, DST_IS_DEVICE, stream, false));
}

EXPORT CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
	ENTER();
	LEAVE(copy_linear((uintptr_t)dst, src, bytes, SRC_IS_DEVICE, NULL, true));
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	ENTER();
	LEAVE(copy_linear((uintptr_t)dst, src, bytes, SRC_IS_DEVICE, stream, false));
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	ENTER();
	LEAVE(copy_linear(dst, src, bytes, ENDS_DEVICE, NULL, true));
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	ENTER();
	LEAVE(copy_linear(dst, src, bytes, ENDS_DEVICE, stream, false));
}

/* The addresses determine the devices; the contexts only have to exist. */
static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
			  size_t bytes, CUstream stream, bool is_sync)
{
	if (!context_is((struct context *)dst_context) || !context_is((struct context *)src_context))
		return CUDA_ERROR_INVALID_CONTEXT;
	return copy_linear(dst, src, bytes, ENDS_DEVICE, stream, is_sync);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
			     size_t bytes)
{
	ENTER();
	LEAVE(copy_peer(dst, dst_context, src, src_context, bytes, NULL, true));
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
				  CUcontext src_context, size_t bytes, CUstream stream)
{
	ENTER();
	LEAVE(copy_peer(dst, dst_context, src, src_context, bytes, stream, false));
}

/* ---- fills */

static CUresult fill(const struct op_fill *what, CUstream handle, bool is_sync)
{
	const struct op op = { .kind = OP_FILL, .fill = *what };
	const struct range *range;
	struct stream *stream;
	CUresult result = is_sync ? capture_forbids() : CUDA_SUCCESS;

	if (!result)
		result = stream_find(handle, &stream);
	if (result || !what->width || !what->height)
		return result;
	range = range_find(what->dst);
	if (!range || what->dst % what->element_bytes ||
	    (what->height > 1 &&
	     (what->pitch % what->element_bytes || what->pitch / what->element_bytes < what->width)))
		return CUDA_ERROR_INVALID_VALUE;
	result = stream_do(stream, &op);
	/* Fills of device memory are asynchronous; a fill of memory that the CPU can access must be
	 * complete. */
	return !result && is_sync && !range_is_device(range) ? stream_synchronize(stream) : result;
}

static CUresult fill_line(CUdeviceptr dst, uint32_t value, uint32_t element_bytes, size_t count,
			  CUstream stream, bool is_sync)
{
	const struct op_fill what = {
		.dst = dst, .width = count, .height = 1, .value = value, .element_bytes = element_bytes
	};

	return fill(&what, stream, is_sync);
}

static CUresult fill_lines(CUdeviceptr dst, size_t pitch, struct op_fill what, CUstream stream, bool is_sync)
{
	what.dst = dst;
	what.pitch = pitch;
	return fill(&what, stream, is_sync);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
	ENTER();
	LEAVE(fill_line(dst, value, 1, count, NULL, true));
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
	ENTER();
	LEAVE(fill_line(dst, value, 1, count, stream, false));
}

EXPORT CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t count)
{
	ENTER();
	LEAVE(fill_line(dst, value, 2, count, NULL, true));
}

EXPORT CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
	ENTER();
	LEAVE(fill_line(dst, value, 2, count, stream, false));
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t count)
{
	ENTER();
	LEAVE(fill_line(dst, value, 4, count, NULL, true));
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream)
{
	ENTER();
	LEAVE(fill_line(dst, value, 4, count, stream, false));
}

EXPORT CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
				size_t height)
{
	const struct op_fill what = { .width = width, .height = height, .value = value, .element_bytes = 1 };

	ENTER();
	LEAVE(fill_lines(dst, pitch, what, NULL, true));
}

EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
				  size_t height, CUstream stream)
{
	const struct op_fill what = { .width = width, .height = height, .value = value, .element_bytes = 1 };

	ENTER();
	LEAVE(fill_lines(dst, pitch, what, stream, false));
}

EXPORT CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
				 size_t height)
{
	const struct op_fill what = { .width = width, .height = height, .value = value, .element_bytes = 2 };

	ENTER();
	LEAVE(fill_lines(dst, pitch, what, NULL, true));
}

EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
				   size_t height, CUstream stream)
{
	const struct op_fill what = { .width = width, .height = height, .value = value, .element_bytes = 2 };

	ENTER();
	LEAVE(fill_lines(dst, pitch, what, stream, false));
}

EXPORT CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
				 size_t height)
{
	const struct op_fill what = { .width = width, .height = height, .value = value, .element_bytes = 4 };

	ENTER();
	LEAVE(fill_lines(dst, pitch, what, NULL, true));
}

EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
				   size_t height, CUstream stream)
{
	const struct op_fill what = { .width = width, .height = height, .value = value, .element_bytes = 4 };

	ENTER();
	LEAVE(fill_lines(dst, pitch, what, stream, false));
}
