/* One message: its sender, its permission and its request. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "soft/driver/server.h"

struct request {
	struct server *server;
	struct endpoint *endpoint;
	struct message *message;
	struct soft_request head;
	uint8_t *body;
	int reply_file; /* to send with the answer, or -1 */
};

static void reply(struct request *request, int rc, bool has_body)
{
	struct soft_reply head = { .magic = SOFT_REPLY_MAGIC, .rc = rc };
	struct iovec parts[] = { { &head, sizeof(head) }, { request->body, 0 } };
	struct wire_files files = { .fd = { request->reply_file }, .count = request->reply_file >= 0 };

	if (has_body) {
		head.arg_bytes = request->head.arg_bytes;
		head.params_bytes = request->head.params_bytes;
		parts[1].iov_len = head.arg_bytes + head.params_bytes;
	}
	/* An answer that would block is dropped: the receiver does not read. */
	wire_send(request->message->files.fd[0], parts, 2, &files, MSG_DONTWAIT);
}

/* The kernel reports the sender of a message, but root can forge that. The socket for the answer has the
 * credentials of the process that created it. */
static pid_t maker_of(int sock)
{
	struct ucred cred;
	socklen_t room = sizeof(cred);

	return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &room) ? 0 : cred.pid;
}

static int check_sender(const struct request *request)
{
	struct family *family = request->server->family;
	pid_t sender = request->message->from.pid;

	switch (request->head.kind) {
	case SOFT_REQUEST_OPEN:
	case SOFT_REQUEST_WHAT_IS:
		return 0;
	default:
		if (request->endpoint->is_guest && !family_has_supervisor(family, sender))
			return -EPERM;
		/* Programs of other users are served only through their supervisor. */
		if (!bf_is_admin(request->message->from.uid))
			return -EPERM;
		if (!family_is_empty(family) && maker_of(request->message->files.fd[0]) != sender)
			return -EPERM;
		return family_check(family, sender, request->head.on_behalf);
	}
}

static int serve_open(struct request *request)
{
	struct server *server = request->server;
	int pair[2], rc, one = 1;
	struct file *file;
	struct stat st;

	if (request->endpoint->file)
		return -EINVAL;
	if (!endpoints_have_room(server, request->endpoint->is_guest, request->endpoint->uid))
		return -EMFILE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = fstat(pair[1], &st) || setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) ? -errno
												    : 0;
	if (rc) {
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	file = file_new(server->driver, request->head.nr, st.st_ino, &rc);
	if (!file) {
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	if (!endpoint_add(server, pair[0], file, request->endpoint->is_guest, request->endpoint->uid)) {
		close(pair[1]);
		return -ENOMEM;
	}
	request->reply_file = pair[1];
	return 0;
}

/* The first file after the one for the answer, if it is a device file of this server. */
static struct file *named_file(const struct request *request)
{
	struct stat st;

	if (request->message->files.count < 2 || fstat(request->message->files.fd[1], &st) ||
	    !S_ISSOCK(st.st_mode) || st.st_dev != request->server->sockets)
		return NULL;
	return file_find(request->server->driver, st.st_ino);
}

static int serve_call(struct request *request)
{
	struct soft_request *head = &request->head;
	struct call call = { .file = request->endpoint->file,
			     .pid = head->on_behalf ? head->on_behalf : request->message->from.pid,
			     .uid = request->message->from.uid,
			     .is_on_behalf = head->on_behalf,
			     .nr = head->nr,
			     .arg = request->body,
			     .arg_bytes = head->arg_bytes,
			     .params = request->body + head->arg_bytes,
			     .params_bytes = head->params_bytes };
	int rc;

	if (!call.file)
		return -EINVAL;
	call.named = named_file(request);
	rc = driver_call(request->server->driver, &call);
	file_put(call.named);
	return rc;
}

static int serve_map(struct request *request)
{
	uint64_t base = 0;
	int fd;

	if (!request->endpoint->file || request->head.arg_bytes != sizeof(base) || request->head.params_bytes)
		return -EINVAL;
	fd = driver_map(request->server->driver, request->endpoint->file, request->head.bytes,
			request->head.offset, &base);
	if (fd < 0)
		return fd;
	memcpy(request->body, &base, sizeof(base));
	request->reply_file = fd;
	return 0;
}

static int serve_what_is(struct request *request)
{
	struct file *file = file_find(request->server->driver, request->head.inode);
	int minor = file ? (int)file_minor(file) : -ENOENT;

	file_put(file);
	return minor;
}

static int serve_supervise(struct request *request)
{
	struct server *server = request->server;
	struct endpoint *endpoint = request->endpoint;
	pid_t supervisor = request->message->from.pid;
	int rc;

	if (!endpoint->file || request->head.nr > INT32_MAX)
		return -EINVAL;
	pthread_mutex_lock(&server->lock);
	if (endpoint->is_closed)
		rc = -ENODEV;
	else if (endpoint->supervisor && endpoint->supervisor != supervisor)
		rc = -EBUSY;
	else
		rc = family_add(server->family, endpoint, supervisor, (pid_t)request->head.nr);
	if (!rc)
		endpoint->supervisor = supervisor;
	pthread_mutex_unlock(&server->lock);
	return rc;
}

static int serve_status(struct request *request)
{
	struct soft_status status;

	if (request->head.arg_bytes != sizeof(status) || request->head.params_bytes)
		return -EINVAL;
	server_stay(request->server);
	driver_status(request->server->driver, &status);
	memcpy(request->body, &status, sizeof(status));
	return 0;
}

static int serve_stop(struct request *request)
{
	bf_log(BF_LOG_INFO, "process %d stops the server", request->message->from.pid);
	server_stop(request->server);
	return 0;
}

static int dispatch(struct request *request)
{
	switch (request->head.kind) {
	case SOFT_REQUEST_OPEN:
		return serve_open(request);
	case SOFT_REQUEST_CALL:
		return serve_call(request);
	case SOFT_REQUEST_MAP:
		return serve_map(request);
	case SOFT_REQUEST_WHAT_IS:
		return serve_what_is(request);
	case SOFT_REQUEST_SUPERVISE:
		return serve_supervise(request);
	case SOFT_REQUEST_STATUS:
		return serve_status(request);
	case SOFT_REQUEST_STOP:
		return serve_stop(request);
	default:
		return -EINVAL;
	}
}

static bool is_whole(const struct request *request)
{
	const struct soft_request *head = &request->head;

	return head->arg_bytes <= SOFT_ARG_MAX && head->params_bytes <= SOFT_PARAMS_MAX &&
	       request->message->count == sizeof(*head) + head->arg_bytes + head->params_bytes &&
	       head->on_behalf >= 0;
}

void request_serve(struct server *server, struct endpoint *endpoint, struct message *message)
{
	struct request request = { .server = server,
				   .endpoint = endpoint,
				   .message = message,
				   .body = message->bytes + sizeof(request.head),
				   .reply_file = -1 };
	bool is_good = message->count >= sizeof(request.head) && message->files.count;
	int rc;

	if (is_good)
		memcpy(&request.head, message->bytes, sizeof(request.head));
	if (is_good && request.head.magic == SOFT_MAGIC) {
		rc = is_whole(&request) ? check_sender(&request) : -EINVAL;
		is_good = !rc;
		if (is_good)
			rc = dispatch(&request);
		/* A failed call may have changed its argument, as an ioctl would. */
		reply(&request, rc, is_good && (rc >= 0 || request.head.kind == SOFT_REQUEST_CALL));
	}
	if (request.reply_file >= 0)
		close(request.reply_file);
	wire_close_files(&message->files);
}
