#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/json.h"
#include "base/own.h"
#include "client/gather.h"
#include "dra/dra.h"

enum { ANSWER_MAX = 4 << 20, TOKEN_MAX = 16 << 10, DEPTH_MAX = 64, CONNECT_S = 3, LIMIT_S = 5 };

struct answer {
	char *at;
	size_t count;
};

static size_t take_bytes(char *bytes, size_t size, size_t count, void *context)
{
	struct answer *answer = context;
	size_t more = size * count;
	char *at = more > ANSWER_MAX - answer->count ? NULL : realloc(answer->at, answer->count + more + 1);

	if (!at)
		return 0; /* libcurl ends the request */
	answer->at = at;
	memcpy(at + answer->count, bytes, more);
	answer->count += more;
	return more;
}

int dra_server_start(struct bf_error *err)
{
	return curl_global_init(CURL_GLOBAL_DEFAULT) ? bf_fail(err, ENOMEM, "libcurl cannot be started") : 0;
}

/* "Authorization: Bearer TOKEN". */
static int add_token(const char *path, struct curl_slist **headers, struct bf_error *err)
{
	static const char before[] = "Authorization: Bearer ";
	cleanup_free char *line = malloc(sizeof(before) + TOKEN_MAX);
	struct curl_slist *more;
	ssize_t count;

	if (!path)
		return 0;
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	count = fd < 0 || !line ? -1 : read(fd, line + sizeof(before) - 1, TOKEN_MAX);
	if (count <= 0 || count == TOKEN_MAX)
		return bf_fail(err, EACCES, "%s: no token for the API server: %s", path,
			       count < 0 ? strerror(errno) : "it is empty, or too long");
	memcpy(line, before, sizeof(before) - 1);
	line[sizeof(before) - 1 + (size_t)count] = 0;
	line[strcspn(line, "\r\n")] = 0;
	more = curl_slist_append(*headers, line);
	if (!more)
		return bf_fail(err, ENOMEM, "out of memory");
	*headers = more;
	return 0;
}

static int add_headers(const struct dra_server *server, bool has_body, struct curl_slist **headers,
		       struct bf_error *err)
{
	*headers = curl_slist_append(NULL, "Accept: application/json");
	if (*headers && has_body)
		curl_slist_append(*headers, "Content-Type: application/json");
	return *headers ? add_token(server->token, headers, err) : bf_fail(err, ENOMEM, "out of memory");
}

static int perform(CURL *curl, const struct dra_server *server, const char *method, const char *path,
		   struct answer *answer, struct bf_error *err)
{
	char url[2048], why[CURL_ERROR_SIZE] = "";
	CURLcode rc;

	if (snprintf(url, sizeof(url), "%s%s", server->url, path) >= (int)sizeof(url))
		return bf_fail(err, ENAMETOOLONG, "the path of a request is too long");
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)LIMIT_S);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "belfry-dra/" BELFRY_VERSION);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
	if (server->ca)
		curl_easy_setopt(curl, CURLOPT_CAINFO, server->ca);
	rc = curl_easy_perform(curl);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
	if (rc)
		return bf_fail(err, EHOSTUNREACH, "the API server %.100s: %.150s", server->url,
			       why[0] ? why : curl_easy_strerror(rc));
	return 0;
}

static struct json_object *parse(const struct answer *answer)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	struct json_object *object = tokener && answer->count
					     ? json_tokener_parse_ex(tokener, answer->at, (int)answer->count)
					     : NULL;

	if (tokener)
		json_tokener_free(tokener);
	return object;
}

int dra_server_ask(const struct dra_server *server, const char *method, const char *path,
		   struct json_object *body, long *status, struct json_object **answer, struct bf_error *err)
{
	CURL *curl = curl_easy_init();
	struct curl_slist *headers = NULL;
	struct answer bytes = { NULL, 0 };
	int rc = curl ? add_headers(server, body != NULL, &headers, err)
		      : bf_fail(err, ENOMEM, "out of memory");

	*answer = NULL;
	*status = 0;
	if (!rc) {
		curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
		if (body)
			curl_easy_setopt(
				curl, CURLOPT_COPYPOSTFIELDS,
				json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN |
									     JSON_C_TO_STRING_NOSLASHESCAPE));
		rc = perform(curl, server, method, path, &bytes, err);
	}
	if (!rc) {
		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
		*answer = parse(&bytes);
	}
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	free(bytes.at);
	return rc;
}

int dra_server_check(const char *what, long status, struct json_object *answer, struct bf_error *err)
{
	if (status >= 200 && status < 300)
		return 0;
	return bf_fail(err,
		       status == 404			? ENOENT
		       : status == 401 || status == 403 ? EACCES
							: EIO,
		       "%.100s: the API server answers %ld: %.200s", what, status,
		       gather_text(answer, "message", "no reason"));
}
