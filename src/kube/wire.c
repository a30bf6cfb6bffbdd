#include "kube/wire.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/list.h"
#include "base/own.h"
#include "base/process.h"

enum { PIECE = 16384, BACKLOG = 16 };

struct connection {
	struct loop *loop;
	struct grpc *grpc;
	int sock;
	struct loop_source *source;
	const uint8_t *out; /* not sent yet: in the memory of grpc */
	size_t out_count;
	struct wire_server *server;   /* NULL: of a client */
	LIST_ENTRY(connection) entry; /* wire_server::connections */
};

struct wire_server {
	struct loop *loop;
	struct grpc_events events;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int sock;
	struct stat st; /* of the file */
	struct loop_source *source;
	unsigned count;
	LIST_HEAD(, connection) connections;
};

struct wire_client {
	struct connection connection;
	struct grpc_events events; /* of the caller */
	bool is_answered;
};

/* Send what there is. Negative: the connection has failed. */
static int send_all(struct connection *connection)
{
	for (;;) {
		ssize_t count;

		if (!connection->out_count) {
			count = grpc_pull(connection->grpc, &connection->out);
			if (count <= 0)
				return (int)count;
			connection->out_count = (size_t)count;
		}
		count = send(connection->sock, connection->out, connection->out_count,
			     MSG_NOSIGNAL | MSG_DONTWAIT);
		if (count < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		connection->out += count;
		connection->out_count -= (size_t)count;
	}
}

/* Receives nothing while the peer has not read what was sent to it. */
static int receive_all(struct connection *connection)
{
	uint8_t piece[PIECE];
	ssize_t count;

	if (connection->out_count)
		return 0;
	count = recv(connection->sock, piece, sizeof(piece), MSG_DONTWAIT);
	if (count < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return count ? grpc_feed(connection->grpc, piece, (size_t)count) : -EPIPE;
}

/* False: it has ended. */
static bool work(struct connection *connection)
{
	if (send_all(connection) || receive_all(connection) || send_all(connection) ||
	    grpc_is_over(connection->grpc))
		return false;
	loop_change(connection->loop, connection->source, connection->out_count ? EPOLLOUT : EPOLLIN);
	return true;
}

static void end_connection(struct connection *connection)
{
	loop_remove(connection->loop, connection->source);
	if (connection->sock >= 0)
		close(connection->sock);
	if (connection->grpc)
		grpc_free(connection->grpc);
}

static void drop(struct connection *connection)
{
	LIST_REMOVE(connection, entry);
	connection->server->count--;
	end_connection(connection);
	free(connection);
}

static void connection_ready(void *context, uint32_t events)
{
	struct connection *connection = context;

	(void)events;
	if (!work(connection))
		drop(connection);
}

static bool is_welcome(int sock)
{
	struct ucred who;
	socklen_t length = sizeof(who);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length) && bf_is_admin(who.uid);
}

static void accept_one(void *context, uint32_t events)
{
	struct wire_server *server = context;
	cleanup_close int sock = accept4(server->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct connection *connection;

	(void)events;
	if (sock < 0 || !is_welcome(sock) || server->count >= WIRE_CONNECTIONS_MAX)
		return;
	connection = calloc(1, sizeof(*connection));
	if (!connection)
		return;
	*connection = (struct connection){ .loop = server->loop,
					   .server = server,
					   .sock = bf_take_fd(&sock),
					   .grpc = grpc_new_server(&server->events) };
	LIST_INSERT_HEAD(&server->connections, connection, entry);
	server->count++;
	connection->source =
		loop_add(server->loop, connection->sock, EPOLLIN, LOOP_MIDDLE, connection_ready, connection);
	if (!connection->grpc || !connection->source || !work(connection))
		drop(connection);
}

static int address_of(const char *path, struct sockaddr_un *address, struct bf_error *err)
{
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (snprintf(address->sun_path, sizeof(address->sun_path), "%s", path) <
	    (int)sizeof(address->sun_path))
		return 0;
	return bf_fail(err, ENAMETOOLONG, "%.200s: too long for a socket; the most is %zu bytes", path,
		       sizeof(address->sun_path) - 1);
}

static int listen_at(struct wire_server *server, const char *path, struct bf_error *err)
{
	struct sockaddr_un address;
	int rc = address_of(path, &address, err);
	mode_t mask;

	if (rc)
		return rc;
	memcpy(server->path, address.sun_path, sizeof(server->path));
	server->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (!lstat(path, &server->st) && S_ISSOCK(server->st.st_mode)) /* of a process that was killed */
		unlink(path);
	mask = umask(0177);
	rc = server->sock < 0 || bind(server->sock, (struct sockaddr *)&address, sizeof(address)) ||
	     listen(server->sock, BACKLOG) || lstat(path, &server->st);
	umask(mask);
	return rc ? bf_fail(err, errno, "%s: %s", path, strerror(errno)) : 0;
}

struct wire_server *wire_listen(struct loop *loop, const char *path, const struct grpc_events *events,
				struct bf_error *err)
{
	struct wire_server *server = calloc(1, sizeof(*server));

	if (!server) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	server->loop = loop;
	server->events = *events;
	server->sock = -1;
	LIST_INIT(&server->connections);
	if (!listen_at(server, path, err)) {
		server->source = loop_add(loop, server->sock, EPOLLIN, LOOP_LAST, accept_one, server);
		if (server->source)
			return server;
		bf_fail(err, errno, "%s: %s", path, strerror(errno));
	}
	wire_close(server);
	return NULL;
}

bool wire_is_there(const struct wire_server *server)
{
	struct stat st;

	return !lstat(server->path, &st) && st.st_ino == server->st.st_ino &&
	       st.st_dev == server->st.st_dev && st.st_ctim.tv_sec == server->st.st_ctim.tv_sec &&
	       st.st_ctim.tv_nsec == server->st.st_ctim.tv_nsec;
}

void wire_close(struct wire_server *server)
{
	while (!LIST_EMPTY(&server->connections))
		drop(LIST_FIRST(&server->connections));
	loop_remove(server->loop, server->source);
	if (server->source && wire_is_there(server))
		unlink(server->path);
	if (server->sock >= 0)
		close(server->sock);
	free(server);
}

void wire_flush(struct wire_server *server)
{
	struct connection *connection, *after;

	LIST_FOREACH_SAFE(connection, &server->connections, entry, after)
		if (!work(connection))
			drop(connection);
}

static void client_answered(void *context, enum grpc_status status, const char *text)
{
	struct wire_client *client = context;

	if (client->is_answered)
		return;
	client->is_answered = true;
	client->events.answered(client->events.context, status, text);
}

static void client_ready(void *context, uint32_t events)
{
	struct wire_client *client = context;

	(void)events;
	if (work(&client->connection))
		return;
	loop_remove(client->connection.loop, client->connection.source);
	client->connection.source = NULL;
	client_answered(client, GRPC_UNAVAILABLE, "the connection was closed");
}

struct wire_client *wire_call(struct loop *loop, const char *socket_path, const struct grpc_events *events,
			      const char *path, struct proto_bytes message, struct bf_error *err)
{
	struct wire_client *client = calloc(1, sizeof(*client));
	struct connection *connection = client ? &client->connection : NULL;
	struct sockaddr_un address;

	if (!client || address_of(socket_path, &address, err)) {
		if (!client)
			bf_fail(err, ENOMEM, "out of memory");
		free(client);
		return NULL;
	}
	client->events = *events;
	connection->loop = loop;
	connection->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connection->sock < 0 || connect(connection->sock, (struct sockaddr *)&address, sizeof(address))) {
		bf_fail(err, errno, "%s: %s", socket_path, strerror(errno));
		wire_drop(client);
		return NULL;
	}
	connection->grpc = grpc_new_client(
		&(struct grpc_events){ .context = client, .answered = client_answered }, path, message);
	connection->source =
		loop_add(loop, connection->sock, EPOLLIN | EPOLLOUT, LOOP_MIDDLE, client_ready, client);
	if (connection->grpc && connection->source)
		return client;
	bf_fail(err, ENOMEM, "out of memory");
	wire_drop(client);
	return NULL;
}

void wire_drop(struct wire_client *client)
{
	end_connection(&client->connection);
	free(client);
}
