/* CONTROL: the supported controls, their objects and the sizes of their parameters. */
#include "soft/driver/state.h"

static const struct control *find_in(const struct control *table, uint32_t cmd)
{
	for (; table->cmd; table++)
		if (table->cmd == cmd)
			return table;
	return NULL;
}

static const struct control *find_control(uint32_t cmd)
{
	const struct control *found = find_in(controls_root, cmd);

	if (!found)
		found = find_in(controls_gpu, cmd);
	return found ? found : find_in(controls_channel, cmd);
}

static uint32_t resolve(struct site *site, struct control_site *control)
{
	struct client *client = client_of(site, site->rm.client);

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	if (site->rm.object != client->handle) {
		struct object *object = object_find(client, site->rm.object, ~0u);

		if (!object)
			return ERR_NOT_FOUND;
		control->object = object_get(object);
	}
	control->client = client_get(client);
	return RM_OK;
}

static uint32_t answer(const struct control *found, struct control_site *control)
{
	unsigned kind = control->object ? control->object->kind : OBJECT_CLIENT;

	if (!found || !(found->kinds & kind))
		return RM_ERR_NOT_SUPPORTED;
	if (!control->bytes || (found->bytes && found->bytes != control->bytes))
		return RM_ERR_INVALID_ARGUMENT;
	return found->answer(control);
}

uint32_t site_control(struct site *site)
{
	struct control_site control = { .site = site,
					.driver = site->driver,
					.params = site->call->params,
					.bytes = site->call->params_bytes };
	uint32_t status;

	pthread_mutex_lock(&site->driver->lock);
	status = resolve(site, &control);
	pthread_mutex_unlock(&site->driver->lock);
	if (status)
		return status;
	status = answer(find_control(site->rm.class_id), &control);
	object_put(control.object);
	client_put(control.client);
	return status;
}
