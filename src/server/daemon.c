#include "server/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "base/units.h"
#include "server/program.h"
#include "server/runtime.h"
#include "server/signals.h"

enum { TALKERS_MAX = 16, AUDIT_S = 1 };

struct daemon {
	const struct daemon_options *options;
	struct device *device;
	struct gate *gate;
	struct warden *warden;
	struct program program;
	int signal_fd, audit_fd, hold_fd, listen_fd;
	int talkers[TALKERS_MAX]; /* connected clients; -1: free */
	char socket_path[108];
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

static int set_timer(int fd, uint64_t us)
{
	struct itimerspec when = { .it_value = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 } };

	return timerfd_settime(fd, 0, &when, NULL);
}

static int change(struct daemon *daemon, const struct protocol_request *request, struct bf_error *err)
{
	struct warden *warden = daemon->warden;
	int rc = 0;

	switch (request->op) {
	case PROTOCOL_REPORT:
		return 0;
	case PROTOCOL_HOLD:
		warden_hold(warden);
		set_timer(daemon->hold_fd, request->for_us);
		return 0;
	case PROTOCOL_OPEN:
		set_timer(daemon->hold_fd, 0);
		warden_open(warden);
		return 0;
	case PROTOCOL_STOP:
		return warden_stop(warden, err);
	case PROTOCOL_RESUME:
		return warden_resume(warden, err);
	case PROTOCOL_SET:
		if (request->set & PROTOCOL_SET_MEM)
			rc = warden_set_mem(warden, request->mem_bytes, err);
		if (!rc && request->set & PROTOCOL_SET_TIMESLICE)
			rc = warden_set_timeslice(warden, request->timeslice_us, err);
		if (!rc && request->set & PROTOCOL_SET_INTERLEAVE)
			rc = request->interleave < 0 || request->interleave > 2
				     ? bf_fail(err, EINVAL, "interleave level %d: not 0, 1 or 2",
					       request->interleave)
				     : warden_set_interleave(warden, request->interleave, err);
		return rc;
	default:
		return bf_fail(err, EPROTO, "unknown request %u", request->op);
	}
}

/* One request from a client. False: it is to be dropped. */
static bool answer_talker(struct daemon *daemon, int sock)
{
	struct protocol_request request = { 0 };
	cleanup_free struct protocol_reply *reply = calloc(1, sizeof(*reply));
	ssize_t got = recv(sock, &request, sizeof(request), MSG_TRUNC);
	struct bf_error err = { 0 };
	uint64_t start_ns = bf_now_ns();

	if (!reply || got <= 0)
		return false;
	if (got != (ssize_t)sizeof(request) || request.magic != PROTOCOL_MAGIC ||
	    request.version != PROTOCOL_VERSION)
		bf_fail(&err, EPROTO, "not a request of this version");
	else
		change(daemon, &request, &err);
	*reply = (struct protocol_reply){ .magic = PROTOCOL_MAGIC,
					  .version = PROTOCOL_VERSION,
					  .code = err.code,
					  .supervisor_pid = (uint32_t)getpid(),
					  .took_ns = bf_now_ns() - start_ns };
	snprintf(reply->text, sizeof(reply->text), "%s", err.text);
	snprintf(reply->name, sizeof(reply->name), "%s", daemon->options->name);
	if (request.op == PROTOCOL_REPORT || request.op == PROTOCOL_SET)
		warden_report(daemon->warden, &reply->report);
	/* A client that does not read its answers is dropped, not waited for. */
	return send(sock, reply, sizeof(*reply), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*reply);
}

