/* Handlers of driver calls, one for each verb. The warden makes every call itself, with copies of the
 * arguments and through its own file, or answers it without a call. The kernel makes one call: the driver
 * pins pages of the program in the address space of the caller. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "warden/state.h"

enum {
	PARAMS_AT = 16,	     /* offset in the arguments of ALLOC and CONTROL */
	RIGHTS_AT = 24,	     /* offset in the longer form of ALLOC */
	FLAG_SERIALIZED = 1, /* NVOS64: the parameters are serialized */
	ALLOC_LONG = sizeof(struct rm_arg_alloc),
};

uint32_t site_status_of(const struct site *site)
{
	uint32_t status = 0;

	if (site->call.status_at >= 0)
		memcpy(&status, site->arg.now + site->call.status_at, sizeof(status));
	return status;
}

struct answer site_status(struct site *site, uint32_t status)
{
	if (site->call.status_at < 0)
		return RETURN(status ? -EINVAL : 0);
	memcpy(site->arg.now + site->call.status_at, &status, sizeof(status));
	return RETURN(0);
}

struct answer site_refuse(struct site *site, uint32_t status, const char *why)
{
	site->warden->refusals++;
	bf_log(BF_LOG_INFO, "process %d: call 0x%x class 0x%x refused: %s", site->process->pid, site->call.nr,
	       site->call.class_id, why);
	return site_status(site, status);
}

/* Set the pointers in the copies: to the warden's copies for the driver call, or back to the addresses in the
 * program. */
static void set_pointers(struct site *site, bool is_for_driver)
{
	const struct rm_call *call = &site->call;

	if (call->verb == RM_VERB_ALLOC || call->verb == RM_VERB_CONTROL)
		bf_put64(site->arg.now + PARAMS_AT,
			 is_for_driver ? (uintptr_t)site->params.now : call->params);
	else if (call->nr == RM_ESC_GET_EVENT_DATA)
		bf_put64(site->arg.now, is_for_driver ? (uintptr_t)site->params.now : site->params.at);
	if (call->verb == RM_VERB_ALLOC && call->size == ALLOC_LONG)
		bf_put64(site->arg.now + RIGHTS_AT, !is_for_driver ? call->rights
						    : call->rights ? (uintptr_t)site->rights
								   : 0);
	for (unsigned i = 0; site->control && i < site->control->pointer_count; i++) {
		const struct rm_pointer *pointer = &site->control->pointers[i];
		uint64_t program_address;

		memcpy(&program_address, site->params.before + pointer->at, sizeof(program_address));
		bf_put64(site->params.now + pointer->at,
			 is_for_driver ? (uintptr_t)site->lists[i].now : program_address);
	}
}

/* All driver objects of the vGPU belong to the owner proxy. No other process can use them. */
static void owner_lost(struct warden *warden)
{
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		process_end(p, "the owner proxy of the vGPU has died");
}

static int perform(struct site *site, bool as_owner)
{
	struct device *device = site->warden->device;
	const struct rm_call *call = &site->call;
	int fd = site->gpu_fd >= 0 ? site->gpu_fd : site->file ? site->file->fd : -1;
	int rc;

	if (fd < 0)
		return -EBADF;
	set_pointers(site, true);
	rc = as_owner ? device->ops->call_as(device, site->warden->owner, fd, call->nr, site->arg.now,
					     call->size)
		      : device->ops->call(device, fd, call->nr, site->arg.now, call->size);
	set_pointers(site, false);
	if (as_owner && (rc == -ETIMEDOUT || rc == -EOWNERDEAD || rc == -ECANCELED))
		owner_lost(site->warden);
	if (!rc && call->object_at >= 0)
		memcpy(&site->call.object, site->arg.now + call->object_at, sizeof(uint32_t));
	return rc;
}

int site_perform(struct site *site)
{
	return perform(site, false);
}

int site_perform_as_owner(struct site *site)
{
	return perform(site, true);
}

