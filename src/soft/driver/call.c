/* Dispatches one call, and stores its status. */
#include <errno.h>

#include "base/log.h"
#include "soft/driver/state.h"

/* Returns a status, or -1 if it is none of these calls. */
static int64_t dispatch(struct site *site)
{
	switch (site->rm.verb) {
	case RM_VERB_ALLOC:
		return site_alloc(site);
	case RM_VERB_FREE:
		return site_free(site, site->rm.object);
	case RM_VERB_CONTROL:
		return site_control(site);
	case RM_VERB_ALLOC_MEMORY:
		return site_alloc_memory(site);
	case RM_VERB_VID_HEAP:
		return site_vid_heap(site);
	case RM_VERB_DUP:
		return site_dup(site);
	case RM_VERB_MAP_MEMORY:
		return site_map(site);
	case RM_VERB_UNMAP_MEMORY:
		return site_unmap(site);
	case RM_VERB_REFUSED:
		return RM_ERR_NOT_SUPPORTED;
	default:
		break;
	}
	switch (site->rm.nr) {
	case RM_ESC_SHARE:
		return site_share(site);
	case RM_ESC_MAP_MEMORY_DMA:
		return site_map_dma(site);
	case RM_ESC_UNMAP_MEMORY_DMA:
		return site_unmap_dma(site);
	case RM_ESC_IDLE_CHANNELS:
		return site_idle(site);
	case RM_ESC_I2C_ACCESS:
	case RM_ESC_ACCESS_REGISTRY:
	case RM_ESC_GET_EVENT_DATA:
	case RM_ESC_ALLOC_CONTEXT_DMA2:
	case RM_ESC_BIND_CONTEXT_DMA:
	case RM_ESC_UPDATE_DEVICE_MAPPING_INFO:
		return RM_ERR_NOT_SUPPORTED;
	default:
		return -1;
	}
}

/* The driver accepts most calls only on the control file (RmIoctl: NV_CTL_DEVICE_ONLY). */
static bool is_for_control(const struct rm_call *rm)
{
	return rm->verb != RM_VERB_OTHER
		       ? rm->verb != RM_VERB_REGISTER_FD
		       : rm->client && rm->nr != RM_ESC_ALLOC_OS_EVENT && rm->nr != RM_ESC_FREE_OS_EVENT;
}

int driver_call(struct driver *driver, struct call *call)
{
	struct site site = { .driver = driver, .call = call };
	int64_t status;

	if (rm_decode(call->nr, call->arg_bytes, call->arg, &site.rm))
		return -EINVAL;
	/* The size of the parameters received counts, not the size in the argument. */
	if (!call->params_bytes)
		call->params = NULL;
	if (is_for_control(&site.rm) && call->file->minor != SOFT_FILE_CONTROL)
		return -EINVAL;
	status = dispatch(&site);
	if (status < 0)
		return site_plain(&site);
	if (status)
		bf_log(BF_LOG_DEBUG, "process %d: call 0x%x class 0x%x object 0x%x: status 0x%x", call->pid,
		       call->nr, site.rm.class_id, site.rm.object, (unsigned)status);
	if (site.rm.status_at >= 0)
		bf_put32(call->arg + site.rm.status_at, (uint32_t)status);
	return 0;
}
