/* Find the PTX in an image. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "cuda/fatbin.h"
#include "soft/cuda/image.h"
#include "soft/cuda/join.h"

enum { TARGET = 90, PARTS_MAX = 4096 };

CUresult image_result(int rc)
{
	switch (rc) {
	case 0:
		return CUDA_SUCCESS;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -ENOTSUP:
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	case -ENOENT:
		return CUDA_ERROR_FILE_NOT_FOUND;
	default:
		return CUDA_ERROR_INVALID_PTX;
	}
}

static CUresult no_code(uint32_t target, struct bf_error *err)
{
	if (target)
		bf_fail(err, ENOEXEC,
			"the image holds machine code for sm_%u and no PTX, which is what this GPU runs; compile "
			"with -gencode arch=compute_%u,code=compute_%u",
			target, TARGET, TARGET);
	else
		bf_fail(err, ENOEXEC,
			"the image is machine code, not PTX, which is what this GPU runs; compile with "
			"-gencode arch=compute_%u,code=compute_%u",
			TARGET, TARGET);
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* Load the first candidate that is valid; if none is, report the error of the best. */
static CUresult load_fatbin(const void *data, size_t length, struct image *image, struct bf_error *err)
{
	struct bf_error first = { 0 }, later;
	struct fatbin_choices found;

	if (fatbin_choose(data, length, TARGET, &found, err))
		return CUDA_ERROR_INVALID_IMAGE;
	if (!found.count)
		return no_code(found.machine_target, err);
	for (unsigned i = 0; i < found.count; i++) {
		int rc = fatbin_text(&found.list[i], &image->text, &image->length, i ? &later : &first);

		if (!rc)
			rc = ptx_module_load(image->text, image->length, &image->ptx, i ? &later : &first);
		if (!rc)
			return CUDA_SUCCESS;
		image_free(image);
	}
	*err = first;
	return image_result(-first.code);
}

static CUresult load_text(const char *data, size_t length, struct image *image, struct bf_error *err)
{
	int rc;

	length = strnlen(data, length ? length : (size_t)PTX_TEXT_MAX_BYTES + 1);
	if (!memmem(data, length, ".version", 8)) {
		bf_fail(err, EINVAL, "the image is neither PTX nor a fat binary");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	image->text = malloc(length + 1);
	if (!image->text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(image->text, data, length);
	image->text[length] = '\0';
	image->length = length;
	rc = ptx_module_load(image->text, length, &image->ptx, err);
	if (rc)
		image_free(image);
	return image_result(rc);
}

/* ---- separately compiled device code (nvcc -rdc=true): the PTX of all parts is joined */

static CUresult fatbin_best(const void *data, size_t length, char **text, size_t *text_length,
			    struct bf_error *err)
{
	struct fatbin_choices found;

	if (fatbin_choose(data, length, TARGET, &found, err))
		return CUDA_ERROR_INVALID_IMAGE;
	if (!found.count)
		return no_code(found.machine_target, err);
	return image_result(fatbin_text(&found.list[0], text, text_length, err));
}

static CUresult join(struct join_input *inputs, unsigned count, struct image *image, struct bf_error *err)
{
	int rc = join_texts(inputs, count, true, &image->text, &image->length, err);

	if (!rc)
		rc = ptx_module_load(image->text, image->length, &image->ptx, err);
	if (rc)
		image_free(image);
	return image_result(rc);
}

/* A part without PTX is skipped: the error then names the missing definitions. */
static CUresult load_parts(const void *const *parts, struct image *image, struct bf_error *err)
{
	struct join_input *inputs;
	CUresult result = CUDA_SUCCESS;
	unsigned part_count = 0, count = 0;

	while (part_count < PARTS_MAX && parts[part_count])
		part_count++;
	inputs = calloc(part_count + 1, sizeof(*inputs));
	if (!inputs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < part_count && !result; i++) {
		char *text = NULL;

		result = fatbin_best(parts[i], fatbin_length(parts[i]), &text, &inputs[count].length, err);
		if (!result)
			inputs[count++].text = text;
		else if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
			result = CUDA_SUCCESS;
	}
	if (!result)
		result = count ? join(inputs, count, image, err) : CUDA_ERROR_NO_BINARY_FOR_GPU;
	for (unsigned i = 0; i < count; i++)
		free((char *)(uintptr_t)inputs[i].text);
	free(inputs);
	return result;
}

static CUresult load_wrapped(const void *data, struct image *image, struct bf_error *err)
{
	struct fatbin_wrapper wrapper;

	memcpy(&wrapper, data, sizeof(wrapper));
	if (wrapper.version == 2 && wrapper.parts)
		return load_parts(wrapper.parts, image, err);
	if (!wrapper.data || !fatbin_starts_with(wrapper.data, 0, FATBIN_MAGIC))
		return CUDA_ERROR_INVALID_IMAGE;
	return load_fatbin(wrapper.data, fatbin_length(wrapper.data), image, err);
}

CUresult image_load(const void *data, size_t length, struct image *image, struct bf_error *err)
{
	const uint32_t elf = 0x464c457f;

	*image = (struct image){ 0 };
	if (!length && fatbin_starts_with(data, 0, FATBIN_WRAPPER_MAGIC))
		return load_wrapped(data, image, err);
	if (fatbin_starts_with(data, length, elf))
		return no_code(0, err);
	if (fatbin_starts_with(data, length, FATBIN_MAGIC))
		return load_fatbin(data, length ? length : fatbin_length(data), image, err);
	return load_text(data, length, image, err);
}

CUresult image_text(const void *data, size_t length, char **text, size_t *text_length, struct bf_error *err)
{
	if (fatbin_starts_with(data, length, FATBIN_MAGIC))
		return fatbin_best(data, length, text, text_length, err);
	*text_length = strnlen(data, length);
	*text = strndup(data, *text_length);
	return *text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult image_read_file(const char *path, void **data, size_t *length, struct bf_error *err)
{
	cleanup_file FILE *file = fopen(path, "rbe");
	long bytes;

	*data = NULL;
	if (!file) {
		bf_fail(err, errno, "reading %s: %s", path, strerror(errno));
		return CUDA_ERROR_FILE_NOT_FOUND;
	}
	if (fseek(file, 0, SEEK_END) || (bytes = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (!bytes || bytes > (long)1 << 30)
		return CUDA_ERROR_INVALID_IMAGE;
	*length = (size_t)bytes;
	*data = malloc(*length);
	if (!*data)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (fread(*data, 1, *length, file) == *length)
		return CUDA_SUCCESS;
	free(*data);
	*data = NULL;
	return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult image_load_file(const char *path, struct image *image, struct bf_error *err)
{
	cleanup_free void *data = NULL;
	size_t length;
	CUresult result = image_read_file(path, &data, &length, err);

	*image = (struct image){ 0 };
	return result ? result : image_load(data, length, image, err);
}

void image_free(struct image *image)
{
	ptx_module_free(image->ptx);
	free(image->text);
	*image = (struct image){ 0 };
}
