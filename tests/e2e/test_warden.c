/* The warden against a program that behaves like libcuda at the level of calls: what it is given, refused and
 * told, and that its rings go where the gate lets them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "gate/gate.h"
#include "stage.h"

#define NO_MEMORY RM_ERR_NO_MEMORY
#define MIB FAKE_MIB

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
	CHECK_EQUAL(s.fake->used_bytes, 8 * MIB);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	CHECK_EQUAL(s.fake->most_bytes, 8 * MIB);
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

	stage_start(&s, 4 * MIB - 1, program_meets_rounding, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.fake->used_bytes, 2 * MIB);
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
	CHECK_EQUAL(actor_dup(&second, STAGE_MEMORY + 7, 0xc1d0ffff, 1), RM_ERR_INVALID_OBJECT_HANDLE);
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

/* What a program was given behind the warden's back is found by the audit, and the program ended. */
static void program_waits(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 'w');
	actor_say(a, 'x');
}

static void program_with_more_than_it_was_given_is_ended(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_waits, 0);
	stage_until(&s, 'w');
	warden_audit(s.warden);
	warden_audit(s.warden);
	stage_go_on(&s);
	stage_until(&s, 'x'); /* still there: it did nothing wrong */
	fake_nth(s.fake, 0x40, 0)->bytes += 4096;
	s.fake->used_bytes += 4096;
	warden_audit(s.warden);
	warden_audit(s.warden);
	CHECK_EQUAL(stage_end(&s) & 0x7f, 9);
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
	CHECK_EQUAL(warden_set_mem(s.warden, FAKE_CARD_BYTES + 1, &err), -ERANGE);
	CHECK_EQUAL(warden_set_mem(s.warden, 4 * MIB, &err), 0);
	stage_go_on(&s);
	stage_until(&s, '2');
	CHECK_EQUAL(warden_set_mem(s.warden, 6 * MIB, &err), 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_uses_managed_memory(struct actor *a)
{
	int uvm = fake_open(a->fake, DEVICE_FILE_MANAGED);
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
	struct warden_report report;
	struct stage s;

	stage_start(&s, 4 * MIB, program_uses_managed_memory, 0);
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
	/* What the CPU can map may be less than the limit, and never becomes more. */
	CHECK_EQUAL(fb[8],
		    (a->arg < (long)FAKE_MAPPABLE_BYTES ? (uint64_t)a->arg : FAKE_MAPPABLE_BYTES) >> 10);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO, &old, sizeof(old)), 0);
	CHECK_EQUAL(list[1], a->arg >> 10);
	CHECK_EQUAL(list[3], (a->arg - 2 * (long)MIB) >> 10);
	CHECK_EQUAL(old.list, (uintptr_t)list); /* no address of ours has come back */
	fb[0] = 129;
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, sizeof(fb)),
		    RM_ERR_INVALID_ARGUMENT);
	fb[0] = 0xffffffff;
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, 12),
		    RM_ERR_INVALID_ARGUMENT);
}

static void card_is_as_large_as_the_limit(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_asks_about_memory, 8 * MIB);
	stage_end_well(&s);
	stage_start(&s, 32 * MIB, program_asks_about_memory, 32 * MIB);
	stage_end_well(&s);
}

static void program_asks_who_is_there(struct actor *a)
{
	const struct rm_layout *l = rm_layout_find("580.159.04");
	uint8_t *pids = calloc(1, l->pids_size), *info = calloc(1, l->pid_info_size);
	uint32_t count, self = (uint32_t)getpid(), stranger = FAKE_STRANGER_PID, two = 2;
	uint64_t bytes;

	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
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
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_GET_PIDS, pids, 12), RM_ERR_INVALID_ARGUMENT);
	free(pids);
	free(info);
}

static void only_the_vgpus_own_processes_are_seen(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_asks_who_is_there, 0);
	stage_end_well(&s);
}

static void program_knocks_at_the_other_gpu(struct actor *a)
{
	int other = fake_open(a->fake, DEVICE_FILE_OTHER_GPU);
	uint8_t device[56] = { 0 };
	uint32_t args[2] = { 0 };

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

static const _Atomic uint32_t *put_word(struct stage *s, unsigned channel)
{
	struct fake_object *object = fake_nth(s->fake, 0xc86f, channel);

	CHECK(object && object->page);
	CHECK(!fake_find(s->fake, object->client, object->userd_memory)); /* a page the program cannot name */
	return fake_gp_put_word(object);
}

static void ring_reaches_the_gpu_and_hold_holds_it(void)
{
	const _Atomic uint32_t *put;
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_rings, 0);
	stage_until(&s, 'c');
	put = put_word(&s, 0);
	CHECK_EQUAL(s.fake->channels, 1);
	CHECK_EQUAL(s.fake->views, 1);
	CHECK_EQUAL(fake_nth(s.fake, 0xc661, 0) != NULL, 0); /* the driver has never heard of a doorbell */
	CHECK_EQUAL(fake_nth(s.fake, 0xa06c, 0)->is_scheduled, 1);
	stage_go_on(&s);
	stage_until(&s, 'r');
	stage_until_word(&s, put, 1);
	stage_until_word(&s, &s.fake->bell_seen[GATE_BELL_WORD], fake_nth(s.fake, 0xc86f, 0)->token);
	atomic_store(&s.fake->bell_seen[GATE_BELL_WORD], 0);
	for (uint32_t round = 0; round < 20; round++) {
		warden_hold(s.warden);
		stage_go_on(&s);
		stage_until(&s, 'r');
		warden_hold(s.warden); /* the poller has been around since */
		CHECK_EQUAL(atomic_load(put), 1 + round);
		CHECK_EQUAL(atomic_load(&s.fake->bell_seen[GATE_BELL_WORD]), 0);
		warden_report(s.warden, &report);
		CHECK_EQUAL(report.gate, WARDEN_HELD);
		warden_open(s.warden);
		stage_until_word(&s, put, 2 + round);
		stage_until_word(&s, &s.fake->bell_seen[GATE_BELL_WORD], fake_nth(s.fake, 0xc86f, 0)->token);
		atomic_store(&s.fake->bell_seen[GATE_BELL_WORD], 0);
	}
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.gate, WARDEN_OPEN);
	CHECK_EQUAL(report.channels, 1);
	CHECK(write(s.say, "x", 1) == 1);
	stage_end_well(&s);
}

