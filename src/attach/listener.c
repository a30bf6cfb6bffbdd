/* belfry-oci-listener: the socket to which container runtimes send listeners of seccomp filters. A process of belfryd, so
 * that belfryd does not wait for a runtime. It starts a process for each connection: whatever a runtime sends, or does not
 * send, concerns that connection only. */
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
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/own.h"
#include "base/process.h"
#include "client/talk.h"

enum { BACKLOG = 256, CHILDREN_MAX = 64, RECEIVE_S = 10, ATTACH_S = 20, AGAIN_MS = 100, PIECE = 4096 };

struct options {
	const char *socket;
	int log_level;
	bool wants_version;
};

/* The descriptors that a runtime has sent, in their order. */
struct received {
	int fds[ATTACH_FDS_MAX];
	unsigned count;
};

static void close_received(struct received *received)
{
	for (unsigned i = 0; i < received->count; i++)
		close(received->fds[i]);
	received->count = 0;
}

static void take_descriptors(struct msghdr *head, struct received *received)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c; c = CMSG_NXTHDR(head, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fds[ATTACH_FDS_MAX];

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds, CMSG_DATA(c), count * sizeof(int));
		for (size_t i = 0; i < count; i++)
			if (received->count < ATTACH_FDS_MAX)
				received->fds[received->count++] = fds[i];
			else
				close(fds[i]);
	}
}

/* Returns the number of bytes, 0 at the end of the stream, or -errno: -EAGAIN if there are none. */
static ssize_t receive(int sock, char *to, size_t room, struct received *received)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(ATTACH_FDS_MAX * sizeof(int))];
	} control;
	struct iovec part = { to, room };
	struct msghdr head = { .msg_iov = &part,
			       .msg_iovlen = 1,
			       .msg_control = control.room,
			       .msg_controllen = sizeof(control.room) };
	ssize_t got = recvmsg(sock, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0)
		return -errno;
	take_descriptors(&head, received);
	return head.msg_flags & MSG_CTRUNC ? -E2BIG : got;
}

static int left_ms(uint64_t until_ns)
{
	uint64_t now_ns = bf_now_ns();

	return now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000 + 1) : 0;
}

/* 1: *state is complete; 0: the runtime has closed the connection without a message; or -errno. */
static int receive_state(int sock, struct received *received, struct attach_state *state,
			 struct bf_error *err)
{
	struct attach_reader *reader = attach_reader_new();
	uint64_t until_ns = bf_now_ns() + RECEIVE_S * 1000000000ull;
	struct pollfd fd = { sock, POLLIN, 0 };
	char piece[PIECE];
	size_t all = 0;
	int rc = reader ? 0 : bf_fail(err, ENOMEM, "out of memory");

	while (!rc) {
		int left = left_ms(until_ns);
		ssize_t got = poll(&fd, 1, left) > 0 ? receive(sock, piece, sizeof(piece), received)
						     : -EAGAIN;

		if (got > 0) {
			all += (size_t)got;
			rc = attach_read(reader, piece, (size_t)got, state, err);
		} else if (got == 0 && !all) {
			break;
		} else if (got == 0) {
			rc = bf_fail(err, EPIPE, "the message ends after %zu bytes", all);
		} else if (got != -EAGAIN && got != -EINTR) {
			rc = bf_fail(err, (int)-got, "it cannot be received: %s", strerror((int)-got));
		} else if (!left) {
			rc = bf_fail(err, ETIMEDOUT, "the message is not complete after %d s", RECEIVE_S);
		}
	}
	attach_reader_free(reader);
	return rc;
}

static int attach_once(const struct attach_state *state, int listener, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_ATTACH, state->vgpu);
	struct protocol_attached attached = { .magic = PROTOCOL_MAGIC,
					      .version = PROTOCOL_VERSION,
					      .kind = state->pod[0] ? PROTOCOL_POD : PROTOCOL_CONTAINER,
					      .pid = state->pid };
	struct protocol_reply reply;
	struct talk_place place;
	int rc = talk_find(&place, err);

	if (rc)
		return rc;
	memcpy(attached.id, state->id, sizeof(attached.id));
	memcpy(attached.name, state->name, sizeof(attached.name));
	memcpy(attached.pod, state->pod, sizeof(attached.pod));
	memcpy(attached.space, state->space, sizeof(attached.space));
	cleanup_close int sock = talk_connect(&place, err);
	if (sock < 0)
		return sock;
	rc = talk_ask(sock, &request, &reply, NULL, err);
	return rc ? rc : talk_give_listener(sock, &attached, listener, &reply, err);
}

/* belfryd may just be restarted. */
static int attach(const struct attach_state *state, int listener, struct bf_error *err)
{
	uint64_t until_ns = bf_now_ns() + ATTACH_S * 1000000000ull;
	int rc = attach_once(state, listener, err);

	while ((talk_is_absent(rc) || rc == -EAGAIN || rc == -ECONNRESET) && left_ms(until_ns)) {
		poll(NULL, 0, AGAIN_MS);
		rc = attach_once(state, listener, err);
	}
	return rc;
}

