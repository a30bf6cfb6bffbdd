/* wire: gRPC connections on Unix sockets, in an event loop. A connection that fails is closed and forgotten. */
#ifndef BELFRY_KUBE_WIRE_H
#define BELFRY_KUBE_WIRE_H

#include "base/error.h"
#include "base/loop.h"
#include "kube/grpc.h"

enum { WIRE_CONNECTIONS_MAX = 32 };

/* A listening socket and its connections. */
struct wire_server;
struct wire_server *wire_listen(struct loop *loop, const char *path, const struct grpc_events *events,
				struct bf_error *err);
/* Closes the connections. Removes the socket if it is still the one that was made. */
void wire_close(struct wire_server *server);
/* Whether the file of the socket is still there. The kubelet removes all sockets when it starts. */
bool wire_is_there(const struct wire_server *server);
/* Send what was submitted to connections outside of their own calls. */
void wire_flush(struct wire_server *server);

/* A call to a socket. grpc_events::answered is called once, not from within this function, and not after wire_drop(). */
struct wire_client;
struct wire_client *wire_call(struct loop *loop, const char *socket, const struct grpc_events *events,
			      const char *path, struct proto_bytes message, struct bf_error *err);
void wire_drop(struct wire_client *client);

#endif
