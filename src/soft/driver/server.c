/* The listening socket, and the end of the server. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/own.h"
#include "soft/driver/server.h"

enum {
	FIRST_OPEN_S = 10,    /* how long it waits for its first file, whatever linger is */
	OTHER_ENDS_MS = 3000, /* a server that has closed its socket may still hold the lock */
	STAY_S = 2,	      /* after a process looked for the server */
	LATER_MS = 50,	      /* a process is looking for the server: try to end later */
	BACKLOG = 256,
};

void server_stay(struct server *server)
{
	pthread_mutex_lock(&server->lock);
	server->stay_ns = bf_now_ns() + STAY_S * 1000000000ull;
	pthread_mutex_unlock(&server->lock);
}

void server_stop(struct server *server)
{
	uint64_t wake = 1;

	pthread_mutex_lock(&server->lock);
	server->is_stopping = true;
	pthread_mutex_unlock(&server->lock);
	if (write(server->wake_main, &wake, sizeof(wake)) < 0)
		bf_log(BF_LOG_WARN, "the main thread cannot be woken; the server ends late");
}

static int fill_address(const char *folder, struct sockaddr_un *address)
{
	int length;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	length = snprintf(address->sun_path, sizeof(address->sun_path), "%s/socket", folder);
	return length < 0 || (size_t)length >= sizeof(address->sun_path) ? -ENAMETOOLONG : 0;
}

static bool is_answered(const struct sockaddr_un *address)
{
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return sock >= 0 &&
	       (!connect(sock, (const struct sockaddr *)address, sizeof(*address)) || errno == EAGAIN);
}

static int open_in(const char *folder, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* The holder of this lock serves the directory; the kernel releases it when that process ends. 1: another
 * process has it. */
static int take_folder(struct server *server, const struct sockaddr_un *address)
{
	server->running = open_in(server->options.folder, "running");
	if (server->running < 0)
		return -errno;
	for (int waited_ms = 0; flock(server->running, LOCK_EX | LOCK_NB); waited_ms += 10) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (is_answered(address))
			return 1;
		if (waited_ms >= OTHER_ENDS_MS)
			return -EBUSY;
		poll(NULL, 0, 10);
	}
	return 0;
}

static int listen_at(struct server *server, const struct sockaddr_un *address)
{
	int one = 1, rc;
	mode_t mask;
	struct stat st;

	unlink(address->sun_path); /* from a server that was killed: this one has its lock */
	server->listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server->listening < 0 || fstat(server->listening, &st))
		return -errno;
	server->sockets = st.st_dev;
	mask = umask(0177);
	rc = bind(server->listening, (const struct sockaddr *)address, sizeof(*address)) ? -errno : 0;
	umask(mask);
	if (rc)
		return rc;
	/* Before a process can connect, so that every message has credentials. */
	if (setsockopt(server->listening, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) ||
	    listen(server->listening, BACKLOG))
		return -errno;
	return 0;
}

static void welcome(struct server *server, int sock, bool is_guest)
{
	struct ucred who;
	socklen_t length = sizeof(who);

	if (!getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length) &&
	    endpoints_have_room(server, is_guest, who.uid))
		endpoint_add(server, sock, NULL, is_guest, who.uid);
	else
		close(sock);
}

