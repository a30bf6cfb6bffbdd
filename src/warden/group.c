/* Channel groups: how long a turn is, and how often it comes. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/process.h"
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
	    bf_peek((pid_t)site->request->pid, site->call.params, params, site->call.params_size))
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
