/* Stand-ins. A notified mmap cannot be given another file, but the descriptor it names can be changed before
 * it goes on: memory of ours takes the place of the device file, for that one call. The program's file is put
 * back when the program uses the descriptor again; most close it at once and never know. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "warden/state.h"

static int set_fd(const struct site *site, int file, int as)
{
	struct seccomp_notif_addfd add = { .id = site->request->id,
					   .flags = SECCOMP_ADDFD_FLAG_SETFD,
					   .srcfd = (uint32_t)file,
					   .newfd = (uint32_t)as,
					   .newfd_flags = O_CLOEXEC };

	return ioctl(site->run->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? -errno : 0;
}

static void standin_free(struct standin *standin)
{
	close(standin->real_fd);
	free(standin);
}

/* One a descriptor: an older one there has been closed by the program, or it could not map anything. */
static void forget(struct process *process, int as_fd)
{
	for (struct standin **at = &process->standins, *found; (found = *at);) {
		if (found->as_fd == as_fd) {
			*at = found->next;
			standin_free(found);
		} else {
			at = &found->next;
		}
	}
}

int standin_put(struct site *site, int memory)
{
	struct standin *standin = calloc(1, sizeof(*standin));
	struct stat st;
	int rc;

	if (!standin)
		return -ENOMEM;
	standin->as_fd = site->fd;
	standin->real_fd = site_take_file(site, site->fd);
	rc = standin->real_fd < 0 ? standin->real_fd
	     : fstat(memory, &st) ? -errno
				  : set_fd(site, memory, site->fd);
	if (rc) {
		if (standin->real_fd >= 0)
			close(standin->real_fd);
		free(standin);
		return rc;
	}
	forget(site->process, site->fd);
	standin->device = st.st_dev;
	standin->inode = st.st_ino;
	standin->next = site->process->standins;
	site->process->standins = standin;
	return 0;
}

static bool is_this(const struct standin *standin, const struct stat *st)
{
	return standin->inode == st->st_ino && standin->device == st->st_dev;
}

bool standin_is(const struct warden *warden, const struct stat *st)
{
	for (const struct process *p = warden->processes; p; p = p->next)
		for (const struct standin *s = p->standins; s; s = s->next)
			if (is_this(s, st))
				return true;
	return false;
}

bool standin_restore(struct site *site, const struct stat *st)
{
	for (struct standin *s = site->process->standins; s; s = s->next)
		if (s->as_fd == site->fd && is_this(s, st) && !set_fd(site, s->real_fd, s->as_fd)) {
			forget(site->process, s->as_fd);
			return true;
		}
	return false;
}

void standins_gone(struct process *process)
{
	while (process->standins)
		forget(process, process->standins->as_fd);
}
