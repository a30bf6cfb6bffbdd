#include "gpu/settings.h"

const struct settings settings_default = {
	.window_us = 1000000,
	.round_us = 100000,
	.slice_min_us = 2000,
	.grace_us = 500,
	.idle_us = 1000,
	.how = SETTINGS_AUTO,
	.doorbells = SETTINGS_DOORBELLS_AUTO,
	.on_daemon_death = SETTINGS_END,
};
