#include "router/names.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"

static const struct names_id nobody = { 65534, 65534 };

static bool look_up(bool is_group, const char *name, struct names_id *id)
{
	const struct group *group = is_group ? getgrnam(name) : NULL;
	const struct passwd *user = is_group ? NULL : getpwnam(name);

	if (group)
		*id = (struct names_id){ group->gr_gid, group->gr_gid };
	else if (user)
		*id = (struct names_id){ user->pw_uid, user->pw_gid };
	return group || user;
}

static const struct names_entry *find(const struct names *names, bool is_group, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (names->list[i].is_group == is_group && !strcmp(names->list[i].name, name))
			return &names->list[i];
	return NULL;
}

static int add(struct names *names, bool is_group, const char *name)
{
	struct names_entry *more = reallocarray(names->list, names->count + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	names->list = more;
	more[names->count] = (struct names_entry){ .name = strdup(name), .is_group = is_group };
	if (!more[names->count].name)
		return -ENOMEM;
	names->count++;
	return 0;
}

int names_find(struct names *names, bool is_group, const char *name, struct names_id *id)
{
	const struct names_entry *entry;

	if (!names)
		return look_up(is_group, name, id) ? 0 : -ENOENT;
	*id = nobody;
	entry = find(names, is_group, name);
	if (!entry)
		return add(names, is_group, name);
	if (!entry->is_known)
		return 0;
	*id = entry->id;
	return entry->exists ? 0 : -ENOENT;
}

bool names_are_known(const struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		if (!names->list[i].is_known)
			return false;
	return true;
}

char *names_unknown(const struct names *names)
{
	size_t bytes = 0;
	char *text = NULL;
	FILE *to = names_are_known(names) ? NULL : open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	for (size_t i = 0; i < names->count; i++)
		if (!names->list[i].is_known)
			fprintf(to, "%c %s\n", names->list[i].is_group ? 'g' : 'u', names->list[i].name);
	if (!fclose(to))
		return text;
	free(text);
	return NULL;
}

int names_take(struct names *names, const char *answers)
{
	for (size_t i = 0; i < names->count; i++) {
		struct names_entry *entry = &names->list[i];
		const char *end = strchr(answers, '\n');

		if (entry->is_known)
			continue;
		if (!end)
			return -EPROTO;
		entry->exists = sscanf(answers, "%" SCNu32 " %" SCNu32 "\n", &entry->id.id, &entry->id.gid) ==
				2;
		if (!entry->exists && strncmp(answers, "-\n", 2) != 0)
			return -EPROTO;
		entry->is_known = true;
		answers = end + 1;
	}
	return 0;
}

void names_free(struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->list[i].name);
	free(names->list);
	*names = (struct names){ 0 };
}

int names_serve(FILE *in, FILE *out)
{
	cleanup_free char *line = NULL;
	size_t room = 0;

	for (ssize_t length; (length = getline(&line, &room, in)) > 0;) {
		struct names_id id;

		if (length < 3 || line[length - 1] != '\n')
			return 1;
		line[length - 1] = 0;
		if (look_up(line[0] == 'g', line + 2, &id))
			fprintf(out, "%" PRIu32 " %" PRIu32 "\n", id.id, id.gid);
		else
			fputs("-\n", out);
	}
	return fflush(out) || ferror(out) ? 1 : 0;
}
