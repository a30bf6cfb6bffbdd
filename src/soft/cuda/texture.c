/* Texture and surface objects. The handle is the address of the descriptor (soft/ptx/texture.h) in device
 * memory: kernels receive the handle, as on a real GPU, and read the descriptor. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/array.h"
#include "soft/cuda/copy.h"
#include "soft/cuda/memory.h"

enum { BUFFER_TEXELS_MAX = 1 << 28, PITCHED_MAX = 131072 };
enum {
	FLAGS_KNOWN = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
		      CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION
};

static struct texture {
	uint64_t handle;
	bool is_surface;
	struct context *context;
	struct range *range;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC sampling;
	struct texture *next;
} * all_textures;

static CUresult texture_find(uint64_t handle, bool is_surface, struct texture **texture)
{
	struct texture *t = all_textures;

	while (t && (t->handle != handle || t->is_surface != is_surface))
		t = t->next;
	*texture = t;
	return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Copy the member at offset `at` of an object to the program. */
static CUresult texture_read(uint64_t handle, bool is_surface, size_t at, void *to, size_t bytes)
{
	struct texture *texture;
	CUresult result = to ? texture_find(handle, is_surface, &texture) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		memcpy(to, (const char *)texture + at, bytes);
	return result;
}

/* ---- conversion of the program's descriptions */

static CUresult from_array(CUarray handle, struct ptx_texture *to)
{
	enum ptx_texture_format format;
	struct array *array;
	CUresult result = array_find(handle, &array);

	if (result)
		return result;
	array_texel_bytes(array->shape.Format, array->shape.NumChannels, &format);
	*to = (struct ptx_texture){ .format = (uint8_t)format,
				    .channels = (uint8_t)array->shape.NumChannels,
				    .base = array->base,
				    .pitch = array->pitch,
				    .slice = array->slice,
				    .width = (uint32_t)array->shape.Width,
				    .height = (uint32_t)array->height,
				    .depth = (uint32_t)array->depth };
	return CUDA_SUCCESS;
}

static CUresult from_linear(const CUDA_RESOURCE_DESC *desc, struct ptx_texture *to)
{
	enum ptx_texture_format format;
	unsigned bytes = array_texel_bytes(desc->res.linear.format, desc->res.linear.numChannels, &format);
	uint64_t count = bytes ? desc->res.linear.sizeInBytes / bytes : 0;

	if (!count || count > BUFFER_TEXELS_MAX || desc->res.linear.devPtr % bytes ||
	    !range_find(desc->res.linear.devPtr))
		return CUDA_ERROR_INVALID_VALUE;
	*to = (struct ptx_texture){ .format = (uint8_t)format,
				    .channels = (uint8_t)desc->res.linear.numChannels,
				    .flags = PTX_TEXTURE_BUFFER,
				    .base = desc->res.linear.devPtr,
				    .width = (uint32_t)count,
				    .height = 1,
				    .depth = 1 };
	return CUDA_SUCCESS;
}

static CUresult from_pitched(const CUDA_RESOURCE_DESC *desc, struct ptx_texture *to)
{
	enum ptx_texture_format format;
	unsigned bytes = array_texel_bytes(desc->res.pitch2D.format, desc->res.pitch2D.numChannels, &format);
	uint64_t width = desc->res.pitch2D.width, height = desc->res.pitch2D.height;

	if (!bytes || !width || !height || width > PITCHED_MAX || height > PITCHED_MAX ||
	    desc->res.pitch2D.devPtr % bytes || desc->res.pitch2D.pitchInBytes % bytes ||
	    desc->res.pitch2D.pitchInBytes < width * bytes || !range_find(desc->res.pitch2D.devPtr))
		return CUDA_ERROR_INVALID_VALUE;
	*to = (struct ptx_texture){ .format = (uint8_t)format,
				    .channels = (uint8_t)desc->res.pitch2D.numChannels,
				    .base = desc->res.pitch2D.devPtr,
				    .pitch = desc->res.pitch2D.pitchInBytes,
				    .width = (uint32_t)width,
				    .height = (uint32_t)height,
				    .depth = 1 };
	return CUDA_SUCCESS;
}

