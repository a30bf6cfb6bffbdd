/* Offsets and sizes in each driver series, from the public headers of that series: 570.133.20, 580.142,
 * 590.48.01, 595.45.04. Only 580 was tested on real hardware (docs/driver.md). */
#include "rm/controls.h"

#include <string.h>

/* Fields that are the same from 570 to 595. */
#define LAYOUT_COMMON \
	.channel_size = 368, .channel_error_memory = 0, .channel_gpfifo_offset = 8, \
	.channel_gpfifo_entries = 16, .channel_flags = 20, .channel_userd_memory = 32, \
	.channel_userd_offset = 64, .channel_engine_type = 128, .memory_size = 128, .memory_flags = 8, \
	.memory_attr = 24, .memory_bytes = 64, .device_size = 56, .device_instance = 0, .subdevice_size = 4, \
	.group_size = 20, .doorbell_size = 2, .graphics_size = 16, .copy_size = 8, .video_size = 12, \
	.context_share_size = 12, .pids_size = 3812, .pids_count = 8, .pids_table = 12, .pids_max = 950, \
	.pid_info_size = 14408, .pid_info_max = 200, .pid_info_list = 8, .pid_info_stride = 72, \
	.pid_info_private = 16, .pid_info_owned = 24, .pid_info_duped = 32, .fb_info_list = 4, \
	.disable_size = 536, .disable_count = 4, .disable_clients = 24, .disable_channels = 280, \
	.disable_max = 64, .id_info_v2_size = 32, .id_info_v2_gpu_id = 0, .id_info_v2_device_instance = 8, \
	.id_info_v2_subdevice_instance = 12

static const struct rm_layout layouts[] = {
	{
		.series = "570",
		.series_bit = SERIES_570,
		.p2p_size = 72,
		LAYOUT_COMMON,
		.fb_info_size = 460,
		.fb_info_max = 57,
		.group_schedule_size = 2,
		.va_space_size = 48,
	},
	{
		.series = "580",
		.series_bit = SERIES_580,
		.p2p_size = 72,
		.is_measured = true,
		LAYOUT_COMMON,
		.fb_info_size = 1028,
		.fb_info_max = 128,
		.group_schedule_size = 3,
		.va_space_size = 56,
	},
	{
		.series = "590",
		.series_bit = SERIES_590,
		.p2p_size = 88,
		LAYOUT_COMMON,
		.fb_info_size = 1028,
		.fb_info_max = 128,
		.group_schedule_size = 3,
		.va_space_size = 56,
	},
	{
		.series = "595",
		.series_bit = SERIES_595,
		.p2p_size = 88,
		LAYOUT_COMMON,
		.fb_info_size = 1028,
		.fb_info_max = 128,
		.group_schedule_size = 3,
		.va_space_size = 56,
	},
};

#define LAYOUT_COUNT (sizeof(layouts) / sizeof(layouts[0]))

/* Whether the text consists of digits and dots without an empty part: what the driver prints, or only a
 * series. */
static bool version_is_plausible(const char *version)
{
	size_t digits = 0;

	for (const char *c = version; *c; c++) {
		if (*c == '.') {
			if (!digits)
				return false;
			digits = 0;
		} else if (*c >= '0' && *c <= '9') {
			digits++;
		} else {
			return false;
		}
	}
	return digits > 0;
}

const struct rm_layout *rm_layout_find(const char *version)
{
	if (!version || !version_is_plausible(version))
		return NULL;
	for (size_t i = 0; i < LAYOUT_COUNT; i++) {
		size_t len = strlen(layouts[i].series);

		if (!strncmp(version, layouts[i].series, len) && (version[len] == '.' || !version[len]))
			return &layouts[i];
	}
	return NULL;
}

const struct rm_layout *rm_layout_at(unsigned index)
{
	return index < LAYOUT_COUNT ? &layouts[index] : NULL;
}
