/* The arguments of a call are copied from the program before they are examined, and copied back after the
 * call. The program may change its memory in between: nothing is read twice. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "warden/state.h"

enum {
	ARG_MAX_BYTES = 16384, /* the driver's limit (nv.h) */
	PARAMS_MAX = RM_CONTROL_BYTES_MAX,
	LIST_MAX = 256 << 10,
	EVENT_BYTES = 16,
	PADDING = 4096, /* behind each copy: if the call names no size, a newer driver may write more */
};

static int copy_new(struct copy *copy, uint64_t at, uint32_t bytes)
{
	uint8_t *both = calloc(1, 2 * (size_t)bytes + PADDING);

	if (!both)
		return -ENOMEM;
	*copy = (struct copy){ .at = at, .bytes = bytes, .before = both, .now = both + bytes };
	return 0;
}

static int copy_fetch(struct site *site, struct copy *copy, uint64_t at, uint32_t bytes)
{
	int rc = copy_new(copy, at, bytes);

	if (!rc)
		rc = site_peek(site, at, copy->before, bytes);
	if (!rc)
		memcpy(copy->now, copy->before, bytes);
	return rc;
}

/* Only the bytes that changed: the driver copies out exactly the structure that it knows, and the warden does
 * the same even if it does not know the size. */
static int copy_store(struct site *site, const struct copy *copy)
{
	size_t from = 0, to = copy->bytes;

	while (from < to && copy->before[from] == copy->now[from])
		from++;
	while (to > from && copy->before[to - 1] == copy->now[to - 1])
		to--;
	return from == to ? 0 : site_poke(site, copy->at + from, copy->now + from, to - from);
}

static int fetch_params(struct site *site)
{
	const struct rm_call *call = &site->call;
	int usual = call->verb == RM_VERB_ALLOC
			    ? rm_class_params_size(site->warden->device->layout, call->class_id)
			    : 0;
	uint32_t bytes = call->params_size ? call->params_size : usual > 0 ? (uint32_t)usual : 0;

	if (!call->params || !bytes)
		return 0;
	return bytes > PARAMS_MAX ? -EINVAL : copy_fetch(site, &site->params, call->params, bytes);
}

/* A list behind a pointer in the parameters. There is no list if the pointer or the count is 0. */
static int fetch_list(struct site *site, const struct rm_pointer *pointer, struct copy *list)
{
	const struct copy *params = &site->params;
	uint32_t count = 0;
	uint64_t at = 0, bytes;

	if (pointer->at + sizeof(at) > params->bytes || pointer->count_at + sizeof(count) > params->bytes)
		return -EINVAL;
	memcpy(&at, params->before + pointer->at, sizeof(at));
	memcpy(&count, params->before + pointer->count_at, sizeof(count));
	if (!at || !count)
		return 0;
	if (count > pointer->count_max)
		return -EINVAL;
	bytes = (uint64_t)count * pointer->entry_bytes * (pointer->power == 2 ? count : 1);
	return bytes > LIST_MAX ? -EINVAL : copy_fetch(site, list, at, (uint32_t)bytes);
}

static int fetch_control(struct site *site)
{
	int rc;

	site->control = rm_control_find(site->warden->device->layout, site->call.class_id);
	site->is_permitted = !site->control && site_permits(site);
	if (site->control ? site->control->way == RM_WAY_REFUSED || site->control->way == RM_WAY_ANSWERED
			  : !site->is_permitted)
		return 0;
	rc = fetch_params(site);
	for (unsigned i = 0; !rc && site->control && i < site->control->pointer_count; i++)
		rc = fetch_list(site, &site->control->pointers[i], &site->lists[i]);
	return rc;
}

static int fetch_alloc(struct site *site)
{
	int rc = fetch_params(site);

	if (!rc && site->call.rights)
		rc = site_peek(site, site->call.rights, site->rights, sizeof(site->rights[0]));
	site_fetch_user(site);
	return rc;
}

/* The driver writes an event here: 16 bytes, NvUnixEvent. It reads nothing. */
static int fetch_event(struct site *site)
{
	uint64_t at;

	memcpy(&at, site->arg.before, sizeof(at));
	return copy_new(&site->params, at, EVENT_BYTES);
}

