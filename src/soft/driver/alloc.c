/* ALLOC and FREE. An object is created without the lock, and then entered into the tables if its parent still
 * exists. */
#include "soft/driver/state.h"

typedef uint32_t make_fn(struct site *site, uint32_t gpu, struct object **object);

static uint32_t make_object(struct site *site, uint32_t gpu, enum object_kind kind, struct object **object)
{
	*object = object_new(site->driver, site->rm.class_id, kind);
	if (!*object)
		return RM_ERR_NO_MEMORY;
	(*object)->gpu = gpu;
	return RM_OK;
}

static uint32_t make_plain(struct site *site, uint32_t gpu, struct object **object)
{
	return make_object(site, gpu, OBJECT_PLAIN, object);
}

static uint32_t make_device(struct site *site, uint32_t gpu, struct object **object)
{
	const struct rm_layout *layout = site->driver->layout;
	struct call *call = site->call;

	if (call->params_bytes && call->params_bytes != layout->device_size)
		return RM_ERR_INVALID_ARGUMENT;
	gpu = call->params_bytes ? bf_get32(call->params + layout->device_instance) : 0;
	if (gpu >= site->driver->config.gpus)
		return RM_ERR_INVALID_DEVICE;
	return make_object(site, gpu, OBJECT_DEVICE, object);
}

static uint32_t make_subdevice(struct site *site, uint32_t gpu, struct object **object)
{
	struct call *call = site->call;

	if (call->params_bytes &&
	    (call->params_bytes != site->driver->layout->subdevice_size || bf_get32(call->params)))
		return RM_ERR_INVALID_ARGUMENT;
	return make_object(site, gpu, OBJECT_SUBDEVICE, object);
}

static uint32_t make_bell(struct site *site, uint32_t gpu, struct object **object)
{
	return make_object(site, gpu, OBJECT_BELL, object);
}

enum { PARENT_EVENT = OBJECT_CLIENT | OBJECT_DEVICE | OBJECT_SUBDEVICE | OBJECT_GROUP | OBJECT_CHANNEL };

struct class_row {
	uint32_t class_id;
	unsigned parents; /* kinds that its parent may have */
	make_fn *make;
};

static const struct class_row rows[] = {
	{ 0x0005, PARENT_EVENT, make_plain },
	{ 0x0079, PARENT_EVENT, make_plain },
	{ 0x003e, OBJECT_DEVICE, memory_alloc },
	{ 0x0040, OBJECT_DEVICE, memory_alloc },
	{ 0x0070, OBJECT_DEVICE, range_alloc },
	{ 0x0080, OBJECT_CLIENT, make_device },
	{ 0x2080, OBJECT_DEVICE, make_subdevice },
	{ 0x50a0, OBJECT_DEVICE, range_alloc },
	{ 0x9067, OBJECT_GROUP, make_plain },
	{ 0x90f1, OBJECT_DEVICE, space_alloc },
	{ 0xa06c, OBJECT_DEVICE, group_alloc },
	{ 0xc661, OBJECT_SUBDEVICE, make_bell },
	{ 0xc86f, OBJECT_GROUP | OBJECT_DEVICE, channel_alloc },
	{ 0xc8b5, OBJECT_CHANNEL, make_plain },
	{ 0xcbc0, OBJECT_CHANNEL, make_plain },
	{ SOFT_CLASS_CODE, OBJECT_DEVICE, code_alloc },
};

static const struct class_row *row_find(uint32_t class_id)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].class_id == class_id)
			return &rows[i];
	return NULL;
}

/* Whether the object could be attached now, and to which GPU. Called before anything large is allocated. */
static uint32_t check_place(struct site *site, unsigned parents, uint32_t *gpu)
{
	struct client *client = client_of(site, site->rm.client);
	struct object *parent;

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	if (site->rm.object == client->handle)
		return RM_ERR_INVALID_OBJECT_HANDLE;
	if (site->rm.object && object_find(client, site->rm.object, ~0u))
		return ERR_NAME_TAKEN;
	if (client->object_count >= OBJECTS_MAX)
		return ERR_INSUFFICIENT_RESOURCES;
	if (site->rm.parent == client->handle)
		return parents & OBJECT_CLIENT ? RM_OK : RM_ERR_INVALID_OBJECT_PARENT;
	parent = object_find(client, site->rm.parent, parents);
	if (!parent)
		return RM_ERR_INVALID_OBJECT_PARENT;
	*gpu = parent->gpu;
	return RM_OK;
}

uint32_t site_attach(struct site *site, struct object *object, uint32_t *handle)
{
	struct object *parent = NULL;
	struct client *client;
	uint32_t status = RM_OK;

	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	if (!client)
		status = RM_ERR_INVALID_CLIENT;
	else if (site->rm.parent != client->handle && !(parent = object_find(client, site->rm.parent, ~0u)))
		status = RM_ERR_INVALID_OBJECT_PARENT;
	if (!status)
		status = object_attach(client, parent, object, *handle);
	if (!status)
		*handle = object->handle;
	pthread_mutex_unlock(&site->driver->lock);
	object_put(object); /* the table has its own reference, if it was attached */
	return status;
}

static uint32_t alloc_client(struct site *site)
{
	uint32_t handle, status;

	pthread_mutex_lock(&site->driver->lock);
	status = client_new(site, &handle);
	pthread_mutex_unlock(&site->driver->lock);
	if (!status)
		bf_put32(site->call->arg + site->rm.object_at, handle);
	return status;
}

uint32_t site_alloc(struct site *site)
{
	const struct class_row *row = row_find(site->rm.class_id);
	uint32_t gpu = 0, handle = site->rm.object, status;
	struct object *object = NULL;

	if (rm_class_find(site->rm.class_id)->kind == RM_KIND_ROOT)
		return alloc_client(site);
	pthread_mutex_lock(&site->driver->lock);
	status = check_place(site, row ? row->parents : ~0u, &gpu);
	pthread_mutex_unlock(&site->driver->lock);
	if (status)
		return status;
	if (!row)
		return ERR_INVALID_CLASS;
	status = row->make(site, gpu, &object);
	if (status)
		return status;
	object_get(object);
	status = site_attach(site, object, &handle);
	if (!status && object->kind == OBJECT_CODE) {
		status = code_settle(object);
		if (status)
			site_free(site, handle);
	}
	object_put(object);
	if (!status)
		bf_put32(site->call->arg + site->rm.object_at, handle);
	return status;
}

uint32_t site_free(struct site *site, uint32_t handle)
{
	struct client *client;
	struct object *object = NULL;
	uint32_t status = RM_OK;
	struct reap reap;

	reap_init(&reap);
	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	if (!client)
		status = RM_ERR_INVALID_CLIENT;
	else if (handle == client->handle)
		client_free(client, &reap);
	else if ((object = object_find(client, handle, ~0u)))
		object_free(object, &reap);
	else
		status = ERR_NOT_FOUND;
	pthread_mutex_unlock(&site->driver->lock);
	reap_run(&reap);
	return status;
}
