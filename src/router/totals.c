/* What removed vGPUs have used, by owner and name, since belfryd was started. With an accounting file the totals are
 * kept longer: a file beside it has the totals and the offset in the accounting file up to which they count. Later
 * lines are added when belfryd starts. Users can choose any name, so the number of names is limited: the rest is
 * counted as "(other)", which is the name of no vGPU. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "router/internal.h"

enum {
	TOTALS_OF_ONE = 128, /* names of one owner */
	SAVE_AFTER_S = 1,
	SAVE_AGAIN_S = 10,
	FILE_MOST = 4 << 20,
	BEHIND_MOST = 16 << 20, /* how much of the accounting file is read at the start */
};
static const char other_name[] = "(other)";

static struct router_total *find(const struct router_totals *totals, uid_t uid, const char *name)
{
	for (unsigned i = 0; i < totals->count; i++)
		if (totals->list[i].uid == uid && !strcmp(totals->list[i].name, name))
			return &totals->list[i];
	return NULL;
}

static struct router_total *add(struct router_totals *totals, uid_t uid, const char *name)
{
	struct router_total *total;

	if (!totals->list)
		totals->list = calloc(ROUTER_TOTALS_MAX, sizeof(*totals->list));
	if (!totals->list)
		return NULL;
	total = &totals->list[totals->count++];
	*total = (struct router_total){ .uid = uid };
	snprintf(total->name, sizeof(total->name), "%s", name);
	return total;
}

/* The last entry is for everything that does not fit. */
static struct router_total *find_or_add(struct router_totals *totals, uid_t uid, const char *name)
{
	struct router_total *total = find(totals, uid, name);
	unsigned of_one = 0;

	for (unsigned i = 0; i < totals->count; i++)
		of_one += totals->list[i].uid == uid;
	if (total)
		return total;
	if (of_one < TOTALS_OF_ONE && totals->count < ROUTER_TOTALS_MAX - 1)
		return add(totals, uid, name);
	total = find(totals, uid, other_name);
	if (!total && totals->count < ROUTER_TOTALS_MAX - 1)
		return add(totals, uid, other_name);
	if (!total)
		total = find(totals, (uid_t)-1, other_name);
	return total ? total : add(totals, (uid_t)-1, other_name);
}

/* A vGPU that belfry run has named PROGRAM-PID is counted as PROGRAM. */
static void base_name(const char *name, bool is_ephemeral, char *to, size_t room)
{
	const char *dash = strrchr(name, '-');
	bool is_numbered = is_ephemeral && dash && dash != name && dash[1] &&
			   !dash[1 + strspn(dash + 1, "0123456789")];

	snprintf(to, room, "%.*s", is_numbered ? (int)(dash - name) : SPEC_NAME_MAX, name);
}

static void count(struct router_totals *totals, uid_t uid, const char *name, bool is_ephemeral,
		  const struct hall_account *account)
{
	char base[SPEC_NAME_MAX + 1];
	struct router_total *total;

	base_name(name, is_ephemeral, base, sizeof(base));
	total = find_or_add(totals, uid, base);
	if (!total)
		return;
	total->gpu_ns += account->gpu_ns;
	total->waited_ns += account->waited_ns;
	total->runs += account->runs;
	total->vgpus++;
	if (account->mem_most_bytes > total->mem_most_bytes)
		total->mem_most_bytes = account->mem_most_bytes;
}

void router_totals_count(struct router *router, const struct hall_message *message, bool is_ephemeral)
{
	struct router_totals *totals = &router->totals;

	count(totals, message->uid, message->request.name, is_ephemeral, &message->account);
	if (totals->path[0] && totals->save_ns == ROUTER_NEVER)
		totals->save_ns = bf_now_ns() + SAVE_AFTER_S * ROUTER_S;
}

void router_totals_written(struct router *router, const struct stat *st)
{
	router->totals.inode = st->st_ino;
	router->totals.offset = (uint64_t)st->st_size;
}

static uint64_t number(struct json_object *from, const char *key)
{
	return json_object_get_uint64(json_object_object_get(from, key));
}

static uint64_t nanoseconds(struct json_object *from, const char *key)
{
	double seconds = json_object_get_double(json_object_object_get(from, key));

	return seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds * 1e9) : 0;
}

static void count_line(struct router_totals *totals, const char *text)
{
	struct json_object *line = json_tokener_parse(text);
	const char *name = json_object_get_string(json_object_object_get(line, "name"));
	struct hall_account account = { .gpu_ns = nanoseconds(line, "gpu_seconds"),
					.waited_ns = nanoseconds(line, "waited_seconds"),
					.mem_most_bytes = number(line, "memory_high_water_bytes"),
					.runs = number(line, "runs") };

	if (name && !spec_check_name(name, NULL))
		count(totals, (uid_t)number(line, "owner"), name,
		      json_object_get_boolean(json_object_object_get(line, "ephemeral")), &account);
	json_object_put(line);
}

/* Add the lines of the accounting file that the totals do not include yet. */
static void count_behind(struct router_totals *totals, const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	cleanup_file FILE *file = NULL;
	cleanup_free char *line = NULL;
	uint64_t from = 0, size;
	size_t room = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return;
	size = (uint64_t)st.st_size;
	if (st.st_ino == totals->inode && totals->offset <= size)
		from = totals->offset;
	if (size - from > BEHIND_MOST) {
		bf_log(BF_LOG_WARN, "%s: it is long; the totals begin with its last %d MiB", path,
		       BEHIND_MOST >> 20);
		from = size - BEHIND_MOST;
	}
	file = fdopen(fd, "re");
	if (!file)
		return;
	bf_take_fd(&fd);
	if (fseeko(file, (off_t)from, SEEK_SET))
		return;
	while (getline(&line, &room, file) > 0)
		count_line(totals, line);
	if (from != size)
		totals->save_ns = bf_now_ns();
	totals->inode = st.st_ino;
	totals->offset = size;
}

