/* Where vGPUs can be reached: one socket each, in one folder per user. */
#ifndef BELFRY_SERVER_RUNTIME_H
#define BELFRY_SERVER_RUNTIME_H

#include <stddef.h>

#include "base/error.h"
#include "server/protocol.h"

#define RUNTIME_NAME_MAX 63

/* [a-z0-9][a-z0-9._-]{0,62} */
int runtime_check_name(const char *name, struct bf_error *err);
/* The folder, made if need be; it must be ours and nobody else's to write. */
int runtime_folder(char *to, size_t room, struct bf_error *err);
/* Listen as `name`. The socket's path goes to `path`, to be removed at the end. */
int runtime_listen(const char *name, char *path, size_t room, struct bf_error *err);
/* One request to `name`, and the reply. */
int runtime_ask(const char *name, const struct protocol_request *request, struct protocol_reply *reply,
		struct bf_error *err);
/* Call visit for the name of every vGPU that answers to somebody; sockets nobody listens on are removed. */
int runtime_each(void (*visit)(void *context, const char *name), void *context, struct bf_error *err);

#endif
