/* verify: traces of runs (coro/trace_format.h), and whether two of them are equal. Reads files; starts nothing and prints
 * nothing.
 *
 * Events are compared stream by stream: how streams and processes interleave is not part of a result. Streams have no names, so
 * they are matched by what they did. */
#ifndef BELFRY_VERIFY_H
#define BELFRY_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* ---- read.c */
enum verify_kind { VERIFY_LAUNCH, VERIFY_GRAPH, VERIFY_COPY, VERIFY_BUFFER };

struct verify_event {
	uint64_t number, stream;
	uint64_t lane;	 /* set by verify_compare */
	uint64_t result; /* a hash of all but the parameters: name and shape, or content */
	uint64_t parameters;
	const char *text; /* from GRID or BYTES on, for messages */
	uint32_t thread, file;
	uint32_t what; /* a name of its file, or a graph */
	uint8_t kind;
	bool has_parameters;
	bool is_loose; /* its parameters vary from run to run */
};

/* A kernel node of a graph. */
struct verify_node {
	uint64_t result, parameters;
	const char *text;
	uint32_t name;
	bool has_parameters;
};

/* The nodes of a graph, in verify_file::nodes. */
struct verify_graph {
	size_t first, count;
};

/* The trace of one process. */
struct verify_file {
	char *text;
	const char **names;
	struct verify_node *nodes;
	struct verify_graph *graphs;
	size_t name_count, name_room, node_count, node_room, graph_count, graph_room;
};

/* The traces of all processes of a run. */
struct verify_trace {
	struct verify_file *files;
	struct verify_event *events;
	size_t file_count, count, room;
	uint64_t counts[VERIFY_BUFFER + 1]; /* events of each kind */
};

int verify_read(const char *folder, struct verify_trace *trace, struct bf_error *err);
/* Adds the trace of a process, of which `text` is the content. The text belongs to the trace from now on. */
int verify_add(struct verify_trace *trace, char *text, const char *path, struct bf_error *err);
void verify_free(struct verify_trace *trace);
bool verify_has_buffer(const struct verify_trace *trace, const char *name);

/* ---- compare.c */
enum verify_way {
	VERIFY_SAME,
	VERIFY_OTHER,	   /* another launch or content */
	VERIFY_PARAMETERS, /* the same launch with other parameters */
	VERIFY_MISSING,	   /* the other run lacks it */
	VERIFY_ADDITIONAL, /* the reference lacks it */
};
struct verify_difference {
	enum verify_way way;
	const struct verify_event *event, *other; /* NULL where one lacks it */
	size_t place;				  /* among the events of its stream */
};

/* Finds the first difference. Sorts the events of both, so that what was found before is no longer valid. */
int verify_compare(struct verify_trace *reference, struct verify_trace *other,
		   struct verify_difference *found);
/* Compares two runs alone; parameters that differ are left out when the reference is compared later. Returns how many. */
size_t verify_loosen(struct verify_trace *reference, struct verify_trace *other);

/* ---- say.c */
/* The kernel that the difference is about, or whose result it is; NULL: none is known. */
const char *verify_kernel(const struct verify_difference *difference, const struct verify_trace *reference,
			  const struct verify_trace *other);
/* What differs, in words. Returns `text`. */
const char *verify_say(const struct verify_difference *difference, const struct verify_trace *reference,
		       const struct verify_trace *other, char *text, size_t room);

#endif
