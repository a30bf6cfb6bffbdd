/* The text format of Prometheus, version 0.0.4. Private to the module. */
#ifndef BELFRY_METRICS_WRITE_H
#define BELFRY_METRICS_WRITE_H

#include <stdint.h>
#include <stdio.h>

enum { WRITE_LABELS_MAX = 10 };

/* Values are copied: they need not outlive the call. */
struct write_labels {
	unsigned count;
	const char *names[WRITE_LABELS_MAX];
	char values[WRITE_LABELS_MAX][256];
};

void write_label(struct write_labels *labels, const char *name, const char *value); /* NULL: "" */
void write_label_number(struct write_labels *labels, const char *name, uint64_t value);

/* Written before the samples of a family. */
void write_family(FILE *out, const char *name, const char *type, const char *help);
void write_sample(FILE *out, const char *name, const struct write_labels *labels, double value);

#endif
