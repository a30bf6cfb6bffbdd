#include "router/config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "base/units.h"

enum { SOFT_INDEX_MAX = 7 };

enum section { SECTION_NONE, SECTION_SERVER, SECTION_SHARING, SECTION_EVENTS, SECTION_VGPU, SECTION_USER };

/* The state of the parser. */
struct reader {
	struct config *config;
	enum section section;
	struct config_vgpu *vgpu; /* in SECTION_VGPU */
	size_t quota;		  /* in SECTION_USER: index in config::quotas */
	bool is_state;
	unsigned line;
};

/* A time with a valid range. */
struct time_key {
	const char *key;
	size_t offset; /* in struct settings */
	uint64_t min_us, max_us;
	const char *range;
};
static const struct time_key time_keys[] = {
	{ "window", offsetof(struct settings, window_us), 10000, 60000000, "10ms to 60s" },
	{ "round", offsetof(struct settings, round_us), 1000, 10000000, "1ms to 10s" },
	{ "slice_min", offsetof(struct settings, slice_min_us), 100, 10000000, "100us to the round" },
	{ "grace", offsetof(struct settings, grace_us), 0, 1000000, "0 to 1s" },
	{ "idle", offsetof(struct settings, idle_us), 0, 1000000, "0 to 1s" },
};
enum { TIME_KEYS = sizeof(time_keys) / sizeof(time_keys[0]) };

void config_init(struct config *config)
{
	*config = (struct config){ .is_all = true,
				   .log = BF_LOG_WARN,
				   .linger_us = CONFIG_LINGER_US,
				   .events = config_events_default,
				   .sharing = settings_default };
}

void config_free(struct config *config)
{
	for (unsigned i = 0; i < config->file_count; i++)
		free(config->files[i]);
	free(config->quotas);
	free(config->vgpus);
	config_init(config);
}

struct config_vgpu *config_find(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->vgpu_count; i++)
		if (!strcmp(config->vgpus[i].name, name))
			return &config->vgpus[i];
	return NULL;
}

int config_fail_at(const struct config *config, unsigned file, unsigned line, const struct bf_error *why,
		   struct bf_error *err)
{
	return bf_fail(err, why->code, "%s:%u: %s", file < config->file_count ? config->files[file] : "?",
		       line, why->text);
}

/* Like bf_parse_time(), but accepts "0" with or without a unit. */
static int parse_time(const char *text, uint64_t *us, struct bf_error *err)
{
	static const char *const nothing[] = { "0", "0us", "0ms", "0s" };

	for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		if (!strcmp(text, nothing[i])) {
			*us = 0;
			return 0;
		}
	return bf_parse_time(text, us, err);
}

