/* Driver calls, one handler a verb. The rule: what makes memory, channels or doorbells is done here, on a copy
 * of the arguments that the program cannot change any more, or refused. What passes can do neither. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "warden/state.h"

enum {
	PARAMS_AT = 16,		    /* of ALLOC and CONTROL */
	RIGHTS_AT = 24,		    /* of ALLOC's longer form */
	MAPPING_INFO_MEMORY_AT = 8, /* NVOS56 */
	MAPPING_INFO_STATUS_AT = 32,
	FLAG_SERIALIZED = 1, /* NVOS64: the parameters are in another form */
	PARAMS_MAX = 64 << 10,
	PARAMS_GUESS = 4 << 10, /* where the caller leaves the size to the driver and we do not know it */
};

uint32_t site_status_of(const struct site *site)
{
	uint32_t status = 0;

	if (site->call.status_at >= 0)
		memcpy(&status, site->arg + site->call.status_at, sizeof(status));
	return status;
}

struct answer site_status(struct site *site, uint32_t status)
{
	if (site->call.status_at < 0)
		return RETURN(status ? -EINVAL : 0);
	memcpy(site->arg + site->call.status_at, &status, sizeof(status));
	if (site_poke(site, site->arg_at + (uint64_t)site->call.status_at, &status, sizeof(status)))
		return RETURN(-EFAULT);
	return RETURN(0);
}

struct answer site_refuse(struct site *site, uint32_t status, const char *why)
{
	site->warden->refusals++;
	bf_log(BF_LOG_INFO, "process %d: call 0x%x class 0x%x refused: %s", site->process->pid, site->call.nr,
	       site->call.class_id, why);
	return site_status(site, status);
}

int site_poke_changes(struct site *site, uint64_t at, const uint8_t *before, const uint8_t *after,
		      size_t bytes)
{
	size_t from = 0, to = bytes;

	while (from < to && before[from] == after[from])
		from++;
	while (to > from && before[to - 1] == after[to - 1])
		to--;
	return from == to ? 0 : site_poke(site, at + from, after + from, to - from);
}

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

int site_perform(struct site *site, void *params, uint32_t params_size)
{
	struct device *device = site->warden->device;
	const struct rm_call *call = &site->call;
	cleanup_close int file = site_take_file(site, site->fd);
	cleanup_free uint8_t *before = params_size ? malloc(params_size) : NULL;
	uint8_t arg[RM_ARG_MAX];
	uint32_t rights[16] = { 0 };
	struct stat st;
	int rc;

	if (file < 0)
		return file;
	/* Another thread may have put another file in its place since we looked. */
	if (fstat(file, &st) || device->ops->classify(device, &st) != site->file)
		return -EBADF;
	if (params_size && !before)
		return -ENOMEM;
	memcpy(arg, site->arg, call->size);
	if (params_size) {
		memcpy(before, params, params_size);
		put64(arg + PARAMS_AT, (uintptr_t)params);
	}
	if (call->rights) {
		if (site_peek(site, call->rights, rights, sizeof(rights[0])))
			return -EFAULT;
		put64(arg + RIGHTS_AT, (uintptr_t)rights);
	}
	rc = device->ops->call(device, file, call->nr, arg, call->size);
	if (rc)
		return rc;
	if (params_size)
		put64(arg + PARAMS_AT, call->params);
	if (call->rights)
		put64(arg + RIGHTS_AT, call->rights);
	/* What was done is done, whether the program can be told or not: the caller must note it in either case. */
	if (site_poke_changes(site, site->arg_at, site->arg, arg, call->size) ||
	    (params_size && site_poke_changes(site, call->params, before, params, params_size)))
		site->is_untold = true;
	memcpy(site->arg, arg, call->size);
	if (call->object_at >= 0)
		memcpy(&site->call.object, arg + call->object_at, sizeof(uint32_t));
	return 0;
}

