/* Calls that refer to no object: the driver's version, and registering files (nv-ioctl.h). */
#include <errno.h>

#include "soft/driver/state.h"

enum {
	CARD_BYTES = 72,
	CARD_BUS_AT = 8,
	CARD_VENDOR_AT = 12,
	CARD_DEVICE_AT = 14,
	CARD_GPU_ID_AT = 16,
	CARD_FB_SIZE_AT = 48,
	CARD_MINOR_AT = 56,
	VERSION_REPLY_AT = 4,
	VERSION_TEXT_AT = 8,
	VERSION_TEXT_BYTES = 64,
	VERSION_QUERY = '2',
	STATUS_BUS_AT = 4,
};

/* A different version gives -EINVAL, and the driver's version in the argument (rm_perform_version_check). */
static int check_version(struct site *site)
{
	uint8_t *arg = site->call->arg;
	bool is_same = !strncmp((const char *)arg + VERSION_TEXT_AT, SOFT_DRIVER_VERSION, VERSION_TEXT_BYTES);
	bool is_query = bf_get32(arg) == VERSION_QUERY;

	memset(arg + VERSION_TEXT_AT, 0, VERSION_TEXT_BYTES);
	memcpy(arg + VERSION_TEXT_AT, SOFT_DRIVER_VERSION, sizeof(SOFT_DRIVER_VERSION));
	bf_put32(arg + VERSION_REPLY_AT, is_same || is_query);
	return is_same || is_query ? 0 : -EINVAL;
}

static int card_info(struct site *site)
{
	uint32_t room = site->rm.size / CARD_BYTES;
	uint8_t *card = site->call->arg;

	if (room < site->driver->config.gpus)
		return -EINVAL;
	memset(card, 0, site->rm.size);
	for (uint32_t i = 0; i < site->driver->config.gpus; i++, card += CARD_BYTES) {
		card[0] = 1;
		card[CARD_BUS_AT] = (uint8_t)(i + 1);
		card[CARD_VENDOR_AT] = 0xde;
		card[CARD_VENDOR_AT + 1] = 0x10;
		card[CARD_DEVICE_AT] = 0x1f;
		card[CARD_DEVICE_AT + 1] = 0xbe;
		bf_put32(card + CARD_GPU_ID_AT, (i + 1) << 8);
		bf_put64(card + CARD_FB_SIZE_AT, site->driver->config.mem_bytes);
		bf_put32(card + CARD_MINOR_AT, i);
	}
	return 0;
}

/* After this, the file may be used for the control file's clients. Allowed once, with a control file, and not
 * in a chain. */
static int register_file(struct site *site)
{
	struct file *file = site->call->file, *control = site->call->named;
	int rc = 0;

	if (!control || control->minor != SOFT_FILE_CONTROL || control == file)
		return -EINVAL;
	pthread_mutex_lock(&site->driver->lock);
	if (file->control || control->control || control->is_closed || !list_is_empty(&file->clients))
		rc = -EINVAL;
	else
		file->control = file_get(control);
	pthread_mutex_unlock(&site->driver->lock);
	return rc;
}

/* The software GPU never signals such events; programs wait on semaphores instead. */
static int os_event(struct site *site)
{
	bool has_client;

	pthread_mutex_lock(&site->driver->lock);
	has_client = client_of(site, site->rm.client) != NULL;
	pthread_mutex_unlock(&site->driver->lock);
	bf_put32(site->call->arg + site->rm.status_at, has_client ? RM_OK : RM_ERR_INVALID_CLIENT);
	return 0;
}

static int attach_gpus(struct site *site)
{
	if (site->rm.size % 4)
		return -EINVAL;
	for (uint32_t at = 0; at < site->rm.size; at += 4) {
		uint32_t id = bf_get32(site->call->arg + at);

		if (id && (id & 0xff || id >> 8 > site->driver->config.gpus))
			return -EINVAL;
	}
	return 0;
}

static int status_code(struct site *site)
{
	uint8_t bus = site->call->arg[STATUS_BUS_AT];

	if (bf_get32(site->call->arg) || !bus || bus > site->driver->config.gpus)
		return -EINVAL;
	bf_put32(site->call->arg + site->rm.status_at, RM_OK);
	return 0;
}

static int numa_info(struct site *site)
{
	if (site->call->file->minor == SOFT_FILE_CONTROL)
		return -EINVAL;
	memset(site->call->arg, 0, site->rm.size);
	bf_put32(site->call->arg, 0xffffffffu); /* no NUMA node */
	return 0;
}

int site_plain(struct site *site)
{
	switch (site->rm.nr) {
	case RM_ESC_CHECK_VERSION_STR:
		return check_version(site);
	case RM_ESC_CARD_INFO:
		return site->call->file->minor == SOFT_FILE_CONTROL ? card_info(site) : -EINVAL;
	case RM_ESC_REGISTER_FD:
		return register_file(site);
	case RM_ESC_ALLOC_OS_EVENT:
	case RM_ESC_FREE_OS_EVENT:
		return os_event(site);
	case RM_ESC_ATTACH_GPUS_TO_FD:
		return site->call->file->minor == SOFT_FILE_CONTROL ? attach_gpus(site) : -EINVAL;
	case RM_ESC_STATUS_CODE:
		return status_code(site);
	case RM_ESC_NUMA_INFO:
		return numa_info(site);
	case RM_ESC_WAIT_OPEN_COMPLETE:
		memset(site->call->arg, 0, site->rm.size);
		return 0;
	case RM_ESC_SYS_PARAMS:
		return 0;
	default:
		return -EINVAL;
	}
}
