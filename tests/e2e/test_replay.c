/* The recorded calls of a real CUDA program, made again by a supervised one: the warden refuses only the class that libcuda
 * does without (0x503c), what the software GPU's driver knows is answered as the real one did, and at the end every
 * channel does what it is given. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "gate/gate.h"
#include "managed_file.h"
#include "stage.h"

enum {
	CHANNELS = 20,
	/* In the block: USERD as it was recorded, the rest beside it. */
	BLOCK_BYTES = 2 << 20,
	USERD_STEP = 0x3000,
	USERD_AT = 0x2000,
	RINGS_AT = 0x100000,
	RING_STEP = 0x1000,
	RING_ENTRIES = 512,
	COMMANDS_AT = 0x140000,
	COMMANDS_STEP = 0x100,
	DONE_AT = 0x180000,
	DONE_STEP = 64,
	ERR_INVALID_CLASS = 0x22,
	ERR_NOT_FOUND = 0x57,
};
#define CHANNEL_BLOCK 0x5c000017u  /* where the recorded program kept its rings */
#define BLOCK_ADDRESS 0x200600000u /* and where it mapped them */
#define CHANNEL_SPACE 0x5c000009u

struct replay {
	struct actor *actor;
	uint32_t recorded, handles[CHANNELS];
	unsigned channels, doorbells;
	int gpu, uvm, mapped; /* the file of the last MAP_MEMORY; -1: not to be mapped here */
	uint32_t last_object, last_mapped;
	bool was_made; /* the last object, or the client if there was none yet */
	volatile uint32_t *bell;
	uint8_t *block;
};

/* What the software GPU has none of. Its driver says so itself; nothing of the program depends on them. */
static bool is_known_class(uint32_t class_id)
{
	static const uint32_t unknown[] = { 0x00de, 0x2081, 0x83de, 0x90e6, 0xcb33 };

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		if (unknown[i] == class_id)
			return false;
	return true;
}

/* The handle of the recorded client is replaced by that of the client of this run. */
static uint32_t ours(const struct replay *r, uint32_t handle)
{
	return handle == r->recorded ? r->actor->client : handle;
}

static uint32_t params_for(struct replay *r, uint32_t class_id, uint8_t *params)
{
	const struct rm_layout *l = rm_layout_find(SOFT_DRIVER_VERSION);
	int size = rm_class_params_size(l, class_id);
	enum { CHANNEL_SPACE_AT = 28 };
	uint64_t bytes = BLOCK_BYTES, offset = (uint64_t)r->channels * USERD_STEP + USERD_AT;
	uint64_t ring = BLOCK_ADDRESS + RINGS_AT + (uint64_t)r->channels * RING_STEP;
	uint32_t block = CHANNEL_BLOCK, space = CHANNEL_SPACE, entries = RING_ENTRIES;

	if (class_id == 0x50a0) /* addresses: laid out as memory is */
		memcpy(params + l->memory_bytes, &bytes, sizeof(bytes));
	switch (rm_class_find(class_id)->kind) {
	case RM_KIND_VIDMEM:
	case RM_KIND_SYSMEM:
		memcpy(params + l->memory_bytes, &bytes, sizeof(bytes));
		break;
	case RM_KIND_CHANNEL:
		memcpy(params + l->channel_userd_memory, &block, sizeof(block));
		memcpy(params + l->channel_userd_offset, &offset, sizeof(offset));
		memcpy(params + l->channel_gpfifo_offset, &ring, sizeof(ring));
		memcpy(params + l->channel_gpfifo_entries, &entries, sizeof(entries));
		memcpy(params + CHANNEL_SPACE_AT, &space, sizeof(space));
		break;
	default:
		break;
	}
	return size < 0 ? 64 : (uint32_t)size;
}

static uint32_t expected_status(uint32_t class_id)
{
	if (rm_class_find(class_id)->kind == RM_KIND_REFUSED)
		return RM_ERR_NOT_SUPPORTED;
	return is_known_class(class_id) ? RM_OK : ERR_INVALID_CLASS;
}

