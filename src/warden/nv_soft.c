/* The driver of the software GPU: a process whose device files are sockets. It accepts the calls of
 * supervised programs from their supervisor only. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "soft/link/link.h"
#include "warden/nv.h"
#include "warden/proxy.h"

/* From the connection, not from the folder: a program of the same user can replace the socket in the folder,
 * and would then answer the calls of every vGPU. */
static int soft_open(const struct nv *nv, int minor)
{
	return nv->connection < 0 ? nv->connection : link_open_from(nv->connection, (uint32_t)minor);
}

static int soft_open_failed(const struct nv *nv, int minor, int error, struct bf_error *err)
{
	if (error == ENODEV && minor != NV_MINOR_CONTROL)
		return bf_fail(err, error, "GPU %d: the software GPU has fewer GPUs; see gpus= of --soft",
			       minor);
	return bf_fail(err, error, "the software GPU in %s does not answer: %s", nv->folder, strerror(error));
}

static int soft_call_own(int fd, uint32_t nr, void *arg, uint32_t size)
{
	return link_call_for(fd, 0, nr, arg, size);
}

static void *soft_map(int fd, uint64_t bytes, int prot)
{
	return link_map(fd, NULL, bytes, prot, 0);
}

static const struct nv_transport transport = {
	.open = soft_open,
	.open_failed = soft_open_failed,
	.call = soft_call_own,
	.map = soft_map,
};

static enum device_file soft_classify(struct device *device, const struct stat *st)
{
	int file = S_ISSOCK(st->st_mode) ? link_what_is(nv_of(device)->control_fd, st->st_ino) : -ENOENT;

	if (file < 0)
		return DEVICE_FILE_NONE;
	if (file == NV_MINOR_CONTROL)
		return DEVICE_FILE_CONTROL;
	return (unsigned)file == device->index ? DEVICE_FILE_GPU : DEVICE_FILE_OTHER_GPU;
}

static int soft_call(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	(void)device;
	return link_call_for(fd, 0, nr, arg, size);
}

static int soft_open_kind(struct device *device, enum device_file kind)
{
	if (kind == DEVICE_FILE_MANAGED)
		return -ENODEV;
	return soft_open(nv_of(device), kind == DEVICE_FILE_CONTROL ? NV_MINOR_CONTROL : (int)device->index);
}

static int soft_open_for_map(struct device *device, struct proxy *owner, enum device_file kind)
{
	(void)owner;
	return soft_open_kind(device, kind);
}

static int soft_call_as(struct device *device, struct proxy *owner, int fd, uint32_t nr, void *arg,
			uint32_t size)
{
	(void)device;
	return link_call_for(fd, proxy_pid(owner), nr, arg, size);
}

static int soft_map_file(struct device *device, struct proxy *owner, int file, uint64_t bytes,
			 uint64_t offset)
{
	(void)device;
	return link_map_file(file, proxy_pid(owner), bytes, offset);
}

/* Classes and controls that the software GPU's libcuda.so.1 uses and the real one does not have. */
static bool soft_permits(uint32_t class_or_control)
{
	switch (class_or_control) {
	case SOFT_CLASS_CODE:
	case SOFT_CTRL_CHANNEL_SET_SMS:
	case SOFT_CTRL_SPACE_SET_PRINT:
	case SOFT_CTRL_GPU_GET_SHAPE:
	case SOFT_CTRL_ROOT_JOIN_DOMAIN: /* some domains: see soft_domain_joined */
		return true;
	default:
		return false;
	}
}

static const char *soft_domain_joined(uint32_t control, const void *params, uint32_t bytes)
{
	const struct soft_join_params *join = params;

	if (control != SOFT_CTRL_ROOT_JOIN_DOMAIN)
		return NULL;
	return bytes == sizeof(*join) && memchr(join->name, 0, sizeof(join->name)) ? join->name : "";
}

static int soft_supervise(struct device *device, pid_t root, struct bf_error *err)
{
	const struct nv *nv = nv_of(device);
	int rc;

	if (root == 1) /* the software GPU is a descendant, too */
		return bf_fail(
			err, EINVAL,
			"belfry is process 1 here, the ancestor of all processes; start it under an init, "
			"such as that of docker run --init");
	rc = link_supervise(nv->control_fd, root);
	if (rc == -EACCES)
		return bf_fail(err, EACCES,
			       "the software GPU cannot see process %d: /proc hides it; mount /proc "
			       "without hidepid, or run as root",
			       root);
	return rc ? bf_fail(err, -rc,
			    "the software GPU in %s does not accept a supervisor for process %d: %s",
			    nv->folder, root, strerror(-rc))
		  : 0;
}

