#include "dev.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "soft/abi.h"
#include "soft/link/link.h"

enum {
	CLASS_CLIENT = 0x41,
	CLASS_DEVICE = 0x80,
	CLASS_SUBDEVICE = 0x2080,
	CLASS_MEMORY = 0x40,
	CLASS_SPACE = 0x90f1,
	CLASS_VIRTUAL = 0x70,
	CLASS_GROUP = 0xa06c,
	CLASS_CHANNEL = 0xc86f,
	CLASS_COMPUTE = 0xcbc0,
	CLASS_DOORBELL = 0xc661,
	GRAPHICS = 1, /* NV2080_ENGINE_TYPE_GRAPHICS */
	CTRL_GET_PROBED_IDS = 0x214,
	CTRL_ATTACH_IDS = 0x215,
	IDS = 32,
	NO_ID = -1,
	BELL_BYTES = 0x10000,
	MAP_FLAGS_BELL = 0x80002, /* as libcuda sends them (recorded) */
	MAP_FLAGS_MEMORY = 0xc0000,
	GROUP_SPACE_AT = 8, /* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
	GROUP_ENGINE_AT = 12,
	CHANNEL_SPACE_AT = 28, /* NV_CHANNEL_ALLOC_PARAMS.hVASpace */
	/* Where things lie in DEV_BLOCK. */
	BLOCK_BYTES = 2 << 20,
	USERD_AT = 0x2000,
	RING_AT = 0x10000,
	RING_ENTRIES = 512,
	COMMANDS_AT = 0x40000,
	COMMAND_BYTES = 32,
	DONE_AT = 0x80000,
};

__attribute__((format(printf, 2, 0))) static void say(const char *word, const char *format, va_list args)
{
	printf("%s: ", word);
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
}

void dev_tries(const char *what)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("tries: %s\n", what);
}

void dev_held(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say("held", format, args);
	exit(0);
}

void dev_got(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say("GOT", format, args);
	exit(1);
}

void dev_skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say("skipped", format, args);
	exit(77);
}

int dev_ask(const char *order)
{
	char answer[64];

	printf("@%s\n", order);
	fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) && !strcmp(answer, "ok\n") ? 0 : -1;
}

uint64_t dev_limit(void)
{
	const char *said = getenv("ATTACK_LIMIT");

	return said ? strtoull(said, NULL, 10) : 64ull * MIB;
}

bool dev_is_soft(void)
{
	const char *folder = getenv("BELFRY_SOFT_DIR");

	return folder && *folder;
}

const struct rm_layout *dev_layout(void)
{
	char version[64] = SOFT_DRIVER_VERSION;
	FILE *file = dev_is_soft() ? NULL : fopen("/sys/module/nvidia/version", "re");
	const struct rm_layout *layout;

	if (file) {
		if (fgets(version, sizeof(version), file))
			version[strcspn(version, "\n")] = 0;
		fclose(file);
	}
	layout = rm_layout_find(version);
	return layout ? layout : rm_layout_find(SOFT_DRIVER_VERSION);
}

