/* The warden against a program that behaves like libcuda at the level of calls: what it is given, refused and
 * told, and that its rings go where the gate lets them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "managed_file.h"
#include "soft/link/link.h"
#include "stage.h"

#define NO_MEMORY RM_ERR_NO_MEMORY
#define MIB CARD_MIB

/* Memory. */

static void program_fills_its_memory(struct actor *a)
{
	actor_new_device(a);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + i, 2 * MIB), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 4, 1), NO_MEMORY);
	actor_say(a, 'f');
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 1ull << 40), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, UINT64_MAX), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 4, 1), NO_MEMORY);
}

static void memory_is_refused_at_the_exact_byte(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_fills_its_memory, 0);
	stage_until(&s, 'f');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 8 * MIB);
	CHECK_EQUAL(report.mem_driver_bytes, 8 * MIB);
	CHECK_EQUAL(card_used_bytes(&s.card), 8 * MIB);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_end_well(&s);
}

/* The driver rounds up: what would not fit as rounded is taken back. */
static void program_meets_rounding(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 1), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 1), NO_MEMORY);
	actor_say(a, 'r');
}

static void memory_is_counted_as_the_driver_rounds_it(void)
{
	struct stage s;

	stage_start(&s, 2 * CARD_ROUND - 1, program_meets_rounding, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(card_used_bytes(&s.card), CARD_ROUND);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_frees_in_every_way(struct actor *a)
{
	for (int way = 0; way < 5; way++) {
		struct actor other = *a;

		actor_new_device(a);
		for (uint32_t i = 0; i < 4; i++)
			CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + i, 2 * MIB), 0);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 4, 1), NO_MEMORY);
		if (way == 0) /* one by one */
			for (uint32_t i = 0; i < 4; i++)
				CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY + i), 0);
		if (way == 1) /* with an ancestor */
			CHECK_EQUAL(actor_free(a, a->client, STAGE_DEVICE), 0);
		if (way == 2) /* with the client */
			CHECK_EQUAL(actor_free(a, a->client, a->client), 0);
		if (way == 3) { /* with the file */
			close(a->control);
			a->control = -1;
		}
		if (way == 4) { /* with a file that had been duplicated: only the last one counts */
			int copy = dup(a->control);

			close(a->control);
			actor_new_device(&other);
			CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 1), NO_MEMORY);
			close(copy);
			a->control = -1;
			close(other.control);
		}
		/* All of it can be had again at once, by somebody else. */
		actor_new_device(&other);
		CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
		close(other.control);
		close(a->control);
	}
}

static void freed_memory_is_there_again_however_it_was_freed(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_frees_in_every_way, 0);
	stage_end_well(&s);
}

static void program_duplicates(struct actor *a)
{
	struct actor second = *a;

	actor_new_device(a);
	actor_new_device(&second);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY + 1, a->client, STAGE_MEMORY), 0);
	CHECK_EQUAL(actor_dup(&second, STAGE_MEMORY, a->client, STAGE_MEMORY), 0);
	actor_say(a, 'd');
	/* The memory lives as long as one name of it does. */
	CHECK_EQUAL(actor_free(a, a->client, a->client), 0);
	CHECK_EQUAL(actor_memory(&second, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_free(&second, STAGE_DEVICE, STAGE_MEMORY), 0);
	CHECK_EQUAL(actor_memory(&second, STAGE_DEVICE, STAGE_MEMORY + 1, 8 * MIB), 0);
	CHECK_EQUAL(actor_dup(&second, STAGE_MEMORY + 7, 0xc1d0ffff, 1), RM_ERR_INVALID_CLIENT);
}

static void duplicates_in_two_clients_are_counted_once(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_duplicates, 0);
	stage_until(&s, 'd');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 6 * MIB);
	warden_audit(s.warden);
	warden_audit(s.warden);
	warden_audit(s.warden); /* nobody is ended for it */
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What a program was given behind the warden's back is found by the audit, and the program ended. Only the driver's own
 * file takes calls, and no program has it; so the test notes which it is and makes such a call itself. */
static struct {
	const struct device_ops *before;
	int control;
	uint32_t client;
} noted;

