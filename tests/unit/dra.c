/* dra: quantities, claims, resource slices, and the messages of the kubelet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attach/attach.h"
#include "base/json.h"
#include "client/gather.h"
#include "dra/dra.h"

#define UID "11111111-2222-4333-8444-555555555555"

static void quantities_are_those_of_kubernetes(void **state)
{
	static const struct {
		const char *text;
		double value;
	} good[] = {
		{ "0", 0 },
		{ "25", 25 },
		{ "8Gi", 8.0 * (1 << 30) },
		{ "1024Mi", 1 << 30 },
		{ "1e9", 1e9 },
		{ "1E3", 1e3 },
		{ "2E", 2e18 },
		{ "500m", 0.5 },
		{ "+1.5k", 1500 },
		{ ".5", 0.5 },
		{ "5.", 5 },
		{ "12e-1", 1.2 },
	};
	static const char *const bad[] = { "",	 "-1",	   "Gi",  "1 Gi",  "1gi",  "0x10", "nan",  "inf",
					   "1e", "1e1000", "1e+", "1.2.3", "1Gi1", ".",	   "1ee3", "1e99" };
	double value;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(dra_quantity(good[i].text, &value));
		assert_true(value > good[i].value * (1 - 1e-12) - 1e-12 &&
			    value < good[i].value * (1 + 1e-12) + 1e-12);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (dra_quantity(bad[i], &value))
			fail_msg("'%s' is not a quantity", bad[i]);
}

static int read_results(const char *results, struct dra_claim *claim, struct bf_error *err)
{
	struct json_object *object;
	char text[2048];
	int rc;

	*claim = (struct dra_claim){ .uid = UID, .space = "lab", .name = "a" };
	snprintf(text, sizeof(text),
		 "{\"metadata\": {\"uid\": \"" UID
		 "\"}, \"status\": {\"allocation\": {\"devices\": {\"results\": %s}}}}",
		 results);
	object = json_tokener_parse(text);
	assert_non_null(object);
	rc = dra_read_claim(object, claim, err);
	json_object_put(object);
	return rc;
}
#define RESULT(amounts) \
	"{\"driver\": \"gpu.belfry.dev\", \"request\": \"r\", \"pool\": \"n\", \"device\": \"gpu-0\"" amounts \
	"}"

static void claims_have_amounts(void **state)
{
	struct bf_error err = { 0 };
	struct dra_claim claim;

	(void)state;
	assert_int_equal(
		read_results(
			"[{\"driver\": \"other\"}, " RESULT(
				", \"consumedCapacity\": {\"memory\": \"1.5Gi\", \"time\": \"12.5\"}") ", " RESULT("") "]",
			&claim, &err),
		0);
	assert_int_equal(claim.count, 2);
	assert_string_equal(claim.devices[0].vgpu, "claim-" UID "-0");
	assert_int_equal(claim.devices[0].mem_bytes, 1610612736);
	assert_int_equal(claim.devices[0].time_ppm, 125000);
	assert_string_equal(claim.devices[1].vgpu, "claim-" UID "-1");
	assert_int_equal(claim.devices[1].mem_bytes, 0); /* the whole device */
	assert_true(attach_is_claim_name(claim.devices[1].vgpu));
	assert_int_equal(spec_check_name(claim.devices[1].vgpu, &err), 0);
	/* The capacities may have the name of the driver. */
	assert_int_equal(
		read_results("[" RESULT(", \"consumedCapacity\": {\"gpu.belfry.dev/memory\": \"64Mi\"}") "]",
			     &claim, &err),
		0);
	assert_int_equal(claim.devices[0].mem_bytes, 64 << 20);
	assert_int_equal(claim.devices[0].time_ppm, 0);
}

static void claims_that_cannot_be_prepared_are_refused(void **state)
{
	static const char *const bad[] = {
		"[]",
		"null",
		"[{\"driver\": \"gpu.belfry.dev\"}]",
		"[" RESULT(", \"consumedCapacity\": {}") "]",
		"[" RESULT(", \"consumedCapacity\": {\"memory\": \"0\"}") "]",
		"[" RESULT(", \"consumedCapacity\": {\"memory\": \"2E\"}") "]",
		"[" RESULT(", \"consumedCapacity\": {\"memory\": \"1Gi\", \"time\": \"100.1\"}") "]",
		"[" RESULT(", \"consumedCapacity\": {\"memory\": \"1Gi\", \"time\": \"-1\"}") "]",
	};
	struct bf_error err = { 0 };
	struct dra_claim claim;
	struct json_object *other = json_tokener_parse("{\"metadata\": {\"uid\": \"another\"}}");

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err.text[0] = 0;
		if (!read_results(bad[i], &claim, &err) || !err.text[0])
			fail_msg("%s was accepted", bad[i]);
	}
	assert_true(dra_read_claim(other, &claim, &err) < 0);
	json_object_put(other);
}

