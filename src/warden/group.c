/* Channel groups: their timeslice, interleave level, GPU time and turns. */
#include <errno.h>
#include <stdlib.h>

#include "warden/state.h"

static const struct group *group_of(const struct warden *warden, const struct client *client, uint32_t handle)
{
	const struct ledger_object *object = ledger_find(warden->ledger, client->handle, handle);

	return object && object->kind == RM_KIND_GROUP ? object->attached : NULL;
}

/* The group's own, or the vGPU's; 0: as the program sets it. */
static uint64_t timeslice_of(const struct warden *warden, const struct client *client, uint32_t handle)
{
	const struct group *group = group_of(warden, client, handle);

	return group && group->timeslice_us ? group->timeslice_us : warden->options.timeslice_us;
}

/* Likewise; -1: as the program sets it. */
static int interleave_of(const struct warden *warden, const struct client *client, uint32_t handle)
{
	const struct group *group = group_of(warden, client, handle);

	return group && group->interleave >= 0 ? group->interleave : warden->options.interleave;
}

static int set_timeslice(struct warden *warden, struct client *client, uint32_t group)
{
	uint64_t us = timeslice_of(warden, client, group);

	return us ? client_control(warden, client, group, RM_CTRL_GROUP_SET_TIMESLICE, &us, sizeof(us)) : 0;
}

static int set_interleave(struct warden *warden, struct client *client, uint32_t group)
{
	int wanted = interleave_of(warden, client, group);
	uint32_t level = (uint32_t)wanted;

	if (wanted < 0)
		return 0;
	return client_control(warden, client, group, RM_CTRL_GROUP_SET_INTERLEAVE, &level, sizeof(level));
}

int warden_apply_group(struct warden *warden, struct client *client, uint32_t group)
{
	int first = set_timeslice(warden, client, group), second = set_interleave(warden, client, group);

	return first ? first : second;
}

static void learn_missing(void *context, struct ledger_object *object)
{
	struct warden *warden = context;
	struct channel *channel = object->attached;

	if (channel && channel->token == GATE_NO_TOKEN)
		channel_learn_token(warden, channel->client, object->handle);
}

/* A program schedules its group, or sets its timeslice or interleave level: the values of the vGPU replace
 * those of the program. */
struct answer site_group_control(struct site *site)
{
	struct warden *warden = site->warden;
	struct client *client = client_find(warden, site->call.client);
	int rc;

	if (!site->params.bytes || site->params.bytes > sizeof(uint64_t) * 2)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	if (site->call.class_id == RM_CTRL_GROUP_SET_TIMESLICE &&
	    timeslice_of(warden, client, site->call.object)) {
		rc = set_timeslice(warden, client, site->call.object);
		return rc < 0 ? RETURN(rc) : site_status(site, (uint32_t)rc);
	}
	if (site->call.class_id == RM_CTRL_GROUP_SET_INTERLEAVE &&
	    interleave_of(warden, client, site->call.object) >= 0)
		return site_status(site, RM_OK);
	rc = site_perform(site);
	if (!rc && site->call.class_id == RM_CTRL_GROUP_SCHEDULE) {
		warden_apply_group(warden, client, site->call.object);
		ledger_each(warden->ledger, client->handle, RM_KIND_CHANNEL, learn_missing, warden);
	}
	return RETURN(rc);
}

struct group *group_get(struct ledger_object *object)
{
	struct group *group = object->attached;

	if (group)
		return group;
	group = object->attached = calloc(1, sizeof(*group));
	if (group)
		group->interleave = -1;
	return group;
}

void group_begin(struct ledger_object *object, const struct warden_ctx_ask *ask)
{
	struct group *group;

	if (!object || (!ask->timeslice_us && ask->interleave < 0))
		return;
	group = group_get(object);
	if (!group)
		return;
	group->timeslice_us = ask->timeslice_us;
	group->interleave = ask->interleave;
}

static void forget_timeslice(void *context, struct ledger_object *object)
{
	struct group *group = object->attached;

	(void)context;
	if (group)
		group->timeslice_us = 0;
}

static void forget_interleave(void *context, struct ledger_object *object)
{
	struct group *group = object->attached;

	(void)context;
	if (group)
		group->interleave = -1;
}

void groups_forget_own(struct warden *warden, bool is_timeslice)
{
	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		ledger_each(warden->ledger, c->handle, RM_KIND_GROUP,
			    is_timeslice ? forget_timeslice : forget_interleave, NULL);
}

struct time_visit {
	struct warden *warden;
	struct client *client;
	uint64_t total_ns;
};

/* If the time cannot be read, or is lower than before, the last value remains. */
static void read_time(void *context, struct ledger_object *object)
{
	struct time_visit *visit = context;
	struct group *group = group_get(object);
	uint64_t had_ns;

	if (!group)
		return;
	if (!client_group_time(visit->warden, visit->client, object->handle, &had_ns) &&
	    had_ns > group->had_ns)
		group->had_ns = had_ns;
	visit->total_ns += group->had_ns;
}

void groups_ask_time(struct warden *warden, struct client *client)
{
	struct time_visit visit = { .warden = warden, .client = client };

	if (warden->device->ops->time_of)
		ledger_each(warden->ledger, client->handle, RM_KIND_GROUP, read_time, &visit);
}

void group_gone(struct warden *warden, struct ledger_object *object)
{
	struct group *group = object->attached;

	if (!group)
		return;
	warden->gone_groups_ns += group->had_ns;
	free(group);
}

int warden_gpu_time(struct warden *warden, uint64_t *gpu_ns)
{
	struct time_visit visit = { .warden = warden };

	if (!warden->device->ops->time_of)
		return -ENOTSUP;
	pthread_mutex_lock(&warden->lock);
	for (visit.client = LIST_FIRST(&warden->clients); visit.client;
	     visit.client = LIST_NEXT(visit.client, next))
		ledger_each(warden->ledger, visit.client->handle, RM_KIND_GROUP, read_time, &visit);
	*gpu_ns = warden->gone_groups_ns + visit.total_ns;
	pthread_mutex_unlock(&warden->lock);
	return 0;
}

struct done_visit {
	struct warden *warden;
	struct client *client;
	struct device_done *to;
	unsigned count, room;
};

static void read_done(void *context, struct ledger_object *object)
{
	struct done_visit *visit = context;
	struct device *device = visit->warden->device;
	struct group *group = group_get(object);
	int count;

	if (!group || visit->client->file->fd < 0)
		return;
	count = device->ops->done_of(device, visit->client->file->fd, visit->client->handle, object->handle,
				     &group->done_taken, visit->to + visit->count,
				     visit->room - visit->count);
	visit->count += count > 0 ? (unsigned)count : 0;
}

static int by_end(const void *a, const void *b)
{
	const struct device_done *one = a, *other = b;

	return one->end_ns < other->end_ns ? -1 : one->end_ns > other->end_ns;
}

unsigned warden_done(struct warden *warden, struct device_done *to, unsigned room)
{
	struct done_visit visit = { .warden = warden, .to = to, .room = room };

	if (!warden->device->ops->done_of || pthread_mutex_trylock(&warden->lock))
		return 0;
	for (visit.client = LIST_FIRST(&warden->clients); visit.client;
	     visit.client = LIST_NEXT(visit.client, next))
		ledger_each(warden->ledger, visit.client->handle, RM_KIND_GROUP, read_done, &visit);
	pthread_mutex_unlock(&warden->lock);
	qsort(to, visit.count, sizeof(*to), by_end);
	return visit.count;
}
