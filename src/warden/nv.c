/* The GPU server as a client of the driver: one RM client with a device, a subdevice and a doorbell, kept as
 * long as the device is open. The calls go through a transport (nv.h). */
#include "warden/nv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/own.h"
#include "base/text.h"
#include "rm/tables.h"

enum {
	BELL_BYTES = 0x10000,
	CARD_INFO_SIZE = 72, /* nv_ioctl_card_info_t */
	CARD_INFO_COUNT = 32,
	CARD_INFO_GPU_ID = 16,
	CARD_INFO_MINOR = 56,
	/* NVOS33 flags as libcuda sends them (recorded): write-only for a doorbell, read and write for
	 * memory. */
	MAP_FLAGS_BELL = 0x80002,
	MAP_FLAGS_MEMORY = 0xc0000,
	MAP_FLAG_READ_ONLY = 1,
	/* NVOS32 attributes: in host memory (26:25 = 1), 4 KiB pages (24:23 = 1), cached (31:29 = 1). */
	HOST_MEMORY_ATTR = 1 << 29 | 1 << 25 | 1 << 23,
	HOST_MEMORY_ATTR2 = 2 << 2, /* not in the GPU's cache; in the next word */
	READ_ONLY_ATTR2 = 1 << 22,  /* for user space; the driver requires it for event buffers */
	MEMORY_OWNER_AT = 0,	    /* NV_MEMORY_ALLOCATION_PARAMS: any number that the driver does not use */
	FB_TOTAL_INDEX = 0x08,
	GID_BINARY = 2,
};

#define OWN_BELL 0xbe1f0003u
#define OWN_FIRST_VIEW 0xbe200000u
#define OWN_LAST_VIEW 0xbe2fffffu

