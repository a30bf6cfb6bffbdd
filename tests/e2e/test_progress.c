/* Whether the GPU has done what was passed on for a vGPU, as the warden finds it out. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "stage.h"
#include "warden/turns.h"

#define MIB CARD_MIB
#define PATIENCE_NS 30000000000ull

/* A driver whose answers are counted, and that may refuse. */
static const struct device_ops *real_ops;
static unsigned asked;
static uint32_t refusal;

static int counted_call(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	if (nr == RM_ESC_IDLE_CHANNELS) {
		asked++;
		if (refusal) {
			((struct rm_arg_idle *)arg)->status = refusal;
			return 0;
		}
	}
	return real_ops->call(device, fd, nr, arg, size);
}

static void count_calls(struct card *card)
{
	static struct device_ops ops;

	real_ops = card->device->ops;
	ops = *real_ops;
	ops.call = counted_call;
	card->device->ops = &ops;
	asked = 0;
}

static void start(struct stage *s, stage_program program)
{
	const struct warden_options options = { .mem_bytes = 64 * MIB, .interleave = -1 };

	refusal = 0;
	stage_start_changed(s, &options, count_calls, program, 0);
}

/* Serve it until the warden finds this; on the way it may find `meanwhile`. */
static void until_progress(struct stage *s, enum warden_progress wanted, enum warden_progress meanwhile)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;
	enum warden_progress found;

	while ((found = warden_progress(s->warden)) != wanted) {
		CHECK_EQUAL(found, meanwhile);
		CHECK(bf_now_ns() < give_up_ns);
		stage_serve(s, 1);
	}
}

/* Serve it until the GPU is told of this GP_PUT, and the gate has counted it: the poller has gone around since. */
static void until_passed(struct stage *s, uint32_t channel, uint32_t put)
{
	stage_until_put(s, channel, put);
	warden_close(s->warden);
	warden_open(s->warden);
}

static void until_asked(struct stage *s, unsigned times)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (asked < times) {
		CHECK_EQUAL(warden_progress(s->warden), WARDEN_IS_BUSY);
		CHECK(bf_now_ns() < give_up_ns);
	}
}

static void let_go_on(struct actor *a, unsigned channel, uint32_t value)
{
	__atomic_store_n((uint32_t *)(void *)(a->block + STAGE_WAIT_AT(channel)), value, __ATOMIC_SEQ_CST);
}

static void program_waits_and_goes_on(struct actor *a)
{
	actor_context(a);
	actor_add_channel(a, 1);
	actor_say(a, 'c');
	actor_acquire(a, 0, 7);
	actor_say(a, 'a');
	let_go_on(a, 0, 7);
	actor_say(a, 'g');
	actor_acquire(a, 1, 8);
	actor_say(a, 'b');
	let_go_on(a, 1, 8);
	actor_say(a, 'e');
}

static void vgpu_is_busy_until_all_that_was_passed_on_is_done(void)
{
	unsigned before;
	struct stage s;

	start(&s, program_waits_and_goes_on);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_DONE); /* there is nobody yet */
	stage_until(&s, 'c');
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_DONE);
	CHECK_EQUAL(asked, 0); /* nothing was passed on */
	stage_go_on(&s);
	stage_until(&s, 'a');
	until_passed(&s, STAGE_CHANNEL, 1);
	until_asked(&s, 2); /* its ring was read, and it waits */
	stage_go_on(&s);
	stage_until(&s, 'g');
	until_progress(&s, WARDEN_IS_DONE, WARDEN_IS_BUSY);
	before = asked;
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_DONE);
	CHECK_EQUAL(asked, before); /* nothing new */
	stage_go_on(&s);
	stage_until(&s, 'b');
	until_passed(&s, STAGE_CHANNEL + 1, 1);
	until_asked(&s, before + 2);
	stage_go_on(&s);
	stage_until(&s, 'e');
	until_progress(&s, WARDEN_IS_DONE, WARDEN_IS_BUSY);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* GP_PUT is where it was when the channel was last found idle. */
static void program_goes_once_around_its_ring(struct actor *a)
{
	actor_context(a);
	actor_ring(a);
	actor_say(a, '1');
	for (unsigned i = 1; i < STAGE_RING_ENTRIES; i++) {
		actor_ring(a);
		if (i % 64 == 0) /* not faster than the GPU */
			actor_say(a, 'r');
	}
	actor_acquire(a, 0, 7);
	actor_say(a, 'a');
	let_go_on(a, 0, 7);
	actor_say(a, 'e');
}

static void ring_that_comes_around_is_no_idleness(void)
{
	struct stage s;

	start(&s, program_goes_once_around_its_ring);
	stage_until(&s, '1');
	stage_until_done(&s, 0, 1);
	until_progress(&s, WARDEN_IS_DONE, WARDEN_IS_BUSY);
	stage_go_on(&s);
	for (unsigned i = 64; i < STAGE_RING_ENTRIES; i += 64) {
		stage_until(&s, 'r');
		stage_until_done(&s, 0, i + 1);
		stage_go_on(&s);
	}
	stage_until(&s, 'a');
	until_passed(&s, STAGE_CHANNEL, 1);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_BUSY);
	stage_go_on(&s);
	stage_until(&s, 'e');
	until_progress(&s, WARDEN_IS_DONE, WARDEN_IS_BUSY);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_is_held(struct actor *a)
{
	actor_context(a);
	actor_say(a, 'c');
	actor_acquire(a, 0, 7);
	actor_say(a, 'a');
	let_go_on(a, 0, 7);
	actor_say(a, 'e');
}

