/* grpc: one connection of gRPC, over HTTP/2 (RFC 9113), as server or client. Bytes of the peer go in, bytes for the peer
 * come out; it has no socket and no clock, so that a fuzzer can drive it. The memory that a peer can occupy is bounded:
 * streams, and bytes of messages. Compressed messages are refused. */
#ifndef BELFRY_KUBE_GRPC_H
#define BELFRY_KUBE_GRPC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kube/proto.h"

enum { GRPC_STREAMS_MAX = 64, GRPC_MESSAGE_MAX = 256 << 10, GRPC_PATH_MAX = 127, GRPC_TEXT_MAX = 255 };

/* Codes of the gRPC protocol. */
enum grpc_status {
	GRPC_OK = 0,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID = 3,
	GRPC_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
};

struct grpc;
struct grpc_call; /* a stream of a server */

struct grpc_events {
	void *context;
	/* Server: a call with its whole message has arrived. Answer it with grpc_send() and grpc_finish(), now or later. */
	void (*called)(void *context, struct grpc_call *call, const char *path, struct proto_bytes message);
	/* Server: the call is gone, and must not be used any more. */
	void (*gone)(void *context, struct grpc_call *call);
	/* Client: the call has ended with this status. */
	void (*answered)(void *context, enum grpc_status status, const char *text);
};

/* NULL: out of memory. */
struct grpc *grpc_new_server(const struct grpc_events *events);
/* A client that makes one call, without waiting for the answer. `path` is "/package.Service/Method". */
struct grpc *grpc_new_client(const struct grpc_events *events, const char *path, struct proto_bytes message);
void grpc_free(struct grpc *grpc);

/* Bytes from the peer. Negative: the connection must be closed. */
int grpc_feed(struct grpc *grpc, const uint8_t *bytes, size_t count);
/* Bytes for the peer, valid until the next call. 0: none; negative: the connection must be closed. */
ssize_t grpc_pull(struct grpc *grpc, const uint8_t **bytes);
/* Whether nothing more comes out and nothing more is expected: the connection has ended in order. */
bool grpc_is_over(const struct grpc *grpc);

/* Server: send a message. A call may have several; if the previous one is not sent yet, the new one replaces it. */
void grpc_send(struct grpc_call *call, const struct proto_writer *message);
/* Server: end the call after what was sent. text may be NULL. */
void grpc_finish(struct grpc_call *call, enum grpc_status status, const char *text);

#endif
