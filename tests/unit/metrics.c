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
	"{\"gpu\":{\"gpu\":\"0\",\"uuid\":\"GPU-1\",\"device\":\"nvidia0\",\"model\":\"NVIDIA H200\",\"temperature_c\":45,"
	"\"power_w\":120.5,\"mem\":{\"total\":1073741824,\"reserved\":5,\"used\":536870912},"
	"\"busy\":{\"sm\":0.5,\"memory\":0.1},\"busy_ns\":1500000000,\"handovers\":7,\"request\":0.7},"
	"\"vgpus\":[{\"name\":\"infer\",\"class\":\"latency\",\"owner\":7,\"state\":\"waiting\",\"runs\":[{},{\"kind\":\"pod\",\"id\":\"4f\",\"pod\":\"p\",\"namespace\":\"lab\",\"container\":\"c\"},"
	"{\"kind\":\"pod\",\"id\":\"4f\",\"pod\":\"p\"}],"
	"\"objective\":{\"percentile\":99.9,\"us\":2000},"
	"\"mem\":{\"limit\":268435456,\"used\":134217728,\"most\":200},"
	"\"time\":{\"request\":0.4,\"limit\":1.0,\"share\":0.25,\"gpu_ns\":2000000000,\"waited_ns\":500000000},"
	"\"tokens\":{\"granted\":3,\"expired\":2,\"given_back\":1,\"stops\":4,\"stopped_ns\":1000000},"
	"\"latency\":{\"missed\":9,\"samples\":100,\"p50_us\":500.0,\"p99_us\":2500.0},\"faults\":{\"count\":5},"
	"\"busy\":{\"sm\":0.9,\"memory\":0.2},\"refusals\":6,\"submissions\":{\"forwards\":1234567890123}},"
	"{\"name\":\"odd\\\"\\\\\\n\",\"class\":\"throughput\",\"owner\":8,\"mem\":{\"limit\":0,\"used\":0},"
	"\"time\":{\"share\":0.5},\"latency\":{\"samples\":0}}]}";
static const char soft[] =
	"{\"gpu\":{\"gpu\":\"soft:0\",\"uuid\":\"GPU-2\",\"device\":\"soft0\",\"mem\":{}},\"vgpus\":[]}";
static const char account[] =
	"{\"version\":\"1.2.3\",\"totals\":[{\"owner\":7,\"name\":\"(other)\",\"gpu_ns\":3000000000,\"waited_ns\":0,"
	"\"memory_high_water_bytes\":4096,\"runs\":2,\"vgpus\":1}],"
	"\"events\":{\"kinds\":{\"fault\":3},\"lost\":1,\"commands_started\":4,\"commands_failed\":5,\"commands_dropped\":6}}";

static const char *user(uint32_t uid)
{
	return uid == 7 ? "alice" : "bo\"b";
}

static char *text_of(const char *const *reports, unsigned count, const char *told, struct bf_error *err)
{
	struct metrics_source source = {
		.reports = reports, .count = count, .account = told, .hostname = "node1", .user = user
	};

	return metrics_text(&source, err);
}

#define GPU "{gpu=\"0\",UUID=\"GPU-1\",device=\"nvidia0\",modelName=\"NVIDIA H200\",Hostname=\"node1\"}"
#define INFER "{gpu=\"0\",UUID=\"GPU-1\",vgpu=\"infer\",class=\"latency\",uid=\"7\",user=\"alice\"}"
#define INFER_AND(more) \
	"{gpu=\"0\",UUID=\"GPU-1\",vgpu=\"infer\",class=\"latency\",uid=\"7\",user=\"alice\"," more "}"
#define ODD \
	"{gpu=\"0\",UUID=\"GPU-1\",vgpu=\"odd\\\"\\\\\\n\",class=\"throughput\",uid=\"8\",user=\"bo\\\"b\"}"
#define PAST "{vgpu=\"(other)\",uid=\"7\",user=\"alice\"}"

