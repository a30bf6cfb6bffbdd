/* Shared domains of the software GPU under the warden: two vGPUs whose programs are on the GPU together. */
#include "stage.h"

#define MIB CARD_MIB

/* A GPU context in the domain, if `arg` is not 0. Then it submits twice. */
static void program_in_the_domain(struct actor *a)
{
	struct soft_join_params params = { .name = "/run/pool" };

	actor_new_client(a);
	actor_say(a, 'b');
	if (a->arg)
		CHECK_EQUAL(actor_control(a, a->client, SOFT_CTRL_ROOT_JOIN_DOMAIN, &params, sizeof(params)),
			    0);
	actor_use_client(a);
	actor_use_device(a);
	actor_say(a, 'c');
	actor_release(a, 0, 1);
	actor_say(a, 's');
	actor_release(a, 0, 2);
	actor_say(a, 't');
}

static struct card_progress channel_of(const struct stage *s, struct warden *warden)
{
	struct card_progress channel;

	CHECK_EQUAL(card_progress(&s->card, warden_owner(warden), &channel, 1), 1);
	return channel;
}

/* Serve both until the GPU has done that many submissions of this one. */
static void until_done(struct stage *s, struct warden *warden, uint32_t count)
{
	while (channel_of(s, warden).get != count)
		stage_serve(s, 1);
}

static void both_go_on_until(struct stage *s, char letter)
{
	stage_go_on(s);
	stage_second_goes_on(s);
	stage_until(s, letter);
	stage_until_second(s, letter);
}

static void start_two(struct stage *s, long first, long second)
{
	struct stage_setup setup = { .options = { .mem_bytes = 8 * MIB, .interleave = -1 },
				     .second = program_in_the_domain,
				     .second_arg = second,
				     .has_two_wardens = true };
	struct bf_error err = { 0 };

	stage_start_as(s, &setup, program_in_the_domain, first);
	stage_until(s, 'b');
	stage_until_second(s, 'b');
	CHECK_EQUAL(warden_set_domain_folder(s->warden, "/run/pool", &err), 0);
	CHECK_EQUAL(warden_set_domain_folder(s->second.warden, "/run/pool", &err), 0);
	both_go_on_until(s, 'c');
}

static void end_two(struct stage *s)
{
	stage_go_on(s);
	stage_second_goes_on(s);
	stage_end_well(s);
	CHECK_EQUAL(s->second.status, 0);
}

static void two_vgpus_join_one_domain_and_are_stopped_one_by_one(void)
{
	struct bf_error err = { 0 };
	struct stage s;

	start_two(&s, 1, 1);
	CHECK(channel_of(&s, s.warden).domain);
	CHECK_EQUAL(channel_of(&s, s.warden).domain, channel_of(&s, s.second.warden).domain);
	both_go_on_until(&s, 's');
	until_done(&s, s.warden, 1);
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	CHECK(channel_of(&s, s.warden).is_disabled);
	CHECK(!channel_of(&s, s.second.warden).is_disabled);
	both_go_on_until(&s, 't');
	until_done(&s, s.second.warden, 2);
	CHECK_EQUAL(channel_of(&s, s.warden).get, 1);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	warden_open(s.warden);
	until_done(&s, s.warden, 2);
	end_two(&s);
}

static void a_vgpu_that_does_not_join_is_alone(void)
{
	struct stage s;

	start_two(&s, 1, 0);
	CHECK(channel_of(&s, s.warden).domain);
	CHECK_EQUAL(channel_of(&s, s.second.warden).domain, 0);
	both_go_on_until(&s, 's');
	both_go_on_until(&s, 't');
	until_done(&s, s.warden, 2);
	until_done(&s, s.second.warden, 2);
	end_two(&s);
}

int main(void)
{
	STAGE_TEST(two_vgpus_join_one_domain_and_are_stopped_one_by_one);
	STAGE_TEST(a_vgpu_that_does_not_join_is_alone);
	return check_status();
}
