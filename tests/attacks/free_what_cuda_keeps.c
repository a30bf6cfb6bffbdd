/* Ordinary CUDA calls (the VMM interface of libcuda.so.1): memory is created, exported and released, the file stays;
 * memory is created, mapped and released, the mapping stays. */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "dev.h"

enum { PINNED = 1, BY_FILE = 1, ON_DEVICE = 1, READ_WRITE = 3, MOST = 4096 };

struct location {
	int type, id;
};
struct properties { /* CUmemAllocationProp */
	int type, handle_types;
	struct location location;
	void *win32;
	unsigned char flags[8];
};
struct access {
	struct location location;
	int flags;
};

static int (*init)(unsigned), (*device_get)(int *, int), (*retain)(void **, int), (*set_current)(void *);
static int (*create)(unsigned long long *, size_t, const struct properties *, unsigned long long);
static int (*release)(unsigned long long);
static int (*export_file)(void *, unsigned long long, int, unsigned long long);
static int (*reserve)(unsigned long long *, size_t, size_t, unsigned long long, unsigned long long);
static int (*map)(unsigned long long, size_t, size_t, unsigned long long, unsigned long long);
static int (*set_access)(unsigned long long, size_t, const struct access *, size_t);

static void find(void *library, const char *name, void *to)
{
	void *at = dlsym(library, name);

	if (!at)
		dev_skip("libcuda has no %s", name);
	memcpy(to, &at, sizeof(at));
}

static void start(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int device;

	if (!library)
		dev_skip("no libcuda.so.1");
	find(library, "cuInit", &init);
	find(library, "cuDeviceGet", &device_get);
	find(library, "cuDevicePrimaryCtxRetain", &retain);
	find(library, "cuCtxSetCurrent", &set_current);
	find(library, "cuMemCreate", &create);
	find(library, "cuMemRelease", &release);
	find(library, "cuMemExportToShareableHandle", &export_file);
	find(library, "cuMemAddressReserve", &reserve);
	find(library, "cuMemMap", &map);
	find(library, "cuMemSetAccess", &set_access);
	if (init(0) || device_get(&device, 0) || retain(&context, 0) || set_current(context))
		dev_skip("no CUDA context");
}

static struct properties wanted = { .type = PINNED, .handle_types = BY_FILE, .location = { ON_DEVICE, 0 } };

static uint64_t keep_files(uint64_t piece, int *files)
{
	uint64_t sum = 0;
	unsigned count = 0;

	for (unsigned long long memory;
	     count < MOST && sum <= 2 * dev_limit() && !create(&memory, piece, &wanted, 0);) {
		int rc = export_file(&files[count], memory, BY_FILE, 0);

		release(memory);
		if (rc) {
			printf("no export (%d)\n", rc);
			break;
		}
		count++;
		sum += piece;
	}
	files[count] = -1;
	return sum;
}

static uint64_t keep_maps(uint64_t piece)
{
	const struct access access = { { ON_DEVICE, 0 }, READ_WRITE };
	unsigned long long memory, base;
	uint64_t sum = 0;

	while (sum <= 2 * dev_limit() && !create(&memory, piece, &wanted, 0)) {
		int rc = reserve(&base, piece, 0, 0, 0);

		if (!rc)
			rc = map(base, piece, 0, memory, 0);
		if (!rc)
			rc = set_access(base, piece, &access, 1);
		release(memory);
		if (rc)
			break;
		sum += piece;
	}
	return sum;
}

int main(void)
{
	static int files[MOST + 1];
	uint64_t piece = dev_limit() / 16 / (2ull * MIB) * (2ull * MIB), sum;

	dev_tries("release CUDA memory that a file or a mapping keeps");
	start();
	sum = keep_files(piece, files);
	dev_look();
	printf("%llu bytes in files\n", (unsigned long long)sum);
	if (sum > dev_limit())
		dev_got("%llu bytes in files", (unsigned long long)sum);
	for (int *file = files; *file >= 0; file++)
		close(*file);
	wanted.handle_types = 0;
	sum = keep_maps(piece);
	dev_look();
	if (sum > dev_limit())
		dev_got("%llu bytes in mappings", (unsigned long long)sum);
	if (!sum)
		dev_skip("nothing can be mapped");
	dev_held("%llu bytes of %llu in mappings", (unsigned long long)sum, (unsigned long long)dev_limit());
}
