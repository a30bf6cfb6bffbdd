/* Worker threads that receive messages. A worker receives a message, re-arms the file, and only then answers.
 * So a slow call delays no other call, even on the same file. If all workers are busy, another one is
 * started. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "soft/driver/server.h"

/* Parts of the descriptors: of one user who is not root, and of all guests. */
enum { WORKERS_FIRST = 2, END_LIMIT_S = 3, PART_OF_USER = 8, USER_MAX = 4096, PART_OF_GUESTS = 2 };

void endpoint_put(struct endpoint *endpoint)
{
	if (atomic_fetch_sub(&endpoint->refs, 1) != 1)
		return;
	close(endpoint->sock);
	file_put(endpoint->file);
	free(endpoint);
}

static int arm(const struct server *server, struct endpoint *endpoint, int operation)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = endpoint };

	return epoll_ctl(server->epoll, operation, endpoint->sock, &event) ? -errno : 0;
}

bool endpoints_have_room(struct server *server, bool is_guest, uid_t uid)
{
	unsigned guests = 0, of_user = 0;
	struct rlimit files;

	if ((!is_guest && bf_is_admin(uid)) || getrlimit(RLIMIT_NOFILE, &files))
		return true;
	pthread_mutex_lock(&server->lock);
	list_each(link, &server->endpoints)
	{
		const struct endpoint *endpoint = list_of(link, struct endpoint, of_server);

		guests += endpoint->is_guest;
		of_user += endpoint->uid == uid;
	}
	pthread_mutex_unlock(&server->lock);
	return (!is_guest || guests < files.rlim_cur / PART_OF_GUESTS) &&
	       (bf_is_admin(uid) || (of_user < USER_MAX && of_user < files.rlim_cur / PART_OF_USER));
}

struct endpoint *endpoint_add(struct server *server, int sock, struct file *file, bool is_guest, uid_t uid)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));

	if (endpoint) {
		endpoint->refs = 1;
		endpoint->sock = sock;
		endpoint->file = file;
		endpoint->is_guest = is_guest;
		endpoint->uid = uid;
		pthread_mutex_lock(&server->lock);
		list_add(&server->endpoints, &endpoint->of_server);
		server->file_count += file != NULL;
		pthread_mutex_unlock(&server->lock);
		if (!arm(server, endpoint, EPOLL_CTL_ADD))
			return endpoint;
		endpoint_close(server, endpoint);
		return NULL;
	}
	close(sock);
	if (file) {
		file_close(file);
		file_put(file);
	}
	return NULL;
}

/* Supervision ends first: a thread that sees the file closed finds it ended. */
static void end_supervision(struct server *server, struct endpoint *endpoint)
{
	pid_t supervisor;

	pthread_mutex_lock(&server->lock);
	supervisor = endpoint->supervisor;
	endpoint->is_closed = true; /* a request of it that is still running adds no root any more */
	pthread_mutex_unlock(&server->lock);
	if (supervisor)
		family_remove(server->family, endpoint);
}

/* Only the thread that has disarmed the endpoint may call this: no other thread can then receive an event of
 * it. */
void endpoint_close(struct server *server, struct endpoint *endpoint)
{
	bool is_last;
	uint64_t wake = 1;

	epoll_ctl(server->epoll, EPOLL_CTL_DEL, endpoint->sock, NULL);
	end_supervision(server, endpoint);
	if (endpoint->file)
		file_close(endpoint->file);
	pthread_mutex_lock(&server->lock);
	list_remove(&endpoint->of_server);
	server->file_count -= endpoint->file != NULL;
	is_last = endpoint->file && !server->file_count;
	if (is_last)
		server->deadline_ns = bf_now_ns() + server->options.config.linger_s * 1000000000ull;
	pthread_mutex_unlock(&server->lock);
	endpoint_put(endpoint);
	if (is_last && write(server->wake_main, &wake, sizeof(wake)) < 0)
		bf_log(BF_LOG_WARN, "a worker cannot be woken; the server ends late");
}

/* Nothing was read: the other end is closed, or it sent an empty message. */
static bool is_closed(int sock)
{
	struct pollfd state = { .fd = sock, .events = POLLIN | POLLRDHUP };

	return poll(&state, 1, 0) > 0 && state.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL);
}

static void serve(struct server *server, struct endpoint *endpoint, uint8_t *room)
{
	struct iovec part = { room, MESSAGE_MAX };
	struct message message = { .bytes = room };
	ssize_t got = wire_receive(endpoint->sock, &part, 1, &message.files, &message.from, MSG_DONTWAIT);

	if ((got == 0 && is_closed(endpoint->sock)) || (got < 0 && got != -EAGAIN && got != -EMSGSIZE)) {
		wire_close_files(&message.files);
		endpoint_close(server, endpoint);
		return;
	}
	atomic_fetch_add(&endpoint->refs, 1);
	if (arm(server, endpoint, EPOLL_CTL_MOD)) {
		endpoint_close(server, endpoint);
	} else if (got > 0) {
		message.count = (size_t)got;
		request_serve(server, endpoint, &message);
	}
	wire_close_files(&message.files);
	endpoint_put(endpoint);
}

static void *work(void *context);

/* Call with the lock held. */
static int start_one(struct server *server)
{
	int rc = -pthread_create(&server->workers[server->worker_count], NULL, work, server);

	if (!rc) {
		server->worker_count++;
		server->idle_count++;
	}
	return rc;
}

static bool note_busy(struct server *server)
{
	bool is_stopping;

	pthread_mutex_lock(&server->lock);
	is_stopping = server->is_stopping;
	server->idle_count--;
	if (!server->idle_count && !is_stopping && server->worker_count < WORKERS_MAX)
		start_one(server);
	pthread_mutex_unlock(&server->lock);
	return is_stopping;
}

static void note_idle(struct server *server)
{
	pthread_mutex_lock(&server->lock);
	server->idle_count++;
	pthread_mutex_unlock(&server->lock);
}

static void *work(void *context)
{
	struct server *server = context;
	uint8_t *room = malloc(MESSAGE_MAX);

	while (room) {
		struct epoll_event event;
		int count = epoll_wait(server->epoll, &event, 1, -1);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0 || !event.data.ptr) /* the wake-up that ends the workers */
			break;
		/* At the end of the server a worker leaves the event: every endpoint is closed then. */
		if (note_busy(server))
			break;
		serve(server, event.data.ptr, room);
		note_idle(server);
	}
	free(room);
	return NULL;
}

int workers_start(struct server *server)
{
	struct epoll_event event = { .events = EPOLLIN };
	int rc = 0;

	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	server->wake_workers = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->epoll < 0 || server->wake_workers < 0 ||
	    epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->wake_workers, &event))
		return -errno;
	pthread_mutex_lock(&server->lock);
	while (!rc && server->worker_count < WORKERS_FIRST)
		rc = start_one(server);
	pthread_mutex_unlock(&server->lock);
	return rc;
}

bool workers_end(struct server *server)
{
	struct timespec until;
	uint64_t wake = 1;
	bool has_all = true;
	unsigned count;

	server_stop(server);
	pthread_mutex_lock(&server->lock);
	count = server->worker_count; /* no more workers are started after this */
	pthread_mutex_unlock(&server->lock);
	if (count && write(server->wake_workers, &wake, sizeof(wake)) < 0)
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_LIMIT_S;
	for (unsigned i = 0; i < count; i++)
		has_all &= !pthread_timedjoin_np(server->workers[i], NULL, &until);
	return has_all;
}
