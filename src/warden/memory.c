/* Device memory: allocated, duplicated, and shared with other programs of the vGPU. It is charged once, until
 * its last reference is dropped (ledger.h). */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "warden/state.h"

enum {
	/* NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS: type, device, parent, object, fd, flags */
	EXPORT_OBJECT_AT = 12,
	EXPORT_FLAGS_AT = 20,
	EXPORT_SIZE = 24,
	EXPORT_EMPTY = 1,
	/* NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS: fd, device, u16 most, metadata, objects, u16 count
	 * and index */
	EXPORTS_OBJECTS_AT = 76,
	EXPORTS_MAX = 512,
	EXPORTS_COUNT_AT = EXPORTS_OBJECTS_AT + 4 * EXPORTS_MAX,
	EXPORTS_INDEX_AT = EXPORTS_COUNT_AT + 2,
	EXPORTS_SIZE = EXPORTS_COUNT_AT + 4,
	/* NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS: fd, object as above */
	IMPORT_PARENT_AT = 12,
	IMPORT_OBJECT_AT = 16,
	IMPORT_SIZE = 20,
	/* NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS: fd, parent, objects, types, u16 count and
	 * index */
	IMPORTS_PARENT_AT = 4,
	IMPORTS_OBJECTS_AT = 8,
	IMPORTS_MAX = 128,
	IMPORTS_COUNT_AT = 8 + 4 * IMPORTS_MAX + IMPORTS_MAX,
	IMPORTS_INDEX_AT = IMPORTS_COUNT_AT + 2,
	IMPORTS_SIZE = IMPORTS_COUNT_AT + 4,
	HANDLE_INFO_CLASS = 2,
	CHUNK_BYTES = 64 << 10,
};

static uint32_t get32(const struct site *site, size_t at)
{
	return bf_get32(site->params.now + at);
}

static uint16_t get16(const struct site *site, size_t at)
{
	return bf_get16(site->params.now + at);
}

static struct answer refuse_memory(struct site *site, uint64_t bytes)
{
	struct ledger *ledger = site->warden->ledger;

	ledger_unclaim(ledger);
	bf_log(BF_LOG_INFO, "process %d: %llu bytes refused: %llu are in use, there is room for %llu of %llu",
	       site->process->pid, (unsigned long long)bytes, (unsigned long long)ledger_used(ledger),
	       (unsigned long long)ledger_room(ledger), (unsigned long long)ledger_limit(ledger));
	site_tell_refused(site, bytes);
	return site_status(site, RM_ERR_NO_MEMORY);
}

/* The size to charge: the driver allocates memory in chunks of 64 KiB, and reports smaller sizes as requested
 * (video_mem.c). */
static uint64_t bytes_taken(uint64_t bytes)
{
	return bytes > UINT64_MAX - CHUNK_BYTES ? UINT64_MAX
						: (bytes + CHUNK_BYTES - 1) & ~(uint64_t)(CHUNK_BYTES - 1);
}

static uint64_t bytes_asked(const struct site *site)
{
	uint64_t bytes;

	memcpy(&bytes, site->params.now + site->warden->device->layout->memory_bytes, sizeof(bytes));
	return bytes;
}

uint64_t site_bytes_wanted(const struct site *site)
{
	if (site->call.verb != RM_VERB_ALLOC || rm_class_find(site->call.class_id)->kind != RM_KIND_VIDMEM ||
	    site->params.bytes < site->warden->device->layout->memory_bytes + sizeof(uint64_t))
		return 0;
	return bytes_asked(site);
}

/* The driver rounds sizes up, so the size that it returns is charged. */
struct answer site_alloc_vidmem(struct site *site)
{
	struct ledger *ledger = site->warden->ledger;
	const struct rm_call *call = &site->call;
	struct ledger_object *object;
	uint64_t bytes;
	bool fits;
	int rc;

	if (site->params.bytes < site->warden->device->layout->memory_bytes + sizeof(bytes))
		return site_refuse(site, RM_ERR_INVALID_ARGUMENT, "memory without a size");
	bytes = bytes_asked(site);
	fits = ledger_claim(ledger, bytes_taken(bytes));
	if (!fits && site_waits_for_room(site, bytes))
		return LATER;
	if (!fits || !site_may_allocate(site, bytes))
		return refuse_memory(site, bytes);
	rc = site_perform(site);
	if (rc || site_status_of(site)) {
		ledger_unclaim(ledger);
		return RETURN(rc);
	}
	bytes = bytes_asked(site);
	if (!ledger_claim(ledger, bytes_taken(bytes))) {
		site_undo(site);
		return refuse_memory(site, bytes);
	}
	object = ledger_add(ledger, call->client, call->parent, call->object, call->class_id, RM_KIND_VIDMEM,
			    bytes_taken(bytes));
	ledger_unclaim(ledger);
	if (!object) {
		site_undo(site);
		return RETURN(-ENOMEM);
	}
	object->bytes = bytes; /* as the driver counts it */
	return RETURN(0);
}

