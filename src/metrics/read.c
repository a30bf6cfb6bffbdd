#include "metrics/read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct json_object *read_at(struct json_object *in, const char *path)
{
	char part[32];

	while (in && *path) {
		size_t length = strcspn(path, ".");

		snprintf(part, sizeof(part), "%.*s", (int)length, path);
		in = json_object_object_get(in, part);
		path += length + (path[length] == '.');
	}
	return in;
}

double read_number(struct json_object *in, const char *path)
{
	return json_object_get_double(read_at(in, path));
}

const char *read_text(struct json_object *in, const char *path)
{
	return json_object_get_string(read_at(in, path));
}

static bool parse(struct read_report *report, const char *text)
{
	report->root = json_tokener_parse(text);
	report->gpu = read_at(report->root, "gpu");
	report->vgpus = read_at(report->root, "vgpus");
	return json_object_is_type(report->gpu, json_type_object) &&
	       json_object_is_type(report->vgpus, json_type_array);
}

int read_all(struct read *read, const struct metrics_source *source, struct bf_error *err)
{
	bool is_good = true;

	*read = (struct read){ .source = source,
			       .reports = calloc(source->count + 1, sizeof(*read->reports)),
			       .account = source->account ? json_tokener_parse(source->account) : NULL };
	if (!read->reports)
		return bf_fail(err, ENOMEM, "no memory for the metrics");
	for (unsigned i = 0; i < source->count; i++)
		is_good &= parse(&read->reports[i], source->reports[i]);
	if (source->account)
		is_good &= json_object_is_type(read_at(read->account, "totals"), json_type_array) &&
			   json_object_is_type(read_at(read->account, "events.kinds"), json_type_object);
	return is_good ? 0
		       : bf_fail(err, EPROTO,
				 "belfryd's report is not understood; use programs of one release");
}

void read_free(struct read *read)
{
	for (unsigned i = 0; read->reports && i < read->source->count; i++)
		json_object_put(read->reports[i].root);
	json_object_put(read->account);
	free(read->reports);
}
