/* The kernel driver: character devices in /dev. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "warden/nv.h"
#include "warden/nvml.h"
#include "warden/proxy.h"

enum { NV_MAJOR = 195, DRM_MAJOR = 226, OWNER_LIMIT_MS = 60000 };
enum { CLASS_EVENT = 0x79, NOTIFIER_RC_ERROR = 37, ACTION_REPEAT = 2 };

static void path_of(int minor, char *path, size_t room)
{
	if (minor == NV_MINOR_CONTROL)
		snprintf(path, room, "/dev/nvidiactl");
	else
		snprintf(path, room, "/dev/nvidia%d", minor);
}

static int kernel_open(const struct nv *nv, int minor)
{
	char path[32];
	int fd;

	(void)nv;
	path_of(minor, path, sizeof(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int kernel_open_failed(const struct nv *nv, int minor, int error, struct bf_error *err)
{
	char path[32];

	(void)nv;
	path_of(minor, path, sizeof(path));
	if (error == ENOENT || error == ENXIO || error == ENODEV)
		return bf_fail(err, error, "%s: there is no NVIDIA GPU; belfry info shows what was found",
			       path);
	if (error == EACCES || error == EPERM)
		return bf_fail(err, error,
			       "%s: no permission; ask for read and write access to the device files", path);
	return bf_fail(err, error, "%s: %s", path, strerror(error));
}

static int kernel_ioctl(int fd, uint32_t nr, void *arg, uint32_t size)
{
	int rc;

	do
		rc = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg);
	while (rc < 0 && (errno == EINTR || errno == EAGAIN));
	return rc < 0 ? -errno : 0;
}

static void *kernel_map(int fd, uint64_t bytes, int prot)
{
	return mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
}

static const struct nv_transport transport = {
	.open = kernel_open,
	.open_failed = kernel_open_failed,
	.call = kernel_ioctl,
	.map = kernel_map,
};

static int kernel_call(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	(void)device;
	return kernel_ioctl(fd, nr, arg, size);
}

static const char *path_of_kind(const struct device *device, enum device_file kind, char *path, size_t room)
{
	if (kind == DEVICE_FILE_MANAGED)
		return "/dev/nvidia-uvm";
	path_of(kind == DEVICE_FILE_CONTROL ? NV_MINOR_CONTROL : (int)device->index, path, room);
	return path;
}

static enum device_file kernel_file_at(const struct device *device, const char *path)
{
	static const enum device_file kinds[] = { DEVICE_FILE_CONTROL, DEVICE_FILE_GPU, DEVICE_FILE_MANAGED };
	char room[32];

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(path, path_of_kind(device, kinds[i], room, sizeof(room))))
			return kinds[i];
	return DEVICE_FILE_NONE;
}

static int kernel_open_kind(struct device *device, enum device_file kind)
{
	char path[32];
	int fd = open(path_of_kind(device, kind, path, sizeof(path)), O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* The owner proxy opens the file, so it accepts no ioctl (proxy_forbid_ioctls). */
static int kernel_open_for_map(struct device *device, struct proxy *owner, enum device_file kind)
{
	char path[32];
	uint64_t args[6] = { (uint64_t)AT_FDCWD, (uintptr_t)path_of_kind(device, kind, path, sizeof(path)),
			     O_RDWR | O_CLOEXEC };

	return (int)proxy_call(owner, OWNER_LIMIT_MS, SYS_openat, args);
}

static int owner_ioctl(struct proxy *owner, int fd, uint32_t cmd, void *arg)
{
	uint64_t args[6] = { (uint64_t)fd, cmd, (uintptr_t)arg };
	long rc;

	do
		rc = proxy_call(owner, OWNER_LIMIT_MS, SYS_ioctl, args);
	while (rc == -EINTR || rc == -EAGAIN);
	return rc < 0 ? (int)rc : 0;
}

static int kernel_call_as(struct device *device, struct proxy *owner, int fd, uint32_t nr, void *arg,
			  uint32_t size)
{
	(void)device;
	return owner_ioctl(owner, fd, (uint32_t)_IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg);
}

static int kernel_managed_call(struct device *device, struct proxy *owner, int fd, uint32_t cmd, void *arg)
{
	(void)device;
	return owner_ioctl(owner, fd, cmd, arg);
}

static int kernel_adopt(struct device *device, struct proxy *owner, struct bf_error *err)
{
	(void)device;
	(void)err;
	/* An old kernel cannot do it: docs/security.md describes the risk. */
	proxy_forbid_ioctls(owner);
	return 0;
}

static unsigned find_major(const char *name)
{
	cleanup_file FILE *devices = fopen("/proc/devices", "re");
	char line[128], found[64];
	unsigned number;

	while (devices && fgets(line, sizeof(line), devices))
		if (sscanf(line, "%u %63s", &number, found) == 2 && !strcmp(found, name))
			return number;
	return 0;
}

/* The module may be loaded later, by the first program that needs it. */
static bool is_uvm(struct nv *nv, unsigned number)
{
	unsigned uvm = atomic_load_explicit(&nv->uvm_major, memory_order_relaxed);

	if (!uvm) {
		uvm = find_major("nvidia-uvm");
		atomic_store_explicit(&nv->uvm_major, uvm, memory_order_relaxed);
	}
	return uvm && number == uvm;
}

static enum device_file kernel_classify(struct device *device, const struct stat *st)
{
	unsigned number = minor(st->st_rdev);

