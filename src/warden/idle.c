/* Whether the GPU has completed the work that was passed on. GP_GET in the GPU server's own page costs
 * nothing to read, but work that the GPU has fetched may still run, which only the driver knows. A query
 * takes 110 us for an idle channel and, with a limit of 1 ms, 1.3 ms for a channel with a running kernel,
 * which is not disturbed (measured, docs/driver.md). Meanwhile the driver holds the GPU's lock and other
 * calls wait. So a channel that was found idle is not queried again before more work is passed on for it, and
 * the search ends at the first busy channel. */
#include <errno.h>

#include "base/log.h"
#include "warden/state.h"

/* How long the driver waits for a channel before it reports that it is busy. With 20 us it reports idle
 * channels as busy too, with 50 us it does not; 0 means no limit (measured, docs/driver.md). */
enum { IDLE_LIMIT_US = 100 };

struct progress_visit {
	struct warden *warden;
	struct client *client;
	enum warden_progress found;
};

/* The number of submissions that were passed on. Unlike GP_PUT it never repeats. A channel that was removed
 * from the gate gets no more. */
static uint64_t passed_on(const struct channel *channel)
{
	return channel->gate ? gate_channel_forwards(channel->gate) : UINT64_MAX;
}

static uint32_t device_of(const struct progress_visit *visit, const struct ledger_object *object)
{
	while (object && object->kind != RM_KIND_DEVICE)
		object = object->parent;
	return object ? object->handle : visit->client->device;
}

/* Only the GPU and the gate write these two words: the program has no handle for the page. */
static void compare_ring(void *context, struct ledger_object *object)
{
	struct progress_visit *visit = context;
	struct channel *channel = object->attached;
	volatile const uint32_t *userd = channel ? channel->page.base : NULL;
	uint32_t put;

	if (!userd || channel->idle_at == passed_on(channel))
		return;
	put = channel->gate ? gate_channel_sent(channel->gate) : userd[GATE_GP_PUT_WORD];
	if (userd[GATE_GP_GET_WORD] != put)
		visit->found = WARDEN_IS_BUSY;
}

static enum warden_progress ask(struct progress_visit *visit, const struct ledger_object *object)
{
	struct rm_arg_idle arg = { .client = object->client,
				   .device = device_of(visit, object),
				   .channel = object->handle,
				   .count = 1,
				   .flags = RM_IDLE_ASK,
				   .timeout_us = IDLE_LIMIT_US };
	int rc = client_call(visit->warden, visit->client, RM_ESC_IDLE_CHANNELS, &arg, sizeof(arg),
			     &arg.status);

	if (rc == RM_OK)
		return WARDEN_IS_DONE;
	if (rc == RM_ERR_TIMEOUT)
		return WARDEN_IS_BUSY;
	/* Its file is being closed: the client and its channels are being freed. */
	if (rc == -EBADF)
		return WARDEN_IS_DONE;
	/* Any other status may concern this channel only, in a state that the program has caused. */
	if (rc == -EINVAL || rc == RM_ERR_NOT_SUPPORTED) {
		visit->warden->is_silent = true;
		bf_log(BF_LOG_INFO, "the driver does not report whether a channel has work (%d)", rc);
	}
	return WARDEN_CANNOT_TELL;
}

static void ask_driver(void *context, struct ledger_object *object)
{
	struct progress_visit *visit = context;
	struct channel *channel = object->attached;
	enum warden_progress found;
	uint64_t before;

	if (!channel || visit->found == WARDEN_IS_BUSY)
		return;
	before = passed_on(channel); /* work that is passed on during the query is queried next time */
	if (channel->idle_at == before)
		return;
	found = visit->warden->is_silent ? WARDEN_CANNOT_TELL : ask(visit, object);
	if (found == WARDEN_IS_DONE)
		channel->idle_at = before;
	else
		visit->found = found;
}

static void visit_channels(struct progress_visit *visit, void (*look)(void *, struct ledger_object *))
{
	struct warden *warden = visit->warden;

	for (visit->client = LIST_FIRST(&warden->clients); visit->client && visit->found != WARDEN_IS_BUSY;
	     visit->client = LIST_NEXT(visit->client, next))
		ledger_each(warden->ledger, visit->client->handle, RM_KIND_CHANNEL, look, visit);
}

enum warden_progress warden_progress(struct warden *warden)
{
	struct progress_visit visit = { .warden = warden, .found = WARDEN_IS_DONE };

	/* The caller serves other vGPUs too, so it does not wait for a driver call in progress. */
	if (pthread_mutex_trylock(&warden->lock))
		return WARDEN_CANNOT_TELL;
	visit_channels(&visit, compare_ring);
	if (visit.found != WARDEN_IS_BUSY)
		visit_channels(&visit, ask_driver);
	pthread_mutex_unlock(&warden->lock);
	return visit.found;
}
