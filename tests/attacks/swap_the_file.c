/* One thread allocates through a descriptor; another puts other files in its place and the file back (dup2), so that
 * what is checked is not where it is done: a file of no device, a control file that no call was made on, a GPU's file, a
 * control file with another client. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dev.h"

enum { PLACE = 500, FILES = 4 };

static int files[FILES];
static atomic_bool is_over;

static void *swap(void *context)
{
	(void)context;
	for (unsigned i = 0; !atomic_load_explicit(&is_over, memory_order_relaxed); i++) {
		dup2(files[1 + i % (FILES - 1)], PLACE);
		dup2(files[0], PLACE);
	}
	return NULL;
}

static void race(struct dev *dev)
{
	uint64_t limit = dev_limit();
	struct dev other = *dev;
	unsigned clients = 0;
	pthread_t thread;

	other.control = PLACE;
	pthread_create(&thread, NULL, swap, NULL);
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		struct rm_arg_alloc root = { .class_id = 0x41, .status = 0x77 };

		if (!dev_call(PLACE, RM_ESC_ALLOC, &root, sizeof(root)) && !root.status) {
			struct rm_arg_free gone = { root.object, root.object, root.object, 0 };

			clients++;
			dev_call(PLACE, RM_ESC_FREE, &gone, sizeof(gone));
		}
		if (!dev_memory(&other, DEV_MEMORY + 1 + i, limit + MIB))
			dev_got("memory of more than the limit");
		if (!dev_memory(&other, DEV_MEMORY + 1 + i, limit / 4) &&
		    dev_free(dev, DEV_DEVICE, DEV_MEMORY + 1 + i))
			dev_got("memory that cannot be freed under its name");
	}
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	printf("%u clients were made in passing\n", clients);
}

int main(void)
{
	struct dev dev, second;
	uint64_t sum;

	dev_tries("put another file under a call between its check and its use");
	dev_start(&dev);
	dev_start(&second);
	files[0] = dev.control;
	files[1] = open("/dev/zero", O_RDWR | O_CLOEXEC);
	files[2] = dev_open(DEV_CONTROL);
	files[3] = second.control;
	race(&dev);
	dup2(dev.control, PLACE);
	dev_look();
	sum = dev_fill(&dev, DEV_MEMORY + 0x10000, dev_limit() / 8);
	dev_look();
	if (sum > dev_limit())
		dev_got("%llu bytes", (unsigned long long)sum);
	dev_held("%d attempts; %llu bytes of %llu", ATTEMPTS, (unsigned long long)sum,
		 (unsigned long long)dev_limit());
}
