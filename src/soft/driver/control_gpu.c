/* Controls on a device or subdevice: the properties of the GPU (ctrl2080gpu.h, ctrl2080bus.h,
 * ctrl2080fifo.h). */
#include <stdio.h>

#include "soft/driver/state.h"

enum {
	NAME_MAX_BYTES = 64,
	NAME_BYTES = 4 + 2 * NAME_MAX_BYTES, /* flags, then ASCII or UTF-16 */
	NAME_FLAG_UNICODE = 1,
	GID_BYTES = 12 + 256,
	GID_FLAGS_AT = 4,
	GID_LENGTH_AT = 8,
	GID_DATA_AT = 12,
	GID_FORMAT = 3,
	GID_FORMAT_BINARY = 2,
	PCI_INFO_BYTES = 16,
	BUS_INFO_MAX = 0x34,
	BUS_INFO_BYTES = 4 + 8 * BUS_INFO_MAX,
	LANES = 128, /* thread-instructions per clock of a real SM */
};
#define PCI_DEVICE_ID 0xbe1f10deu /* device, vendor; not used by any card */

static const char gpu_name[] = "Belfry Software GPU", short_name[] = "SOFT";

static uint32_t get_name(struct control_site *site)
{
	uint32_t flags = bf_get32(site->params);

	memset(site->params + 4, 0, NAME_BYTES - 4);
	if (flags != NAME_FLAG_UNICODE) {
		memcpy(site->params + 4, gpu_name, sizeof(gpu_name));
		return RM_OK;
	}
	for (size_t i = 0; i < sizeof(gpu_name); i++)
		site->params[4 + 2 * i] = (uint8_t)gpu_name[i];
	return RM_OK;
}

static uint32_t get_short_name(struct control_site *site)
{
	memset(site->params, 0, NAME_MAX_BYTES);
	memcpy(site->params, short_name, sizeof(short_name));
	return RM_OK;
}

/* Depends only on name and number, so that it is the same after a restart. */
static void make_uuid(const struct driver *driver, uint32_t gpu, uint8_t uuid[16])
{
	static const char prefix[7] = { 'b', 'e', 'l', 'f', 'r', 'y', '-' };
	uint64_t hash = 0xcbf29ce484222325u;

	for (const char *c = driver->config.name; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
	memcpy(uuid, prefix, sizeof(prefix));
	uuid[7] = (uint8_t)gpu;
	memcpy(uuid + 8, &hash, sizeof(hash));
}

static uint32_t get_gid(struct control_site *site)
{
	uint8_t uuid[16], *data = site->params + GID_DATA_AT;
	int length;

	make_uuid(site->driver, site->object->gpu, uuid);
	memset(data, 0, GID_BYTES - GID_DATA_AT);
	if ((bf_get32(site->params + GID_FLAGS_AT) & GID_FORMAT) == GID_FORMAT_BINARY) {
		memcpy(data, uuid, sizeof(uuid));
		bf_put32(site->params + GID_LENGTH_AT, sizeof(uuid));
		return RM_OK;
	}
	length = snprintf((char *)data, GID_BYTES - GID_DATA_AT,
			  "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0],
			  uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9],
			  uuid[10], uuid[11], uuid[12], uuid[13], uuid[14], uuid[15]);
	bf_put32(site->params + GID_LENGTH_AT, (uint32_t)length + 1);
	return RM_OK;
}

static uint32_t get_shape(struct control_site *site)
{
	const struct link_config *config = &site->driver->config;
	uint64_t clock_khz = config->rate / LANES / 1000;
	struct soft_shape_params shape = {
		.sm_count = config->sms,
		.clock_khz = clock_khz ? (uint32_t)clock_khz : 1,
		.mem_bytes = config->mem_bytes,
		.rate = config->rate,
		.gpu_ns = hw_gpu_now_ns(site->driver->gpus[site->object->gpu]),
	};

	memcpy(site->params, &shape, sizeof(shape));
	return RM_OK;
}

/* Refused for a program under a warden: it shows the activity of other programs. */
static uint32_t get_counters(struct control_site *site)
{
	struct soft_counters_params counters;

	if (site->site->call->is_on_behalf)
		return RM_ERR_INSUFFICIENT_PERMISSIONS;
	hw_gpu_get_counters(site->driver->gpus[site->object->gpu], &counters);
	memcpy(site->params, &counters, sizeof(counters));
	return RM_OK;
}

