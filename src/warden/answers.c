/* Answers to queries of programs: the memory of the vGPU instead of the GPU's, and the processes of the vGPU
 * instead of all. */
#include <string.h>

#include "base/bytes.h"
#include "warden/state.h"

enum { PIDS_CLASS_AT = 4 }; /* NV2080_CTRL_GPU_GET_PIDS_PARAMS: processes with an object of this class */

/* In KiB, as in the driver. Values are only lowered: the memory that the CPU can map, or that is free on the
 * GPU, may be less than the vGPU has. */
static void limit_memory(struct warden *warden, uint8_t *list, uint32_t count)
{
	uint64_t limit = ledger_limit(warden->ledger);

	for (uint32_t i = 0; limit && i < count; i++, list += 8) {
		enum rm_fb_meaning meaning = rm_fb_meaning(bf_get32(list));
		uint64_t most = (meaning == RM_FB_TOTAL ? limit : ledger_room(warden->ledger)) >> 10;

		if (meaning != RM_FB_UNRELATED && most < bf_get32(list + 4))
			bf_put32(list + 4, (uint32_t)most);
	}
}

static struct answer answer_memory(struct site *site)
{
	const struct rm_layout *layout = site->warden->device->layout;
	uint32_t count = bf_get32(site->params.now);
	int rc;

	if (count > layout->fb_info_max || site->params.bytes < layout->fb_info_list + 8 * count)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	rc = site_perform(site);
	if (!rc)
		limit_memory(site->warden, site->params.now + layout->fb_info_list, count);
	return RETURN(rc);
}

/* The older form keeps its list behind a pointer: {u32 count, u64 list}. */
static struct answer answer_memory_old(struct site *site)
{
	int rc = site_perform(site);

	if (!rc && site->lists[0].now)
		limit_memory(site->warden, site->lists[0].now, site->lists[0].bytes / 8);
	return RETURN(rc);
}

/* The driver knows only the owner proxy. A program sees the processes of its vGPU. */
static struct answer answer_pids(struct site *site)
{
	const struct rm_layout *layout = site->warden->device->layout;
	uint8_t *table = site->params.now + layout->pids_table;
	uint32_t count = 0;
	int rc;

	if (site->params.bytes != layout->pids_size)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	rc = site_perform(site);
	if (rc || site_status_of(site))
		return RETURN(rc);
	memset(table, 0, sizeof(uint32_t) * layout->pids_max);
	for (const struct process *p = LIST_FIRST(&site->warden->processes); p && count < layout->pids_max;
	     p = LIST_NEXT(p, next))
		if (process_has_class(p, bf_get32(site->params.now + PIDS_CLASS_AT)))
			bf_put32(table + sizeof(uint32_t) * count++, (uint32_t)p->pid);
	bf_put32(site->params.now + layout->pids_count, count);
	return RETURN(0);
}

static void set_process_bytes(const struct warden *warden, const struct rm_layout *layout, uint8_t *entry)
{
	const struct process *process = process_by_pid(warden, (pid_t)bf_get32(entry));
	uint64_t bytes = process ? process_named_bytes(process) : 0;

	memcpy(entry + layout->pid_info_private, &bytes, sizeof(bytes));
	memset(entry + layout->pid_info_owned, 0, sizeof(bytes));
	memset(entry + layout->pid_info_duped, 0, sizeof(bytes));
}

/* For a process outside the vGPU the memory is 0. */
static struct answer answer_pid_info(struct site *site)
{
	const struct rm_layout *layout = site->warden->device->layout;
	uint32_t count = bf_get32(site->params.now);
	int rc;

	if (site->params.bytes != layout->pid_info_size || count > layout->pid_info_max)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	rc = site_perform(site);
	for (uint32_t i = 0; !rc && i < count; i++)
		set_process_bytes(site->warden, layout,
				  site->params.now + layout->pid_info_list +
					  (size_t)i * layout->pid_info_stride);
	return RETURN(rc);
}

struct answer site_answer_query(struct site *site)
{
	if (site->params.bytes < 8)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	switch (site->call.class_id) {
	case RM_CTRL_FB_GET_INFO_V2:
		return answer_memory(site);
	case RM_CTRL_FB_GET_INFO:
		return answer_memory_old(site);
	case RM_CTRL_GET_PIDS:
		return answer_pids(site);
	default:
		return answer_pid_info(site);
	}
}
