#include "cli/steward.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/message.h"
#include "base/own.h"
#include "base/process.h"

enum { GENERATIONS_MAX = 4096 };

/* From 1 on, only ancestors and privileged processes may access a process. */
static bool yama_is_on(void)
{
	cleanup_file FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	return file && fscanf(file, "%d", &scope) == 1 && scope > 0;
}

bool steward_is_wanted(int sock)
{
	const char *given = getenv("BELFRY_STEWARD");
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (given && !strcmp(given, "1"))
		return true;
	return yama_is_on() && !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length) && who.uid;
}

static pid_t parent_of(pid_t pid)
{
	char path[32], line[512];
	cleanup_file FILE *file = NULL;
	const char *name_end;
	int parent;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return -ESRCH;
	name_end = strrchr(line, ')'); /* the name can contain any character */
	return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : -ESRCH;
}

static bool is_descendant(pid_t pid)
{
	for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++) {
		pid = parent_of(pid);
		if (pid == getpid())
			return true;
	}
	return false;
}

/* Open a process, or the process of a thread, by its number. */
static int open_process(pid_t pid)
{
	int fd = bf_pidfd_open(pid);
	pid_t leader;

	if (fd >= 0)
		return fd;
	fd = bf_pidfd_open_thread(pid); /* a thread can have its own descriptor table */
	if (fd >= 0)
		return fd;
	leader = bf_tgid_of(pid);
	return leader < 0 ? -ESRCH : bf_pidfd_open(leader);
}

static int open_memory(pid_t pid, int process)
{
	char path[32];
	cleanup_close int fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* If the process is alive, the pid was not reused. */
	return bf_pidfd_kill(process, 0) ? -ESRCH : bf_take_fd(&fd);
}

static int serve(const struct protocol_notice *notice)
{
	cleanup_close int process = notice->pid > 0 ? open_process(notice->pid) : -ESRCH;

	if (process < 0)
		return process;
	if (!is_descendant(notice->pid))
		return -EPERM;
	if (notice->kind == PROTOCOL_NOTICE_OPEN_MEMORY)
		return open_memory(notice->pid, process);
	return bf_pidfd_getfd(process, notice->number);
}

int steward_send(int sock, const void *data, size_t bytes, int fd)
{
	return bf_message_send(sock, data, bytes, fd, 0);
}

int steward_answer(int sock, const struct protocol_notice *notice)
{
	cleanup_close int file = serve(notice);
	struct protocol_stewarded answer = { .magic = PROTOCOL_MAGIC, .rc = file < 0 ? file : 0 };

	return steward_send(sock, &answer, sizeof(answer), file);
}
