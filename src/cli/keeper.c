#include "cli/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "cli/landlock.h"
#include "client/inside.h"
#include "warden/filter.h"

/* Signals that the keeper handles itself; the program gets the dispositions belfry was started with. A write
 * to a closed socket returns an error. Terminal access from a background process group must not stop the
 * keeper. A child stays a zombie until the keeper waits for it. */
static const struct {
	int signal;
	void (*handler)(int);
} own_signals[] = { { SIGPIPE, SIG_IGN }, { SIGTTOU, SIG_IGN }, { SIGTTIN, SIG_IGN }, { SIGCHLD, SIG_DFL } };
enum { OWN_SIGNALS = sizeof(own_signals) / sizeof(own_signals[0]) };

static struct sigaction before[OWN_SIGNALS];
static sigset_t mask_before;

/* Returns a signalfd for SIGCHLD, or -1. */
static int take_signals(void)
{
	sigset_t child;

	for (size_t i = 0; i < OWN_SIGNALS; i++) {
		struct sigaction own = { .sa_handler = own_signals[i].handler };

		sigaction(own_signals[i].signal, &own, &before[i]);
	}
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &mask_before);
	return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void give_signals_back(void)
{
	for (size_t i = 0; i < OWN_SIGNALS; i++)
		sigaction(own_signals[i].signal, &before[i], NULL);
	sigprocmask(SIG_SETMASK, &mask_before, NULL);
}

/* The other ends of the descriptors of struct keeper, and the process group of the program. */
struct far {
	int sock, hand, go, exec;
	pid_t group;
};

/* Runs in the program's process. A setup error is sent through far->exec as a struct bf_error, an exec error
 * as its errno. */
static void __attribute__((noreturn)) become_program(char *const *argv, const struct far *far, pid_t parent)
{
	struct bf_error err = { 0 };
	int listener;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 1); /* the supervisor must access the program; the keeper is not dumpable */
	if (getppid() != parent)
		_exit(125);
	setpgid(0, far->group); /* the program gets the terminal's input and signals */
	close(far->sock);
	listener = landlock_scope_signals(&err);
	if (!listener)
		listener = filter_install(&err);
	if (listener < 0) {
		if (write(far->exec, &err, sizeof(err)) < 0)
			_exit(125);
		_exit(125);
	}
	if (bf_send_fd(far->hand, listener))
		_exit(125);
	close(listener);
	close(far->hand);
	if (read(far->go, &byte, 1) != 1)
		_exit(125);
	give_signals_back();
	execvp(argv[0], argv);
	if (write(far->exec, &errno, sizeof(errno)) < 0)
		_exit(125);
	_exit(125);
}

static void report(const struct far *far, enum keeper_kind kind, int value)
{
	struct keeper_report message = { .kind = kind, .value = value };

	/* A failure means that belfry is gone; keep() notices that. */
	(void)!send(far->sock, &message, sizeof(message), MSG_NOSIGNAL);
}

/* Reap children. Returns true once the program has ended. */
static bool reap(int signals, pid_t program, int *status)
{
	struct signalfd_siginfo info;
	bool has_ended = false;
	int theirs;
	pid_t pid;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		;
	while ((pid = waitpid(-1, &theirs, WNOHANG)) > 0)
		if (pid == program) {
			has_ended = true;
			*status = theirs;
		}
	return has_ended;
}

/* Wait until the program or belfry ends, then kill all descendants. */
static void __attribute__((noreturn)) keep(const struct far *far, int signals, pid_t program)
{
	struct pollfd fds[] = { { far->sock, POLLIN, 0 }, { signals, POLLIN, 0 } };
	bool has_ended = false;
	int status = 0;

	while (!has_ended) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents)
			break; /* belfry sends nothing: its end was closed */
		has_ended = reap(signals, program, &status);
	}
	bf_end_descendants();
	if (has_ended)
		report(far, KEEPER_ENDED, status);
	_exit(0);
}

