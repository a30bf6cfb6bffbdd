#include "soft/driver/driver.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "soft/driver/state.h"

/* Bytes that copies move in a second: about the bus of a small real card, in the scale of the default
 * rate. */
#define COPY_BYTES (2ull << 30)

static uint32_t count_cores(uint32_t wanted)
{
	cpu_set_t set;

	if (wanted)
		return wanted;
	if (!sched_getaffinity(0, sizeof(set), &set))
		return (uint32_t)CPU_COUNT(&set);
	return 1;
}

static int make_gpus(struct driver *driver, struct bf_error *err)
{
	struct hw_options options = {
		.sms = driver->config.sms,
		.mem_bytes = driver->config.mem_bytes,
		.rate = driver->config.rate,
		.copy_bytes = COPY_BYTES,
		.cores = count_cores(driver->config.cores),
		.is_paced = driver->config.is_paced,
	};

	driver->cores = hw_cores_new(options.cores, err);
	if (!driver->cores)
		return -1;
	for (uint32_t i = 0; i < driver->config.gpus; i++) {
		driver->gpus[i] = hw_gpu_new(driver->cores, &options, err);
		if (!driver->gpus[i])
			return -1;
	}
	return 0;
}

struct driver *driver_new(const struct link_config *config, struct bf_error *err)
{
	struct driver *driver = calloc(1, sizeof(*driver));

	if (!driver) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	driver->config = *config;
	driver->layout = rm_layout_find(SOFT_DRIVER_VERSION);
	driver->host_max_bytes = HOST_FACTOR * config->mem_bytes * config->gpus;
	list_init(&driver->files);
	list_init(&driver->clients);
	list_init(&driver->domains);
	pthread_mutex_init(&driver->lock, NULL);
	pthread_cond_init(&driver->is_quiet, NULL);
	if (!make_gpus(driver, err))
		return driver;
	driver_free(driver);
	return NULL;
}

void driver_free(struct driver *driver)
{
	if (!driver)
		return;
	for (uint32_t i = 0; i < driver->config.gpus; i++)
		if (driver->gpus[i])
			hw_gpu_free(driver->gpus[i]);
	if (driver->cores)
		hw_cores_free(driver->cores);
	pthread_cond_destroy(&driver->is_quiet);
	pthread_mutex_destroy(&driver->lock);
	free(driver);
}

void driver_status(struct driver *driver, struct soft_status *status)
{
	const struct link_config *config = &driver->config;

	*status = (struct soft_status){ .gpu_count = config->gpus,
					.sm_count = config->sms,
					.mem_bytes = config->mem_bytes,
					.rate = config->rate,
					.is_paced = config->is_paced,
					.cores = config->cores,
					.pid = (uint32_t)getpid() };
	for (uint32_t i = 0; i < config->gpus; i++) {
		status->used_bytes[i] = hw_gpu_used_bytes(driver->gpus[i]);
		status->gpu_ns[i] = hw_gpu_now_ns(driver->gpus[i]);
		status->busy_ns[i] = hw_gpu_busy_ns(driver->gpus[i]);
	}
	pthread_mutex_lock(&driver->lock);
	status->file_count = driver->file_count;
	status->client_count = driver->client_count;
	status->channel_count = driver->channel_count;
	told_users(driver, status);
	pthread_mutex_unlock(&driver->lock);
}