/* The index of `text` among `words`, which end with NULL. */
static int parse_word(const char *key, const char *text, const char *const *words, uint32_t *value,
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

/* A number, or the name of a user or group. */
static int parse_id(const char *key, const char *text, bool is_group, uint32_t *id, struct bf_error *err)
{
	struct passwd *user = NULL;
	struct group *group = NULL;
	long number;

	if (isdigit((unsigned char)*text)) {
		/* UINT32_MAX means "none" to the kernel. */
		if (bf_parse_number(key, text, 0, (long)UINT32_MAX - 1, &number, err))
			return -err->code;
		*id = (uint32_t)number;
		return 0;
	}
	if (is_group)
		group = getgrnam(text);
	else
		user = getpwnam(text);
	if (!group && !user)
		return bf_fail(err, ENOENT, "%s '%s': there is no such %s; write a name or a number", key,
			       text, is_group ? "group" : "user");
	*id = group ? group->gr_gid : user->pw_uid;
	return 0;
}

static int parse_accounting(struct config *config, const char *text, struct bf_error *err)
{
	bool is_off = !strcmp(text, "off");

	if (!is_off && *text != '/')
		return bf_fail(err, EINVAL, "accounting '%.80s': write off, or the whole path of a file",
			       text);
	if (strlen(text) >= sizeof(config->accounting))
		return bf_fail(err, ENAMETOOLONG, "accounting: too long a path; the most is %zu bytes",
			       sizeof(config->accounting) - 1);
	snprintf(config->accounting, sizeof(config->accounting), "%s", is_off ? "" : text);
	return 0;
}

static int parse_access(struct config *config, const char *text, struct bf_error *err)
{
	static const char *const words[] = { "owner", "everyone", NULL };
	uint32_t access = CONFIG_GROUP, group = 0;
	int rc = 0;

	if (!strncmp(text, "group", 5) && isspace((unsigned char)text[5]))
		rc = parse_id("access group", text + 5 + strspn(text + 5, " \t"), true, &group, err);
	else if (parse_word("access", text, words, &access, NULL))
		rc = bf_fail(err, EINVAL, "access '%s': not known; write owner, everyone or group NAME",
			     text);
	if (rc)
		return rc;
	config->access = (enum config_access)access;
	config->group = group;
	return 0;
}

static int parse_log(struct config *config, const char *text, struct bf_error *err)
{
	int level = bf_log_level_parse(text);

	if (level < 0)
		return bf_fail(err, EINVAL, "log '%s': not known; write error, warn, info or debug", text);
	config->log = (enum bf_log_level)level;
	return 0;
}

static int take_server(struct reader *reader, const char *key, const char *value, struct bf_error *err)
{
	static const char *const deaths[] = { "end", "carry", NULL };
	struct config *config = reader->config;

	if (!strcmp(key, "gpus"))
		return config_parse_gpus(config, value, err);
	if (!strcmp(key, "access"))
		return parse_access(config, value, err);
	if (!strcmp(key, "on_daemon_death"))
		return parse_word(key, value, deaths, &config->sharing.on_daemon_death, err);
	if (!strcmp(key, "metrics"))
		return config_parse_metrics(config, value, err);
	if (!strcmp(key, "log"))
		return parse_log(config, value, err);
	if (!strcmp(key, "accounting"))
		return parse_accounting(config, value, err);
	if (!strcmp(key, "linger"))
		return parse_time(value, &config->linger_us, err);
	return bf_fail(
		err, EINVAL,
		"%s: no key of [server]; there are gpus, access, on_daemon_death, metrics, accounting, log, linger",
		key);
}

static int take_text(const char *key, const char *value, char *to, size_t room, struct bf_error *err)
{
	if (strlen(value) >= room)
		return bf_fail(err, ENAMETOOLONG, "%s: longer than %zu bytes", key, room - 1);
	memset(to, 0, room); /* it is compared with memcmp() */
	snprintf(to, room, "%s", value);
	return 0;
}

static int take_policy(struct reader *reader, const char *key, const char *value, struct bf_error *err)
{
	struct config *config = reader->config;

	config->policy_file = config->file_count - 1;
	config->policy_line = reader->line;
	if (!strcmp(value, "built-in"))
		value = "";
	if (strchr(value, '/') && value[0] != '/')
		return bf_fail(
			err, EINVAL,
			"%s '%.100s': write the whole path, the name of one that comes with Belfry, or built-in",
			key, value);
	return take_text(key, value, config->sharing.policy, sizeof(config->sharing.policy), err);
}

static int take_policy_set(struct reader *reader, const char *key, const char *value, struct bf_error *err)
{
	struct config *config = reader->config;

	config->policy_set_file = config->file_count - 1;
	config->policy_set_line = reader->line;
	return take_text(key, value, config->sharing.policy_set, sizeof(config->sharing.policy_set), err);
}

/* Names, stored with one space between them; "none": no names. */
static int take_domains(const char *key, const char *value, char *to, size_t room, struct bf_error *err)
{
	char words[CONFIG_LINE_MAX], *at = words, *word;
	size_t used = 0;

	memset(to, 0, room);
	if (!strcmp(value, "none"))
		return 0;
	snprintf(words, sizeof(words), "%s", value);
	while ((word = strsep(&at, " \t,"))) {
		struct bf_error why = { 0 };

		if (!*word)
			continue;
		if (spec_check_name(word, &why))
			return bf_fail(err, EINVAL, "%s: %s", key, why.text);
		if (used + strlen(word) + 2 > room)
			return bf_fail(err, E2BIG, "%s: longer than %zu bytes together; list fewer", key,
				       room - 1);
		used += (size_t)snprintf(to + used, room - used, "%s%s", used ? " " : "", word);
	}
	return 0;
}

/* Numbers of the driver's controls. */
static int take_permits(const char *key, const char *value, struct settings *to, struct bf_error *err)
{
	char words[CONFIG_LINE_MAX], *at = words, *word;

	memset(to->permits, 0, sizeof(to->permits));
	to->permit_count = 0;
	if (!strcmp(value, "none"))
		return 0;
	snprintf(words, sizeof(words), "%s", value);
	while ((word = strsep(&at, " \t,"))) {
		char *end;
		unsigned long number;

		if (!*word)
			continue;
		errno = 0;
		number = strtoul(word, &end, 16);
		if (*end || errno || !number || number > UINT32_MAX || strncmp(word, "0x", 2) != 0)
			return bf_fail(err, EINVAL,
				       "%s: '%s' is not the number of a control, such as 0x20803406", key,
				       word);
		if (to->permit_count == SETTINGS_PERMITS)
			return bf_fail(err, E2BIG, "%s: more than %d controls; list fewer", key,
				       SETTINGS_PERMITS);
		to->permits[to->permit_count++] = (uint32_t)number;
	}
	return 0;
}

static int take_sharing(struct reader *reader, const char *key, const char *value, struct bf_error *err)
{
	static const char *const hows[] = { "auto", "tokens", "turns", NULL };
	static const char *const doorbells[] = { "auto", "breakpoints", "polling", NULL };
	struct settings *sharing = &reader->config->sharing;
	uint64_t us;
	int rc;

	reader->config->sharing_file = reader->config->file_count - 1;
	reader->config->sharing_line = reader->line;
	if (!strcmp(key, "how"))
		return parse_word(key, value, hows, &sharing->how, err);
	if (!strcmp(key, "doorbells"))
		return parse_word(key, value, doorbells, &sharing->doorbells, err);
	if (!strcmp(key, "policy"))
		return take_policy(reader, key, value, err);
	if (!strcmp(key, "policy_set"))
		return take_policy_set(reader, key, value, err);
	if (!strcmp(key, "permit_controls"))
		return take_permits(key, value, sharing, err);
	if (!strcmp(key, "public_domains"))
		return take_domains(key, value, sharing->public_domains, sizeof(sharing->public_domains),
				    err);
	for (size_t i = 0; i < TIME_KEYS; i++) {
		const struct time_key *known = &time_keys[i];

		if (strcmp(key, known->key))
			continue;
		rc = parse_time(value, &us, err);
		if (rc)
			return rc;
		if (us < known->min_us || us > known->max_us)
			return bf_fail(err, ERANGE, "%s '%s': out of range; it may be %s", key, value,
				       known->range);
		memcpy((char *)sharing + known->offset, &us, sizeof(us));
		return 0;
	}
	return bf_fail(
		err, EINVAL,
		"%s: no key of [sharing]; there are window, round, slice_min, grace, idle, how, doorbells, policy, "
		"policy_set, permit_controls, public_domains",
		key);
}

/* "soft:0 /run/belfry/soft-x": a software GPU other than the default one, by its folder. */
static int take_gpu(struct config_vgpu *vgpu, const char *value, struct bf_error *err)
{
	size_t word = strcspn(value, " \t");
	const char *folder = value + word + strspn(value + word, " \t");
	char gpu[32];
	int rc;

	snprintf(gpu, sizeof(gpu), "%.*s", (int)word, value);
	if (!strcmp(gpu, "any")) {
		vgpu->gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_ANY };
		return 0;
	}
	rc = config_parse_gpu(gpu, &vgpu->gpu, err);
	if (rc || !*folder)
		return rc;
	if (vgpu->gpu.kind != PROTOCOL_GPU_SOFT || *folder != '/' ||
	    strlen(folder) >= sizeof(vgpu->gpu.folder))
		return bf_fail(err, EINVAL,
			       "gpu '%s': only soft:NUMBER may have a folder, which is a path of at most %zu "
			       "bytes from /",
			       value, sizeof(vgpu->gpu.folder) - 1);
	snprintf(vgpu->gpu.folder, sizeof(vgpu->gpu.folder), "%s", folder);
	return 0;
}

