/* belfry is the front of a run. It starts the keeper, which starts the program. It hands the seccomp listener
 * of the program to the GPU server, forwards signals to the program, and exits with the program's status. */
#include "cli/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/keeper.h"
#include "cli/steward.h"
#include "soft/link/link.h"

enum { NVIDIA_MAJOR = 195, ANSWER_TIMEOUT_MS = 20000, PARTING_TIMEOUT_MS = 5000 };

struct launch {
	const struct launch_options *options;
	struct keeper keeper;
	int signals;
	int program; /* pidfd */
	bool has_status;
	int wait_status; /* of the program, see waitpid(2) */
};

/* The kernel assigns nvidia-uvm's major number when the module is loaded. 0: the module is not loaded. */
static unsigned uvm_major(void)
{
	cleanup_file FILE *file = fopen("/proc/devices", "re");
	char line[128], name[64];
	unsigned number;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%u %63s", &number, name) == 2 && !strcmp(name, "nvidia-uvm"))
			return number;
	return 0;
}

static bool is_device(const struct stat *st, unsigned uvm, int soft)
{
	if (S_ISCHR(st->st_mode))
		return major(st->st_rdev) == NVIDIA_MAJOR || (uvm && major(st->st_rdev) == uvm);
	return soft >= 0 && S_ISSOCK(st->st_mode) && link_what_is(soft, st->st_ino) >= 0;
}

