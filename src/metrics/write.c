#include "metrics/write.h"

#include <inttypes.h>

void write_label(struct write_labels *labels, const char *name, const char *value)
{
	if (labels->count == WRITE_LABELS_MAX)
		return;
	labels->names[labels->count] = name;
	snprintf(labels->values[labels->count], sizeof(labels->values[0]), "%s", value ? value : "");
	labels->count++;
}

void write_label_number(struct write_labels *labels, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	write_label(labels, name, text);
}

void write_family(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Only a backslash, a quote and a newline must be escaped. */
static void write_value(FILE *out, const char *value)
{
	for (; *value; value++)
		if (*value == '\n')
			fputs("\\n", out);
		else
			fprintf(out, "%s%c", *value == '\\' || *value == '"' ? "\\" : "", *value);
}

void write_sample(FILE *out, const char *name, const struct write_labels *labels, double value)
{
	fprintf(out, "%s{", name);
	for (unsigned i = 0; i < labels->count; i++) {
		fprintf(out, "%s%s=\"", i ? "," : "", labels->names[i]);
		write_value(out, labels->values[i]);
		fputc('"', out);
	}
	fprintf(out, "} %.15g\n", value);
}
