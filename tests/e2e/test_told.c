/* What programs are told about the GPU: its memory, its processes, the other GPUs. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "soft/link/link.h"
#include "stage.h"

#define MIB CARD_MIB

/* A client of the GPU that is not supervised: this process. */
struct stranger {
	int control;
	uint32_t client;
};

static void stranger_alloc(const struct stranger *stranger, uint32_t parent, uint32_t object,
			   uint32_t class_id, void *params, uint32_t size)
{
	struct rm_arg_alloc arg = { .client = stranger->client,
				    .parent = parent,
				    .object = object,
				    .class_id = class_id,
				    .params = (uintptr_t)params,
				    .size = size };

	CHECK_EQUAL(link_call_for(stranger->control, 0, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
}

static void stranger_come(struct stranger *stranger, const struct card *card, uint64_t bytes)
{
	struct rm_arg_alloc root = { .class_id = 0x41 };
	uint8_t device[56] = { 0 }, memory[128] = { 0 };
	uint32_t subdevice = 0;

	stranger->control = link_open(card->folder, SOFT_FILE_CONTROL);
	CHECK(stranger->control >= 0);
	CHECK_EQUAL(link_call_for(stranger->control, 0, RM_ESC_ALLOC, &root, sizeof(root)), 0);
	stranger->client = root.object;
	stranger_alloc(stranger, root.object, STAGE_DEVICE, 0x80, device, sizeof(device));
	stranger_alloc(stranger, STAGE_DEVICE, STAGE_SUBDEVICE, 0x2080, &subdevice, sizeof(subdevice));
	memcpy(memory + 64, &bytes, sizeof(bytes));
	stranger_alloc(stranger, STAGE_DEVICE, STAGE_MEMORY, 0x40, memory, sizeof(memory));
}

static void stranger_leave(const struct stranger *stranger)
{
	close(stranger->control);
}

static void program_asks_about_memory(struct actor *a)
{
	uint32_t fb[257] = { 4, 0x08, 0, 0x16, 0, 0x0b, 0, 0x0a, 0 };
	uint32_t list[4] = { 0x08, 0, 0x16, 0 };
	struct {
		uint32_t count, pad;
		uint64_t list;
	} old = { 2, 0, (uintptr_t)list };

	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, sizeof(fb)), 0);
	CHECK_EQUAL(fb[2], a->arg >> 10);
	CHECK_EQUAL(fb[4], (a->arg - 2 * (long)MIB) >> 10);
	CHECK_EQUAL(fb[6], 5120);
	/* All of it can be mapped by the CPU. */
	CHECK_EQUAL(fb[8], a->arg >> 10);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO, &old, sizeof(old)), 0);
	CHECK_EQUAL(list[1], a->arg >> 10);
	CHECK_EQUAL(list[3], (a->arg - 2 * (long)MIB) >> 10);
	CHECK_EQUAL(old.list, (uintptr_t)list); /* no address of ours has come back */
	fb[0] = 129;
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, sizeof(fb)),
		    RM_ERR_INVALID_ARGUMENT);
	fb[0] = 0xffffffff;
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, 12),
		    RM_ERR_INVALID_PARAM_STRUCT);
}

static void card_is_as_large_as_the_limit(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_asks_about_memory, 8 * MIB);
	stage_end_well(&s);
	stage_start(&s, CARD_BYTES, program_asks_about_memory, CARD_BYTES);
	stage_end_well(&s);
}

/* Free on the card may be less than the limit, and never becomes more. */
static void program_asks_what_is_free(struct actor *a)
{
	uint32_t fb[257] = { 2, 0x08, 0, 0x16, 0 };

	actor_new_device(a);
	actor_say(a, 'b');
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, sizeof(fb)), 0);
	CHECK_EQUAL(fb[2], 128 * MIB >> 10);
	CHECK_EQUAL(fb[4], 16 * MIB >> 10);
}

static void what_others_have_is_not_free(void)
{
	struct stranger stranger;
	struct stage s;

	stage_start(&s, 128 * MIB, program_asks_what_is_free, 0);
	stage_until(&s, 'b');
	stranger_come(&stranger, &s.card, CARD_BYTES - 16 * MIB);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	stranger_leave(&stranger);
	stage_end_well(&s);
}

static void program_asks_who_is_there(struct actor *a)
{
	const struct rm_layout *l = rm_layout_find(SOFT_DRIVER_VERSION);
	uint8_t *pids = calloc(1, l->pids_size), *info = calloc(1, l->pid_info_size);
	uint32_t count, self = (uint32_t)getpid(), stranger = (uint32_t)getppid(), two = 2, of_gpu = 0x2080;
	uint64_t bytes;

	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 'b');
	memcpy(pids + 4, &of_gpu, 4);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_GET_PIDS, pids, l->pids_size), 0);
	memcpy(&count, pids + l->pids_count, 4);
	CHECK_EQUAL(count, 1);
	CHECK(!memcmp(pids + l->pids_table, &self, 4));
	for (uint32_t i = 4; i < 4 * l->pids_max; i++)
		CHECK(!pids[l->pids_table + i]);
	memcpy(info, &two, 4);
	memcpy(info + l->pid_info_list, &self, 4);
	memcpy(info + l->pid_info_list + l->pid_info_stride, &stranger, 4);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_GET_PID_INFO, info, l->pid_info_size), 0);
	memcpy(&bytes, info + l->pid_info_list + l->pid_info_private, 8);
	CHECK_EQUAL(bytes, 2 * MIB);
	memcpy(&bytes, info + l->pid_info_list + l->pid_info_stride + l->pid_info_private, 8);
	CHECK_EQUAL(bytes, 0);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_GET_PIDS, pids, 12),
		    RM_ERR_INVALID_PARAM_STRUCT);
	free(pids);
	free(info);
}

static void only_the_vgpus_own_processes_are_seen(void)
{
	struct stranger stranger;
	struct stage s;

	stage_start(&s, 8 * MIB, program_asks_who_is_there, 0);
	stage_until(&s, 'b');
	stranger_come(&stranger, &s.card, 12 * MIB);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	stranger_leave(&stranger);
	stage_end_well(&s);
}

static void program_knocks_at_the_other_gpu(struct actor *a)
{
	int other = actor_open(a, SOFT_FILE_GPU_0 + 1);
	uint8_t device[56] = { 0 };
	uint32_t args[2] = { 0 };

	CHECK(other >= 0);
	CHECK_EQUAL(actor_call(other, RM_ESC_SYS_PARAMS, args, sizeof(args)), -ENODEV);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, other, 0) == MAP_FAILED);
	CHECK_EQUAL(errno, ENODEV);
	actor_new_client(a);
	device[0] = 1; /* the second device instance */
	CHECK_EQUAL(actor_alloc(a, a->client, STAGE_DEVICE, 0x80, device, sizeof(device)),
		    RM_ERR_INVALID_DEVICE);
}

static void other_gpus_are_not_there(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_knocks_at_the_other_gpu, 0);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(card_is_as_large_as_the_limit);
	STAGE_TEST(what_others_have_is_not_free);
	STAGE_TEST(only_the_vgpus_own_processes_are_seen);
	STAGE_TEST(other_gpus_are_not_there);
	return check_status();
}
