#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/cli.h"
#include "cli/report.h"

static const struct bf_command command = {
	.name = "stats",
	.about = "usage: belfry stats [--json] [NAME]\n"
		 "\n"
		 "Print all counters, of all vGPUs or of vGPU NAME.\n",
	.options = cli_json_options,
	.most = 1,
	.wrong_count = "give the name of one vGPU",
};

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);

	return length >= tail && !strcmp(text + length - tail, end);
}

static void print_plain(const char *text)
{
	for (; *text; text++)
		putchar((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text);
}

/* Whether a value is in nanoseconds. It is printed in seconds, without the unit in its key. */
static bool is_ns(const char *key)
{
	return !strcmp(key, "ns") || ends_with(key, "_ns");
}

/* "gpu_ns" is "gpu", and "ns" is "time". A GPU also has a key "busy", so "busy_ns" is "busy_time". *length: of the
 * result. */
static const char *plain_key(const char *key, int *length)
{
	if (!strcmp(key, "ns"))
		key = "time";
	else if (!strcmp(key, "busy_ns"))
		key = "busy_time";
	*length = (int)(strlen(key) - (is_ns(key) ? sizeof("_ns") - 1 : 0));
	return key;
}

/* Whether a value is a size: all of the group "mem", all of a process but its pid, and these keys in all
 * groups but "time". */
static bool is_size(const char *group, const char *key)
{
	static const char *const sizes[] = { "total", "reserved", "used",      "limit",
					     "most",  "managed",  "mem_total", "mem_reserved" };

	if (ends_with(group, "processes") && strcmp(key, "pid"))
		return true;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!strcmp(key, sizes[i]))
			return strcmp(group, "time") != 0;
	return !strcmp(group, "mem");
}

static void print_members(const char *group, struct json_object *members);

static void print_value(const char *group, const char *key, struct json_object *value)
{
	char size[24];

	if (json_object_is_type(value, json_type_null)) {
		printf("none");
	} else if (json_object_is_type(value, json_type_object)) {
		putchar('(');
		print_members(group, value);
		putchar(')');
	} else if (json_object_is_type(value, json_type_string)) {
		print_plain(json_object_get_string(value));
	} else if (json_object_is_type(value, json_type_boolean)) {
		printf("%s", json_object_get_boolean(value) ? "yes" : "no");
	} else if (is_ns(key)) {
		printf("%.6f s", (double)json_object_get_int64(value) / 1e9);
	} else if (json_object_is_type(value, json_type_double)) {
		printf("%g", json_object_get_double(value));
	} else if (is_size(group, key)) {
		printf("%s", bf_format_size((uint64_t)json_object_get_int64(value), size, sizeof(size)));
	} else {
		printf("%" PRId64, json_object_get_int64(value));
	}
}

/* "granted 3, expired 0". */
static void print_members(const char *group, struct json_object *members)
{
	struct json_object_iterator at = json_object_iter_begin(members), end = json_object_iter_end(members);

	for (const char *between = ""; !json_object_iter_equal(&at, &end); between = ", ") {
		int length;
		const char *name = json_object_iter_peek_name(&at), *key = plain_key(name, &length);

		printf("%s%.*s ", between, length, key);
		print_value(group, name, json_object_iter_peek_value(&at));
		json_object_iter_next(&at);
	}
}

static void print_list(const char *group, struct json_object *list)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *member = json_object_array_get_idx(list, i);

		printf("  %-13s ", group);
		if (json_object_is_type(member, json_type_object))
			print_members(group, member);
		else
			printf("%s", json_object_to_json_string(member));
		putchar('\n');
	}
}

static void print_key(const char *key, struct json_object *value)
{
	int length;
	const char *plain = plain_key(key, &length);

	if (json_object_is_type(value, json_type_array)) {
		print_list(key, value);
		return;
	}
	printf("  %-13.*s ", length, plain);
	if (json_object_is_type(value, json_type_object))
		print_members(key, value);
	else
		print_value("", key, value);
	putchar('\n');
}

/* Print a GPU or vGPU: its name, then a line for each key. */
static void print_thing(const char *what, const char *name, struct json_object *thing)
{
	struct json_object_iterator at = json_object_iter_begin(thing), end = json_object_iter_end(thing);

	printf("%s %s\n", what, name);
	for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at))
		print_key(json_object_iter_peek_name(&at), json_object_iter_peek_value(&at));
}

static void print_things(const char *what, const char *name_key, struct json_object *things)
{
	for (size_t i = 0; i < json_object_array_length(things); i++) {
		struct json_object *thing = json_object_array_get_idx(things, i);

		print_thing(what, report_text(thing, name_key, "?"), thing);
	}
}

int cli_stats(int argc, char **argv)
{
	struct bf_error err = { 0 };
	struct json_object *top;
	const char *name;
	bool is_json = false;
	int status, first = cli_parse(&command, argc, argv, &is_json, &status), rc;

	if (!first)
		return status;
	name = argv[first];
	if (name && spec_check_name(name, &err))
		return cli_fail(&err);
	rc = report_gather(name, &top, &err);
	if (report_at(top, "daemon") && (!rc || !name)) {
		if (is_json)
			report_print(top);
		else {
			print_things("GPU", "gpu", report_at(top, "gpus"));
			print_things("vGPU", "name", report_at(top, "vgpus"));
		}
	}
	json_object_put(top);
	return rc ? cli_fail(&err) : CLI_OK;
}
