/* Device files of programs: see struct devfile. A program opens the device itself, or is given the file. At
 * the first call the descriptor is replaced by a pipe; from then on only the warden has the driver's file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

/* EACH_HOLDS: descriptors that the warden has open for each file. A library opens a file for each client. */
enum { EACH_HOLDS = 2, PATH_ROOM = 32 };

static struct devfile *find_pipe(const struct warden *warden, const struct stat *st)
{
	for (struct devfile *f = LIST_FIRST(&warden->files); f; f = LIST_NEXT(f, next))
		if (f->inode == st->st_ino && f->device == st->st_dev)
			return f;
	return NULL;
}

struct devfile *devfile_by_serial(const struct warden *warden, uint64_t serial)
{
	for (struct devfile *f = LIST_FIRST(&warden->files); f; f = LIST_NEXT(f, next))
		if (f->serial == serial || (f->event_serial && f->event_serial == serial))
			return f;
	return NULL;
}

/* The file whose driver file is at this descriptor of the program since an mmap. */
static struct devfile *find_shown(const struct site *site, int fd, enum device_file kind)
{
	for (struct devfile *f = LIST_FIRST(&site->warden->files); f; f = LIST_NEXT(f, next))
		if (f->is_shown && f->kind == kind && bf_same_file_as((pid_t)site->request->pid, fd, f->fd))
			return f;
	return NULL;
}

int site_look(struct site *site, int fd, enum device_file *kind, struct devfile **file)
{
	struct warden *warden = site->warden;
	char path[48];
	struct stat st;
	int failure;

	*kind = DEVICE_FILE_NONE;
	*file = NULL;
	snprintf(path, sizeof(path), "/proc/%u/fd/%d", site->request->pid, fd);
	failure = file_look(AT_FDCWD, path, &st);
	if (failure)
		return failure;
	if (S_ISFIFO(st.st_mode))
		*file = find_pipe(warden, &st);
	else
		*kind = warden->device->ops->classify(warden->device, &st);
	if (*kind == DEVICE_FILE_CONTROL || *kind == DEVICE_FILE_MANAGED)
		*file = find_shown(site, fd, *kind);
	if (*file)
		*kind = (*file)->kind;
	return 0;
}

bool site_is_in_place(const struct site *site)
{
	return site->file && site->file->is_shown &&
	       bf_same_file_as((pid_t)site->request->pid, site->fd, site->file->fd);
}

/* One-shot: the driver's file stays readable until the program has fetched the event. */
static void arm_events(struct warden *warden, const struct devfile *file, int how)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLPRI | EPOLLONESHOT,
				     .data.u64 = file->event_serial };

	epoll_ctl(warden->epoll, how, file->fd, &event);
}

