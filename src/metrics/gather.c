#include <arpa/inet.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "base/units.h"
#include "client/talk.h"
#include "metrics/metrics.h"

enum { GPUS_MAX = 64 };

int metrics_address(const char *text, struct sockaddr_storage *address, bool *is_local, struct bf_error *err)
{
	struct sockaddr_in *four = (struct sockaddr_in *)address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
	const char *colon = strrchr(text, ':');
	char host[64];
	long port;

	*address = (struct sockaddr_storage){ 0 };
	if (!colon || (size_t)(colon - text) >= sizeof(host) ||
	    bf_parse_number("port", colon + 1, 1, 65535, &port, NULL))
		return bf_fail(err, EINVAL,
			       "address '%s': not ADDRESS:PORT; write for example 127.0.0.1:9835", text);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons((uint16_t)port);
		*is_local = ntohl(four->sin_addr.s_addr) >> 24 == 127;
		return 0;
	}
	if (host[0] == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = 0;
		if (inet_pton(AF_INET6, host + 1, &six->sin6_addr) == 1) {
			six->sin6_family = AF_INET6;
			six->sin6_port = htons((uint16_t)port);
			*is_local = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
			return 0;
		}
	}
	return bf_fail(err, EINVAL,
		       "address '%s': not a numeric one; write for example 127.0.0.1:9835 or [::1]:9835",
		       text);
}

/* The report of one GPU of the reply to PROTOCOL_HELLO. */
static char *report_on(struct json_object *gpu, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	const char *kind = json_object_get_string(json_object_object_get(gpu, "kind"));
	const char *folder = json_object_get_string(json_object_object_get(gpu, "folder"));
	struct protocol_reply reply;
	char *body = NULL;

	request.gpu.kind = kind && !strcmp(kind, "soft") ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV;
	request.gpu.index = (uint32_t)json_object_get_int64(json_object_object_get(gpu, "index"));
	snprintf(request.gpu.folder, sizeof(request.gpu.folder), "%s", folder ? folder : "");
	if (!talk_once(&request, &reply, &body, err) && !body)
		bf_fail(err, EPROTO, "belfryd's report is empty; use programs of one release");
	return body;
}

/* The number of reports, or -1. */
static int gather_reports(struct json_object *hello, char **reports, struct bf_error *err)
{
	struct json_object *gpus = json_object_object_get(hello, "gpus");
	int count = 0;

	if (!json_object_is_type(gpus, json_type_array)) {
		bf_fail(err, EPROTO, "belfryd's answer is not understood; use programs of one release");
		return -1;
	}
	for (size_t i = 0; i < json_object_array_length(gpus) && count < GPUS_MAX; i++) {
		reports[count] = report_on(json_object_array_get_idx(gpus, i), err);
		count += reports[count] != NULL;
	}
	/* A GPU without a report is left out. It is an error only if there is none at all. */
	return count || !json_object_array_length(gpus) ? count : -1;
}

static char *ask(enum protocol_op op, struct bf_error *err)
{
	struct protocol_request request = talk_request(op, NULL);
	struct protocol_reply reply;
	char *body = NULL;

	if (!talk_once(&request, &reply, &body, err) && !body)
		bf_fail(err, EPROTO, "belfryd's answer is empty; use programs of one release");
	return body;
}

char *metrics_gather(struct bf_error *err)
{
	char *reports[GPUS_MAX] = { 0 }, *text = NULL, host[256] = "";
	cleanup_free char *body = ask(PROTOCOL_HELLO, err), *account = NULL;
	struct json_object *hello = body ? json_tokener_parse(body) : NULL;
	int count = body ? gather_reports(hello, reports, err) : -1;

	json_object_put(hello);
	if (count >= 0)
		account = ask(PROTOCOL_ACCOUNT, err);
	gethostname(host, sizeof(host) - 1);
	if (account) {
		struct metrics_source source = { .reports = (const char *const *)reports,
						 .count = (unsigned)count,
						 .account = account,
						 .hostname = host,
						 .user = metrics_user };

		text = metrics_text(&source, err);
	}
	for (int i = 0; i < GPUS_MAX; i++)
		free(reports[i]);
	return text;
}
