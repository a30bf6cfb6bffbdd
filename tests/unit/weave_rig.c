#include "weave_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"

const char *const shipped_names[SHIPPED] = { "kernelstat", "blocktime", "smload",   "memtrace",
					     "divergence", "roofline",	"launchlag" };

struct probe *weave_rig_probe(const char *directory, const char *name)
{
	cleanup_free uint8_t *data = malloc(1 << 20);
	cleanup_file FILE *file = NULL;
	struct bf_error err = { 0 };
	struct probe *probe;
	char path[512];
	size_t size;

	snprintf(path, sizeof(path), "%s/%s/%s.bpf.o", BELFRY_BUILD_DIR, directory, name);
	file = fopen(path, "re");
	if (!file || !data)
		fail_msg("%s: %s", path, strerror(errno));
	size = fread(data, 1, 1 << 20, file);
	if (probe_open(data, size, &(struct probe_options){ .sm_count = 4 }, &probe, &err))
		fail_msg("%s: %s", name, err.text);
	return probe;
}

uint64_t weave_rig_area(struct rig *rig, const struct probe *probe)
{
	uint64_t area = rig_alloc(rig, probe_area_bytes(probe), NULL);

	probe_area_init(probe, rig_host(rig, area));
	return area;
}

void weave_rig_text(const char *text, const struct weave_probe *probes, size_t count,
		    struct weave_result *result)
{
	struct bf_error err = { 0 };

	if (weave_text(text, strlen(text), probes, count, result, &err))
		fail_msg("%s in\n%s", err.text, text);
}

void weave_rig_check(const void *area)
{
	const struct probe_area *head = area;

	assert_int_equal(head->out_of_fuel, 0);
	assert_int_equal(head->out_of_bounds, 0);
	assert_int_equal(head->busy, 0);
	assert_int_equal(head->missed_ends, 0);
}

char *weave_rig_file(const char *name)
{
	cleanup_file FILE *file = NULL;
	char *text = calloc(1, 1 << 20);
	char path[512];

	snprintf(path, sizeof(path), "%s/ptx/%s.ptx", BELFRY_TEST_DATA, name);
	file = fopen(path, "re");
	if (!file || !text || !fread(text, 1, (1 << 20) - 1, file))
		fail_msg("%s: %s", path, strerror(errno));
	return text;
}