void devfile_watch_events(struct warden *warden, struct devfile *file)
{
	bool is_first = !file->event_serial;

	if (is_first)
		file->event_serial = ++warden->last_serial;
	arm_events(warden, file, is_first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
}

void devfile_event(struct devfile *file)
{
	if (write(file->pipe_fd, "e", 1) < 0)
		bf_log(BF_LOG_DEBUG, "a program does not fetch its events: the pipe is full");
}

/* The warden has the writing end only, so it opens a reading end to empty the pipe. */
void devfile_take_event(struct warden *warden, struct devfile *file)
{
	char path[32], bytes[64];

	if (!file->event_serial)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->pipe_fd);
	cleanup_close int end = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	while (end >= 0 && read(end, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
		;
	arm_events(warden, file, EPOLL_CTL_MOD);
}

static void devfile_free(struct devfile *file)
{
	if (file->pipe_fd >= 0)
		close(file->pipe_fd);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

static struct devfile *devfile_open(struct warden *warden, enum device_file kind, int *program_end, int *rc)
{
	struct devfile *file = calloc(1, sizeof(*file));
	int ends[2] = { -1, -1 };
	struct stat st;

	*rc = -ENOMEM;
	if (!file)
		return NULL;
	file->kind = kind;
	file->pipe_fd = -1;
	file->fd = warden->device->ops->open(warden->device, kind);
	*rc = file->fd < 0 ? file->fd : pipe2(ends, O_CLOEXEC | O_NONBLOCK) ? -errno : 0;
	file->pipe_fd = ends[1];
	*program_end = ends[0];
	if (!*rc)
		*rc = -file_look(ends[0], "", &st);
	if (!*rc) {
		file->device = st.st_dev;
		file->inode = st.st_ino;
		return file;
	}
	devfile_free(file);
	return NULL;
}

static int devfile_add(struct warden *warden, struct devfile *file)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = warden_watch(warden, file->pipe_fd, &file->serial);
	if (!rc) {
		LIST_INSERT_HEAD(&warden->files, file, next);
	}
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

static void release_descriptors(struct warden *warden)
{
	pthread_mutex_lock(&warden->lock);
	warden_give_descriptors(warden, EACH_HOLDS);
	pthread_mutex_unlock(&warden->lock);
}

/* Give the program the pipe, at its descriptor `fd` or, if that is -1, at a new one. The pipe is watched only
 * after that: a pipe without a reading end hangs up. */
static struct devfile *give_pipe(struct site *site, int fd, enum device_file kind, bool is_cloexec, int *rc)
{
	struct warden *warden = site->warden;
	cleanup_close int program_end = -1;
	struct devfile *file;
	int given;

	pthread_mutex_lock(&warden->lock);
	*rc = warden_take_descriptors(warden, EACH_HOLDS) ? 0 : -EMFILE;
	pthread_mutex_unlock(&warden->lock);
	if (*rc)
		return NULL;
	file = devfile_open(warden, kind, &program_end, rc);
	if (!file) {
		release_descriptors(warden);
		return NULL;
	}
	given = fd < 0 ? site_give_fd(site, program_end, is_cloexec) : site_set_fd(site, program_end, fd);
	*rc = given < 0 ? given : devfile_add(warden, file);
	if (*rc) {
		devfile_free(file);
		release_descriptors(warden);
		return NULL;
	}
	*rc = given;
	return file;
}

struct devfile *site_adopt(struct site *site, int fd, enum device_file kind, int *rc)
{
	struct devfile *file = give_pipe(site, fd, kind, true, rc);

	if (file)
		*rc = 0;
	return file;
}

/* For a GPU file the program gets the driver's file: it waits for events on it, and the driver pins its pages
 * through it. Clients of the vGPU cannot be reached through it (docs/security.md). */
static int give_gpu_file(struct site *site, bool is_cloexec)
{
	struct device *device = site->warden->device;
	cleanup_close int file = device->ops->open(device, DEVICE_FILE_GPU);

	return file < 0 ? file : site_give_fd(site, file, is_cloexec);
}

/* Compares the path only: the device file need not exist for the program, nor be accessible to it. The
 * program opens all other files itself. If one of them is a device file, the warden finds that at its first
 * call. */
int site_look_at_path(struct site *site, enum device_file *kind)
{
	const struct device *device = site->warden->device;
	const struct seccomp_data *data = &site->request->data;
	char path[PATH_ROOM];
	int rc = site_peek_path(site, data->args[data->nr == SYS_openat ? 1 : 0], path, sizeof(path));

	if (!rc)
		*kind = device->ops->file_at(device, path);
	return rc;
}

struct answer site_open(struct site *site, enum device_file kind)
{
	const struct seccomp_data *data = &site->request->data;
	bool is_cloexec = data->args[data->nr == SYS_openat ? 2 : 1] & O_CLOEXEC;
	int rc = 0;

	if (kind == DEVICE_FILE_GPU)
		rc = give_gpu_file(site, is_cloexec);
	else
		give_pipe(site, -1, kind, is_cloexec, &rc);
	if (rc < 0)
		bf_log(BF_LOG_WARN, "cannot open a device file for a program: %s", strerror(-rc));
	return RETURN(rc);
}

int devfile_keep(struct devfile *file, const struct kept_block *what)
{
	struct kept_block *kept = malloc(sizeof(*kept));

	if (!kept)
		return -ENOMEM;
	*kept = *what;
	LIST_INSERT_HEAD(&file->kept, kept, next);
	if (kept->block)
		ledger_keep(kept->block);
	return 0;
}

void devfile_unkeep(struct devfile *file, struct ledger *ledger)
{
	struct kept_block *last = LIST_FIRST(&file->kept);

	LIST_REMOVE(last, next);
	ledger_drop(ledger, last->block);
	free(last);
}

/* Reduce a mapping to the part before the range, the part after it, or both. Each part keeps a reference to
 * the memory. False: nothing remains. */
static bool trim(struct devfile *file, struct kept_block *kept, uint64_t base, uint64_t bytes)
{
	uint64_t end = base + bytes, kept_end = kept->base + kept->bytes;
	struct kept_block after = { .block = kept->block, .base = end, .bytes = kept_end - end };

	/* Out of memory for a second part: the whole mapping stays charged. */
	if (kept->base < base && kept_end > end && devfile_keep(file, &after))
		return true;
	if (kept->base < base) {
		kept->bytes = base - kept->base;
		return true;
	}
	if (kept_end > end) {
		kept->base = end;
		kept->bytes = kept_end - end;
		return true;
	}
	return false;
}

void devfile_unmapped(struct devfile *file, struct ledger *ledger, uint64_t base, uint64_t bytes)
{
	struct kept_block *k, *after;

	LIST_FOREACH_SAFE(k, &file->kept, next, after) {
		bool overlaps = k->block && bytes && k->base < base + bytes && base < k->base + k->bytes;

		if (!overlaps || trim(file, k, base, bytes))
			continue;
		LIST_REMOVE(k, next);
		ledger_drop(ledger, k->block);
		free(k);
	}
}

void devfile_drop(struct devfile *file, struct ledger *ledger, uint64_t base, uint64_t bytes)
{
	struct kept_block *k, *after;

	LIST_FOREACH_SAFE(k, &file->kept, next, after) {
		if (k->base < base || k->base - base >= bytes)
			continue;
		LIST_REMOVE(k, next);
		if (k->block)
			ledger_drop(ledger, k->block);
		free(k);
	}
}

const struct kept_block *devfile_export(const struct devfile *file, uint32_t index)
{
	for (const struct kept_block *k = LIST_FIRST(&file->kept); k; k = LIST_NEXT(k, next))
		if (k->index == index)
			return k;
	return NULL;
}

/* Clients are freed by handle: a file that is registered with this one may keep it open in the driver. */
static void free_clients(struct warden *warden, const struct devfile *file, int fd)
{
	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next)) {
		struct rm_arg_free arg = { .client = c->handle, .parent = c->handle, .object = c->handle };

		if (c->file == file &&
		    warden->device->ops->call(warden->device, fd, RM_ESC_FREE, &arg, sizeof(arg)))
			bf_log(BF_LOG_DEBUG, "client %x was freed already", c->handle);
	}
}

static void forget_clients(struct warden *warden, const struct devfile *file)
{
	for (struct client *c = LIST_FIRST(&warden->clients), *next; c; c = next) {
		next = LIST_NEXT(c, next);
		if (c->file == file)
			client_gone(warden, c);
	}
}

/* In this order: the gate passes on nothing more for the channels; the driver frees the objects of the file;
 * the memory is no longer charged. The driver may take long, so it is called without the lock: only this
 * thread changes the list of clients. */
void devfile_gone(struct warden *warden, struct devfile *file)
{
	int fd;

	pthread_mutex_lock(&warden->lock);
	for (struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		if (c->file == file) {
			groups_ask_time(warden, c);
			client_leave_gate(warden, c);
		}
	/* From here on other threads get -EBADF for calls to the client, for example for a stop. */
	fd = file->fd;
	file->fd = -1;
	pthread_mutex_unlock(&warden->lock);
	free_clients(warden, file, fd);
	close(fd);
	pthread_mutex_lock(&warden->lock);
	forget_clients(warden, file);
	devfile_drop(file, warden->ledger, 0, UINT64_MAX);
	ledger_set_managed(warden->ledger, ledger_managed(warden->ledger) - file->left_bytes);
	LIST_REMOVE(file, next);
	warden_give_descriptors(warden, EACH_HOLDS);
	pthread_mutex_unlock(&warden->lock);
	devfile_free(file);
}
