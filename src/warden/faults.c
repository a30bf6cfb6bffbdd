/* Faults of programs on the GPU. The driver ends the channel group and writes the reason into the error
 * notifier, which is memory of the program that the warden maps. So a program can fake a fault of its own,
 * but of no other program. When the program ends, the driver overwrites the reason: it must be read before
 * that. */
#include "base/log.h"
#include "warden/state.h"

/* A fault is reported once for each channel. The channels of a group end together, which is one fault. */
static bool is_new_fault(struct ledger_object *object)
{
	struct channel *channel = object->attached;
	struct ledger_object *parent = object->parent;
	struct group *group = parent && parent->kind == RM_KIND_GROUP ? group_get(parent) : NULL;

	if (channel->is_fault_told)
		return false;
	channel->is_fault_told = true;
	if (!group)
		return true;
	if (group->is_fault_told)
		return false;
	group->is_fault_told = true;
	return true;
}

void channel_look_for_fault(struct warden *warden, struct ledger_object *object)
{
	const struct warden_hooks *hooks = &warden->options.hooks;
	const struct channel *channel = object->attached;
	const volatile uint8_t *notifier = channel && channel->notifier ? channel->notifier->seen.base : NULL;
	uint32_t reason;

	if (!notifier || *(const volatile uint16_t *)(notifier + RM_NOTIFIER_STATUS) != RM_NOTIFIER_HAPPENED)
		return;
	reason = *(const volatile uint32_t *)(notifier + RM_NOTIFIER_REASON);
	if (reason == RM_XID_REMOVED || !is_new_fault(object))
		return;
	bf_log(BF_LOG_DEBUG, "process %d: a fault on the GPU, Xid %u", channel->client->pid, reason);
	if (hooks->fault)
		hooks->fault(hooks->context, channel->client->pid, reason);
}

static void look(void *context, struct ledger_object *object)
{
	channel_look_for_fault(context, object);
}

void warden_look_for_faults(struct warden *warden)
{
	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		ledger_each(warden->ledger, c->handle, RM_KIND_CHANNEL, look, warden);
}

void warden_try_tell_faults(struct warden *warden)
{
	if (pthread_mutex_trylock(&warden->lock))
		return;
	warden_look_for_faults(warden);
	pthread_mutex_unlock(&warden->lock);
}

void warden_tell_faults(struct warden *warden)
{
	pthread_mutex_lock(&warden->lock);
	warden_look_for_faults(warden);
	pthread_mutex_unlock(&warden->lock);
}