static int note_file(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	const struct rm_arg_alloc *alloc = arg;

	if (nr == RM_ESC_ALLOC && size == sizeof(*alloc) && alloc->class_id == 0x40) {
		noted.control = fd;
		noted.client = alloc->client;
	}
	return noted.before->call(device, fd, nr, arg, size);
}

static void note_files(struct card *card)
{
	static struct device_ops ops;

	noted.before = card->device->ops;
	ops = *noted.before;
	ops.call = note_file;
	card->device->ops = &ops;
}

static void program_waits(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 'w');
	actor_tell(a, 'x');
	pause();
}

static void give_memory(uint64_t bytes)
{
	uint8_t params[128] = { 0 };
	struct rm_arg_alloc arg = { .client = noted.client,
				    .parent = STAGE_DEVICE,
				    .object = STAGE_MEMORY + 1,
				    .class_id = 0x40,
				    .params = (uintptr_t)params,
				    .size = sizeof(params) };

	memcpy(params + 64, &bytes, sizeof(bytes));
	CHECK_EQUAL(link_call_for(noted.control, 0, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
}

static void program_with_more_than_it_was_given_is_ended(void)
{
	const struct warden_options options = { .mem_bytes = 8 * MIB, .interleave = -1 };
	struct stage s;

	stage_start_changed(&s, &options, note_files, program_waits, 0);
	stage_until(&s, 'w');
	warden_audit(s.warden);
	warden_audit(s.warden);
	stage_go_on(&s);
	stage_until(&s, 'x'); /* still there: it did nothing wrong */
	give_memory(1);
	warden_audit(s.warden);
	warden_audit(s.warden);
	CHECK_EQUAL(stage_end(&s) & 0x7f, SIGKILL);
}

static void program_changes_its_limit(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 4 * MIB), 0);
	actor_say(a, '1');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB), NO_MEMORY);
	actor_say(a, '2');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB), 0);
}

static void limit_can_be_changed_but_not_below_what_is_used(void)
{
	struct bf_error err = { 0 };
	struct stage s;

	stage_start(&s, 8 * MIB, program_changes_its_limit, 0);
	stage_until(&s, '1');
	CHECK_EQUAL(warden_set_mem(s.warden, 4 * MIB - 1, &err), -EBUSY);
	CHECK_EQUAL(warden_set_mem(s.warden, CARD_BYTES + 1, &err), -ERANGE);
	CHECK_EQUAL(warden_set_mem(s.warden, 4 * MIB, &err), 0);
	stage_go_on(&s);
	stage_until(&s, '2');
	CHECK_EQUAL(warden_set_mem(s.warden, 6 * MIB, &err), 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_uses_managed_memory(struct actor *a)
{
	int uvm = managed_file_open(a->folder);
	char *first, *second;

	CHECK(uvm >= 0);
	first = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, uvm, 0);
	CHECK(first != MAP_FAILED);
	actor_new_device(a);
	actor_say(a, 'm');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK_EQUAL(munmap(first, 2 * MIB), 0);
	/* What was unmapped is there again, for the one kind and the other. */
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB), 0);
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY + 1), 0);
	second = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, uvm, 0);
	CHECK(second != MAP_FAILED);
	actor_say(a, 'n');
	/* Over the limit: whatever the program gets, it is not the device. */
	second = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, uvm, 0);
	CHECK(second != MAP_FAILED || errno == ENOMEM);
	actor_say(a, 'o');
}

static void managed_memory_is_bounded_by_what_is_mapped(void)
{
	struct warden_options options = { .mem_bytes = 4 * MIB, .interleave = -1 };
	struct warden_report report;
	struct stage s;

	stage_start_changed(&s, &options, managed_file_add, program_uses_managed_memory, 0);
	stage_until(&s, 'm');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_managed_bytes, 2 * MIB);
	stage_go_on(&s);
	stage_until(&s, 'n');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_managed_bytes, 2 * MIB);
	CHECK_EQUAL(report.mem_used_bytes, 4 * MIB);
	stage_go_on(&s);
	stage_until(&s, 'o');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 4 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What programs are told. */

/* Another user of the card, whom nobody supervises: ourselves. */
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

/* The gate. */

static void program_rings(struct actor *a)
{
	actor_context(a);
	actor_say(a, 'c');
	for (;;) {
		char heard;

		actor_ring(a);
		actor_tell(a, 'r');
		CHECK(read(a->hear, &heard, 1) == 1);
		if (heard == 'x')
			break;
	}
}

