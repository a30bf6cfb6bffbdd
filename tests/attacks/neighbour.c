/* Not an attack: a program on another vGPU. neighbour SECONDS [FILE]: makes a context and memory, writes its client and
 * the handle of the memory to FILE, then submits work and waits for it until the time is over. Prints how many pieces of
 * work were done and the longest time that one took; fails if one took more than a second. */
#include <stdlib.h>

#include "base/clock.h"
#include "dev.h"

enum { PATIENCE_MS = 20000, MOST_MS = 1000 };

static void tell(const struct dev *dev, const char *path)
{
	FILE *file = fopen(path, "we");

	if (!file)
		return;
	fprintf(file, "%u %u\n", dev->client, DEV_MEMORY);
	fclose(file);
}

int main(int argc, char **argv)
{
	uint64_t until_ns = bf_now_ns() + (uint64_t)(argc > 1 ? atoi(argv[1]) : 1) * 1000000000, worst_ns = 0;
	struct dev dev;

	dev_start(&dev);
	dev_context(&dev);
	if (dev_memory(&dev, DEV_MEMORY, MIB))
		return 1;
	if (argc > 2)
		tell(&dev, argv[2]);
	while (bf_now_ns() < until_ns) {
		uint64_t began_ns = bf_now_ns(), took_ns;

		dev_beat(&dev);
		if (!dev_wait_beat(&dev, PATIENCE_MS))
			return 1;
		took_ns = bf_now_ns() - began_ns;
		if (took_ns > worst_ns)
			worst_ns = took_ns;
	}
	printf("neighbour: %u pieces of work, the longest took %llu ms\n", dev_beats(&dev),
	       (unsigned long long)(worst_ns / 1000000));
	return worst_ns / 1000000 > MOST_MS;
}