/* Mark inherited device files close-on-exec: no ledger records what they were used for before supervision. */
static void close_inherited(const char *soft_folder)
{
	cleanup_close int soft = soft_folder ? link_open(soft_folder, SOFT_FILE_CONTROL) : -1;
	unsigned uvm = uvm_major();
	DIR *files = opendir("/proc/self/fd");

	for (struct dirent *entry; files && (entry = readdir(files));) {
		int fd = atoi(entry->d_name);
		struct stat st;

		if (entry->d_name[0] != '.' && fd != dirfd(files) && !fstat(fd, &st) &&
		    is_device(&st, uvm, soft))
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	if (files)
		closedir(files);
}

static int fail(struct launch *launch, const char *why)
{
	keeper_end(&launch->keeper);
	fprintf(stderr, "belfry: %s\n", why);
	return CLI_FAILED;
}

/* Forward signals to the program. SIGINT and SIGQUIT of the terminal go to the whole process group, so the
 * program has them already. */
static void pass_signals(const struct launch *launch)
{
	struct signalfd_siginfo info;

	while (read(launch->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if ((info.ssi_signo == SIGINT || info.ssi_signo == SIGQUIT) && info.ssi_code == SI_KERNEL)
			continue;
		bf_pidfd_kill(launch->program, (int)info.ssi_signo);
	}
}

/* Handle a notice of the server. Returns 0, or an exit status plus 1. */
static int heed(struct launch *launch, struct protocol_notice *notice)
{
	if (notice->magic != PROTOCOL_MAGIC)
		return fail(launch,
			    "what the GPU server said makes no sense; what ran on the vGPU was ended") +
		       1;
	if (notice->kind == PROTOCOL_NOTICE_END) {
		notice->text[sizeof(notice->text) - 1] = 0;
		return fail(launch, bf_plain(notice->text)) + 1;
	}
	steward_answer(launch->options->sock, notice); /* if the server is gone, the next recv fails */
	return 0;
}

static int server_died(struct launch *launch)
{
	return fail(launch, "the GPU server died; what ran on the vGPU was ended");
}

static int ended(struct launch *launch, int status)
{
	keeper_end(&launch->keeper);
	launch->has_status = true;
	launch->wait_status = status;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Handle one report of the keeper. Returns 0, or an exit status plus 1. */
static int hear_keeper(struct launch *launch)
{
	struct keeper_report report;

	if (keeper_read(&launch->keeper, &report))
		return fail(launch, "the keeper of the program died; what ran on the vGPU was ended") + 1;
	return report.kind == KEEPER_ENDED ? ended(launch, report.value) + 1 : 0;
}

/* Handle one message of the server. Returns 0, or an exit status plus 1. */
static int hear_server(struct launch *launch)
{
	struct pollfd program = { launch->program, POLLIN, 0 };
	struct protocol_notice notice = { 0 };
	ssize_t got = recv(launch->options->sock, &notice, sizeof(notice), MSG_DONTWAIT);

	if (got == (ssize_t)sizeof(notice))
		return heed(launch, &notice);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	/* The server closes the connection when the program has ended; the keeper reports the status. */
	if (launch->program >= 0 && poll(&program, 1, 0) > 0)
		return hear_keeper(launch);
	return server_died(launch) + 1;
}

/* Wait until the program, the server or the keeper ends. */
static int follow(struct launch *launch)
{
	struct pollfd fds[] = { { launch->keeper.sock, POLLIN, 0 },
				{ launch->options->sock, POLLIN, 0 },
				{ launch->signals, POLLIN, 0 } };
	int status = 0;

	while (!status) {
		if (poll(fds, 3, -1) < 0)
			continue;
		if (fds[2].revents)
			pass_signals(launch);
		/* Read the server first: its notice says why it killed the program, and precedes the keeper's
		 * report. */
		if (fds[1].revents)
			status = hear_server(launch);
		if (!status && fds[0].revents)
			status = hear_keeper(launch);
	}
	return status - 1;
}

/* Wait for the reply to protocol_started. The server may need the steward before. Returns 0, or an exit
 * status plus 1. */
static int await_answer(struct launch *launch)
{
	uint64_t until_ns = bf_now_ns() + ANSWER_TIMEOUT_MS * 1000000ull, now_ns;
	struct pollfd fds[] = { { launch->options->sock, POLLIN, 0 }, { launch->keeper.sock, POLLIN, 0 } };
	union {
		struct protocol_reply reply;
		struct protocol_notice notice;
	} said;

	while ((now_ns = bf_now_ns()) < until_ns) {
		ssize_t got;
		int status;

		if (poll(fds, 2, (int)((until_ns - now_ns) / 1000000 + 1)) <= 0)
			continue;
		if (!fds[0].revents) {
			status = hear_keeper(launch);
			if (status)
				return status;
			continue;
		}
		got = recv(launch->options->sock, &said, sizeof(said), MSG_DONTWAIT);
		if (got == (ssize_t)sizeof(said.notice)) {
			status = heed(launch, &said.notice);
			if (status)
				return status;
		} else if (got != (ssize_t)sizeof(said.reply) || said.reply.magic != PROTOCOL_MAGIC) {
			return server_died(launch) + 1;
		} else {
			said.reply.text[sizeof(said.reply.text) - 1] = 0;
			return said.reply.code ? fail(launch, said.reply.text) + 1 : 0;
		}
	}
	return fail(launch, "the GPU server does not answer; see the log of belfryd") + 1;
}

static void fill_program(struct protocol_started *started, const char *path)
{
	const char *base = strrchr(path, '/');

	snprintf(started->program, sizeof(started->program), "%.60s", base ? base + 1 : path);
	bf_plain(started->program);
}

/* Send the listener to the server, and wait for permission to start. Returns 0, or an exit status plus 1. */
static int introduce(struct launch *launch)
{
	struct keeper *keeper = &launch->keeper;
	struct protocol_started started = { .magic = PROTOCOL_MAGIC,
					    .version = PROTOCOL_VERSION,
					    .front_pid = getpid(),
					    .keeper_pid = keeper->pid,
					    .program_pid = keeper->program_pid,
					    .wants_steward = steward_is_wanted(launch->options->sock) };
	int rc;

	fill_program(&started, launch->options->argv[0]);
	rc = steward_send(launch->options->sock, &started, sizeof(started), keeper->listener);
	close(bf_take_fd(&keeper->listener));
	return rc ? server_died(launch) + 1 : await_answer(launch);
}

static int go(struct launch *launch)
{
	const char *program = launch->options->argv[0];
	int why = keeper_go(&launch->keeper);

	if (!why)
		return follow(launch);
	keeper_end(&launch->keeper);
	fprintf(stderr, "belfry: %.300s: %s\n", program, strerror(why));
	launch->has_status = true;
	launch->wait_status = W_EXITCODE(why == ENOENT ? CLI_NOT_FOUND : CLI_NOT_EXECUTABLE, 0);
	return WEXITSTATUS(launch->wait_status);
}

/* From here on, signals are received through signalfd. Called after keeper_start, so that the program
 * inherits the original mask. */
static int take_signals(void)
{
	static const int passed_on[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH };
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&set, passed_on[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Wait until the server closes the connection. It does so once the run is cleaned up, including a vGPU made
 * for the run. When belfry exits, the name of that vGPU is free. */
static void part(const struct launch *launch)
{
	struct protocol_ended ended = { .magic = PROTOCOL_MAGIC,
					.version = PROTOCOL_VERSION,
					.status = launch->wait_status };
	int sock = launch->options->sock;
	uint64_t until_ns = bf_now_ns() + PARTING_TIMEOUT_MS * 1000000ull, now_ns;
	struct pollfd fds = { sock, POLLIN, 0 };
	struct protocol_notice unheard;
	bool is_there;

	/* The status is only for reports: a failure to send it is not an error. */
	if (launch->has_status && send(sock, &ended, sizeof(ended), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		bf_log(BF_LOG_DEBUG, "the server is not told how the program ended: %s", strerror(errno));
	is_there = !shutdown(sock, SHUT_WR);
	while (is_there && (now_ns = bf_now_ns()) < until_ns)
		if (poll(&fds, 1, (int)((until_ns - now_ns) / 1000000 + 1)) > 0)
			is_there = recv(sock, &unheard, sizeof(unheard), 0) > 0;
}

int launch_run(const struct launch_options *options)
{
	struct launch launch = { .options = options, .signals = -1, .program = -1 };
	struct bf_error err = { 0 };
	int status;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_DUMPABLE, 0); /* the program must not trace belfry; the keeper sets this for itself */
	close_inherited(options->soft_folder);
	if (keeper_start(options->argv, options->sock, &launch.keeper, &err))
		return fail(&launch, err.text);
	launch.signals = take_signals();
	launch.program = bf_pidfd_open(launch.keeper.program_pid);
	status = introduce(&launch);
	status = status ? status - 1 : go(&launch);
	part(&launch);
	bf_close_fd(&launch.signals);
	bf_close_fd(&launch.program);
	return status;
}
