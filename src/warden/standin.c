/* Stand-ins. A notified mmap cannot be given another file, but the descriptor that it names can be replaced
 * before the kernel continues the call. A file of the warden takes its place and stays there. Most programs
 * close it at once; later calls on it are handled as on any other file. The program's own file is kept open
 * until the process ends or the descriptor is used for another mapping: it may be the last copy, and closing
 * it would free the objects of the file. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "warden/state.h"

static void standin_free(struct warden *warden, struct standin *standin)
{
	LIST_REMOVE(standin, next);
	close(standin->kept_fd);
	warden_give_descriptors(warden, 1);
	free(standin);
}

static void forget(struct process *process, int as_fd)
{
	struct standin *s, *after;

	LIST_FOREACH_SAFE(s, &process->standins, next, after)
		if (s->as_fd == as_fd)
			standin_free(process->warden, s);
}

/* A file that the warden does not know has nothing to keep, except a GPU file with events. */
static bool needs_keeping(const struct site *site)
{
	if (site->file || site->kind != DEVICE_FILE_GPU)
		return site->file;
	return site->fd >= PROCESS_FILES || site->process->event_files[site->fd / 64] >> site->fd % 64 & 1;
}

/* Keep the program's own file open. Without the lock. */
static int keep_file(struct site *site, struct standin **kept)
{
	struct warden *warden = site->warden;
	struct standin *standin;
	int fd = site_take_file(site, site->fd), rc = 0;

	if (fd < 0)
		return fd;
	standin = malloc(sizeof(*standin));
	pthread_mutex_lock(&warden->lock);
	if (!standin)
		rc = -ENOMEM;
	else if (!warden_take_descriptors(warden, 1))
		rc = -EMFILE;
	pthread_mutex_unlock(&warden->lock);
	if (rc) {
		free(standin);
		close(fd);
		return rc;
	}
	*standin = (struct standin){ .as_fd = site->fd, .kept_fd = fd };
	*kept = standin;
	return 0;
}

/* Steps that can fail come first: once the descriptor is replaced, the kept file may be the last copy of the
 * program's own. */
int standin_put(struct site *site)
{
	struct process *process = site->process;
	struct standin *kept = NULL;
	int rc = needs_keeping(site) ? keep_file(site, &kept) : 0;

	if (rc)
		return rc;
	rc = site_set_fd(site, site->put_fd, site->fd);
	pthread_mutex_lock(&site->warden->lock);
	if (rc && kept)
		standin_free(site->warden, kept);
	if (!rc)
		forget(process, site->fd);
	if (!rc && kept) {
		LIST_INSERT_HEAD(&process->standins, kept, next);
	}
	pthread_mutex_unlock(&site->warden->lock);
	return rc;
}

void standins_gone(struct process *process)
{
	while (!LIST_EMPTY(&process->standins))
		standin_free(process->warden, LIST_FIRST(&process->standins));
}
