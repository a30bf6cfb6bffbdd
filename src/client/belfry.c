/* The client library: include/belfry/belfry.h on top of talk.h. */
#include "belfry/belfry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "client/gather.h"
#include "client/options.h"
#include "client/talk.h"

#define DAY_US 86400000000ull

enum { DAY_MS = 86400000, SOCKET_MAX = 107 };

struct belfry {
	char *socket; /* NULL: search for belfryd */
	unsigned limit_ms;
	uint64_t took_ns;
	char shared_domain[SPEC_NAME_MAX + 1];
	struct bf_error err;
};

const char *belfry_version(void)
{
	return BELFRY_VERSION;
}

static void begin(struct belfry *b)
{
	b->err = (struct bf_error){ 0 };
	b->took_ns = 0;
	b->shared_domain[0] = 0;
}

/* The message may quote an invalid argument, so make it printable. */
static int end(struct belfry *b, int rc)
{
	bf_plain(b->err.text);
	for (char *at = b->err.text; *at; at++)
		if (*at == '\n' || *at == '\t')
			*at = ' ';
	return rc;
}

static struct talk_way way_of(const struct belfry *b)
{
	return (struct talk_way){ .socket = b->socket, .limit_ms = b->limit_ms };
}

static int set_socket(struct belfry *b, const char *socket)
{
	size_t length = strlen(socket);

	if (!length || length > SOCKET_MAX)
		return bf_fail(&b->err, length ? ENAMETOOLONG : EINVAL,
			       "socket '%.40s': its path has %zu characters, and may have 1 to %d", socket,
			       length, SOCKET_MAX);
	b->socket = strdup(socket);
	return b->socket ? 0 : bf_fail(&b->err, ENOMEM, "socket: no memory for its path");
}

int belfry_open(struct belfry **b, const char *socket)
{
	if (!b)
		return -EINVAL;
	*b = calloc(1, sizeof(**b));
	if (!*b)
		return -ENOMEM;
	return end(*b, socket ? set_socket(*b, socket) : 0);
}

void belfry_close(struct belfry *b)
{
	if (!b)
		return;
	free(b->socket);
	free(b);
}

const char *belfry_error(const struct belfry *b)
{
	return b ? b->err.text : "no handle, or no memory for one";
}

void belfry_free(char *text)
{
	free(text);
}

int belfry_set_timeout(struct belfry *b, unsigned milliseconds)
{
	if (!b)
		return -EINVAL;
	begin(b);
	if (milliseconds > DAY_MS)
		return end(b, bf_fail(&b->err, ERANGE, "time limit of %u ms: too long; the most is one day",
				      milliseconds));
	b->limit_ms = milliseconds;
	return 0;
}

uint64_t belfry_took_ns(const struct belfry *b)
{
	return b ? b->took_ns : 0;
}

const char *belfry_shared_domain(const struct belfry *b)
{
	return b ? b->shared_domain : "";
}

static int set_name(struct belfry *b, struct protocol_request *request, const char *name)
{
	int rc = name ? spec_check_name(name, &b->err)
		      : bf_fail(&b->err, EINVAL, "no name of a vGPU was given");

	if (!rc)
		snprintf(request->name, sizeof(request->name), "%s", name);
	return rc;
}

static int ask(struct belfry *b, const struct protocol_request *request, struct protocol_reply *reply,
	       char **body)
{
	struct talk_way way = way_of(b);
	int rc = talk_by(&way, request, reply, body, &b->err);

	if (rc)
		return rc;
	b->took_ns = reply->took_ns;
	if (reply->flags & PROTOCOL_NOW_SHARED)
		snprintf(b->shared_domain, sizeof(b->shared_domain), "%.*s", SPEC_NAME_MAX, reply->text);
	return 0;
}

/* A request whose reply has a body. */
static int ask_body(struct belfry *b, const struct protocol_request *request, char **json)
{
	struct protocol_reply reply;
	int rc = ask(b, request, &reply, json);

	if (!rc && !*json)
		rc = bf_fail(&b->err, EPROTO, "belfryd's answer makes no sense; restart it");
	if (rc) {
		free(*json); /* the body of a refusal */
		*json = NULL;
	}
	return rc;
}

/* A request about one vGPU whose reply has no body. */
static int order(struct belfry *b, struct protocol_request *request, const char *name)
{
	struct protocol_reply reply;
	int rc = set_name(b, request, name);

	return end(b, rc ? rc : ask(b, request, &reply, NULL));
}

static int tell_place(struct belfry *b, const struct protocol_request *request,
		      const struct protocol_reply *reply, char **json)
{
	struct json_object *place = json_object_new_object();
	char gpu[16];
	size_t bytes;

	json_add_text(place, "name", request->name);
	json_add_text(place, "gpu", protocol_gpu_name(&reply->gpu, gpu, sizeof(gpu)));
	if (reply->flags & PROTOCOL_NOW_SHARED)
		json_object_object_add(place, "now_shared", json_object_new_boolean(true));
	*json = json_text(place, &bytes);
	if (*json)
		return 0;
	return bf_fail(&b->err, ENOMEM, "%s: it was made, but there is no memory to say where",
		       request->name);
}

