/* Accounting: a line of JSON for each removed vGPU, appended to the file that the configuration names. Users are
 * written as numbers, because a name lookup may be slow. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "router/internal.h"

static void format_time(uint64_t unix_s, char *to, size_t room)
{
	time_t at = (time_t)unix_s;
	struct tm parts;

	if (!gmtime_r(&at, &parts) || !strftime(to, room, "%Y-%m-%dT%H:%M:%SZ", &parts))
		snprintf(to, room, "unknown");
}

static char *line_of(const struct router_server *server, const struct hall_message *message,
		     bool is_ephemeral, size_t *bytes)
{
	const struct hall_account *account = &message->account;
	struct json_object *line = json_object_new_object();
	char from[32], to[32];

	format_time(account->made_s, from, sizeof(from));
	format_time((uint64_t)time(NULL), to, sizeof(to));
	json_add_text(line, "name", message->request.name);
	json_add_number(line, "owner", message->uid);
	json_add_text(line, "gpu", server->label + 4);
	json_add_bool(line, "ephemeral", is_ephemeral);
	json_add_text(line, "from", from);
	json_add_text(line, "to", to);
	json_add_real(line, "gpu_seconds", (double)account->gpu_ns / 1e9);
	json_add_real(line, "waited_seconds", (double)account->waited_ns / 1e9);
	json_add_number(line, "memory_high_water_bytes", account->mem_most_bytes);
	json_add_number(line, "memory_reserved_bytes", account->mem_promised_bytes);
	json_add_number(line, "runs", account->runs);
	return json_text(line, bytes);
}

/* The whole line or nothing. A file that is not a plain one could make belfryd wait. */
static int append(const char *path, const char *line, size_t bytes, struct stat *st)
{
	cleanup_close int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
	ssize_t written;
	int rc;

	if (fd < 0 || fstat(fd, st))
		return -errno;
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	written = write(fd, line, bytes);
	rc = written < 0 ? -errno : written == (ssize_t)bytes ? 0 : -ENOSPC;
	if (rc && ftruncate(fd, st->st_size))
		bf_log(BF_LOG_ERROR, "%s: an incomplete line remains: %s", path, strerror(errno));
	return rc ? rc : fstat(fd, st) ? -errno : 0;
}

void router_account(struct router *router, const struct router_server *server,
		    const struct hall_message *message)
{
	const struct router_vgpu *vgpu = router_vgpu_find(router, message->request.name);
	bool is_ephemeral = vgpu && vgpu->is_ephemeral;
	const char *path = router->config.accounting;
	cleanup_free char *line = NULL, *whole = NULL;
	size_t bytes = 0;
	struct stat st;
	int length, rc;

	router_totals_count(router, message, is_ephemeral);
	if (!path[0])
		return;
	line = line_of(server, message, is_ephemeral, &bytes);
	length = line ? asprintf(&whole, "%s\n", line) : -1;
	rc = length < 0 ? -ENOMEM : append(path, whole, (size_t)length, &st);
	if (rc)
		bf_log(BF_LOG_ERROR, "%s: what vGPU '%s' has used cannot be written: %s", path,
		       message->request.name, strerror(-rc));
	else
		router_totals_written(router, &st);
}
