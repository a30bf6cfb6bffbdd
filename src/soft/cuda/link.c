/* cuLink*: PTX texts are joined; the result is PTX. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "soft/cuda/jit.h"
#include "soft/cuda/join.h"
#include "soft/cuda/module.h"

struct link { /* CUlinkState */
	struct jit
		/* Of cuLinkCreate: the kinds are copied; the values belong to the program, as the API
		 * requires. */
		jit;
	void **given;		   /* the original values: a report overwrites them with sizes */
	struct join_input *inputs; /* the texts are owned */
	unsigned input_count;
	struct image image; /* once completed */
	struct bf_error err;
};

static CUresult link_find(CUlinkState handle, struct link **link)
{
	if (handle_kind(handle) != HANDLE_LINK)
		return CUDA_ERROR_INVALID_HANDLE;
	*link = (struct link *)handle;
	return CUDA_SUCCESS;
}

static void link_free(struct link *link)
{
	handle_remove(link);
	image_free(&link->image);
	for (unsigned i = 0; i < link->input_count; i++)
		free((char *)(uintptr_t)link->inputs[i].text);
	free(link->inputs);
	free(link->jit.options);
	free(link->given);
	free(link);
}

static CUresult link_new(const struct jit *jit, struct link **link)
{
	struct link *made = calloc(1, sizeof(*made));

	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->jit = *jit;
	made->jit.options = malloc((jit->count + 1) * sizeof(*jit->options));
	made->given = malloc((jit->count + 1) * sizeof(*jit->values));
	if (!made->jit.options || !made->given || !handle_add(made, HANDLE_LINK)) {
		link_free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (jit->count) {
		memcpy(made->jit.options, jit->options, jit->count * sizeof(*jit->options));
		memcpy(made->given, jit->values, jit->count * sizeof(*jit->values));
	}
	*link = made;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkCreate_v2(unsigned int option_count, CUjit_option *options, void **values,
				CUlinkState *state)
{
	const struct jit jit = { option_count, options, values };
	struct link *link;
	CUresult result;

	ENTER();
	result = state ? jit_check(&jit) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = link_new(&jit, &link);
	if (!result)
		*state = (CUlinkState)link;
	LEAVE(result);
}

static void report(struct link *link)
{
	if (link->jit.count)
		memcpy(link->jit.values, link->given, link->jit.count * sizeof(*link->given));
	jit_report(&link->jit, NULL, &link->err);
}

static CUresult refuse(struct link *link, const char *why, CUresult result)
{
	bf_fail(&link->err, ENOTSUP, "%s", why);
	report(link);
	return result;
}

static CUresult check_input(struct link *link, CUjitInputType type)
{
	switch (type) {
	case CU_JIT_INPUT_PTX:
	case CU_JIT_INPUT_FATBINARY:
		break;
	case CU_JIT_INPUT_CUBIN:
	case CU_JIT_INPUT_OBJECT:
	case CU_JIT_INPUT_LIBRARY:
	case CU_JIT_INPUT_NVVM:
		return refuse(link, "only PTX can be linked on this GPU", CUDA_ERROR_NOT_SUPPORTED);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult add_text(struct link *link, const void *data, size_t bytes)
{
	struct join_input *inputs = realloc(link->inputs, (link->input_count + 1) * sizeof(*inputs));
	char *text = NULL;
	CUresult result;

	if (!inputs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	link->inputs = inputs;
	result = image_text(data, bytes, &text, &inputs[link->input_count].length, &link->err);
	if (!result)
		inputs[link->input_count++].text = text;
	return result;
}

/* Add from memory, or from a file if data is NULL. */
static CUresult add(CUlinkState state, CUjitInputType type, const void *data, size_t bytes, const char *path)
{
	cleanup_free void *content = NULL;
	struct link *link;
	CUresult result = link_find(state, &link);

	if (!result)
		result = check_input(link, type);
	if (result)
		return result;
	link->err = (struct bf_error){ 0 };
	if (!data) {
		result = image_read_file(path, &content, &bytes, &link->err);
		data = content;
	}
	if (!result)
		result = add_text(link, data, bytes);
	report(link);
	return result;
}

EXPORT CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
				 const char *name, unsigned int option_count, CUjit_option *options,
				 void **values)
{
	const struct jit jit = { option_count, options, values };
	CUresult result;

	(void)name;
	ENTER();
	result = data && bytes ? jit_check(&jit) : CUDA_ERROR_INVALID_VALUE;
	LEAVE(result ? result : add(state, type, data, bytes, NULL));
}

EXPORT CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
				 unsigned int option_count, CUjit_option *options, void **values)
{
	const struct jit jit = { option_count, options, values };
	CUresult result;

	ENTER();
	result = path ? jit_check(&jit) : CUDA_ERROR_INVALID_VALUE;
	LEAVE(result ? result : add(state, type, NULL, 0, path));
}

static CUresult complete(struct link *link)
{
	cleanup_free char *text = NULL;
	size_t length;
	CUresult result;
	int rc;

	if (link->image.text)
		return CUDA_SUCCESS;
	if (!link->input_count)
		return CUDA_ERROR_INVALID_VALUE;
	link->err = (struct bf_error){ 0 };
	rc = join_texts(link->inputs, link->input_count, false, &text, &length, &link->err);
	result = rc ? image_result(rc) : image_load(text, length, &link->image, &link->err);
	report(link);
	return result;
}

/* The result is PTX for cuModuleLoadData. It is valid as long as the link state. */
EXPORT CUresult cuLinkComplete(CUlinkState state, void **image, size_t *bytes)
{
	struct link *link;
	CUresult result;

	ENTER();
	result = image ? link_find(state, &link) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = complete(link);
	if (result)
		LEAVE(result);
	*image = link->image.text;
	if (bytes)
		*bytes = link->image.length + 1;
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuLinkDestroy(CUlinkState state)
{
	struct link *link;
	CUresult result;

	ENTER();
	result = link_find(state, &link);
	if (!result)
		link_free(link);
	LEAVE(result);
}

/* The first versions differ only in their names. */
EXPORT CUresult cuLinkCreate(unsigned int option_count, CUjit_option *options, void **values,
			     CUlinkState *state)
{
	return cuLinkCreate_v2(option_count, options, values, state);
}

EXPORT CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
			      const char *name, unsigned int option_count, CUjit_option *options,
			      void **values)
{
	return cuLinkAddData_v2(state, type, data, bytes, name, option_count, options, values);
}

EXPORT CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
			      unsigned int option_count, CUjit_option *options, void **values)
{
	return cuLinkAddFile_v2(state, type, path, option_count, options, values);
}