static struct card_channel channel_at(const struct stage *s, unsigned channel)
{
	struct card_channel found = { 0 };

	CHECK(card_channel(&s->card, STAGE_CHANNEL + channel, &found));
	CHECK(!found.is_nameable); /* the GPU reads a page that the program cannot name */
	return found;
}

static void ring_reaches_the_gpu_and_hold_holds_it(void)
{
	struct warden_report report;
	struct card_group group;
	struct stage s;

	stage_start(&s, 8 * MIB, program_rings, 0);
	stage_until(&s, 'c');
	CHECK_EQUAL(card_count(&s.card, 0xc86f), 1);
	CHECK_EQUAL(card_views(&s.card), 1);
	CHECK_EQUAL(card_count(&s.card, 0xc661), 0); /* the driver has never heard of a doorbell */
	CHECK(card_group(&s.card, STAGE_GROUP, &group) && group.is_scheduled);
	stage_go_on(&s);
	stage_until(&s, 'r');
	stage_until_done(&s, 0, 1);
	for (uint32_t round = 0; round < 20; round++) {
		warden_close(s.warden);
		stage_go_on(&s);
		stage_until(&s, 'r');
		warden_close(s.warden); /* the poller has been around since */
		CHECK_EQUAL(channel_at(&s, 0).gp_put, 1 + round);
		CHECK_EQUAL(stage_done(&s, 0), 1 + round);
		warden_report(s.warden, &report);
		CHECK_EQUAL(report.gate, GATE_CLOSED);
		warden_open(s.warden);
		stage_until_done(&s, 0, 2 + round);
		CHECK_EQUAL(channel_at(&s, 0).gp_put, 2 + round);
	}
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.gate, GATE_OPEN);
	CHECK_EQUAL(report.channels, 1);
	CHECK(write(s.say, "x", 1) == 1);
	stage_end_well(&s);
}

/* Several channels with their USERD in one block, all of them used, all of them stopped, one of them in the middle of
 * its work. */
static void program_has_many_channels(struct actor *a)
{
	char heard;

	actor_context(a);
	actor_ring(a);
	for (unsigned i = 1; i < 6; i++) {
		actor_add_channel(a, i);
		actor_release(a, i, 1);
	}
	actor_acquire(a, 1, 7);
	actor_release(a, 1, 2);
	actor_say(a, 'c');
	/* Here it is stopped. What channel 1 waits for comes, and channel 0 is given more. */
	__atomic_store_n((uint32_t *)(void *)(a->block + STAGE_WAIT_AT(1)), 7, __ATOMIC_SEQ_CST);
	actor_ring(a);
	actor_tell(a, 't');
	/* A driver call while the vGPU is stopped: it waits. */
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_tell(a, 'd');
	CHECK(read(a->hear, &heard, 1) == 1);
}

static bool says_nothing(struct stage *s)
{
	char said;
	int flags = fcntl(s->hear, F_GETFL);
	ssize_t got;

	fcntl(s->hear, F_SETFL, flags | O_NONBLOCK);
	got = read(s->hear, &said, 1);
	fcntl(s->hear, F_SETFL, flags);
	return got < 0;
}

static uint64_t calls_of(struct stage *s)
{
	struct warden_report report;

	warden_report(s->warden, &report);
	return report.calls;
}

static void until_another_call(struct stage *s, uint64_t calls)
{
	while (calls_of(s) == calls)
		stage_serve(s, 1);
}

static void check_disabled(struct stage *s, bool is_disabled)
{
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQUAL(channel_at(s, i).is_disabled, is_disabled);
}

