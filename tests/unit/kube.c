/* kube: protocol buffers, what a node offers, and which devices a container gets. */
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
#include "kube/inventory.h"

static const struct inventory_options usual = { .slots = 2 };

/* Two GPUs of 4 and 2 GiB. On GPU 0 a vGPU of root with 1 GiB and 25.5 %, one of a pod, one of a user, and one that is
 * shared. On GPU 1 one of a claim, which belfry-dra offers. */
static const char both[] =
	"{\"daemon\": {}, \"gpus\": [{\"gpu\": \"0\", \"mem\": {\"total\": 4294967296}}, {\"gpu\": \"1\", \"mem\": "
	"{\"total\": 2147483648}}], \"vgpus\": ["
	"{\"name\": \"infer\", \"gpu\": \"0\", \"owner\": 0, \"ephemeral\": false, \"mem\": {\"limit\": 1073741824}, "
	"\"time\": {\"request\": 0.255}},"
	"{\"name\": \"a.pod-0123456789ab\", \"gpu\": \"0\", \"owner\": 0, \"ephemeral\": true, \"mem\": {\"limit\": "
	"1073741824}, \"time\": {\"request\": 0.5}},"
	"{\"name\": \"his\", \"gpu\": \"1\", \"owner\": 1000, \"ephemeral\": false, \"mem\": {\"limit\": 1}, \"time\": "
	"{\"request\": 0}},"
	"{\"name\": \"claim-11111111-2222-4333-8444-555555555555-0\", \"gpu\": \"1\", \"owner\": 0, \"ephemeral\": false, "
	"\"mem\": {}, \"time\": {}},"
	"{\"name\": \"dash-\", \"gpu\": \"1\", \"owner\": 0, \"ephemeral\": false, \"mem\": {}, \"time\": {}},"
	"{\"name\": \"side\", \"gpu\": \"1\", \"owner\": 0, \"ephemeral\": false, \"sm\": {}, \"mem\": {}, \"time\": {}}]}";

static struct inventory *offered(const char *report, const struct inventory *before)
{
	struct json_object *object = report ? json_tokener_parse(report) : NULL;
	struct inventory *inventory = inventory_new(object, before, &usual);

	assert_true(!report || object);
	assert_non_null(inventory);
	json_object_put(object);
	return inventory;
}

static size_t healthy(const struct inventory *inventory, const char *name, size_t all)
{
	const struct inventory_resource *resource = inventory_find(inventory, name);
	size_t count = 0;

	assert_non_null(resource);
	assert_int_equal(resource->count, all);
	for (size_t i = 0; i < resource->count; i++)
		count += resource->devices[i].is_healthy;
	return count;
}

static void what_other_vgpus_have_is_not_offered(void **state)
{
	struct inventory *inventory = offered(both, NULL);

	(void)state;
	assert_int_equal(inventory->count, 3); /* memory, time, infer */
	assert_int_equal(healthy(inventory, "memory-gib", 6), 3 + 1);
	assert_int_equal(healthy(inventory, "time-percent", 200), 74 + 100);
	assert_int_equal(healthy(inventory, "vgpu-infer", 2), 2);
	assert_string_equal(inventory_find(inventory, "vgpu-infer")->devices[1].id, "0/1");
	assert_int_equal(inventory_gib(inventory, "0"), 4);
	inventory_free(inventory);
}

static void what_does_not_answer_is_unhealthy(void **state)
{
	/* The server of GPU 0 has died. */
	static const char one[] =
		"{\"daemon\": {}, \"gpus\": [{\"gpu\": \"0\"}, {\"gpu\": \"1\", \"mem\": {\"total\": "
		"2147483648}}], \"vgpus\": []}";
	struct inventory *first = offered(both, NULL), *absent = offered(NULL, first),
			 *half = offered(one, absent), *again = offered(both, half);

	(void)state;
	assert_int_equal(healthy(absent, "memory-gib", 6), 0);
	assert_int_equal(healthy(absent, "vgpu-infer", 2), 0);
	assert_int_equal(healthy(half, "memory-gib", 6), 2);
	assert_int_equal(healthy(half, "time-percent", 200), 100);
	assert_int_equal(healthy(half, "vgpu-infer", 2), 0);
	assert_true(
		inventory_is_same(inventory_find(again, "vgpu-infer"), inventory_find(first, "vgpu-infer")));
	assert_int_equal(healthy(again, "memory-gib", 6), 4);
	inventory_free(first);
	inventory_free(absent);
	inventory_free(half);
	inventory_free(again);
}

