/* Texture and surface objects for kernels. A handle is the address of a struct ptx_texture in device memory.
 * A program can write there, so every access checks all fields. */
#ifndef BELFRY_SOFT_PTX_TEXTURE_H
#define BELFRY_SOFT_PTX_TEXTURE_H

#include <stdint.h>

#define PTX_TEXTURE_MAGIC 0x78745842u /* "BXtx" */
#define PTX_TEXTURE_ALIGN 32u

enum ptx_texture_format {
	PTX_TEXTURE_U8,
	PTX_TEXTURE_U16,
	PTX_TEXTURE_U32,
	PTX_TEXTURE_S8,
	PTX_TEXTURE_S16,
	PTX_TEXTURE_S32,
	PTX_TEXTURE_F16,
	PTX_TEXTURE_F32,
	PTX_TEXTURE_FORMATS,
};

/* The values of CUaddress_mode. */
enum ptx_texture_address {
	PTX_TEXTURE_WRAP,
	PTX_TEXTURE_CLAMP,
	PTX_TEXTURE_MIRROR,
	PTX_TEXTURE_BORDER,
};

#define PTX_TEXTURE_NORMALIZED 0x01u /* coordinates are fractions of the size */
#define PTX_TEXTURE_LINEAR 0x02u     /* linear filtering instead of the nearest texel */
#define PTX_TEXTURE_INTEGER 0x04u    /* small integers are not scaled to floats in [0, 1] or [-1, 1] */
#define PTX_TEXTURE_BUFFER 0x08u     /* linear memory: outside, every channel is 0 */

struct ptx_texture {
	uint32_t magic;
	uint8_t format;
	uint8_t channels; /* 1, 2 or 4 */
	uint8_t flags;
	uint8_t reserved;
	uint64_t base;
	uint64_t pitch; /* bytes per line */
	uint64_t slice; /* bytes per plane or layer */
	uint32_t width; /* texels; sizes are not 0 */
	uint32_t height;
	uint32_t depth;
	uint8_t address[3]; /* by dimension */
	uint8_t unused;
	float border[4];
};
_Static_assert(sizeof(struct ptx_texture) == 64, "a whole number of words");

#endif