static int soft_time_of(struct device *device, int control_fd, uint32_t client, uint32_t group,
			uint64_t *gpu_ns)
{
	struct soft_time_params time = { 0 };
	struct rm_arg_control arg = { .client = client,
				      .object = group,
				      .cmd = SOFT_CTRL_GROUP_GET_TIME,
				      .params = (uintptr_t)&time,
				      .size = sizeof(time) };
	int rc = soft_call(device, control_fd, RM_ESC_CONTROL, &arg, sizeof(arg));

	if (rc || arg.status)
		return rc ? rc : -EIO;
	*gpu_ns = time.held_ns;
	return 0;
}

static int soft_done_of(struct device *device, int control_fd, uint32_t client, uint32_t group,
			uint64_t *taken, struct device_done *to, unsigned room)
{
	struct soft_done_params done = { 0 };
	struct rm_arg_control arg = { .client = client,
				      .object = group,
				      .cmd = SOFT_CTRL_GROUP_GET_DONE,
				      .params = (uintptr_t)&done,
				      .size = sizeof(done) };
	int rc = soft_call(device, control_fd, RM_ESC_CONTROL, &arg, sizeof(arg));
	unsigned count = 0;

	if (rc || arg.status)
		return rc ? rc : -EIO;
	if (*taken + SOFT_DONE_KEPT < done.count)
		*taken = done.count - SOFT_DONE_KEPT;
	for (; *taken < done.count && count < room; ++*taken, count++) {
		const struct soft_done *one = &done.done[*taken % SOFT_DONE_KEPT];

		to[count] = (struct device_done){ .seen_ns = one->seen_ns, .end_ns = one->end_ns };
	}
	return (int)count;
}

/* The engines run slightly ahead of the clock or behind it, so a short interval can show more than full
 * load. */
static uint32_t part_ppm(uint64_t part, double whole)
{
	double ppm = (double)part * 1e6 / whole;

	return ppm < 1e6 ? (uint32_t)ppm : 1000000;
}

static int soft_load(struct device *device, struct device_load *load)
{
	struct nv *nv = nv_of(device);
	struct soft_counters_params now = { 0 };
	struct nv_counted last = nv->counted;
	int rc = own_control(nv, OWN_SUBDEVICE, SOFT_CTRL_GPU_GET_COUNTERS, &now, sizeof(now));
	double ns = (double)(now.gpu_ns - last.gpu_ns);

	if (rc)
		return rc < 0 ? rc : -EIO;
	if (now.gpu_ns == last.gpu_ns)
		return -EAGAIN;
	nv->counted = (struct nv_counted){ now.gpu_ns, now.sm_ns, now.bus_ns };
	if (!last.gpu_ns)
		return -EAGAIN;
	*load = (struct device_load){ .sm_ppm = part_ppm(now.sm_ns - last.sm_ns, ns * now.sm_count),
				      .mem_ppm = part_ppm(now.bus_ns - last.bus_ns, ns),
				      .over_ns = now.gpu_ns - last.gpu_ns };
	return 0;
}

static const struct device_ops soft_ops = {
	.name = "soft",
	.close = nv_close,
	.classify = soft_classify,
	.open = soft_open_kind,
	.open_for_map = soft_open_for_map,
	.call = soft_call,
	.call_as = soft_call_as,
	.map_file = soft_map_file,
	.permits = soft_permits,
	.domain_joined = soft_domain_joined,
	.view = nv_view,
	.unview = nv_unview,
	.page_new = nv_page_new,
	.page_name = nv_page_name,
	.use_of = nv_use_of,
	.supervise = soft_supervise,
	.time_of = soft_time_of,
	.done_of = soft_done_of,
	.load = soft_load,
};

struct device *device_soft_open(const char *folder, const struct device_options *options,
				struct bf_error *err)
{
	struct nv *nv = nv_new(&transport, &soft_ops, options->index, err);
	struct soft_status status;
	struct device *device;

	if (!nv)
		return NULL;
	snprintf(nv->folder, sizeof(nv->folder), "%s", folder);
	snprintf(nv->device.driver_version, sizeof(nv->device.driver_version), "%s", SOFT_DRIVER_VERSION);
	nv->device.rang = link_rang;
	nv->connection = link_connect(folder);
	device = nv_open(nv, false, err);
	if (device)
		device->end_fd = nv->control_fd;
	if (device && !link_status(folder, &status, NULL))
		device->sm_count = status.sm_count;
	return device;
}
