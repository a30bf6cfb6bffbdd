#include "metrics/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/own.h"
#include "metrics/metrics.h"

/* A connection is for one request. Its client has DEADLINE_S to send the whole request, and again to take the whole
 * answer: a client that sends a byte now and then does not keep one of the few connections. While only FREE_LEAST of
 * them are free, a new connection ends the oldest one, so that many idle connections do not delay a scrape. */
enum { CONNECTIONS_MAX = 64, FREE_LEAST = 8, DEADLINE_S = 5 };
#define S_NS 1000000000ull

struct connection {
	int fd;		   /* -1: not in use */
	uint64_t until_ns; /* 0: it was shut down */
	uint64_t number;   /* in the order in which they began */
	bool is_answered;
};

struct http {
	struct MHD_Daemon *daemon;
	bool has_closed;  /* a connection, since MHD_run was called */
	uint64_t started; /* connections so far */
	struct connection connections[CONNECTIONS_MAX];
};

/* Takes the text if the mode is MHD_RESPMEM_MUST_FREE. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, char *text,
			      enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, mode);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
	MHD_add_response_header(response, "Connection", "close");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

/* Ask belfryd. Other clients could not be served meanwhile, and get that time in addition. */
static char *gather(struct http *http, struct bf_error *err)
{
	uint64_t start_ns = bf_now_ns(), took_ns;
	char *text = metrics_gather(err);

	took_ns = bf_now_ns() - start_ns;
	for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
		if (http->connections[i].until_ns)
			http->connections[i].until_ns += took_ns;
	return text;
}

static enum MHD_Result answer_metrics(struct http *http, struct MHD_Connection *connection)
{
	struct bf_error err = { 0 };
	char *text = gather(http, &err), why[sizeof(err.text) + 2];

	if (text)
		return answer(connection, MHD_HTTP_OK, text, MHD_RESPMEM_MUST_FREE);
	bf_log(BF_LOG_WARN, "%s", err.text);
	snprintf(why, sizeof(why), "%s\n", err.text);
	return answer(connection, MHD_HTTP_SERVICE_UNAVAILABLE, why, MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data, size_t *data_bytes,
			      void **state)
{
	static char not_found[] = "only /metrics is here\n", not_allowed[] = "only GET is understood\n";
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct connection *own = info ? info->socket_context : NULL;
	enum MHD_Result result;

	(void)version, (void)data, (void)state;
	*data_bytes = 0;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, not_allowed, MHD_RESPMEM_PERSISTENT);
	if (strcmp(url, "/metrics"))
		return answer(connection, MHD_HTTP_NOT_FOUND, not_found, MHD_RESPMEM_PERSISTENT);
	result = answer_metrics(context, connection);
	if (own) {
		own->until_ns = bf_now_ns() + DEADLINE_S * S_NS;
		own->is_answered = true;
	}
	return result;
}

/* MHD reads the end of the stream, and closes the connection. */
static void end_connection(struct connection *connection)
{
	shutdown(connection->fd, SHUT_RDWR);
	connection->until_ns = 0;
}

/* Whether `a` is to be ended before `b`. */
static bool is_before(const struct connection *a, const struct connection *b)
{
	return a->is_answered != b->is_answered ? !a->is_answered : a->number < b->number;
}

/* Keep some connections free: a client that sends its request at once is answered at once. */
static void make_room(struct http *http)
{
	struct connection *oldest = NULL;
	unsigned count = 0;

	for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
		struct connection *each = &http->connections[i];

		if (!each->until_ns)
			continue;
		count++;
		if (!oldest || is_before(each, oldest))
			oldest = each;
	}
	if (oldest && count > CONNECTIONS_MAX - FREE_LEAST)
		end_connection(oldest);
}

/* MHD calls this before it closes the descriptor. */
static void connection_changed(void *context, struct MHD_Connection *connection, void **socket_context,
			       enum MHD_ConnectionNotificationCode what)
{
	struct http *http = context;
	const union MHD_ConnectionInfo *info;
	struct connection *own = *socket_context;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (own)
			*own = (struct connection){ .fd = -1 };
		http->has_closed = true;
		return;
	}
	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	for (unsigned i = 0; info && i < CONNECTIONS_MAX; i++) {
		own = &http->connections[i];
		if (own->fd >= 0)
			continue;
		*own = (struct connection){ .fd = info->connect_fd,
					    .until_ns = bf_now_ns() + DEADLINE_S * S_NS,
					    .number = http->started++ };
		*socket_context = own;
		make_room(http);
		return;
	}
}

/* End the connections whose time is over. Returns how long to wait for the next one, in ms; -1: without end. */
static int end_late(struct http *http)
{
	uint64_t now_ns = bf_now_ns(), next_ns = UINT64_MAX;

	for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
		struct connection *each = &http->connections[i];

		if (!each->until_ns)
			continue;
		if (each->until_ns <= now_ns)
			end_connection(each);
		else
			next_ns = bf_min(next_ns, each->until_ns);
	}
	return next_ns == UINT64_MAX ? -1 : (int)((next_ns - now_ns) / 1000000 + 1);
}

static int wait_ms(struct http *http)
{
	MHD_UNSIGNED_LONG_LONG theirs;
	int ms = end_late(http);

	if (MHD_get_timeout(http->daemon, &theirs) == MHD_YES && (ms < 0 || theirs < (unsigned)ms))
		ms = (int)theirs;
	return ms;
}

static int loop(struct http *http, int signal_fd)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	struct pollfd polls[] = { { .fd = signal_fd, .events = POLLIN },
				  { .fd = info ? info->listen_fd : -1, .events = POLLIN } };

	if (!info)
		return 1;
	while (!polls[0].revents) {
		if (poll(polls, 2, wait_ms(http)) < 0 && errno != EINTR)
			return 1;
		/* Below its limit MHD watches the listening socket again with the next call only. */
		do {
			http->has_closed = false;
			MHD_run(http->daemon);
		} while (http->has_closed);
	}
	return 0;
}

int http_serve(const struct sockaddr_storage *address, const char *text)
{
	unsigned flags = MHD_USE_EPOLL | (address->ss_family == AF_INET6 ? MHD_USE_IPv6 : 0);
	struct http http = { .daemon = NULL };
	cleanup_close int signal_fd = -1;
	sigset_t ending;
	int status;

	for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
		http.connections[i].fd = -1;
	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGINT);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal_fd = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
	errno = 0;
	if (signal_fd >= 0)
		http.daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, &http, MHD_OPTION_SOCK_ADDR,
					       address, MHD_OPTION_CONNECTION_LIMIT,
					       (unsigned)CONNECTIONS_MAX, MHD_OPTION_NOTIFY_CONNECTION,
					       connection_changed, &http, MHD_OPTION_END);
	if (!http.daemon) {
		fprintf(stderr, "belfry-metrics: %s: cannot listen there: %s; use another --listen\n", text,
			errno ? strerror(errno) : "refused");
		return 1;
	}
	status = loop(&http, signal_fd);
	MHD_stop_daemon(http.daemon);
	return status;
}
