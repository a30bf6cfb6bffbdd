/* belfryd with the fake device in the place of the driver: what it does with processes, signals, sockets and
 * exit statuses needs no GPU. device_nv_open is defined here, so the linker takes no other. */
#include "fake_device.h"
#include "server/main.c" /* NOLINT(bugprone-suspicious-include): the same program, another device */

static struct device_ops ops;

static void close_fake(struct device *device)
{
	fake_free((struct fake *)device);
}

struct device *device_nv_open(const struct device_options *options, struct bf_error *err)
{
	struct fake *fake;

	if (options->index) {
		bf_fail(err, 19, "GPU %u: no such GPU; belfry info lists those there are", options->index);
		return NULL;
	}
	fake = fake_new();
	ops = *fake->device.ops;
	ops.close = close_fake;
	fake->device.ops = &ops;
	return &fake->device;
}
