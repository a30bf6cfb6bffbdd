/* All valid handles: modules, functions, libraries, kernels, link states, graphs and so on. A handle from the
 * program is looked up here before it is dereferenced. Protected by the api lock. */
#ifndef BELFRY_SOFT_CUDA_HANDLE_H
#define BELFRY_SOFT_CUDA_HANDLE_H

#include <stdbool.h>

enum handle_kind {
	HANDLE_NONE,
	HANDLE_MODULE,
	HANDLE_FUNCTION,
	HANDLE_LIBRARY,
	HANDLE_KERNEL,
	HANDLE_LINK,
	HANDLE_GRAPH,
	HANDLE_NODE,
	HANDLE_EXEC,
	HANDLE_OBJECT, /* a user object */
	HANDLE_GREEN,
	HANDLE_STREAM,
	HANDLE_EVENT,
	HANDLE_ARRAY,
};

bool handle_add(const void *handle, enum handle_kind kind); /* false: out of memory */
void handle_remove(const void *handle);
enum handle_kind handle_kind(const void *handle);

#endif
