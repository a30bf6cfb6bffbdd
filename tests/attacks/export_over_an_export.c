/* A large piece is exported into a file, then a small one into the same file, which the driver refuses. If the ledger
 * takes the small one for the exported one, an import of the large one is charged as the small one, and the large one
 * is free once its own names are gone. */
#include <errno.h>
#include <unistd.h>

#include "dev.h"

int main(void)
{
	struct dev dev, other;
	uint64_t limit = dev_limit(), large = limit / 2, sum;
	int file, rc;

	dev_tries("have an import charged as a smaller piece of memory");
	dev_start(&dev);
	dev_start(&other);
	if (dev_memory(&dev, DEV_MEMORY, large) || dev_memory(&dev, DEV_MEMORY + 1, MIB))
		dev_skip("no memory");
	file = dev_export(&dev, DEV_MEMORY);
	if (file < 0)
		dev_skip("the driver exports nothing (%d)", file);
	rc = dev_export_into(&dev, DEV_MEMORY + 1, file);
	printf("a second export into the file: %d\n", rc);
	if (dev_import(&other, DEV_MEMORY, file))
		dev_skip("the driver imports nothing");
	dev_free(&dev, DEV_DEVICE, DEV_MEMORY);
	dev_free(&dev, DEV_DEVICE, DEV_MEMORY + 1);
	close(file);
	dev_look();
	sum = large + dev_fill(&dev, DEV_MEMORY + 2, limit / 8);
	if (sum > limit)
		dev_got("%llu bytes of %llu", (unsigned long long)sum, (unsigned long long)limit);
	dev_held("%llu bytes of %llu", (unsigned long long)sum, (unsigned long long)limit);
}