static void values_come_with_their_labels_and_units(void **state)
{
	static const char *const lines[] = {
		"# HELP BELFRY_FI_DEV_GPU_UTIL ",
		"# TYPE BELFRY_FI_DEV_GPU_UTIL gauge\nBELFRY_FI_DEV_GPU_UTIL" GPU " 75\n",
		"\nBELFRY_FI_PROF_GR_ENGINE_ACTIVE" GPU " 0.75\n",
		"\nBELFRY_FI_PROF_SM_ACTIVE" GPU " 0.5\n",
		"\nBELFRY_FI_DEV_FB_TOTAL" GPU " 1024\n",
		"\nBELFRY_FI_DEV_FB_USED" GPU " 512\n",
		"\nBELFRY_FI_DEV_FB_FREE" GPU " 512\n",
		"\nBELFRY_FI_DEV_GPU_TEMP" GPU " 45\n",
		"\nBELFRY_FI_DEV_POWER_USAGE" GPU " 120.5\n",
		"\nbelfry_gpu_busy_seconds_total" GPU " 1.5\n",
		"\nbelfry_vgpu_share_ratio" INFER " 0.25\n",
		"\nbelfry_vgpu_share_ratio" ODD " 0.5\n",
		"\nbelfry_vgpu_memory_used_bytes" INFER " 134217728\n",
		"\nbelfry_vgpu_memory_limit_bytes" INFER " 268435456\n# ",
		"# TYPE belfry_vgpu_gpu_seconds_total counter\n",
		"\nbelfry_vgpu_gpu_seconds_total" INFER " 2\n",
		"\nbelfry_vgpu_waited_seconds_total" INFER " 0.5\n",
		"\nbelfry_vgpu_stopped_seconds_total" INFER " 0.001\n",
		"\nbelfry_vgpu_submissions_total" INFER " 1234567890123\n",
		"\nbelfry_vgpu_latency_samples_total" INFER " 100\n",
		"\nbelfry_vgpu_missed_objectives_total" INFER " 9\n",
		"\nbelfry_vgpu_sm_active_ratio" INFER " 0.9\n",
		"\nbelfry_vgpu_dram_active_ratio" INFER " 0.2\n",
		"\nbelfry_vgpu_faults_total" INFER " 5\n",
		"\nbelfry_vgpu_memory_high_water_bytes" INFER " 200\n",
		"\nbelfry_vgpu_runs" INFER " 3\n",
		"\nbelfry_run_info{gpu=\"\",vgpu=\"infer\",kind=\"pod\",id=\"4f\",pod=\"p\",namespace=\"lab\",container=\"c\"} "
		"1\n# ",
		"\nbelfry_vgpu_state" INFER_AND("state=\"waiting\"") " 1\n",
		"\nbelfry_vgpu_state" INFER_AND("state=\"idle\"") " 0\n",
		"\nbelfry_vgpu_latency_seconds" INFER_AND("percentile=\"50\"") " 0.0005\n",
		"\nbelfry_vgpu_latency_seconds" INFER_AND("percentile=\"99.9\"") " 0.0025\n# ",
		"\nbelfry_vgpu_objective_seconds" INFER_AND("percentile=\"99.9\"") " 0.002\n# ",
		"\nbelfry_past_gpu_seconds_total" PAST " 3\n",
		"\nbelfry_past_memory_high_water_bytes" PAST " 4096\n",
		"\nbelfry_events_total{event=\"fault\"} 3\n",
		"\nbelfry_event_commands_dropped_total{} 6\n",
		"\nbelfry_build_info{version=\"1.2.3\"} 1\n",
	};
	const char *const reports[] = { report };
	struct bf_error err = { 0 };
	char *text = text_of(reports, 1, account, &err);

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

static void names_of_gpus_have_no_samples_of_vgpus(void **state)
{
	const char *const reports[] = { report };
	struct bf_error err = { 0 };
	char *text = text_of(reports, 1, account, &err), *rest = text, *line;

	(void)state;
	while ((line = strsep(&rest, "\n")))
		if (!strncmp(line, "BELFRY_", 7) || !strncmp(line, "belfry_gpu_", 11))
			assert_null(strstr(line, "vgpu="));
	free(text);
}

static void a_gpu_without_sensors_has_no_such_samples(void **state)
{
	const char *const reports[] = { soft };
	struct bf_error err = { 0 };
	char *text = text_of(reports, 1, account, &err);

	(void)state;
	assert_non_null(strstr(
		text,
		"\nBELFRY_FI_DEV_GPU_UTIL{gpu=\"soft:0\",UUID=\"GPU-2\",device=\"soft0\",modelName=\"\","));
	assert_null(strstr(text, "\nBELFRY_FI_DEV_GPU_TEMP{"));
	assert_null(strstr(text, "\nBELFRY_FI_DEV_POWER_USAGE{"));
	free(text);
}

static void every_family_is_told_once_and_in_one_piece(void **state)
{
	const char *const both[2] = { report, soft };
	struct bf_error err = { 0 };
	char *text = text_of(both, 2, account, &err), family[128] = "", name[128], head[160];
	char *rest = text, *line, *again;
	int types = 0;

	(void)state;
	assert_non_null(text);
	again = strdup(text);
	while ((line = strsep(&rest, "\n"))) {
		if (sscanf(line, "# TYPE %127s", name) == 1) {
			snprintf(family, sizeof(family), "%s", name);
			snprintf(head, sizeof(head), "# TYPE %s ", name);
			assert_null(strstr(strstr(again, head) + 1, head));
			types++;
		} else if (*line && *line != '#') {
			assert_int_equal(strncmp(line, family, strlen(family)), 0);
			assert_int_equal(line[strlen(family)], '{');
		}
	}
	assert_true(types > 40);
	free(again);
	free(text);
}

static void no_gpus_are_no_error_and_nonsense_is(void **state)
{
	static const char *const bad[] = {
		"", "{", "[]", "{}", "{\"gpu\":1,\"vgpus\":[]}", "{\"gpu\":{}}", "{\"gpu\":{},\"vgpus\":{}}"
	};
	static const char *const poor[] = { "{\"gpu\":{},\"vgpus\":[null,1,{}]}" };
	struct bf_error err = { 0 };
	char *text = text_of(NULL, 0, account, &err);

	(void)state;
	assert_non_null(text);
	free(text);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_null(text_of(&bad[i], 1, account, &err));
		assert_int_equal(err.code, EPROTO);
		assert_null(text_of(NULL, 0, bad[i], &err));
		assert_int_equal(err.code, EPROTO);
	}
	text = text_of(poor, 1, account, &err);
	assert_non_null(text); /* poor, but no crash */
	free(text);
}

static void names_of_users_are_looked_up_and_kept(void **state)
{
	const char *root = metrics_user(0);

	(void)state;
	assert_string_equal(root, "root");
	assert_ptr_equal(metrics_user(0), root);
	assert_string_equal(metrics_user(4000000000u), "4000000000");
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
		cmocka_unit_test(names_of_gpus_have_no_samples_of_vgpus),
		cmocka_unit_test(a_gpu_without_sensors_has_no_such_samples),
		cmocka_unit_test(names_of_users_are_looked_up_and_kept),
		cmocka_unit_test(every_family_is_told_once_and_in_one_piece),
		cmocka_unit_test(no_gpus_are_no_error_and_nonsense_is),
		cmocka_unit_test(addresses_are_numeric_and_known_as_local_or_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