static void __attribute__((noreturn)) become_keeper(char *const *argv, const struct far *far)
{
	pid_t self = getpid(), program;
	int signals;

	setpgid(0, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_DUMPABLE, 0);	   /* processes of the same user must not trace the keeper */
	prctl(PR_SET_NAME, INSIDE_KEEPER); /* belfryd recognizes processes inside a run by this name */
	signals = take_signals();
	program = signals < 0 ? -1 : fork();
	if (program < 0)
		_exit(1);
	if (!program)
		become_program(argv, far, self);
	close(far->hand);
	close(far->go);
	close(far->exec);
	report(far, KEEPER_STARTED, program);
	keep(far, signals, program);
}

/* Fill in the error that the program's process reported. */
static int why_not(int exec_fd, struct bf_error *err)
{
	struct bf_error theirs;

	if (read(exec_fd, &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs)) {
		theirs.text[sizeof(theirs.text) - 1] = 0;
		return bf_fail(err, theirs.code, "%s", theirs.text);
	}
	return bf_fail(err, ECHILD, "the program's process ended before it was supervised");
}

static int await_program(struct keeper *keeper, int hand, struct bf_error *err)
{
	struct keeper_report message;
	int rc = keeper_read(keeper, &message);

	if (rc || message.kind != KEEPER_STARTED)
		return bf_fail(err, EAGAIN, "cannot start a process; end others, or allow more");
	keeper->program_pid = message.value;
	keeper->listener = bf_recv_fd(hand);
	return keeper->listener < 0 ? why_not(keeper->exec_fd, err) : 0;
}

int keeper_start(char *const *argv, int private_fd, struct keeper *keeper, struct bf_error *err)
{
	int sock[2] = { -1, -1 }, hand[2] = { -1, -1 }, go[2] = { -1, -1 }, exec[2] = { -1, -1 }, rc;

	*keeper = (struct keeper){ -1, -1, -1, -1, -1, -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, hand) || pipe2(go, O_CLOEXEC) ||
	    pipe2(exec, O_CLOEXEC))
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	struct far far = { sock[1], hand[1], go[0], exec[1], getpgrp() };
	keeper->pid = fork();
	if (keeper->pid < 0)
		return bf_fail(err, errno, "cannot start a process: %s", strerror(errno));
	if (!keeper->pid) {
		close(sock[0]);
		close(hand[0]);
		close(go[1]);
		close(exec[0]);
		close(private_fd);
		become_keeper(argv, &far);
	}
	close(far.sock);
	close(far.hand);
	close(far.go);
	close(far.exec);
	keeper->sock = sock[0];
	keeper->go_fd = go[1];
	keeper->exec_fd = exec[0];
	rc = await_program(keeper, hand[0], err);
	close(hand[0]);
	return rc;
}

int keeper_go(struct keeper *keeper)
{
	int why = 0;
	ssize_t got;

	if (write(keeper->go_fd, "g", 1) != 1)
		return 0; /* the program has ended; the keeper reports its status */
	close(bf_take_fd(&keeper->go_fd));
	do
		got = read(keeper->exec_fd, &why, sizeof(why));
	while (got < 0 && errno == EINTR);
	close(bf_take_fd(&keeper->exec_fd));
	return got == (ssize_t)sizeof(why) ? why : 0;
}

int keeper_read(const struct keeper *keeper, struct keeper_report *message)
{
	ssize_t got;

	do
		got = recv(keeper->sock, message, sizeof(*message), 0);
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)sizeof(*message) ? 0 : -EPIPE;
}

void keeper_end(struct keeper *keeper)
{
	bf_end_descendants();
	bf_close_fd(&keeper->sock);
	bf_close_fd(&keeper->listener);
	bf_close_fd(&keeper->go_fd);
	bf_close_fd(&keeper->exec_fd);
}

int keeper_check_free(struct bf_error *err)
{
	cleanup_close int reader = -1;
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	reader = ends[0];
	pid = fork();
	if (!pid) {
		struct bf_error theirs = { 0 };

		if (filter_install(&theirs) < 0 && write(ends[1], &theirs, sizeof(theirs)) < 0)
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	if (pid < 0)
		return bf_fail(err, errno, "cannot start a process: %s", strerror(errno));
	struct bf_error theirs = { 0 };
	bool was_said = read(reader, &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	theirs.text[sizeof(theirs.text) - 1] = 0;
	return was_said && theirs.code == EBUSY ? bf_fail(err, EBUSY, "%s", theirs.text) : 0;
}
