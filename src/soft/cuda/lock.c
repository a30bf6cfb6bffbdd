/* Entry and exit of public functions: one lock, released during waits, and the program's errno preserved. */
#include <errno.h>
#include <unistd.h>

#include "soft/cuda/core.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local unsigned held;
static _Thread_local int errno_before;

void api_lock(void)
{
	if (!held++)
		pthread_mutex_lock(&lock);
}

void api_unlock(void)
{
	if (!--held)
		pthread_mutex_unlock(&lock);
}

unsigned api_pause(void)
{
	unsigned was = held;

	if (held) {
		held = 0;
		pthread_mutex_unlock(&lock);
	}
	return was;
}

void api_resume(unsigned was)
{
	if (was) {
		pthread_mutex_lock(&lock);
		held = was;
	}
}

/* A forked child has neither the threads nor the connection of its parent. This is checked before the lock is
 * taken: in a child, a thread that does not exist may hold it. */
CUresult api_enter(void)
{
	if (!__atomic_load_n(&port.is_open, __ATOMIC_ACQUIRE) || port.pid != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!held)
		errno_before = errno;
	api_lock();
	return CUDA_SUCCESS;
}

CUresult api_leave(CUresult result)
{
	api_unlock();
	if (!held)
		errno = errno_before;
	return result;
}
