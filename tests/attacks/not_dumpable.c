/* A process that may not be looked into (PR_SET_DUMPABLE 0) calls the driver, with files from before and new ones. */
#include <sys/prctl.h>

#include "dev.h"

int main(void)
{
	struct dev dev, hidden;
	uint64_t sum;

	dev_tries("call the driver from a process that hides (PR_SET_DUMPABLE)");
	dev_start(&dev);
	if (dev_memory(&dev, DEV_MEMORY, dev_limit() / 2))
		dev_skip("no memory");
	prctl(PR_SET_DUMPABLE, 0);
	sum = dev_limit() / 2 + dev_fill(&dev, DEV_MEMORY + 1, dev_limit() / 8);
	if (!dev_new_client(&hidden) && !dev_new_device(&hidden))
		sum += dev_fill(&hidden, DEV_MEMORY, dev_limit() / 8);
	dev_look();
	if (sum > dev_limit())
		dev_got("%llu bytes", (unsigned long long)sum);
	dev_held("%llu bytes of %llu", (unsigned long long)sum, (unsigned long long)dev_limit());
}
