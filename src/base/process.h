/* Other processes, referred to by pidfd, because PIDs are reused. */
#ifndef BELFRY_BASE_PROCESS_H
#define BELFRY_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int bf_pidfd_open(pid_t pid);
/* Like pidfd_open, for a single thread. Needs Linux 6.9; returns -EINVAL before that. */
int bf_pidfd_open_thread(pid_t tid);
/* Of the process that connected `sock`, whose PID is `pid` (SO_PEERCRED). With SO_PEERPIDFD (Linux 6.5) it refers to that
 * process even if its PID is reused. Before 6.5 only the PID is known. */
int bf_pidfd_open_peer(int sock, pid_t pid);
bool bf_pidfd_has_ended(int pidfd);
int bf_pidfd_getfd(int pidfd, int fd);
int bf_pidfd_kill(int pidfd, int signal);
/* The process that a thread belongs to, or -errno. */
pid_t bf_tgid_of(pid_t tid);
/* The effective user ID of a process, or -errno. It is read from /proc/PID/status, because the owner of
 * /proc/PID is root if the process is not dumpable (PR_SET_DUMPABLE). */
int64_t bf_euid_of(pid_t pid);
/* What /proc/PID/status says of a process, whether or not it can be traced. Reading that file waits for no
 * lock that the process can hold for long. bf_status_read returns 0 or -errno. */
struct bf_status {
	char name[64];
	char state; /* 'R', 'S', ...; 'Z': zombie */
	pid_t parent;
	bool has_no_new_privs;
	unsigned filters; /* seccomp filters, which are inherited and never removed */
	bool is_nested;	  /* in a PID namespace below that of /proc: in a container */
	bool is_init;	  /* process 1 of its PID namespace */
};
int bf_status_read(pid_t pid, struct bf_status *status);
/* Whether this process may not read the other's /proc files: it is not dumpable (PR_SET_DUMPABLE), or belongs
 * to another user. */
bool bf_is_hidden(pid_t pid);
/* 1 if both threads use one descriptor table, 0 if not, -errno if that is unknown. */
int bf_same_files(pid_t a, pid_t b);
/* Whether the two threads use one address space. */
bool bf_same_memory(pid_t a, pid_t b);
/* 1 if two descriptors of one process refer to the same open file description. */
int bf_same_file(pid_t pid, int fd_a, int fd_b);
/* Whether a descriptor of process `pid` and one of this process refer to the same open file description. */
bool bf_same_file_as(pid_t pid, int theirs, int ours);

/* Kills every descendant of this process and waits for them. The caller must be their subreaper, so that
 * orphaned descendants become its children. */
void bf_end_descendants(void);

/* Call this first in main(). If standard input, output or error is closed, it reserves the number, so that no
 * file opened later receives what is printed. Writing to the reserved descriptor fails. It is close-on-exec:
 * a program that is started finds it closed. */
void bf_hold_standard_files(void);

/* Whether the user is root or the one that this process runs as. */
bool bf_is_admin(uid_t uid);

/* Raises the soft limit on open files to the hard limit. */
void bf_raise_file_limit(void);
/* Gives up the capabilities of the calling thread, ambient ones included, and the right to gain any: all but `kept`, a mask
 * of 1 << CAP_..., of those that it has. 0 or -errno. Safe after fork. */
int bf_drop_capabilities(uint32_t kept);

int bf_send_fd(int sock, int fd);
/* Returns the descriptor, or -errno. */
int bf_recv_fd(int sock);

#endif