void site_undo(struct site *site)
{
	struct client *client = client_find(site->warden, site->call.client);
	struct rm_arg_free arg = { .client = site->call.client,
				   .parent = site->call.parent,
				   .object = site->call.object };

	if (!client || client_call(site->warden, client, RM_ESC_FREE, &arg, sizeof(arg), &arg.status))
		bf_log(BF_LOG_ERROR, "object %x of client %x could not be freed", arg.object, arg.client);
}

/* The client that a call names, if the call came through the control file of that client. For an event, a
 * file that is registered with that control file is accepted too. The driver accepts no other file. */
static struct client *client_of(const struct site *site)
{
	struct client *client = client_find(site->warden, site->call.client);

	if (!client || site->gpu_fd >= 0 || client->file == site->file)
		return client;
	return site->file && site->file->linked_to == client->file->serial ? client : NULL;
}

static struct answer unknown_client(struct site *site)
{
	return site_refuse(site, RM_ERR_INVALID_CLIENT, "the client is unknown, or belongs to another file");
}

/* The owner proxy makes the client, so the driver counts its memory under the owner's process ID and accepts
 * mappings from the owner only. */
static struct answer alloc_root(struct site *site)
{
	struct rm_arg_free arg = { 0 };
	int rc;

	if (site->kind != DEVICE_FILE_CONTROL)
		return RETURN(-EINVAL);
	if (!client_has_room(site->warden))
		return site_refuse(site, RM_ERR_INSUFFICIENT_RESOURCES, "the vGPU has too many clients");
	rc = site_perform_as_owner(site);
	if (rc || site_status_of(site))
		return RETURN(rc);
	if (!client_find(site->warden, site->call.object) && client_add(site, site->call.object))
		return RETURN(0);
	arg.client = arg.parent = arg.object = site->call.object;
	site->warden->device->ops->call(site->warden->device, site->file->fd, RM_ESC_FREE, &arg, sizeof(arg));
	return RETURN(-ENOMEM);
}

/* The owner proxy makes a device: the driver passes the caller's name to the firmware as the name of the
 * client, and logs an error if the two differ. */
static struct answer alloc_plain(struct site *site, enum rm_kind kind)
{
	const struct rm_call *call = &site->call;
	int rc = kind == RM_KIND_DEVICE ? site_perform_as_owner(site) : site_perform(site);

	if (rc || site_status_of(site))
		return RETURN(rc);
	if (ledger_add(site->warden->ledger, call->client, call->parent, call->object, call->class_id, kind,
		       0))
		return RETURN(0);
	site_undo(site);
	return RETURN(-ENOMEM);
}

static struct answer alloc_sysmem(struct site *site)
{
	uint32_t bytes_at = site->warden->device->layout->memory_bytes;
	uint64_t bytes = 0;
	struct answer answer = alloc_plain(site, RM_KIND_SYSMEM);
	struct ledger_object *object =
		ledger_find(site->warden->ledger, site->call.client, site->call.object);

	if (answer.value || site_status_of(site) || !object)
		return answer;
	if (site->params.bytes >= bytes_at + sizeof(bytes))
		memcpy(&bytes, site->params.now + bytes_at, sizeof(bytes));
	object->bytes = bytes;
	return answer;
}

static struct answer alloc_device(struct site *site)
{
	const struct rm_layout *layout = site->warden->device->layout;
	struct answer answer;
	uint32_t instance = 0;

	if (site->params.bytes >= layout->device_instance + sizeof(instance))
		memcpy(&instance, site->params.now + layout->device_instance, sizeof(instance));
	if (instance != site->warden->device->instance)
		return site_refuse(site, RM_ERR_INVALID_DEVICE, "the GPU is not the one of this vGPU");
	/* Channels are stopped through the subdevice of their device. With one device in a client there is
	 * only one candidate. */
	if (ledger_has_class(site->warden->ledger, site->call.client, site->call.class_id))
		return site_refuse(site, RM_ERR_INSUFFICIENT_RESOURCES, "the client has a device already");
	answer = alloc_plain(site, RM_KIND_DEVICE);
	if (!answer.value && !site_status_of(site))
		client_find(site->warden, site->call.client)->device = site->call.object;
	return answer;
}