	if (!S_ISCHR(st->st_mode))
		return DEVICE_FILE_NONE;
	/* Display memory is device memory that is not counted: no vGPU has a display. */
	if (major(st->st_rdev) == DRM_MAJOR)
		return DEVICE_FILE_OTHER_GPU;
	if (major(st->st_rdev) != NV_MAJOR)
		return is_uvm(nv_of(device), major(st->st_rdev)) ? DEVICE_FILE_MANAGED : DEVICE_FILE_NONE;
	if (number == NV_MINOR_CONTROL)
		return DEVICE_FILE_CONTROL;
	if (number == NV_MINOR_MODESET)
		return DEVICE_FILE_OTHER_GPU;
	return number == device->index ? DEVICE_FILE_GPU : DEVICE_FILE_OTHER_GPU;
}

/* NULL: it is not installed, or does not know the GPU. */
static struct nvml *kernel_nvml(struct nv *nv)
{
	if (!nv->nvml && !nv->has_no_nvml)
		nv->nvml = nvml_open(nv->device.index);
	nv->has_no_nvml = !nv->nvml;
	return nv->nvml;
}

static int kernel_load(struct device *device, struct device_load *load)
{
	struct nvml *nvml = kernel_nvml(nv_of(device));

	return nvml ? nvml_load(nvml, load) : -ENOTSUP;
}

static void kernel_sense(struct device *device, struct device_sensors *sensors)
{
	const struct nvml *nvml = kernel_nvml(nv_of(device));

	if (nvml)
		nvml_sense(nvml, sensors);
}

/* Enable an event for channel errors of all programs, on its own file. */
static int watch_faults(struct nv *nv, int fd)
{
	struct {
		uint32_t client, device, fd, status;
	} file = { nv->client, OWN_DEVICE, (uint32_t)fd, 0 };
	struct { /* NV0005_ALLOC_PARAMETERS */
		uint32_t client, source, class_id, index;
		uint64_t fd;
	} event = { nv->client, OWN_SUBDEVICE, CLASS_EVENT, NOTIFIER_RC_ERROR, (uint64_t)fd };
	struct { /* NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS */
		uint32_t index, action, state, info32, info16;
	} on = { .index = NOTIFIER_RC_ERROR, .action = ACTION_REPEAT };
	int rc = kernel_ioctl(fd, RM_ESC_ALLOC_OS_EVENT, &file, sizeof(file));

	if (rc || file.status)
		return rc ? rc : (int)file.status;
	rc = own_alloc(nv, OWN_SUBDEVICE, OWN_FAULT_EVENT, CLASS_EVENT, &event, sizeof(event));
	return rc ? rc : own_control(nv, OWN_SUBDEVICE, RM_CTRL_SET_NOTIFICATION, &on, sizeof(on));
}

/* Without the event, some faults of programs that end at once are missed. */
static void open_faults(struct nv *nv)
{
	int fd = kernel_open(nv, NV_MINOR_CONTROL), rc = fd < 0 ? fd : watch_faults(nv, fd);

	if (!rc) {
		nv->device.fault_fd = fd;
		return;
	}
	bf_log(BF_LOG_INFO, "GPU %u: the driver does not report faults (%d)", nv->device.index, rc);
	if (fd >= 0)
		close(fd);
}

/* The event data has the Xid, but not the channel, and is ignored. A file that fails is closed: it would stay
 * ready. */
static void kernel_hear_fault(struct device *device)
{
	uint32_t data[4];
	struct { /* NVOS41_PARAMETERS */
		uint64_t data;
		uint32_t has_more, status;
	} arg = { .has_more = 1 };
	int rc = 0;

	while (!rc && !arg.status && arg.has_more) {
		arg.data = (uintptr_t)data;
		arg.has_more = 0;
		rc = kernel_ioctl(device->fault_fd, RM_ESC_GET_EVENT_DATA, &arg, sizeof(arg));
	}
	if (!rc)
		return;
	close(device->fault_fd);
	device->fault_fd = -1;
}

static void kernel_close(struct device *device)
{
	if (device->fault_fd >= 0)
		close(device->fault_fd);
	nvml_close(nv_of(device)->nvml);
	nv_close(device);
}

static const struct device_ops kernel_ops = {
	.name = "nv",
	.close = kernel_close,
	.classify = kernel_classify,
	.file_at = kernel_file_at,
	.open = kernel_open_kind,
	.open_for_map = kernel_open_for_map,
	.call = kernel_call,
	.call_as = kernel_call_as,
	.managed_call = kernel_managed_call,
	.adopt = kernel_adopt,
	.view = nv_view,
	.unview = nv_unview,
	.page_new = nv_page_new,
	.page_name = nv_page_name,
	.use_of = nv_use_of,
	.load = kernel_load,
	.sense = kernel_sense,
	.hear_fault = kernel_hear_fault,
};

int device_nv_version(char *to, size_t room)
{
	cleanup_file FILE *file = fopen("/sys/module/nvidia/version", "re");

	if (!file || !fgets(to, (int)room, file))
		return -ENOENT;
	to[strcspn(to, "\n")] = 0;
	return 0;
}

struct device *device_nv_open(const struct device_options *options, struct bf_error *err)
{
	char version[sizeof(((struct device *)0)->driver_version)];
	struct device *device;
	struct nv *nv;

	if (device_nv_version(version, sizeof(version))) {
		bf_fail(err, ENOENT, "the NVIDIA driver is not loaded; belfry info shows what was found");
		return NULL;
	}
	nv = nv_new(&transport, &kernel_ops, options->index, err);
	if (!nv)
		return NULL;
	snprintf(nv->device.driver_version, sizeof(nv->device.driver_version), "%s", version);
	device = nv_open(nv, options->any_driver, err);
	if (device)
		open_faults(nv);
	return device;
}