static void stop_disables_the_channels_and_calls_wait(void)
{
	struct bf_error err = { 0 };
	struct warden_report report;
	struct stage s;
	uint64_t calls;

	stage_start(&s, 8 * MIB, program_has_many_channels, 0);
	stage_until(&s, 'c');
	for (unsigned i = 0; i < 6; i++)
		stage_until_done(&s, i, 1);
	stage_until_put(&s, STAGE_CHANNEL + 1, 3);
	CHECK_EQUAL(card_views(&s.card), 1);
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	CHECK_EQUAL(warden_stop(s.warden, &err), 0); /* again changes nothing */
	check_disabled(&s, true);
	calls = calls_of(&s);
	stage_go_on(&s);
	stage_until(&s, 't');
	until_another_call(&s, calls);
	CHECK(says_nothing(&s));
	CHECK_EQUAL(card_used_bytes(&s.card), 2 * MIB);
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.gate, GATE_STOPPED);
	warden_open(s.warden); /* no way to open what is stopped */
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.gate, GATE_STOPPED);
	stage_serve(&s, 20); /* long enough for a GPU that would do it */
	CHECK_EQUAL(stage_done(&s, 0), 1);
	CHECK_EQUAL(stage_done(&s, 1), 1);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	check_disabled(&s, false);
	stage_until(&s, 'd');
	/* What was stopped goes on, and what was given meanwhile is done. */
	stage_until_done(&s, 0, 2);
	stage_until_done(&s, 1, 2);
	CHECK_EQUAL(card_used_bytes(&s.card), 4 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Ended while it waits for its call: nothing is kept for it. */
static void stopped_program_can_be_killed(void)
{
	struct bf_error err = { 0 };
	struct stage s;
	uint64_t calls;

	stage_start(&s, 8 * MIB, program_has_many_channels, 0);
	stage_until(&s, 'c');
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	calls = calls_of(&s);
	stage_go_on(&s);
	stage_until(&s, 't');
	until_another_call(&s, calls);
	kill(s.pid, SIGKILL);
	while (!s.has_ended)
		stage_serve(&s, 1);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	CHECK_EQUAL(stage_end(&s), 9);
}

static void program_sets_its_own_turns(struct actor *a)
{
	uint64_t slice = 100000;
	uint32_t level = 2;

	actor_context(a);
	CHECK_EQUAL(actor_control(a, STAGE_GROUP, RM_CTRL_GROUP_SET_TIMESLICE, &slice, sizeof(slice)), 0);
	CHECK_EQUAL(actor_control(a, STAGE_GROUP, RM_CTRL_GROUP_SET_INTERLEAVE, &level, sizeof(level)), 0);
	actor_say(a, 's');
}

static void check_turns(const struct stage *s, uint64_t timeslice_us, uint32_t interleave)
{
	struct card_group group;

	CHECK(card_group(&s->card, STAGE_GROUP, &group));
	CHECK_EQUAL(group.timeslice_us, timeslice_us);
	CHECK_EQUAL(group.interleave, interleave);
}

static void timeslice_and_interleave_are_the_vgpus(void)
{
	struct warden_options options = { .mem_bytes = 8 * MIB, .timeslice_us = 200, .interleave = 0 };
	struct bf_error err = { 0 };
	struct stage s;

	stage_start_with(&s, &options, program_sets_its_own_turns, 0);
	stage_until(&s, 's');
	check_turns(&s, 200, 0);
	CHECK_EQUAL(warden_set_timeslice(s.warden, 777, &err), 0);
	CHECK_EQUAL(warden_set_interleave(s.warden, 1, &err), 0);
	check_turns(&s, 777, 1);
	stage_go_on(&s);
	stage_end_well(&s);
	/* Without a wish of the vGPU's the program's own are taken. */
	stage_start(&s, 8 * MIB, program_sets_its_own_turns, 0);
	stage_until(&s, 's');
	check_turns(&s, 100000, 2);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_makes_wrong_channels(struct actor *a)
{
	uint8_t sysmem[128] = { 0 };
	uint64_t bytes = 4096;

	actor_context(a);
	memcpy(sysmem + 64, &bytes, sizeof(bytes));
	CHECK_EQUAL(actor_alloc(a, STAGE_DEVICE, STAGE_MEMORY, 0x3e, sysmem, sizeof(sysmem)), 0);
	CHECK_EQUAL(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + 1, STAGE_MEMORY, 0),
		    0); /* host memory will do */
	CHECK(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + 2, 0xdead, 0) > 0);
	CHECK(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + 2, STAGE_DEVICE, 0) > 0);
	CHECK(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + 2, STAGE_MEMORY, 4096) > 0);
	CHECK(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + 2, STAGE_MEMORY, 4096 - 511) > 0);
	CHECK(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + 2, STAGE_MEMORY, UINT64_MAX - 100) > 0);
	CHECK(actor_channel(a, 0xbad, STAGE_CHANNEL + 2, STAGE_MEMORY, 0) > 0);	  /* no such group */
	CHECK(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL, STAGE_MEMORY, 0) > 0); /* taken */
	uint8_t engine[16] = { 0 };
	CHECK_EQUAL(actor_alloc(a, STAGE_DEVICE, 0x5c009999, 0xcbc0, engine, sizeof(engine)),
		    RM_ERR_INVALID_OBJECT_PARENT); /* an engine beside the channels */
	actor_say(a, 'w');
}

