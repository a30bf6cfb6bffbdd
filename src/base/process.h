/* Other processes, by descriptor: numbers are reused, descriptors are not. */
#ifndef BELFRY_BASE_PROCESS_H
#define BELFRY_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int bf_pidfd_open(pid_t pid);
/* Like pidfd_open, for a single thread where the kernel can (6.9); -EINVAL before that. */
int bf_pidfd_open_thread(pid_t tid);
int bf_pidfd_getfd(int pidfd, int fd);
int bf_pidfd_kill(int pidfd, int signal);
/* The process a thread belongs to, or -errno. */
pid_t bf_tgid_of(pid_t tid);
/* Its effective user, or -errno. From its status and not by who owns its folder in /proc: a process may choose to have
 * that owned by root (PR_SET_DUMPABLE). */
int64_t bf_euid_of(pid_t pid);
/* What anybody may know of a process, whether or not it may be traced: from /proc/PID/status, which waits for no lock that the
 * process itself can hold for long. 0 or -errno. */
struct bf_status {
	char name[64];
	char state; /* 'R', 'S', ...; 'Z': it has ended */
	pid_t parent;
	bool has_no_new_privs;
	unsigned filters; /* seccomp filters, which are inherited and never removed */
};
int bf_status_read(pid_t pid, struct bf_status *status);
/* Whether its files are not ours to look at: it may not be traced (PR_SET_DUMPABLE), or is another user's. */
bool bf_is_hidden(pid_t pid);
/* 1 if both threads use one descriptor table, 0 if not, -errno if that cannot be told. */
int bf_same_files(pid_t a, pid_t b);
/* Whether the two threads use one address space. */
bool bf_same_memory(pid_t a, pid_t b);
/* 1 if the two descriptors of one process are the same open file. */
int bf_same_file(pid_t pid, int fd_a, int fd_b);
/* Whether a descriptor of theirs is the same open file as one of ours. */
bool bf_same_file_as(pid_t pid, int theirs, int ours);

/* End every descendant of this process and wait for them: the caller must be their subreaper, so that none
 * is lost to another parent while its own dies. */
void bf_end_descendants(void);

/* For the beginning of main(): where standard input, output or error is closed, nothing that is opened later gets its number,
 * so that what is printed does not end up there. Writing to it fails, as it should; a program that is started finds it closed. */
void bf_hold_standard_files(void);

int bf_send_fd(int sock, int fd);
/* The descriptor, or -errno. */
int bf_recv_fd(int sock);

#endif
