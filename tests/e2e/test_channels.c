/* Channels and doorbells of a program, against a program that makes the calls of libcuda: the gate, stops, turns. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "stage.h"

#define MIB CARD_MIB

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

static void until_another_call(struct stage *s, uint64_t calls)
{
	while (stage_calls(s) == calls)
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
	calls = stage_calls(&s);
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
	calls = stage_calls(&s);
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
	STAGE_TEST(ring_reaches_the_gpu_and_hold_holds_it);
	STAGE_TEST(stop_disables_the_channels_and_calls_wait);
	STAGE_TEST(stopped_program_can_be_killed);
	STAGE_TEST(timeslice_and_interleave_are_the_vgpus);
	STAGE_TEST(wrong_channels_are_refused_and_leave_nothing);
	STAGE_TEST(channels_come_and_go);
	STAGE_TEST(doorbells_come_and_go);
	return check_status();
}
