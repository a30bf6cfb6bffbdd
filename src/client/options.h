/* The options of the client library: a list of keys and values that ends with NULL. Pure. */
#ifndef BELFRY_CLIENT_OPTIONS_H
#define BELFRY_CLIENT_OPTIONS_H

#include "base/error.h"
#include "client/protocol.h"

enum { OPTIONS_MAX = 64 }; /* pairs: a list without an end is noticed */

/* Read the options of PROTOCOL_CREATE or PROTOCOL_SET, as request->op says, into the request. A list of NULL is empty. */
int options_read(const char *const *options, struct protocol_request *request, struct bf_error *err);

#endif
