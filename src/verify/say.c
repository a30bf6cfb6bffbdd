/* Differences in words. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "verify/verify.h"

enum { NOUN_ROOM = 640, SHAPE_ROOM = 160, NAME_SHOWN = 400 };

static const struct verify_file *file_of(const struct verify_trace *trace, const struct verify_event *event)
{
	return &trace->files[event->file];
}

static const struct verify_node *nodes_of(const struct verify_trace *trace, const struct verify_event *event,
					  size_t *count)
{
	const struct verify_file *file = file_of(trace, event);
	const struct verify_graph *graph = &file->graphs[event->what];

	*count = graph->count;
	return graph->count ? &file->nodes[graph->first] : NULL;
}

static bool is_launch(const struct verify_event *event)
{
	return event && (event->kind == VERIFY_LAUNCH || event->kind == VERIFY_GRAPH);
}

/* Of a graph, the last kernel. */
static const char *name_of(const struct verify_trace *trace, const struct verify_event *event)
{
	const struct verify_node *nodes;
	size_t count;

	if (event->kind == VERIFY_LAUNCH)
		return file_of(trace, event)->names[event->what];
	nodes = nodes_of(trace, event, &count);
	return count ? file_of(trace, event)->names[nodes[count - 1].name] : NULL;
}

/* The launch whose result is copied, most likely: the last one on the same stream, or in the same process. */
static const struct verify_event *launch_before(const struct verify_trace *trace,
						const struct verify_event *event)
{
	const struct verify_event *found = NULL;

	for (size_t i = 0; i < trace->count; i++) {
		const struct verify_event *at = &trace->events[i];
		bool is_nearer = at->stream == event->stream;

		if (!is_launch(at) || at->file != event->file || at->number >= event->number)
			continue;
		if (!found || is_nearer > (found->stream == event->stream) ||
		    (is_nearer == (found->stream == event->stream) && at->number > found->number))
			found = at;
	}
	return found;
}

/* The first kernel node that differs; the number of nodes of the smaller graph: none of it. */
static size_t node_difference(const struct verify_node *a, size_t a_count, const struct verify_node *b,
			      size_t b_count)
{
	size_t i = 0;

	while (i < a_count && i < b_count && a[i].result == b[i].result &&
	       (a[i].parameters == b[i].parameters || !a[i].has_parameters || !b[i].has_parameters))
		i++;
	return i;
}

static const char *graph_kernel(const struct verify_difference *difference,
				const struct verify_trace *reference, const struct verify_trace *other)
{
	size_t a_count, b_count, i;
	const struct verify_node *a = nodes_of(reference, difference->event, &a_count);
	const struct verify_node *b = nodes_of(other, difference->other, &b_count);

	i = node_difference(a, a_count, b, b_count);
	if (i < a_count)
		return file_of(reference, difference->event)->names[a[i].name];
	return i < b_count ? file_of(other, difference->other)->names[b[i].name] : NULL;
}

static bool are_graphs(const struct verify_difference *difference)
{
	return difference->event && difference->other && difference->event->kind == VERIFY_GRAPH &&
	       difference->other->kind == VERIFY_GRAPH;
}

const char *verify_kernel(const struct verify_difference *difference, const struct verify_trace *reference,
			  const struct verify_trace *other)
{
	const struct verify_event *before;

	if (are_graphs(difference))
		return graph_kernel(difference, reference, other);
	if (is_launch(difference->event))
		return name_of(reference, difference->event);
	if (is_launch(difference->other))
		return name_of(other, difference->other);
	before = difference->event ? launch_before(reference, difference->event)
				   : launch_before(other, difference->other);
	if (!before)
		return NULL;
	return name_of(difference->event ? reference : other, before);
}

/* GRID BLOCK SHARED ..., whose numbers are hexadecimal. */
static const char *shape(const char *text, char to[SHAPE_ROOM])
{
	unsigned n[7] = { 0 };

	if (sscanf(text, "%x,%x,%x %x,%x,%x %x", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6]) != 7)
		snprintf(to, SHAPE_ROOM, "another shape");
	else
		snprintf(to, SHAPE_ROOM, "grid %u,%u,%u, block %u,%u,%u, %u bytes of shared memory", n[0],
			 n[1], n[2], n[3], n[4], n[5], n[6]);
	return to;
}