static void accept_talker(struct daemon *daemon)
{
	cleanup_close int sock = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (sock < 0 || getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return;
	if (who.uid != geteuid() && who.uid != 0)
		return;
	for (int i = 0; i < TALKERS_MAX; i++)
		if (daemon->talkers[i] < 0) {
			daemon->talkers[i] = bf_take_fd(&sock);
			return;
		}
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
	enum { FRONT, SIGNALS, WARDEN, AUDIT, HOLD, LISTEN, TALKERS };
	struct pollfd fds[TALKERS + TALKERS_MAX] = {
		[FRONT] = { daemon->options->front_fd, POLLIN, 0 },
		[SIGNALS] = { daemon->signal_fd, POLLIN, 0 },
		[WARDEN] = { warden_fd(daemon->warden), POLLIN, 0 },
		[AUDIT] = { daemon->audit_fd, POLLIN, 0 },
		[HOLD] = { daemon->hold_fd, POLLIN, 0 },
		[LISTEN] = { daemon->listen_fd, POLLIN, 0 },
	};

	while (!daemon->has_ended && !daemon->front_is_gone) {
		for (int i = 0; i < TALKERS_MAX; i++)
			fds[TALKERS + i] = (struct pollfd){ daemon->talkers[i], POLLIN, 0 };
		if (poll(fds, TALKERS + TALKERS_MAX, -1) < 0)
			continue;
		/* The front never speaks: anything here is its end. */
		daemon->front_is_gone = fds[FRONT].revents != 0;
		for (int i = 0; i < TALKERS_MAX; i++)
			if (fds[TALKERS + i].revents && !answer_talker(daemon, daemon->talkers[i])) {
				close(daemon->talkers[i]);
				daemon->talkers[i] = -1;
			}
		if (fds[WARDEN].revents && !warden_work(daemon->warden))
			fds[WARDEN].fd = -1; /* nobody is supervised any more; SIGCHLD will tell */
		if (fds[LISTEN].revents)
			accept_talker(daemon);
		if (fds[AUDIT].revents) {
			drain_timer(daemon->audit_fd);
			warden_audit(daemon->warden);
		}
		if (fds[HOLD].revents) {
			drain_timer(daemon->hold_fd);
			warden_open(daemon->warden);
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
	daemon->hold_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (daemon->signal_fd < 0 || daemon->audit_fd < 0 || daemon->hold_fd < 0 ||
	    timerfd_settime(daemon->audit_fd, 0, &every, NULL))
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	daemon->listen_fd =
		runtime_listen(daemon->options->name, daemon->socket_path, sizeof(daemon->socket_path), err);
	return daemon->listen_fd < 0 ? daemon->listen_fd : 0;
}

static int start(struct daemon *daemon, struct bf_error *err)
{
	const struct daemon_options *options = daemon->options;
	int rc = make_fds(daemon, err);

	if (rc)
		return rc;
	daemon->device = device_nv_open(&options->device, err);
	if (!daemon->device)
		return -err->code;
	rc = check_mem(daemon, err);
	if (rc)
		return rc;
	rc = program_prepare(options->argv, getpgid(getppid()), daemon->device, &daemon->program, err);
	if (rc)
		return rc;
	daemon->gate = gate_new(daemon->device->bell, NULL, err);
	if (!daemon->gate)
		return -err->code;
	daemon->warden = warden_new(bf_take_fd(&daemon->program.listener), daemon->device, daemon->gate,
				    &options->warden, err);
	return daemon->warden ? 0 : -err->code;
}

static void end(struct daemon *daemon)
{
	/* First the programs: as long as they live they may be waiting for an answer. */
	if (daemon->program.go_fd >= 0)
		close(daemon->program.go_fd);
	bf_end_descendants();
	warden_free(daemon->warden);
	gate_free(daemon->gate);
	if (daemon->device)
		daemon->device->ops->close(daemon->device);
	if (daemon->socket_path[0])
		unlink(daemon->socket_path);
}

int daemon_run(const struct daemon_options *options)
{
	struct daemon daemon = { .options = options,
				 .signal_fd = -1,
				 .audit_fd = -1,
				 .hold_fd = -1,
				 .listen_fd = -1,
				 .program = { .pid = -1, .listener = -1, .go_fd = -1, .exec_fd = -1 } };
	struct bf_error err = { 0 };
	char text[384];
	int why;

	memset(daemon.talkers, 0xff, sizeof(daemon.talkers));
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