uint8_t *site_take_params(struct site *site, uint32_t *size, int *rc)
{
	const struct rm_call *call = &site->call;
	int usual = rm_class_params_size(site->warden->device->layout, call->class_id);
	bool is_guess = !call->params_size && (call->verb != RM_VERB_ALLOC || usual < 0);
	uint8_t *params;

	*rc = 0;
	*size = call->params_size ? call->params_size : is_guess ? PARAMS_GUESS : (uint32_t)usual;
	if (!call->params || !*size) {
		*size = 0;
		return NULL;
	}
	if (*size > PARAMS_MAX) {
		*rc = -EINVAL;
		return NULL;
	}
	params = calloc(1, *size + PARAMS_GUESS);
	if (!params) {
		*rc = -ENOMEM;
		return NULL;
	}
	if (is_guess) /* as much of it as there is */
		while (*size > 8 && site_peek(site, call->params, params, *size))
			*size /= 2;
	else if (site_peek(site, call->params, params, *size))
		*rc = -EFAULT;
	if (*rc) {
		free(params);
		return NULL;
	}
	return params;
}

/* Make the object. True if there is one now; *answer is what the program hears either way. */
static bool perform_made(struct site *site, uint8_t *params, uint32_t size, struct answer *answer)
{
	int rc = site_perform(site, params, size);

	*answer = RETURN(rc);
	if (rc || site_status_of(site))
		return false;
	if (client_seen(site))
		return true;
	*answer = RETURN(-ENOMEM);
	return false;
}

void site_undo(struct site *site)
{
	struct rm_arg_free arg = { .client = site->call.client,
				   .parent = site->call.parent,
				   .object = site->call.object };
	cleanup_close int file = site_take_file(site, site->fd);

	if (file >= 0)
		site->warden->device->ops->call(site->warden->device, file, RM_ESC_FREE, &arg, sizeof(arg));
}

static struct answer note(struct site *site, enum rm_kind kind, uint64_t bytes)
{
	const struct rm_call *call = &site->call;
	struct ledger_object *object = ledger_add(site->warden->ledger, call->client, call->parent,
						  call->object, call->class_id, kind, bytes);

	if (object)
		return RETURN(0);
	site_undo(site);
	return RETURN(-ENOMEM);
}

static struct answer alloc_plain(struct site *site, enum rm_kind kind, uint8_t *params, uint32_t size)
{
	struct answer answer;

	return perform_made(site, params, size, &answer) ? note(site, kind, 0) : answer;
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* Whether `bytes` more fit, looking hard before saying no. */
static bool has_room(struct warden *warden, uint64_t bytes)
{
	if (bytes <= ledger_room(warden->ledger))
		return true;
	warden_reconcile(warden);
	return bytes <= ledger_room(warden->ledger);
}

static struct answer refuse_memory(struct site *site, uint64_t bytes)
{
	struct ledger *ledger = site->warden->ledger;

	bf_log(BF_LOG_INFO, "process %d: %llu bytes refused: %llu of %llu are in use", site->process->pid,
	       (unsigned long long)bytes, (unsigned long long)ledger_used(ledger),
	       (unsigned long long)ledger_limit(ledger));
	site->warden->refusals++;
	return site_status(site, RM_ERR_NO_MEMORY);
}

/* Device memory. The driver rounds sizes up, so the last word is the size it returns. */
static struct answer alloc_vidmem(struct site *site, uint8_t *params, uint32_t size)
{
	struct warden *warden = site->warden;
	uint32_t bytes_at = warden->device->layout->memory_bytes;
	struct answer answer;
	uint64_t bytes;
	bool fits;

