/* Processes that make a client with memory and exit at once, or are killed, as fast as they can be forked, while others ask
 * what the vGPU has. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dev.h"

enum { AT_ONCE = 2 };

static void one(unsigned i)
{
	struct dev dev;

	if (dev_new_client(&dev) || dev_new_device(&dev))
		_exit(1);
	dev_memory(&dev, DEV_MEMORY, dev_limit() / 4);
	if (i % 2)
		raise(SIGKILL);
	_exit(0);
}

static void bomb(void)
{
	uint64_t until_ns = bf_now_ns() + 5000000000ull;

	for (unsigned i = 0, running = 0; bf_now_ns() < until_ns; i++) {
		if (running == AT_ONCE) {
			wait(NULL);
			running--;
		}
		if (!fork())
			one(i);
		running++;
	}
	while (wait(NULL) > 0)
		;
	_exit(0);
}

int main(void)
{
	struct dev dev;
	uint64_t sum;
	int rc;

	dev_tries("fork clients that live for a moment");
	dev_start(&dev);
	if (!fork())
		bomb();
	rc = dev_ask("neighbour");
	wait(NULL);
	if (rc)
		dev_got("a neighbour, or belfry ls, was kept waiting");
	dev_look();
	sum = dev_fill(&dev, DEV_MEMORY, dev_limit() / 8);
	if (sum != dev_limit())
		dev_got("%llu bytes of %llu can be had afterwards", (unsigned long long)sum,
			(unsigned long long)dev_limit());
	dev_held("all memory came back");
}