static void wrong_channels_are_refused_and_leave_nothing(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_makes_wrong_channels, 0);
	stage_until(&s, 'w');
	CHECK_EQUAL(card_count(&s.card, 0xc86f), 2);
	CHECK_EQUAL(card_pages(&s.card), 2);
	CHECK_EQUAL(card_views(&s.card), 2);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The program frees its channel, or what is above it, and makes it again. */
static void program_makes_and_frees_channels(struct actor *a)
{
	uint8_t group[20] = { 0 };

	actor_context(a);
	for (int i = 0; i < 30; i++) {
		CHECK_EQUAL(actor_free(a, STAGE_DEVICE, i % 2 ? STAGE_GROUP : STAGE_CHANNEL), 0);
		if (i % 2)
			CHECK_EQUAL(actor_alloc(a, STAGE_DEVICE, STAGE_GROUP, 0xa06c, group, sizeof(group)),
				    0);
		actor_add_channel(a, 0);
	}
	/* Its USERD memory goes first: what is still seen of it stays there. */
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_USERD), 0);
	actor_ring(a);
	actor_say(a, 'f');
}

static void channels_come_and_go(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_makes_and_frees_channels, 0);
	stage_until(&s, 'f');
	CHECK_EQUAL(card_count(&s.card, 0xc86f), 1);
	CHECK_EQUAL(card_pages(&s.card), 1);
	CHECK_EQUAL(card_views(&s.card), 1);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Contexts that come and go in one process, as with cudaDeviceReset in a loop. */
static void program_maps_many_doorbells(struct actor *a)
{
	uint32_t handle = STAGE_BELL + 0x100;

	actor_context(a);
	for (int i = 0; i < 200; i++) {
		int gpu = actor_open(a, SOFT_FILE_GPU_0);
		void *page;

		CHECK_EQUAL(actor_alloc(a, STAGE_SUBDEVICE, handle, 0xc661, NULL, 0), 0);
		page = actor_map_doorbell(a, handle, gpu);
		CHECK(page != MAP_FAILED);
		CHECK(!munmap(page, 0x10000));
		CHECK(!close(gpu));
		CHECK_EQUAL(actor_free(a, STAGE_SUBDEVICE, handle), 0);
	}
	actor_ring(a);
	actor_say(a, 'd');
}

static void doorbells_come_and_go(void)
{
	struct stage s;

	stage_start(&s, 64 * MIB, program_maps_many_doorbells, 0);
	stage_until(&s, 'd');
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(memory_is_refused_at_the_exact_byte);
	STAGE_TEST(memory_is_counted_as_the_driver_rounds_it);
	STAGE_TEST(freed_memory_is_there_again_however_it_was_freed);
	STAGE_TEST(duplicates_in_two_clients_are_counted_once);
	STAGE_TEST(program_with_more_than_it_was_given_is_ended);
	STAGE_TEST(limit_can_be_changed_but_not_below_what_is_used);
	STAGE_TEST(managed_memory_is_bounded_by_what_is_mapped);
	STAGE_TEST(card_is_as_large_as_the_limit);
	STAGE_TEST(what_others_have_is_not_free);
	STAGE_TEST(only_the_vgpus_own_processes_are_seen);
	STAGE_TEST(other_gpus_are_not_there);
	STAGE_TEST(ring_reaches_the_gpu_and_hold_holds_it);
	STAGE_TEST(stop_disables_the_channels_and_calls_wait);
	STAGE_TEST(stopped_program_can_be_killed);
	STAGE_TEST(timeslice_and_interleave_are_the_vgpus);
	STAGE_TEST(wrong_channels_are_refused_and_leave_nothing);
	STAGE_TEST(channels_come_and_go);
	STAGE_TEST(doorbells_come_and_go);
	return 0;
}
