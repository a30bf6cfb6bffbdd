/* The keeper of an MPS server: two processes, both subreapers of what the second one starts. The second one starts the control
 * program and ends all processes of MPS when the GPU server, the first one or the control program has ended. The first
 * one does that when the second one was killed. So nothing is left, whichever of them is killed. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/message.h"
#include "base/own.h"
#include "base/process.h"
#include "gpu/mps.h"
#include "warden/filter.h"

enum { READY_LIMIT_S = 10, QUIT_LIMIT_S = 5, TERM_LIMIT_S = 2, LOOK_MS = 20, NOT_STARTED = 127 };

#define S_NS 1000000000ull

struct keeper {
	int sock, signals;
	int above; /* a pipe that the first process holds open */
	struct mps_start start;
	pid_t control; /* 0: it has ended */
	int status;    /* of the control program, see waitpid(2) */
	bool is_ready;
	unsigned steps;	 /* of its end: asked, terminated */
	uint64_t due_ns; /* when it must be ready, or of the next step of its end; 0: no limit */
};

static void tell(const struct keeper *keeper, enum mps_news_kind kind, int fd, const char *text)
{
	struct mps_news news = { .kind = kind, .pid = keeper->control };

	snprintf(news.text, sizeof(news.text), "%s", text);
	/* If the GPU server is gone, the next poll says so. */
	bf_message_send(keeper->sock, &news, sizeof(news), fd, MSG_DONTWAIT);
}

/* Become the owner. The GPU server, and so the keeper, has the capabilities to do so permitted but not effective. */
static int become_owner(const struct mps_start *start)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	if (start->uid == geteuid())
		return bf_drop_capabilities(0);
	if (syscall(SYS_capget, &head, data))
		return -errno;
	data[0].effective |= data[0].permitted & (1u << CAP_SETUID | 1u << CAP_SETGID);
	if (syscall(SYS_capset, &head, data) || setgroups(0, NULL) ||
	    setresgid(start->gid, start->gid, start->gid) || setresuid(start->uid, start->uid, start->uid))
		return -errno;
	return bf_drop_capabilities(0);
}

static void set_environment(const struct mps_start *start)
{
	const char *path = getenv("PATH");
	char *kept = path ? strdup(path) : NULL, log[MPS_FOLDER_BYTES + 8];

	snprintf(log, sizeof(log), "%s/log", start->folder);
	clearenv();
	setenv("PATH", kept ? kept : "/usr/local/bin:/usr/bin:/bin", 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", start->folder, 1);
	setenv("CUDA_MPS_LOG_DIRECTORY", log, 1);
	if (start->devices[0]) {
		setenv("CUDA_VISIBLE_DEVICES", start->devices, 1);
		setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	}
	free(kept);
}

/* In the child: everything but the input is thrown away; MPS writes logs of its own. */
static int settle(const struct keeper *keeper, int input, pid_t parent)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), rc;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	rc = become_owner(&keeper->start);
	if (rc)
		return rc;
	/* After the change of the user, which clears it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		return -ESRCH;
	if (null < 0 || dup2(input < 0 ? null : input, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
	    chdir("/"))
		return -errno;
	umask(077);
	set_environment(&keeper->start);
	return 0;
}

static void __attribute__((noreturn)) fail_child(const struct keeper *keeper, const char *what, int code)
{
	char text[sizeof(((struct mps_news *)0)->text)];

	snprintf(text, sizeof(text), "%.150s: %s", what, strerror(code));
	tell(keeper, MPS_FAILED, -1, text);
	_exit(NOT_STARTED);
}

/* The control program: its listener goes to the GPU server, which says when it may start. */
static void __attribute__((noreturn)) become_control(struct keeper *keeper, pid_t parent)
{
	char *const arguments[] = { keeper->start.control, (char[]){ "-f" }, NULL };
	struct bf_error err = { 0 };
	int listener, rc = settle(keeper, -1, parent);
	uint32_t order = 0;

	keeper->control = getpid();
	if (rc)
		fail_child(keeper, "its user cannot be set", -rc);
	listener = filter_install(&err);
	if (listener < 0) {
		tell(keeper, MPS_FAILED, -1, err.text);
		_exit(NOT_STARTED);
	}
	tell(keeper, MPS_SUPERVISED, listener, "");
	close(listener);
	if (recv(keeper->sock, &order, sizeof(order), 0) != (ssize_t)sizeof(order) || order != MPS_GO)
		_exit(NOT_STARTED);
	execv(arguments[0], arguments);
	fail_child(keeper, arguments[0], errno);
}

/* "quit" for the control program, on the standard input of a second one, which it talks to. */
static void ask_to_quit(const struct keeper *keeper)
{
	char *const arguments[] = { (char *)(uintptr_t)keeper->start.control, NULL };
	pid_t parent = getpid();
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return; /* it is terminated later */
	if (write(ends[1], "quit\n", 5) == 5 && !fork()) {
		if (settle(keeper, ends[0], parent))
			_exit(NOT_STARTED);
		execv(arguments[0], arguments);
		_exit(NOT_STARTED);
	}
	close(ends[0]);
	close(ends[1]);
}

