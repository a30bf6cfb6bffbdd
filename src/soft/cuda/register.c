/* cuMemHostRegister: make pages of the program accessible to the GPU. A real GPU accesses the existing pages.
 * The software GPU can access only shared memory, so the pages are replaced in place by shared pages with the
 * same contents, and by private pages when the registration ends. The contents are copied, and then the pages
 * are exchanged in one step (mremap). Writes of other threads in between are lost. Writing a buffer while it
 * is registered is a race of the program, but the first and the last page can hold other data: these two are
 * copied last, immediately before the exchange. Two registrations cannot share a page. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/own.h"
#include "soft/cuda/memory.h"

struct pages {
	uint64_t start, bytes; /* whole pages */
};

static struct pages pages_around(uint64_t base, uint64_t bytes)
{
	uint64_t start = base & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
	uint64_t end = (base + bytes + SOFT_PAGE_BYTES - 1) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);

	return (struct pages){ start, end - start };
}

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

/* Whether the pages of this mapping can be exchanged unnoticed: private, and not a stack in use. */
static CUresult mapping_suits(const char *rights, const char *name, bool is_read_only)
{
	if (rights[3] != 'p')
		return CUDA_ERROR_NOT_SUPPORTED;
	if (rights[0] != 'r' || (rights[1] != 'w' && !is_read_only))
		return CUDA_ERROR_INVALID_VALUE;
	if (rights[1] != 'w' || rights[2] == 'x' || !strncmp(name, "[stack", 6) || !strncmp(name, "[v", 2))
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

/* All pages must be mapped, by suitable mappings. */
static CUresult pages_suit(struct pages pages, bool is_read_only)
{
	cleanup_file FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t at = pages.start, end = pages.start + pages.bytes, low, high;
	char line[512], rights[5], name[256];
	int here;
	CUresult result = CUDA_SUCCESS;

	if (!maps)
		return CUDA_ERROR_OPERATING_SYSTEM;
	while (!result && at < end && fgets(line, sizeof(line), maps)) {
		name[0] = 0;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %255s", &low, &high, rights, name) <
			    3 ||
		    high <= at)
			continue;
		if (low > at)
			return CUDA_ERROR_INVALID_VALUE;
		result = mapping_suits(rights, name, is_read_only);
		at = high;
	}
	if (!result && at < end)
		return CUDA_ERROR_INVALID_VALUE;
	/* The stack of a thread is not named in maps; at least the current stack is checked. */
	if ((uintptr_t)&here >= pages.start && (uintptr_t)&here < end)
		return CUDA_ERROR_NOT_SUPPORTED;
	return result;
}

/* The first and the last page contain other data: not instrumented by sanitizers. */
#define UNWATCHED __attribute__((no_sanitize("address"), no_sanitize("thread")))
UNWATCHED static void page_copy(void *to, const void *from)
{
	const volatile uint64_t *word = from;
	volatile uint64_t *copy = to;

	for (unsigned i = 0; i < SOFT_PAGE_BYTES / sizeof(*copy); i++)
		copy[i] = word[i];
}

/* Replace pages by those at `from`, with the current contents. */
static CUresult pages_exchange(struct pages pages, void *from)
{
	uint64_t last = pages.bytes - SOFT_PAGE_BYTES;

	if (last > SOFT_PAGE_BYTES)
		memcpy((uint8_t *)from + SOFT_PAGE_BYTES, pointer(pages.start + SOFT_PAGE_BYTES),
		       last - SOFT_PAGE_BYTES);
	page_copy((uint8_t *)from + last, pointer(pages.start + last));
	if (last)
		page_copy(from, pointer(pages.start));
	if (mremap(from, pages.bytes, pages.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(pages.start)) ==
	    MAP_FAILED)
		return CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
}

static CUresult pages_make_private(struct pages pages)
{
	void *from = mmap(NULL, pages.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUresult result;

	if (from == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = pages_exchange(pages, from);
	if (result)
		munmap(from, pages.bytes);
	return result;
}

static CUresult pages_make_shared(struct pages pages, struct gpu *gpu, uint32_t *memory)
{
	void *from = NULL;
	CUresult result = port_memory(gpu, pages.bytes, false, memory);

	if (result)
		return result;
	result = port_map(gpu, *memory, pages.bytes, &from);
	if (!result) {
		result = pages_exchange(pages, from);
		if (result)
			port_unmap(gpu, *memory, pages.bytes, from);
	}
	if (result)
		port_free(gpu->device, *memory);
	return result;
}

static CUresult register_pages(struct context *context, uint64_t address, uint64_t bytes, unsigned flags)
{
	struct pages pages = pages_around(address, bytes);
	struct range made = { .base = address,
			      .bytes = bytes,
			      .kind = RANGE_REGISTERED,
			      .memory_offset = address - pages.start,
			      .gpu = context->gpu,
			      .context = context_home(context),
			      .flags = flags };
	struct range *range;
	CUresult result = pages_make_shared(pages, context->gpu, &made.memory);

	if (result)
		return result;
	result = host_memory_add(&made, &range);
	if (result && !pages_make_private(pages))
		port_free(context->gpu->device, made.memory);
	return result;
}

/* Without memory for private pages, the shared pages stay, so that no data is lost. */
CUresult register_undo(struct range *range)
{
	const struct range was = *range;
	struct pages pages = pages_around(was.base, was.bytes);
	CUresult result;

	host_memory_forget(range);
	result = pages_make_private(pages);
	return result ? result : port_free(was.gpu->device, was.memory);
}

static bool is_registered(uint64_t address, uint64_t bytes)
{
	for (uint64_t at = address; at < address + bytes; at = (at | (SOFT_PAGE_BYTES - 1)) + 1)
		if (range_find(at))
			return true;
	return range_find(address + bytes - 1);
}

static CUresult host_register(void *at, size_t bytes, unsigned flags)
{
	const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
			       CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
	uint64_t address = (uintptr_t)at;
	struct context *context;
	CUresult result;

	if (!at || !bytes || flags & ~known || address + bytes < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_current(&context);
	if (!result)
		result = capture_forbids();
	if (result)
		return result;
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (is_registered(address, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	result = pages_suit(pages_around(address, bytes), flags & CU_MEMHOSTREGISTER_READ_ONLY);
	return result ? result : register_pages(context, address, bytes, flags);
}

EXPORT CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned int flags)
{
	ENTER();
	LEAVE(host_register(at, bytes, flags));
}

/* A registration is identified by its address. */
static CUresult register_find(const void *at, struct range **range)
{
	*range = at ? range_find((uintptr_t)at) : NULL;
	if (!*range)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	if ((*range)->kind != RANGE_REGISTERED || (*range)->base != (uintptr_t)at)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult host_unregister(void *at)
{
	struct context *context;
	struct range *range;
	CUresult result = context_current(&context);

	if (!result)
		result = capture_forbids();
	if (!result)
		result = register_find(at, &range);
	if (!result)
		result = memory_wait(range);
	if (!result)
		result = register_find(at, &range); /* the lock was released during the wait */
	return result ? result : register_undo(range);
}

EXPORT CUresult cuMemHostUnregister(void *at)
{
	ENTER();
	LEAVE(host_unregister(at));
}
