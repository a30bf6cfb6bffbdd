/* What the sections of the configuration and their keys mean. */
#include "router/config_sections.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

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
		rc = config_parse_id(config, "access group", text + 5 + strspn(text + 5, " \t"), true, &group,
				     err);
	else if (config_parse_word("access", text, words, &access, NULL))
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

static int parse_oci_socket(struct config *config, const char *text, struct bf_error *err)
{
	if (*text != '/' && strcmp(text, "off") != 0)
		return bf_fail(err, EINVAL, "oci_socket '%.80s': write off, or the whole path of a socket",
			       text);
	if (strlen(text) >= sizeof(config->oci_socket))
		return bf_fail(err, ENAMETOOLONG, "oci_socket: too long a path; the most is %zu bytes",
			       sizeof(config->oci_socket) - 1);
	snprintf(config->oci_socket, sizeof(config->oci_socket), "%s", text);
	return 0;
}

static int take_server(struct config_reader *reader, const char *key, const char *value, struct bf_error *err)
{
	static const char *const deaths[] = { "end", "carry", NULL };
	struct config *config = reader->config;

	if (!strcmp(key, "gpus")) {
		config->gpus_file = config->file_count - 1;
		config->gpus_line = reader->line;
		return config_parse_gpus(config, value, err);
	}
	if (!strcmp(key, "access"))
		return parse_access(config, value, err);
	if (!strcmp(key, "on_daemon_death"))
		return config_parse_word(key, value, deaths, &config->sharing.on_daemon_death, err);
	if (!strcmp(key, "metrics"))
		return config_parse_metrics(config, value, err);
	if (!strcmp(key, "oci_socket"))
		return parse_oci_socket(config, value, err);
	if (!strcmp(key, "log"))
		return parse_log(config, value, err);
	if (!strcmp(key, "accounting")) {
		config->accounting_file = config->file_count - 1;
		config->accounting_line = reader->line;
		return parse_accounting(config, value, err);
	}
	if (!strcmp(key, "linger"))
		return config_parse_time(value, &config->linger_us, err);
	return bf_fail(
		err, EINVAL,
		"%s: no key of [server]; there are gpus, access, on_daemon_death, metrics, oci_socket, accounting, log, linger",
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

static int take_policy(struct config_reader *reader, const char *key, const char *value, struct bf_error *err)
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

static int take_policy_set(struct config_reader *reader, const char *key, const char *value,
			   struct bf_error *err)
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

/* The path of a program or a folder; "auto": none is given. */
static int take_path(const char *key, const char *value, char *to, size_t room, struct bf_error *err)
{
	if (!strcmp(value, "auto"))
		value = "";
	else if (value[0] != '/')
		return bf_fail(err, EINVAL, "%s '%.100s': write the whole path, or auto", key, value);
	return take_text(key, value, to, room, err);
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

static int take_sharing(struct config_reader *reader, const char *key, const char *value,
			struct bf_error *err)
{
	static const char *const hows[] = { "auto", "tokens", "turns", NULL };
	static const char *const doorbells[] = { "auto", "breakpoints", "polling", NULL };
	struct settings *sharing = &reader->config->sharing;
	uint64_t us;
	int rc;

	reader->config->sharing_file = reader->config->file_count - 1;
	reader->config->sharing_line = reader->line;
	if (!strcmp(key, "how"))
		return config_parse_word(key, value, hows, &sharing->how, err);
	if (!strcmp(key, "doorbells"))
		return config_parse_word(key, value, doorbells, &sharing->doorbells, err);
	if (!strcmp(key, "policy"))
		return take_policy(reader, key, value, err);
	if (!strcmp(key, "policy_set"))
		return take_policy_set(reader, key, value, err);
	if (!strcmp(key, "permit_controls"))
		return take_permits(key, value, sharing, err);
	if (!strcmp(key, "public_domains"))
		return take_domains(key, value, sharing->public_domains, sizeof(sharing->public_domains),
				    err);
	if (!strcmp(key, "mps_control"))
		return take_path(key, value, sharing->mps_control, sizeof(sharing->mps_control), err);
	if (!strcmp(key, "mps_folder"))
		return take_path(key, value, sharing->mps_folder, sizeof(sharing->mps_folder), err);
	for (size_t i = 0; i < TIME_KEYS; i++) {
		const struct time_key *known = &time_keys[i];

		if (strcmp(key, known->key))
			continue;
		rc = config_parse_time(value, &us, err);
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
		"policy_set, permit_controls, public_domains, mps_control, mps_folder",
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

static int take_vgpu(struct config_reader *reader, const char *key, const char *value, struct bf_error *err)
{
	struct config_vgpu *vgpu = reader->vgpu;
	int rc;

	if (!strcmp(key, "gpu"))
		return take_gpu(vgpu, value, err);
	if (!strcmp(key, "owner")) {
		uint32_t owner = 0;

		rc = config_parse_id(reader->config, key, value, false, &owner, err);
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

static int open_vgpu(struct config_reader *reader, const char *name, struct bf_error *err)
{
	struct config *config = reader->config;
	size_t most = reader->is_state ? CONFIG_STATE_VGPUS_MAX : CONFIG_VGPUS_MAX;
	struct config_vgpu *more;
	int rc = spec_check_name(name, err);

	if (rc)
		return rc;
	reader->vgpu = config_find(config, name);
	/* A section of a later file overrides keys of an earlier one. */
	if (reader->vgpu && reader->vgpu->file == config->file_count - 1)
		return bf_fail(err, EEXIST,
			       "vgpu '%s': a second section of this name; the first is in line %u", name,
			       reader->vgpu->line);
	if (!reader->vgpu) {
		if (config->vgpu_count == most)
			return bf_fail(err, E2BIG, "vgpu '%s': one too many; there may be %zu", name, most);
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

/* The index of the quota; quota_count: there is none. */
static size_t find_quota(const struct config *config, bool is_of_all, uid_t uid)
{
	size_t at = 0;

	while (at < config->quota_count &&
	       (config->quotas[at].is_of_all != is_of_all || config->quotas[at].uid != uid))
		at++;
	return at;
}

static int add_quota(struct config *config, const char *name, bool is_of_all, uid_t uid, struct bf_error *err)
{
	struct config_quota *more;

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

static int open_user(struct config_reader *reader, const char *name, struct bf_error *err)
{
	struct config *config = reader->config;
	bool is_of_all = !strcmp(name, "*");
	struct config_quota *quota;
	uint32_t uid = 0;
	int rc = is_of_all ? 0 : config_parse_id(config, "user", name, false, &uid, err);

	if (rc)
		return rc;
	reader->quota = find_quota(config, is_of_all, uid);
	rc = reader->quota == config->quota_count ? add_quota(config, name, is_of_all, uid, err) : 0;
	if (rc)
		return rc;
	quota = &config->quotas[reader->quota];
	/* A section of a later file overrides keys of an earlier one. Names that are not known yet all have one number
	 * (names.h): they are compared when the configuration is read again with the numbers. */
	if (quota->line && quota->file == config->file_count - 1 &&
	    (!config->names || names_are_known(config->names)))
		return bf_fail(err, EEXIST,
			       "user '%s': a second section of this user; the first is in line %u", name,
			       quota->line);
	quota->file = config->file_count - 1;
	quota->line = reader->line;
	return 0;
}

static int take_user(struct config_reader *reader, const char *key, const char *value, struct bf_error *err)
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

static int take_events(struct config_reader *reader, const char *key, const char *value, struct bf_error *err)
{
	return config_take_events(reader->config, key, value, reader->line, err);
}

/* `open` is called with the NAME of [vgpu NAME]; NULL: the section has none. */
struct config_section {
	const char *word;
	bool is_in_state;
	int (*open)(struct config_reader *reader, const char *name, struct bf_error *err);
	int (*take)(struct config_reader *reader, const char *key, const char *value, struct bf_error *err);
};
static const struct config_section sections[] = {
	{ "server", true, NULL, take_server },	 { "sharing", true, NULL, take_sharing },
	{ "events", false, NULL, take_events },	 { "vgpu", true, open_vgpu, take_vgpu },
	{ "user", false, open_user, take_user },
};
_Static_assert(sizeof(sections) / sizeof(sections[0]) == CONFIG_SECTIONS, "config_reader::lines has room");

/* A section without a name. A later file may have it again. */
static int open_plain(struct config_reader *reader, size_t at, struct bf_error *err)
{
	if (reader->lines[at])
		return bf_fail(err, EEXIST, "a second section [%s]; the first is in line %u",
			       sections[at].word, reader->lines[at]);
	reader->lines[at] = reader->line;
	return 0;
}

int config_open_section(struct config_reader *reader, char *line, struct bf_error *err)
{
	size_t length = strlen(line);
	char *name = line + 1;

	if (line[length - 1] != ']')
		return bf_fail(err, EINVAL, "'%s': a section without its end; write [NAME]", line);
	line[length - 1] = 0;
	reader->section = NULL;
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		const struct config_section *section = &sections[i];
		const char *rest = name + strlen(section->word);

		if (strncmp(name, section->word, strlen(section->word)) ||
		    (reader->is_state && !section->is_in_state) ||
		    (section->open ? !isspace((unsigned char)*rest) : *rest != 0))
			continue;
		reader->section = section;
		return section->open ? section->open(reader, rest + strspn(rest, " \t"), err)
				     : open_plain(reader, i, err);
	}
	return bf_fail(
		err, EINVAL,
		"section '%s': not known; there are [server], [sharing], [events], [vgpu NAME] and [user NAME]",
		name);
}

int config_take(struct config_reader *reader, const char *key, const char *value, struct bf_error *err)
{
	if (reader->section)
		return reader->section->take(reader, key, value, err);
	return bf_fail(
		err, EINVAL,
		"%s: in no section; write [server], [sharing], [events], [vgpu NAME] or [user NAME] first",
		key);
}
