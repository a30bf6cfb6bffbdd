#include "cli/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "base/users.h"
#include "client/talk.h"

struct json_object *report_at(struct json_object *from, const char *path)
{
	char key[32];

	while (from && *path) {
		size_t length = strcspn(path, ".");

		if (length >= sizeof(key))
			return NULL;
		memcpy(key, path, length);
		key[length] = 0;
		path += length + (path[length] == '.');
		if (!json_object_is_type(from, json_type_object) ||
		    !json_object_object_get_ex(from, key, &from))
			return NULL;
	}
	return from;
}

int64_t report_number(struct json_object *from, const char *path)
{
	return json_object_get_int64(report_at(from, path));
}

double report_real(struct json_object *from, const char *path)
{
	return json_object_get_double(report_at(from, path));
}

const char *report_text(struct json_object *from, const char *path, const char *otherwise)
{
	struct json_object *at = report_at(from, path);

	return json_object_is_type(at, json_type_string) ? json_object_get_string(at) : otherwise;
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

const char *report_user(struct json_object *vgpu, char *to, size_t room)
{
	return bf_user_text((uid_t)report_number(vgpu, "owner"), to, room);
}

static int by_name(const void *a, const void *b)
{
	struct json_object *const *one = a, *const *other = b;

	return strcmp(report_text(*one, "name", ""), report_text(*other, "name", ""));
}

void report_print(struct json_object *top)
{
	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
							 JSON_C_TO_STRING_NOSLASHESCAPE));
}

struct protocol_gpu report_gpu(struct json_object *gpu)
{
	bool is_soft = !strcmp(report_text(gpu, "kind", "nv"), "soft");
	struct protocol_gpu to = { .kind = is_soft ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV,
				   .index = (uint32_t)report_number(gpu, "index") };

	snprintf(to.folder, sizeof(to.folder), "%s", report_text(gpu, "folder", ""));
	return to;
}

/* The body of an answer, as JSON. */
static int ask(const struct protocol_request *request, struct json_object **answer, struct bf_error *err)
{
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	int rc = talk_once(request, &reply, &body, err);

	*answer = NULL;
	if (rc)
		return rc;
	*answer = body ? json_tokener_parse(body) : NULL;
	if (json_object_is_type(*answer, json_type_object))
		return 0;
	json_object_put(*answer);
	*answer = NULL;
	return bf_fail(err, EPROTO, "belfryd's answer makes no sense; restart it");
}

static bool nobody_is_there(int rc)
{
	return rc == -ENOENT || rc == -ECONNREFUSED;
}

int report_check_place(struct bf_error *err)
{
	struct talk_place place;
	cleanup_close int sock = -1;
	int rc = talk_find(&place, err);

	if (rc)
		return rc;
	sock = talk_connect(&place, err);
	return sock >= 0 || (place.is_private && nobody_is_there(sock)) ? 0 : sock;
}

int report_hello(struct json_object **hello, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct talk_place place;
	int rc = talk_find(&place, err);

	*hello = NULL;
	if (rc)
		return rc;
	rc = ask(&request, hello, err);
	if (!rc && json_object_is_type(report_at(*hello, "daemon"), json_type_object))
		json_add_text(report_at(*hello, "daemon"), "user",
			      bf_user_name((uid_t)report_number(*hello, "daemon.uid")));
	return place.is_private && nobody_is_there(rc) ? 0 : rc;
}

/* What --soft name= would find it by; NULL: it is another user's, or lies elsewhere. */
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

/* Those that may be meant, in words. */
struct choice {
	int count;
	bool is_exact; /* one has the very name that was said, or that is meant where none is */
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
		struct protocol_gpu one = report_gpu(json_object_array_get_idx(gpus, i));

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

/* Every key of `from` that `to` has not, or has otherwise. */
static void merge(struct json_object *to, struct json_object *from)
{
	struct json_object_iterator at = json_object_iter_begin(from), end = json_object_iter_end(from);

	for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at))
		json_add(to, json_object_iter_peek_name(&at),
			 json_object_get(json_object_iter_peek_value(&at)));
}

/* One GPU's report into the lists. `gpu` is what is known of the GPU already. */
static int add_report(struct json_object *top, struct json_object *gpu,
		      const struct protocol_request *request, struct bf_error *err)
{
	struct json_object *report, *vgpus, *to = report_at(top, "vgpus");
	int rc = ask(request, &report, err);

	if (rc)
		return rc;
	if (json_object_is_type(report_at(report, "gpu"), json_type_object))
		merge(gpu, report_at(report, "gpu"));
	vgpus = report_at(report, "vgpus");
	if (json_object_is_type(vgpus, json_type_array))
		for (size_t i = 0; i < json_object_array_length(vgpus); i++)
			json_object_array_add(to, json_object_get(json_object_array_get_idx(vgpus, i)));
	json_object_put(report);
	return 0;
}

static int add_all(struct json_object *top, struct json_object *hello, struct bf_error *err)
{
	struct json_object *gpus = report_at(hello, "gpus");
	struct bf_error theirs = { 0 };
	int rc = 0, this;

	if (!json_object_is_type(gpus, json_type_array))
		return 0;
	for (size_t i = 0; i < json_object_array_length(gpus); i++) {
		struct json_object *gpu = json_object_array_get_idx(gpus, i);
		struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);

		request.gpu = report_gpu(gpu);
		json_object_array_add(report_at(top, "gpus"), json_object_get(gpu));
		this = add_report(top, gpu, &request, &theirs);
		/* One may have ended between the listing and the asking. */
		if (!this || this == -ENOENT || this == -ECONNREFUSED || rc)
			continue;
		if (this == -ETIMEDOUT) /* belfryd has just answered */
			rc = bf_fail(err, ETIMEDOUT,
				     "GPU %s: its server, process %" PRId64
				     ", does not answer; see the log of belfryd",
				     report_text(gpu, "gpu", "?"), report_number(gpu, "server_pid"));
		else
			rc = bf_fail(err, theirs.code, "%s", theirs.text);
	}
	return rc;
}

static int add_one(struct json_object *top, const char *name, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REPORT, name);
	struct json_object *gpu = json_object_new_object();
	int rc = add_report(top, gpu, &request, err);

	if (rc)
		json_object_put(gpu);
	else
		json_object_array_add(report_at(top, "gpus"), gpu);
	return rc;
}

/* belfryd knows numbers: it does not wait for a name service. */
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
	struct json_object *hello;
	int rc;

	*top = json_object_new_object();
	json_add(*top, "daemon", NULL);
	json_add(*top, "gpus", json_object_new_array());
	json_add(*top, "vgpus", json_object_new_array());
	json_add(*top, "pending", json_object_new_array());
	rc = report_hello(&hello, err);
	if (rc)
		return rc;
	if (!hello && !name)
		return bf_fail(err, ENOENT, "no belfryd runs; belfry create and belfry run start one");
	json_add(*top, "daemon", json_object_get(report_at(hello, "daemon")));
	if (report_at(hello, "failed"))
		json_add(*top, "failed", json_object_get(report_at(hello, "failed")));
	if (json_object_is_type(report_at(hello, "pending"), json_type_array))
		json_add(*top, "pending", json_object_get(report_at(hello, "pending")));
	rc = name ? add_one(*top, name, err) : add_all(*top, hello, err);
	json_object_array_sort(report_at(*top, "vgpus"), by_name);
	name_owners(report_at(*top, "vgpus"));
	json_object_put(hello);
	return rc;
}