	if (!params || size < bytes_at + sizeof(uint64_t))
		return site_refuse(site, RM_ERR_INVALID_ARGUMENT, "memory without a size");
	bytes = get64(params + bytes_at);
	fits = has_room(warden, bytes);
	if (!fits && site_waits_for_room(site, bytes))
		return (struct answer){ ANSWER_LATER, 0 };
	if (!fits || !site_may_have(site, bytes))
		return refuse_memory(site, bytes);
	if (!perform_made(site, params, size, &answer))
		return answer;
	bytes = get64(params + bytes_at);
	if (!has_room(warden, bytes)) {
		site_undo(site);
		return refuse_memory(site, bytes);
	}
	return note(site, RM_KIND_VIDMEM, bytes);
}

static struct answer alloc_sysmem(struct site *site, uint8_t *params, uint32_t size)
{
	uint32_t bytes_at = site->warden->device->layout->memory_bytes;
	struct answer answer;

	if (!perform_made(site, params, size, &answer))
		return answer;
	return note(site, RM_KIND_SYSMEM, size >= bytes_at + sizeof(uint64_t) ? get64(params + bytes_at) : 0);
}

static struct answer alloc_device(struct site *site, uint8_t *params, uint32_t size)
{
	const struct rm_layout *layout = site->warden->device->layout;
	struct answer answer;
	uint32_t instance = 0;

	if (params && size >= layout->device_instance + sizeof(instance))
		memcpy(&instance, params + layout->device_instance, sizeof(instance));
	if (instance != site->warden->device->instance)
		return site_refuse(site, RM_ERR_INVALID_DEVICE, "another GPU than this vGPU's");
	if (!perform_made(site, params, size, &answer))
		return answer;
	client_find(site->warden, site->call.client)->device = site->call.object;
	return note(site, RM_KIND_DEVICE, 0);
}

static struct answer alloc_subdevice(struct site *site, uint8_t *params, uint32_t size)
{
	struct answer answer;

	if (!perform_made(site, params, size, &answer))
		return answer;
	client_find(site->warden, site->call.client)->subdevice = site->call.object;
	return note(site, RM_KIND_SUBDEVICE, 0);
}

/* The doorbell object is ours to answer for: none is made, so none can be mapped. */
static struct answer alloc_doorbell(struct site *site)
{
	struct rm_call *call = &site->call;

	if (!client_find(site->warden, call->client))
		return site_refuse(site, RM_ERR_INVALID_CLIENT, "a doorbell for an unknown client");
	if (!call->object)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a doorbell without a handle");
	struct answer answer = note(site, RM_KIND_DOORBELL, 0);
	return answer.value ? answer : site_status(site, RM_OK);
}

/* Engines live on channels, and all channels are known. */
static struct answer alloc_engine(struct site *site, uint8_t *params, uint32_t size)
{
	struct ledger_object *parent =
		ledger_find(site->warden->ledger, site->call.client, site->call.parent);

	if (!parent || parent->kind != RM_KIND_CHANNEL)
		return site_refuse(site, RM_ERR_INVALID_OBJECT_PARENT, "an engine on an unknown channel");
	return alloc_plain(site, RM_KIND_ENGINE, params, size);
}

/* A channel group: what CUDA calls a context has one or more. */
static struct answer alloc_group(struct site *site, uint8_t *params, uint32_t size)
{
	struct warden_ctx_ask ask;
	struct answer answer;

	if (!site_may_begin(site, &ask))
		return site_refuse(site, RM_ERR_INSUFFICIENT_RESOURCES, "another context is not to be");
	answer = alloc_plain(site, RM_KIND_GROUP, params, size);
	if (!answer.value && !site_status_of(site))
		group_begin(ledger_find(site->warden->ledger, site->call.client, site->call.object), &ask);
	return answer;
}

static struct answer alloc_call(struct site *site)
{
	const struct rm_class *class = rm_class_find(site->call.class_id);
	cleanup_free uint8_t *params = NULL;
	uint32_t size;
	int rc;

