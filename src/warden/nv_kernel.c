/* The kernel's own driver: character devices in /dev. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "base/own.h"
#include "warden/nv.h"
#include "warden/nvml.h"

enum { NV_MAJOR = 195 };

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

static int kernel_why_not(const struct nv *nv, int minor, int why, struct bf_error *err)
{
	char path[32];

	(void)nv;
	path_of(minor, path, sizeof(path));
	if (why == ENOENT || why == ENXIO || why == ENODEV)
		return bf_fail(err, why, "%s: no NVIDIA GPU is here; belfry info tells what was found", path);
	if (why == EACCES || why == EPERM)
		return bf_fail(err, why,
			       "%s: no permission; ask for read and write access to the device files", path);
	return bf_fail(err, why, "%s: %s", path, strerror(why));
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

static const struct nv_road road = {
	.open = kernel_open,
	.why_not = kernel_why_not,
	.call = kernel_ioctl,
	.map = kernel_map,
};

static int kernel_call(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	(void)device;
	return kernel_ioctl(fd, nr, arg, size);
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

/* The module may be loaded by the first program that needs it, long after us. */
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
	if (major(st->st_rdev) != NV_MAJOR)
		return is_uvm(nv_of(device), major(st->st_rdev)) ? DEVICE_FILE_MANAGED : DEVICE_FILE_NONE;
	if (number == NV_MINOR_CONTROL)
		return DEVICE_FILE_CONTROL;
	if (number == NV_MINOR_MODESET)
		return DEVICE_FILE_NONE;
	return number == device->index ? DEVICE_FILE_GPU : DEVICE_FILE_OTHER_GPU;
}

static int kernel_load(struct device *device, struct device_load *load)
{
	struct nv *nv = nv_of(device);

	if (!nv->nvml)
		nv->nvml = nvml_open(device->index);
	return nv->nvml ? nvml_load(nv->nvml, load) : -ENOTSUP;
}

static void kernel_close(struct device *device)
{
	nvml_close(nv_of(device)->nvml);
	nv_close(device);
}

static const struct device_ops kernel_ops = {
	.name = "nv",
	.close = kernel_close,
	.classify = kernel_classify,
	.call = kernel_call,
	.view = nv_view,
	.unview = nv_unview,
	.page_new = nv_page_new,
	.page_name = nv_page_name,
	.use_of = nv_use_of,
	.load = kernel_load,
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
	struct nv *nv;

	if (device_nv_version(version, sizeof(version))) {
		bf_fail(err, ENOENT, "the NVIDIA driver is not loaded; belfry info tells what was found");
		return NULL;
	}
	nv = nv_new(&road, &kernel_ops, options->index, err);
	if (!nv)
		return NULL;
	snprintf(nv->device.driver_version, sizeof(nv->device.driver_version), "%s", version);
	return nv_open(nv, options->any_driver, err);
}
