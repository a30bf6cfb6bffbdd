#ifndef BELFRY_BASE_RETRY_H
#define BELFRY_BASE_RETRY_H

#include <errno.h>

/* Repeats a system call while a signal handler interrupts it. Has the value of the last try. */
#define bf_retry(call) \
	__extension__({ \
		__typeof__(call) rc_; \
		do \
			rc_ = (call); \
		while (rc_ < 0 && errno == EINTR); \
		rc_; \
	})

#endif
