#include "router/config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "router/config_sections.h"

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

static int take_line(struct config_reader *reader, char *line, struct bf_error *err)
{
	char *equals, *key, *value;

	line = strip(line);
	if (!*line || *line == '#')
		return 0;
	if (*line == '[')
		return config_open_section(reader, line, err);
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
	return config_take(reader, key, value, err);
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
	struct config_reader reader = { .config = config, .is_state = is_state };
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
	struct bf_error why = { 0 };
	int rc = read_file(config, file, &why);

	/* The default file may be missing. That is no error, and leaves none in *err. */
	if (rc && (path || rc != -ENOENT))
		return bf_fail(err, -rc, "%s", why.text);
	rc = read_drop_ins(config, file, err);
	return rc ? rc : config_check(config, err);
}
