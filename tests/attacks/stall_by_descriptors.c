/* Tens of thousands of duplicates of device files, and calls meanwhile: what a call costs must not grow with the number of
 * a program's descriptors. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dev.h"

enum { PROCESSES = 3 };

static unsigned fill_table(const struct dev *dev)
{
	struct rlimit most;
	unsigned count = 0;

	getrlimit(RLIMIT_NOFILE, &most);
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
	while (count < 60000 && fcntl(count % 2 ? dev->control : dev->gpu, F_DUPFD_CLOEXEC, 0) >= 0)
		count++;
	return count;
}

static void caller(void)
{
	uint64_t until_ns = bf_now_ns() + 8000000000ull, params;
	struct dev dev;

	if (dev_new_client(&dev) || dev_new_device(&dev))
		_exit(1);
	fill_table(&dev);
	while (bf_now_ns() < until_ns) {
		dev_control(&dev, DEV_SUBDEVICE, RM_CTRL_GET_TIME, &params, sizeof(params));
		dev_prepare_map(&dev, DEV_MEMORY, MIB, dev.gpu);
		dev_memory(&dev, DEV_MEMORY, MIB);
	}
	_exit(0);
}

int main(void)
{
	struct dev dev;
	unsigned count;
	int rc;

	dev_tries("have the supervisor search through tens of thousands of descriptors");
	dev_start(&dev);
	for (int i = 0; i < PROCESSES; i++)
		if (!fork())
			caller();
	rc = dev_ask("neighbour");
	while (wait(NULL) > 0)
		;
	count = fill_table(&dev);
	if (rc)
		dev_got("a neighbour, or belfry ls, was kept waiting");
	if (dev_memory(&dev, DEV_MEMORY, MIB))
		dev_got("the vGPU's own supervisor no longer answers");
	dev_held("neighbours and requests were served, with %u descriptors", count);
}