static void replay_alloc(struct replay *r, int file, const char *what)
{
	struct rm_arg_alloc arg = { .status = 0x77 };
	uint8_t params[4096] = { 0 };
	uint32_t client;

	CHECK(sscanf(what, "RM_ALLOC root %x parent %x new %x class %x", &client, &arg.parent, &arg.object,
		     &arg.class_id) == 4);
	if (rm_class_find(arg.class_id)->kind == RM_KIND_ROOT) {
		if (r->actor->control >= 0)
			close(r->actor->control);
		actor_new_client(r->actor);
		return;
	}
	r->recorded = client;
	arg.client = ours(r, client);
	arg.parent = ours(r, arg.parent);
	arg.size = params_for(r, arg.class_id, params);
	arg.params = arg.size ? (uintptr_t)params : 0;
	/* Events on a file of the GPU's own: the software GPU has none to tell. */
	if (file == r->gpu) {
		CHECK_EQUAL(actor_call(file, RM_ESC_ALLOC, &arg, sizeof(arg)), -EINVAL);
		return;
	}
	CHECK_EQUAL(actor_call(file, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, expected_status(arg.class_id));
	if (rm_class_find(arg.class_id)->kind == RM_KIND_CHANNEL)
		r->handles[r->channels++] = arg.object;
	r->last_object = arg.object;
	r->was_made = !arg.status;
}

/* Parameters were not recorded: where something depends on them they are put together here. */
/* Filled in where the answer matters; of the size that the driver takes, as far as it is known. */
static uint32_t control_params(const struct replay *r, uint32_t cmd, uint8_t *params)
{
	const struct rm_control *control = rm_control_find(rm_layout_find(SOFT_DRIVER_VERSION), cmd);
	uint64_t timeslice_us = 2048;

	CHECK(control); /* or a program of today would be refused it */
	switch (cmd) {
	case RM_CTRL_FB_GET_INFO_V2:
	case RM_CTRL_GROUP_SCHEDULE:
		params[0] = 1;
		break;
	case RM_CTRL_GROUP_SET_TIMESLICE:
		memcpy(params, &timeslice_us, sizeof(timeslice_us));
		break;
	case RM_CTRL_ROOT_GET_ADDRESS_SPACE:
		memcpy(params, &r->last_object, 4);
		break;
	default:
		break;
	}
	return control->is_sized ? control->bytes : 64;
}

static bool must_succeed(uint32_t cmd)
{
	return cmd == RM_CTRL_FB_GET_INFO_V2 || cmd == RM_CTRL_GROUP_SET_TIMESLICE ||
	       cmd == RM_CTRL_GROUP_SCHEDULE || cmd == RM_CTRL_CHANNEL_GET_TOKEN ||
	       cmd == RM_CTRL_GROUP_SET_INTERLEAVE;
}

static void replay_control(struct replay *r, const char *what)
{
	static uint8_t params[RM_CONTROL_BYTES_MAX];
	uint32_t client, object, cmd, size;
	int status;

	CHECK(sscanf(what, "RM_CONTROL client %x obj %x cmd %x", &client, &object, &cmd) == 3);
	r->recorded = client;
	memset(params, 0, sizeof(params));
	size = control_params(r, cmd, params);
	status = actor_control(r->actor, ours(r, object), cmd, params, size);
	/* The driver's own answers to what it does not know, or has other parameters. */
	if (status == RM_ERR_NOT_SUPPORTED || status == RM_ERR_INVALID_ARGUMENT || status == ERR_NOT_FOUND ||
	    status == RM_ERR_INSUFFICIENT_PERMISSIONS)
		CHECK(!must_succeed(cmd));
	else
		CHECK_EQUAL(status, 0);
}

static void replay_map(struct replay *r, const char *what)
{
	struct rm_arg_map arg = { .status = 0x77 };
	unsigned long long offset, length;

	CHECK(sscanf(what, "RM_MAP_MEMORY client %x dev %x mem %x off %llx len %llx flags %x fd %d",
		     &arg.client, &arg.device, &arg.memory, &offset, &length, &arg.flags, &arg.fd) == 7);
	arg.client = r->actor->client;
	arg.length = length < BLOCK_BYTES ? length : BLOCK_BYTES;
	r->mapped = arg.fd = actor_open(r->actor, SOFT_FILE_GPU_0);
	r->last_mapped = arg.memory;
	CHECK_EQUAL(actor_call(r->actor->control, RM_ESC_MAP_MEMORY, &arg, sizeof(arg)), 0);
	if (arg.status == RM_ERR_INVALID_OBJECT_HANDLE) { /* of a class that was refused */
		close(r->mapped);
		r->mapped = -1;
	} else {
		CHECK_EQUAL(arg.status, 0);
	}
}

static void replay_mmap(struct replay *r, const char *what)
{
	unsigned long length;
	char *page;

	CHECK(sscanf(what, "mmap len %lx", &length) == 1);
	if (r->mapped < 0)
		return;
	if (length > BLOCK_BYTES)
		length = BLOCK_BYTES;
	page = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, r->mapped, 0);
	CHECK(page != MAP_FAILED);
	if (length == 0x10000) {
		r->bell = (volatile uint32_t *)(void *)page;
		r->doorbells++;
	}
	if (r->last_mapped == CHANNEL_BLOCK)
		r->block = (uint8_t *)page;
	close(r->mapped);
}