static int handle_class(struct warden *warden, struct client *client, uint32_t object, uint32_t *class_id)
{
	struct { /* NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS */
		uint32_t object, index;
		uint64_t result;
	} params = { object, HANDLE_INFO_CLASS, 0 };
	int rc = client_control(warden, client, client->handle, RM_CTRL_ROOT_GET_HANDLE_INFO, &params,
				sizeof(params));

	*class_id = (uint32_t)params.result;
	return rc;
}

bool client_has_object(struct warden *warden, struct client *client, uint32_t handle)
{
	uint32_t class_id;
	int rc = handle_class(warden, client, handle, &class_id);

	return rc <= 0 || rc == RM_ERR_NOT_SUPPORTED;
}

/* The call that the kernel continues (alloc_memory_call) makes such objects, and can be made to make others.
 * So the driver is asked. Its answer stays valid, because only the warden frees objects. */
bool client_has_own_pages(struct warden *warden, uint32_t client, uint32_t handle)
{
	struct client *owner = client_find(warden, client);
	uint32_t class_id;

	return owner && !handle_class(warden, owner, handle, &class_id) &&
	       rm_class_find(class_id)->kind == RM_KIND_OS_MEMORY;
}

/* Duplicates an object of a client of this vGPU. Objects of other vGPUs are refused, except those of the lender. The driver would refuse
 * them too, because their clients belong to another process. */
struct answer site_duplicate(struct site *site)
{
	struct ledger *ledger = site->warden->ledger;
	const struct rm_call *call = &site->call;
	struct ledger_object *source = ledger_find(ledger, call->source_client, call->source_object);
	int rc;

	if (site->warden->lender && !client_find(site->warden, call->source_client))
		return site_borrow(site);
	if (!client_of_user(site, call->source_client))
		return site_refuse(site, RM_ERR_INVALID_CLIENT, "the object belongs to another vGPU or user");
	if (call->object && ledger_find(ledger, call->client, call->object))
		return site_refuse(site, RM_ERR_INSERT_DUPLICATE_NAME, "a handle that is in use");
	if (source && (source->kind == RM_KIND_CHANNEL || source->kind == RM_KIND_DOORBELL))
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a duplicate of a channel or a doorbell");
	if (!source && !client_has_own_pages(site->warden, call->source_client, call->source_object))
		return site_refuse(site, RM_ERR_INVALID_OBJECT_HANDLE, "a duplicate of an unknown object");
	rc = site_perform(site);
	if (rc || site_status_of(site))
		return RETURN(rc);
	if (source ? ledger_add_duplicate(ledger, call->client, call->parent, call->object, source)
		   : ledger_add(ledger, call->client, call->parent, call->object, 0, RM_KIND_OTHER, 0))
		return RETURN(0);
	site_undo(site);
	return RETURN(-ENOMEM);
}

/* Make the control with the driver's file in place of the program's descriptor. */
static int perform_with_file(struct site *site)
{
	uint8_t *at = site->params.now + site->control->fd_at;
	int program_fd, rc;

	memcpy(&program_fd, at, sizeof(program_fd));
	memcpy(at, &site->named->fd, sizeof(site->named->fd));
	rc = site_perform(site);
	memcpy(at, &program_fd, sizeof(program_fd));
	return rc;
}

static bool has_file(const struct site *site)
{
	return site->named && site->named->kind == DEVICE_FILE_CONTROL && site->named->fd >= 0;
}

/* The file keeps a reference to exported memory, one object for each index. A second object at an index is
 * refused, also by the driver: an import of the first would be recorded as the second. Returns 1 if a
 * reference was taken, 0 if there is no memory to keep, or -errno. */
static int keep_export(struct site *site, uint32_t handle, uint32_t index)
{
	const struct ledger_object *object = ledger_find(site->warden->ledger, site->call.client, handle);
	struct kept_block kept = { .block = object ? object->block : NULL, .index = index };
	int rc;

	if (!kept.block)
		return 0;
	rc = devfile_export(site->named, index) ? -EBUSY : devfile_keep(site->named, &kept);
	return rc ? rc : 1;
}

static struct answer refuse_export(struct site *site, int rc)
{
	return rc == -EBUSY ? site_refuse(site, RM_ERR_STATE_IN_USE,
					  "the file has an export at this index already")
			    : RETURN(rc);
}