static void a_vgpu_that_was_removed_has_no_devices_and_then_no_resource(void **state)
{
	static const char none[] =
		"{\"daemon\": {}, \"gpus\": [{\"gpu\": \"0\", \"mem\": {\"total\": 4294967296}}], "
		"\"vgpus\": []}";
	struct inventory *first = offered(both, NULL), *next = offered(none, first),
			 *last = offered(none, next), *again = offered(both, next);

	(void)state;
	assert_int_equal(healthy(next, "vgpu-infer", 0), 0);
	assert_null(inventory_find(last, "vgpu-infer"));
	assert_int_equal(healthy(again, "vgpu-infer", 2), 2);
	inventory_free(first);
	inventory_free(next);
	inventory_free(last);
	inventory_free(again);
}

static struct api_ids ids_of(char (*at)[API_ID_MAX + 1], const char *words)
{
	struct api_ids ids = { .at = at };
	char copy[256], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
		snprintf(at[ids.count++], API_ID_MAX + 1, "%s", word);
	return ids;
}

static int allocated(const struct inventory *inventory, const char *resource, const char *words,
		     bool has_limit, char mark[64])
{
	const struct inventory_options options = { .slots = 2, .has_time_limit = has_limit };
	char at[16][API_ID_MAX + 1];
	struct api_ids ids = ids_of(at, words);
	const char *to, *gpu;
	struct bf_error err;

	return inventory_allocate(inventory_find(inventory, resource), &options, &ids, mark, 64, &to, &gpu,
				  &err);
}

static void devices_become_marks(void **state)
{
	struct inventory *inventory = offered(both, NULL);
	char mark[64];

	(void)state;
	assert_int_equal(allocated(inventory, "memory-gib", "0/2 0/0", false, mark), 0);
	assert_string_equal(mark, "memory@0@2");
	assert_int_equal(allocated(inventory, "time-percent", "0/2 1/0 1/7", false, mark), 0);
	assert_string_equal(mark, "time@3:100");
	assert_int_equal(allocated(inventory, "time-percent", "0/2", true, mark), 0);
	assert_string_equal(mark, "time@1:1");
	assert_int_equal(allocated(inventory, "vgpu-infer", "0/1", false, mark), 0);
	assert_string_equal(mark, "infer");
	assert_true(allocated(inventory, "memory-gib", "0/0 1/0", false, mark) < 0); /* two GPUs */
	assert_true(allocated(inventory, "memory-gib", "0/0 0/0", false, mark) < 0);
	assert_true(allocated(inventory, "memory-gib", "0/9", false, mark) < 0);
	assert_true(allocated(inventory, "memory-gib", "", false, mark) < 0);
	assert_true(allocated(inventory, "vgpu-infer", "0/0 0/1", false, mark) < 0);
	inventory_free(inventory);
}

static void prefers(const char *available, const char *musts, unsigned size, const char *hint,
		    const char *wanted)
{
	char at[16][API_ID_MAX + 1], must_at[16][API_ID_MAX + 1], got[256] = "";
	struct api_container container = { ids_of(at, available), ids_of(must_at, musts), size };
	const char *ids[32];
	size_t count = inventory_prefer(&container, hint, ids, 32);

	for (size_t i = 0; i < count; i++) {
		strcat(got, i ? " " : "");
		strcat(got, ids[i]);
	}
	assert_string_equal(got, wanted);
}

