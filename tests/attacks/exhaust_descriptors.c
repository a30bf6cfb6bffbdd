/* Whatever Belfry keeps a descriptor for: prepared maps, mapped files, control files, processes; by many processes, until it
 * refuses. The GPU server has one table of descriptors for all vGPUs: a neighbour must still be able to start. */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

enum { PROCESSES = 40, MAPS = 500 };

static void raise_limit(void)
{
	struct rlimit most;

	getrlimit(RLIMIT_NOFILE, &most);
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
}

static void hoard(int said, int go_on)
{
	struct dev dev;
	unsigned mapped = 0, prepared = 0;
	char byte = 0;

	if (!dev_new_client(&dev) && !dev_new_device(&dev) && !dev_memory(&dev, DEV_MEMORY, 64 << 10)) {
		for (int file; mapped < MAPS && (file = dev_open(DEV_GPU)) >= 0; mapped++)
			if (dev_prepare_map(&dev, DEV_MEMORY, 64 << 10, file) ||
			    mmap(NULL, 64 << 10, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED)
				break;
		for (int file; prepared < MAPS && (file = dev_open(DEV_GPU)) >= 0; prepared++)
			if (dev_prepare_map(&dev, DEV_MEMORY, 64 << 10, file))
				break;
	}
	printf("a process: %u mapped, %u prepared\n", mapped, prepared);
	if (write(said, &byte, 1) == 1 && read(go_on, &byte, 1) == 0)
		_exit(0);
	_exit(1);
}

int main(void)
{
	int said[2], go_on[2], rc;
	struct dev dev;
	char byte;

	dev_tries("use up the GPU server's descriptors");
	dev_start(&dev);
	raise_limit();
	if (pipe(said) || pipe(go_on))
		dev_skip("no pipe");
	for (unsigned i = 0; i < PROCESSES; i++)
		if (!fork()) {
			close(go_on[1]);
			hoard(said[1], go_on[0]);
		}
	for (unsigned i = 0; i < PROCESSES; i++)
		if (read(said[0], &byte, 1) != 1)
			break;
	rc = dev_ask("neighbour");
	close(go_on[1]);
	while (wait(NULL) > 0)
		;
	if (rc)
		dev_got("a neighbour could not run, or belfry ls did not answer");
	dev_held("a neighbour starts and runs");
}
