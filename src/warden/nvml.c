/* Sensors, and NVML's "GPU performance monitoring": counters of the whole GPU, as opaque samples, and metrics for the time
 * between two samples. It takes no counters away from profilers and needs no privilege. The library is loaded when it is
 * first needed, and nothing else depends on it. */
#include "warden/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/log.h"

enum { METRIC_SM_UTIL = 2, METRIC_DRAM_UTIL = 10, METRICS = 2, STRUCTURES_VERSION = 1, SENSOR_GPU = 0 };

struct support {
	unsigned version, is_supported;
};
struct metric {
	unsigned id;
	int status;
	double percent;
	const char *names[3];
};
struct query {
	unsigned version, count;
	void *from, *to;
	struct metric metrics[METRICS];
};

struct nvml {
	void *library, *device;
	void *samples[2]; /* the last one, and a buffer for the next */
	bool has_load;	  /* it reports the load of the GPU */
	bool has_sample;
	int (*init)(void);
	int (*shutdown)(void);
	int (*device_count)(unsigned *count);
	int (*device_by_index)(unsigned index, void **device);
	int (*device_minor)(void *device, unsigned *minor);
	/* NULL: this library has no such function. */
	int (*temperature)(void *device, int sensor, unsigned *celsius);
	int (*power)(void *device, unsigned *milliwatts);
	int (*query_support)(void *device, struct support *support);
	int (*sample_alloc)(void **sample);
	int (*sample_free)(void *sample);
	int (*sample_get)(void *device, void *sample);
	int (*metrics_get)(struct query *query);
};

struct function {
	const char *name;
	void *to;
};

static bool find_all(void *library, const struct function *functions, size_t count)
{
	bool has_all = true;

	for (size_t i = 0; i < count; i++) {
		*(void **)functions[i].to = dlsym(library, functions[i].name);
		has_all &= *(void **)functions[i].to != NULL;
	}
	return has_all;
}

static bool find_functions(struct nvml *nvml)
{
	const struct function needed[] = {
		{ "nvmlInit_v2", &nvml->init },
		{ "nvmlShutdown", &nvml->shutdown },
		{ "nvmlDeviceGetCount_v2", &nvml->device_count },
		{ "nvmlDeviceGetHandleByIndex_v2", &nvml->device_by_index },
		{ "nvmlDeviceGetMinorNumber", &nvml->device_minor },
	}, sensors[] = {
		{ "nvmlDeviceGetTemperature", &nvml->temperature },
		{ "nvmlDeviceGetPowerUsage", &nvml->power },
	};

	find_all(nvml->library, sensors, sizeof(sensors) / sizeof(sensors[0]));
	return find_all(nvml->library, needed, sizeof(needed) / sizeof(needed[0]));
}

static bool find_load_functions(struct nvml *nvml)
{
	const struct function functions[] = {
		{ "nvmlGpmQueryDeviceSupport", &nvml->query_support },
		{ "nvmlGpmSampleAlloc", &nvml->sample_alloc },
		{ "nvmlGpmSampleFree", &nvml->sample_free },
		{ "nvmlGpmSampleGet", &nvml->sample_get },
		{ "nvmlGpmMetricsGet", &nvml->metrics_get },
	};

	return find_all(nvml->library, functions, sizeof(functions) / sizeof(functions[0]));
}

/* The library numbers devices in its own order. */
static bool find_device(struct nvml *nvml, unsigned minor)
{
	unsigned count = 0, found;

	if (nvml->device_count(&count))
		return false;
	for (unsigned i = 0; i < count; i++)
		if (!nvml->device_by_index(i, &nvml->device) && !nvml->device_minor(nvml->device, &found) &&
		    found == minor)
			return true;
	return false;
}

static bool make_samples(struct nvml *nvml)
{
	struct support support = { .version = STRUCTURES_VERSION };

	return !nvml->query_support(nvml->device, &support) && support.is_supported &&
	       !nvml->sample_alloc(&nvml->samples[0]) && !nvml->sample_alloc(&nvml->samples[1]);
}

struct nvml *nvml_open(unsigned minor)
{
	struct nvml *nvml = calloc(1, sizeof(*nvml));

	if (!nvml)
		return NULL;
	nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!nvml->library || !find_functions(nvml) || nvml->init()) {
		if (nvml->library)
			dlclose(nvml->library);
		free(nvml);
		return NULL;
	}
	if (!find_device(nvml, minor)) {
		nvml_close(nvml);
		return NULL;
	}
	nvml->has_load = find_load_functions(nvml) && make_samples(nvml);
	return nvml;
}

void nvml_close(struct nvml *nvml)
{
	if (!nvml)
		return;
	for (unsigned i = 0; i < 2; i++)
		if (nvml->samples[i])
			nvml->sample_free(nvml->samples[i]);
	nvml->shutdown();
	dlclose(nvml->library);
	free(nvml);
}

static uint32_t ppm_of(double percent)
{
	return percent <= 0 ? 0 : percent >= 100 ? 1000000 : (uint32_t)(percent * 1e4);
}

int nvml_load(struct nvml *nvml, struct device_load *load)
{
	struct query query = { .version = STRUCTURES_VERSION,
			       .count = METRICS,
			       .from = nvml->samples[0],
			       .to = nvml->samples[1],
			       .metrics = { { .id = METRIC_SM_UTIL }, { .id = METRIC_DRAM_UTIL } } };
	bool had_sample = nvml->has_sample;

	if (!nvml->has_load)
		return -ENOTSUP;
	if (nvml->sample_get(nvml->device, nvml->samples[1]))
		return -ENOTSUP;
	nvml->has_sample = true;
	nvml->samples[0] = query.to;
	nvml->samples[1] = query.from;
	if (!had_sample)
		return -EAGAIN;
	if (nvml->metrics_get(&query) || query.metrics[0].status || query.metrics[1].status)
		return -ENOTSUP;
	/* Both samples are the same: no time is between them. */
	if (isnan(query.metrics[0].percent) || isnan(query.metrics[1].percent))
		return -EAGAIN;
	*load = (struct device_load){ .sm_ppm = ppm_of(query.metrics[0].percent),
				      .mem_ppm = ppm_of(query.metrics[1].percent) };
	return 0;
}

void nvml_sense(const struct nvml *nvml, struct device_sensors *sensors)
{
	unsigned celsius = 0, milliwatts = 0;

	sensors->has_temperature = nvml->temperature &&
				   !nvml->temperature(nvml->device, SENSOR_GPU, &celsius);
	sensors->has_power = nvml->power && !nvml->power(nvml->device, &milliwatts);
	sensors->temperature_c = celsius;
	sensors->power_mw = milliwatts;
}
