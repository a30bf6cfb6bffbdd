/* [events] of the configuration: a command, and the events for which it is run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/units.h"
#include "client/event.h"
#include "router/config.h"

enum { NOBODY = 65534, TIMEOUT_DEFAULT_S = 10, TIMEOUT_MOST_S = 600 };

const struct config_events config_events_default = { .kinds = (1u << EVENT_KINDS) - 1,
						     .uid = NOBODY,
						     .gid = NOBODY,
						     .timeout_us = TIMEOUT_DEFAULT_S * 1000000ull };

static int take_command(struct config *config, const char *value, unsigned line, struct bf_error *err)
{
	struct config_events *events = &config->events;
	bool is_off = !strcmp(value, "off");

	if (!is_off && *value != '/')
		return bf_fail(err, EINVAL, "command '%.80s': write off, or the whole path of a program",
			       value);
	if (strlen(value) >= sizeof(events->command))
		return bf_fail(err, ENAMETOOLONG, "command: too long a path; the most is %zu bytes",
			       sizeof(events->command) - 1);
	snprintf(events->command, sizeof(events->command), "%s", is_off ? "" : value);
	events->file = config->file_count - 1;
	events->line = line;
	return 0;
}

static int fail_kind(const char *word, struct bf_error *err)
{
	char list[320] = "all";

	for (uint32_t kind = 0; kind < EVENT_KINDS; kind++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), ", %s", event_name(kind));
	return bf_fail(err, EINVAL, "kinds: '%.40s' is not an event; there are %.300s", word, list);
}

static int take_kinds(struct config_events *events, const char *value, struct bf_error *err)
{
	char words[CONFIG_LINE_MAX], *at = words, *word;

	events->kinds = 0;
	snprintf(words, sizeof(words), "%s", value);
	while ((word = strsep(&at, " \t,"))) {
		int kind = event_find(word);

		if (!*word)
			continue;
		if (kind < 0 && strcmp(word, "all") != 0)
			return fail_kind(word, err);
		events->kinds |= kind < 0 ? config_events_default.kinds : 1u << kind;
	}
	return 0;
}

static int take_user(struct config *config, const char *value, struct bf_error *err)
{
	struct config_events *events = &config->events;
	struct names_id user = { 0 };

	if (names_find(config->names, false, value, &user))
		return bf_fail(err, ENOENT, "user '%.40s': there is no such user; write a name", value);
	if (user.id == 0 || user.gid == 0)
		return bf_fail(err, EPERM,
			       "user '%.40s': the command must not run as root; name another user", value);
	events->uid = user.id;
	events->gid = user.gid;
	return 0;
}

static int take_timeout(struct config_events *events, const char *value, struct bf_error *err)
{
	uint64_t us = 0;
	int rc = bf_parse_time(value, &us, err);

	if (rc)
		return rc;
	if (us < 1000 || us > TIMEOUT_MOST_S * 1000000ull)
		return bf_fail(err, ERANGE, "timeout '%.40s': out of range; it may be 1ms to %ds", value,
			       TIMEOUT_MOST_S);
	events->timeout_us = us;
	return 0;
}

int config_take_events(struct config *config, const char *key, const char *value, unsigned line,
		       struct bf_error *err)
{
	struct config_events *events = &config->events;

	if (!strcmp(key, "command"))
		return take_command(config, value, line, err);
	if (!strcmp(key, "kinds"))
		return take_kinds(events, value, err);
	if (!strcmp(key, "user"))
		return take_user(config, value, err);
	if (!strcmp(key, "timeout"))
		return take_timeout(events, value, err);
	return bf_fail(err, EINVAL, "%s: no key of [events]; there are command, kinds, user, timeout", key);
}

int config_check_events(const struct config *config, struct bf_error *err)
{
	const struct config_events *events = &config->events;
	struct bf_error why = { 0 };
	struct stat st;

	if (!events->command[0])
		return 0;
	if (stat(events->command, &st))
		bf_fail(&why, errno, "command '%s': %s", events->command, strerror(errno));
	else if (!S_ISREG(st.st_mode) || !(st.st_mode & 0111))
		bf_fail(&why, EACCES, "command '%s': not a program", events->command);
	return why.code ? config_fail_at(config, events->file, events->line, &why, err) : 0;
}