/* The driver allows a client one subdevice for each device. */
static struct answer alloc_subdevice(struct site *site)
{
	struct answer answer = alloc_plain(site, RM_KIND_SUBDEVICE);

	if (!answer.value && !site_status_of(site))
		client_find(site->warden, site->call.client)->subdevice = site->call.object;
	return answer;
}

/* The warden makes no doorbell object in the driver, so none can be mapped. */
static struct answer alloc_doorbell(struct site *site)
{
	const struct rm_call *call = &site->call;

	if (!call->object)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a doorbell without a handle");
	if (!ledger_find(site->warden->ledger, call->client, call->parent))
		return site_refuse(site, RM_ERR_INVALID_OBJECT_PARENT, "a doorbell without a known parent");
	if (!ledger_add(site->warden->ledger, call->client, call->parent, call->object, call->class_id,
			RM_KIND_DOORBELL, 0))
		return RETURN(-ENOMEM);
	return site_status(site, RM_OK);
}

/* An engine belongs to a channel, and the ledger has all channels. */
static struct answer alloc_engine(struct site *site)
{
	struct ledger_object *parent =
		ledger_find(site->warden->ledger, site->call.client, site->call.parent);

	if (!parent || parent->kind != RM_KIND_CHANNEL)
		return site_refuse(site, RM_ERR_INVALID_OBJECT_PARENT, "an engine on an unknown channel");
	return alloc_plain(site, RM_KIND_ENGINE);
}

/* A CUDA context has one or more channel groups. */
static struct answer alloc_group(struct site *site)
{
	struct warden_ctx_ask ask;
	struct answer answer;

	if (!site_may_add_group(site, &ask))
		return site_refuse(site, RM_ERR_INSUFFICIENT_RESOURCES, "the policy refused a new context");
	answer = alloc_plain(site, RM_KIND_GROUP);
	if (!answer.value && !site_status_of(site))
		group_begin(ledger_find(site->warden->ledger, site->call.client, site->call.object), &ask);
	return answer;
}

static struct answer alloc_known(struct site *site, enum rm_kind kind)
{
	switch (kind) {
	case RM_KIND_VIDMEM:
		return site_alloc_vidmem(site);
	case RM_KIND_SYSMEM:
		return alloc_sysmem(site);
	case RM_KIND_DEVICE:
		return alloc_device(site);
	case RM_KIND_ENGINE:
		return alloc_engine(site);
	case RM_KIND_SUBDEVICE:
		return alloc_subdevice(site);
	case RM_KIND_DOORBELL:
		return alloc_doorbell(site);
	case RM_KIND_GROUP:
		return alloc_group(site);
	case RM_KIND_CHANNEL:
		return site_alloc_channel(site);
	default:
		return alloc_plain(site, kind);
	}
}

static bool names_known_clients(const struct site *site, const struct rm_class *class)
{
	for (unsigned i = 0; i < sizeof(class->client_at) / sizeof(class->client_at[0]); i++)
		if (!site_names_known_client(site, &site->params, class->client_at[i]))
			return false;
	return true;
}

static struct answer alloc_call(struct site *site)
{
	struct device *device = site->warden->device;
	const struct rm_class *class = rm_class_find(site->call.class_id);
	bool is_extra = device->ops->permits && device->ops->permits(site->call.class_id);

	if (site->call.flags & FLAG_SERIALIZED)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "serialized parameters");
	if (class->kind == RM_KIND_ROOT)
		return alloc_root(site);
	/* Pages are named by an address in the caller, and the caller would be the GPU server. */
	if (!is_extra && (class->kind == RM_KIND_REFUSED || class->kind == RM_KIND_OS_MEMORY))
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, class->name);
	if (!client_of(site) || !names_known_clients(site, class))
		return unknown_client(site);
	if (site->call.object && ledger_find(site->warden->ledger, site->call.client, site->call.object))
		return site_refuse(site, RM_ERR_INSERT_DUPLICATE_NAME, "a handle that is in use");
	return alloc_known(site, is_extra ? RM_KIND_OTHER : class->kind);
}

