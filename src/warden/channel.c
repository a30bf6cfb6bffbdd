/* Channels. The GPU reads the GP_PUT of a channel from a page of the GPU server, which the warden passes to
 * the driver in place of the program's USERD memory. The program writes to its own USERD memory, which the
 * warden maps. The gate copies from one to the other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

enum {
	USERD_BYTES = 512,
	NOTIFIER_MOST_BYTES = 64 << 10, /* libraries use a page; limits what the GPU server maps */
};

static struct view *view_get(struct warden *warden, int control_fd, uint32_t client,
			     const struct ledger_object *memory, struct bf_error *err)
{
	struct device_view what = { .handle = memory->handle, .bytes = memory->bytes };
	struct view *view;

	/* Handles are reused: the block shows whether it is the same memory. */
	for (view = LIST_FIRST(&warden->views); view; view = LIST_NEXT(view, next))
		if (view->client == client && view->memory == memory->handle &&
		    view->block == memory->block && view->seen.bytes == memory->bytes) {
			view->users++;
			return view;
		}
	view = calloc(1, sizeof(*view));
	if (!view) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	if (warden->device->ops->view(warden->device, control_fd, client, &what,
				      memory->kind == RM_KIND_VIDMEM, &view->seen, err)) {
		free(view);
		return NULL;
	}
	view->client = client;
	view->memory = memory->handle;
	view->block = memory->block;
	if (view->block)
		ledger_keep(view->block);
	view->users = 1;
	LIST_INSERT_HEAD(&warden->views, view, next);
	return view;
}

static void view_put(struct warden *warden, struct view *view)
{
	if (!view || --view->users)
		return;
	LIST_REMOVE(view, next);
	warden->device->ops->unview(warden->device, &view->seen);
	if (view->block)
		ledger_drop(warden->ledger, view->block);
	free(view);
}

static void channel_free(struct warden *warden, struct channel *channel)
{
	if (channel->gate)
		gate_channel_remove(channel->gate); /* from here on the poller does not read the pages */
	if (channel->page.base)
		warden->device->ops->unview(warden->device,
					    &channel->page); /* the driver's channel keeps it */
	view_put(warden, channel->view);
	view_put(warden, channel->notifier);
	free(channel);
}

static uint32_t next_page_handle(struct warden *warden, uint32_t client)
{
	do
		warden->next_page_handle = warden->next_page_handle < OWN_HANDLE_FIRST ||
							   warden->next_page_handle >= OWN_HANDLE_LAST
						   ? OWN_HANDLE_FIRST
						   : warden->next_page_handle + 1;
	while (ledger_find(warden->ledger, client, warden->next_page_handle));
	return warden->next_page_handle;
}

/* The memory to which the driver writes the error that ends the channel. A channel without a known notifier
 * works, but its faults are not reported. */
static struct view *notifier_get(struct warden *warden, int control_fd, uint32_t client,
				 uint32_t memory_handle)
{
	const struct ledger_object *memory = ledger_find(warden->ledger, client, memory_handle);
	struct bf_error err = { 0 };
	struct view *view;

	if (!memory || (memory->kind != RM_KIND_VIDMEM && memory->kind != RM_KIND_SYSMEM) ||
	    memory->bytes < RM_NOTIFIER_BYTES || memory->bytes > NOTIFIER_MOST_BYTES)
		return NULL;
	view = view_get(warden, control_fd, client, memory, &err);
	if (!view)
		bf_log(BF_LOG_DEBUG, "an error notifier cannot be mapped: %s", err.text);
	return view;
}

/* Set up everything that must exist before the driver makes the channel. */
static struct channel *channel_prepare(struct site *site, struct client *client, uint32_t memory_handle,
				       uint64_t offset, struct bf_error *err)
{
	struct warden *warden = site->warden;
	struct ledger_object *memory = ledger_find(warden->ledger, client->handle, memory_handle);
	struct channel *channel = calloc(1, sizeof(*channel));

	if (!channel) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	channel->client = client;
	channel->process = site->process;
	channel->token = GATE_NO_TOKEN;
	if (!client->subdevice) {
		bf_fail(err, EINVAL, "its client has no subdevice, so it could not be stopped");
		goto failed;
	}
	if (!memory || (memory->kind != RM_KIND_VIDMEM && memory->kind != RM_KIND_SYSMEM)) {
		bf_fail(err, EINVAL, "its USERD memory %x is not known", memory_handle);
		goto failed;
	}
	if (offset % 4 || memory->bytes < USERD_BYTES || offset > memory->bytes - USERD_BYTES) {
		bf_fail(err, EINVAL, "its USERD is not inside its memory");
		goto failed;
	}
	channel->view = view_get(warden, site->file->fd, client->handle, memory, err);
	if (!channel->view)
		goto failed;
	if (warden->device->ops->page_new(warden->device, &channel->page, err))
		goto failed;
	channel->gate = gate_channel_add(site->process->gate,
					 (volatile uint32_t *)((uint8_t *)channel->view->seen.base + offset),
					 channel->page.base);
	if (channel->gate)
		return channel;
	bf_fail(err, ENOMEM, "out of memory");
failed:
	channel_free(warden, channel);
	return NULL;
}