static uint32_t get_time(struct control_site *site)
{
	bf_put64(site->params, hw_gpu_now_ns(site->driver->gpus[site->object->gpu]));
	return RM_OK;
}

static uint32_t get_pci_info(struct control_site *site)
{
	memset(site->params, 0, PCI_INFO_BYTES);
	bf_put32(site->params, PCI_DEVICE_ID);
	return RM_OK;
}

/* {count, {index, value}[]}: every value is 0, because there is no bus. */
static uint32_t get_bus_info(struct control_site *site)
{
	uint32_t count = bf_get32(site->params);

	if (count > BUS_INFO_MAX)
		return RM_ERR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < count; i++)
		bf_put32(site->params + 8 + 8 * (size_t)i, 0);
	return RM_OK;
}

static uint32_t get_subdevice_count(struct control_site *site)
{
	bf_put32(site->params, 1);
	return RM_OK;
}

/* Finds the listed channels and takes references. Any client may do this with its own channels. */
static uint32_t find_channels(struct control_site *site, struct object **found, uint32_t count)
{
	const struct rm_layout *layout = site->driver->layout;

	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *at = site->params + 4 * (size_t)i;
		struct object *channel;

		if (bf_get32(at + layout->disable_clients) != site->client->handle)
			return RM_ERR_INSUFFICIENT_PERMISSIONS;
		channel = object_find(site->client, bf_get32(at + layout->disable_channels), OBJECT_CHANNEL);
		if (!channel || channel->gpu != site->object->gpu)
			return ERR_NOT_FOUND;
		found[i] = object_get(channel);
	}
	return RM_OK;
}

static uint32_t disable_channels(struct control_site *site)
{
	enum { CHANNELS_MAX = 64 };
	const struct rm_layout *layout = site->driver->layout;
	struct object *found[CHANNELS_MAX] = { NULL };
	struct hw_channel *channels[CHANNELS_MAX];
	uint32_t count, status;

	if (site->bytes != layout->disable_size ||
	    bf_get32(site->params + layout->disable_count) > CHANNELS_MAX)
		return RM_ERR_INVALID_ARGUMENT;
	count = bf_get32(site->params + layout->disable_count);
	pthread_mutex_lock(&site->driver->lock);
	status = find_channels(site, found, count);
	pthread_mutex_unlock(&site->driver->lock);
	for (uint32_t i = 0; !status && i < count; i++)
		channels[i] = found[i]->channel.hw;
	if (!status && count)
		hw_channels_disable(channels, count, site->params[0]);
	for (uint32_t i = 0; i < count; i++)
		object_put(found[i]);
	return status;
}

const struct control controls_gpu[] = {
	{ 0x800280, 4, OBJECT_DEVICE, get_subdevice_count },
	{ 0x20800110, NAME_BYTES, OBJECT_SUBDEVICE, get_name },
	{ 0x20800111, NAME_MAX_BYTES, OBJECT_SUBDEVICE, get_short_name },
	{ 0x2080014a, GID_BYTES, OBJECT_SUBDEVICE, get_gid },
	{ RM_CTRL_GET_PIDS, 0, OBJECT_SUBDEVICE, told_pids },
	{ RM_CTRL_GET_PID_INFO, 0, OBJECT_SUBDEVICE, told_pid_info },
	{ 0x20800403, 8, OBJECT_SUBDEVICE, get_time },
	{ RM_CTRL_DISABLE_CHANNELS, 0, OBJECT_SUBDEVICE, disable_channels },
	{ RM_CTRL_FB_GET_INFO_V2, 0, OBJECT_SUBDEVICE, told_fb_info },
	{ 0x20801801, PCI_INFO_BYTES, OBJECT_SUBDEVICE, get_pci_info },
	{ 0x20801823, BUS_INFO_BYTES, OBJECT_SUBDEVICE, get_bus_info },
	{ SOFT_CTRL_GPU_GET_SHAPE, sizeof(struct soft_shape_params), OBJECT_SUBDEVICE, get_shape },
	{ SOFT_CTRL_GPU_GET_COUNTERS, sizeof(struct soft_counters_params), OBJECT_SUBDEVICE, get_counters },
	{ 0 },
};
