/* CUDA arrays: create, describe, destroy. copy_shape.c copies to and from them as plain memory. */
#include "soft/cuda/array.h"

#include <stdlib.h>

#include "soft/cuda/handle.h"
#include "soft/cuda/memory.h"

/* The same limits as the device attributes. */
enum { WIDTH_MAX = 131072, HEIGHT_MAX = 65536, VOLUME_MAX = 16384, LAYERED_MAX = 32768, LAYERS_MAX = 2048 };
enum {
	FLAGS_KNOWN = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
		      CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT
};

static struct array *all_arrays;

CUresult array_find(CUarray handle, struct array **array)
{
	if (handle_kind(handle) != HANDLE_ARRAY)
		return CUDA_ERROR_INVALID_HANDLE;
	*array = (struct array *)handle;
	return CUDA_SUCCESS;
}

unsigned array_texel_bytes(CUarray_format format, unsigned channels, enum ptx_texture_format *to)
{
	static const struct {
		CUarray_format format;
		enum ptx_texture_format to;
		unsigned bytes;
	} formats[] = {
		{ CU_AD_FORMAT_UNSIGNED_INT8, PTX_TEXTURE_U8, 1 },
		{ CU_AD_FORMAT_UNSIGNED_INT16, PTX_TEXTURE_U16, 2 },
		{ CU_AD_FORMAT_UNSIGNED_INT32, PTX_TEXTURE_U32, 4 },
		{ CU_AD_FORMAT_SIGNED_INT8, PTX_TEXTURE_S8, 1 },
		{ CU_AD_FORMAT_SIGNED_INT16, PTX_TEXTURE_S16, 2 },
		{ CU_AD_FORMAT_SIGNED_INT32, PTX_TEXTURE_S32, 4 },
		{ CU_AD_FORMAT_HALF, PTX_TEXTURE_F16, 2 },
		{ CU_AD_FORMAT_FLOAT, PTX_TEXTURE_F32, 4 },
	};

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].format == format && (channels == 1 || channels == 2 || channels == 4)) {
			*to = formats[i].to;
			return formats[i].bytes * channels;
		}
	return 0;
}

CUresult array_memory_new(struct context *context, uint64_t bytes, struct range **range)
{
	CUresult result = memory_new_device(context, bytes, range);

	if (!result)
		(*range)->flags = MEMORY_OF_ARRAY;
	return result;
}

void array_memory_free(struct range *range)
{
	uint64_t base = range->base, id = range->id;

	memory_wait(range);
	/* The lock was released during the wait: the context and its memory may be gone. */
	range = range_find(base);
	if (range && range->base == base && range->id == id)
		memory_free_device(range);
}

static CUresult shape_check_layered(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	bool is_cube = shape->Flags & CUDA_ARRAY3D_CUBEMAP, is_layered = shape->Flags & CUDA_ARRAY3D_LAYERED;

	if (!shape->Depth || shape->Width > LAYERED_MAX || shape->Height > LAYERED_MAX ||
	    shape->Depth > LAYERS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_cube &&
	    (shape->Width != shape->Height || shape->Depth % 6 || (!is_layered && shape->Depth != 6)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult shape_check(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	enum ptx_texture_format format;

	if (shape->Flags & ~(unsigned)FLAGS_KNOWN)
		return CUDA_ERROR_NOT_SUPPORTED; /* sparse, deferred, depth, video */
	if (!shape->Width)
		return CUDA_ERROR_INVALID_VALUE;
	if (!array_texel_bytes(shape->Format, shape->NumChannels, &format))
		return shape->Format > CU_AD_FORMAT_FLOAT ? CUDA_ERROR_NOT_SUPPORTED
							  : CUDA_ERROR_INVALID_VALUE;
	if (shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))
		return shape_check_layered(shape);
	if (shape->Depth && (!shape->Height || shape->Width > VOLUME_MAX || shape->Height > VOLUME_MAX ||
			     shape->Depth > VOLUME_MAX))
		return CUDA_ERROR_INVALID_VALUE;
	return shape->Width > WIDTH_MAX || shape->Height > HEIGHT_MAX ? CUDA_ERROR_INVALID_VALUE
								      : CUDA_SUCCESS;
}

static CUresult array_new(const CUDA_ARRAY3D_DESCRIPTOR *shape, struct array **array)
{
	enum ptx_texture_format format;
	struct context *context;
	struct array *made;
	CUresult result = shape_check(shape);

	if (!result)
		result = context_current(&context);
	if (!result)
		result = capture_forbids();
	if (result)
		return result;
	made = calloc(1, sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*made = (struct array){ .shape = *shape,
				.context = context_home(context),
				.width = shape->Width *
					 array_texel_bytes(shape->Format, shape->NumChannels, &format),
				.height = shape->Height ? shape->Height : 1,
				.depth = shape->Depth ? shape->Depth : 1 };
	made->pitch = made->width;
	made->slice = made->pitch * made->height; /* at most 2^21 x 2^16, or 2^18 x 2^14 x 2^14 */
	result = array_memory_new(context, made->slice * made->depth, &made->range);
	if (!result && !handle_add(made, HANDLE_ARRAY)) {
		memory_free_device(made->range);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result) {
		free(made);
		return result;
	}
	made->base = made->range->base;
	made->next = all_arrays;
	all_arrays = made;
	*array = made;
	return CUDA_SUCCESS;
}

static void array_unlink(struct array *array)
{
	struct array **link = &all_arrays;

	while (*link != array)
		link = &(*link)->next;
	*link = array->next;
	handle_remove(array);
	free(array);
}

static CUresult array_destroy(CUarray handle)
{
	struct range *range;
	struct array *array;
	CUresult result = array_find(handle, &array);

	if (!result)
		result = capture_forbids();
	if (result)
		return result;
	range = array->range;
	array_unlink(array);
	array_memory_free(range);
	return CUDA_SUCCESS;
}

void arrays_detach(struct context *context)
{
	struct array *next;

	for (struct array *array = all_arrays; array; array = next) {
		next = array->next;
		if (array->context == context)
			array_unlink(array);
	}
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	struct array *array;
	CUresult result;

	ENTER();
	result = handle && shape ? array_new(shape, &array) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*handle = (CUarray)array;
	LEAVE(result);
}

EXPORT CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *shape)
{
	CUDA_ARRAY3D_DESCRIPTOR whole;
	struct array *array;
	CUresult result;

	ENTER();
	if (!handle || !shape)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	whole = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = shape->Width,
					   .Height = shape->Height,
					   .Format = shape->Format,
					   .NumChannels = shape->NumChannels };
	result = array_new(&whole, &array);
	if (!result)
		*handle = (CUarray)array;
	LEAVE(result);
}

EXPORT CUresult cuArrayDestroy(CUarray handle)
{
	ENTER();
	LEAVE(array_destroy(handle));
}

EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray handle)
{
	struct array *array;

	LEAVE_WITH(shape, array_find(handle, &array), array->shape);
}

EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *shape, CUarray handle)
{
	struct array *array;
	CUresult result;

	ENTER();
	result = shape ? array_find(handle, &array) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*shape = (CUDA_ARRAY_DESCRIPTOR){ .Width = array->shape.Width,
						  .Height = array->shape.Height,
						  .Format = array->shape.Format,
						  .NumChannels = array->shape.NumChannels };
	LEAVE(result);
}
