/* Pages of the program's own are pinned by a call that the kernel makes itself (ALLOC_MEMORY of class 0x71 on a GPU's
 * file). Another thread changes its class to device memory's, and its sizes. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "dev.h"

enum { OS_MEMORY = 0x71, FLAGS = 0 };

static struct rm_arg_alloc_memory arg;
static atomic_bool is_over;

static void *flip(void *context)
{
	volatile struct rm_arg_alloc_memory *shared = &arg;
	static const uint32_t classes[] = { 0x40, 0x3f, 0xc2, 0x3e };

	(void)context;
	for (unsigned i = 0; !atomic_load_explicit(&is_over, memory_order_relaxed); i++) {
		shared->class_id = classes[i % 4];
		shared->class_id = OS_MEMORY;
	}
	return NULL;
}

int main(void)
{
	void *pages = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned done = 0;
	pthread_t thread;
	struct dev dev;

	dev_tries("change the class of a call that the kernel makes itself");
	dev_start(&dev);
	arg = (struct rm_arg_alloc_memory){ .client = dev.client,
					    .parent = DEV_DEVICE,
					    .class_id = OS_MEMORY,
					    .flags = FLAGS,
					    .address = (uintptr_t)pages,
					    .fd = -1 };
	pthread_create(&thread, NULL, flip, NULL);
	for (uint32_t i = 0; i < ATTEMPTS; i++) {
		arg.object = DEV_MEMORY + i;
		arg.limit = MIB - 1;
		arg.status = 0x77;
		if (!dev_call(dev.gpu, RM_ESC_ALLOC_MEMORY, &arg, sizeof(arg)) && !arg.status)
			done++;
	}
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	printf("%u of %d calls succeeded\n", done, ATTEMPTS);
	dev_look(); /* by the driver's count: no device memory */
	dev_held("%d attempts; no device memory came of them", ATTEMPTS);
}