static void what_waits_at_a_closed_gate_was_not_passed_on(void)
{
	struct stage s;

	start(&s, program_is_held);
	stage_until(&s, 'c');
	warden_close(s.warden);
	stage_go_on(&s);
	stage_until(&s, 'a');
	stage_serve(&s, 20);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_DONE);
	CHECK_EQUAL(asked, 0);
	warden_open(s.warden);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_BUSY); /* open returns when all was looked at */
	warden_close(s.warden);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_BUSY); /* what was passed on runs on */
	stage_go_on(&s);
	stage_until(&s, 'e');
	until_progress(&s, WARDEN_IS_DONE, WARDEN_IS_BUSY);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_never_goes_on(struct actor *a)
{
	actor_context(a);
	actor_acquire(a, 0, 7);
	actor_say(a, 'a');
	pause();
}

static void killed_program_has_nothing_to_do(void)
{
	struct stage s;

	start(&s, program_never_goes_on);
	stage_until(&s, 'a');
	until_passed(&s, STAGE_CHANNEL, 1);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_BUSY);
	CHECK(!kill(s.pid, SIGKILL));
	while (!s.has_ended)
		stage_serve(&s, 1);
	/* The channel goes with the warden's file, as soon as the warden is told that the program's end is closed. */
	until_progress(&s, WARDEN_IS_DONE, WARDEN_IS_BUSY);
	CHECK_EQUAL(stage_end(&s) & 0x7f, SIGKILL);
}

/* A child holds the control file, so the channels live on, and no process can ring them. */
static void program_leaves_its_channels(struct actor *a)
{
	char heard;
	pid_t child;

	actor_context(a);
	actor_acquire(a, 0, 7);
	actor_say(a, 'a');
	child = fork();
	CHECK(child >= 0);
	if (child)
		return;
	CHECK(read(a->hear, &heard, 1) == 1);
	let_go_on(a, 0, 7);
	CHECK(read(a->hear, &heard, 1) == 1);
}

static void channel_that_outlives_its_process_is_asked_about(void)
{
	struct stage s;

	start(&s, program_leaves_its_channels);
	stage_until(&s, 'a');
	until_passed(&s, STAGE_CHANNEL, 1);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	stage_serve(&s, 50);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_BUSY);
	stage_go_on(&s);
	until_progress(&s, WARDEN_IS_DONE, WARDEN_IS_BUSY);
	asked = 0;
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_DONE);
	CHECK_EQUAL(asked, 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void driver_that_refuses_is_not_asked_again(void)
{
	struct stage s;

	start(&s, program_waits_and_goes_on);
	refusal = RM_ERR_NOT_SUPPORTED;
	stage_until(&s, 'c');
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_DONE); /* that much is known without asking */
	stage_go_on(&s);
	stage_until(&s, 'a');
	until_passed(&s, STAGE_CHANNEL, 1);
	until_progress(&s, WARDEN_CANNOT_TELL, WARDEN_IS_BUSY);
	CHECK_EQUAL(asked, 1);
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_CANNOT_TELL);
	CHECK_EQUAL(asked, 1);
	for (const char *letter = "agbe"; *letter; letter++) {
		if (*letter != 'a')
			stage_until(&s, *letter);
		stage_go_on(&s);
	}
	stage_end_well(&s);
}

/* An answer about one channel is no answer about the driver. */
static void odd_answer_is_asked_for_again(void)
{
	struct stage s;

	start(&s, program_waits_and_goes_on);
	refusal = RM_ERR_INVALID_OBJECT_HANDLE;
	stage_until(&s, 'c');
	stage_go_on(&s);
	stage_until(&s, 'a');
	until_passed(&s, STAGE_CHANNEL, 1);
	until_progress(&s, WARDEN_CANNOT_TELL, WARDEN_IS_BUSY);
	refusal = 0;
	CHECK_EQUAL(warden_progress(s.warden), WARDEN_IS_BUSY);
	for (const char *letter = "agbe"; *letter; letter++) {
		if (*letter != 'a')
			stage_until(&s, *letter);
		stage_go_on(&s);
	}
	stage_end_well(&s);
}

static void program_does_nothing(struct actor *a)
{
	actor_say(a, 'n');
}

static void software_gpu_keeps_no_record_of_turns(void)
{
	struct bf_error err = { 0 };
	struct stage s;

	start(&s, program_does_nothing);
	stage_until(&s, 'n');
	CHECK(!turns_open(s.card.device, &err));
	CHECK_EQUAL(err.code, ENOTSUP);
	CHECK(strlen(err.text) > 0);
	turns_close(NULL);
	stage_go_on(&s);
	stage_end_well(&s); /* nothing of it is left */
}

int main(void)
{
	STAGE_TEST(vgpu_is_busy_until_all_that_was_passed_on_is_done);
	STAGE_TEST(ring_that_comes_around_is_no_idleness);
	STAGE_TEST(what_waits_at_a_closed_gate_was_not_passed_on);
	STAGE_TEST(killed_program_has_nothing_to_do);
	STAGE_TEST(channel_that_outlives_its_process_is_asked_about);
	STAGE_TEST(driver_that_refuses_is_not_asked_again);
	STAGE_TEST(odd_answer_is_asked_for_again);
	STAGE_TEST(software_gpu_keeps_no_record_of_turns);
	return check_status();
}