int belfry_vgpu_create(struct belfry *b, const char *name, const char *const *options, char **json)
{
	struct protocol_request request = talk_request(PROTOCOL_CREATE, NULL);
	struct protocol_reply reply;
	int rc;

	if (json)
		*json = NULL;
	if (!b)
		return -EINVAL;
	begin(b);
	rc = set_name(b, &request, name);
	if (!rc)
		rc = options_read(options, &request, &b->err);
	if (!rc)
		rc = ask(b, &request, &reply, NULL);
	if (!rc && json)
		rc = tell_place(b, &request, &reply, json);
	return end(b, rc);
}

int belfry_vgpu_set(struct belfry *b, const char *name, const char *const *options)
{
	struct protocol_request request = talk_request(PROTOCOL_SET, NULL);
	int rc;

	if (!b)
		return -EINVAL;
	begin(b);
	rc = options_read(options, &request, &b->err);
	return rc ? end(b, rc) : order(b, &request, name);
}

static int check_flags(struct belfry *b, unsigned flags, unsigned known)
{
	return flags & ~known ? bf_fail(&b->err, EINVAL, "flags 0x%x: unknown", flags & ~known) : 0;
}

int belfry_vgpu_check(struct belfry *b, const char *name, const char *const *options, unsigned flags)
{
	struct protocol_request request =
		talk_request(flags & BELFRY_SET ? PROTOCOL_SET : PROTOCOL_CREATE, NULL);
	int rc;

	if (!b)
		return -EINVAL;
	begin(b);
	rc = check_flags(b, flags, BELFRY_SET);
	if (!rc)
		rc = options_read(options, &request, &b->err);
	if (!rc && name)
		rc = spec_check_name(name, &b->err);
	return end(b, rc);
}

int belfry_vgpu_remove(struct belfry *b, const char *name, unsigned flags)
{
	struct protocol_request request = talk_request(PROTOCOL_REMOVE, NULL);
	int rc;

	if (!b)
		return -EINVAL;
	begin(b);
	rc = check_flags(b, flags, BELFRY_FORCE);
	if (flags & BELFRY_FORCE)
		request.flags |= PROTOCOL_FORCE;
	return rc ? end(b, rc) : order(b, &request, name);
}

int belfry_vgpu_hold(struct belfry *b, const char *name, uint64_t for_us)
{
	struct protocol_request request = talk_request(PROTOCOL_HOLD, NULL);

	if (!b)
		return -EINVAL;
	begin(b);
	if (for_us > DAY_US)
		return end(b, bf_fail(&b->err, ERANGE, "hold for %llu us: too long; the most is one day",
				      (unsigned long long)for_us));
	request.for_us = for_us;
	return order(b, &request, name);
}

static int plain_order(struct belfry *b, enum protocol_op op, const char *name)
{
	struct protocol_request request = talk_request(op, NULL);

	if (!b)
		return -EINVAL;
	begin(b);
	return order(b, &request, name);
}

int belfry_vgpu_open(struct belfry *b, const char *name)
{
	return plain_order(b, PROTOCOL_OPEN, name);
}

int belfry_vgpu_stop(struct belfry *b, const char *name)
{
	return plain_order(b, PROTOCOL_STOP, name);
}

int belfry_vgpu_resume(struct belfry *b, const char *name)
{
	return plain_order(b, PROTOCOL_RESUME, name);
}

/* For functions whose only result is text: json must not be NULL. */
static int begin_json(struct belfry *b, char **json)
{
	if (json)
		*json = NULL;
	if (!b)
		return -EINVAL;
	begin(b);
	return json ? 0 : bf_fail(&b->err, EINVAL, "no pointer for the result was given");
}

int belfry_vgpu_explain(struct belfry *b, const char *name, char **json)
{
	struct protocol_request request = talk_request(PROTOCOL_EXPLAIN, NULL);
	int rc = begin_json(b, json);

	if (rc)
		return rc;
	rc = set_name(b, &request, name);
	return end(b, rc ? rc : ask_body(b, &request, json));
}

int belfry_report(struct belfry *b, const char *name, char **json)
{
	struct json_object *top = NULL;
	int rc = begin_json(b, json);

	if (rc)
		return rc;
	struct talk_way way = way_of(b);
	rc = name ? spec_check_name(name, &b->err) : 0;
	if (!rc)
		rc = gather_report(&way, name, &top, &b->err);
	if (top) {
		*json = json_text(top, NULL);
		if (!*json)
			rc = bf_fail(&b->err, ENOMEM, "report: no memory for it");
	}
	return end(b, rc);
}

int belfry_info(struct belfry *b, char **json)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	int rc = begin_json(b, json);

	return rc ? rc : end(b, ask_body(b, &request, json));
}

int belfry_reload(struct belfry *b)
{
	struct protocol_request request = talk_request(PROTOCOL_RELOAD, NULL);
	struct protocol_reply reply;

	if (!b)
		return -EINVAL;
	begin(b);
	return end(b, ask(b, &request, &reply, NULL));
}
