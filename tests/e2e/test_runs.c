/* Several runs on one warden. They share one limit; the end of one leaves the others alone. */
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stage.h"

#define MIB CARD_MIB

static void program_takes_memory(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, (uint64_t)a->arg), 0);
	actor_say(a, 'm');
}

static void program_takes_what_is_left(struct actor *a)
{
	actor_new_device(a);
	actor_say(a, 'n');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, (uint64_t)a->arg + 1), RM_ERR_NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, (uint64_t)a->arg), 0);
	actor_say(a, 'm');
}

static void runs_share_one_limit(void)
{
	struct stage_setup setup = stage_two(8 * MIB, program_takes_what_is_left, 2 * MIB);
	struct warden_report report;
	struct stage s;

	stage_start_as(&s, &setup, program_takes_memory, 6 * MIB);
	stage_until(&s, 'm');
	stage_until_second(&s, 'n');
	stage_second_goes_on(&s);
	stage_until_second(&s, 'm');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.processes, 2);
	CHECK_EQUAL(report.mem_used_bytes, 8 * MIB);
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_second_goes_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

static void program_rings_on(struct actor *a)
{
	actor_context(a);
	for (int i = 0; i < 3; i++) {
		actor_ring(a);
		actor_say(a, 'r');
	}
}

static void program_stays(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 's');
	pause();
}

static bool has_process(struct warden *warden, pid_t pid)
{
	struct warden_report report;

	warden_report(warden, &report);
	for (uint32_t i = 0; i < report.processes; i++)
		if (report.process[i].pid == pid)
			return true;
	return false;
}

static void run_that_is_ended_leaves_the_other_alone(void)
{
	struct stage_setup setup = stage_two(8 * MIB, program_stays, 0);
	struct stage s;

	stage_start_as(&s, &setup, program_rings_on, 0);
	stage_until(&s, 'r');
	stage_until_second(&s, 's');
	CHECK_EQUAL(card_used_bytes(&s.card), 4 * MIB);
	CHECK(has_process(s.warden, s.pid) && has_process(s.warden, s.second.pid));
	warden_end_run(s.warden, STAGE_SECOND_RUN, "the test says so");
	warden_end_run(s.warden, STAGE_SECOND_RUN, "once more"); /* changes nothing */
	warden_end_run(s.warden, 77, "nobody");
	while (!s.second.has_ended || has_process(s.warden, s.second.pid) ||
	       card_used_bytes(&s.card) != 2 * MIB)
		stage_serve(&s, 1);
	CHECK(!s.is_over && has_process(s.warden, s.pid));
	CHECK_EQUAL(s.second.status, SIGKILL);
	stage_until_done(&s, 0, 1);
	stage_go_on(&s);
	stage_until(&s, 'r');
	stage_until_done(&s, 0, 2);
	stage_go_on(&s);
	stage_until(&s, 'r');
	stage_go_on(&s);
	stage_end_well(&s);
}

static void run_that_ends_leaves_the_other_alone(void)
{
	struct stage_setup setup = stage_two(8 * MIB, program_takes_memory, MIB);
	struct stage s;

	stage_start_as(&s, &setup, program_rings_on, 0);
	stage_until(&s, 'r');
	stage_until_second(&s, 'm');
	stage_second_goes_on(&s);
	while (has_process(s.warden, s.second.pid))
		stage_serve(&s, 1);
	CHECK(!s.is_over && has_process(s.warden, s.pid));
	for (int i = 0; i < 2; i++) {
		stage_go_on(&s);
		stage_until(&s, 'r');
	}
	stage_go_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

static void number_that_is_taken_is_refused(void)
{
	struct bf_error err = { 0 };
	struct stage s;

	stage_start(&s, 8 * MIB, program_takes_memory, MIB);
	stage_until(&s, 'm');
	/* What was given is closed all the same: stage_end counts. */
	CHECK_EQUAL(warden_add_run(s.warden, STAGE_RUN, eventfd(0, EFD_CLOEXEC), NULL, &err), -EEXIST);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Has a call under way while the vGPU is stopped. */
static void program_calls_when_told(struct actor *a)
{
	actor_new_device(a);
	actor_say(a, 'c');
	actor_tell(a, 't');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 'd');
}

static void stop_with_two_calls(struct stage *s)
{
	struct bf_error err = { 0 };
	uint64_t calls;

	stage_until(s, 'c');
	stage_until_second(s, 'c');
	calls = stage_calls(s);
	CHECK_EQUAL(warden_stop(s->warden, &err), 0);
	stage_go_on(s);
	stage_until(s, 't');
	stage_second_goes_on(s);
	stage_until_second(s, 't');
	while (stage_calls(s) < calls + 2)
		stage_serve(s, 1);
}

static void calls_that_wait_are_answered_on_their_own_listener(void)
{
	struct stage_setup setup = stage_two(8 * MIB, program_calls_when_told, 0);
	struct bf_error err = { 0 };
	struct stage s;

	stage_start_as(&s, &setup, program_calls_when_told, 0);
	stop_with_two_calls(&s);
	CHECK_EQUAL(card_used_bytes(&s.card), 0);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	stage_until(&s, 'd');
	stage_until_second(&s, 'd');
	CHECK_EQUAL(card_used_bytes(&s.card), 4 * MIB);
	stage_go_on(&s);
	stage_second_goes_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

static void call_that_waits_goes_with_its_run(void)
{
	struct stage_setup setup = stage_two(8 * MIB, program_calls_when_told, 0);
	struct bf_error err = { 0 };
	struct stage s;

	stage_start_as(&s, &setup, program_calls_when_told, 0);
	stop_with_two_calls(&s);
	warden_end_run(s.warden, STAGE_SECOND_RUN, "the test says so");
	while (!s.second.has_ended)
		stage_serve(&s, 1);
	CHECK_EQUAL(s.second.status, SIGKILL);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	stage_until(&s, 'd');
	CHECK_EQUAL(card_used_bytes(&s.card), 2 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(runs_share_one_limit);
	STAGE_TEST(run_that_is_ended_leaves_the_other_alone);
	STAGE_TEST(run_that_ends_leaves_the_other_alone);
	STAGE_TEST(number_that_is_taken_is_refused);
	STAGE_TEST(calls_that_wait_are_answered_on_their_own_listener);
	STAGE_TEST(call_that_waits_goes_with_its_run);
	return check_status();
}
