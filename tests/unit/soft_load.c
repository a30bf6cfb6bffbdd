/* How busy the software GPU was, as the warden asks it: through the device, between two calls. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hw_rig.h"
#include "soft/driver/state.h"
#include "soft/link/link.h"
#include "warden/device.h"

enum { SMS = 4, RATE = 10000000, ELEMENTS = (1 << 20) / GPU_RIG_LESS, PERCENT = 10000 /* ppm */ };

/* Driver and hardware are in threads of our own, so that kernels can be put onto the hardware without a library. Not
 * paced: seconds of the GPU's time pass in a moment, beside which the host's own delays are nothing. */
struct card {
	char folder[64];
	struct server *server;
	pthread_t thread;
	struct device *device;
	struct hw_gpu *gpu;
};
static struct card card;

static void *serve(void *server)
{
	server_serve(server);
	return NULL;
}

static int begin(void **state)
{
	struct server_options options = { .config = link_default, .folder = card.folder, .ready_fd = -1 };
	struct bf_error err = { 0 };

	(void)state;
	strcpy(card.folder, "/tmp/belfry-load-XXXXXX");
	if (!mkdtemp(card.folder))
		return -1;
	options.config.sms = SMS;
	options.config.rate = RATE;
	options.config.is_paced = false;
	options.config.cores = 2;
	options.config.linger_s = 1000;
	if (server_new(&options, &card.server, &err) ||
	    pthread_create(&card.thread, NULL, serve, card.server))
		return -1;
	card.gpu = server_driver(card.server)->gpus[0];
	card.device = device_soft_open(card.folder, &(struct device_options){ .index = 0 }, &err);
	return card.device ? 0 : -1;
}

static int end(void **state)
{
	char command[128];

	(void)state;
	card.device->ops->close(card.device);
	server_stop(card.server);
	pthread_join(card.thread, NULL);
	server_free(card.server);
	snprintf(command, sizeof(command), "rm -rf '%s'", card.folder);
	return system(command);
}

static struct device_load load_of(void)
{
	struct device_load load = { 77, 77, 0 };
	int rc;

	do
		rc = card.device->ops->load(card.device, &load);
	while (rc == -EAGAIN);
	assert_int_equal(rc, 0);
	return load;
}

/* Blocks of an integer loop, 5 s long on an SM of their own (of the GPU's time; with a sanitizer less). */
static struct device_load load_of_loop(uint32_t blocks)
{
	struct app app;
	uint64_t out;

	app_open(&app, card.gpu, app_work_text);
	out = app_alloc(&app, (size_t)blocks * 32 * 4, NULL);
	load_of();
	app_time_work(&app, out, blocks, 5 * (RATE / 32 / 4) / GPU_RIG_LESS);
	app_fence(&app);
	app_close(&app);
	return load_of();
}

static void first_call_knows_nothing(void **state)
{
	struct device_load load = { 77, 77, 0 };

	(void)state;
	assert_int_equal(card.device->ops->load(card.device, &load), -EAGAIN);
	assert_int_equal(load.sm_ppm, 77);
}

static void idle_gpu_is_not_busy(void **state)
{
	struct device_load load;

	(void)state;
	load_of();
	load = load_of();
	assert_int_equal(load.sm_ppm, 0);
	assert_int_equal(load.mem_ppm, 0);
}

static void loop_keeps_sms_busy_and_memory_idle(void **state)
{
	struct device_load load;

	(void)state;
	load = load_of_loop(SMS);
	assert_in_range(load.sm_ppm, 80 * PERCENT, 100 * PERCENT);
	assert_in_range(load.mem_ppm, 0, PERCENT);
	load = load_of();
	assert_int_equal(load.sm_ppm, 0); /* it was told, and is over */
}

static void kernel_on_half_of_the_sms_keeps_half_busy(void **state)
{
	(void)state;
	assert_in_range(load_of_loop(SMS / 2).sm_ppm, 40 * PERCENT, 51 * PERCENT);
}

static void axpy_keeps_memory_busy(void **state)
{
	struct {
		uint32_t n;
		float a;
		uint64_t x, y;
	} params = { .n = ELEMENTS, .a = 1 };
	struct device_load load;
	struct app app;

	(void)state;
	app_open(&app, card.gpu, "vector");
	params.x = app_alloc(&app, (size_t)ELEMENTS * 4, NULL);
	params.y = app_alloc(&app, (size_t)ELEMENTS * 4, NULL);
	load_of();
	for (unsigned i = 0; i < 4; i++)
		app_launch(&app, "saxpy",
			   (struct app_shape){ .grid = { ELEMENTS / 256 }, .threads = { 256 } }, &params,
			   sizeof(params));
	app_fence(&app);
	app_close(&app);
	load = load_of();
	assert_in_range(load.sm_ppm, 80 * PERCENT, 100 * PERCENT);
	assert_in_range(load.mem_ppm, 80 * PERCENT, 100 * PERCENT);
}

static void copies_keep_memory_busy_and_sms_idle(void **state)
{
	const uint32_t bytes = (32 << 20) / GPU_RIG_LESS;
	struct device_load load;
	struct app app;
	uint64_t a, b;

	(void)state;
	app_open(&app, card.gpu, NULL);
	a = app_alloc(&app, bytes, NULL);
	b = app_alloc(&app, bytes, NULL);
	load_of();
	for (unsigned i = 0; i < 32; i++)
		app_copy(&app, i % 2 ? a : b, i % 2 ? b : a, bytes);
	app_fence(&app);
	load = load_of();
	app_close(&app);
	assert_int_equal(load.sm_ppm, 0);
	assert_in_range(load.mem_ppm, 80 * PERCENT, 100 * PERCENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(first_call_knows_nothing, begin, end),
		cmocka_unit_test_setup_teardown(idle_gpu_is_not_busy, begin, end),
		cmocka_unit_test_setup_teardown(loop_keeps_sms_busy_and_memory_idle, begin, end),
		cmocka_unit_test_setup_teardown(kernel_on_half_of_the_sms_keeps_half_busy, begin, end),
		cmocka_unit_test_setup_teardown(axpy_keeps_memory_busy, begin, end),
		cmocka_unit_test_setup_teardown(copies_keep_memory_busy_and_sms_idle, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
