/* Load images of device code of all kinds as PTX. */
#ifndef BELFRY_SOFT_CUDA_IMAGE_H
#define BELFRY_SOFT_CUDA_IMAGE_H

#include "base/error.h"
#include "cuda/api.h"
#include "soft/ptx/ptx.h"

struct image {
	char *text; /* ends with NUL, not counted in length */
	size_t length;
	struct ptx_module *ptx;
};
/* Load PTX text, a fat binary, or the wrapper of a program's fat binary. length 0: the image has its
 * length. */
CUresult image_load(const void *data, size_t length, struct image *image, struct bf_error *err);
/* Read a whole file; the caller frees the data. */
CUresult image_read_file(const char *path, void **data, size_t *length, struct bf_error *err);
CUresult image_load_file(const char *path, struct image *image, struct bf_error *err);
/* The text of the best PTX of an image, not parsed; the caller frees it. */
CUresult image_text(const void *data, size_t length, char **text, size_t *text_length, struct bf_error *err);
void image_free(struct image *image);
/* The CUDA error for an errno of the loader. */
CUresult image_result(int rc);

#endif