/* One step of the end: "quit", SIGTERM, and SIGKILL to all that is left. */
static void end_step(struct keeper *keeper)
{
	keeper->steps++;
	if (keeper->steps == 1) {
		keeper->due_ns = bf_now_ns() + QUIT_LIMIT_S * S_NS;
		ask_to_quit(keeper);
	} else if (keeper->steps == 2) {
		keeper->due_ns = bf_now_ns() + TERM_LIMIT_S * S_NS;
		kill(keeper->control, SIGTERM);
	} else {
		keeper->due_ns = 0;
		kill(keeper->control, SIGKILL);
	}
}

/* Ready when its socket is there. The folder is the owner's: nothing in it is opened or followed. */
static bool has_socket(const struct keeper *keeper)
{
	char path[MPS_FOLDER_BYTES + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/control", keeper->start.folder);
	return !lstat(path, &st) && S_ISSOCK(st.st_mode);
}

static void look(struct keeper *keeper)
{
	char text[128];

	if (!keeper->is_ready && !keeper->steps && has_socket(keeper)) {
		keeper->is_ready = true;
		keeper->due_ns = 0;
		tell(keeper, MPS_READY, -1, "");
	}
	if (!keeper->due_ns || bf_now_ns() < keeper->due_ns)
		return;
	if (!keeper->is_ready && !keeper->steps) {
		snprintf(text, sizeof(text), "it made no control socket within %d s", READY_LIMIT_S);
		tell(keeper, MPS_FAILED, -1, text);
		keeper->steps = 1;
	}
	end_step(keeper);
}

/* The subreaper waits for every process of MPS. */
static void reap(struct keeper *keeper)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(keeper->signals, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == keeper->control) {
			keeper->control = 0;
			keeper->status = status;
		}
}

/* False: the GPU server is gone. */
static bool hear(struct keeper *keeper)
{
	uint32_t order = 0;
	ssize_t got = recv(keeper->sock, &order, sizeof(order), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got != (ssize_t)sizeof(order))
		return false;
	if (order == MPS_QUIT && !keeper->steps)
		end_step(keeper);
	return true;
}

/* How long poll waits: the socket of MPS is looked for, a limit is met to a few milliseconds. */
static int wait_ms(const struct keeper *keeper)
{
	return keeper->is_ready && !keeper->due_ns ? -1 : LOOK_MS;
}

/* One of the two processes was killed. */
static void was_killed(const struct keeper *keeper)
{
	bf_end_descendants();
	tell(keeper, MPS_ENDED, -1, "its keeper was killed");
}

static void keep(struct keeper *keeper)
{
	/* The control program itself receives MPS_GO, the only message before the end. */
	struct pollfd fds[] = { { keeper->signals, POLLIN, 0 },
				{ keeper->sock, POLLIN, 0 },
				{ keeper->above, POLLIN, 0 } };
	char text[64];

	while (keeper->control) {
		/* Before it is ready, the socket is watched for its end only. */
		fds[1].events = (short)(keeper->is_ready || keeper->steps ? POLLIN : POLLRDHUP);
		poll(fds, 3, wait_ms(keeper));
		reap(keeper);
		if (fds[2].revents) {
			was_killed(keeper);
			return;
		}
		if (fds[1].revents & (POLLHUP | POLLERR | POLLRDHUP) ||
		    (fds[1].revents & POLLIN && !hear(keeper)))
			return;
		if (keeper->control)
			look(keeper);
	}
	snprintf(text, sizeof(text), "%s %d", WIFSIGNALED(keeper->status) ? "signal" : "status",
		 WIFSIGNALED(keeper->status) ? WTERMSIG(keeper->status) : WEXITSTATUS(keeper->status));
	bf_end_descendants(); /* before the news: whatever reads it may start another */
	tell(keeper, MPS_ENDED, -1, text);
}

static int take_signals(void)
{
	struct sigaction plain = { .sa_handler = SIG_DFL };
	sigset_t child, none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	sigaction(SIGPIPE, &plain, NULL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool is_sound(const struct mps_start *start)
{
	return memchr(start->control, 0, sizeof(start->control)) &&
	       memchr(start->folder, 0, sizeof(start->folder)) &&
	       memchr(start->devices, 0, sizeof(start->devices)) && start->control[0] == '/';
}

static void prepare(void)
{
	prctl(PR_SET_NAME, "belfry-mps");
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The second process. */
static int start_and_keep(struct keeper *keeper)
{
	pid_t self = getpid();

	prepare();
	keeper->signals = take_signals();
	keeper->due_ns = bf_now_ns() + READY_LIMIT_S * S_NS;
	keeper->control = keeper->signals < 0 ? -1 : fork();
	if (keeper->control < 0) {
		keeper->control = 0;
		tell(keeper, MPS_FAILED, -1, strerror(errno));
		return 1;
	}
	if (!keeper->control)
		become_control(keeper, self);
	keep(keeper);
	bf_end_descendants();
	return 0;
}

int mps_keeper_main(int sock)
{
	struct keeper keeper = { .sock = sock, .signals = -1 };
	int ends[2], status;
	pid_t second;

	prepare();
	if (recv(sock, &keeper.start, sizeof(keeper.start), 0) != (ssize_t)sizeof(keeper.start) ||
	    !is_sound(&keeper.start) || pipe2(ends, O_CLOEXEC))
		return 2;
	keeper.above = ends[0];
	second = fork();
	if (!second) {
		close(ends[1]);
		_exit(start_and_keep(&keeper));
	}
	close(ends[0]);
	while (second > 0 && waitpid(second, &status, 0) < 0 && errno == EINTR)
		;
	if (second < 0 || WIFSIGNALED(status))
		was_killed(&keeper);
	return 0;
}