static void replay_bare(struct replay *r, int file, const char *what)
{
	uint8_t arg[4096] = { 0 };
	uint32_t nr, size;

	CHECK(sscanf(what, "ioctl nr %x sz %u", &nr, &size) == 2);
	switch (nr) {
	case RM_ESC_FREE: /* the first probe's client, and later the object that was probed with */
		CHECK_EQUAL(actor_free(r->actor, r->actor->client,
				       r->last_object ? r->last_object : r->actor->client),
			    r->was_made ? RM_OK : ERR_NOT_FOUND);
		return;
	case RM_ESC_ALLOC_MEMORY: {
		struct rm_arg_alloc_memory memory = { .client = r->actor->client,
						      .parent = STAGE_DEVICE,
						      .object = 0x5d000000u + r->last_object,
						      .class_id = 0x71,
						      .limit = 4095,
						      .fd = -1 };

		/* Pages of its own: the one call that goes on into the kernel, where this file takes none. */
		CHECK_EQUAL(actor_call(file, nr, &memory, size), -ENOTTY);
		return;
	}
	case RM_ESC_REGISTER_FD: /* each time another file */
		close(r->gpu);
		r->gpu = file = actor_open(r->actor, SOFT_FILE_GPU_0);
		memcpy(arg, &r->actor->control, 4);
		break;
	default:
		memcpy(arg, &r->actor->client, 4);
	}
	CHECK_EQUAL(actor_call(file, nr, arg, size), 0);
}

static void replay_line(struct replay *r, const char *line)
{
	const char *what = strchr(line, ' ') + 1;
	int file = !strncmp(line, "/dev/nvidia0", 12) ? r->gpu : r->actor->control;
	unsigned cmd;

	if (sscanf(line, "uvm cmd %u", &cmd) == 1) /* the warden takes it; this device has no such calls */
		CHECK(ioctl(r->uvm, cmd, (char[RM_UVM_BYTES_MAX]){ 0 }) == 0 || errno == EINVAL);
	else if (!strncmp(what, "RM_ALLOC ", 9))
		replay_alloc(r, file, what);
	else if (!strncmp(what, "RM_CONTROL ", 11))
		replay_control(r, what);
	else if (!strncmp(what, "RM_MAP_MEMORY ", 14))
		replay_map(r, what);
	else if (!strncmp(line, "/dev/nvidia-uvm mmap", 20))
		CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, r->uvm, 0) != MAP_FAILED);
	else if (!strncmp(what, "mmap ", 5))
		replay_mmap(r, what);
	else {
		if (file < 0)
			file = r->actor->control = actor_open(r->actor, SOFT_FILE_CONTROL);
		replay_bare(r, file, what);
	}
}

