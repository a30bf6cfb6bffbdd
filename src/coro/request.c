/* How long requests take: from the first work that the program places until it has waited for its work. The GPU server judges
 * objectives by it, because the driver does not tell when one program of a shared domain is done. A program that polls instead
 * of waiting reports none. */
#include "coro/coro.h"

static _Atomic uint64_t begun_ns; /* 0: no request has begun */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void request_begin(void)
{
	uint64_t none = 0;

	if (!atomic_load_explicit(&begun_ns, memory_order_relaxed) && lease_page())
		atomic_compare_exchange_strong(&begun_ns, &none, now_ns());
}

/* The count is raised behind the time: the GPU server reads them in the other order. Of threads that end requests at the same
 * time, one may report the time of the other. */
void request_end(void)
{
	struct coro_lease *page = lease_page();
	uint64_t begun = atomic_exchange(&begun_ns, 0), number;

	if (!begun || !page)
		return;
	number = atomic_load(&page->requests);
	atomic_store(&page->took_ns[number % CORO_REQUESTS], now_ns() - begun);
	atomic_store(&page->requests, number + 1);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	CUresult result = real.cuEventSynchronize(event);

	if (!result)
		request_end();
	return result;
}
