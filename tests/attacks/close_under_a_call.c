/* The control file is closed, by another thread, while calls on it are under way; descriptors are used again at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dev.h"

static struct dev dev;
static atomic_bool is_over;

static void *calls(void *context)
{
	uint32_t handle = DEV_MEMORY + (context ? 0x1000000 : 0);

	while (!atomic_load(&is_over)) {
		dev_memory(&dev, ++handle, dev_limit() / 4);
		dev_free(&dev, DEV_DEVICE, handle);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[2];
	uint64_t sum;

	dev_tries("close a control file under calls that are being made on it");
	dev_start(&dev);
	pthread_create(&threads[0], NULL, calls, NULL);
	pthread_create(&threads[1], NULL, calls, &dev);
	for (unsigned i = 0; i < ATTEMPTS / 4; i++) {
		struct dev next;

		if (dev_new_client(&next) || dev_new_device(&next))
			dev_got("no client any more after %u closes", i);
		close(dev.gpu);
		dup2(next.control, dev.control); /* closes it, and puts another in its place */
		dev.client = next.client;
		dev.gpu = next.gpu;
		close(next.control);
	}
	atomic_store(&is_over, true);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	dev_look();
	sum = dev_fill(&dev, DEV_MEMORY + 0x2000000, dev_limit() / 8);
	dev_look();
	if (sum > dev_limit())
		dev_got("%llu bytes", (unsigned long long)sum);
	dev_held("%d closes; %llu bytes of %llu", ATTEMPTS / 4, (unsigned long long)sum,
		 (unsigned long long)dev_limit());
}
