/* mmap of device files for which nothing was prepared, twice for which one map was, with more bytes or another offset than
 * were prepared, of another process's prepared file, of a channel, and of memory after it was freed. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

enum { BYTES = 4 * MIB };

static void *map(int file, uint64_t bytes, off_t offset)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
}

static void without_preparation(const struct dev *dev)
{
	int file = dev_open(DEV_GPU), control = dev_open(DEV_CONTROL);

	if (map(file, BYTES, 0) != MAP_FAILED)
		dev_got("a map of a GPU's file that nothing was prepared on");
	if (map(control, BYTES, 0) != MAP_FAILED)
		dev_got("a map of a control file that nothing was prepared on");
	if (map(dev->control, BYTES, 0) != MAP_FAILED)
		dev_got("a map of the client's control file");
	close(file);
	close(control);
}

/* The prepared file is at the descriptor after the mmap. What it still shows is the same memory, never more. */
static void again(const struct dev *dev)
{
	int file = dev_open(DEV_GPU);
	uint8_t *first;
	struct stat st;

	if (dev_memory(dev, DEV_MEMORY, BYTES) || dev_prepare_map(dev, DEV_MEMORY, BYTES, file))
		dev_skip("nothing can be prepared");
	first = map(file, BYTES, 0);
	if (first == MAP_FAILED)
		dev_skip("nothing can be mapped");
	first[0] = 77;
	if (dev_is_soft()) { /* the file is the memory: behind its end there is nothing, whatever is mapped */
		if (fstat(file, &st) || st.st_size > BYTES)
			dev_got("a file of %llu bytes", (unsigned long long)st.st_size);
		if (!ftruncate(file, 0))
			dev_got("the memory is cut off under those who look at it");
	} else if (map(file, BYTES, BYTES) != MAP_FAILED || map(file, 4ull * BYTES, 0) != MAP_FAILED) {
		dev_got("a second map, larger or at another offset");
	}
	close(file);
	dev_free(dev, DEV_DEVICE, DEV_MEMORY);
}

static void of_another_process(const struct dev *dev)
{
	int file = dev_open(DEV_GPU), status;

	if (dev_memory(dev, DEV_MEMORY, MIB) || dev_prepare_map(dev, DEV_MEMORY, MIB, file))
		dev_skip("nothing can be prepared");
	if (!fork()) /* the same file, but the parent's map */
		_exit(map(file, MIB, 0) != MAP_FAILED);
	wait(&status);
	if (status)
		dev_got("a child maps what its parent has prepared");
	dev_free(dev, DEV_DEVICE, DEV_MEMORY);
	if (map(file, MIB, 0) != MAP_FAILED)
		dev_got("a map of memory that was freed before");
	close(file);
}

static void of_a_channel(struct dev *dev)
{
	int file = dev_open(DEV_GPU);

	dev_context(dev);
	if (!dev_prepare_map(dev, DEV_CHANNEL, 4096, file) && map(file, 4096, 0) != MAP_FAILED)
		dev_got("a map of the channel's control page in the driver");
	if (!dev_prepare_map(dev, DEV_GROUP, 4096, file) && map(file, 4096, 0) != MAP_FAILED)
		dev_got("a map of a group");
	if (!dev_prepare_map(dev, DEV_SUBDEVICE, 4096, file) && map(file, 4096, 0) != MAP_FAILED)
		dev_got("a map of the subdevice's registers");
	close(file);
}

int main(void)
{
	struct dev dev;

	dev_tries("map device files that no map was prepared on, or another than was");
	dev_start(&dev);
	without_preparation(&dev);
	again(&dev);
	of_another_process(&dev);
	of_a_channel(&dev);
	dev_look();
	dev_held("nothing was mapped that was not prepared");
}
