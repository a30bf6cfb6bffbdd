/* How long a vGPU has used the GPU, as the warden reports it. */
#include <errno.h>

#include "stage.h"

#define MIB CARD_MIB

static void program_uses_the_gpu(struct actor *a)
{
	uint8_t group[20] = { 0 };

	actor_context(a);
	for (int i = 0; i < 200; i++)
		actor_ring(a);
	actor_say(a, 'u');
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_GROUP), 0);
	actor_say(a, 'f');
	CHECK_EQUAL(actor_alloc(a, STAGE_DEVICE, STAGE_GROUP, 0xa06c, group, sizeof(group)), 0);
	actor_add_channel(a, 0);
	actor_ring(a);
	actor_say(a, 'v');
}

static uint64_t gpu_time(struct stage *s)
{
	uint64_t gpu_ns = UINT64_MAX;

	CHECK_EQUAL(warden_gpu_time(s->warden, &gpu_ns), 0);
	return gpu_ns;
}

static void gpu_time_is_kept_when_groups_go(void)
{
	uint64_t used_ns, freed_ns, again_ns;
	struct stage s;

	stage_start(&s, 8 * MIB, program_uses_the_gpu, 0);
	CHECK_EQUAL(gpu_time(&s), 0);
	stage_until(&s, 'u');
	stage_until_done(&s, 0, 200);
	used_ns = gpu_time(&s);
	CHECK(used_ns > 0);
	stage_go_on(&s);
	stage_until(&s, 'f');
	freed_ns = gpu_time(&s);
	CHECK(freed_ns >= used_ns);
	CHECK_EQUAL(gpu_time(&s), freed_ns);
	stage_go_on(&s);
	stage_until(&s, 'v');
	stage_until_done(&s, 0, 201);
	again_ns = gpu_time(&s);
	CHECK(again_ns >= freed_ns);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	CHECK(gpu_time(&s) >= again_ns);
	stage_end_well(&s);
}

static void program_takes_memory(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, (uint64_t)a->arg), 0);
	actor_say(a, 'm');
}

static void forget_time(struct card *card)
{
	static struct device_ops changed_ops;

	changed_ops = *card->device->ops;
	changed_ops.time_of = NULL;
	card->device->ops = &changed_ops;
}

static void device_that_cannot_tell_time_says_so(void)
{
	struct stage_setup setup = { .options = { .interleave = -1 }, .change = forget_time };
	uint64_t gpu_ns;
	struct stage s;

	stage_start_as(&s, &setup, program_takes_memory, MIB);
	stage_until(&s, 'm');
	CHECK_EQUAL(warden_gpu_time(s.warden, &gpu_ns), -ENOTSUP);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(gpu_time_is_kept_when_groups_go);
	STAGE_TEST(device_that_cannot_tell_time_says_so);
	return check_status();
}