static CUresult from_resource(const CUDA_RESOURCE_DESC *desc, struct ptx_texture *to)
{
	if (desc->flags)
		return CUDA_ERROR_INVALID_VALUE;
	switch (desc->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return from_array(desc->res.array.hArray, to);
	case CU_RESOURCE_TYPE_LINEAR:
		return from_linear(desc, to);
	case CU_RESOURCE_TYPE_PITCH2D:
		return from_pitched(desc, to);
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static bool is_float(const struct ptx_texture *to)
{
	return to->format >= PTX_TEXTURE_F16 ||
	       (to->format != PTX_TEXTURE_U32 && to->format != PTX_TEXTURE_S32 &&
		!(to->flags & PTX_TEXTURE_INTEGER));
}

static CUresult from_sampling(const CUDA_TEXTURE_DESC *desc, struct ptx_texture *to)
{
	if (desc->flags & ~(unsigned)FLAGS_KNOWN)
		return CUDA_ERROR_NOT_SUPPORTED; /* sRGB, seamless cube maps */
	for (unsigned d = 0; d < 3; d++) {
		if ((unsigned)desc->addressMode[d] > CU_TR_ADDRESS_MODE_BORDER)
			return CUDA_ERROR_INVALID_VALUE;
		to->address[d] = (uint8_t)desc->addressMode[d];
	}
	if ((unsigned)desc->filterMode > CU_TR_FILTER_MODE_LINEAR)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->flags & CU_TRSF_READ_AS_INTEGER)
		to->flags |= PTX_TEXTURE_INTEGER;
	if (desc->flags & CU_TRSF_NORMALIZED_COORDINATES)
		to->flags |= PTX_TEXTURE_NORMALIZED;
	if (desc->filterMode == CU_TR_FILTER_MODE_LINEAR) {
		if (!is_float(to))
			return CUDA_ERROR_INVALID_VALUE;
		to->flags |= PTX_TEXTURE_LINEAR;
	}
	memcpy(to->border, desc->borderColor, sizeof(to->border));
	return CUDA_SUCCESS;
}

/* ---- objects */

/* Allocate memory for the descriptor, and add the object to the list. */
static CUresult texture_link(struct texture *made)
{
	struct context *context;
	CUresult result = context_current(&context);

	if (!result)
		result = array_memory_new(context, sizeof(struct ptx_texture), &made->range);
	if (result)
		return result;
	made->context = context_home(context);
	made->handle = made->range->base;
	made->next = all_textures;
	all_textures = made;
	return CUDA_SUCCESS;
}

static void texture_unlink(struct texture *texture)
{
	struct texture **link = &all_textures;

	while (*link != texture)
		link = &(*link)->next;
	*link = texture->next;
	free(texture);
}

static CUresult texture_destroy(unsigned long long handle, bool is_surface)
{
	struct texture *texture;
	struct range *range;
	CUresult result = texture_find(handle, is_surface, &texture);

	if (result)
		return result;
	range = texture->range;
	texture_unlink(texture);
	array_memory_free(range);
	return CUDA_SUCCESS;
}

/* The copy releases the lock: the object and its context can be freed meanwhile. */
static CUresult texture_write(struct texture *made, struct ptx_texture *from, unsigned long long *handle)
{
	const struct op_copy copy = {
		.src = (uintptr_t)from, .dst = made->handle, .width = sizeof(*from), .height = 1, .depth = 1
	};
	bool is_surface = made->is_surface;
	CUresult result;

	from->magic = PTX_TEXTURE_MAGIC;
	result = copy_beside(made->context, &copy);
	if (result)
		texture_destroy(copy.dst, is_surface);
	else
		*handle = copy.dst;
	return result;
}

static CUresult texture_create(unsigned long long *handle, const CUDA_RESOURCE_DESC *resource,
			       const CUDA_TEXTURE_DESC *sampling)
{
	struct ptx_texture from = { 0 };
	struct texture *made;
	CUresult result = from_resource(resource, &from);

	if (!result && sampling)
		result = from_sampling(sampling, &from);
	if (result)
		return result;
	made = calloc(1, sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->is_surface = !sampling;
	made->resource = *resource;
	if (sampling)
		made->sampling = *sampling;
	result = texture_link(made);
	if (!result)
		return texture_write(made, &from, handle);
	free(made);
	return result;
}

void textures_detach(struct context *context)
{
	struct texture *next;

	for (struct texture *texture = all_textures; texture; texture = next) {
		next = texture->next;
		if (texture->context == context)
			texture_unlink(texture);
	}
}

static bool has_view(const CUDA_RESOURCE_VIEW_DESC *view)
{
	return view && view->format != CU_RES_VIEW_FORMAT_NONE;
}

EXPORT CUresult cuTexObjectCreate(CUtexObject *handle, const CUDA_RESOURCE_DESC *resource,
				  const CUDA_TEXTURE_DESC *sampling, const CUDA_RESOURCE_VIEW_DESC *view)
{
	ENTER();
	if (!handle || !resource || !sampling)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (has_view(view))
		LEAVE(CUDA_ERROR_NOT_SUPPORTED);
	LEAVE(texture_create(handle, resource, sampling));
}

EXPORT CUresult cuTexObjectDestroy(CUtexObject handle)
{
	ENTER();
	LEAVE(texture_destroy(handle, false));
}

EXPORT CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject handle)
{
	ENTER();
	LEAVE(texture_read(handle, false, offsetof(struct texture, resource), resource, sizeof(*resource)));
}

EXPORT CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *sampling, CUtexObject handle)
{
	ENTER();
	LEAVE(texture_read(handle, false, offsetof(struct texture, sampling), sampling, sizeof(*sampling)));
}

/* Objects with a view are not supported, so there is none to return. */
EXPORT CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject handle)
{
	CUresult result;

	ENTER();
	result = texture_read(handle, false, 0, view, 0);
	LEAVE(result ? result : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuSurfObjectCreate(CUsurfObject *handle, const CUDA_RESOURCE_DESC *resource)
{
	struct array *array;
	CUresult result;

	ENTER();
	if (!handle || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = array_find(resource->res.array.hArray, &array);
	if (!result && !(array->shape.Flags & CUDA_ARRAY3D_SURFACE_LDST))
		result = CUDA_ERROR_INVALID_VALUE;
	LEAVE(result ? result : texture_create(handle, resource, NULL));
}

EXPORT CUresult cuSurfObjectDestroy(CUsurfObject handle)
{
	ENTER();
	LEAVE(texture_destroy(handle, true));
}

EXPORT CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject handle)
{
	ENTER();
	LEAVE(texture_read(handle, true, offsetof(struct texture, resource), resource, sizeof(*resource)));
}
