/* What passes, where the driver is not the kernel's: the call is made here, on a copy of its argument, and the
 * result is written back, so that the program finds what the kernel would have left it. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "warden/state.h"

enum { PARAMS_AT = 16, ARG_MAX_BYTES = 16384 };

/* Where in the argument the number of a file stands that the call names; -1: nowhere. */
static int file_at(const struct rm_call *call)
{
	switch (call->verb) {
	case RM_VERB_MAP_MEMORY:
		return offsetof(struct rm_arg_map, fd);
	case RM_VERB_REGISTER_FD:
		return 0;
	default:
		return -1;
	}
}

static bool has_params(const struct rm_call *call)
{
	return call->verb == RM_VERB_ALLOC || call->verb == RM_VERB_CONTROL;
}

/* The argument as it was when it was checked; of the large ones, which are not looked at, as it is now. */
static uint8_t *take_arg(struct site *site, uint32_t size, int *rc)
{
	uint8_t *arg = calloc(1, size ? size : 1);

	*rc = 0;
	if (!arg)
		*rc = -ENOMEM;
	else if (size <= RM_ARG_MAX)
		memcpy(arg, site->arg, size);
	else if (size > ARG_MAX_BYTES || site_peek(site, site->arg_at, arg, size))
		*rc = -EFAULT;
	return arg;
}

struct answer site_carry(struct site *site)
{
	struct device *device = site->warden->device;
	const struct rm_call *call = &site->call;
	int at = file_at(call), rc, params_rc = 0;
	cleanup_close int file = site_take_file(site, site->fd), named = -1;
	cleanup_free uint8_t *before = take_arg(site, call->size, &rc), *arg = NULL, *params = NULL,
			     *params_before = NULL;
	uint32_t params_size = 0;

	if (file < 0 || rc)
		return RETURN(file < 0 ? file : rc);
	arg = malloc(call->size ? call->size : 1);
	if (!arg)
		return RETURN(-ENOMEM);
	if (has_params(call))
		params = site_take_params(site, &params_size, &params_rc);
	params_before = malloc(params_size ? params_size : 1);
	if (!params_before || params_rc)
		return RETURN(params_rc ? params_rc : -ENOMEM);
	memcpy(arg, before, call->size);
	if (params) {
		uint64_t ours = (uintptr_t)params;

		memcpy(params_before, params, params_size);
		memcpy(arg + PARAMS_AT, &ours, sizeof(ours));
	}
	if (at >= 0) {
		named = site_take_file(site, call->fd);
		if (named < 0)
			return RETURN(-EBADF);
		memcpy(arg + at, &named, sizeof(named));
	}
	rc = device->ops->carry(device, file, site->process->pid, call->nr, arg, call->size);
	if (params)
		memcpy(arg + PARAMS_AT, &call->params, sizeof(call->params));
	if (at >= 0)
		memcpy(arg + at, before + at, sizeof(int));
	if (rc)
		return RETURN(rc);
	if (site_poke_changes(site, site->arg_at, before, arg, call->size) ||
	    (params && site_poke_changes(site, call->params, params_before, params, params_size)))
		return RETURN(-EFAULT);
	return RETURN(0);
}

struct answer site_carry_mmap(struct site *site)
{
	struct device *device = site->warden->device;
	cleanup_close int file = site_take_file(site, site->fd);
	cleanup_close int memory = file < 0 ? file
					    : device->ops->map_file(device, file, site->process->pid,
								    site->request->data.args[1],
								    site->request->data.args[5]);
	int rc = memory < 0 ? memory : standin_put(site, memory);

	return rc ? RETURN(rc) : PASS;
}