/* Have the driver make the channel on the GPU server's page. The page has a handle in the program's client
 * only during the call: with a handle the program could map the page and write GP_PUT itself. */
static int make_on_page(struct site *site, const struct client *client, const struct channel *channel,
			struct bf_error *err)
{
	struct warden *warden = site->warden;
	const struct rm_layout *layout = warden->device->layout;
	uint32_t name = next_page_handle(warden, client->handle);
	struct rm_arg_free forget = { .client = client->handle, .parent = client->device, .object = name };
	uint8_t *memory = site->params.now + layout->channel_userd_memory;
	uint8_t *offset = site->params.now + layout->channel_userd_offset;
	int rc = warden->device->ops->page_name(warden->device, site->file->fd, client->handle,
						client->device, name, &channel->page, err);

	if (rc)
		return rc;
	memcpy(memory, &name, sizeof(name));
	memset(offset, 0, sizeof(uint64_t));
	rc = site_perform(site);
	/* The program sees its own values of these two. */
	memcpy(memory, site->params.before + layout->channel_userd_memory, sizeof(name));
	memcpy(offset, site->params.before + layout->channel_userd_offset, sizeof(uint64_t));
	warden->device->ops->call(warden->device, site->file->fd, RM_ESC_FREE, &forget, sizeof(forget));
	return rc ? bf_fail(err, -rc, "%s", strerror(-rc)) : 0;
}

/* Root of a container has fewer rights than root of the host. */
static bool is_root_of_host(pid_t pid)
{
	struct bf_status status;

	return bf_euid_of(pid) == 0 && !bf_status_read(pid, &status) && !status.is_nested;
}

void site_fetch_user(struct site *site)
{
	site->is_of_root = rm_class_find(site->call.class_id)->kind == RM_KIND_CHANNEL &&
			   is_root_of_host(site->process->pid);
}

/* The driver checks the privileges of the calling process, which is the GPU server: a channel made by root
 * may copy from and to any physical address. A program of an unprivileged user must not get more rights
 * through Belfry than it has itself. */
static void deny_privilege(const struct site *site, const struct client *client)
{
	uint8_t *at = site->params.now + site->warden->device->layout->channel_flags;
	uint32_t flags;

	if (geteuid() != 0 || (site->is_of_root && site->process->uid == 0 && client->uid == 0))
		return;
	memcpy(&flags, at, sizeof(flags));
	flags |= RM_CHANNEL_DENY_PHYSICAL_CE | RM_CHANNEL_DENY_AUTH_PRIV;
	memcpy(at, &flags, sizeof(flags));
}

struct answer site_alloc_channel(struct site *site)
{
	struct warden *warden = site->warden;
	const struct rm_layout *layout = warden->device->layout;
	struct client *client = client_find(warden, site->call.client);
	const struct ledger_object *parent =
		ledger_find(warden->ledger, site->call.client, site->call.parent);
	struct ledger_object *object = NULL;
	struct bf_error err = { 0 };
	struct channel *channel;
	uint32_t memory, error_memory;
	uint64_t offset;

	if (site->params.bytes < layout->channel_userd_offset + sizeof(offset))
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	/* The driver would make an implicit group, whose timeslice and interleave level the warden could not
	 * set. */
	if (!parent || parent->kind != RM_KIND_GROUP)
		return site_refuse(site, RM_ERR_INVALID_OBJECT_PARENT, "a channel without a group");
	memcpy(&memory, site->params.now + layout->channel_userd_memory, sizeof(memory));
	memcpy(&offset, site->params.now + layout->channel_userd_offset, sizeof(offset));
	memcpy(&error_memory, site->params.now + layout->channel_error_memory, sizeof(error_memory));
	deny_privilege(site, client);
	channel = channel_prepare(site, client, memory, offset, &err);
	if (!channel || make_on_page(site, client, channel, &err)) {
		warden->refusals++;
		bf_log(BF_LOG_WARN, "process %d: a channel was refused: %s", site->process->pid, err.text);
		if (channel)
			channel_free(warden, channel);
		return site_status(site, RM_ERR_NOT_SUPPORTED);
	}
	if (!site_status_of(site))
		object = ledger_add(warden->ledger, client->handle, site->call.parent, site->call.object,
				    site->call.class_id, RM_KIND_CHANNEL, 0);
	if (!object) {
		channel_free(warden, channel);
		if (site_status_of(site))
			return RETURN(0);
		site_undo(site);
		return RETURN(-ENOMEM);
	}
	object->attached = channel;
	channel->notifier = notifier_get(warden, site->file->fd, client->handle, error_memory);
	warden->channels++;
	return RETURN(0);
}

void channel_gone(struct warden *warden, struct ledger_object *object)
{
	struct channel *channel = object->attached;

	if (!channel)
		return;
	channel_look_for_fault(warden, object);
	warden->channels--;
	channel_free(warden, channel);
}

static void leave_gate(void *process, struct ledger_object *object)
{
	struct channel *channel = object->attached;

	if (!channel || !channel->gate || channel->process != process)
		return;
	gate_channel_remove(channel->gate);
	channel->gate = NULL;
}

