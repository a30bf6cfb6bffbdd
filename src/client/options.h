/* The options of the client library: a list of keys and values, terminated by NULL. Pure. */
#ifndef BELFRY_CLIENT_OPTIONS_H
#define BELFRY_CLIENT_OPTIONS_H

#include "base/error.h"
#include "client/protocol.h"

enum { OPTIONS_MAX = 64 }; /* pairs; detects a list without an end */

/* Read the options of PROTOCOL_CREATE or PROTOCOL_SET, according to request->op, into the request. options may be
 * NULL. */
int options_read(const char *const *options, struct protocol_request *request, struct bf_error *err);

#endif
