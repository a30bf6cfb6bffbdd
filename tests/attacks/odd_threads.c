/* Calls from a thread with a descriptor table of its own, from a vfork child, and from programs that a child executes:
 * each must be seen and counted as any other. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

static uint64_t sum;

/* Its control file stands where the process has nothing, or another file. */
static void *apart(void *context)
{
	struct dev dev;

	(void)context;
	if (unshare(CLONE_FILES) || dev_new_client(&dev) || dev_new_device(&dev))
		return NULL;
	sum += dev_fill(&dev, DEV_MEMORY, dev_limit() / 8);
	dev_look();
	return NULL;
}

static int as_child(void)
{
	struct dev dev;

	if (dev_new_client(&dev) || dev_new_device(&dev))
		return 2;
	return dev_memory(&dev, DEV_MEMORY, dev_limit() / 8) ? 2 : 0;
}

int main(int argc, char **argv)
{
	struct dev dev;
	pthread_t thread;
	pid_t child;
	int status;

	if (argc > 1)
		return as_child();
	dev_tries("make calls from threads with files of their own, and vfork and exec children");
	dev_start(&dev);
	pthread_create(&thread, NULL, apart, NULL);
	pthread_join(thread, NULL);
	if (sum > dev_limit())
		dev_got("%llu bytes in a thread with files of its own", (unsigned long long)sum);
	printf("a thread with files of its own: %llu bytes\n", (unsigned long long)sum);
	/* Its table went with the thread, and so did its memory. */
	if (dev_memory(&dev, DEV_MEMORY, dev_limit()))
		printf("its memory has not come back yet\n");
	else
		dev_free(&dev, DEV_DEVICE, DEV_MEMORY);
	dev_look();
	if (dev_memory(&dev, DEV_MEMORY, dev_limit()))
		dev_skip("the memory of the thread did not come back");
	for (unsigned i = 0; i < 4; i++) {
		child = vfork();
		if (!child) {
			execl("/proc/self/exe", argv[0], "child", NULL);
			_exit(2);
		}
		waitpid(child, &status, 0);
		if (!status)
			dev_got("a child has memory when there is none left");
	}
	dev_held("%llu bytes in the thread; children are counted", (unsigned long long)sum);
}
