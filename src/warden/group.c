/* Channel groups: how long a turn is, how often it comes, and what they have had of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "warden/state.h"

static int set_timeslice(struct warden *warden, struct client *client, uint32_t group)
{
	uint64_t us = warden->options.timeslice_us;

	return us ? client_control(warden, client, group, RM_CTRL_GROUP_SET_TIMESLICE, &us, sizeof(us)) : 0;
}

static int set_interleave(struct warden *warden, struct client *client, uint32_t group)
{
	uint32_t level = (uint32_t)warden->options.interleave;

	if (warden->options.interleave < 0)
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

/* The program starts its group, or sets its timeslice: our values go in place of its own. */
struct answer site_group_control(struct site *site)
{
	struct warden *warden = site->warden;
	struct client *client = client_find(warden, site->call.client);
	uint8_t params[16] = { 0 };
	int rc;

	if (!client || !site->call.params_size || site->call.params_size > sizeof(params) ||
	    site_peek(site, site->call.params, params, site->call.params_size))
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	if (site->call.class_id == RM_CTRL_GROUP_SET_TIMESLICE && warden->options.timeslice_us) {
		rc = set_timeslice(warden, client, site->call.object);
		return rc < 0 ? RETURN(rc) : site_status(site, (uint32_t)rc);
	}
	if (site->call.class_id == RM_CTRL_GROUP_SET_INTERLEAVE && warden->options.interleave >= 0)
		return site_status(site, RM_OK);
	rc = site_perform(site, params, site->call.params_size);
	if (!rc && site->call.class_id == RM_CTRL_GROUP_SCHEDULE) {
		warden_apply_group(warden, client, site->call.object);
		ledger_each(warden->ledger, client->handle, RM_KIND_CHANNEL, learn_missing, warden);
	}
	return RETURN(rc);
}

struct time_visit {
	struct warden *warden;
	struct client *client;
	uint64_t total_ns;
};

/* A figure that cannot be had, or is lower than it was, leaves the last one. */
static void ask_time(void *context, struct ledger_object *object)
{
	struct time_visit *visit = context;
	struct group *group = object->attached;
	uint64_t had_ns;

	if (!group)
		group = object->attached = calloc(1, sizeof(*group));
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
		ledger_each(warden->ledger, client->handle, RM_KIND_GROUP, ask_time, &visit);
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
	for (visit.client = warden->clients; visit.client; visit.client = visit.client->next)
		ledger_each(warden->ledger, visit.client->handle, RM_KIND_GROUP, ask_time, &visit);
	*gpu_ns = warden->gone_groups_ns + visit.total_ns;
	pthread_mutex_unlock(&warden->lock);
	return 0;
}
