/* Collects the reports of belfryd and its GPU servers in one JSON object. */
#ifndef BELFRY_CLIENT_GATHER_H
#define BELFRY_CLIENT_GATHER_H

#include <json-c/json.h>

#include "client/talk.h"

/* The value at a path such as "mem.used", or NULL. */
struct json_object *gather_at(struct json_object *from, const char *path);
/* The text at a path; `otherwise` if there is none. */
const char *gather_text(struct json_object *from, const char *path, const char *otherwise);
/* The GPU that an entry of "gpus" describes. */
struct protocol_gpu gather_gpu(struct json_object *gpu);

/* The reply to PROTOCOL_HELLO, which the caller puts. */
int gather_hello(const struct talk_way *way, struct json_object **hello, struct bf_error *err);
/* {"daemon": {...}, "gpus": [...], "vgpus": [...], "failed": [...], "pending": [...]}: of all GPUs, or of one vGPU
 * and its GPU if name is not NULL. If a GPU server does not answer, its error is returned and *top has the reports of
 * the others. *top is NULL if there is nothing to report; otherwise the caller puts it. */
int gather_report(const struct talk_way *way, const char *name, struct json_object **top,
		  struct bf_error *err);

#endif
