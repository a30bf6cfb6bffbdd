/* Reports of belfryd, as JSON, for the commands that print them. */
#ifndef BELFRY_CLI_REPORT_H
#define BELFRY_CLI_REPORT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/soft.h"
#include "client/gather.h"
#include "client/protocol.h"

/* Get {"daemon": {...} or null, "gpus": [...], "vgpus": [...], "failed": [...], "pending": [...]} of all
 * GPUs, or of the vGPU `name` and its GPU if name is not NULL. *top is always set; the caller puts it. It is
 * empty if no belfryd runs. After an error it can hold part of the report. */
int report_gather(const char *name, struct json_object **top, struct bf_error *err);
/* Get belfryd's GPUs, from its reply to PROTOCOL_HELLO. *hello is NULL after an error. */
int report_hello(struct json_object **hello, struct bf_error *err);
/* The pending change of a vGPU, from report_gather or report_hello; NULL: none. */
struct json_object *report_pending(struct json_object *from, const char *name);
/* Print all pending changes, one per line. */
void report_print_pending(struct json_object *from);
/* "soft:1"; for a GPU with a folder, "soft:1 (name=two)" or "soft:1 (FOLDER)". */
const char *report_label(const char *gpu, const char *folder, char *to, size_t room);
/* Select one of belfryd's GPUs. Returns -ENOENT if none that matches is in use. */
int report_choose(const struct cli_gpu *which, struct protocol_gpu *gpu, struct bf_error *err);

/* The value at a path such as "mem.used"; NULL, 0 or `otherwise` if it is absent. */
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
/* The name of the owner, or the uid if it has no name. */
const char *report_user(struct json_object *vgpu, char *to, size_t room);
/* "40:100". `to` has at least 32 bytes. */
const char *report_time(struct json_object *vgpu, char *to, size_t room);
const char *report_domain(struct json_object *vgpu);			/* "-": it has no named domain */
const char *report_sm(struct json_object *vgpu, char *to, size_t room); /* "-": it does not share SMs */
void report_print(struct json_object *top);
/* Print the object on one line, and release it. */
void report_print_line(struct json_object *top);
/* Print {"name": NAME, "us": TIME} on one line; without the name if it is NULL. */
void report_print_took(const char *name, uint64_t took_ns);

#endif