int dev_open(enum dev_file file)
{
	int fd;

	if (dev_is_soft())
		return link_open(getenv("BELFRY_SOFT_DIR"),
				 file == DEV_CONTROL ? SOFT_FILE_CONTROL : SOFT_FILE_GPU_0);
	fd = open(file == DEV_CONTROL ? "/dev/nvidiactl" : "/dev/nvidia0", O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int dev_call(int fd, uint32_t nr, void *arg, uint32_t size)
{
	return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg) < 0 ? -errno : 0;
}

int dev_new_client(struct dev *dev)
{
	struct rm_arg_alloc arg = { .class_id = CLASS_CLIENT, .status = 0x77 };
	int rc;

	*dev = (struct dev){ .control = dev_open(DEV_CONTROL), .gpu = -1 };
	if (dev->control < 0)
		return dev->control;
	rc = dev_call(dev->control, RM_ESC_ALLOC, &arg, sizeof(arg));
	dev->client = arg.object;
	return rc ? rc : (int)arg.status;
}

/* The real driver gives devices of attached GPUs only, to clients that have a file of the GPU's. */
static int attach(struct dev *dev)
{
	uint32_t probed[3 * IDS] = { 0 }, ids[IDS + 1];
	int rc = dev_control(dev, dev->client, CTRL_GET_PROBED_IDS, probed, sizeof(probed));

	memset(ids, NO_ID, sizeof(ids));
	ids[0] = probed[0];
	return rc ? rc : dev_control(dev, dev->client, CTRL_ATTACH_IDS, ids, sizeof(ids));
}

int dev_new_device(struct dev *dev)
{
	uint8_t device[56] = { 0 };
	uint32_t subdevice = 0;
	int rc = 0;

	if (!dev_is_soft())
		rc = attach(dev);
	if (!rc && dev->gpu < 0) {
		dev->gpu = dev_open(DEV_GPU);
		rc = dev->gpu < 0 ? dev->gpu : dev_call(dev->gpu, RM_ESC_REGISTER_FD, &dev->control, 4);
	}
	if (!rc)
		rc = dev_alloc(dev, dev->client, DEV_DEVICE, CLASS_DEVICE, device, sizeof(device));
	return rc ? rc
		  : dev_alloc(dev, DEV_DEVICE, DEV_SUBDEVICE, CLASS_SUBDEVICE, &subdevice, sizeof(subdevice));
}

int dev_alloc(const struct dev *dev, uint32_t parent, uint32_t handle, uint32_t class_id, void *params,
	      uint32_t size)
{
	struct rm_arg_alloc arg = { .client = dev->client,
				    .parent = parent,
				    .object = handle,
				    .class_id = class_id,
				    .params = (uintptr_t)params,
				    .size = size,
				    .status = 0x77 };
	int rc = dev_call(dev->control, RM_ESC_ALLOC, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int dev_memory(const struct dev *dev, uint32_t handle, uint64_t bytes)
{
	uint8_t params[128] = { 0 };
	const struct rm_layout *layout = dev_layout();

	memcpy(params, &dev->client,
	       sizeof(dev->client)); /* the owner: any number that is not the driver's */
	memcpy(params + layout->memory_bytes, &bytes, sizeof(bytes));
	return dev_alloc(dev, DEV_DEVICE, handle, CLASS_MEMORY, params, layout->memory_size);
}

int dev_free(const struct dev *dev, uint32_t parent, uint32_t handle)
{
	struct rm_arg_free arg = {
		.client = dev->client, .parent = parent, .object = handle, .status = 0x77
	};
	int rc = dev_call(dev->control, RM_ESC_FREE, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int dev_control(const struct dev *dev, uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	struct rm_arg_control arg = { .client = dev->client,
				      .object = object,
				      .cmd = cmd,
				      .params = (uintptr_t)params,
				      .size = size,
				      .status = 0x77 };
	int rc = dev_call(dev->control, RM_ESC_CONTROL, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int dev_dup(const struct dev *dev, uint32_t handle, uint32_t source_client, uint32_t source)
{
	struct rm_arg_dup arg = { .client = dev->client,
				  .parent = DEV_DEVICE,
				  .object = handle,
				  .source_client = source_client,
				  .source_object = source,
				  .status = 0x77 };
	int rc = dev_call(dev->control, RM_ESC_DUP_OBJECT, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int dev_export_into(const struct dev *dev, uint32_t handle, int file)
{
	/* NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS: type RM (1), device, parent, object, fd, flags */
	uint32_t params[6] = { 1, DEV_DEVICE, DEV_DEVICE, handle, (uint32_t)file, 0 };

	return dev_control(dev, dev->client, RM_CTRL_EXPORT_OBJECT_TO_FD, params, sizeof(params));
}

int dev_export(const struct dev *dev, uint32_t handle)
{
	int file = dev_open(DEV_CONTROL), rc;

	if (file < 0)
		return file;
	rc = dev_export_into(dev, handle, file);
	if (!rc)
		return file;
	close(file);
	return rc == RM_ERR_NOT_SUPPORTED ? -ENOTSUP : rc < 0 ? rc : -EIO;
}

int dev_import(const struct dev *dev, uint32_t handle, int file)
{
	/* NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS: fd, type, device, parent, object */
	uint32_t params[5] = { (uint32_t)file, 1, DEV_DEVICE, DEV_DEVICE, handle };

	return dev_control(dev, dev->client, RM_CTRL_IMPORT_OBJECT_FROM_FD, params, sizeof(params));
}

static int prepare_map(const struct dev *dev, uint32_t handle, uint64_t bytes, uint32_t flags, int file)
{
	struct rm_arg_map arg = { .client = dev->client,
				  .device = DEV_SUBDEVICE,
				  .memory = handle,
				  .length = bytes,
				  .flags = flags,
				  .fd = file,
				  .status = 0x77 };
	int rc = dev_call(dev->control, RM_ESC_MAP_MEMORY, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int dev_prepare_map(const struct dev *dev, uint32_t handle, uint64_t bytes, int file)
{
	return prepare_map(dev, handle, bytes, MAP_FLAGS_MEMORY, file);
}

void dev_start(struct dev *dev)
{
	int rc = dev_new_client(dev);

	if (!rc)
		rc = dev_new_device(dev);
	if (rc)
		dev_skip("the driver gives no device (%d); nothing was tried", rc);
}

static void *map(const struct dev *dev, uint32_t handle, uint64_t bytes, uint32_t flags)
{
	int file = dev_open(DEV_GPU);
	void *at = MAP_FAILED;

	if (file >= 0 && !prepare_map(dev, handle, bytes, flags, file))
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file >= 0)
		close(file);
	return at;
}

/* NV01_MEMORY_VIRTUAL over the whole address space: the real driver maps into such an object, not into the space. */
static int make_virtual(struct dev *dev)
{
	struct {
		uint64_t offset, limit;
		uint32_t space, pad;
	} params = { 0, 0, DEV_SPACE, 0 };

	return dev_alloc(dev, DEV_DEVICE, DEV_VIRTUAL, CLASS_VIRTUAL, &params, sizeof(params));
}

/* NVOS46: the block somewhere in the address space. */
static int map_for_gpu(struct dev *dev)
{
	struct {
		uint32_t client, device, space, memory;
		uint64_t offset, bytes;
		uint32_t flags, flags2, kind, pad;
		uint64_t address;
		uint32_t status, pad2;
	} arg = { .client = dev->client,
		  .device = DEV_DEVICE,
		  .space = dev_is_soft() ? DEV_SPACE : DEV_VIRTUAL,
		  .memory = DEV_BLOCK,
		  .bytes = BLOCK_BYTES,
		  .status = 0x77 };
	int rc = dev_call(dev->control, RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg));

	dev->block_address = arg.address;
	return rc ? rc : (int)arg.status;
}

int dev_doorbell(const struct dev *dev, uint32_t handle)
{
	uint8_t params[2] = { 0 };

	return dev_alloc(dev, DEV_SUBDEVICE, handle, CLASS_DOORBELL, params, sizeof(params));
}

int dev_group(const struct dev *dev, uint32_t handle)
{
	uint8_t params[20] = { 0 };
	uint32_t space = DEV_SPACE, engine = GRAPHICS;

	if (!dev_is_soft()) {
		memcpy(params + GROUP_SPACE_AT, &space, sizeof(space));
		memcpy(params + GROUP_ENGINE_AT, &engine, sizeof(engine));
	}
	return dev_alloc(dev, DEV_DEVICE, handle, CLASS_GROUP, params, sizeof(params));
}

static int make_channel(const struct dev *dev)
{
	const struct rm_layout *l = dev_layout();
	uint8_t params[368] = { 0 };
	uint64_t ring = dev->block_address + RING_AT, userd = USERD_AT;
	uint32_t entries = RING_ENTRIES, space = DEV_SPACE, memory = DEV_BLOCK, engine = GRAPHICS;

	memcpy(params + l->channel_gpfifo_offset, &ring, sizeof(ring));
	memcpy(params + l->channel_gpfifo_entries, &entries, sizeof(entries));
	if (dev_is_soft()) /* a group has one for all of its channels where it is a real one */
		memcpy(params + CHANNEL_SPACE_AT, &space, sizeof(space));
	else
		memcpy(params + l->channel_engine_type, &engine, sizeof(engine));
	memcpy(params + l->channel_userd_memory, &memory, sizeof(memory));
	memcpy(params + l->channel_userd_offset, &userd, sizeof(userd));
	return dev_alloc(dev, DEV_GROUP, DEV_CHANNEL, CLASS_CHANNEL, params, l->channel_size);
}

static int start_channel(struct dev *dev)
{
	uint8_t engine[16] = { 0 }, schedule[3] = { 1 };
	int rc = dev_alloc(dev, DEV_CHANNEL, DEV_CHANNEL + 0x100, CLASS_COMPUTE, engine, sizeof(engine));

	if (!rc)
		rc = dev_control(dev, DEV_CHANNEL, RM_CTRL_CHANNEL_GET_TOKEN, &dev->token,
				 sizeof(dev->token));
	return rc ? rc
		  : dev_control(dev, DEV_GROUP, RM_CTRL_GROUP_SCHEDULE, schedule,
				dev_layout()->group_schedule_size);
}

static const char *make_context(struct dev *dev)
{
	uint8_t space[64] = { 0 };
	void *bell, *block;

	if (dev_doorbell(dev, DEV_BELL))
		return "doorbell";
	bell = map(dev, DEV_BELL, BELL_BYTES, MAP_FLAGS_BELL);
	if (bell == MAP_FAILED)
		return "map of a doorbell";
	if (dev_alloc(dev, DEV_DEVICE, DEV_SPACE, CLASS_SPACE, dev_is_soft() ? NULL : space,
		      dev_is_soft() ? 0 : dev_layout()->va_space_size))
		return "address space";
	if (dev_memory(dev, DEV_BLOCK, BLOCK_BYTES))
		return "memory";
	block = map(dev, DEV_BLOCK, BLOCK_BYTES, MAP_FLAGS_MEMORY);
	if (block == MAP_FAILED)
		return "map of memory";
	if (!dev_is_soft() && make_virtual(dev))
		return "range of addresses";
	if (map_for_gpu(dev))
		return "map of memory for the GPU";
	dev->bell = bell;
	dev->block = block;
	return dev_group(dev, DEV_GROUP) ? "group"
	       : make_channel(dev)	 ? "channel"
	       : start_channel(dev)	 ? "start"
					 : NULL;
}

void dev_context(struct dev *dev)
{
	const char *missing = make_context(dev);

	if (missing)
		dev_skip("no context: the driver refuses its %s", missing);
}

void dev_beat(struct dev *dev)
{
	uint64_t semaphore = dev->block_address + DONE_AT;
	uint32_t slot = dev->beats % RING_ENTRIES, commands = COMMANDS_AT + COMMAND_BYTES * slot;
	const uint32_t words[] = { SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5),
				   (uint32_t)semaphore,
				   (uint32_t)(semaphore >> 32),
				   ++dev->beats,
				   0,
				   SOFT_SEM_RELEASE };
	const uint64_t entry = SOFT_ENTRY(dev->block_address + commands, sizeof(words) / sizeof(words[0]));
	volatile uint32_t *userd = (volatile uint32_t *)(void *)(dev->block + USERD_AT);

	memcpy(dev->block + commands, words, sizeof(words));
	memcpy(dev->block + RING_AT + 8 * (size_t)slot, &entry, sizeof(entry));
	/* In this order: the ring, how far it is filled, the bell. */
	__atomic_store_n(&userd[SOFT_USERD_GP_PUT / 4], dev->beats % RING_ENTRIES, __ATOMIC_SEQ_CST);
	__atomic_store_n(&dev->bell[SOFT_BELL_TOKEN / 4], dev->token, __ATOMIC_SEQ_CST);
}

uint32_t dev_beats(const struct dev *dev)
{
	return __atomic_load_n((const uint32_t *)(const void *)(dev->block + DONE_AT), __ATOMIC_ACQUIRE);
}

bool dev_wait_beat(const struct dev *dev, unsigned ms)
{
	uint64_t until_ns = bf_now_ns() + ms * 1000000ull;

	while (dev_beats(dev) != dev->beats) {
		if (bf_now_ns() > until_ns)
			return false;
		usleep(50);
	}
	return true;
}

uint32_t dev_beat_for(struct dev *dev, unsigned ms)
{
	uint64_t until_ns = bf_now_ns() + ms * 1000000ull, now_ns;
	uint32_t before = dev_beats(dev);

	while ((now_ns = bf_now_ns()) < until_ns) {
		dev_beat(dev);
		dev_wait_beat(dev, (unsigned)((until_ns - now_ns) / 1000000) + 1);
	}
	return dev_beats(dev) - before;
}

uint64_t dev_fill(const struct dev *dev, uint32_t first_handle, uint64_t piece_bytes)
{
	uint64_t sum = 0;

	while (sum <= 2 * dev_limit() && !dev_memory(dev, first_handle++, piece_bytes))
		sum += piece_bytes;
	return sum;
}

void dev_look(void)
{
	if (dev_ask("look"))
		dev_got("what the vGPU holds is not what it was given, seen from outside");
}
