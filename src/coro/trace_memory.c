/* Memory of the program. An address differs from run to run; the number of its allocation among those of its thread, the size
 * and the offset do not. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "coro/trace.h"

/* Words that are no addresses are mostly below. A size is no address of a program's data, which may be low. */
#define LEAST_ADDRESS 0x10000ull
#define LEAST_UNKNOWN (1ull << 32)
#define MOST_ADDRESS (1ull << 57)

enum kind { KIND_KNOWN = 1, KIND_DRIVERS, KIND_HOST };

struct range {
	uint64_t start, bytes;
	uint64_t number; /* among the allocations of its thread */
};

static struct {
	pthread_mutex_t lock;
	void *ranges; /* a tree of tsearch(3), of ranges that do not overlap */
} memory = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Ranges that overlap are equal: the range of an address is found by a range of one byte. */
static int compare(const void *one, const void *other)
{
	const struct range *a = one, *b = other;

	if (a->start + a->bytes <= b->start)
		return -1;
	return b->start + b->bytes <= a->start;
}

static struct range *find(uint64_t address)
{
	struct range key = { .start = address, .bytes = 1 };
	struct range **found = tfind(&key, &memory.ranges, compare);

	return found ? *found : NULL;
}

static void take_out(struct range *range)
{
	tdelete(range, &memory.ranges, compare);
	free(range);
}

/* Ranges there before were freed without a call that is seen here, such as with their context. */
static void add(uint64_t start, uint64_t bytes)
{
	static _Thread_local uint64_t allocations;
	struct range *range = malloc(sizeof(*range)), **found;

	if (!range)
		return;
	*range = (struct range){ .start = start, .bytes = bytes ? bytes : 1, .number = allocations++ };
	pthread_mutex_lock(&memory.lock);
	while ((found = tfind(range, &memory.ranges, compare)))
		take_out(*found);
	if (!tsearch(range, &memory.ranges, compare))
		free(range);
	pthread_mutex_unlock(&memory.lock);
}

static void forget(uint64_t address)
{
	struct range *range;

	pthread_mutex_lock(&memory.lock);
	range = find(address);
	if (range)
		take_out(range);
	pthread_mutex_unlock(&memory.lock);
}

static uint64_t describe(enum kind kind, uint64_t number, uint64_t bytes, uint64_t offset)
{
	return bf_hash_word(bf_hash_word(bf_hash_word(kind, number), bytes), offset);
}

/* Memory that is known to the driver only: of modules, imported, of graphs. */
static bool ask_driver(uint64_t address, uint64_t *described)
{
	uint64_t start = 0;
	size_t bytes = 0;

	if (real.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) ||
	    real.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) || !start)
		return false;
	*described = describe(KIND_DRIVERS, 0, bytes, address - start);
	return true;
}

/* mincore(2) fails where nothing is mapped. */
static bool is_mapped(uint64_t address)
{
	unsigned char is_resident;
	int before = errno;
	bool is = !mincore((void *)(uintptr_t)(address & ~4095ull), 1, &is_resident);

	errno = before;
	return is;
}

uint64_t trace_normalise(uint64_t word)
{
	uint64_t described = word;
	struct range *range;

	if (word < LEAST_ADDRESS || word >= MOST_ADDRESS)
		return word;
	pthread_mutex_lock(&memory.lock);
	range = find(word);
	if (range)
		described = describe(KIND_KNOWN, range->number, range->bytes, word - range->start);
	pthread_mutex_unlock(&memory.lock);
	if (range || word < LEAST_UNKNOWN || ask_driver(word, &described))
		return described;
	return is_mapped(word) ? describe(KIND_HOST, 0, 0, 0) : word;
}

bool trace_is_pinned(const void *address)
{
	CUmemorytype type;

	return !real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)address);
}

/* The driver does not know memory of the host that is not pinned. */
bool trace_is_host(CUdeviceptr address)
{
	CUmemorytype type = 0;

	return real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ||
	       type == CU_MEMORYTYPE_HOST;
}

void traced_cuMemAlloc_v2(CUdeviceptr *address, size_t bytes, struct trace_place place)
{
	(void)place;
	add(*address, bytes);
}

void traced_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
			       unsigned element, struct trace_place place)
{
	(void)width, (void)element, (void)place;
	add(*address, *pitch * height);
}

void traced_cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags, struct trace_place place)
{
	(void)flags, (void)place;
	add(*address, bytes);
}

void traced_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream, struct trace_place place)
{
	(void)stream, (void)place;
	add(*address, bytes);
}

void traced_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream,
				    struct trace_place place)
{
	(void)pool, (void)stream, (void)place;
	add(*address, bytes);
}

void traced_cuMemHostAlloc(void **address, size_t bytes, unsigned flags, struct trace_place place)
{
	(void)flags, (void)place;
	add((uintptr_t)*address, bytes);
}

void traced_cuMemAllocHost_v2(void **address, size_t bytes, struct trace_place place)
{
	(void)place;
	add((uintptr_t)*address, bytes);
}

void traced_cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags, struct trace_place place)
{
	(void)flags, (void)place;
	add((uintptr_t)address, bytes);
}

void traced_cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr at,
				unsigned long long flags, struct trace_place place)
{
	(void)alignment, (void)at, (void)flags, (void)place;
	add(*address, bytes);
}

/* Before the memory is freed: another thread may get it right after that. */
void tracing_cuMemFree_v2(CUdeviceptr address)
{
	forget(address);
}

void tracing_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	(void)stream;
	forget(address);
}

void tracing_cuMemFreeHost(void *address)
{
	forget((uintptr_t)address);
}

void tracing_cuMemHostUnregister(void *address)
{
	forget((uintptr_t)address);
}

void tracing_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	(void)bytes;
	forget(address);
}
