#include "server/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "base/units.h"
#include "server/control.h"
#include "server/program.h"
#include "server/protocol.h"
#include "server/signals.h"

enum { AUDIT_S = 1, ONLY_RUN = 1 };

/* The software GPU computes on the processors that the poller would spin on. */
static const struct gate_rest rest_beside_soft = {
	.spin_us = 20, .doze_us = 50, .awake_us = 200000, .sleep_us = 1000
};

struct daemon {
	const struct daemon_options *options;
	struct device *device;
	struct gate *gate;
	struct warden *warden;
	struct program program;
	struct control control;
	int signal_fd, audit_fd;
	bool has_ended, front_is_gone;
	int status;
};

static void tell_front(const struct daemon *daemon, enum front_kind kind, int value, const char *text)
{
	struct front_message message = { .kind = kind, .value = value };

	if (text)
		snprintf(message.text, sizeof(message.text), "%s", text);
	/* If the front has gone we are about to find out. */
	if (send(daemon->options->front_fd, &message, sizeof(message), MSG_NOSIGNAL) < 0)
		bf_log(BF_LOG_DEBUG, "the front does not listen");
}

static void reap(struct daemon *daemon)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(daemon->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == daemon->program.pid) {
			daemon->has_ended = true;
			daemon->status = status;
		}
}

static void drain_timer(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0)
		bf_log(BF_LOG_DEBUG, "timer: %s", strerror(errno));
}

static void serve(struct daemon *daemon)
{
	enum { FRONT, SIGNALS, WARDEN, AUDIT, CONTROL };
	struct pollfd fds[CONTROL + CONTROL_FDS] = {
		[FRONT] = { daemon->options->front_fd, POLLIN, 0 },
		[SIGNALS] = { daemon->signal_fd, POLLIN, 0 },
		[WARDEN] = { warden_fd(daemon->warden), POLLIN, 0 },
		[AUDIT] = { daemon->audit_fd, POLLIN, 0 },
	};

	while (!daemon->has_ended && !daemon->front_is_gone) {
		control_fds(&daemon->control, fds + CONTROL);
		if (poll(fds, CONTROL + CONTROL_FDS, -1) < 0)
			continue;
		/* The front never speaks: anything here is its end. */
		daemon->front_is_gone = fds[FRONT].revents != 0;
		control_work(&daemon->control, fds + CONTROL);
		if (fds[WARDEN].revents && !warden_work(daemon->warden))
			fds[WARDEN].fd = -1; /* nobody is supervised any more; SIGCHLD will tell */
		if (fds[AUDIT].revents) {
			drain_timer(daemon->audit_fd);
			warden_audit(daemon->warden);
		}
		if (fds[SIGNALS].revents)
			reap(daemon);
	}
}

static int check_mem(const struct daemon *daemon, struct bf_error *err)
{
	uint64_t asked = daemon->options->warden.mem_bytes, card = daemon->device->mem_bytes;
	char a[24], c[24];

	if (asked <= card)
		return 0;
	return bf_fail(err, ERANGE, "memory limit %s: larger than the card, which has %s; ask for less",
		       bf_format_size(asked, a, sizeof(a)), bf_format_size(card, c, sizeof(c)));
}

static int make_fds(struct daemon *daemon, struct bf_error *err)
{
	struct itimerspec every = { { AUDIT_S, 0 }, { AUDIT_S, 0 } };

	daemon->signal_fd = signals_take();
	daemon->audit_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (daemon->signal_fd < 0 || daemon->audit_fd < 0 ||
	    timerfd_settime(daemon->audit_fd, 0, &every, NULL))
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	return control_open(&daemon->control, daemon->options->name, err);
}

static int start(struct daemon *daemon, struct bf_error *err)
{
	const struct daemon_options *options = daemon->options;
	int rc = make_fds(daemon, err);

	if (rc)
		return rc;
	daemon->device = options->soft_folder ? device_soft_open(options->soft_folder, &options->device, err)
					      : device_nv_open(&options->device, err);
	if (!daemon->device)
		return -err->code;
	rc = check_mem(daemon, err);
	if (!rc && daemon->device->ops->supervise)
		rc = daemon->device->ops->supervise(daemon->device, getpid(), err);
	if (rc)
		return rc;
	rc = program_prepare(options->argv, getpgid(getppid()), daemon->device, &daemon->program, err);
	if (rc)
		return rc;
	daemon->gate = gate_new(daemon->device->bell, options->soft_folder ? &rest_beside_soft : NULL, err);
	if (!daemon->gate)
		return -err->code;
	gate_set_rang(daemon->gate, daemon->device->rang);
	daemon->warden = warden_new(daemon->device, daemon->gate, &options->warden, err);
	daemon->control.warden = daemon->warden;
	if (!daemon->warden)
		return -err->code;
	return warden_add_run(daemon->warden, ONLY_RUN, bf_take_fd(&daemon->program.listener), NULL, err);
}

static void end(struct daemon *daemon)
{
	/* First the programs: as long as they live they may be waiting for an answer. */
	if (daemon->program.go_fd >= 0)
		close(daemon->program.go_fd);
	bf_end_descendants();
	control_close(&daemon->control);
	warden_free(daemon->warden);
	gate_free(daemon->gate);
	if (daemon->device)
		daemon->device->ops->close(daemon->device);
}

int daemon_run(const struct daemon_options *options)
{
	struct daemon daemon = { .options = options,
				 .control = { .listen_fd = -1, .hold_fd = -1 },
				 .signal_fd = -1,
				 .audit_fd = -1,
				 .program = { .pid = -1, .listener = -1, .go_fd = -1, .exec_fd = -1 } };
	struct bf_error err = { 0 };
	char text[384];
	int why;

	memset(daemon.control.talkers, 0xff, sizeof(daemon.control.talkers));
	fcntl(options->front_fd, F_SETFD, FD_CLOEXEC);
	setpgid(0, 0); /* what is typed at the terminal is for the program */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (start(&daemon, &err)) {
		tell_front(&daemon, FRONT_FAILED, 1, err.text);
		end(&daemon);
		return 1;
	}
	why = program_go(&daemon.program);
	if (why) {
		snprintf(text, sizeof(text), "%.300s: %s", options->argv[0], strerror(why));
		tell_front(&daemon, FRONT_FAILED, why == ENOENT ? 127 : 126, text);
		end(&daemon);
		return 1;
	}
	tell_front(&daemon, FRONT_STARTED, daemon.program.pid, NULL);
	serve(&daemon);
	end(&daemon);
	if (daemon.has_ended)
		tell_front(&daemon, FRONT_ENDED, daemon.status, NULL);
	return 0;
}