	if (class->kind == RM_KIND_ROOT)
		return site_alloc_root(site);
	/* Pages of the caller's are named by their address, and the caller would be us. */
	if (class->kind == RM_KIND_REFUSED || class->kind == RM_KIND_OS_MEMORY)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, class->name);
	if (site->call.flags & FLAG_SERIALIZED)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "serialized parameters");
	params = site_take_params(site, &size, &rc);
	if (rc)
		return RETURN(rc);
	switch (class->kind) {
	case RM_KIND_VIDMEM:
		return alloc_vidmem(site, params, size);
	case RM_KIND_SYSMEM:
		return alloc_sysmem(site, params, size);
	case RM_KIND_DEVICE:
		return alloc_device(site, params, size);
	case RM_KIND_ENGINE:
		return alloc_engine(site, params, size);
	case RM_KIND_SUBDEVICE:
		return alloc_subdevice(site, params, size);
	case RM_KIND_DOORBELL:
		return alloc_doorbell(site);
	case RM_KIND_GROUP:
		return alloc_group(site, params, size);
	case RM_KIND_CHANNEL:
		return site_alloc_channel(site, params, size);
	default:
		return alloc_plain(site, class->kind, params, size);
	}
}

/* What a group has had of the GPU is asked for before it goes, alone or with what it is part of. */
static bool may_hold_groups(const struct ledger_object *object)
{
	return object && (object->kind == RM_KIND_GROUP || object->kind == RM_KIND_DEVICE ||
			  object->kind == RM_KIND_ROOT);
}

static struct answer free_call(struct site *site)
{
	const struct rm_call *call = &site->call;
	struct ledger_object *object = ledger_find(site->warden->ledger, call->client, call->object);
	struct client *client = client_find(site->warden, call->client);
	int rc;

	if (object && object->kind == RM_KIND_DOORBELL) {
		ledger_remove(site->warden->ledger, call->client, call->object);
		return site_status(site, RM_OK);
	}
	if (client && may_hold_groups(object))
		groups_ask_time(site->warden, client);
	rc = site_perform(site, NULL, 0);
	if (rc || site_status_of(site))
		return RETURN(rc);
	if (client && call->object == call->client)
		client_gone(site->warden, client);
	else if (call->object == call->client)
		root_answered(site->warden, site->process->pid);
	else
		ledger_remove(site->warden->ledger, call->client, call->object);
	return RETURN(0);
}

/* Another name for an object of any client that lets us. Memory that we do not know yet is as large as the
 * driver says it is. */
static struct answer dup_call(struct site *site)
{
	struct warden *warden = site->warden;
	const struct rm_call *call = &site->call;
	uint64_t before, after;
	struct ledger_object *source, *object;
	int rc;

	/* The pages that the GPU reads GP_PUT from are ours: with a name for one a program could submit past the gate. */
	if (call->source_client == warden->device->client)
		return site_refuse(site, RM_ERR_INVALID_CLIENT, "an object of ours");
	before = warden_driver_bytes(warden, site->process->pid);
	rc = site_perform(site, NULL, 0);
	if (rc || site_status_of(site))
		return RETURN(rc);
	if (!client_seen(site))
		return RETURN(-ENOMEM);
	source = ledger_find(warden->ledger, call->source_client, call->source_object);
	if (source) {
		object = ledger_add_duplicate(warden->ledger, call->client, call->parent, call->object,
					      source);
		return RETURN(object ? 0 : -ENOMEM);
	}
	after = warden_driver_bytes(warden, site->process->pid);
	if (after > before)
		object = ledger_add_import(warden->ledger, call->client, call->parent, call->object, 0,
					   after - before);
	else
		object = ledger_add(warden->ledger, call->client, call->parent, call->object, 0,
				    RM_KIND_OTHER, 0);
	return RETURN(object ? 0 : -ENOMEM);
}