/* The recorded program has its memory mapped for the GPU by the managed-memory device; here the driver does it. */
static void map_block(struct replay *r)
{
	enum { FIXED = 1 << 15 };
	struct {
		uint32_t client, device, space, memory;
		uint64_t offset, bytes;
		uint32_t flags, flags2, kind, pad;
		uint64_t address;
		uint32_t status, pad2;
	} arg = { .client = r->actor->client,
		  .device = STAGE_DEVICE,
		  .space = CHANNEL_SPACE,
		  .memory = CHANNEL_BLOCK,
		  .bytes = BLOCK_BYTES,
		  .flags = FIXED,
		  .address = BLOCK_ADDRESS };

	CHECK_EQUAL(actor_call(r->actor->control, RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
}

/* One entry in its ring: release 100 + channel. */
static void fill_ring(struct replay *r, unsigned channel)
{
	uint64_t done = BLOCK_ADDRESS + DONE_AT + (uint64_t)channel * DONE_STEP;
	uint32_t commands = COMMANDS_AT + channel * COMMANDS_STEP;
	const uint32_t words[] = { SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5),
				   (uint32_t)done,
				   (uint32_t)(done >> 32),
				   100 + channel,
				   0,
				   SOFT_SEM_RELEASE };
	uint64_t entry = SOFT_ENTRY(BLOCK_ADDRESS + commands, sizeof(words) / sizeof(words[0]));

	memcpy(r->block + commands, words, sizeof(words));
	memcpy(r->block + RINGS_AT + (size_t)channel * RING_STEP, &entry, sizeof(entry));
}

static void ring(struct replay *r, unsigned channel)
{
	volatile uint32_t *userd =
		(volatile uint32_t *)(void *)(r->block + (size_t)channel * USERD_STEP + USERD_AT);
	uint32_t token = 0;

	fill_ring(r, channel);
	CHECK_EQUAL(actor_control(r->actor, r->handles[channel], RM_CTRL_CHANNEL_GET_TOKEN, &token, 4), 0);
	while (r->bell[GATE_BELL_WORD] != GATE_NO_TOKEN)
		; /* the last ring has been taken */
	/* In this order: the ring, how far it is filled, the bell. */
	__atomic_store_n(&userd[GATE_GP_PUT_WORD], 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&r->bell[GATE_BELL_WORD], token, __ATOMIC_SEQ_CST);
}

static void program_replays(struct actor *a)
{
	struct replay r = { .actor = a, .mapped = -1, .was_made = true };
	char path[4096], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/calls-cuda-h200-580.txt", BELFRY_TEST_DATA);
	file = fopen(path, "r");
	CHECK(file);
	r.gpu = actor_open(a, SOFT_FILE_GPU_0);
	r.uvm = managed_file_open(a->folder);
	while (fgets(line, sizeof(line), file))
		replay_line(&r, line);
	fclose(file);
	CHECK_EQUAL(r.channels, CHANNELS);
	CHECK_EQUAL(r.doorbells, 2);
	CHECK(r.block && r.bell);
	map_block(&r);
	actor_say(a, 'd');
	for (unsigned i = 0; i < CHANNELS; i++)
		ring(&r, i);
	actor_say(a, 'r');
}

static void check_report(struct stage *s)
{
	struct warden_report report;

	warden_report(s->warden, &report);
	CHECK_EQUAL(report.channels, CHANNELS);
	CHECK_EQUAL(report.mem_used_bytes, 70 * CARD_MIB + report.mem_managed_bytes);
	CHECK_EQUAL(report.mem_driver_bytes, 70 * CARD_MIB);
	/* Class 0x503c, two controls of it that a library makes if it has one, and UVM is told of another GPU. */
	CHECK_EQUAL(report.refusals, 4);
	CHECK_EQUAL(report.unknown, 0);
	CHECK(report.calls > 400);
}

static void recorded_program_runs_under_the_warden(void)
{
	struct warden_options options = { .mem_bytes = 128 * CARD_MIB, .interleave = -1 };
	struct warden_report report;
	struct stage s;

	stage_start_changed(&s, &options, managed_file_add, program_replays, 0);
	stage_until(&s, 'd');
	check_report(&s);
	CHECK_EQUAL(card_count(&s.card, 0xc86f), CHANNELS);
	CHECK_EQUAL(card_pages(&s.card), CHANNELS);
	CHECK_EQUAL(card_views(&s.card), 1);
	CHECK_EQUAL(card_count(&s.card, 0xc661), 0);
	CHECK_EQUAL(card_count(&s.card, 0xa06c), 4);
	CHECK_EQUAL(card_count(&s.card, 0xcbc0), 8);
	stage_go_on(&s);
	stage_until(&s, 'r');
	for (uint32_t i = 0; i < CHANNELS; i++) {
		const _Atomic uint32_t *done = card_word(&s.card, CHANNEL_BLOCK, DONE_AT + i * DONE_STEP);

		while (atomic_load(done) != 100 + i)
			stage_serve(&s, 1);
	}
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.forwards, CHANNELS);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(recorded_program_runs_under_the_warden);
	return check_status();
}
