/* Entering and leaving public functions: one lock, which waiting gives up, and the program's errno kept. */
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

/* A forked child has the parent's memory but neither its threads nor its place at the driver. Asked before the lock
 * is taken: in a child it may be held by a thread that does not exist there. */
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
