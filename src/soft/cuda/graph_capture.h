/* What graph_capture.c and graph_capture_api.c share. */
#ifndef BELFRY_SOFT_CUDA_GRAPH_CAPTURE_H
#define BELFRY_SOFT_CUDA_GRAPH_CAPTURE_H

#include "soft/cuda/graph.h"

/* What the next node of a stream will depend on. */
struct tail {
	CUgraphNode *nodes;
	CUgraphEdgeData *data;
	size_t count;
};
struct member {		       /* a stream that takes part */
	struct stream *stream; /* NULL: it has been destroyed since */
	struct tail tail;
	struct member *next; /* capture::members */
};
struct capture {
	uint64_t id;
	struct graph *graph; /* NULL when it is over */
	bool owns_graph;     /* not one of the program's, captured into */
	bool is_invalid;
	CUstreamCaptureMode mode;
	uint64_t thread; /* that began it */
	struct stream *origin;
	struct member *members;
	unsigned event_count; /* events last recorded in it: they keep it */
	struct capture *next; /* those that are not over */
};

uint64_t capture_thread(void);				      /* a number for the calling thread */
extern _Thread_local CUstreamCaptureMode capture_thread_mode; /* cuThreadExchangeStreamCaptureMode */
CUresult capture_begin(struct stream *stream, struct graph *graph, CUstreamCaptureMode mode,
		       struct capture **capture);
/* Ends it in all its streams. The graph is the caller's to keep or free. */
struct graph *capture_end(struct capture *capture);
struct member *capture_member(const struct capture *capture, const struct stream *stream);
bool capture_is_joined(const struct capture *capture);
/* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT if the stream is the legacy one and a capture is under way that it would wait for. */
CUresult capture_find_implicit(const struct stream *stream, struct capture **capture);

void tail_clear(struct tail *tail);
CUresult tail_add(struct tail *tail, CUgraphNode node, const CUgraphEdgeData *data);

#endif