static void names_in_paths_need_no_escapes(void **state)
{
	static const char *const bad[] = { "", "..", "../a", "a/b", "-a", ".a", "A", "a b", "a%2f" };
	struct dra_claim claim = { .uid = UID, .space = "lab", .name = "a.b-c" };

	(void)state;
	assert_int_equal(dra_check_claim(&claim, NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		claim = (struct dra_claim){ .uid = UID, .space = "lab" };
		snprintf(claim.name, sizeof(claim.name), "%s", bad[i]);
		assert_true(dra_check_claim(&claim, NULL) < 0);
		claim = (struct dra_claim){ .space = "lab", .name = "a" };
		snprintf(claim.uid, sizeof(claim.uid), "%s", bad[i]);
		assert_true(dra_check_claim(&claim, NULL) < 0);
	}
}

static void gpus_become_devices(void **state)
{
	struct json_object *report = json_tokener_parse(
		"{\"gpus\": [{\"gpu\": \"0\", \"model\": \"m\", \"mem\": {\"total\": 4294967296}}, {\"gpu\": \"1\"}, "
		"{\"gpu\": \"soft:0\", \"mem\": {\"total\": 104857600}}], \"vgpus\": ["
		"{\"name\": \"infer\", \"gpu\": \"0\", \"mem\": {\"limit\": 1073741824}, \"time\": {\"request\": 0.255}},"
		"{\"name\": \"claim-" UID
		"-0\", \"gpu\": \"0\", \"mem\": {\"limit\": 1073741824}, \"time\": {\"request\": "
		"0.5}}]}");
	struct json_object *devices = dra_slice_devices(report), *device;
	struct dra_device wanted = { .device = "soft-0" };
	char first[17], second[17];

	(void)state;
	assert_int_equal(json_object_array_length(devices), 2); /* GPU 1 does not answer */
	device = json_object_array_get_idx(devices, 0);
	assert_string_equal(gather_text(device, "name", ""), "gpu-0");
	assert_string_equal(gather_text(device, "capacity.memory.value", ""), "3072Mi");
	assert_string_equal(gather_text(device, "capacity.time.value", ""), "74");
	device = json_object_array_get_idx(devices, 1);
	assert_string_equal(gather_text(device, "name", ""), "soft-0");
	/* No more than there is. */
	assert_string_equal(gather_text(device, "capacity.memory.requestPolicy.default", ""), "100Mi");
	assert_int_equal(dra_find_gpu(report, &wanted, NULL), 0);
	assert_string_equal(wanted.gpu, "soft:0");
	snprintf(wanted.device, sizeof(wanted.device), "gpu-2");
	assert_true(dra_find_gpu(report, &wanted, NULL) < 0);
	dra_slice_hash(devices, first);
	json_object_array_del_idx(devices, 1, 1);
	dra_slice_hash(devices, second);
	assert_string_not_equal(first, second);
	json_object_put(devices);
	json_object_put(report);
}

static void messages_are_those_of_the_kubelet(void **state)
{
	static const uint8_t request[] = "\x0a\x0d\x0a\x03lab\x12\x03u-1\x1a\x01"
					 "a";
	struct dra_claim claim = { .uid = "u-1", .count = 1 };
	struct proto_writer writer = { 0 };
	struct bf_error err = { 0 };
	struct dra_claims claims;
	char text[64];

	(void)state;
	assert_int_equal(dra_read_claims((struct proto_bytes){ request, sizeof(request) - 1 }, &claims, &err),
			 0);
	assert_int_equal(claims.count, 1);
	assert_string_equal(claims.at[0].space, "lab");
	assert_string_equal(claims.at[0].uid, "u-1");
	assert_string_equal(claims.at[0].name, "a");
	free(claims.at);
	for (size_t i = 1; i < sizeof(request) - 1; i++) { /* no part of it is a message */
		assert_true(dra_read_claims((struct proto_bytes){ request, i }, &claims, &err) < 0);
		free(claims.at);
	}
	claim.devices[0] = (struct dra_device){ .request = "r/x", .pool = "n", .device = "d", .vgpu = "v" };
	dra_write_prepared(&writer, &claim, NULL);
	assert_int_equal(writer.count, 40);
	assert_memory_equal(writer.at,
			    "\x0a\x26\x0a\x03u-1\x12\x1f\x0a\x1d\x0a\x01r\x12\x01n\x1a\x01"
			    "d\x22\x12"
			    "belfry.dev/claim=v",
			    40);
	free(writer.at);
	writer = (struct proto_writer){ 0 };
	dra_write_unprepared(&writer, "u-1", "no");
	assert_int_equal(writer.count, 13);
	assert_memory_equal(writer.at, "\x0a\x0b\x0a\x03u-1\x12\x04\x0a\x02no", 13);
	free(writer.at);
	assert_true(
		dra_read_status((struct proto_bytes){ (const uint8_t *)"\x08\x01", 2 }, text, sizeof(text)));
	assert_false(dra_read_status((struct proto_bytes){ (const uint8_t *)"\x12\x02no", 4 }, text,
				     sizeof(text)));
	assert_string_equal(text, "no");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantities_are_those_of_kubernetes),
		cmocka_unit_test(claims_have_amounts),
		cmocka_unit_test(claims_that_cannot_be_prepared_are_refused),
		cmocka_unit_test(names_in_paths_need_no_escapes),
		cmocka_unit_test(gpus_become_devices),
		cmocka_unit_test(messages_are_those_of_the_kubelet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
