/* Values of the configuration that several keys or the command line have: times, words, users, GPUs, addresses. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "router/config_sections.h"

enum { SOFT_INDEX_MAX = 7 };

int config_parse_time(const char *text, uint64_t *us, struct bf_error *err)
{
	static const char *const nothing[] = { "0", "0us", "0ms", "0s" };

	for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		if (!strcmp(text, nothing[i])) {
			*us = 0;
			return 0;
		}
	return bf_parse_time(text, us, err);
}

int config_parse_word(const char *key, const char *text, const char *const *words, uint32_t *value,
		      struct bf_error *err)
{
	char list[128] = "";

	for (unsigned i = 0; words[i]; i++) {
		size_t used = strlen(list);

		if (!strcmp(text, words[i])) {
			*value = i;
			return 0;
		}
		snprintf(list + used, sizeof(list) - used, "%s%s",
			 i == 0		? ""
			 : words[i + 1] ? ", "
					: " or ",
			 words[i]);
	}
	return bf_fail(err, EINVAL, "%s '%s': not known; write %s", key, text, list);
}

int config_parse_gpu(const char *text, struct protocol_gpu *gpu, struct bf_error *err)
{
	bool is_soft = !strcmp(text, "soft") || !strncmp(text, "soft:", 5);
	const char *digits = !is_soft ? text : text[4] ? text + 5 : "0";
	long index;
	int rc = bf_parse_number("gpu", digits, 0, is_soft ? SOFT_INDEX_MAX : CONFIG_NV_MAX, &index, NULL);

	if (rc)
		return bf_fail(err, EINVAL, "gpu '%s': not a GPU; write a number, soft or soft:NUMBER", text);
	*gpu = (struct protocol_gpu){ .kind = is_soft ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV,
				      .index = (uint32_t)index };
	return 0;
}

static bool has_gpu(const struct config *config, const struct protocol_gpu *gpu)
{
	for (unsigned i = 0; i < config->gpu_count; i++)
		if (config->gpus[i].kind == gpu->kind && config->gpus[i].index == gpu->index)
			return true;
	return false;
}

int config_parse_gpus(struct config *config, const char *text, struct bf_error *err)
{
	char words[CONFIG_LINE_MAX], *at = words, *word;

	if (!strcmp(text, "all")) {
		config->is_all = true;
		config->gpu_count = 0;
		return 0;
	}
	config->is_all = false;
	config->gpu_count = 0;
	snprintf(words, sizeof(words), "%s", text);
	while ((word = strsep(&at, " \t,"))) {
		struct protocol_gpu gpu = { 0 };
		int rc = *word ? config_parse_gpu(word, &gpu, err) : 0;

		if (rc)
			return rc;
		if (!*word || has_gpu(config, &gpu))
			continue;
		if (config->gpu_count == CONFIG_GPUS_MAX)
			return bf_fail(err, E2BIG, "gpus: more than %d; name fewer", CONFIG_GPUS_MAX);
		config->gpus[config->gpu_count++] = gpu;
	}
	if (!config->gpu_count)
		return bf_fail(err, EINVAL, "gpus: names none; write all, numbers, soft or soft:NUMBER");
	return 0;
}

static bool is_address(const char *text, size_t length)
{
	struct in6_addr six;
	struct in_addr four;
	char host[64];

	if (length >= sizeof(host))
		return false;
	memcpy(host, text, length);
	host[length] = 0;
	if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
		host[length - 1] = 0;
		return inet_pton(AF_INET6, host + 1, &six) == 1;
	}
	return inet_pton(AF_INET, host, &four) == 1;
}

/* Whether only this machine can reach the address. `text` is valid for is_address(). */
static bool is_local(const char *text)
{
	return !strncmp(text, "127.", 4) || !strncmp(text, "[::1]", 5);
}

int config_parse_metrics(struct config *config, const char *text, struct bf_error *err)
{
	static const char right[] = "write off, or ADDRESS:PORT such as 127.0.0.1:9835";
	const char *space = text + strcspn(text, " \t"), *colon = memrchr(text, ':', (size_t)(space - text));
	const char *word = space + strspn(space, " \t");
	char port[8];
	long number;

	if (!strcmp(text, "off")) {
		config->metrics[0] = 0;
		return 0;
	}
	if (!colon || !is_address(text, (size_t)(colon - text)))
		return bf_fail(err, EINVAL, "metrics '%s': not an address and a port; %s", text, right);
	snprintf(port, sizeof(port), "%.*s", (int)(space - colon - 1), colon + 1);
	if (bf_parse_number("port", port, 1, 65535, &number, NULL))
		return bf_fail(err, EINVAL, "metrics '%s': its port is not from 1 to 65535; %s", text, right);
	if (*word && strcmp(word, "public"))
		return bf_fail(err, EINVAL,
			       "metrics '%s': '%s' after the address; only 'public' may stand there", text,
			       word);
	if (!*word && !is_local(text))
		return bf_fail(err, EINVAL,
			       "metrics '%s': others can reach that address; write '%s public' if they may",
			       text, text);
	if ((size_t)(space - text) >= sizeof(config->metrics))
		return bf_fail(err, EINVAL, "metrics '%s': too long; %s", text, right);
	snprintf(config->metrics, sizeof(config->metrics), "%.*s", (int)(space - text), text);
	config->metrics_is_public = *word != 0;
	return 0;
}

int config_parse_id(const struct config *config, const char *key, const char *text, bool is_group,
		    uint32_t *id, struct bf_error *err)
{
	struct names_id found = { 0 };
	long number;
	int rc;

	if (isdigit((unsigned char)*text)) {
		/* UINT32_MAX means "none" to the kernel. */
		if (bf_parse_number(key, text, 0, (long)UINT32_MAX - 1, &number, err))
			return -err->code;
		*id = (uint32_t)number;
		return 0;
	}
	rc = names_find(config->names, is_group, text, &found);
	if (rc == -ENOENT)
		return bf_fail(err, ENOENT, "%s '%s': there is no such %s; write a name or a number", key,
			       text, is_group ? "group" : "user");
	if (rc)
		return bf_fail(err, -rc, "%s '%s': no memory", key, text);
	*id = found.id;
	return 0;
}
