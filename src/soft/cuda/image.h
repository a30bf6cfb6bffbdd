/* Images of device code, of whatever kind, as PTX. */
#ifndef BELFRY_SOFT_CUDA_IMAGE_H
#define BELFRY_SOFT_CUDA_IMAGE_H

#include "base/error.h"
#include "soft/cuda/api.h"
#include "soft/ptx/ptx.h"

struct image {
	char *text; /* ends with NUL, which length does not count */
	size_t length;
	struct ptx_module *ptx;
};
/* From PTX text, a fat binary, or the structure by which a program's own is found. length 0: the image tells. */
CUresult image_load(const void *data, size_t length, struct image *image, struct bf_error *err);
/* A whole file; the caller frees the data. */
CUresult image_read_file(const char *path, void **data, size_t *length, struct bf_error *err);
CUresult image_load_file(const char *path, struct image *image, struct bf_error *err);
/* The best PTX of an image as text, not looked into; the caller frees it. */
CUresult image_text(const void *data, size_t length, char **text, size_t *text_length, struct bf_error *err);
void image_free(struct image *image);
/* An errno of the loader as what CUDA would say. */
CUresult image_result(int rc);

#endif
