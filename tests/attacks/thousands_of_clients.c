/* As many control files and clients as can be had, on many files and on one, with memory in each. */
#include <sys/resource.h>
#include <unistd.h>

#include "dev.h"

enum { CLIENTS = 6000 };

int main(void)
{
	struct rlimit most;
	unsigned files = 0, clients = 0;
	uint64_t sum = 0, piece = 64 << 10;
	struct dev dev, last;
	int rc = 0;

	dev_tries("make thousands of control files and clients");
	getrlimit(RLIMIT_NOFILE, &most);
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
	dev_start(&dev);
	for (; files < CLIENTS && !(rc = dev_new_client(&last)); files++)
		if (!dev_new_device(&last) && !dev_memory(&last, DEV_MEMORY, piece))
			sum += piece;
	printf("%u files with a client each; the next one: %d\n", files, rc);
	for (; clients < CLIENTS; clients++) {
		struct rm_arg_alloc root = { .class_id = 0x41, .status = 0x77 };

		if (dev_call(dev.control, RM_ESC_ALLOC, &root, sizeof(root)) || root.status)
			break;
	}
	printf("%u clients on one file\n", clients);
	dev_look();
	if (sum > dev_limit())
		dev_got("%llu bytes", (unsigned long long)sum);
	if (dev_ask("neighbour"))
		dev_got("a neighbour, or belfry ls, was kept waiting");
	dev_held("%u files, %u clients, %llu bytes of %llu", files, files + clients, (unsigned long long)sum,
		 (unsigned long long)dev_limit());
}
