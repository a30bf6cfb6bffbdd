/* RM clients: which there are, and how to speak for them. The driver takes a call for a client through that
 * client's own control file and no other, so the file is borrowed from the program for each call and given
 * back: holding it would keep the client alive after the program closed it. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

struct client *client_find(const struct warden *warden, uint32_t handle)
{
	for (struct client *c = warden->clients; c; c = c->next)
		if (c->handle == handle)
			return c;
	return NULL;
}

struct client *client_seen(struct site *site)
{
	struct client *client = client_find(site->warden, site->call.client);

	if (!client) {
		client = calloc(1, sizeof(*client));
		if (!client)
			return NULL;
		client->handle = site->call.client;
		client->pid = site->process->pid;
		client->next = site->warden->clients;
		site->warden->clients = client;
	}
	if (client->pid == site->process->pid && site->file == DEVICE_FILE_CONTROL)
		client->control_fd = site->fd;
	return client;
}

static int control(struct warden *warden, int file, const struct client *client, uint32_t object,
		   uint32_t cmd, void *params, uint32_t size)
{
	struct rm_arg_control arg = { .client = client->handle,
				      .object = object,
				      .cmd = cmd,
				      .params = (uintptr_t)params,
				      .size = size };
	int rc = warden->device->ops->call(warden->device, file, RM_ESC_CONTROL, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

static bool is_control_file(struct warden *warden, int file)
{
	struct stat st;

	return !fstat(file, &st) && warden->device->ops->classify(warden->device, &st) == DEVICE_FILE_CONTROL;
}

/* Asks something small. */
bool client_owns_file(struct warden *warden, const struct client *client, int file)
{
	uint32_t ids[32];

	if (!is_control_file(warden, file))
		return false;
	return control(warden, file, client, client->handle, RM_CTRL_ROOT_GET_ATTACHED_IDS, ids,
		       sizeof(ids)) == 0;
}

/* Whose table is looked through: of a process, or of a thread that has its own. */
struct holder {
	struct warden *warden;
	const struct process *process; /* NULL: a stranger */
	pid_t tid;
	int pidfd; /* a stranger's */
};

/* A stranger was left the file by somebody of a run, and whatever reaches that run's processes may reach it. */
static int stranger_get_fd(const struct holder *holder, int number)
{
	int file = bf_pidfd_getfd(holder->pidfd, number);

	for (struct run *r = holder->warden->runs; r && file < 0; r = r->next)
		if (r->reach.get_fd)
			file = r->reach.get_fd(r->reach.context, holder->tid, number);
	return file;
}

static int holder_get_fd(const struct holder *holder, int number)
{
	return holder->process ? process_get_fd(holder->process, holder->tid, number)
			       : stranger_get_fd(holder, number);
}

/* Whether this failure to get a descriptor means that nobody could look, not that it is gone: a helper that does not
 * answer. Of strangers nothing is said: those of other wardens are not ours to reach. */
static bool is_out_of_reach(const struct holder *holder, int failure)
{
	return holder->process && holder->process->reach.get_fd && failure != -EBADF && failure != -ESRCH;
}

/* What two searches have found together. */
static int either(int one, int other)
{
	return one >= 0 || other == -ENOENT ? one : other;
}

/* Why one's files cannot be looked at, as a search has it: who hides them may have it all the same. */
static int why_unseen(const struct holder *holder, int failure)
{
	return failure == EACCES && holder->process ? -EACCES : -ENOENT;
}

/* -ENOENT: it is not there. Otherwise that could not be told. */
static int search_table(const struct holder *holder, const char *path, struct client *client, bool is_own)
{
	struct device *device = holder->warden->device;
	DIR *files = opendir(path);
	int found = -ENOENT, unreached = !files ? why_unseen(holder, errno) : -ENOENT;

	for (struct dirent *entry; files && found < 0 && (entry = readdir(files));) {
		int number = atoi(entry->d_name);
		struct stat st;
		int failure;

		if (entry->d_name[0] == '.')
			continue;
		failure = file_look(dirfd(files), entry->d_name, &st);
		if (failure)
			unreached = either(unreached, why_unseen(holder, failure));
		if (failure || device->ops->classify(device, &st) != DEVICE_FILE_CONTROL)
			continue;
		cleanup_close int file = holder_get_fd(holder, number);
		if (file < 0 && is_out_of_reach(holder, file))
			unreached = file;
		if (file >= 0 && client_owns_file(holder->warden, client, file)) {
			if (is_own)
				client->control_fd = number;
			found = bf_take_fd(&file);
		}
	}
	if (files)
		closedir(files);
	return found < 0 ? unreached : found;
}