enum {
	IMPORT_FD_AT = 0,      /* both forms */
	IMPORT_PARENT_AT = 12, /* NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS */
	IMPORT_OBJECT_AT = 16,
	IMPORT_SIZE = 20,
	IMPORTS_PARENT_AT = 4, /* NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS */
	IMPORTS_OBJECTS_AT = 8,
	IMPORTS_MAX = 128,
	IMPORTS_COUNT_AT = 8 + 4 * IMPORTS_MAX + IMPORTS_MAX,
	IMPORTS_SIZE = IMPORTS_COUNT_AT + 4,
};

/* Note what an import made: the bytes are the driver's; with several objects at once they are shared out, since
 * it is their sum that is charged. */
static int note_imports(struct site *site, const uint8_t *params, uint64_t bytes)
{
	struct ledger *ledger = site->warden->ledger;
	bool is_many = site->call.class_id == RM_CTRL_IMPORT_OBJECTS_FROM_FD;
	uint16_t count = 1;
	uint32_t parent, object;

	memcpy(&parent, params + (is_many ? IMPORTS_PARENT_AT : IMPORT_PARENT_AT), sizeof(parent));
	if (is_many)
		memcpy(&count, params + IMPORTS_COUNT_AT, sizeof(count));
	for (unsigned i = 0; i < count && i < IMPORTS_MAX; i++) {
		uint64_t part = i + 1 == count ? bytes : bytes / count;

		memcpy(&object, params + (is_many ? IMPORTS_OBJECTS_AT + 4 * i : IMPORT_OBJECT_AT),
		       sizeof(object));
		if (part ? !ledger_add_import(ledger, site->call.client, parent, object, 0, part)
			 : !ledger_add(ledger, site->call.client, parent, object, 0, RM_KIND_OTHER, 0))
			return -ENOMEM;
		bytes -= i + 1 == count ? bytes : part;
	}
	return 0;
}

/* Memory that another process exported into a file. The file's number is the program's; ours is another. */
static struct answer import_call(struct site *site)
{
	uint32_t expected = site->call.class_id == RM_CTRL_IMPORT_OBJECT_FROM_FD ? IMPORT_SIZE : IMPORTS_SIZE;
	uint64_t before = warden_driver_bytes(site->warden, site->process->pid), after;
	uint8_t params[IMPORTS_SIZE];
	int theirs, rc;

	if (site->call.params_size != expected || site_peek(site, site->call.params, params, expected))
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	memcpy(&theirs, params + IMPORT_FD_AT, sizeof(theirs));
	cleanup_close int ours = site_take_file(site, theirs);
	if (ours < 0)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	memcpy(params + IMPORT_FD_AT, &ours, sizeof(ours));
	rc = site_perform(site, params, expected);
	if (rc || site_status_of(site))
		return RETURN(rc);
	if (!client_seen(site))
		return RETURN(-ENOMEM);
	after = warden_driver_bytes(site->warden, site->process->pid);
	return RETURN(note_imports(site, params, after > before ? after - before : 0));
}

static struct answer token_call(struct site *site)
{
	struct client *client;
	uint32_t token;
	int rc;

	if (site->call.params_size != sizeof(token) ||
	    site_peek(site, site->call.params, &token, sizeof(token)))
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	rc = site_perform(site, &token, sizeof(token));
	client = client_find(site->warden, site->call.client);
	if (!rc && !site_status_of(site) && client)
		channel_learn_token(site->warden, client, site->call.object);
	return RETURN(rc);
}

static bool is_doorbell(const struct site *site, uint32_t memory)
{
	struct ledger_object *object = ledger_find(site->warden->ledger, site->call.client, memory);

	return object && object->kind == RM_KIND_DOORBELL;
}

/* "Which file maps this object?" The driver has never heard of our doorbells: registers, through the GPU file. */
static struct answer address_space_call(struct site *site)
{
	enum { OBJECT_AT = 0, TYPE_AT = 8, SIZE = 12, REGISTERS = 3 };
	uint32_t object, type = REGISTERS;

