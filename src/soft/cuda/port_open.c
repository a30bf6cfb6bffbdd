/* cuInit: find or start the software GPU, and select the GPUs that this program can use. */
#include "soft/cuda/core.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "rm/rm.h"
#include "soft/cuda/port.h"
#include "soft/link/link.h"

enum { CLASS_CLIENT = 0x41, CLASS_DEVICE = 0x80, CLASS_SUBDEVICE = 0x2080, CLASS_DOORBELL = 0xc661 };
enum { CTRL_GPU_GET_GID_INFO = 0x2080014a, GID_FORMAT_BINARY = 2 };

char port_folder[PATH_MAX];

static bool try_server(const char *folder, const char *name, char *to, size_t room)
{
	return snprintf(to, room, "%s/%s", folder, name) < (int)room && !access(to, X_OK);
}

/* Find belfry-soft: by the environment, or relative to this library, as installed or as built. */
static bool find_server(char *to, size_t room)
{
	const char *said = secure_getenv("BELFRY_SOFT_SERVER"); /* secure: the file is executed */
	char path[PATH_MAX];
	Dl_info info;

	if (said && *said)
		return snprintf(to, room, "%s", said) < (int)room;
	if (!dladdr(&port, &info) || !info.dli_fname || !realpath(info.dli_fname, path))
		return false;
	for (char *slash = strrchr(path, '/'); slash && slash != path; slash = strrchr(path, '/')) {
		*slash = '\0';
		if (try_server(path, "libexec/belfry/belfry-soft", to, room) ||
		    try_server(path, "belfry-soft", to, room))
			return true;
	}
	return false;
}

