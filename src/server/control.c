#include "server/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "server/runtime.h"

/* 0 us: never. */
static int set_timer(int fd, uint64_t us)
{
	struct itimerspec when = { .it_value = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 } };

	return timerfd_settime(fd, 0, &when, NULL);
}

static int change(struct control *control, const struct protocol_request *request, struct bf_error *err)
{
	struct warden *warden = control->warden;
	int rc = 0;

	switch (request->op) {
	case PROTOCOL_REPORT:
		return 0;
	case PROTOCOL_HOLD:
		warden_hold(warden);
		set_timer(control->hold_fd, request->for_us);
		return 0;
	case PROTOCOL_OPEN:
		set_timer(control->hold_fd, 0);
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
static bool answer_talker(struct control *control, int sock)
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
		change(control, &request, &err);
	*reply = (struct protocol_reply){ .magic = PROTOCOL_MAGIC,
					  .version = PROTOCOL_VERSION,
					  .code = err.code,
					  .supervisor_pid = (uint32_t)getpid(),
					  .took_ns = bf_now_ns() - start_ns };
	snprintf(reply->text, sizeof(reply->text), "%s", err.text);
	snprintf(reply->name, sizeof(reply->name), "%s", control->name);
	if (request.op == PROTOCOL_REPORT || request.op == PROTOCOL_SET)
		warden_report(control->warden, &reply->report);
	/* A client that does not read its answers is dropped, not waited for. */
	return send(sock, reply, sizeof(*reply), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*reply);
}

static void accept_talker(struct control *control)
{
	cleanup_close int sock = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (sock < 0 || getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return;
	if (who.uid != geteuid() && who.uid != 0)
		return;
	for (int i = 0; i < CONTROL_TALKERS_MAX; i++)
		if (control->talkers[i] < 0) {
			control->talkers[i] = bf_take_fd(&sock);
			return;
		}
}

int control_open(struct control *control, const char *name, struct bf_error *err)
{
	*control = (struct control){ .name = name, .listen_fd = -1 };
	memset(control->talkers, 0xff, sizeof(control->talkers));
	control->hold_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (control->hold_fd < 0)
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	control->listen_fd = runtime_listen(name, control->path, sizeof(control->path), err);
	return control->listen_fd < 0 ? control->listen_fd : 0;
}

static void drop(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void control_close(struct control *control)
{
	for (int i = 0; i < CONTROL_TALKERS_MAX; i++)
		drop(&control->talkers[i]);
	drop(&control->hold_fd);
	drop(&control->listen_fd);
	if (control->path[0])
		unlink(control->path);
}

void control_fds(const struct control *control, struct pollfd fds[CONTROL_FDS])
{
	fds[0] = (struct pollfd){ control->listen_fd, POLLIN, 0 };
	fds[1] = (struct pollfd){ control->hold_fd, POLLIN, 0 };
	for (int i = 0; i < CONTROL_TALKERS_MAX; i++)
		fds[2 + i] = (struct pollfd){ control->talkers[i], POLLIN, 0 };
}

void control_work(struct control *control, const struct pollfd fds[CONTROL_FDS])
{
	uint64_t expired;

	for (int i = 0; i < CONTROL_TALKERS_MAX; i++)
		if (fds[2 + i].revents && !answer_talker(control, control->talkers[i]))
			drop(&control->talkers[i]);
	if (fds[1].revents && read(control->hold_fd, &expired, sizeof(expired)) > 0)
		warden_open(control->warden);
	if (fds[0].revents)
		accept_talker(control);
}
