/* Write the logs of loading PTX. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "soft/cuda/jit.h"
#include "soft/cuda/refused.h"

CUresult jit_check(const struct jit *jit)
{
	if (jit->count && (!jit->options || !jit->values))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < jit->count; i++)
		if ((unsigned)jit->options[i] >= CU_JIT_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static void **find(const struct jit *jit, CUjit_option option)
{
	for (unsigned i = 0; i < jit->count; i++)
		if (jit->options[i] == option)
			return &jit->values[i];
	return NULL;
}

/* The size is passed as a number in place of a pointer. In: the size of the buffer. Out: the bytes
 * written. */
static void fill(const struct jit *jit, CUjit_option buffer_option, CUjit_option size_option,
		 const char *text)
{
	void **buffer = find(jit, buffer_option), **size = find(jit, size_option);
	size_t room = size ? (unsigned)(uintptr_t)*size : 0, length = strlen(text);

	if (!buffer || !*buffer || !room)
		return;
	if (length >= room)
		length = room - 1;
	memcpy(*buffer, text, length);
	((char *)*buffer)[length] = '\0';
	*size = (void *)(uintptr_t)length;
}

/* The wording of ptxas, because programs show and search these lines. */
static void word(const struct bf_error *err, char *to, size_t room)
{
	unsigned line = 0;
	int from = 0;

	if (!err->code)
		*to = '\0';
	else if (sscanf(err->text, "PTX line %u: %n", &line, &from) == 1 && from)
		snprintf(to, room,
			 "ptxas application ptx input, line %u; error   : %s\n"
			 "ptxas fatal   : Ptx assembly aborted due to errors\n",
			 line, err->text + from);
	else
		snprintf(to, room, "ptxas fatal   : %s\n", err->text);
}

void jit_report(const struct jit *jit, const char *path, const struct bf_error *err)
{
	char text[sizeof(err->text) + 160];
	void **time = find(jit, CU_JIT_WALL_TIME);
	void **log = find(jit, CU_JIT_ERROR_LOG_BUFFER);
	float none = 0;

	word(err, text, sizeof(text));
	fill(jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text);
	fill(jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
	if (!log || !*log)
		refused_tell(path, err);
	if (time)
		memcpy(time, &none, sizeof(none));
}