/* Several channels with their USERD in one block, all of them used, all of them stopped. */
static void program_has_many_channels(struct actor *a)
{
	uint32_t token[6];
	char heard;

	actor_context(a);
	for (uint32_t i = 1; i < 6; i++) {
		CHECK_EQUAL(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + i, STAGE_USERD, 0x2000 + i * 0x200),
			    0);
		CHECK_EQUAL(actor_control(a, STAGE_CHANNEL + i, RM_CTRL_CHANNEL_GET_TOKEN, &token[i], 4), 0);
	}
	actor_ring(a);
	for (uint32_t i = 1; i < 6; i++) {
		while (a->bell[GATE_BELL_WORD] != GATE_NO_TOKEN)
			; /* the last ring has been taken */
		a->userd[i * 0x200 / 4 + GATE_GP_PUT_WORD] = 1;
		atomic_thread_fence(memory_order_seq_cst);
		a->bell[GATE_BELL_WORD] = token[i];
	}
	actor_say(a, 'c');
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

static void stop_disables_the_channels_and_calls_wait(void)
{
	struct bf_error err = { 0 };
	struct warden_report report;
	struct stage s;
	uint64_t calls;

	stage_start(&s, 8 * MIB, program_has_many_channels, 0);
	stage_until(&s, 'c');
	for (unsigned i = 0; i < 6; i++)
		stage_until_word(&s, put_word(&s, i), 1);
	CHECK_EQUAL(s.fake->views, 1);
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	CHECK_EQUAL(warden_stop(s.warden, &err), 0); /* again changes nothing */
	CHECK_EQUAL(s.fake->disable_calls, 1);
	CHECK_EQUAL(s.fake->last_disabled, 6);
	for (unsigned i = 0; i < 6; i++)
		CHECK(fake_nth(s.fake, 0xc86f, i)->is_disabled);
	calls = calls_of(&s);
	stage_go_on(&s);
	stage_until(&s, 't');
	until_another_call(&s, calls);
	CHECK(says_nothing(&s));
	CHECK_EQUAL(s.fake->used_bytes, 2 * MIB);
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.gate, WARDEN_STOPPED);
	warden_open(s.warden); /* no way to open what is stopped */
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.gate, WARDEN_STOPPED);
	atomic_store(&s.fake->bell_seen[GATE_BELL_WORD], 0);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	for (unsigned i = 0; i < 6; i++)
		CHECK(!fake_nth(s.fake, 0xc86f, i)->is_disabled);
	CHECK(atomic_load(&s.fake->bell_seen[GATE_BELL_WORD]) != 0); /* they are rung for again */
	stage_until(&s, 'd');
	CHECK_EQUAL(s.fake->used_bytes, 4 * MIB);
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

static void timeslice_and_interleave_are_the_vgpus(void)
{
	struct warden_options options = { .mem_bytes = 8 * MIB, .timeslice_us = 200, .interleave = 0 };
	struct bf_error err = { 0 };
	struct fake_object *group;
	struct stage s;

	stage_start_with(&s, &options, program_sets_its_own_turns, 0);
	stage_until(&s, 's');
	group = fake_nth(s.fake, 0xa06c, 0);
	CHECK_EQUAL(group->timeslice_us, 200);
	CHECK_EQUAL(group->interleave, 0);
	CHECK_EQUAL(warden_set_timeslice(s.warden, 777, &err), 0);
	CHECK_EQUAL(warden_set_interleave(s.warden, 1, &err), 0);
	CHECK_EQUAL(group->timeslice_us, 777);
	CHECK_EQUAL(group->interleave, 1);
	stage_go_on(&s);
	stage_end_well(&s);
	/* Without a wish of the vGPU's the program's own are taken. */
	stage_start(&s, 8 * MIB, program_sets_its_own_turns, 0);
	stage_until(&s, 's');
	group = fake_nth(s.fake, 0xa06c, 0);
	CHECK_EQUAL(group->timeslice_us, 100000);
	CHECK_EQUAL(group->interleave, 2);
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
	CHECK_EQUAL(s.fake->channels, 2);
	CHECK_EQUAL(s.fake->page_count, 2);
	CHECK_EQUAL(s.fake->views, 2);
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
		CHECK_EQUAL(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL, STAGE_USERD, 0x2000), 0);
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
	CHECK_EQUAL(s.fake->channels, 1);
	CHECK_EQUAL(s.fake->page_count, 1);
	CHECK_EQUAL(s.fake->views, 1);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Contexts that come and go in one process, as with cudaDeviceReset in a loop. */
static void program_maps_many_doorbells(struct actor *a)
{
	uint32_t handle = STAGE_BELL + 0x100;

	actor_context(a);
	for (int i = 0; i < 200; i++) {
		int gpu = fake_open(a->fake, DEVICE_FILE_GPU);
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
