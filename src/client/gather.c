#include "client/gather.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"

struct json_object *gather_at(struct json_object *from, const char *path)
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

const char *gather_text(struct json_object *from, const char *path, const char *otherwise)
{
	struct json_object *at = gather_at(from, path);

	return json_object_is_type(at, json_type_string) ? json_object_get_string(at) : otherwise;
}

struct protocol_gpu gather_gpu(struct json_object *gpu)
{
	bool is_soft = !strcmp(gather_text(gpu, "kind", "nv"), "soft");
	struct protocol_gpu to = { .kind = is_soft ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV,
				   .index = (uint32_t)json_object_get_int64(gather_at(gpu, "index")) };

	snprintf(to.folder, sizeof(to.folder), "%s", gather_text(gpu, "folder", ""));
	return to;
}

/* The body of a reply, which must be a JSON object. */
static int ask(const struct talk_way *way, const struct protocol_request *request,
	       struct json_object **answer, struct bf_error *err)
{
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	int rc = talk_by(way, request, &reply, &body, err);

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

int gather_hello(const struct talk_way *way, struct json_object **hello, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);

	return ask(way, &request, hello, err);
}

/* Add the members of `from` to `to`; those that `to` has already are replaced. */
static void merge(struct json_object *to, struct json_object *from)
{
	struct json_object_iterator at = json_object_iter_begin(from), end = json_object_iter_end(from);

	for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at))
		json_add(to, json_object_iter_peek_name(&at),
			 json_object_get(json_object_iter_peek_value(&at)));
}

/* Add the report of one GPU to the lists. `gpu` has the entry of belfryd, and gets the members of the report. */
static int add_report(const struct talk_way *way, struct json_object *top, struct json_object *gpu,
		      const struct protocol_request *request, struct bf_error *err)
{
	struct json_object *report, *vgpus, *to = gather_at(top, "vgpus");
	int rc = ask(way, request, &report, err);

	if (rc)
		return rc;
	if (json_object_is_type(gather_at(report, "gpu"), json_type_object))
		merge(gpu, gather_at(report, "gpu"));
	vgpus = gather_at(report, "vgpus");
	if (json_object_is_type(vgpus, json_type_array))
		for (size_t i = 0; i < json_object_array_length(vgpus); i++)
			json_object_array_add(to, json_object_get(json_object_array_get_idx(vgpus, i)));
	json_object_put(report);
	return 0;
}

/* One GPU of the reply to PROTOCOL_HELLO. Its server may have ended since that reply. */
static int add_gpu(const struct talk_way *way, struct json_object *top, struct json_object *gpu,
		   struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	int rc;

	request.gpu = gather_gpu(gpu);
	json_object_array_add(gather_at(top, "gpus"), json_object_get(gpu));
	rc = add_report(way, top, gpu, &request, err);
	if (talk_is_absent(rc))
		return 0;
	if (rc == -ETIMEDOUT) /* belfryd itself has just answered */
		return bf_fail(
			err, ETIMEDOUT,
			"GPU %s: its server, process %" PRId64 ", does not answer; see the log of belfryd",
			gather_text(gpu, "gpu", "?"), json_object_get_int64(gather_at(gpu, "server_pid")));
	return rc;
}

/* Ask all GPUs. The first error is returned. */
static int add_all(const struct talk_way *way, struct json_object *top, struct json_object *hello,
		   struct bf_error *err)
{
	struct json_object *gpus = gather_at(hello, "gpus");
	struct bf_error theirs = { 0 };
	int rc = 0;

	if (!json_object_is_type(gpus, json_type_array))
		return 0;
	for (size_t i = 0; i < json_object_array_length(gpus); i++) {
		int this = add_gpu(way, top, json_object_array_get_idx(gpus, i), &theirs);

		if (this && !rc)
			rc = bf_fail(err, -this, "%s", theirs.text);
	}
	return rc;
}

static int add_one(const struct talk_way *way, struct json_object *top, const char *name,
		   struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REPORT, name);
	struct json_object *gpu = json_object_new_object();
	int rc = add_report(way, top, gpu, &request, err);

	if (rc)
		json_object_put(gpu);
	else
		json_object_array_add(gather_at(top, "gpus"), gpu);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	struct json_object *const *one = a, *const *other = b;

	return strcmp(gather_text(*one, "name", ""), gather_text(*other, "name", ""));
}

/* No belfryd answers. A private belfryd need not run, and then its vGPUs do not exist. */
static int fail_absent(const struct talk_way *way, const char *name, struct bf_error *err)
{
	struct talk_place place;
	int rc = talk_find_way(way, &place, NULL);

	if (rc || !place.is_private || !name)
		return -ECONNREFUSED; /* talk_by() has set err */
	return talk_fail_unknown(&place, name, err);
}

/* The reply of belfryd itself, and empty lists. json-c aborts if a list is NULL, so memory is checked. */
static int begin(struct json_object *hello, struct json_object **top, struct bf_error *err)
{
	*top = json_object_new_object();
	json_add(*top, "daemon", json_object_get(gather_at(hello, "daemon")));
	json_add(*top, "gpus", json_object_new_array());
	json_add(*top, "vgpus", json_object_new_array());
	if (gather_at(hello, "failed"))
		json_add(*top, "failed", json_object_get(gather_at(hello, "failed")));
	json_add(*top, "pending",
		 json_object_is_type(gather_at(hello, "pending"), json_type_array)
			 ? json_object_get(gather_at(hello, "pending"))
			 : json_object_new_array());
	if (gather_at(*top, "gpus") && gather_at(*top, "vgpus"))
		return 0;
	json_object_put(*top);
	*top = NULL;
	return bf_fail(err, ENOMEM, "report: no memory for it");
}

int gather_report(const struct talk_way *way, const char *name, struct json_object **top,
		  struct bf_error *err)
{
	struct json_object *hello;
	int rc = gather_hello(way, &hello, err);

	*top = NULL;
	if (rc == -ECONNREFUSED)
		return fail_absent(way, name, err);
	if (rc)
		return rc;
	rc = begin(hello, top, err);
	if (!rc) {
		rc = name ? add_one(way, *top, name, err) : add_all(way, *top, hello, err);
		json_object_array_sort(gather_at(*top, "vgpus"), by_name);
	}
	if (rc && name) {
		json_object_put(*top);
		*top = NULL;
	}
	json_object_put(hello);
	return rc;
}