	if (site->call.params_size != SIZE ||
	    site_peek(site, site->call.params + OBJECT_AT, &object, sizeof(object)) ||
	    !is_doorbell(site, object))
		return PASS;
	if (site_poke(site, site->call.params + TYPE_AT, &type, sizeof(type)))
		return RETURN(-EFAULT);
	return site_status(site, RM_OK);
}

/* The driver waits for the channels under the GPU's lock, for as long as the caller says: everybody's calls, and our
 * stops, would wait with it. No library asks. */
static struct answer refuse_idle(struct site *site)
{
	return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a wait under the GPU's lock");
}

enum {
	PREEMPTION_SIZE =
		32, /* NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS: flags, channel, graphics, compute... */
	PREEMPTION_FLAGS_AT = 0,
	PREEMPTION_COMPUTE_AT = 12,
	PREEMPTION_SETS_COMPUTE = 1,
	PREEMPTION_ANYWHERE =
		2, /* in mid-kernel; less waits for blocks or kernels to end (measured, docs/driver.md) */
};

/* A program whose kernels cannot be interrupted could not be stopped, and would keep everybody else waiting. libcuda sets
 * what we want; whoever wants less is told that it has it. */
static struct answer preemption_call(struct site *site)
{
	uint8_t params[PREEMPTION_SIZE];
	uint32_t flags, compute, anywhere = PREEMPTION_ANYWHERE;

	/* Of another size or out of reach: the driver says what is wrong with it. */
	if (site->call.params_size != sizeof(params) ||
	    site_peek(site, site->call.params, params, sizeof(params)))
		return PASS;
	memcpy(&flags, params + PREEMPTION_FLAGS_AT, sizeof(flags));
	memcpy(&compute, params + PREEMPTION_COMPUTE_AT, sizeof(compute));
	if (!(flags & PREEMPTION_SETS_COMPUTE) || compute == PREEMPTION_ANYWHERE)
		return PASS;
	memcpy(params + PREEMPTION_COMPUTE_AT, &anywhere, sizeof(anywhere));
	return RETURN(site_perform(site, params, sizeof(params)));
}

static struct answer control_call(struct site *site)
{
	switch (site->call.class_id) {
	case RM_CTRL_ROOT_GET_ADDRESS_SPACE:
		return address_space_call(site);
	case RM_CTRL_GROUP_SCHEDULE:
	case RM_CTRL_GROUP_SET_TIMESLICE:
	case RM_CTRL_GROUP_SET_INTERLEAVE:
		return site_group_control(site);
	case RM_CTRL_DISABLE_CHANNELS:	       /* would undo a hard stop */
	case RM_CTRL_FIFO_UPDATE_CHANNEL_INFO: /* would point a channel back at the program's own USERD */
		return site_refuse(site, RM_ERR_INSUFFICIENT_PERMISSIONS, "a control that moves channels");
	case RM_CTRL_SET_PREEMPTION:
		return preemption_call(site);
	case RM_CTRL_ROOT_IDLE_CHANNELS:
	case RM_CTRL_FIFO_IDLE_CHANNELS:
		return refuse_idle(site);
	case RM_CTRL_GROUP_MAKE_REALTIME:
	case RM_CTRL_CHANNEL_SET_INTERLEAVE:
		return site_refuse(site, RM_ERR_INSUFFICIENT_PERMISSIONS,
				   "a control that changes its turn on the GPU");
	case RM_CTRL_CHANNEL_GET_TOKEN:
		return token_call(site);
	case RM_CTRL_IMPORT_OBJECT_FROM_FD:
	case RM_CTRL_IMPORT_OBJECTS_FROM_FD:
		return import_call(site);
	default:
		return told_is_mine(site->call.class_id) ? site_told(site) : PASS;
	}
}

static struct answer map_call(struct site *site)
{
	struct ledger_object *object =
		ledger_find(site->warden->ledger, site->call.client, site->call.object);

