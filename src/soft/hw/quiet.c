/* Waits until nothing of a channel, group, unit or space runs. */
#include "soft/hw/state.h"

static bool is_of(const struct hw_channel *ch, enum hw_whose whose, const void *object)
{
	switch (whose) {
	case HW_WHOSE_CHANNEL:
		return ch == object;
	case HW_WHOSE_GROUP:
		return ch->group == object;
	case HW_WHOSE_UNIT:
		return ch->group->unit == object;
	default:
		return ch->space == object;
	}
}

/* Asks running blocks to stop; returns whether there were any. The flag is cleared when a block of the launch
 * is started again, which cannot happen while a stop is requested. */
static bool ask(struct hw_gpu *gpu, enum hw_whose whose, const void *object)
{
	bool is_running = gpu->copy_running && is_of(gpu->copy_running, whose, object);

	for (uint32_t i = 0; i < gpu->options.sms; i++) {
		struct hw_resident *r = gpu->sms[i].running;

		if (!r || !is_of(r->launch->channel, whose, object))
			continue;
		__atomic_store_n(&r->launch->stop, 1, __ATOMIC_RELAXED);
		is_running = true;
	}
	return is_running;
}

void hw_wait_quiet(struct hw_gpu *gpu, enum hw_whose whose, const void *object)
{
	struct hw_cores *cores = gpu->cores;

	while (ask(gpu, whose, object)) {
		cores->waiter_count++;
		pthread_cond_wait(&cores->quiet, &cores->lock);
		cores->waiter_count--;
	}
}