static void take_total(struct router_totals *totals, struct json_object *from)
{
	const char *name = json_object_get_string(json_object_object_get(from, "name"));
	struct router_total *total;

	if (!name || (spec_check_name(name, NULL) && strcmp(name, other_name) != 0))
		return;
	total = find_or_add(totals, (uid_t)number(from, "owner"), name);
	if (!total)
		return;
	total->gpu_ns += number(from, "gpu_ns");
	total->waited_ns += number(from, "waited_ns");
	total->mem_most_bytes = number(from, "memory_high_water_bytes");
	total->runs += number(from, "runs");
	total->vgpus += number(from, "vgpus");
}

/* A file that is damaged or of another user counts as missing: the accounting file is then read from its beginning. */
static void read_totals(struct router_totals *totals, const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct json_object *top = NULL, *list;
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    st.st_size <= FILE_MOST)
		top = json_object_from_fd(fd);
	list = json_object_object_get(top, "totals");
	if (json_object_is_type(list, json_type_array)) {
		totals->inode = number(top, "inode");
		totals->offset = number(top, "offset");
		for (size_t i = 0; i < json_object_array_length(list); i++)
			take_total(totals, json_object_array_get_idx(list, i));
	}
	json_object_put(top);
}

static void totals_path(const struct router_totals *totals, const char *suffix, char *to, size_t room)
{
	snprintf(to, room, "%s.totals%s", totals->path, suffix);
}

/* The totals belong to one accounting file. With another file they are read again. */
void router_totals_follow(struct router *router)
{
	struct router_totals *totals = &router->totals;
	char path[sizeof(totals->path) + 16];

	if (!strcmp(totals->path, router->config.accounting))
		return;
	if (totals->path[0])
		router_totals_save(router);
	snprintf(totals->path, sizeof(totals->path), "%s", router->config.accounting);
	totals->save_ns = ROUTER_NEVER;
	if (!totals->path[0])
		return;
	totals->count = 0;
	totals->inode = totals->offset = 0;
	totals_path(totals, "", path, sizeof(path));
	read_totals(totals, path);
	count_behind(totals, totals->path);
}

static struct json_object *list_json(const struct router_totals *totals)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < totals->count; i++) {
		const struct router_total *total = &totals->list[i];
		struct json_object *to = json_object_new_object();

		json_add_number(to, "owner", total->uid);
		json_add_text(to, "name", total->name);
		json_add_number(to, "gpu_ns", total->gpu_ns);
		json_add_number(to, "waited_ns", total->waited_ns);
		json_add_number(to, "memory_high_water_bytes", total->mem_most_bytes);
		json_add_number(to, "runs", total->runs);
		json_add_number(to, "vgpus", total->vgpus);
		json_object_array_add(list, to);
	}
	return list;
}

static int write_new(const char *path, const char *text, size_t bytes)
{
	cleanup_close int fd = -1;

	unlink(path); /* left by a process that was killed while writing */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0)
		return -errno;
	errno = EIO;
	return write(fd, text, bytes) == (ssize_t)bytes ? 0 : -errno;
}

/* Not synced to the disk: what a crash of the machine loses is read again from the accounting file. */
static int write_totals(const struct router_totals *totals)
{
	struct json_object *top = json_object_new_object();
	char path[sizeof(totals->path) + 16], fresh[sizeof(totals->path) + 16];
	cleanup_free char *text = NULL;
	size_t bytes = 0;
	int rc;

	json_add_number(top, "inode", totals->inode);
	json_add_number(top, "offset", totals->offset);
	json_add(top, "totals", list_json(totals));
	text = json_text(top, &bytes);
	if (!text)
		return -ENOMEM;
	totals_path(totals, "", path, sizeof(path));
	totals_path(totals, ".new", fresh, sizeof(fresh));
	rc = write_new(fresh, text, bytes);
	if (!rc && rename(fresh, path))
		rc = -errno;
	if (rc)
		unlink(fresh);
	return rc;
}

void router_totals_save(struct router *router)
{
	struct router_totals *totals = &router->totals;
	int rc = totals->save_ns != ROUTER_NEVER && totals->path[0] ? write_totals(totals) : 0;

	totals->save_ns = rc ? bf_now_ns() + SAVE_AGAIN_S * ROUTER_S : ROUTER_NEVER;
	if (rc && rc != totals->failed)
		bf_log(BF_LOG_ERROR, "%s.totals: cannot be written: %s", totals->path, strerror(-rc));
	totals->failed = rc;
}

static struct json_object *events_json(const struct router *router)
{
	struct json_object *events = json_object_new_object(), *kinds = json_object_new_object();

	for (uint32_t kind = 0; kind < EVENT_KINDS; kind++)
		json_add_number(kinds, event_name(kind), router->events.of_kind[kind]);
	json_add(events, "kinds", kinds);
	json_add_number(events, "lost", router->events.lost);
	json_add_number(events, "commands_started", router->commands.started);
	json_add_number(events, "commands_failed", router->commands.failed);
	json_add_number(events, "commands_dropped", router->commands.dropped);
	return events;
}

char *router_totals_text(const struct router *router)
{
	struct json_object *top = json_object_new_object();
	size_t bytes;

	json_add_text(top, "version", BELFRY_VERSION);
	json_add(top, "totals", list_json(&router->totals));
	json_add(top, "events", events_json(router));
	return json_text(top, &bytes);
}

void router_totals_end(struct router *router)
{
	free(router->totals.list);
	router->totals.list = NULL;
	router->totals.count = 0;
}
