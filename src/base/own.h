/* Owned descriptors and memory, released when the variable goes out of scope. */
#ifndef BELFRY_BASE_OWN_H
#define BELFRY_BASE_OWN_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void bf_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void bf_free_ptr(void *at)
{
	free(*(void **)at);
}

static inline void bf_close_file(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define cleanup_close __attribute__((cleanup(bf_close_fd)))
#define cleanup_free __attribute__((cleanup(bf_free_ptr)))
#define cleanup_file __attribute__((cleanup(bf_close_file)))

/* Passes ownership of a descriptor on: the caller's variable no longer closes it. */
static inline int bf_take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

#endif
