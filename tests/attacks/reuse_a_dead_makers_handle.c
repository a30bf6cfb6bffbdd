/* A child makes a client on a control file that the parent holds too, allocates, and exits. The parent then allocates
 * over the same handles in the client that no living process has made. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

int main(void)
{
	struct dev dev, *shared = &dev;
	uint64_t limit = dev_limit(), sum = 0;
	int pipes[2], status;

	dev_tries("allocate over the handles of a client whose maker has exited");
	dev_start(&dev); /* the file is the parent's; what follows is the child's client on it */
	if (pipe(pipes))
		dev_skip("no pipe");
	if (!fork()) {
		struct rm_arg_alloc root = { .class_id = 0x41 };

		if (dev_call(shared->control, RM_ESC_ALLOC, &root, sizeof(root)) || root.status)
			_exit(77);
		shared->client = root.object;
		if (dev_new_device(shared) || dev_memory(shared, DEV_MEMORY, limit / 4))
			_exit(77);
		_exit(write(pipes[1], &shared->client, sizeof(shared->client)) ==
				      (ssize_t)sizeof(shared->client)
			      ? 0
			      : 77);
	}
	wait(&status);
	if (status || read(pipes[0], &dev.client, sizeof(dev.client)) != (ssize_t)sizeof(dev.client))
		dev_skip("a second client on one file cannot be had");
	sum = limit / 4;
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		if (dev_memory(&dev, DEV_MEMORY, limit / 4))
			continue;
		sum += limit / 4;
		if (sum > limit)
			dev_got("%llu bytes under one handle", (unsigned long long)sum);
	}
	sum += dev_fill(&dev, DEV_MEMORY + 1, limit / 8);
	dev_look();
	if (sum > limit)
		dev_got("%llu bytes of %llu", (unsigned long long)sum, (unsigned long long)limit);
	dev_held("%llu bytes of %llu", (unsigned long long)sum, (unsigned long long)limit);
}
