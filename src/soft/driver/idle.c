/* IDLE_CHANNELS: whether a channel has finished its work. The real driver waits for that up to a timeout, and
 * reports if it expired; here the answer comes at once. */
#include "soft/driver/state.h"

/* Lists of channels are behind pointers, which a message cannot carry. */
static uint32_t find_channel(struct site *site, const struct rm_arg_idle *arg, struct object **channel)
{
	struct client *client = client_of(site, arg->client);

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	if (!object_find(client, arg->device, OBJECT_DEVICE | OBJECT_SUBDEVICE))
		return ERR_NOT_FOUND;
	*channel = object_find(client, arg->channel, OBJECT_CHANNEL);
	if (!*channel)
		return ERR_NOT_FOUND;
	object_get(*channel);
	return RM_OK;
}

uint32_t site_idle(struct site *site)
{
	struct object *channel = NULL;
	struct rm_arg_idle arg;
	uint32_t status;

	memcpy(&arg, site->call->arg, sizeof(arg)); /* rm_decode has checked the size */
	if ((arg.flags & RM_IDLE_CHANNEL) != RM_IDLE_SINGLE)
		return RM_ERR_INVALID_ARGUMENT;
	pthread_mutex_lock(&site->driver->lock);
	status = find_channel(site, &arg, &channel);
	pthread_mutex_unlock(&site->driver->lock);
	if (!status && !hw_channel_is_idle(channel->channel.hw))
		status = RM_ERR_TIMEOUT;
	object_put(channel);
	return status;
}