	if (object && object->kind == RM_KIND_DOORBELL)
		return site_map_doorbell(site);
	if (object && object->kind == RM_KIND_CHANNEL)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED,
				   "a channel's control page in the driver's memory");
	return PASS;
}

/* The library tells the driver where it has mapped something. For a doorbell there is nothing to tell. */
static struct answer mapping_info_call(struct site *site)
{
	uint32_t memory;

	memcpy(&memory, site->arg + MAPPING_INFO_MEMORY_AT, sizeof(memory));
	if (!is_doorbell(site, memory))
		return PASS;
	site->call.status_at = MAPPING_INFO_STATUS_AT;
	return site_status(site, RM_OK);
}

static uint64_t lower(uint64_t ours, const uint8_t *theirs_at)
{
	uint64_t theirs = get64(theirs_at);

	return ours < theirs ? ours : theirs;
}

/* The old heap interface. Libraries in use today allocate memory as an object of class 0x40, and hand over pages
 * of their own by ALLOC_MEMORY; so nothing here need pass, and what does not pass cannot be changed on the way. */
static struct answer heap_call(struct site *site)
{
	enum { INFO_TOTAL_AT = 24, INFO_FREE_AT = 32 };
	struct ledger *ledger = site->warden->ledger;
	uint64_t total = ledger_limit(ledger), room;
	int rc;

	switch (site->call.class_id) {
	case RM_HEAP_FREE:
		return free_call(site);
	case RM_HEAP_INFO:
		rc = site_perform(site, NULL, 0);
		if (rc || site_status_of(site))
			return RETURN(rc);
		total = lower(total ? total : UINT64_MAX, site->arg + INFO_TOTAL_AT);
		room = lower(ledger_room(ledger), site->arg + INFO_FREE_AT);
		if (site_poke(site, site->arg_at + INFO_TOTAL_AT, &total, sizeof(total)) ||
		    site_poke(site, site->arg_at + INFO_FREE_AT, &room, sizeof(room)))
			return RETURN(-EFAULT);
		return RETURN(0);
	default:
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "memory through VID_HEAP_CONTROL");
	}
}

static struct answer alloc_memory_call(struct site *site)
{
	enum rm_kind kind = rm_class_find(site->call.class_id)->kind;

	if (kind == RM_KIND_OS_MEMORY || kind == RM_KIND_SYSMEM)
		return PASS;
	return site_refuse(site, RM_ERR_NOT_SUPPORTED, "device memory through ALLOC_MEMORY");
}

static struct answer dispatch(struct site *site)
{
	if (site->file == DEVICE_FILE_OTHER_GPU)
		return RETURN(-ENODEV);
	site_meet_client(site);
	switch (site->call.verb) {
	case RM_VERB_ALLOC:
		return alloc_call(site);
	case RM_VERB_FREE:
		return free_call(site);
	case RM_VERB_CONTROL:
		return control_call(site);
	case RM_VERB_ALLOC_MEMORY:
		return alloc_memory_call(site);
	case RM_VERB_VID_HEAP:
		return heap_call(site);
	case RM_VERB_DUP:
		return dup_call(site);
	case RM_VERB_MAP_MEMORY:
		return map_call(site);
	case RM_VERB_UNMAP_MEMORY:
		return is_doorbell(site, site->call.object) ? site_status(site, RM_OK) : PASS;
	case RM_VERB_REFUSED:
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a call that goes around the ledger");
	default:
		break;
	}
	switch (site->call.nr) {
	case RM_ESC_UPDATE_DEVICE_MAPPING_INFO:
		return mapping_info_call(site);
	case RM_ESC_IDLE_CHANNELS:
		return refuse_idle(site);
	default:
		return PASS;
	}
}

struct answer site_call(struct site *site)
{
	struct answer answer = dispatch(site);

	return site->is_untold && answer.kind == ANSWER_RETURN ? RETURN(-EFAULT) : answer;
}