static void accept_all(struct server *server, int listening)
{
	for (int sock; (sock = accept4(listening, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
		welcome(server, sock, listening == server->guests);
	if (errno == EMFILE || errno == ENFILE)
		poll(NULL, 0, LATER_MS); /* out of descriptors: clients wait until one is closed */
}

/* When the server may end without users. Call with the lock held. */
static uint64_t ends_ns(const struct server *server)
{
	return server->deadline_ns > server->stay_ns ? server->deadline_ns : server->stay_ns;
}

/* A process that looks for a server holds the directory's other lock, so the server cannot end while that
 * process is about to open a file. */
static bool may_end(struct server *server)
{
	cleanup_close int lock = open_in(server->options.folder, "lock");
	struct sockaddr_un address;
	bool is_wanted;

	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB))
		return false;
	/* A process may have opened a file since the last check; from here on, none can find this server. */
	pthread_mutex_lock(&server->lock);
	is_wanted = server->file_count > 0 || bf_now_ns() < ends_ns(server);
	pthread_mutex_unlock(&server->lock);
	if (is_wanted)
		return false;
	if (!fill_address(server->options.folder, &address))
		unlink(address.sun_path);
	return true;
}

/* Milliseconds until the next check; -1: none is due. *is_over: the server must end now. */
static int look_at_clock(struct server *server, bool *is_over)
{
	uint64_t now_ns = bf_now_ns(), deadline_ns;
	bool is_used;

	pthread_mutex_lock(&server->lock);
	*is_over = server->is_stopping;
	is_used = server->file_count > 0;
	deadline_ns = ends_ns(server);
	pthread_mutex_unlock(&server->lock);
	if (*is_over || is_used)
		return -1;
	if (now_ns < deadline_ns)
		return (int)((deadline_ns - now_ns) / 1000000 + 1);
	*is_over = may_end(server);
	return LATER_MS;
}

void server_serve(struct server *server)
{
	struct pollfd polls[] = { { .fd = server->listening, .events = POLLIN },
				  { .fd = server->signals, .events = POLLIN },
				  { .fd = server->wake_main, .events = POLLIN },
				  { .fd = server->guests, .events = POLLIN } };
	bool is_over = false;
	uint64_t count;

	while (!is_over) {
		int wait_ms = look_at_clock(server, &is_over);

		if (is_over || (poll(polls, 4, wait_ms) < 0 && errno != EINTR))
			break;
		if (polls[1].revents)
			break;
		if (polls[2].revents && read(server->wake_main, &count, sizeof(count)) < 0)
			continue;
		if (polls[0].revents)
			accept_all(server, server->listening);
		if (polls[3].revents)
			accept_all(server, server->guests);
	}
}

static void close_one(int fd)
{
	if (fd >= 0)
		close(fd);
}

bool server_free(struct server *server)
{
	struct sockaddr_un address;

	/* Remove the socket first, so that the next server can start while this one still releases its
	 * resources. */
	if (server->listening >= 0 && !fill_address(server->options.folder, &address)) {
		unlink(address.sun_path);
		close(server->listening);
	}
	guests_end(server);
	close_one(server->running);
	if (server->wake_main >= 0 && !workers_end(server))
		return false;
	list_each_safe(link, after, &server->endpoints)
		endpoint_close(server, list_of(link, struct endpoint, of_server));
	driver_free(server->driver);
	family_free(server->family);
	close_one(server->wake_main);
	close_one(server->wake_workers);
	close_one(server->epoll);
	pthread_mutex_destroy(&server->lock);
	free(server);
	return true;
}

static int start(struct server *server, const struct sockaddr_un *address, struct bf_error *err)
{
	uint32_t linger_s = server->options.config.linger_s;
	int rc;

	server->wake_main = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->wake_main < 0)
		return bf_fail(err, errno, "eventfd: %s", strerror(errno));
	server->family = family_new();
	server->driver = driver_new(&server->options.config, err);
	if (!server->family || !server->driver)
		return server->driver ? bf_fail(err, ENOMEM, "out of memory") : -err->code;
	server->deadline_ns = bf_now_ns() +
			      (linger_s > FIRST_OPEN_S ? linger_s : FIRST_OPEN_S) * 1000000000ull;
	rc = workers_start(server);
	if (rc)
		return bf_fail(err, -rc, "threads: %s", strerror(-rc));
	rc = listen_at(server, address);
	if (!rc)
		guests_listen(server);
	return rc ? bf_fail(err, -rc, "%s: %s", address->sun_path, strerror(-rc)) : 0;
}

static struct server *make(const struct server_options *options)
{
	struct server *server = calloc(1, sizeof(*server));

	if (!server)
		return NULL;
	server->options = *options;
	server->listening = server->guests = server->running = server->signals = -1;
	server->epoll = server->wake_workers = server->wake_main = -1;
	list_init(&server->endpoints);
	pthread_mutex_init(&server->lock, NULL);
	return server;
}

int server_new(const struct server_options *options, struct server **made, struct bf_error *err)
{
	struct sockaddr_un address;
	struct server *server;
	int rc = fill_address(options->folder, &address);

	if (rc)
		return bf_fail(err, -rc, "%s: the path of its socket is too long", options->folder);
	server = make(options);
	if (!server)
		return bf_fail(err, ENOMEM, "out of memory");
	rc = take_folder(server, &address);
	if (rc < 0)
		bf_fail(err, -rc, "%s/running: %s", options->folder, strerror(-rc));
	if (!rc)
		rc = start(server, &address, err);
	if (!rc)
		*made = server;
	else
		server_free(server);
	return rc;
}

struct driver *server_driver(const struct server *server)
{
	return server->driver;
}

/* Before any thread is started, so that all threads block the signals. */
static int take_signals(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t set;
	int fd;

	sigaction(SIGPIPE, &ignore, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static void say_ready(const struct server_options *options)
{
	if (options->ready_fd < 0)
		return;
	if (write(options->ready_fd, "1", 1) < 0)
		bf_log(BF_LOG_INFO, "no process waits for the start");
	close(options->ready_fd);
}

int server_run(const struct server_options *options, struct bf_error *err)
{
	cleanup_close int signals = take_signals();
	struct server *server = NULL;
	char text[256];
	int rc;

	if (signals < 0)
		return bf_fail(err, -signals, "signals: %s", strerror(-signals));
	rc = server_new(options, &server, err);
	if (rc > 0)
		bf_log(BF_LOG_INFO, "another server has %s", options->folder);
	if (rc >= 0)
		say_ready(options);
	if (!server)
		return rc > 0 ? 0 : rc;
	server->signals = signals;
	link_config_format(&options->config, text, sizeof(text));
	bf_log(BF_LOG_INFO, "started: %s", text);
	server_serve(server);
	bf_log(BF_LOG_INFO, "ends");
	if (!server_free(server)) {
		bf_log(BF_LOG_INFO, "ended while a call was running");
		_exit(0); /* the kernel releases what they hold */
	}
	return 0;
}
