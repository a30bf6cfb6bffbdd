/* What programs are told: the vGPU's memory for the card's, and its processes for everybody's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "warden/state.h"

bool told_is_mine(uint32_t control)
{
	return control == RM_CTRL_FB_GET_INFO || control == RM_CTRL_FB_GET_INFO_V2 ||
	       control == RM_CTRL_GET_PIDS || control == RM_CTRL_GET_PID_INFO;
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void put32(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

/* In KiB, as the driver counts. Values are lowered, never raised: what the CPU can map, or what is free on the
 * card, may be less than the vGPU has. */
static void tell_memory(struct warden *warden, uint8_t *list, uint32_t count)
{
	uint64_t limit = ledger_limit(warden->ledger);

	for (uint32_t i = 0; limit && i < count; i++, list += 8) {
		enum rm_fb_meaning meaning = rm_fb_meaning(get32(list));
		uint64_t most = (meaning == RM_FB_TOTAL ? limit : ledger_room(warden->ledger)) >> 10;

		if (meaning != RM_FB_UNRELATED && most < get32(list + 4))
			put32(list + 4, (uint32_t)most);
	}
}

static struct answer told_memory(struct site *site, uint8_t *params)
{
	const struct rm_layout *layout = site->warden->device->layout;
	uint32_t count = get32(params);
	int rc;

	if (count > layout->fb_info_max || site->call.params_size < layout->fb_info_list + 8 * count)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	warden_reconcile(site->warden);
	rc = site_perform(site, params, site->call.params_size);
	if (rc)
		return RETURN(rc);
	tell_memory(site->warden, params + layout->fb_info_list, count);
	if (site_poke(site, site->call.params, params, site->call.params_size))
		return RETURN(-EFAULT);
	return RETURN(0);
}

/* The older form keeps its list behind a pointer: {u32 count, u64 list}. */
static struct answer told_memory_old(struct site *site, uint8_t *params)
{
	const struct rm_layout *layout = site->warden->device->layout;
	uint32_t count = get32(params);
	uint64_t theirs;
	uintptr_t ours;
	int rc;

	if (site->call.params_size != 16 || count > layout->fb_info_max)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	memcpy(&theirs, params + 8, sizeof(theirs));
	cleanup_free uint8_t *list = calloc(count + 1, 8);
	if (!list)
		return RETURN(-ENOMEM);
	if (site_peek(site, theirs, list, 8 * (size_t)count))
		return RETURN(-EFAULT);
	ours = (uintptr_t)list;
	memcpy(params + 8, &ours, sizeof(ours));
	rc = site_perform(site, params, site->call.params_size);
	if (rc)
		return RETURN(rc);
	tell_memory(site->warden, list, count);
	return RETURN(site_poke(site, theirs, list, 8 * (size_t)count));
}

static struct answer told_pids(struct site *site, uint8_t *params)
{
	const struct rm_layout *layout = site->warden->device->layout;
	uint8_t *table = params + layout->pids_table;
	uint32_t count, kept = 0;
	int rc;

	if (site->call.params_size != layout->pids_size)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	rc = site_perform(site, params, site->call.params_size);
	if (rc)
		return RETURN(rc);
	count = get32(params + layout->pids_count);
	for (uint32_t i = 0; i < count && i < layout->pids_max; i++) {
		uint32_t pid = get32(table + sizeof(pid) * i);

		if (process_by_pid(site->warden, (pid_t)pid))
			put32(table + sizeof(pid) * kept++, pid);
	}
	memset(table + sizeof(uint32_t) * kept, 0, sizeof(uint32_t) * (layout->pids_max - kept));
	put32(params + layout->pids_count, kept);
	return RETURN(site_poke(site, site->call.params, params, site->call.params_size));
}

/* Strangers have no memory here. */
static struct answer told_pid_info(struct site *site, uint8_t *params)
{
	const struct rm_layout *layout = site->warden->device->layout;
	uint32_t count = get32(params);
	int rc;

	if (site->call.params_size != layout->pid_info_size || count > layout->pid_info_max)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	rc = site_perform(site, params, site->call.params_size);
	if (rc)
		return RETURN(rc);
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *entry = params + layout->pid_info_list + (size_t)i * layout->pid_info_stride;

		if (process_by_pid(site->warden, (pid_t)get32(entry)))
			continue;
		memset(entry + layout->pid_info_private, 0, 8);
		memset(entry + layout->pid_info_owned, 0, 8);
		memset(entry + layout->pid_info_duped, 0, 8);
	}
	return RETURN(site_poke(site, site->call.params, params, site->call.params_size));
}

struct answer site_told(struct site *site)
{
	enum { TOLD_PARAMS_MAX = 64 << 10 };
	uint32_t size = site->call.params_size;
	cleanup_free uint8_t *params = NULL;

	if (size < 8 || size > TOLD_PARAMS_MAX)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	params = calloc(1, size);
	if (!params)
		return RETURN(-ENOMEM);
	if (site_peek(site, site->call.params, params, size))
		return RETURN(-EFAULT);
	switch (site->call.class_id) {
	case RM_CTRL_FB_GET_INFO_V2:
		return told_memory(site, params);
	case RM_CTRL_FB_GET_INFO:
		return told_memory_old(site, params);
	case RM_CTRL_GET_PIDS:
		return told_pids(site, params);
	default:
		return told_pid_info(site, params);
	}
}
