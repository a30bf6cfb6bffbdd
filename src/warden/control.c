/* Controls: an allowlist (rm/controls.c). A control that is not on it is refused with the status that the
 * driver has for unknown controls. It is counted, so that the operator can see what a new library needs. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "warden/state.h"

enum {
	/* NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS: flags, channel, graphics, compute... */
	PREEMPTION_SIZE = 32,
	PREEMPTION_FLAGS_AT = 0,
	PREEMPTION_COMPUTE_AT = 12,
	PREEMPTION_SETS_COMPUTE = 1,
	/* Within a kernel; lower modes wait for the end of blocks or kernels (measured, docs/driver.md). */
	PREEMPTION_ANYWHERE = 2,
};

/* A program whose kernels cannot be interrupted could not be stopped, and would block all other vGPUs.
 * libcuda sets this mode itself. A program that sets a lower mode reads back its own value, but runs in this
 * one. */
static struct answer preemption_call(struct site *site)
{
	uint32_t flags, compute, anywhere = PREEMPTION_ANYWHERE;
	int rc;

	if (site->params.bytes != PREEMPTION_SIZE)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	memcpy(&flags, site->params.now + PREEMPTION_FLAGS_AT, sizeof(flags));
	memcpy(&compute, site->params.now + PREEMPTION_COMPUTE_AT, sizeof(compute));
	if (flags & PREEMPTION_SETS_COMPUTE)
		memcpy(site->params.now + PREEMPTION_COMPUTE_AT, &anywhere, sizeof(anywhere));
	rc = site_perform(site);
	memcpy(site->params.now + PREEMPTION_COMPUTE_AT, &compute, sizeof(compute));
	return RETURN(rc);
}

/* Returns which file maps an object. The driver does not know the warden's doorbells: the answer for them is
 * "registers", which are mapped through the GPU file. */
static struct answer address_space_call(struct site *site)
{
	enum { OBJECT_AT = 0, TYPE_AT = 8, SIZE = 12, REGISTERS = 3 };
	uint32_t object, type = REGISTERS;

	if (site->params.bytes != SIZE)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	memcpy(&object, site->params.now + OBJECT_AT, sizeof(object));
	if (!site_is_doorbell(site, object))
		return RETURN(site_perform(site));
	memcpy(site->params.now + TYPE_AT, &type, sizeof(type));
	return site_status(site, RM_OK);
}

/* After these controls the program knows the token or may run the channel, so the gate needs the token. */
static struct answer token_call(struct site *site)
{
	int rc = site_perform(site);

	if (!rc && !site_status_of(site))
		channel_learn_token(site->warden, client_find(site->warden, site->call.client),
				    site->call.object);
	return RETURN(rc);
}

static struct answer own_call(struct site *site)
{
	switch (site->call.class_id) {
	case RM_CTRL_ROOT_GET_ADDRESS_SPACE:
		return address_space_call(site);
	case RM_CTRL_GROUP_SCHEDULE:
	case RM_CTRL_GROUP_SET_TIMESLICE:
	case RM_CTRL_GROUP_SET_INTERLEAVE:
		return site_group_control(site);
	case RM_CTRL_SET_PREEMPTION:
		return preemption_call(site);
	case RM_CTRL_CHANNEL_GET_TOKEN:
	case RM_CTRL_CHANNEL_SET_TOKEN_INDEX:
	case RM_CTRL_CHANNEL_SCHEDULE:
		return token_call(site);
	case RM_CTRL_EXPORT_OBJECT_TO_FD:
	case RM_CTRL_EXPORT_OBJECTS_TO_FD:
		return site_export(site);
	case RM_CTRL_GET_EXPORT_OBJECT_INFO:
		return site_export_info(site);
	case RM_CTRL_IMPORT_OBJECT_FROM_FD:
	case RM_CTRL_IMPORT_OBJECTS_FROM_FD:
		return site_import(site);
	case RM_CTRL_FB_GET_INFO:
	case RM_CTRL_FB_GET_INFO_V2:
	case RM_CTRL_GET_PIDS:
	case RM_CTRL_GET_PID_INFO:
		return site_answer_query(site);
	default:
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a control without a handler");
	}
}

