/* The reports of belfryd, as JSON. Private to the module. */
#ifndef BELFRY_METRICS_READ_H
#define BELFRY_METRICS_READ_H

#include <json-c/json.h>

#include "metrics/metrics.h"

struct read_report {
	struct json_object *root, *gpu, *vgpus;
};

struct read {
	const struct metrics_source *source;
	struct read_report *reports; /* as many as the source has */
	struct json_object *account;
};

/* The value at a path such as "mem.used"; NULL if there is none. */
struct json_object *read_at(struct json_object *in, const char *path);
double read_number(struct json_object *in, const char *path);
const char *read_text(struct json_object *in, const char *path);

int read_all(struct read *read, const struct metrics_source *source, struct bf_error *err);
void read_free(struct read *read);

#endif