/* The GPU time of a group is read before the group is freed, alone or with its device or client. */
static bool may_hold_groups(const struct ledger_object *object)
{
	return object && (object->kind == RM_KIND_GROUP || object->kind == RM_KIND_DEVICE ||
			  object->kind == RM_KIND_ROOT);
}

static struct answer free_call(struct site *site)
{
	const struct rm_call *call = &site->call;
	struct ledger_object *object = ledger_find(site->warden->ledger, call->client, call->object);
	struct client *client = client_of(site);
	int rc;

	if (!client)
		return unknown_client(site);
	if (object && object->kind == RM_KIND_DOORBELL) {
		ledger_remove(site->warden->ledger, call->client, call->object);
		return site_status(site, RM_OK);
	}
	/* Channels are stopped through the subdevice. A device that is freed takes its subdevice and its
	 * channels with it. */
	if (call->object == client->subdevice && client_has_channels(site->warden, client))
		return site_refuse(site, RM_ERR_STATE_IN_USE, "the client still has channels");
	if (may_hold_groups(object))
		groups_ask_time(site->warden, client);
	rc = site_perform(site);
	if (rc || site_status_of(site))
		return RETURN(rc);
	if (call->object == call->client)
		client_gone(site->warden, client);
	else
		ledger_remove(site->warden->ledger, call->client, call->object);
	return RETURN(0);
}

/* The old heap interface. Current libraries allocate memory as an object of class 0x40, and register their
 * own pages by ALLOC_MEMORY. */
static struct answer heap_call(struct site *site)
{
	enum { INFO_TOTAL_AT = 24, INFO_FREE_AT = 32 };
	struct ledger *ledger = site->warden->ledger;
	uint64_t total = ledger_limit(ledger) ? ledger_limit(ledger) : UINT64_MAX, room = ledger_room(ledger);
	uint64_t all, left;
	int rc;

	if (site->call.class_id == RM_HEAP_FREE)
		return free_call(site);
	if (site->call.class_id != RM_HEAP_INFO || !client_of(site))
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "memory through VID_HEAP_CONTROL");
	rc = site_perform(site);
	if (rc || site_status_of(site))
		return RETURN(rc);
	memcpy(&all, site->arg.now + INFO_TOTAL_AT, sizeof(all));
	memcpy(&left, site->arg.now + INFO_FREE_AT, sizeof(left));
	bf_put64(site->arg.now + INFO_TOTAL_AT, total < all ? total : all);
	bf_put64(site->arg.now + INFO_FREE_AT, room < left ? room : left);
	return RETURN(0);
}

/* The driver pins pages of the calling address space, so the kernel makes this call. Another thread can
 * change the arguments before the kernel reads them. That is harmless (docs/security.md): the driver accepts
 * the call on a GPU file only, it makes host memory or nothing unless the caller is root, and it names
 * objects of clients that the vGPU owns. */
static struct answer alloc_memory_call(struct site *site)
{
	enum rm_kind kind = rm_class_find(site->call.class_id)->kind;

	if (kind == RM_KIND_OS_MEMORY && site->kind == DEVICE_FILE_GPU)
		return CONTINUE;
	return site_refuse(site, RM_ERR_NOT_SUPPORTED, "memory through ALLOC_MEMORY");
}

/* Registers a GPU file, or a control file for events, with a control file. The driver then keeps the control
 * file open as long as the other file, and the warden is not notified when that one is closed. So nothing
 * may stay in the control file: clients are freed by handle (file.c), and exports into such a file are
 * refused. */
static struct answer register_call(struct site *site)
{
	struct devfile *control = site->named;
	int rc;

	if (!control || control->kind != DEVICE_FILE_CONTROL || !LIST_EMPTY(&control->kept))
		return RETURN(-EINVAL);
	memcpy(site->arg.now, &control->fd, sizeof(control->fd));
	rc = site_perform(site);
	memcpy(site->arg.now, site->arg.before, sizeof(int));
	if (rc)
		return RETURN(rc);
	control->is_linked = true;
	if (site->file)
		site->file->linked_to = control->serial;
	return RETURN(0);
}