/* Each control is logged once for a vGPU. The table has the first WARDEN_UNKNOWNS, the counter counts all. */
static bool is_first_refusal(struct warden *warden, uint32_t control)
{
	warden->unknown++;
	for (unsigned i = 0; i < WARDEN_UNKNOWNS; i++) {
		struct warden_unknown *entry = &warden->unknowns[i];

		if (entry->count && entry->control != control)
			continue;
		entry->control = control;
		return !entry->count++;
	}
	return false;
}

static struct answer unknown_call(struct site *site)
{
	bool is_first = is_first_refusal(site->warden, site->call.class_id);

	site->warden->refusals++;
	bf_log(is_first ? BF_LOG_WARN : BF_LOG_DEBUG,
	       "process %d: control 0x%08x (%u bytes) is not known and was refused; permit_controls "
	       "in belfryd.conf permits it",
	       site->process->pid, site->call.class_id, site->call.params_size);
	return site_status(site, RM_ERR_NOT_SUPPORTED);
}

/* Controls that only the software GPU has, and those that the operator permits. */
bool site_permits(const struct site *site)
{
	const struct warden_options *options = &site->warden->options;
	const struct device_ops *ops = site->warden->device->ops;
	bool is_permitted = false;

	pthread_mutex_lock(&site->warden->lock);
	for (unsigned i = 0; i < options->permit_count; i++)
		is_permitted |= options->permits[i] == site->call.class_id;
	pthread_mutex_unlock(&site->warden->lock);
	return is_permitted || (ops->permits && ops->permits(site->call.class_id));
}

/* Logged once for a vGPU. */
static struct answer refuse_domain(struct site *site)
{
	bf_log(site->warden->has_refused_domain ? BF_LOG_DEBUG : BF_LOG_WARN,
	       "process %d is not permitted to join the shared domain of its CUDA_MPS_PIPE_DIRECTORY: "
	       "its vGPU is not in that domain",
	       site->process->pid);
	site->warden->has_refused_domain = true;
	site->warden->refusals++;
	return site_status(site, RM_ERR_INSUFFICIENT_PERMISSIONS);
}

/* A control that only the device has, or that the operator permits. A program joins the domain of its vGPU only: its
 * faults end the other programs there. */
static struct answer permitted_call(struct site *site)
{
	const struct device_ops *ops = site->warden->device->ops;
	const char *name = NULL;

	if (ops->domain_joined)
		name = ops->domain_joined(site->call.class_id, site->params.now, site->params.bytes);
	if (!name || (name[0] && !strcmp(name, site->warden->domain_folder)))
		return MAKE;
	return refuse_domain(site);
}

struct answer site_control_call(struct site *site)
{
	const struct rm_control *control = site->control;

	/* Flags say that the parameters have another form, which the table does not describe. */
	if (site->call.flags)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a control with flags");
	if (!control)
		return site->is_permitted ? permitted_call(site) : unknown_call(site);
	if (control->is_sized && site->params.bytes != control->bytes && control->way != RM_WAY_REFUSED &&
	    control->way != RM_WAY_ANSWERED)
		return site_status(site, RM_ERR_INVALID_PARAM_STRUCT);
	if (!site_names_known_client(site, &site->params, control->client_at))
		return site_refuse(site, RM_ERR_INVALID_CLIENT, "the client belongs to another vGPU or user");
	switch (control->way) {
	case RM_WAY_COPY:
		return MAKE;
	case RM_WAY_OWN:
		return own_call(site);
	case RM_WAY_ANSWERED:
		return site_status(site, RM_OK);
	default:
		return site_refuse(site, RM_ERR_INSUFFICIENT_PERMISSIONS, control->name);
	}
}
