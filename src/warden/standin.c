/* Stand-ins. A notified mmap cannot be given another file, but the descriptor it names can be changed before it goes on: a
 * file of ours takes its place. It stays there: most programs close it at once, and whatever is done with it later is
 * looked at as with any other file. The program's own file is kept, as long as the process lives or the descriptor is not
 * used for another map: the last copy of it may be this one, and closing it would end what it stands for. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "warden/state.h"

/* The list is the serving thread's own; the count is not. */
static void forget(struct process *process, int as_fd)
{
	for (struct standin **at = &process->standins, *found; (found = *at);) {
		if (found->as_fd == as_fd) {
			*at = found->next;
			close(found->kept_fd);
			warden_give_descriptors(process->warden, 1);
			free(found);
		} else {
			at = &found->next;
		}
	}
}

static int keep(struct site *site, int kept_fd)
{
	struct process *process = site->process;
	struct standin *standin;

	if (!warden_take_descriptors(process->warden, 1))
		return -EMFILE;
	standin = malloc(sizeof(*standin));
	if (!standin) {
		warden_give_descriptors(process->warden, 1);
		return -ENOMEM;
	}
	*standin = (struct standin){ .as_fd = site->fd, .kept_fd = kept_fd, .next = process->standins };
	process->standins = standin;
	return 0;
}

/* A file that is not one of ours has nothing that would have to be kept, but for a GPU's with events. */
static bool needs_keeping(const struct site *site)
{
	if (site->file || site->kind != DEVICE_FILE_GPU)
		return site->file;
	return site->fd >= PROCESS_FILES || site->process->event_files[site->fd / 64] >> site->fd % 64 & 1;
}

static int replace(struct site *site, bool is_kept, int kept_fd)
{
	int rc;

	pthread_mutex_lock(&site->warden->lock);
	forget(site->process, site->fd);
	rc = is_kept ? keep(site, kept_fd) : 0;
	pthread_mutex_unlock(&site->warden->lock);
	return rc;
}

int standin_put(struct site *site)
{
	bool is_kept = needs_keeping(site);
	int kept_fd = is_kept ? site_take_file(site, site->fd) : -1, rc;

	if (is_kept && kept_fd < 0)
		return kept_fd;
	rc = site_set_fd(site, site->put_fd, site->fd);
	if (!rc)
		rc = replace(site, is_kept, kept_fd);
	if (rc && kept_fd >= 0)
		close(kept_fd);
	return rc;
}

void standins_gone(struct process *process)
{
	while (process->standins)
		forget(process, process->standins->as_fd);
}