/* Without a listener the calls of the container fail, which its programs report as anything. */
static void end_container(const struct attach_state *state)
{
	cleanup_close int pidfd = state->pid > 1 ? bf_pidfd_open(state->pid) : -ESRCH;
	struct bf_status status;

	if (pidfd >= 0 && !bf_status_read(state->pid, &status) && status.filters)
		bf_pidfd_kill(pidfd, SIGKILL);
}

static int serve(int sock)
{
	struct received received = { .count = 0 };
	struct attach_state state = { 0 };
	struct bf_error err = { 0 };
	int rc = receive_state(sock, &received, &state, &err);

	if (rc == 1 && state.listener_at >= received.count)
		rc = bf_fail(&err, EPROTO, "it comes without its descriptor");
	if (rc == 1) {
		rc = attach(&state, received.fds[state.listener_at], &err);
		if (rc)
			end_container(&state);
	}
	close_received(&received);
	if (rc)
		bf_log(BF_LOG_ERROR, "%s%s%s", state.id[0] ? state.id : "a message of a container runtime",
		       ": ", err.text);
	return rc != 0;
}

/* The mode of the socket lets in its owner and root. */
static bool is_welcome(int sock)
{
	struct ucred who;
	socklen_t length = sizeof(who);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length) && bf_is_admin(who.uid);
}

static void accept_one(int listening, unsigned *children)
{
	cleanup_close int sock = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	sigset_t none;
	pid_t pid;

	if (sock < 0 || !is_welcome(sock))
		return;
	pid = fork();
	if (pid < 0)
		bf_log(BF_LOG_ERROR, "a container cannot be attached: %s", strerror(errno));
	if (pid > 0)
		++*children;
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	close(listening);
	_exit(serve(sock));
}

/* Returns false if the process must end. */
static bool take_signals(int signals, unsigned *children)
{
	struct signalfd_siginfo info;
	bool goes_on = true;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		goes_on &= info.ssi_signo == SIGCHLD;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		--*children;
	return goes_on;
}

static int open_signals(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int listen_at(const char *path, struct bf_error *err)
{
	cleanup_close int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat st;
	mode_t mask;
	int rc;

	if (strlen(path) >= sizeof(address.sun_path))
		return bf_fail(err, ENAMETOOLONG, "%s: too long; the most is %zu bytes", path,
			       sizeof(address.sun_path) - 1);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (!lstat(path, &st) && S_ISSOCK(st.st_mode)) /* of a process that was killed */
		unlink(path);
	mask = umask(0177);
	rc = sock < 0 || bind(sock, (struct sockaddr *)&address, sizeof(address)) || listen(sock, BACKLOG);
	umask(mask);
	return rc ? bf_fail(err, errno, "%s: %s", path, strerror(errno)) : bf_take_fd(&sock);
}

static int listen_and_serve(const char *path, struct bf_error *err)
{
	cleanup_close int signals = open_signals(), listening = listen_at(path, err);
	struct pollfd fds[] = { { signals, POLLIN, 0 }, { listening, POLLIN, 0 } };
	unsigned children = 0;

	if (listening < 0)
		return listening;
	if (signals < 0)
		return bf_fail(err, errno, "signals: %s", strerror(errno));
	bf_log(BF_LOG_INFO, "containers are attached at %s", path);
	for (;;) {
		/* Further connections wait in the queue of the socket. */
		if (poll(fds, children < CHILDREN_MAX ? 2 : 1, -1) < 0)
			continue;
		if (fds[0].revents && !take_signals(signals, &children))
			break;
		if (children < CHILDREN_MAX && fds[1].revents)
			accept_one(listening, &children);
	}
	unlink(path);
	return 0;
}

static const struct bf_option table[] = {
	BF_OPTION("socket", 0, "PATH",
		  "the socket for listeners of containers (default: /run/belfry/oci.sock)", bf_take_text,
		  struct options, socket),
	BF_OPTION("log", 0, "LEVEL", "error, warn, info or debug (default: info)", bf_take_log,
		  struct options, log_level),
	BF_OPTION("version", 0, NULL, "print the version", bf_take_flag, struct options, wants_version),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "belfry-oci-listener",
	.about =
		"usage: belfry-oci-listener [--socket PATH] [--log LEVEL]\n"
		"\n"
		"Receive the seccomp listeners of containers, and attach the containers to their vGPUs. belfryd\n"
		"starts it; see oci_socket in belfryd.conf(5).\n",
	.options = table,
};

int main(int argc, char **argv)
{
	struct options options = { .socket = "/run/belfry/oci.sock", .log_level = BF_LOG_INFO };
	struct bf_error err = { 0 };
	int rc = bf_command_parse(&command, argc, argv, &options, &err);

	if (rc == BF_COMMAND_HELP) {
		bf_command_help(&command, stdout);
		return 0;
	}
	if (rc < 0) {
		fprintf(stderr, "belfry-oci-listener: %s; see belfry-oci-listener --help\n", err.text);
		return 2;
	}
	if (options.wants_version) {
		puts("belfry-oci-listener " BELFRY_VERSION);
		return 0;
	}
	bf_log_setup("belfry-oci-listener", (enum bf_log_level)options.log_level);
	if (!listen_and_serve(options.socket, &err))
		return 0;
	bf_log(BF_LOG_ERROR, "%s", err.text);
	return 1;
}
