/* metrics: from what belfryd reports to what Prometheus reads. */
#include "metrics/metrics.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char report[] =
	"{\"gpu\":{\"gpu\":\"0\",\"mem\":{\"total\":1073741824,\"reserved\":5,\"used\":536870912},"
	"\"busy_ns\":1500000000,\"handovers\":7,\"request\":0.7},"
	"\"vgpus\":[{\"name\":\"infer\",\"class\":\"latency\","
	"\"mem\":{\"limit\":268435456,\"used\":134217728,\"most\":200},"
	"\"time\":{\"request\":0.4,\"limit\":1.0,\"share\":0.25,\"gpu_ns\":2000000000,\"waited_ns\":500000000},"
	"\"tokens\":{\"granted\":3,\"expired\":2,\"given_back\":1,\"stops\":4,\"stopped_ns\":1000000},"
	"\"latency\":{\"missed\":9},\"faults\":{\"count\":5},\"busy\":{\"sm\":0.9,\"memory\":0.2},\"refusals\":6,\"submissions\":{\"forwards\":1234567890123}},"
	"{\"name\":\"odd\\\"\\\\\\n\",\"class\":\"throughput\",\"mem\":{\"limit\":0,\"used\":0},"
	"\"time\":{\"share\":0.5}}]}";

static char *text_of(const char *body, struct bf_error *err)
{
	return metrics_text(&body, 1, err);
}

static void values_come_with_their_labels_and_units(void **state)
{
	static const char *const lines[] = {
		"# HELP BELFRY_FI_DEV_GPU_UTIL ",
		"# TYPE BELFRY_FI_DEV_GPU_UTIL gauge\nBELFRY_FI_DEV_GPU_UTIL{gpu=\"0\"} 75\n",
		"\nBELFRY_FI_DEV_GPU_UTIL{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 25\n",
		"\nBELFRY_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"0\"} 0.75\n",
		"\nBELFRY_FI_DEV_FB_TOTAL{gpu=\"0\"} 1024\n",
		"\nBELFRY_FI_DEV_FB_USED{gpu=\"0\"} 512\n",
		"\nBELFRY_FI_DEV_FB_FREE{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 128\n",
		"\nBELFRY_FI_DEV_FB_TOTAL{gpu=\"0\",vgpu=\"odd\\\"\\\\\\n\",class=\"throughput\"} 1024\n",
		"# TYPE belfry_vgpu_gpu_seconds_total counter\n",
		"\nbelfry_vgpu_gpu_seconds_total{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 2\n",
		"\nbelfry_vgpu_waited_seconds_total{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 0.5\n",
		"\nbelfry_vgpu_stopped_seconds_total{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 0.001\n",
		"\nbelfry_vgpu_submissions_total{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 1234567890123\n",
		"\nbelfry_vgpu_missed_objectives_total{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 9\n",
		"\nBELFRY_FI_PROF_SM_ACTIVE{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 0.9",
		"\nBELFRY_FI_PROF_DRAM_ACTIVE{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 0.2",
		"\nbelfry_vgpu_faults_total{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 5\n",
		"\nbelfry_vgpu_memory_high_water_bytes{gpu=\"0\",vgpu=\"infer\",class=\"latency\"} 200\n",
		"\nbelfry_gpu_busy_seconds_total{gpu=\"0\"} 1.5\n",
	};
	struct bf_error err = { 0 };
	char *text = text_of(report, &err);

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		if (!strstr(text, lines[i]))
			print_error("missing: %s\n", lines[i]);
		assert_non_null(strstr(text, lines[i]));
	}
	assert_null(strstr(text, "nan"));
	free(text);
}

static void every_family_is_told_once_and_in_one_piece(void **state)
{
	const char *both[2] = { report, report };
	struct bf_error err = { 0 };
	char *text = metrics_text(both, 2, &err), family[128] = "", name[128];
	char *rest = text, *line;
	int types = 0;

	(void)state;
	assert_non_null(text);
	while ((line = strsep(&rest, "\n"))) {
		if (sscanf(line, "# TYPE %127s", name) == 1) {
			snprintf(family, sizeof(family), "%s", name);
			types++;
		} else if (*line && *line != '#') {
			assert_int_equal(strncmp(line, family, strlen(family)), 0);
			assert_int_equal(line[strlen(family)], '{');
		}
	}
	assert_int_equal(types, 25);
	free(text);
}

static void no_gpus_are_no_error_and_nonsense_is(void **state)
{
	static const char *const bad[] = {
		"", "{", "[]", "{}", "{\"gpu\":1,\"vgpus\":[]}", "{\"gpu\":{}}", "{\"gpu\":{},\"vgpus\":{}}"
	};
	struct bf_error err = { 0 };
	char *text = metrics_text(NULL, 0, &err);

	(void)state;
	assert_non_null(text);
	free(text);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_null(text_of(bad[i], &err));
		assert_int_equal(err.code, EPROTO);
	}
	text = text_of("{\"gpu\":{},\"vgpus\":[null,1,{}]}", &err);
	assert_non_null(text); /* poor, but no crash */
	free(text);
}

static void addresses_are_numeric_and_known_as_local_or_not(void **state)
{
	struct sockaddr_storage address;
	struct bf_error err = { 0 };
	bool is_local;

	(void)state;
	assert_int_equal(metrics_address("127.0.0.1:9835", &address, &is_local, &err), 0);
	assert_true(is_local);
	assert_int_equal(metrics_address("[::1]:80", &address, &is_local, &err), 0);
	assert_true(is_local);
	assert_int_equal(metrics_address("0.0.0.0:9835", &address, &is_local, &err), 0);
	assert_false(is_local);
	assert_int_equal(metrics_address("[::]:9835", &address, &is_local, &err), 0);
	assert_false(is_local);
	assert_int_equal(metrics_address("localhost:9835", &address, &is_local, &err), -EINVAL);
	assert_int_equal(metrics_address("127.0.0.1", &address, &is_local, &err), -EINVAL);
	assert_int_equal(metrics_address("127.0.0.1:0", &address, &is_local, &err), -EINVAL);
	assert_int_equal(metrics_address(":9835", &address, &is_local, &err), -EINVAL);
	assert_int_equal(metrics_address("", &address, &is_local, &err), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_come_with_their_labels_and_units),
		cmocka_unit_test(every_family_is_told_once_and_in_one_piece),
		cmocka_unit_test(no_gpus_are_no_error_and_nonsense_is),
		cmocka_unit_test(addresses_are_numeric_and_known_as_local_or_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
