/* Creates, schedules, stops and ends channels. front.c executes their commands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/hw/state.h"

enum { USERD_BYTES = 512 };

static int check(const struct hw_channel_options *o, struct bf_error *err)
{
	if (!o->group || !o->space || !o->userd || o->space->gpu != o->group->gpu)
		return bf_fail(err, EINVAL, "channel: needs a group, an address space and USERD of one GPU");
	if (!o->ring_entries || o->ring_entries > 1u << 20 || (o->ring_entries & (o->ring_entries - 1)))
		return bf_fail(err, EINVAL, "channel: a ring of %u entries: a power of two, at most 2^20",
			       o->ring_entries);
	if (o->ring_address % 8 || o->ring_address >= 1ull << SOFT_ADDRESS_BITS)
		return bf_fail(err, EINVAL, "channel: invalid ring address %#llx",
			       (unsigned long long)o->ring_address);
	if (o->userd_offset % 4 || o->userd_offset > o->userd->bytes ||
	    o->userd->bytes - o->userd_offset < USERD_BYTES)
		return bf_fail(err, EINVAL, "channel: USERD is not in its memory");
	if (o->notifier && o->notifier->bytes < sizeof(struct soft_notifier))
		return bf_fail(err, EINVAL, "channel: the error notifier does not fit its memory");
	return 0;
}

/* Takes a free token, or returns -ENOSPC. */
static int take_token(struct hw_gpu *gpu, struct hw_channel *ch)
{
	for (uint32_t i = 0; i < SOFT_CHANNELS_MAX; i++) {
		if (gpu->channels[i])
			continue;
		gpu->channels[i] = ch;
		gpu->channel_count++;
		ch->token = i;
		return 0;
	}
	return -ENOSPC;
}

static int join(struct hw_channel *ch)
{
	struct hw_group *group = ch->group;
	int rc;

	hw_lock(group->gpu->cores);
	rc = take_token(group->gpu, ch);
	if (!rc) {
		group->count++;
		ch->next = group->channels;
		group->channels = ch;
	}
	hw_unlock(group->gpu->cores);
	return rc;
}

int hw_channel_new(const struct hw_channel_options *options, struct hw_channel **channel,
		   struct bf_error *err)
{
	struct hw_channel *ch;
	int rc = check(options, err);

	*channel = NULL;
	if (rc)
		return rc;
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return bf_fail(err, ENOMEM, "channel: not enough memory");
	ch->group = options->group;
	ch->space = options->space;
	ch->userd = options->userd;
	ch->notifier = options->notifier;
	ch->userd_offset = options->userd_offset;
	ch->ring_address = options->ring_address;
	ch->ring_entries = options->ring_entries;
	memset(ch->mask, 0xff, sizeof(ch->mask));
	rc = join(ch);
	if (rc) {
		free(ch);
		return bf_fail(err, -rc, "channel: the GPU already has %d channels, the maximum",
			       SOFT_CHANNELS_MAX);
	}
	hw_space_get(ch->space);
	hw_memory_get(ch->userd);
	if (ch->notifier)
		hw_memory_get(ch->notifier);
	*channel = ch;
	return 0;
}

static void leave(struct hw_channel *ch)
{
	struct hw_gpu *gpu = ch->group->gpu;
	struct hw_channel **at = &ch->group->channels;

	while (*at != ch)
		at = &(*at)->next;
	*at = ch->next;
	gpu->channels[ch->token] = NULL;
	gpu->channel_count--;
	hw_done_dry(ch);
	gpu->has_news = true;
	hw_group_release(ch->group);
	hw_kick(gpu->cores);
}

void hw_channel_put(struct hw_channel *ch)
{
	struct hw_cores *cores;
	struct hw_gpu *gpu;

	if (!ch)
		return;
	gpu = ch->group->gpu;
	cores = gpu->cores;
	hw_lock(cores);
	ch->is_scheduled = false;
	hw_wait_quiet(gpu, HW_WHOSE_CHANNEL, ch);
	if (ch->launch)
		hw_launch_drop(ch->launch);
	if (ch->work == HW_WORK_COPY && !ch->copy.is_done)
		gpu->copy_count--;
	hw_place(gpu, ch->group->unit); /* launches of others waited for its space */
	leave(ch);
	hw_unlock(cores);
	hw_space_put(ch->space);
	hw_memory_put(ch->userd);
	hw_memory_put(ch->notifier);
	free(ch);
}

uint32_t hw_channel_token(const struct hw_channel *ch)
{
	return ch->token;
}

void hw_channel_set_scheduled(struct hw_channel *ch, bool is_scheduled)
{
	struct hw_gpu *gpu = ch->group->gpu;

	hw_lock(gpu->cores);
	ch->is_scheduled = is_scheduled;
	if (!is_scheduled)
		hw_wait_quiet(gpu, HW_WHOSE_CHANNEL, ch);
	hw_channel_park(ch);
	gpu->has_news = true;
	hw_kick(gpu->cores);
	hw_unlock(gpu->cores);
}

/* All channels are barred first, then each is waited for, so that none continues while another is being
 * stopped. */
void hw_channels_disable(struct hw_channel *const *channels, uint32_t count, bool is_disabled)
{
	struct hw_cores *cores;

	if (!count)
		return;
	cores = channels[0]->group->gpu->cores;
	hw_lock(cores);
	for (uint32_t i = 0; i < count; i++)
		channels[i]->is_disabled = is_disabled;
	for (uint32_t i = 0; i < count; i++) {
		if (is_disabled)
			hw_wait_quiet(channels[i]->group->gpu, HW_WHOSE_CHANNEL, channels[i]);
		hw_channel_park(channels[i]);
		channels[i]->group->gpu->has_news = true;
	}
	hw_kick(cores);
	hw_unlock(cores);
}

void hw_channel_set_sms(struct hw_channel *ch, const uint64_t mask[SOFT_SMS_MAX / 64])
{
	hw_lock(ch->group->gpu->cores);
	memcpy(ch->mask, mask, sizeof(ch->mask));
	hw_unlock(ch->group->gpu->cores);
}

bool hw_channel_has_error(struct hw_channel *ch)
{
	bool has_error;

	hw_lock(ch->group->gpu->cores);
	has_error = ch->group->has_error;
	hw_unlock(ch->group->gpu->cores);
	return has_error;
}