static int take_vgpu(struct reader *reader, const char *key, const char *value, struct bf_error *err)
{
	struct config_vgpu *vgpu = reader->vgpu;
	int rc;

	if (!strcmp(key, "gpu"))
		return take_gpu(vgpu, value, err);
	if (!strcmp(key, "owner")) {
		uint32_t owner = 0;

		rc = parse_id(key, value, false, &owner, err);
		if (rc)
			return rc;
		vgpu->owner = owner;
		vgpu->has_owner = true;
		return 0;
	}
	if (reader->is_state && !strcmp(key, "from")) {
		vgpu->is_from_config = !strcmp(value, "configuration");
		return 0;
	}
	if (!spec_has(key))
		return bf_fail(err, EINVAL, "%s: no key of [vgpu NAME]; there are " SPEC_KEYS ", gpu, owner",
			       key);
	return spec_parse(&vgpu->spec, &vgpu->parts, key, value, err);
}

static int open_vgpu(struct reader *reader, const char *name, struct bf_error *err)
{
	struct config *config = reader->config;
	struct config_vgpu *more;
	int rc = spec_check_name(name, err);

	if (rc)
		return rc;
	reader->vgpu = config_find(config, name);
	if (!reader->vgpu) {
		if (config->vgpu_count == CONFIG_VGPUS_MAX)
			return bf_fail(err, E2BIG, "vgpu '%s': one too many; there may be %d", name,
				       CONFIG_VGPUS_MAX);
		more = reallocarray(config->vgpus, config->vgpu_count + 1, sizeof(*more));
		if (!more)
			return bf_fail(err, ENOMEM, "vgpu '%s': no memory", name);
		config->vgpus = more;
		reader->vgpu = &more[config->vgpu_count++];
		*reader->vgpu = (struct config_vgpu){ .spec = spec_default };
		snprintf(reader->vgpu->name, sizeof(reader->vgpu->name), "%s", name);
	}
	reader->vgpu->file = config->file_count - 1;
	reader->vgpu->line = reader->line;
	return 0;
}

