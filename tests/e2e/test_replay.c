/* The recorded calls of a real CUDA program, made again by a supervised one: every one of them is answered as
 * the driver did, and at the end every channel's ring reaches the GPU. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "gate/gate.h"
#include "stage.h"

enum { CHANNELS = 20, USERD_STEP = 0x3000, USERD_AT = 0x2000 };
#define CHANNEL_BLOCK 0x5c000017u /* where the recorded program kept its rings */

struct replay {
	struct actor *actor;
	uint32_t recorded, handles[CHANNELS];
	unsigned channels, doorbells;
	int gpu, uvm, mapped; /* the file of the last MAP_MEMORY; -1: not to be mapped here */
	uint32_t last_object;
	volatile uint32_t *bell, *userd;
};

/* The recorded client's handle is the one we were given this time. */
static uint32_t ours(const struct replay *r, uint32_t handle)
{
	return handle == r->recorded ? r->actor->client : handle;
}

static uint32_t params_for(struct replay *r, uint32_t class_id, uint8_t *params)
{
	const struct rm_layout *l = rm_layout_find("580.159.04");
	int size = rm_class_params_size(l, class_id);
	uint64_t bytes = 2 * FAKE_MIB, offset = (uint64_t)r->channels * USERD_STEP + USERD_AT;
	uint32_t block = CHANNEL_BLOCK;

	switch (rm_class_find(class_id)->kind) {
	case RM_KIND_VIDMEM:
	case RM_KIND_SYSMEM:
		memcpy(params + l->memory_bytes, &bytes, sizeof(bytes));
		break;
	case RM_KIND_CHANNEL:
		memcpy(params + l->channel_userd_memory, &block, sizeof(block));
		memcpy(params + l->channel_userd_offset, &offset, sizeof(offset));
		break;
	default:
		break;
	}
	return size < 0 ? 64 : (uint32_t)size;
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
	CHECK_EQUAL(actor_call(file, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
	if (rm_class_find(arg.class_id)->kind == RM_KIND_CHANNEL)
		r->handles[r->channels++] = arg.object;
	r->last_object = arg.object;
}

static void replay_control(struct replay *r, const char *what)
{
	uint8_t params[4096] = { 0 };
	uint32_t client, object, cmd, size = 64, one = 1;

	CHECK(sscanf(what, "RM_CONTROL client %x obj %x cmd %x", &client, &object, &cmd) == 3);
	r->recorded = client;
	switch (cmd) {
	case RM_CTRL_FB_GET_INFO_V2:
		memcpy(params, &one, 4);
		size = 1028;
		break;
	case RM_CTRL_GROUP_SET_TIMESLICE:
		size = 8;
		break;
	case RM_CTRL_GROUP_SCHEDULE:
		size = 3;
		break;
	case RM_CTRL_CHANNEL_GET_TOKEN:
	case RM_CTRL_GROUP_SET_INTERLEAVE:
		size = 4;
		break;
	case RM_CTRL_ROOT_GET_ADDRESS_SPACE:
		memcpy(params, &r->last_object, 4);
		size = 12;
		break;
	default:
		break;
	}
	CHECK_EQUAL(actor_control(r->actor, ours(r, object), cmd, params, size), 0);
}

static void replay_map(struct replay *r, const char *what)
{
	struct rm_arg_map arg = { .status = 0x77 };
	unsigned long long offset, length;

	CHECK(sscanf(what, "RM_MAP_MEMORY client %x dev %x mem %x off %llx len %llx flags %x fd %d",
		     &arg.client, &arg.device, &arg.memory, &offset, &length, &arg.flags, &arg.fd) == 7);
	arg.client = r->actor->client;
	arg.length = length;
	r->mapped = fake_open(r->actor->fake, DEVICE_FILE_GPU);
	arg.fd = r->mapped;
	CHECK_EQUAL(actor_call(r->actor->control, RM_ESC_MAP_MEMORY, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
	if (arg.memory == CHANNEL_BLOCK)
		r->userd = (volatile uint32_t *)(uintptr_t)arg.address;
}

static void replay_mmap(struct replay *r, const char *what)
{
	unsigned long length;
	char *page;

	CHECK(sscanf(what, "mmap len %lx", &length) == 1);
	page = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, r->mapped, 0);
	CHECK(page != MAP_FAILED);
	if (length == 0x10000) {
		r->bell = (volatile uint32_t *)(void *)page;
		r->doorbells++;
	}
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
			    0);
		return;
	case RM_ESC_ALLOC_MEMORY: {
		struct rm_arg_alloc_memory memory = { .client = r->actor->client,
						      .parent = STAGE_DEVICE,
						      .object = 0x5d000000u + r->last_object,
						      .class_id = 0x71,
						      .limit = 4095,
						      .fd = -1 };

		CHECK_EQUAL(actor_call(file, nr, &memory, size), 0);
		CHECK_EQUAL(memory.status, 0);
		return;
	}
	case RM_ESC_REGISTER_FD:
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

	if (sscanf(line, "uvm cmd %u", &cmd) == 1) /* the filter need not stop it; the file knows no calls */
		CHECK(ioctl(r->uvm, cmd, (char[4096]){ 0 }) == 0 || errno == ENOTTY);
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
			file = r->actor->control = fake_open(r->actor->fake, DEVICE_FILE_CONTROL);
		replay_bare(r, file, what);
	}
}

static void program_replays(struct actor *a)
{
	struct replay r = { .actor = a };
	char path[4096], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/calls-cuda-h200-580.txt", BELFRY_TEST_DATA);
	file = fopen(path, "r");
	CHECK(file);
	r.gpu = fake_open(a->fake, DEVICE_FILE_GPU);
	r.uvm = fake_open(a->fake, DEVICE_FILE_MANAGED);
	for (unsigned n = 0; fgets(line, sizeof(line), file); n++)
		replay_line(&r, line);
	fclose(file);
	CHECK_EQUAL(r.channels, CHANNELS);
	CHECK_EQUAL(r.doorbells, 2);
	CHECK(r.userd && r.bell);
	actor_say(a, 'd');
	for (unsigned i = 0; i < CHANNELS; i++) {
		uint32_t token = 0;

		CHECK_EQUAL(actor_control(a, r.handles[i], RM_CTRL_CHANNEL_GET_TOKEN, &token, 4), 0);
		while (r.bell[GATE_BELL_WORD] != GATE_NO_TOKEN)
			; /* the last ring has been taken */
		r.userd[(i * USERD_STEP + USERD_AT) / 4 + GATE_GP_PUT_WORD] = 100 + i;
		atomic_thread_fence(memory_order_seq_cst);
		r.bell[GATE_BELL_WORD] = token;
	}
	actor_say(a, 'r');
}

static void recorded_program_runs_under_the_warden(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 128 * FAKE_MIB, program_replays, 0);
	stage_until(&s, 'd');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.channels, CHANNELS);
	CHECK_EQUAL(report.mem_used_bytes, 70 * FAKE_MIB + report.mem_managed_bytes);
	CHECK_EQUAL(report.mem_driver_bytes, 70 * FAKE_MIB);
	CHECK_EQUAL(report.refusals, 0);
	CHECK(report.calls > 400);
	CHECK_EQUAL(s.fake->channels, CHANNELS);
	CHECK_EQUAL(s.fake->page_count, CHANNELS);
	CHECK_EQUAL(s.fake->views, 1);
	CHECK(!fake_nth(s.fake, 0xc661, 0));
	CHECK(fake_nth(s.fake, 0xa06c, 3) && !fake_nth(s.fake, 0xa06c, 4));
	CHECK(fake_nth(s.fake, 0xcbc0, 7) && !fake_nth(s.fake, 0xcbc0, 8));
	stage_go_on(&s);
	stage_until(&s, 'r');
	for (unsigned i = 0; i < CHANNELS; i++) {
		struct fake_object *channel = fake_nth(s.fake, 0xc86f, i);

		while (fake_gp_put(channel) != 100 + i)
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
	return 0;
}
