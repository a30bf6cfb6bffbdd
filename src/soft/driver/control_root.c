/* Controls on a client: the list of GPUs (ctrl0000gpu.h), and shared domains. */
#include "soft/driver/state.h"

enum {
	IDS_MAX = 32,
	IDS_BYTES = 4 * IDS_MAX,
	ATTACH_FAILED_AT = IDS_BYTES,
	PROBED_EXCLUDED_AT = IDS_BYTES,
	PROBED_FLAGS_AT = 2 * IDS_BYTES,
	/* GET_ID_INFO, the older form, has a pointer to a name at 16, which is not followed */
	ID_INFO_BYTES = 40,
	ID_INFO_INSTANCE_AT = 8,
	ID_INFO_GPU_AT = 32,
	ID_INFO_NUMA_AT = 36,
	ID_INFO_V2_BYTES = 32,
	ID_INFO_V2_GPU_AT = 24,
	ID_INFO_V2_NUMA_AT = 28,
	PCI_INFO_BYTES = 12,
	PCI_INFO_BUS_AT = 8,
};
#define NO_ID 0xffffffffu
#define ALL_IDS 0x0000ffffu
#define NO_NUMA 0xffffffffu

/* The first GPU is on bus 1. */
static uint32_t id_of(uint32_t gpu)
{
	return (gpu + 1) << 8;
}

static bool find_id(const struct driver *driver, uint32_t id, uint32_t *gpu)
{
	*gpu = (id >> 8) - 1;
	return !(id & 0xff) && *gpu < driver->config.gpus;
}

static void list_ids(const struct driver *driver, uint8_t *to)
{
	for (uint32_t i = 0; i < IDS_MAX; i++)
		bf_put32(to + 4 * (size_t)i, i < driver->config.gpus ? id_of(i) : NO_ID);
}

static uint32_t get_attached(struct control_site *site)
{
	list_ids(site->driver, site->params);
	return RM_OK;
}

static uint32_t get_probed(struct control_site *site)
{
	list_ids(site->driver, site->params);
	memset(site->params + PROBED_EXCLUDED_AT, 0xff, IDS_BYTES);
	memset(site->params + PROBED_FLAGS_AT, 0, IDS_BYTES);
	return RM_OK;
}

static uint32_t attach(struct control_site *site)
{
	uint32_t gpu;

	for (uint32_t i = 0; i < IDS_MAX; i++) {
		uint32_t id = bf_get32(site->params + 4 * (size_t)i);

		if (id == NO_ID || id == ALL_IDS)
			break;
		if (!find_id(site->driver, id, &gpu)) {
			bf_put32(site->params + ATTACH_FAILED_AT, id);
			return RM_ERR_INVALID_ARGUMENT;
		}
	}
	return RM_OK;
}

static uint32_t accept(struct control_site *site)
{
	(void)site;
	return RM_OK;
}

static uint32_t get_id_info(struct control_site *site)
{
	uint32_t gpu;

	if (!find_id(site->driver, bf_get32(site->params), &gpu))
		return RM_ERR_INVALID_ARGUMENT;
	bf_put32(site->params + 4, 0);
	bf_put32(site->params + ID_INFO_INSTANCE_AT, gpu);
	bf_put32(site->params + 12, 0);
	memset(site->params + 24, 0, ID_INFO_BYTES - 24);
	bf_put32(site->params + ID_INFO_GPU_AT, gpu);
	bf_put32(site->params + ID_INFO_NUMA_AT, NO_NUMA);
	return RM_OK;
}

static uint32_t get_id_info_v2(struct control_site *site)
{
	const struct rm_layout *layout = site->driver->layout;
	uint32_t gpu;

	if (!find_id(site->driver, bf_get32(site->params + layout->id_info_v2_gpu_id), &gpu))
		return RM_ERR_INVALID_ARGUMENT;
	memset(site->params + 4, 0, ID_INFO_V2_BYTES - 4);
	bf_put32(site->params + layout->id_info_v2_device_instance, gpu);
	bf_put32(site->params + ID_INFO_V2_GPU_AT, gpu);
	bf_put32(site->params + ID_INFO_V2_NUMA_AT, NO_NUMA);
	return RM_OK;
}

static uint32_t get_device_ids(struct control_site *site)
{
	bf_put32(site->params, (1u << site->driver->config.gpus) - 1);
	return RM_OK;
}

static uint32_t get_pci_info(struct control_site *site)
{
	uint32_t gpu;

	if (!find_id(site->driver, bf_get32(site->params), &gpu))
		return RM_ERR_INVALID_ARGUMENT;
	bf_put32(site->params + 4, 0);
	bf_put32(site->params + PCI_INFO_BUS_AT, gpu + 1); /* two halves: bus, slot */
	return RM_OK;
}

const struct control controls_root[] = {
	{ RM_CTRL_ROOT_GET_ATTACHED_IDS, IDS_BYTES, OBJECT_CLIENT, get_attached },
	{ 0x202, ID_INFO_BYTES, OBJECT_CLIENT, get_id_info },
	{ 0x204, 4, OBJECT_CLIENT, get_device_ids },
	{ RM_CTRL_ROOT_GET_ID_INFO_V2, ID_INFO_V2_BYTES, OBJECT_CLIENT, get_id_info_v2 },
	{ 0x214, 3 * IDS_BYTES, OBJECT_CLIENT, get_probed },
	{ RM_CTRL_ROOT_ATTACH_IDS, IDS_BYTES + 4, OBJECT_CLIENT, attach },
	{ 0x216, IDS_BYTES, OBJECT_CLIENT, accept },
	{ 0x21b, PCI_INFO_BYTES, OBJECT_CLIENT, get_pci_info },
	{ SOFT_CTRL_ROOT_JOIN_DOMAIN, sizeof(struct soft_join_params), OBJECT_CLIENT, domain_join },
	{ 0 },
};