static int open_user(struct reader *reader, const char *name, struct bf_error *err)
{
	struct config *config = reader->config;
	bool is_of_all = !strcmp(name, "*");
	struct config_quota *more;
	uint32_t uid = 0;
	int rc = is_of_all ? 0 : parse_id("user", name, false, &uid, err);

	if (rc)
		return rc;
	for (reader->quota = 0; reader->quota < config->quota_count; reader->quota++)
		if (config->quotas[reader->quota].is_of_all == is_of_all &&
		    config->quotas[reader->quota].uid == uid)
			return 0;
	if (config->quota_count == CONFIG_VGPUS_MAX)
		return bf_fail(err, E2BIG, "user '%s': one too many; there may be %d", name,
			       CONFIG_VGPUS_MAX);
	more = reallocarray(config->quotas, config->quota_count + 1, sizeof(*more));
	if (!more)
		return bf_fail(err, ENOMEM, "user '%s': no memory", name);
	config->quotas = more;
	more[config->quota_count++] = (struct config_quota){ .uid = uid, .is_of_all = is_of_all };
	return 0;
}

static int take_user(struct reader *reader, const char *key, const char *value, struct bf_error *err)
{
	struct config_quota *quota = &reader->config->quotas[reader->quota];
	struct spec spec = spec_default;
	uint32_t parts = 0;
	long count;
	int rc;

	if (!strcmp(key, "vgpus")) {
		rc = bf_parse_number(key, value, 0, CONFIG_VGPUS_MAX, &count, err);
		quota->vgpus = rc ? 0 : (uint32_t)count;
		quota->has_vgpus = true;
		return rc;
	}
	if (strcmp(key, "mem") && strcmp(key, "time"))
		return bf_fail(err, EINVAL, "%s: no key of [user NAME]; there are mem, time, vgpus", key);
	rc = spec_parse(&spec, &parts, key, value, err);
	if (rc)
		return rc;
	if (!strcmp(key, "mem")) {
		quota->mem_bytes = spec.mem_bytes;
	} else {
		quota->request_ppm = spec.request_ppm;
		quota->has_time = true;
	}
	return 0;
}