static struct answer export_one(struct site *site)
{
	bool is_empty = get32(site, EXPORT_FLAGS_AT) & EXPORT_EMPTY;
	int kept = is_empty ? 0 : keep_export(site, get32(site, EXPORT_OBJECT_AT), 0), rc;

	if (kept < 0)
		return refuse_export(site, kept);
	rc = perform_with_file(site);
	if (kept && (rc || site_status_of(site)))
		devfile_unkeep(site->named, site->warden->ledger);
	return RETURN(rc);
}

/* If the driver fails, it may have exported a part: the memory stays charged until the file is closed. */
static struct answer export_many(struct site *site)
{
	uint16_t count = get16(site, EXPORTS_COUNT_AT), index = get16(site, EXPORTS_INDEX_AT);
	int rc = 0;

	if (count > EXPORTS_MAX)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	for (uint16_t i = 0; rc >= 0 && i < count; i++)
		rc = keep_export(site, get32(site, EXPORTS_OBJECTS_AT + 4u * i), (uint32_t)index + i);
	return rc < 0 ? refuse_export(site, rc) : RETURN(perform_with_file(site));
}

struct answer site_export(struct site *site)
{
	bool is_one = site->call.class_id == RM_CTRL_EXPORT_OBJECT_TO_FD;

	if (site->params.bytes != (is_one ? EXPORT_SIZE : EXPORTS_SIZE) || !has_file(site))
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	if (site->named->is_linked)
		return site_refuse(site, RM_ERR_STATE_IN_USE,
				   "an export into a file with which others are registered");
	return is_one ? export_one(site) : export_many(site);
}

static bool record_import(struct site *site, uint32_t parent, uint32_t handle, uint32_t index)
{
	struct ledger *ledger = site->warden->ledger;
	const struct kept_block *kept = devfile_export(site->named, index);

	return kept ? ledger_add_name(ledger, site->call.client, parent, handle, 0x40, kept->block) != NULL
		    : ledger_add(ledger, site->call.client, parent, handle, 0, RM_KIND_OTHER, 0) != NULL;
}

/* Frees an object that the driver has made and the ledger cannot record. */
static struct answer undo_import(struct site *site, uint32_t handle)
{
	site->call.object = handle;
	site_undo(site);
	return site_status(site, RM_ERR_INSERT_DUPLICATE_NAME);
}

static bool is_handle_taken(const struct site *site, uint32_t handle)
{
	return is_own_handle(handle) ||
	       (handle && ledger_find(site->warden->ledger, site->call.client, handle));
}

static struct answer import_one(struct site *site)
{
	uint32_t handle = get32(site, IMPORT_OBJECT_AT);
	int rc;

	if (is_handle_taken(site, handle))
		return site_status(site, RM_ERR_INSERT_DUPLICATE_NAME);
	rc = perform_with_file(site);
	if (rc || site_status_of(site))
		return RETURN(rc);
	handle = get32(site, IMPORT_OBJECT_AT);
	return record_import(site, get32(site, IMPORT_PARENT_AT), handle, 0) ? RETURN(0)
									     : undo_import(site, handle);
}

static struct answer import_many(struct site *site)
{
	uint16_t count = get16(site, IMPORTS_COUNT_AT), index = get16(site, IMPORTS_INDEX_AT);
	int rc;

	if (count > IMPORTS_MAX)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	for (uint16_t i = 0; i < count; i++) {
		if (is_handle_taken(site, get32(site, IMPORTS_OBJECTS_AT + 4u * i)))
			return site_status(site, RM_ERR_INSERT_DUPLICATE_NAME);
	}
	rc = perform_with_file(site);
	if (rc || site_status_of(site))
		return RETURN(rc);
	for (uint16_t i = 0; i < count; i++) {
		uint32_t handle = get32(site, IMPORTS_OBJECTS_AT + 4u * i);

		if (!record_import(site, get32(site, IMPORTS_PARENT_AT), handle, (uint32_t)index + i))
			return undo_import(site, handle);
	}
	return RETURN(0);
}

/* Imports memory that another process of the vGPU has exported into a file. A file of another vGPU is unknown
 * here. */
struct answer site_import(struct site *site)
{
	bool is_one = site->call.class_id == RM_CTRL_IMPORT_OBJECT_FROM_FD;

	if (site->params.bytes != (is_one ? IMPORT_SIZE : IMPORTS_SIZE) || !has_file(site))
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	return is_one ? import_one(site) : import_many(site);
}

struct answer site_export_info(struct site *site)
{
	if (site->params.bytes < sizeof(int) || !has_file(site))
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	return RETURN(perform_with_file(site));
}
