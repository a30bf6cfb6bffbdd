#include "server/signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>

/* A closed socket is an error code; a terminal is the program's, and writing to it from another process group
 * must not stop us. */
static const int ignored[] = { SIGPIPE, SIGTTOU, SIGTTIN };
enum { IGNORED = sizeof(ignored) / sizeof(ignored[0]) };

static struct sigaction before[IGNORED];
static sigset_t mask_before;

int signals_take(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t child;
	int fd;

	for (size_t i = 0; i < IGNORED; i++)
		sigaction(ignored[i], &ignore, &before[i]);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &mask_before);
	fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

void signals_give_back(void)
{
	for (size_t i = 0; i < IGNORED; i++)
		sigaction(ignored[i], &before[i], NULL);
	sigprocmask(SIG_SETMASK, &mask_before, NULL);
}