static int open_section(struct reader *reader, char *line, struct bf_error *err)
{
	size_t length = strlen(line);
	char *name = line + 1;

	if (line[length - 1] != ']')
		return bf_fail(err, EINVAL, "'%s': a section without its end; write [NAME]", line);
	line[length - 1] = 0;
	reader->section = SECTION_NONE;
	if (!strcmp(name, "server"))
		reader->section = SECTION_SERVER;
	else if (!strcmp(name, "sharing"))
		reader->section = SECTION_SHARING;
	else if (!reader->is_state && !strcmp(name, "events"))
		reader->section = SECTION_EVENTS;
	else if (!strncmp(name, "vgpu", 4) && isspace((unsigned char)name[4]))
		reader->section = SECTION_VGPU;
	else if (!reader->is_state && !strncmp(name, "user", 4) && isspace((unsigned char)name[4]))
		reader->section = SECTION_USER;
	else
		return bf_fail(
			err, EINVAL,
			"section '%s': not known; there are [server], [sharing], [events], [vgpu NAME] and [user NAME]",
			name);
	if (reader->section == SECTION_USER)
		return open_user(reader, name + 4 + strspn(name + 4, " \t"), err);
	return reader->section == SECTION_VGPU ? open_vgpu(reader, name + 4 + strspn(name + 4, " \t"), err)
					       : 0;
}

/* Remove white space at both ends. */
static char *strip(char *text)
{
	size_t length;

	text += strspn(text, " \t\r\v\f");
	length = strlen(text);
	while (length && isspace((unsigned char)text[length - 1]))
		text[--length] = 0;
	return text;
}

static int take_line(struct reader *reader, char *line, struct bf_error *err)
{
	char *equals, *key, *value;

	line = strip(line);
	if (!*line || *line == '#')
		return 0;
	if (*line == '[')
		return open_section(reader, line, err);
	equals = strchr(line, '=');
	if (!equals)
		return bf_fail(err, EINVAL,
			       "'%s': neither a section nor a setting; write [SECTION] or key = value", line);
	*equals = 0;
	key = strip(line);
	value = strip(equals + 1);
	if (!*key || !*value)
		return bf_fail(err, EINVAL, "'%s': a %s is missing; write key = value", key,
			       *key ? "value" : "key");
	switch (reader->section) {
	case SECTION_SERVER:
		return take_server(reader, key, value, err);
	case SECTION_SHARING:
		return take_sharing(reader, key, value, err);
	case SECTION_EVENTS:
		return config_take_events(reader->config, key, value, reader->line, err);
	case SECTION_USER:
		return take_user(reader, key, value, err);
	case SECTION_VGPU:
		return take_vgpu(reader, key, value, err);
	default:
		return bf_fail(
			err, EINVAL,
			"%s: in no section; write [server], [sharing], [events], [vgpu NAME] or [user NAME] first",
			key);
	}
}

/* Copy the line at `text`, which is `length` bytes long. */
static int copy_line(const char *text, size_t length, char *to, size_t room, struct bf_error *err)
{
	if (length >= room)
		return bf_fail(err, E2BIG, "line of %zu bytes: too long; the most is %zu", length, room - 1);
	if (memchr(text, 0, length))
		return bf_fail(err, EINVAL, "a zero byte: this is no text; write lines of key = value");
	memcpy(to, text, length);
	to[length] = 0;
	return 0;
}

int config_parse(struct config *config, const char *file, const char *text, size_t length, bool is_state,
		 struct bf_error *err)
{
	struct reader reader = { .config = config, .is_state = is_state };
	size_t most = is_state ? CONFIG_STATE_MAX : CONFIG_FILE_MAX;
	char line[CONFIG_LINE_MAX + 1];
	struct bf_error why = { 0 };
	int rc = 0;

	if (config->file_count == CONFIG_FILES_MAX)
		return bf_fail(err, E2BIG, "%s: one file too many; there may be %d", file, CONFIG_FILES_MAX);
	config->files[config->file_count] = strdup(file);
	if (!config->files[config->file_count])
		return bf_fail(err, ENOMEM, "%s: no memory", file);
	config->file_count++;
	if (length > most)
		return bf_fail(err, EFBIG, "%s:1: %zu bytes: too large; the most is %zu", file, length, most);
	for (size_t at = 0; !rc && at < length;) {
		const char *end = memchr(text + at, '\n', length - at);
		size_t bytes = end ? (size_t)(end - text) - at : length - at;

		reader.line++;
		rc = copy_line(text + at, bytes, line, sizeof(line), &why);
		if (!rc)
			rc = take_line(&reader, line, &why);
		at += bytes + 1;
	}
	return rc ? config_fail_at(config, config->file_count - 1, reader.line, &why, err) : 0;
}

