/* Arguments and parameters at the end of a page, in unmapped and in read-only memory, of no size, of a huge one and of one
 * that overflows. Calls fail; what they have made all the same is counted. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "dev.h"

enum { PAGE = 4096 };

static uint8_t *edge; /* the first byte that is not there */

static int memory_at(const struct dev *dev, void *arg_at, uint64_t params, uint32_t size)
{
	struct rm_arg_alloc arg = { .client = dev->client,
				    .parent = DEV_DEVICE,
				    .class_id = 0x40,
				    .params = params,
				    .size = size,
				    .status = 0x77 };
	int rc;

	memcpy(arg_at, &arg, sizeof(arg));
	rc = dev_call(dev->control, RM_ESC_ALLOC, arg_at, sizeof(arg));
	memcpy(&arg, arg_at, sizeof(arg));
	return rc ? rc : (int)arg.status;
}

/* Results cannot be written back: the memory exists, and the program does not know its handle. */
static uint64_t lose_results(const struct dev *dev)
{
	uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rm_arg_alloc arg = {
		.client = dev->client, .parent = DEV_DEVICE, .class_id = 0x40, .size = 128
	};
	uint64_t bytes = dev_limit() / 8;
	unsigned lost = 0;

	memcpy(page + 1024 + dev_layout()->memory_bytes, &bytes, sizeof(bytes));
	arg.params = (uintptr_t)(page + 1024);
	memcpy(page, &arg, sizeof(arg));
	mprotect(page, PAGE, PROT_READ);
	for (unsigned i = 0; i < 64; i++)
		if (dev_call(dev->control, RM_ESC_ALLOC, page, sizeof(arg)) == -EFAULT)
			lost++;
	printf("%u calls ended in EFAULT\n", lost);
	return lost;
}

int main(void)
{
	uint8_t params[256] = { 0 }, arg[64];
	const uint32_t sizes[] = { 0,	1,	   63,	      71,	 72,	     127,
				   129, 255 << 10, 256 << 10, 257 << 10, 0x7fffffff, 0xffffffff };
	struct dev dev;
	uint64_t huge = dev_limit() * 4;

	dev_tries("make calls with arguments that cannot be read, written, or measured");
	dev_start(&dev);
	edge = mmap(NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(edge + PAGE, PAGE);
	edge += PAGE;
	memcpy(params + dev_layout()->memory_bytes, &huge, sizeof(huge));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!memory_at(&dev, arg, (uintptr_t)params, sizes[i]))
			dev_got("four times the limit with %u bytes of parameters", sizes[i]);
	if (!memory_at(&dev, arg, (uintptr_t)edge, 128) || !memory_at(&dev, arg, UINT64_MAX - 64, 128) ||
	    !memory_at(&dev, arg, 0, 128))
		dev_got("memory with parameters that are not there");
	memory_at(&dev, edge - sizeof(struct rm_arg_alloc), (uintptr_t)(edge - 100), 128);
	if (dev_call(dev.control, RM_ESC_ALLOC, edge - 8, sizeof(struct rm_arg_alloc)) != -EFAULT)
		dev_got("a call with an argument that is not there");
	dev_look();
	lose_results(&dev);
	dev_look();
	if (dev_fill(&dev, DEV_MEMORY, dev_limit() / 8) > dev_limit())
		dev_got("more than the limit");
	dev_held("the ledger is right after all of them");
}
