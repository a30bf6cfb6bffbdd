/* Errors of kernels, from the notifier of the context, and their output, from its print ring. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft/cuda/core.h"

/* The error codes of the real library. A barrier that is never completed, which hangs a real GPU, is an error
 * here. */
static CUresult error_of_fault(uint16_t fault)
{
	switch (fault) {
	case PTX_FAULT_ADDRESS:
	case PTX_FAULT_LOCAL:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case PTX_FAULT_MISALIGNED:
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	case PTX_FAULT_ASSERT:
		return CUDA_ERROR_ASSERT;
	case PTX_FAULT_INDEX:
	case PTX_FAULT_CALL:
		return CUDA_ERROR_INVALID_PC;
	case PTX_FAULT_STACK:
		return CUDA_ERROR_HARDWARE_STACK_ERROR;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

static CUresult error_of(const struct soft_notifier *notifier)
{
	if (notifier->error == SOFT_ERROR_MMU && !notifier->fault)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	return error_of_fault(notifier->fault);
}

/* Converts "file:line: function: assertion `condition' failed" to the text of the real library. */
static void tell_assertion(const struct soft_notifier *n)
{
	static const char mark[] = " assertion `", end[] = "' failed";
	char text[sizeof(n->text) + 1], line[sizeof(text) + 256];
	char *condition, *tail;
	int length;

	memcpy(text, n->text, sizeof(n->text));
	text[sizeof(n->text)] = '\0';
	condition = strstr(text, mark);
	if (condition) {
		*condition = '\0';
		condition += sizeof(mark) - 1;
		tail = condition + strlen(condition);
		if (tail - condition >= (ptrdiff_t)sizeof(end) - 1 && !strcmp(tail - (sizeof(end) - 1), end))
			tail[-(ptrdiff_t)(sizeof(end) - 1)] = '\0';
	}
	length = snprintf(line, sizeof(line),
			  "%s block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", text,
			  n->block[0], n->block[1], n->block[2], n->thread[0], n->thread[1], n->thread[2],
			  condition ? condition : "?");
	if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
		return; /* the program has no stderr */
}

/* The context of a green context has the faults of its parent, which has those of it. */
void context_set_error(struct context *context, CUresult error)
{
	for (; context; context = context->parent) {
		CUresult none = CUDA_SUCCESS;

		__atomic_compare_exchange_n(&context->error, &none, error, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	}
}

CUresult context_check(struct context *context)
{
	struct context *whole = context->parent ? context->parent : context; /* they have the same faults */
	struct soft_notifier notifier;
	CUresult error = __atomic_load_n(&context->error, __ATOMIC_RELAXED);

	if (error || !context->notifier ||
	    __atomic_load_n(&context->notifier->status, __ATOMIC_ACQUIRE) != SOFT_NOTIFIER_STATUS)
		return error;
	memcpy(&notifier, (const void *)(uintptr_t)context->notifier, sizeof(notifier));
	error = error_of(&notifier);
	context_set_error(context, error);
	channels_finish(context);
	context_print(context); /* print the earlier output first */
	/* Without a kernel, the assertion is that of another program of the shared domain. */
	if (notifier.fault == PTX_FAULT_ASSERT && notifier.kernel[0] &&
	    !__atomic_exchange_n(&whole->is_assertion_told, true, __ATOMIC_RELAXED))
		tell_assertion(&notifier);
	return error;
}

/* Copy the bytes between tail and head. The GPU writes the memory of the ring, so head is not trusted. */
static char *take_text(struct soft_print *print, size_t *length)
{
	const uint32_t bytes = CONTEXT_PRINT_BYTES;
	uint64_t head = __atomic_load_n(&print->head, __ATOMIC_ACQUIRE), tail = print->tail;
	size_t count = head - tail > bytes ? bytes : (size_t)(head - tail), first;
	char *text = count ? malloc(count) : NULL;

	if (!text)
		return NULL;
	first = bytes - (size_t)(tail & (bytes - 1));
	if (first > count)
		first = count;
	memcpy(text, print->text + (tail & (bytes - 1)), first);
	memcpy(text + first, print->text, count - first);
	/* The GPU can now overwrite the bytes. */
	__atomic_store_n(&print->tail, tail + count, __ATOMIC_RELEASE);
	*length = count;
	return text;
}

/* Writes without the lock: a thread that holds the lock of stdout may wait for the api lock. */
void context_print(struct context *context)
{
	struct soft_print *print = context->print;
	size_t length;
	unsigned held;
	char *text;

	if (!print || __atomic_load_n(&print->head, __ATOMIC_RELAXED) == print->tail)
		return;
	text = take_text(print, &length);
	if (!text)
		return;
	held = api_pause();
	fwrite(text, 1, length, stdout);
	fflush(stdout);
	api_resume(held);
	free(text);
}