void channels_leave_gate(struct warden *warden, struct process *process)
{
	for (struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		ledger_each(warden->ledger, c->handle, RM_KIND_CHANNEL, leave_gate, process);
}

static void count_one(void *context, struct ledger_object *object)
{
	(void)object;
	++*(unsigned *)context;
}

bool client_has_channels(const struct warden *warden, const struct client *client)
{
	unsigned count = 0;

	ledger_each(warden->ledger, client->handle, RM_KIND_CHANNEL, count_one, &count);
	return count;
}

static void leave_all(void *context, struct ledger_object *object)
{
	struct channel *channel = object->attached;

	(void)context;
	if (channel)
		leave_gate(channel->process, object);
}

void client_leave_gate(struct warden *warden, const struct client *client)
{
	ledger_each(warden->ledger, client->handle, RM_KIND_CHANNEL, leave_all, NULL);
}

/* The driver is asked for the token: the answer that the program received lies in memory that the program can
 * change. */
void channel_learn_token(struct warden *warden, struct client *client, uint32_t handle)
{
	struct ledger_object *object = ledger_find(warden->ledger, client->handle, handle);
	struct channel *channel = object && object->kind == RM_KIND_CHANNEL ? object->attached : NULL;
	uint32_t token = GATE_NO_TOKEN;

	if (!channel || !channel->gate ||
	    client_control(warden, client, handle, RM_CTRL_CHANNEL_GET_TOKEN, &token, sizeof(token)))
		return;
	channel->token = token;
	gate_channel_set_token(channel->gate, token);
}

struct disable_list {
	struct warden *warden;
	struct client *client;
	uint8_t *params;
	uint32_t count;
	bool is_disabled;
	int rc;
};

static int disable(const struct disable_list *list, uint32_t first, uint32_t count)
{
	const struct rm_layout *layout = list->warden->device->layout;
	cleanup_free uint8_t *params = calloc(1, layout->disable_size);

	if (!params)
		return -ENOMEM;
	params[0] = list->is_disabled;
	memcpy(params + layout->disable_count, &count, sizeof(count));
	memcpy(params + layout->disable_clients,
	       list->params + layout->disable_clients + sizeof(uint32_t) * first, sizeof(uint32_t) * count);
	memcpy(params + layout->disable_channels,
	       list->params + layout->disable_channels + sizeof(uint32_t) * first, sizeof(uint32_t) * count);
	return client_control(list->warden, list->client, list->client->subdevice, RM_CTRL_DISABLE_CHANNELS,
			      params, layout->disable_size);
}

/* The driver frees channels with the address space or the context share that they use, and the ledger is not
 * told. A channel that no longer exists need not be stopped. */
static bool channel_exists(const struct disable_list *list, uint32_t index)
{
	uint32_t handle;

	memcpy(&handle,
	       list->params + list->warden->device->layout->disable_channels + sizeof(uint32_t) * index,
	       sizeof(handle));
	return client_has_object(list->warden, list->client, handle);
}

static void disable_send(struct disable_list *list)
{
	int rc = list->count ? disable(list, 0, list->count) : 0;

	if (rc == -EBADF) /* its file is being closed: the client and its channels are being freed */
		rc = 0;
	if (rc > 0) {
		rc = 0;
		for (uint32_t i = 0; i < list->count; i++) {
			int one = disable(list, i, 1);

			if (one && channel_exists(list, i))
				rc = one;
		}
	}
	if (rc)
		list->rc = rc;
	list->count = 0;
}

static void disable_one(void *context, struct ledger_object *object)
{
	struct disable_list *list = context;
	const struct rm_layout *layout = list->warden->device->layout;
	struct channel *channel = object->attached;

	/* The gate is not open, so a channel that was never used has no work and gets none. Most channels of
	 * a library are never used, and each runlist that is left alone makes the stop shorter. A channel
	 * that was removed from the gate may have work. */
	if (channel && channel->gate && !gate_channel_was_used(channel->gate))
		return;
	size_t at = sizeof(uint32_t) * list->count;
	memcpy(list->params + layout->disable_clients + at, &object->client, sizeof(uint32_t));
	memcpy(list->params + layout->disable_channels + at, &object->handle, sizeof(uint32_t));
	if (++list->count == layout->disable_max)
		disable_send(list);
}

/* Disables or enables every channel that may have work, with as many channels in a call as fit. */
int warden_set_channels(struct warden *warden, bool is_disabled, struct bf_error *err)
{
	cleanup_free uint8_t *params = calloc(1, warden->device->layout->disable_size);
	struct disable_list list = { .warden = warden, .params = params, .is_disabled = is_disabled };

	if (!params)
		return bf_fail(err, ENOMEM, "out of memory");
	for (struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next)) {
		list.client = c;
		ledger_each(warden->ledger, c->handle, RM_KIND_CHANNEL, disable_one, &list);
		disable_send(&list);
	}
	if (list.rc)
		return bf_fail(err, EIO, "the driver did not %s a channel (%d)",
			       is_disabled ? "stop" : "resume", list.rc);
	return 0;
}
