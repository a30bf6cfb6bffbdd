/* What belfryd reports, as JSON, for the commands that show it. */
#ifndef BELFRY_CLI_REPORT_H
#define BELFRY_CLI_REPORT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/soft.h"
#include "client/gather.h"
#include "client/protocol.h"

/* {"daemon": {...} or null, "gpus": [...], "vgpus": [...], "failed": [...], "pending": [...]}: of all GPUs, or of the one
 * vGPU of that name and its GPU if name is not NULL. There is always something in *top, to be put; where no belfryd runs it is empty and that is no
 * error. An error may leave the rest in it. */
int report_gather(const char *name, struct json_object **top, struct bf_error *err);
/* The GPUs belfryd has, as its answer to PROTOCOL_HELLO tells. NULL and 0: the user's own does not run. */
int report_hello(struct json_object **hello, struct bf_error *err);
/* The change of the configuration that is pending for a vGPU, in what report_gather or report_hello gave; NULL: none. */
struct json_object *report_pending(struct json_object *from, const char *name);
/* All of them, a line each, for people. */
void report_print_pending(struct json_object *from);
/* "soft:1", and where another looks the same with the name or the folder: "soft:1 (name=two)". */
const char *report_label(const char *gpu, const char *folder, char *to, size_t room);
/* The one GPU of belfryd's that is meant. -ENOENT: it has none in use. */
int report_choose(const struct cli_gpu *which, struct protocol_gpu *gpu, struct bf_error *err);

/* What is at a path such as "mem.used"; NULL, 0 or `otherwise` if there is no such thing. */
static inline struct json_object *report_at(struct json_object *from, const char *path)
{
	return gather_at(from, path);
}
static inline const char *report_text(struct json_object *from, const char *path, const char *otherwise)
{
	return gather_text(from, path, otherwise);
}
int64_t report_number(struct json_object *from, const char *path);
double report_real(struct json_object *from, const char *path);
/* The name of its owner, or the number of one without a name. */
const char *report_user(struct json_object *vgpu, char *to, size_t room);
/* "40:100". At least 32 bytes of room. */
const char *report_time(struct json_object *vgpu, char *to, size_t room);
void report_print(struct json_object *top);

#endif
