/* An mmap of an ordinary file goes on unseen. Another thread puts the managed-memory device's file, which is in the
 * program since it was mapped once, in its place: managed memory that nobody has counted. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev.h"

enum { PLACE = 500 };

static int plain, managed;
static atomic_bool is_over;

static void *swap(void *context)
{
	(void)context;
	while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
		dup2(managed, PLACE);
		dup2(plain, PLACE);
	}
	return NULL;
}

/* The device maps at the address that is the offset, and nowhere else. */
static bool map_at(void *at, int fd, uint64_t bytes)
{
	return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)(uintptr_t)at) !=
	       MAP_FAILED;
}

static bool has_managed(const void *at)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool has = false;

	while (maps && fgets(line, sizeof(line), maps))
		has |= strtoull(line, NULL, 16) == (uintptr_t)at && strstr(line, "nvidia-uvm");
	if (maps)
		fclose(maps);
	return has;
}

static void open_managed(void *at)
{
	uint64_t initialize[2] = { 0 };

	managed = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	if (managed < 0)
		dev_skip("no managed-memory device: %s", strerror(errno));
	if (ioctl(managed, RM_UVM_INITIALIZE, initialize) || (uint32_t)initialize[1])
		dev_skip("it cannot be initialized (status 0x%x)", (uint32_t)initialize[1]);
	if (!map_at(at, managed, MIB))
		dev_skip("nothing can be mapped: %s", strerror(errno));
}

int main(void)
{
	uint64_t bytes = 2 * dev_limit();
	void *small = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned done = 0;
	pthread_t thread;
	struct dev dev;

	dev_tries("put the managed-memory file under an mmap that goes on");
	if (dev_is_soft())
		dev_skip("the software GPU has no managed-memory device");
	dev_start(&dev);
	open_managed(small);
	plain = memfd_create("plain", MFD_CLOEXEC);
	pthread_create(&thread, NULL, swap, NULL);
	for (unsigned i = 0; i < ATTEMPTS; i++)
		if (map_at(at, PLACE, bytes) && has_managed(at))
			done++;
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	if (done)
		dev_got("managed memory of twice the limit was mapped %u times of %d", done, ATTEMPTS);
	dev_look();
	dev_held("%d attempts", ATTEMPTS);
}