static const char *noun(const struct verify_trace *trace, const struct verify_event *event,
			char to[NOUN_ROOM])
{
	uint64_t bytes = strtoull(event->text, NULL, 16);
	size_t count;

	switch (event->kind) {
	case VERIFY_LAUNCH:
		snprintf(to, NOUN_ROOM, "a launch of %.*s", NAME_SHOWN, name_of(trace, event));
		break;
	case VERIFY_GRAPH:
		nodes_of(trace, event, &count);
		snprintf(to, NOUN_ROOM, "a launch of a graph of %zu kernels", count);
		break;
	case VERIFY_COPY:
		snprintf(to, NOUN_ROOM, "a copy of %" PRIu64 " bytes to the host", bytes);
		break;
	default:
		snprintf(to, NOUN_ROOM, "the buffer %.*s of %" PRIu64 " bytes", NAME_SHOWN,
			 strrchr(event->text, ' ') + 1, bytes);
	}
	return to;
}

static bool has_same_name(const struct verify_trace *reference, const struct verify_event *a,
			  const struct verify_trace *other, const struct verify_event *b)
{
	return a->kind == VERIFY_LAUNCH && b->kind == VERIFY_LAUNCH &&
	       !strcmp(name_of(reference, a), name_of(other, b));
}

/* Two shapes that are written alike differ in their attributes. */
static void say_shape(const char *name, const char *text, const char *other_text, char *to, size_t room)
{
	char a[SHAPE_ROOM], b[SHAPE_ROOM];

	shape(text, a);
	shape(other_text, b);
	if (strcmp(a, b))
		snprintf(to, room, "kernel %.*s has %s instead of %s", NAME_SHOWN, name, b, a);
	else
		snprintf(to, room, "kernel %.*s has other attributes of the launch", NAME_SHOWN, name);
}

static void say_graphs(const struct verify_difference *difference, const struct verify_trace *reference,
		       const struct verify_trace *other, char *to, size_t room)
{
	const char *name = graph_kernel(difference, reference, other);
	size_t a_count, b_count, i;
	const struct verify_node *a = nodes_of(reference, difference->event, &a_count);
	const struct verify_node *b = nodes_of(other, difference->other, &b_count);

	i = node_difference(a, a_count, b, b_count);
	if (i >= a_count || i >= b_count)
		snprintf(to, room, "a launch of a graph of %zu kernels instead of %zu", b_count, a_count);
	else if (a[i].result == b[i].result)
		snprintf(to, room, "kernel %.*s of a graph has other parameters", NAME_SHOWN, name);
	else
		say_shape(name, a[i].text, b[i].text, to, room);
}

static void say_other(const struct verify_difference *difference, const struct verify_trace *reference,
		      const struct verify_trace *other, char *to, size_t room)
{
	const struct verify_event *a = difference->event, *b = difference->other;
	char noun_a[NOUN_ROOM], noun_b[NOUN_ROOM];

	if (are_graphs(difference)) {
		say_graphs(difference, reference, other, to, room);
		return;
	}
	if (has_same_name(reference, a, other, b)) {
		say_shape(name_of(reference, a), a->text, b->text, to, room);
		return;
	}
	noun(reference, a, noun_a);
	noun(other, b, noun_b);
	if (strcmp(noun_a, noun_b))
		snprintf(to, room, "%s instead of %s", noun_b, noun_a);
	else
		snprintf(to, room, "%s has other content", noun_a);
}

static void say_way(const struct verify_difference *difference, const struct verify_trace *reference,
		    const struct verify_trace *other, char *to, size_t room)
{
	char text[NOUN_ROOM];

	switch (difference->way) {
	case VERIFY_SAME:
		snprintf(to, room, "no difference");
		break;
	case VERIFY_OTHER:
		say_other(difference, reference, other, to, room);
		break;
	case VERIFY_PARAMETERS:
		if (are_graphs(difference))
			say_graphs(difference, reference, other, to, room);
		else
			snprintf(to, room, "kernel %.*s has other parameters", NAME_SHOWN,
				 name_of(reference, difference->event));
		break;
	case VERIFY_MISSING:
		snprintf(to, room, "%s is missing", noun(reference, difference->event, text));
		break;
	case VERIFY_ADDITIONAL:
		snprintf(to, room, "%s is additional", noun(other, difference->other, text));
	}
}

const char *verify_say(const struct verify_difference *difference, const struct verify_trace *reference,
		       const struct verify_trace *other, char *text, size_t room)
{
	const char *kernel = difference->way ? verify_kernel(difference, reference, other) : NULL;
	size_t used;

	say_way(difference, reference, other, text, room);
	used = strlen(text);
	if (!difference->way || is_launch(difference->event) || is_launch(difference->other))
		return bf_plain(text);
	if (kernel)
		snprintf(text + used, room - used, "; the last kernel before it is %.*s", NAME_SHOWN, kernel);
	else
		snprintf(text + used, room - used, "; no kernel ran before it");
	return bf_plain(text);
}