/* Threads that have left their process's table (unshare(CLONE_FILES)). */
static int search_threads(struct warden *warden, const struct process *process, struct client *client)
{
	char path[64];
	DIR *tasks;
	int found = -ENOENT;

	snprintf(path, sizeof(path), "/proc/%d/task", process->pid);
	tasks = opendir(path);
	for (struct dirent *entry; tasks && found < 0 && (entry = readdir(tasks));) {
		struct holder holder = { warden, process, (pid_t)atoi(entry->d_name), -1 };

		if (entry->d_name[0] == '.' || holder.tid == process->pid ||
		    bf_same_files(holder.tid, process->pid) != 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%d/fd", process->pid, holder.tid);
		found = either(search_table(&holder, path, client, false), found);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

static int search_control(struct warden *warden, const struct process *process, struct client *client)
{
	struct holder holder = { warden, process, process->pid, -1 };
	char path[32];
	int found;

	snprintf(path, sizeof(path), "/proc/%d/fd", process->pid);
	found = search_table(&holder, path, client, process->pid == client->pid);
	return found < 0 ? either(search_threads(warden, process, client), found) : found;
}

/* A process that was left the file and has made no call yet is not known to us. Looked for last of all, since it
 * means to look at everybody, programs of other wardens among them; what is found there is this client's file or none.
 * Nothing is held that another warden could need. */
static int search_strangers(struct warden *warden, struct client *client)
{
	DIR *everybody = opendir("/proc");
	int found = -ENOENT;

	for (struct dirent *entry; everybody && found < 0 && (entry = readdir(everybody));) {
		pid_t pid = (pid_t)atoi(entry->d_name);
		char path[32];

		if (pid <= 0 || pid == getpid() || process_by_pid(warden, pid))
			continue;
		cleanup_close int pidfd = bf_pidfd_open(pid);
		struct holder holder = { warden, NULL, pid, pidfd };
		snprintf(path, sizeof(path), "/proc/%d/fd", pid);
		if (pidfd >= 0)
			found = search_table(&holder, path, client, false);
	}
	if (everybody)
		closedir(everybody);
	return found;
}

int client_take_control(struct warden *warden, struct client *client)
{
	struct process *owner = process_by_pid(warden, client->pid);
	int found = -ENOENT;

	if (owner) {
		cleanup_close int file = process_get_fd(owner, owner->pid, client->control_fd);

		if (file >= 0 && client_owns_file(warden, client, file))
			return bf_take_fd(&file);
	}
	for (struct process *p = warden->processes; p && found < 0; p = p->next)
		found = either(search_control(warden, p, client), found);
	return found < 0 ? either(search_strangers(warden, client), found) : found;
}

/* The file it was last seen with, nearly always its own still; the driver says if it is another's. */
static int take_usual(struct warden *warden, const struct client *client)
{
	struct process *owner = process_by_pid(warden, client->pid);
	cleanup_close int usual = owner ? process_get_fd(owner, owner->pid, client->control_fd) : -ENOENT;

	if (usual >= 0 && !is_control_file(warden, usual))
		return -EBADF;
	return bf_take_fd(&usual);
}

int client_call(struct warden *warden, struct client *client, uint32_t nr, void *arg, uint32_t size,
		const uint32_t *status)
{
	struct device *device = warden->device;
	cleanup_close int usual = take_usual(warden, client);
	cleanup_close int file = -1;
	int rc;

	if (usual >= 0 && !device->ops->call(device, usual, nr, arg, size) &&
	    *status != RM_ERR_INVALID_CLIENT)
		return (int)*status;
	file = client_take_control(warden, client);
	rc = file < 0 ? file : device->ops->call(device, file, nr, arg, size);
	return rc ? rc : (int)*status;
}

int client_control(struct warden *warden, struct client *client, uint32_t object, uint32_t cmd, void *params,
		   uint32_t size)
{
	struct rm_arg_control arg = { .client = client->handle,
				      .object = object,
				      .cmd = cmd,
				      .params = (uintptr_t)params,
				      .size = size };

	return client_call(warden, client, RM_ESC_CONTROL, &arg, sizeof(arg), &arg.status);
}

int client_group_time(struct warden *warden, struct client *client, uint32_t group, uint64_t *gpu_ns)
{
	struct device *device = warden->device;
	cleanup_close int usual = take_usual(warden, client);
	cleanup_close int file = -1;

	if (usual >= 0 && !device->ops->time_of(device, usual, client->handle, group, gpu_ns))
		return 0;
	file = client_take_control(warden, client);
	return file < 0 ? file : device->ops->time_of(device, file, client->handle, group, gpu_ns);
}

void client_gone(struct warden *warden, struct client *client)
{
	struct client **at;

	ledger_remove(warden->ledger, client->handle, client->handle);
	for (at = &warden->clients; *at != client; at = &(*at)->next)
		;
	*at = client->next;
	free(client);
}

struct surplus {
	struct ledger *ledger;
	uint64_t bytes;
};

static void charge_if_paid(void *context, struct ledger_object *object)
{
	struct surplus *surplus = context;

	if (!object->block->is_charged && object->bytes <= surplus->bytes) {
		surplus->bytes -= object->bytes;
		ledger_charge_import(surplus->ledger, object);
	}
}

/* An import whose owner has freed it is the importer's from then on: the driver says so by counting it among
 * what the importing process pays for. */
static void settle_imports(struct warden *warden, struct process *process)
{
	struct ledger_sum sum = warden_ledger_sum(warden, process->pid);
	struct device_use use;

	if (sum.charged_bytes == sum.named_bytes ||
	    warden->device->ops->use_of(warden->device, process->pid, &use) ||
	    use.paid_bytes <= sum.charged_bytes)
		return;
	struct surplus surplus = { warden->ledger, use.paid_bytes - sum.charged_bytes };
	for (struct client *c = warden->clients; c; c = c->next)
		if (c->pid == process->pid)
			ledger_each(warden->ledger, c->handle, RM_KIND_VIDMEM, charge_if_paid, &surplus);
}

/* What the ledger names for all clients of a process; the driver's own figure is of the same kind. */
struct ledger_sum warden_ledger_sum(const struct warden *warden, pid_t pid)
{
	struct ledger_sum total = { 0, 0 };

	for (struct client *c = warden->clients; c; c = c->next)
		if (c->pid == pid) {
			struct ledger_sum sum = ledger_sum(warden->ledger, c->handle);

			total.named_bytes += sum.named_bytes;
			total.charged_bytes += sum.charged_bytes;
		}
	return total;
}

/* No control file of the client's is to be found. It may still be alive, in a message on its way between two
 * processes; but memory that the driver no longer counts is gone. */
bool client_is_gone(struct warden *warden, struct client *client)
{
	cleanup_close int file = client_take_control(warden, client);

	if (file != -ENOENT) /* there, or nobody could look */
		return false;
	if (!ledger_sum(warden->ledger, client->handle).named_bytes)
		return true;
	return warden_driver_bytes(warden, client->pid) < warden_ledger_sum(warden, client->pid).named_bytes;
}

void warden_reconcile(struct warden *warden)
{
	for (struct client *c = warden->clients, *next; c; c = next) {
		next = c->next;
		if (client_is_gone(warden, c)) {
			bf_log(BF_LOG_DEBUG, "client %x has no control file any more", c->handle);
			client_gone(warden, c);
		}
	}
	for (struct process *p = warden->processes; p; p = p->next)
		settle_imports(warden, p);
	warden_refresh_managed(warden);
}

uint64_t warden_driver_bytes(struct warden *warden, pid_t pid)
{
	struct device_use use;

	if (warden->device->ops->use_of(warden->device, pid, &use))
		return 0;
	return use.paid_bytes + use.borrowed_bytes;
}