int config_check(const struct config *config, struct bf_error *err)
{
	const struct settings *sharing = &config->sharing;
	struct bf_error why = { 0 };

	if (sharing->round_us > sharing->window_us)
		bf_fail(&why, ERANGE, "round of %llu us: longer than the window of %llu us; make it shorter",
			(unsigned long long)sharing->round_us, (unsigned long long)sharing->window_us);
	else if (sharing->slice_min_us > sharing->round_us)
		bf_fail(&why, ERANGE,
			"slice_min of %llu us: longer than the round of %llu us; make it shorter",
			(unsigned long long)sharing->slice_min_us, (unsigned long long)sharing->round_us);
	if (why.code)
		return config_fail_at(config, config->sharing_file, config->sharing_line, &why, err);
	for (size_t i = 0; i < config->vgpu_count; i++) {
		const struct config_vgpu *vgpu = &config->vgpus[i];
		struct bf_error spec = { 0 };

		if (!spec_check(&vgpu->spec, &spec))
			continue;
		bf_fail(&why, spec.code, "vgpu '%s': %s", vgpu->name, spec.text);
		return config_fail_at(config, vgpu->file, vgpu->line, &why, err);
	}
	return 0;
}

/* Read the whole file, to be freed. -ENOENT if there is none. */
static int read_whole(const char *path, char **text, size_t *length, struct bf_error *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	cleanup_free char *room = NULL;
	struct stat st;
	ssize_t got;

	if (fd < 0 || fstat(fd, &st))
		return bf_fail(err, errno, "%s: cannot be read: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return bf_fail(err, EINVAL, "%s: not a file; name one", path);
	/* One byte more than allowed, so that config_parse() refuses a larger file. */
	room = malloc(CONFIG_FILE_MAX + 1);
	if (!room)
		return bf_fail(err, ENOMEM, "%s: no memory", path);
	for (*length = 0; *length <= CONFIG_FILE_MAX; *length += (size_t)got) {
		got = read(fd, room + *length, CONFIG_FILE_MAX + 1 - *length);
		if (got < 0)
			return bf_fail(err, errno, "%s: cannot be read: %s", path, strerror(errno));
		if (!got)
			break;
	}
	*text = room;
	room = NULL;
	return 0;
}

static int read_file(struct config *config, const char *path, struct bf_error *err)
{
	cleanup_free char *text = NULL;
	size_t length = 0;
	int rc = read_whole(path, &text, &length, err);

	if (rc || !text)
		return rc;
	return config_parse(config, path, text, length, false, err);
}

static int is_drop_in(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return entry->d_name[0] != '.' && length > 5 && !strcmp(entry->d_name + length - 5, ".conf");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_drop_ins(struct config *config, const char *path, struct bf_error *err)
{
	struct dirent **entries = NULL;
	char folder[PATH_MAX], file[PATH_MAX + NAME_MAX + 2];
	int count, rc = 0;

	if (snprintf(folder, sizeof(folder), "%s.d", path) >= (int)sizeof(folder))
		return bf_fail(err, ENAMETOOLONG, "%s: too long a path; name another file", path);
	count = scandir(folder, &entries, is_drop_in, by_name);
	if (count < 0)
		return errno == ENOENT
			       ? 0
			       : bf_fail(err, errno, "%s: cannot be read: %s", folder, strerror(errno));
	for (int i = 0; i < count; i++) {
		snprintf(file, sizeof(file), "%s/%s", folder, entries[i]->d_name);
		if (!rc)
			rc = read_file(config, file, err);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

int config_read(struct config *config, const char *path, struct bf_error *err)
{
	const char *file = path ? path : CONFIG_DEFAULT;
	int rc = read_file(config, file, err);

	if (rc && (path || rc != -ENOENT))
		return rc;
	rc = read_drop_ins(config, file, err);
	return rc ? rc : config_check(config, err);
}