static void one_gpu_is_preferred(void **state)
{
	(void)state;
	prefers("0/0 10/0 1/0 10/1 0/1 0/2", "", 2, NULL, "10/0 10/1"); /* the fewest are left */
	prefers("0/0 10/0 1/0 10/1 0/1 0/2", "", 2, "0", "0/0 0/1");
	prefers("0/0 10/0 1/0 10/1 0/1 0/2", "", 2, "1", "10/0 10/1"); /* 1 has not enough */
	prefers("0/0 1/0 1/1 0/1 0/2", "0/2", 2, "1", "0/2 0/0");
	prefers("0/0 1/0", "", 2, NULL, "0/0 1/0"); /* Allocate refuses it */
	prefers("0/0 1/0", "", 0, NULL, "");
}

static struct json_object *config_with(const char *memory, const char *time)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"mounts\": [{\"destination\": \"" ATTACH_MEMORY
		 "\", \"source\": \"%s\"}, {\"destination\": "
		 "\"" ATTACH_TIME
		 "\", \"source\": \"%s\"}], \"annotations\": {\"io.kubernetes.cri.sandbox-name\": "
		 "\"train-0\"}}",
		 memory, time);
	return json_tokener_parse(text);
}

static void marks_become_a_spec(void **state)
{
	char folder[] = "/tmp/belfry-kube-XXXXXX", memory[64], time[64], command[64], name[SPEC_NAME_MAX + 1];
	struct bf_error err = { 0 };
	struct attach_share share;
	struct json_object *config;

	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(attach_write_shares(folder, "soft:0", 3, &err), 0);
	snprintf(memory, sizeof(memory), "%s/memory@soft:0@3", folder);
	snprintf(time, sizeof(time), "%s/time@25:25", folder);
	config = config_with(memory, time);
	assert_int_equal(attach_find_share(config, folder, &share, &err), 0);
	assert_string_equal(share.gpu, "soft:0");
	assert_int_equal(share.spec.mem_bytes, 3ull << 30);
	assert_int_equal(share.spec.request_ppm, 250000);
	assert_int_equal(share.spec.limit_ppm, 250000);
	attach_share_name(config, "0123456789", name);
	assert_int_equal(strncmp(name, "train-0.pod-", 12), 0);
	assert_int_equal(spec_check_name(name, NULL), 0);
	assert_true(attach_is_share_name(name, "0123456789") && attach_is_share_name(name, NULL));
	assert_false(attach_is_share_name(name, "other"));
	assert_false(attach_is_share_name("pod-1", NULL));
	json_object_put(config);
	/* A mark at the wrong place. */
	config = config_with(time, memory);
	assert_true(attach_find_share(config, folder, &share, &err) < 0);
	json_object_put(config);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static void messages_are_read_as_they_were_written(void **state)
{
	static const uint8_t preferred[] = "\x0a\x0f\x0a\3a/0\x12\3a/1\x18\2\x2a\1x"; /* 5: not known */
	struct proto_writer writer = { 0 };
	struct api_request request;
	struct bf_error err;

	(void)state;
	assert_int_equal(
		api_read_preferred((struct proto_bytes){ preferred, sizeof(preferred) - 1 }, &request, &err),
		0);
	assert_int_equal(request.count, 1);
	assert_string_equal(request.containers[0].ids.at[0], "a/0");
	assert_string_equal(request.containers[0].musts.at[0], "a/1");
	assert_int_equal(request.containers[0].size, 2);
	api_request_free(&request);
	for (size_t i = 1; i < sizeof(preferred) - 1; i++) { /* no part of it is a message */
		assert_true(api_read_preferred((struct proto_bytes){ preferred, i }, &request, &err) < 0);
		api_request_free(&request);
	}
	api_write_device(&writer, "a/0", false);
	assert_memory_equal(writer.at, "\x0a\x10\x0a\3a/0\x12\x09Unhealthy", writer.count);
	free(writer.at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_other_vgpus_have_is_not_offered),
		cmocka_unit_test(what_does_not_answer_is_unhealthy),
		cmocka_unit_test(a_vgpu_that_was_removed_has_no_devices_and_then_no_resource),
		cmocka_unit_test(devices_become_marks),
		cmocka_unit_test(one_gpu_is_preferred),
		cmocka_unit_test(marks_become_a_spec),
		cmocka_unit_test(messages_are_read_as_they_were_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
