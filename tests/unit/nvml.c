/* nvml over a library that is made up: what is asked of it, what becomes of its answers, and that nothing is left of it
 * whatever it refuses. */
#include "warden/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "skipping.h"
#include <cmocka.h>

static struct {
	void *library;
	char *fails;
	int *samples, *sessions, *is_supported;
	double *percents;
} fake;

/* Once it is there it is found by its name. */
static int load_library(void **state)
{
	(void)state;
	fake.library = dlopen(BELFRY_BUILD_DIR "/tests/unit/libnvidia-ml.so.1", RTLD_NOW);
	if (!fake.library) {
		print_error("%s\n", dlerror());
		return -1;
	}
	fake.fails = dlsym(fake.library, "fake_fails");
	fake.samples = dlsym(fake.library, "fake_samples");
	fake.sessions = dlsym(fake.library, "fake_sessions");
	fake.is_supported = dlsym(fake.library, "fake_is_supported");
	fake.percents = dlsym(fake.library, "fake_percents");
	return 0;
}

static int unload_library(void **state)
{
	(void)state;
	return dlclose(fake.library);
}

static void without_a_library_there_is_nothing(void **state)
{
	void *real = dlopen("libnvidia-ml.so.1", RTLD_LAZY);

	(void)state;
	if (real) {
		dlclose(real);
		skip_case("there is a real libnvidia-ml.so.1");
	}
	assert_null(nvml_open(0));
}

static void what_it_says_of_the_right_gpu_is_told(void **state)
{
	struct nvml *nvml = nvml_open(0);
	struct device_load load = { 0 };

	(void)state;
	assert_non_null(nvml);
	assert_int_equal(nvml_load(nvml, &load), -EAGAIN); /* it takes two to compare */
	assert_int_equal(nvml_load(nvml, &load), 0);
	assert_int_equal(load.sm_ppm, 965000);
	assert_int_equal(load.mem_ppm, 175000);
	fake.percents[0] = 130, fake.percents[1] = -1;
	assert_int_equal(nvml_load(nvml, &load), 0);
	assert_int_equal(load.sm_ppm, 1000000);
	assert_int_equal(load.mem_ppm, 0);
	fake.percents[1] = nan("");
	assert_int_equal(nvml_load(nvml, &load), -EAGAIN);
	fake.percents[0] = 96.5, fake.percents[1] = 17.5;
	assert_int_equal(nvml_load(nvml, &load), 0);
	strcpy(fake.fails, "nvmlGpmSampleGet");
	assert_int_equal(nvml_load(nvml, &load), -ENOTSUP);
	strcpy(fake.fails, "nvmlGpmMetricsGet");
	nvml_load(nvml, &load);
	assert_int_equal(nvml_load(nvml, &load), -ENOTSUP);
	fake.fails[0] = 0;
	nvml_close(nvml);
	assert_int_equal(*fake.samples, 0);
	assert_int_equal(*fake.sessions, 0);
}

static void sensors_are_read_where_there_are_any(void **state)
{
	struct nvml *nvml = nvml_open(0);
	struct device_sensors sensors = { 0 };

	(void)state;
	assert_non_null(nvml);
	nvml_sense(nvml, &sensors);
	assert_true(sensors.has_temperature && sensors.has_power);
	assert_int_equal(sensors.temperature_c, 45);
	assert_int_equal(sensors.power_mw, 120500);
	strcpy(fake.fails, "nvmlDeviceGetTemperature");
	nvml_sense(nvml, &sensors);
	assert_true(!sensors.has_temperature && sensors.has_power);
	strcpy(fake.fails, "nvmlDeviceGetPowerUsage");
	nvml_sense(nvml, &sensors);
	assert_true(sensors.has_temperature && !sensors.has_power);
	fake.fails[0] = 0;
	nvml_close(nvml);
}

/* Before Hopper there are sensors all the same. */
static void without_counters_there_are_still_sensors(void **state)
{
	static const char *const functions[] = { "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "" };
	struct device_sensors sensors = { 0 };
	struct device_load load;

	(void)state;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		struct nvml *nvml;

		strcpy(fake.fails, functions[i]);
		*fake.is_supported = functions[i][0] != 0;
		nvml = nvml_open(0);
		assert_non_null(nvml);
		assert_int_equal(nvml_load(nvml, &load), -ENOTSUP);
		nvml_sense(nvml, &sensors);
		assert_true(sensors.has_temperature && sensors.has_power);
		nvml_close(nvml);
		assert_int_equal(*fake.samples, 0);
		assert_int_equal(*fake.sessions, 0);
	}
	fake.fails[0] = 0;
	*fake.is_supported = 1;
}

static void what_cannot_tell_leaves_nothing(void **state)
{
	static const char *const functions[] = { "nvmlInit_v2", "nvmlDeviceGetCount_v2",
						 "nvmlDeviceGetHandleByIndex_v2",
						 "nvmlDeviceGetMinorNumber" };

	(void)state;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		strcpy(fake.fails, functions[i]);
		assert_null(nvml_open(0));
		assert_int_equal(*fake.samples, 0);
		assert_int_equal(*fake.sessions, 0);
	}
	fake.fails[0] = 0;
	assert_null(nvml_open(7)); /* no such GPU */
	assert_int_equal(*fake.sessions, 0);
	nvml_close(NULL);
}

int main(void)
{
	static const struct CMUnitTest without[] = { cmocka_unit_test(without_a_library_there_is_nothing) };
	static const struct CMUnitTest with[] = {
		cmocka_unit_test(what_it_says_of_the_right_gpu_is_told),
		cmocka_unit_test(sensors_are_read_where_there_are_any),
		cmocka_unit_test(without_counters_there_are_still_sensors),
		cmocka_unit_test(what_cannot_tell_leaves_nothing),
	};
	int failed = cmocka_run_group_tests_name("nvml, none", without, NULL, NULL);

	if (failed && failed != CHECK_SKIPPED)
		return failed;
	return cmocka_run_group_tests_name("nvml", with, load_library, unload_library);
}