int own_alloc(struct nv *nv, uint32_t parent, uint32_t handle, uint32_t class_id, void *params, uint32_t size)
{
	struct rm_arg_alloc arg = { .client = nv->client,
				    .parent = parent,
				    .object = handle,
				    .class_id = class_id,
				    .params = (uintptr_t)params,
				    .size = size };
	int rc = nv->transport->call(nv->control_fd, RM_ESC_ALLOC, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int own_control(struct nv *nv, uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	struct rm_arg_control arg = {
		.client = nv->client, .object = object, .cmd = cmd, .params = (uintptr_t)params, .size = size
	};
	int rc = nv->transport->call(nv->control_fd, RM_ESC_CONTROL, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

/* Map an object of the GPU server. The mapping is prepared on a temporary file, which can be closed
 * afterwards. */
static int own_map(struct nv *nv, uint32_t memory, uint64_t bytes, uint32_t flags, int prot, bool is_vidmem,
		   void **at)
{
	cleanup_close int file =
		nv->transport->open(nv, is_vidmem ? (int)nv->device.index : NV_MINOR_CONTROL);
	struct rm_arg_map arg = { .client = nv->client,
				  .device = is_vidmem ? OWN_SUBDEVICE : OWN_DEVICE,
				  .memory = memory,
				  .length = bytes,
				  .flags = flags,
				  .fd = file };
	int rc;

	if (file < 0)
		return file;
	rc = nv->transport->call(nv->control_fd, RM_ESC_MAP_MEMORY, &arg, sizeof(arg));
	if (rc || arg.status)
		return rc ? rc : (int)arg.status;
	*at = nv->transport->map(file, bytes, prot);
	return *at == MAP_FAILED ? -errno : 0;
}

uint32_t own_next_handle(struct nv *nv)
{
	uint32_t made = atomic_fetch_add_explicit(&nv->views_made, 1, memory_order_relaxed);

	return OWN_FIRST_VIEW + made % (OWN_LAST_VIEW - OWN_FIRST_VIEW + 1);
}

void own_free(struct nv *nv, uint32_t handle)
{
	struct rm_arg_free arg = { .client = nv->client, .parent = OWN_DEVICE, .object = handle };

	if (nv->transport->call(nv->control_fd, RM_ESC_FREE, &arg, sizeof(arg)) || arg.status)
		bf_log(BF_LOG_WARN, "object %x of the GPU server was not freed, status 0x%x", handle,
		       arg.status);
}

/* The driver lets a process duplicate only objects of its own clients. But the owner can share an object with
 * another client through the owner's control file, which is `through`. */
static int share_and_dup(const struct nv *nv, int through, uint32_t owner, uint32_t object, int into,
			 struct rm_arg_dup *dup, struct bf_error *err)
{
	struct rm_arg_share share = { .client = owner,
				      .object = object,
				      .target = dup->client,
				      .access_mask = RM_SHARE_DUP,
				      .type = RM_SHARE_WITH_CLIENT,
				      .action = RM_SHARE_COMPOSE };
	int rc = nv->transport->call(through, RM_ESC_SHARE, &share, sizeof(share));

	if (rc || share.status)
		return bf_fail(err, EIO, "memory %x of client %x: sharing failed (%d, status 0x%x)", object,
			       owner, rc, share.status);
	dup->source_client = owner;
	dup->source_object = object;
	rc = nv->transport->call(into, RM_ESC_DUP_OBJECT, dup, sizeof(*dup));
	if (rc || dup->status)
		return bf_fail(err, EIO, "memory %x of client %x: duplicating failed (%d, status 0x%x)",
			       object, owner, rc, dup->status);
	return 0;
}

/* One handle is enough. While the page is shared, any process that has the client's control file could make
 * another. */
static void unshare(const struct nv *nv, uint32_t object, uint32_t with)
{
	struct rm_arg_share share = { .client = nv->client,
				      .object = object,
				      .target = with,
				      .access_mask = RM_SHARE_DUP,
				      .type = RM_SHARE_WITH_CLIENT,
				      .action = RM_SHARE_COMPOSE | RM_SHARE_REVOKE };

	if (nv->transport->call(nv->control_fd, RM_ESC_SHARE, &share, sizeof(share)) || share.status)
		bf_log(BF_LOG_WARN, "object %x of the GPU server is still shared with client %x, status 0x%x",
		       object, with, share.status);
}

/* The duplicate keeps the memory allocated, so reading it stays safe whatever the program frees. */
int nv_view(struct device *device, int control_fd, uint32_t client, const struct device_view *what,
	    bool is_vidmem, struct device_view *view, struct bf_error *err)
{
	struct nv *nv = nv_of(device);
	struct rm_arg_dup dup = { .client = nv->client, .parent = OWN_DEVICE, .object = own_next_handle(nv) };
	int rc = share_and_dup(nv, control_fd, client, what->handle, nv->control_fd, &dup, err);

	if (rc)
		return rc;
	*view = (struct device_view){ .bytes = what->bytes, .handle = dup.object };
	rc = own_map(nv, view->handle, what->bytes, MAP_FLAGS_MEMORY, PROT_READ | PROT_WRITE, is_vidmem,
		     &view->base);
	if (!rc)
		return 0;
	own_free(nv, view->handle);
	return bf_fail(err, EIO, "memory %x of client %x: mapping failed (%d)", what->handle, client, rc);
}

void nv_unview(struct device *device, struct device_view *view)
{
	munmap(view->base, view->bytes);
	own_free(nv_of(device), view->handle);
}

int own_host_memory(struct nv *nv, uint64_t bytes, bool is_read_only, struct device_view *memory,
		    struct bf_error *err)
{
	const struct rm_layout *layout = nv->device.layout;
	cleanup_free uint8_t *params = calloc(1, layout->memory_size);
	uint32_t attr[2] = { HOST_MEMORY_ATTR, HOST_MEMORY_ATTR2 | (is_read_only ? READ_ONLY_ATTR2 : 0) };
	int rc;

	if (!params)
		return bf_fail(err, ENOMEM, "out of memory");
	memcpy(params + MEMORY_OWNER_AT, &nv->client, sizeof(nv->client));
	memcpy(params + layout->memory_attr, attr, sizeof(attr));
	memcpy(params + layout->memory_bytes, &bytes, sizeof(bytes));
	*memory = (struct device_view){ .bytes = bytes, .handle = own_next_handle(nv) };
	rc = own_alloc(nv, OWN_DEVICE, memory->handle, 0x3e, params, layout->memory_size);
	if (rc)
		return bf_fail(err, EIO, "the driver does not allocate host memory (0x%x)", (unsigned)rc);
	rc = own_map(nv, memory->handle, bytes, MAP_FLAGS_MEMORY | (is_read_only ? MAP_FLAG_READ_ONLY : 0),
		     is_read_only ? PROT_READ : PROT_READ | PROT_WRITE, false, &memory->base);
	if (!rc)
		return 0;
	own_free(nv, memory->handle);
	memory->base = NULL;
	return bf_fail(err, EIO, "host memory cannot be mapped (%d)", rc);
}

int nv_page_new(struct device *device, struct device_view *page, struct bf_error *err)
{
	return own_host_memory(nv_of(device), 4096, false, page, err);
}

int nv_page_name(struct device *device, int control_fd, uint32_t client, uint32_t parent, uint32_t handle,
		 const struct device_view *page, struct bf_error *err)
{
	struct nv *nv = nv_of(device);
	struct rm_arg_dup dup = { .client = client, .parent = parent, .object = handle };
	int rc = share_and_dup(nv, nv->control_fd, nv->client, page->handle, control_fd, &dup, err);

	unshare(nv, page->handle, client);
	return rc;
}

int nv_use_of(struct device *device, pid_t pid, struct device_use *use)
{
	const struct rm_layout *layout = device->layout;
	cleanup_free uint8_t *params = calloc(1, layout->pid_info_size);
	uint32_t count = 1, number = (uint32_t)pid;
	uint8_t *entry;
	int rc;

	if (!params)
		return -ENOMEM;
	entry = params + layout->pid_info_list;
	memcpy(params, &count, sizeof(count));
	memcpy(entry, &number, sizeof(number));
	rc = own_control(nv_of(device), OWN_SUBDEVICE, RM_CTRL_GET_PID_INFO, params, layout->pid_info_size);
	if (rc)
		return rc < 0 ? rc : -EIO;
	use->own_bytes = bf_get64(entry + layout->pid_info_private) +
			 bf_get64(entry + layout->pid_info_owned);
	use->imported_bytes = bf_get64(entry + layout->pid_info_duped);
	return 0;
}

void nv_close(struct device *device)
{
	struct nv *nv = nv_of(device);

	if (device->bell)
		munmap((void *)(uintptr_t)device->bell, BELL_BYTES);
	if (nv->device.gpu_fd >= 0)
		close(nv->device.gpu_fd);
	if (nv->control_fd >= 0)
		close(nv->control_fd); /* the driver frees the client and all its objects */
	if (nv->connection >= 0)
		close(nv->connection);
	free(nv);
}

static const struct rm_layout *choose_layout(const char *version, bool any_driver, struct bf_error *err)
{
	const struct rm_layout *layout = rm_layout_find(version), *last = rm_layout_at(0);
	char known[128] = "";

	if (layout)
		return layout;
	for (unsigned i = 0; rm_layout_at(i); i++) {
		last = rm_layout_at(i);
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "",
			 last->series);
	}
	if (!any_driver) {
		bf_fail(err, ENOTSUP,
			"driver %s: its series is not known; known are %s; --any-driver uses the "
			"nearest layout at your risk",
			version, known);
		return NULL;
	}
	bf_log(BF_LOG_WARN, "driver %s is unknown; using the layout of series %s because of --any-driver",
	       version, last->series);
	return last;
}

/* The GPU ID and the device instance of /dev/nvidiaN. */
static int find_instance(struct nv *nv, struct bf_error *err)
{
	const struct rm_layout *layout = nv->device.layout;
	cleanup_free uint8_t *cards = calloc(CARD_INFO_COUNT, CARD_INFO_SIZE);
	cleanup_free uint8_t *info = calloc(1, layout->id_info_v2_size);
	uint32_t attach[33] = { 0 };
	int rc;

	if (!cards || !info)
		return bf_fail(err, ENOMEM, "out of memory");
	rc = nv->transport->call(nv->control_fd, RM_ESC_CARD_INFO, cards, CARD_INFO_COUNT * CARD_INFO_SIZE);
	if (rc)
		return bf_fail(err, -rc, "the driver does not list its GPUs: %s", strerror(-rc));
	for (int i = 0; i < CARD_INFO_COUNT; i++) {
		const uint8_t *card = cards + (size_t)i * CARD_INFO_SIZE;
		uint32_t number;

		memcpy(&number, card + CARD_INFO_MINOR, sizeof(number));
		if (!card[0] || number != nv->device.index)
			continue;
		memcpy(&attach[0], card + CARD_INFO_GPU_ID, sizeof(uint32_t));
		memcpy(info + layout->id_info_v2_gpu_id, &attach[0], sizeof(uint32_t));
		attach[1] = 0xffffffff; /* the end of the list */
		own_control(nv, nv->client, RM_CTRL_ROOT_ATTACH_IDS, attach, sizeof(attach));
		rc = own_control(nv, nv->client, RM_CTRL_ROOT_GET_ID_INFO_V2, info, layout->id_info_v2_size);
		if (rc)
			return bf_fail(err, EIO,
				       "GPU %u: the driver does not report its device instance (0x%x)",
				       nv->device.index, (unsigned)rc);
		memcpy(&nv->device.instance, info + layout->id_info_v2_device_instance, sizeof(uint32_t));
		return 0;
	}
	return nv->transport->open_failed(nv, (int)nv->device.index, ENODEV, err);
}

/* If the driver does not report the UUID, it is not checked. */
static void learn_uuid(struct nv *nv)
{
	struct { /* NV2080_CTRL_GPU_GET_GID_INFO_PARAMS */
		uint32_t index, flags, length;
		uint8_t data[256];
	} gid = { .flags = GID_BINARY };

	nv->device.has_uuid = !own_control(nv, OWN_SUBDEVICE, RM_CTRL_GET_GID_INFO, &gid, sizeof(gid));
	memcpy(nv->device.uuid, gid.data, sizeof(nv->device.uuid));
}

/* For people; the size differs by series. */
static void learn_model(struct nv *nv)
{
	const struct rm_control *control = rm_control_find(nv->device.layout, RM_CTRL_GET_NAME_STRING);
	struct { /* NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS: ASCII, or UTF-16 with the flag */
		uint32_t flags;
		char ascii[128];
	} name = { 0 };

	if (!control || control->bytes > sizeof(name) ||
	    own_control(nv, OWN_SUBDEVICE, RM_CTRL_GET_NAME_STRING, &name, control->bytes))
		return;
	snprintf(nv->device.model, sizeof(nv->device.model), "%.63s", name.ascii);
	bf_plain(nv->device.model);
}

static int make_objects(struct nv *nv, struct bf_error *err)
{
	static const uint32_t bells[] = { 0xc761, 0xc661, 0xc561, 0xc461 };
	const struct rm_layout *layout = nv->device.layout;
	cleanup_free uint8_t *device = calloc(1, layout->device_size);
	cleanup_free uint8_t *fb = calloc(1, layout->fb_info_size);
	uint32_t subdevice = 0, fb_query[3] = { 1, FB_TOTAL_INDEX, 0 };
	void *bell = NULL;
	int rc;

	if (!device || !fb)
		return bf_fail(err, ENOMEM, "out of memory");
	memcpy(device + layout->device_instance, &nv->device.instance, sizeof(uint32_t));
	rc = own_alloc(nv, nv->client, OWN_DEVICE, 0x80, device, layout->device_size);
	if (!rc)
		rc = own_alloc(nv, OWN_DEVICE, OWN_SUBDEVICE, 0x2080, &subdevice, sizeof(subdevice));
	if (rc)
		return bf_fail(err, EIO, "GPU %u: the driver does not allocate a device (0x%x)",
			       nv->device.index, (unsigned)rc);
	rc = -1;
	for (unsigned i = 0; rc && i < sizeof(bells) / sizeof(bells[0]); i++)
		rc = own_alloc(nv, OWN_SUBDEVICE, OWN_BELL, bells[i], NULL, 0);
	if (!rc)
		rc = own_map(nv, OWN_BELL, BELL_BYTES, MAP_FLAGS_BELL, PROT_WRITE, true, &bell);
	if (rc)
		return bf_fail(err, EIO, "GPU %u: the driver does not allocate a doorbell (0x%x)",
			       nv->device.index, (unsigned)rc);
	nv->device.bell = bell;
	learn_uuid(nv);
	learn_model(nv);
	memcpy(fb, fb_query, sizeof(fb_query));
	rc = own_control(nv, OWN_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, layout->fb_info_size);
	if (rc)
		return bf_fail(err, EIO, "GPU %u: the driver does not report the size of its memory (0x%x)",
			       nv->device.index, (unsigned)rc);
	memcpy(fb_query, fb, sizeof(fb_query));
	nv->device.mem_bytes = (uint64_t)fb_query[2] << 10;
	return 0;
}

static int setup(struct nv *nv, struct bf_error *err)
{
	struct rm_arg_alloc root = { .class_id = 0x41 };
	int rc;

	nv->control_fd = nv->transport->open(nv, NV_MINOR_CONTROL);
	if (nv->control_fd < 0)
		return nv->transport->open_failed(nv, NV_MINOR_CONTROL, -nv->control_fd, err);
	rc = nv->transport->call(nv->control_fd, RM_ESC_ALLOC, &root, sizeof(root));
	/* The software GPU accepts calls of supervised programs from their supervisor only. */
	if (rc == -EPERM)
		return bf_fail(err, EBUSY, "this program is supervised already; one belfry run is enough");
	if (rc || root.status)
		return bf_fail(err, EIO, "the driver does not allocate a client (%d, status 0x%x)", rc,
			       root.status);
	nv->client = root.object;
	rc = find_instance(nv, err);
	if (rc)
		return rc;
	/* Kept open, so that the GPU stays awake and initialised. */
	nv->device.gpu_fd = nv->transport->open(nv, (int)nv->device.index);
	if (nv->device.gpu_fd < 0)
		return nv->transport->open_failed(nv, (int)nv->device.index, -nv->device.gpu_fd, err);
	rc = nv->transport->call(nv->device.gpu_fd, RM_ESC_REGISTER_FD, &nv->control_fd,
				 sizeof(nv->control_fd));
	if (rc)
		return bf_fail(err, -rc, "GPU %u: %s", nv->device.index, strerror(-rc));
	return make_objects(nv, err);
}

struct nv *nv_new(const struct nv_transport *transport, const struct device_ops *ops, unsigned index,
		  struct bf_error *err)
{
	struct nv *nv = calloc(1, sizeof(*nv));

	if (!nv) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	nv->device.ops = ops;
	nv->device.index = index;
	nv->device.end_fd = nv->device.fault_fd = -1;
	nv->transport = transport;
	nv->control_fd = nv->device.gpu_fd = nv->connection = -1;
	return nv;
}

struct device *nv_open(struct nv *nv, bool any_driver, struct bf_error *err)
{
	nv->device.layout = choose_layout(nv->device.driver_version, any_driver, err);
	if (nv->device.layout && !setup(nv, err))
		return &nv->device;
	nv_close(&nv->device);
	return NULL;
}