/* Under `belfry run` the folder is given, and no server is started. */
static CUresult find_folder(char *folder, size_t room)
{
	struct link_config config = link_default;
	const char *text = getenv("BELFRY_SOFT"), *given = getenv("BELFRY_SOFT_DIR");
	char server[PATH_MAX];

	if (text && *text && link_config_parse(text, &config, NULL))
		return CUDA_ERROR_NO_DEVICE;
	if (!(given && *given) && find_server(server, sizeof(server)))
		return link_start(server, &config, folder, room, NULL) ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
	return link_folder(config.name, folder, room, NULL) ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

static CUresult open_client(void)
{
	struct rm_arg_alloc arg = { .class_id = CLASS_CLIENT };
	CUresult result;

	port.control = link_open(port_folder, SOFT_FILE_CONTROL);
	if (port.control < 0)
		return CUDA_ERROR_NO_DEVICE;
	result = port_result(link_call(port.control, RM_ESC_ALLOC, &arg, sizeof(arg)), arg.status);
	port.client = arg.object;
	return result;
}

static CUresult open_bell(struct gpu *gpu)
{
	uint8_t params[2] = { 0 };
	void *at = NULL;
	CUresult result = port_alloc(gpu->subdevice, &gpu->doorbell, CLASS_DOORBELL, params, sizeof(params));

	if (!result)
		result = port_map(gpu, gpu->doorbell, SOFT_BELL_BYTES, &at);
	gpu->bell = at;
	return result;
}

static CUresult get_uuid(struct gpu *gpu)
{
	/* NV2080_CTRL_GPU_GET_GID_INFO: index, flags, length, data. */
	uint32_t params[3 + 256 / 4] = { 0, GID_FORMAT_BINARY };
	CUresult result = port_control(gpu->subdevice, CTRL_GPU_GET_GID_INFO, params, sizeof(params));

	memcpy(gpu->uuid.bytes, params + 3, sizeof(gpu->uuid.bytes));
	return result;
}

static CUresult open_gpu(unsigned minor, struct gpu *gpu)
{
	const struct rm_layout *layout = rm_layout_find(SOFT_DRIVER_VERSION);
	uint8_t params[64] = { 0 };
	int32_t control = port.control;
	CUresult result;

	*gpu = (struct gpu){ .minor = minor };
	gpu->file = link_open(port_folder, SOFT_FILE_GPU_0 + minor);
	if (gpu->file < 0)
		return CUDA_ERROR_NO_DEVICE;
	if (!layout || layout->device_size > sizeof(params))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	if (link_call(gpu->file, RM_ESC_REGISTER_FD, &control, sizeof(control))) {
		close(gpu->file); /* access denied: a vGPU has one GPU */
		return CUDA_ERROR_NO_DEVICE;
	}
	memcpy(params + layout->device_instance, &minor, sizeof(minor));
	result = port_alloc(port.client, &gpu->device, CLASS_DEVICE, params, layout->device_size);
	memset(params, 0, sizeof(params));
	if (!result)
		result = port_alloc(gpu->device, &gpu->subdevice, CLASS_SUBDEVICE, params,
				    layout->subdevice_size);
	if (!result)
		result = port_control(gpu->subdevice, SOFT_CTRL_GPU_GET_SHAPE, &gpu->shape,
				      sizeof(gpu->shape));
	if (!result)
		result = open_bell(gpu);
	if (!result)
		result = get_uuid(gpu);
	snprintf(gpu->name, sizeof(gpu->name), "Belfry Software GPU");
	if (result)
		close(gpu->file);
	return result;
}

/* Open all GPUs, in order. */
static CUresult open_gpus(struct gpu *all, unsigned *count)
{
	*count = 0;
	for (unsigned minor = 0; minor < SOFT_GPUS_MAX; minor++) {
		CUresult result = open_gpu(minor, &all[*count]);

		if (!result)
			++*count;
		else if (result != CUDA_ERROR_NO_DEVICE)
			return result;
	}
	return CUDA_SUCCESS;
}

/* "GPU-" and a prefix of the hexadecimal digits. */
static bool has_uuid(const struct gpu *gpu, const char *text, size_t length)
{
	const uint8_t *b = (const uint8_t *)gpu->uuid.bytes;
	char whole[48];

	snprintf(whole, sizeof(whole),
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
		 b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return length > 4 && length <= strlen(whole) && !strncasecmp(whole, text, length);
}

static unsigned find_named(const struct gpu *all, unsigned count, const char *text, size_t length)
{
	unsigned number = 0;
	int digits = 0;

	if (length < 4 && sscanf(text, "%u%n", &number, &digits) == 1 && (size_t)digits == length)
		return number;
	for (unsigned i = 0; i < count; i++)
		if (has_uuid(&all[i], text, length))
			return i;
	return count;
}

/* CUDA_VISIBLE_DEVICES: indices or uuids in the requested order, up to the first invalid one. A duplicate
 * hides all GPUs, as in the real library. */
static void choose_gpus(struct gpu *all, unsigned count)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	unsigned seen = 0;

	port.gpu_count = 0;
	while (list && *list) {
		size_t length = strcspn(list, ",");
		unsigned found = find_named(all, count, list, length);

		if (found >= count)
			break;
		if (seen & 1u << found) {
			port.gpu_count = 0;
			break;
		}
		seen |= 1u << found;
		port.gpus[port.gpu_count++] = all[found];
		list += length + (list[length] == ',');
	}
	for (unsigned i = 0; i < count && !list; i++)
		port.gpus[port.gpu_count++] = all[i];
	for (unsigned i = 0; i < port.gpu_count; i++)
		port.gpus[i].index = i;
}

CUresult port_open(void)
{
	struct gpu all[SOFT_GPUS_MAX];
	unsigned count = 0;
	CUresult result;

	if (port.is_open)
		return port.pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
	result = find_folder(port_folder, sizeof(port_folder));
	if (!result)
		result = open_client();
	if (!result)
		result = port_join_domain();
	if (!result)
		result = open_gpus(all, &count);
	if (!result)
		choose_gpus(all, count);
	if (!result && !port.gpu_count)
		result = CUDA_ERROR_NO_DEVICE;
	if (result) {
		for (unsigned i = 0; i < count; i++)
			close(all[i].file);
		if (port.control >= 0)
			close(port.control);
		port.control = -1;
		return result;
	}
	port.pid = getpid();
	/* Pairs with the load in api_enter: a thread that sees is_open sees the rest. */
	__atomic_store_n(&port.is_open, true, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}
