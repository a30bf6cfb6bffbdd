#include "cli/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "base/users.h"
#include "cli/cli.h"

int64_t report_number(struct json_object *from, const char *path)
{
	return json_object_get_int64(report_at(from, path));
}

double report_real(struct json_object *from, const char *path)
{
	return json_object_get_double(report_at(from, path));
}

static uint32_t to_ppm(double part)
{
	return part > 0 && part <= 1 ? (uint32_t)lround(part * SPEC_WHOLE_PPM) : 0;
}

const char *report_time(struct json_object *vgpu, char *to, size_t room)
{
	struct spec spec = { .request_ppm = to_ppm(report_real(vgpu, "time.request")),
			     .limit_ppm = to_ppm(report_real(vgpu, "time.limit")) };

	return spec_format_time(&spec, to, room);
}

const char *report_domain(struct json_object *vgpu)
{
	const char *domain = report_text(vgpu, "domain", "");

	return *domain ? domain : "-";
}

const char *report_sm(struct json_object *vgpu, char *to, size_t room)
{
	struct spec spec = { .sm_request_ppm = to_ppm(report_real(vgpu, "sm.request")),
			     .sm_limit_ppm = to_ppm(report_real(vgpu, "sm.limit")) };

	return spec_has_sm(&spec) ? spec_format_sm(&spec, to, room) : "-";
}

const char *report_user(struct json_object *vgpu, char *to, size_t room)
{
	return bf_user_text((uid_t)report_number(vgpu, "owner"), to, room);
}

void report_print(struct json_object *top)
{
	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
							 JSON_C_TO_STRING_NOSLASHESCAPE));
}

void report_print_line(struct json_object *top)
{
	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(top);
}

void report_print_took(const char *name, uint64_t took_ns)
{
	struct json_object *top = json_object_new_object();
	double us = (double)took_ns / 1000;
	char text[32];

	if (name)
		json_add_text(top, "name", name);
	snprintf(text, sizeof(text), "%.1f", us);
	json_add(top, "us", json_object_new_double_s(us, text));
	report_print_line(top);
}

/* belfryd and the GPU servers report users by number, because a name service could block them. */
static void name_user(struct json_object *from)
{
	if (json_object_is_type(report_at(from, "daemon"), json_type_object))
		json_add_text(report_at(from, "daemon"), "user",
			      bf_user_name((uid_t)report_number(from, "daemon.uid")));
}

int report_hello(struct json_object **hello, struct bf_error *err)
{
	const struct talk_way usual = { .socket = NULL };
	int rc = gather_hello(&usual, hello, err);

	name_user(*hello);
	return rc;
}

/* The name for --soft name=; NULL: the software GPU belongs to another user, or is in another folder. */
static const char *soft_name(const char *folder)
{
	char above[108];
	size_t length;

	if (bf_runtime_folder(above, sizeof(above), NULL))
		return NULL;
	length = strlen(above);
	return !strncmp(folder, above, length) && !strncmp(folder + length, "/soft-", 6) ? folder + length + 6
											 : NULL;
}

const char *report_label(const char *gpu, const char *folder, char *to, size_t room)
{
	const char *name = soft_name(folder);

	if (!folder[0])
		return gpu;
	snprintf(to, room, "%s (%s%s)", gpu, name ? "name=" : "", name ? name : folder);
	return to;
}

static bool is_meant(const struct cli_gpu *which, const struct protocol_gpu *gpu)
{
	char folder[sizeof(gpu->folder)];

	if (!which->is_said)
		return true;
	if (which->is_soft != (gpu->kind == PROTOCOL_GPU_SOFT) || which->index != gpu->index)
		return false;
	if (!which->is_soft || !strcmp(which->soft.name, link_default.name))
		return true;
	return !link_folder(which->soft.name, folder, sizeof(folder), NULL) && !strcmp(folder, gpu->folder);
}

/* The GPUs that match, as text. */
struct choice {
	int count;
	bool is_exact; /* one GPU matches by its exact name */
	size_t used;
	char names[256];
};

static void add_choice(struct choice *choice, const struct cli_gpu *which, const struct protocol_gpu *gpu,
		       struct protocol_gpu *to)
{
	const char *name = which->is_said && which->is_soft ? soft_name(gpu->folder) : NULL;
	char number[16], label[160];

	protocol_gpu_name(gpu, number, sizeof(number));
	if (choice->used < sizeof(choice->names))
		choice->used += (size_t)snprintf(
			choice->names + choice->used, sizeof(choice->names) - choice->used, "%s%s",
			choice->count ? ", " : "", report_label(number, gpu->folder, label, sizeof(label)));
	if (!choice->is_exact)
		*to = *gpu;
	choice->is_exact |= name && !strcmp(name, which->soft.name);
	choice->count++;
}

int report_choose(const struct cli_gpu *which, struct protocol_gpu *gpu, struct bf_error *err)
{
	struct json_object *hello, *gpus;
	struct choice choice = { .count = 0 };
	int rc = report_hello(&hello, err);

	if (rc)
		return rc;
	gpus = report_at(hello, "gpus");
	for (size_t i = 0; json_object_is_type(gpus, json_type_array) && i < json_object_array_length(gpus);
	     i++) {
		struct protocol_gpu one = gather_gpu(json_object_array_get_idx(gpus, i));

		if (is_meant(which, &one))
			add_choice(&choice, which, &one, gpu);
	}
	json_object_put(hello);
	if (!choice.count)
		return bf_fail(err, ENOENT, "%s; run something on a vGPU first",
			       which->is_said ? "this GPU is not in use" : "no GPU is in use");
	if (choice.count > 1 && !choice.is_exact)
		return bf_fail(err, EINVAL, "%d GPUs are in use: %s; say which with --gpu or --soft",
			       choice.count, choice.names);
	return 0;
}

static struct json_object *empty_report(void)
{
	struct json_object *top = json_object_new_object();

	json_add(top, "daemon", NULL);
	json_add(top, "gpus", json_object_new_array());
	json_add(top, "vgpus", json_object_new_array());
	json_add(top, "pending", json_object_new_array());
	return top;
}

static void name_owners(struct json_object *vgpus)
{
	for (size_t i = 0; i < json_object_array_length(vgpus); i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);

		json_add_text(vgpu, "owner_name", bf_user_name((uid_t)report_number(vgpu, "owner")));
	}
}

struct json_object *report_pending(struct json_object *from, const char *name)
{
	struct json_object *list = report_at(from, "pending");

	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct json_object *entry = json_object_array_get_idx(list, i);

		if (!strcmp(report_text(entry, "name", ""), name))
			return entry;
	}
	return NULL;
}

void report_print_pending(struct json_object *from)
{
	struct json_object *list = report_at(from, "pending");

	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct json_object *entry = json_object_array_get_idx(list, i);
		cleanup_free char *why = strdup(report_text(entry, "why", "?"));

		printf("pending  %s %s: %s; belfryd tries again by itself\n",
		       report_text(entry, "change", "?"), report_text(entry, "name", "?"),
		       why ? bf_plain(why) : "?");
	}
}

int report_gather(const char *name, struct json_object **top, struct bf_error *err)
{
	cleanup_belfry struct belfry *b = NULL;
	char *text = NULL;
	int rc = belfry_open(&b, NULL);

	if (!rc)
		rc = belfry_report(b, name, &text);
	if (rc)
		bf_fail(err, -rc, "%s", belfry_error(b));
	*top = text ? json_tokener_parse(text) : NULL;
	if (!*top)
		*top = empty_report();
	belfry_free(text);
	name_user(*top);
	name_owners(report_at(*top, "vgpus"));
	return rc;
}