/* The descriptor that the call names. A control file that the warden does not know yet is replaced by a pipe:
 * it was not used before, so it has no state. */
static int fetch_named(struct site *site)
{
	int at = site->control ? site->control->fd_at : -1, rc = 0;

	if (site->call.verb == RM_VERB_REGISTER_FD || site->call.verb == RM_VERB_MAP_MEMORY)
		site->named_fd = site->call.fd;
	else if (at >= 0 && site->params.bytes >= at + sizeof(int))
		memcpy(&site->named_fd, site->params.before + at, sizeof(int));
	if (site->named_fd < 0)
		return 0;
	if (site_look(site, site->named_fd, &site->named_kind, &site->named))
		return -EBADF;
	if (site->named_kind == DEVICE_FILE_CONTROL && !site->named && site->call.verb != RM_VERB_MAP_MEMORY)
		site->named = site_adopt(site, site->named_fd, DEVICE_FILE_CONTROL, &rc);
	return rc;
}

/* The driver posts events to the file on which they were enabled, and the program waits on its own file. So
 * these calls on a GPU file are made on the program's file. */
static bool needs_own_file(const struct site *site)
{
	if (site->kind != DEVICE_FILE_GPU)
		return false;
	return site->call.verb == RM_VERB_REGISTER_FD || site->call.nr == RM_ESC_ALLOC_OS_EVENT ||
	       site->call.nr == RM_ESC_FREE_OS_EVENT || site->call.nr == RM_ESC_GET_EVENT_DATA ||
	       (site->call.verb == RM_VERB_ALLOC &&
		rm_class_find(site->call.class_id)->kind == RM_KIND_EVENT);
}

static int take_gpu_file(struct site *site)
{
	struct device *device = site->warden->device;
	struct stat st;

	site->gpu_fd = site_take_file(site, site->fd);
	if (site->gpu_fd < 0)
		return site->gpu_fd;
	return !file_look(site->gpu_fd, "", &st) && device->ops->classify(device, &st) == DEVICE_FILE_GPU
		       ? 0
		       : -EBADF;
}

int site_fetch(struct site *site)
{
	uint32_t cmd = (uint32_t)site->request->data.args[1];
	uint32_t nr = cmd & 0xff, size = cmd >> 16 & 0x3fff;
	uint64_t at = site->request->data.args[2];
	int rc;

	if (size > ARG_MAX_BYTES || rm_escape_way(nr) == RM_WAY_REFUSED)
		return -EINVAL;
	rc = copy_fetch(site, &site->arg, at, size);
	if (!rc)
		rc = rm_decode(nr, size, site->arg.before, &site->call);
	if (!rc && site->call.verb == RM_VERB_CONTROL)
		rc = fetch_control(site);
	else if (!rc && site->call.verb == RM_VERB_ALLOC)
		rc = fetch_alloc(site);
	else if (!rc && nr == RM_ESC_GET_EVENT_DATA)
		rc = fetch_event(site);
	if (!rc)
		rc = fetch_named(site);
	if (!rc && needs_own_file(site))
		rc = take_gpu_file(site);
	return rc;
}

int site_fetch_managed(struct site *site)
{
	site->managed = rm_uvm_find(site->warden->device->layout, (uint32_t)site->request->data.args[1]);
	if (!site->managed)
		return -EINVAL; /* as the driver does */
	site->call = (struct rm_call){ .nr = site->managed->cmd,
				       .size = site->managed->bytes,
				       .status_at = site->managed->status_at,
				       .object_at = -1,
				       .fd = -1 };
	return copy_fetch(site, &site->arg, site->request->data.args[2], site->managed->bytes);
}

int site_store(struct site *site)
{
	int rc = copy_store(site, &site->arg);

	if (!rc)
		rc = copy_store(site, &site->params);
	for (unsigned i = 0; !rc && i < SITE_LISTS; i++)
		rc = copy_store(site, &site->lists[i]);
	return rc;
}

void site_drop(struct site *site)
{
	free(site->arg.before);
	free(site->params.before);
	for (unsigned i = 0; i < SITE_LISTS; i++)
		free(site->lists[i].before);
	if (site->gpu_fd >= 0)
		close(site->gpu_fd);
}
