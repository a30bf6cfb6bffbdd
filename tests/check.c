#include "check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* In memory that forked processes share. */
static _Atomic unsigned *skipped;

__attribute__((constructor)) static void share(void)
{
	void *page = mmap(NULL, sizeof(*skipped), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		abort();
	skipped = page;
}

void check_skip(const char *why)
{
	printf("skipped: %s\n", why);
	fflush(stdout);
	++*skipped;
}

int check_status(void)
{
	return *skipped ? CHECK_SKIPPED : 0;
}