/* The library reports to the driver where it has mapped an object. The driver has no object for a
 * doorbell. */
static struct answer mapping_info_call(struct site *site)
{
	enum { MEMORY_AT = 8 }; /* NVOS56 */
	uint32_t memory;

	memcpy(&memory, site->arg.now + MEMORY_AT, sizeof(memory));
	if (site_is_doorbell(site, memory))
		return site_status(site, RM_OK);
	return client_of(site) ? RETURN(site_perform_as_owner(site)) : unknown_client(site);
}

static struct answer unmap_call(struct site *site)
{
	if (site_is_doorbell(site, site->call.object))
		return site_status(site, RM_OK);
	return client_of(site) ? RETURN(site_perform_as_owner(site)) : unknown_client(site);
}

/* Calls whose arguments hold values only. A call on a GPU file that does not depend on the file is made on
 * the GPU server's own GPU file. */
static struct answer plain_call(struct site *site)
{
	struct device *device = site->warden->device;

	if (site->call.client && !client_of(site))
		return unknown_client(site);
	if (site->file || site->gpu_fd >= 0)
		return RETURN(site_perform(site));
	return RETURN(
		device->ops->call(device, device->gpu_fd, site->call.nr, site->arg.now, site->call.size));
}

/* A program waits for events with poll. On a GPU file it polls the driver's file. On a control file it polls
 * the warden's pipe, which becomes readable when the driver's file does. */
static struct answer event_call(struct site *site)
{
	struct answer answer = plain_call(site);

	if (answer.value)
		return answer;
	if (!site->file) {
		if (site->call.nr == RM_ESC_ALLOC_OS_EVENT && site->fd < PROCESS_FILES)
			site->process->event_files[site->fd / 64] |= 1ull << site->fd % 64;
		return answer;
	}
	if (site->call.nr == RM_ESC_ALLOC_OS_EVENT)
		devfile_watch_events(site->warden, site->file);
	else
		devfile_take_event(site->warden, site->file);
	return answer;
}

static bool names_own_handle(const struct rm_call *call)
{
	return is_own_handle(call->object) || is_own_handle(call->parent) ||
	       is_own_handle(call->source_object);
}

struct answer site_call(struct site *site)
{
	if (names_own_handle(&site->call))
		return site_refuse(site, RM_ERR_INVALID_OBJECT_HANDLE, "the handle is reserved for Belfry");
	switch (site->call.verb) {
	case RM_VERB_ALLOC:
		return alloc_call(site);
	case RM_VERB_FREE:
		return free_call(site);
	case RM_VERB_CONTROL:
		return client_of(site) ? site_control_call(site) : unknown_client(site);
	case RM_VERB_ALLOC_MEMORY:
		return alloc_memory_call(site);
	case RM_VERB_VID_HEAP:
		return heap_call(site);
	case RM_VERB_DUP:
		return client_of(site) ? site_duplicate(site) : unknown_client(site);
	case RM_VERB_MAP_MEMORY:
		return client_of(site) ? site_map_memory(site) : unknown_client(site);
	case RM_VERB_UNMAP_MEMORY:
		return unmap_call(site);
	case RM_VERB_REGISTER_FD:
		return register_call(site);
	case RM_VERB_REFUSED:
		return site_refuse(site, RM_ERR_NOT_SUPPORTED,
				   "the call would allocate memory that is not counted");
	default:
		break;
	}
	switch (site->call.nr) {
	case RM_ESC_ALLOC_OS_EVENT:
	case RM_ESC_GET_EVENT_DATA:
		return event_call(site);
	case RM_ESC_UPDATE_DEVICE_MAPPING_INFO:
		return mapping_info_call(site);
	case RM_ESC_SHARE: /* clients of one vGPU share objects already, and others must not get access */
		return client_of(site) ? site_status(site, RM_OK) : unknown_client(site);
	default:
		return plain_call(site);
	}
}
