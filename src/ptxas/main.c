/* belfry-ptxas: see ptxas.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"
#include "ptxas/ptxas.h"

extern char **environ;

enum { NOT_FOUND = 127 };

static bool is_text(const char *path)
{
	cleanup_close int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char start[1 << 14];
	struct stat st;
	ssize_t got;

	if (file < 0 || fstat(file, &st) || !S_ISREG(st.st_mode))
		return false;
	got = read(file, start, sizeof(start));
	return got > 0 && memmem(start, (size_t)got, ".version", 8);
}

/* Ends as a program does that a signal has ended. */
static int end_by(int signal_number)
{
	signal(signal_number, SIG_DFL);
	raise(signal_number);
	return 128 + signal_number;
}

/* The real ptxas, to its end. Returns its exit status. */
static int run(char *path, char **argv)
{
	int status = 0;
	pid_t pid;

	argv[0] = path; /* its messages, and notes in its output, have this name */
	errno = posix_spawn(&pid, path, NULL, NULL, argv, environ);
	if (errno) {
		fprintf(stderr, "belfry-ptxas: %s: %s\n", path, strerror(errno));
		return NOT_FOUND;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return NOT_FOUND;
	return WIFSIGNALED(status) ? end_by(WTERMSIG(status)) : WEXITSTATUS(status);
}

/* Triton's cache has the version in its keys: what was compiled without PTX is not found in it, and what has PTX is not found
 * by programs without probes. */
static void print_mark(void)
{
	puts("Belfry adds the PTX to the machine code");
}

int main(int argc, char **argv)
{
	struct bf_error err = { 0 };
	struct ptxas_job job;
	char path[PATH_MAX];
	int status;

	if (!argc || !ptxas_find(path, sizeof(path))) {
		fputs("belfry-ptxas: ptxas: not found; set BELFRY_PTXAS to its path\n", stderr);
		return NOT_FOUND;
	}
	ptxas_read_arguments(argv, is_text, &job);
	status = run(path, argv);
	if (status)
		return status;
	if (job.is_version)
		print_mark();
	else if (!job.why_not && ptxas_add_text(&job, &err))
		fprintf(stderr, "belfry-ptxas: the output has no PTX, so probes cannot be inserted: %s\n",
			err.text);
	return 0;
}
