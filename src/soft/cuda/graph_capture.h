/* Shared by graph_capture.c and graph_capture_api.c. */
#ifndef BELFRY_SOFT_CUDA_GRAPH_CAPTURE_H
#define BELFRY_SOFT_CUDA_GRAPH_CAPTURE_H

#include "soft/cuda/graph.h"

/* The dependencies of the next node of a stream. */
struct tail {
	CUgraphNode *nodes;
	CUgraphEdgeData *data;
	size_t count;
};
struct member {		       /* a stream of the capture */
	struct stream *stream; /* NULL: destroyed */
	struct tail tail;
	struct member *next; /* capture::members */
};
struct capture {
	uint64_t id;
	struct graph *graph; /* NULL: the capture has ended */
	bool owns_graph;     /* false: captures into a graph of the program */
	bool is_invalid;
	CUstreamCaptureMode mode;
	uint64_t thread; /* that began the capture */
	struct stream *origin;
	struct member *members;
	unsigned event_count; /* events last recorded in it; they keep it alive */
	struct capture *next; /* list of active captures */
};

uint64_t capture_thread(void);				      /* a number for the calling thread */
extern _Thread_local CUstreamCaptureMode capture_thread_mode; /* cuThreadExchangeStreamCaptureMode */
CUresult capture_begin(struct stream *stream, struct graph *graph, CUstreamCaptureMode mode,
		       struct capture **capture);
/* End the capture in all its streams. The caller owns the graph. */
struct graph *capture_end(struct capture *capture);
struct member *capture_member(const struct capture *capture, const struct stream *stream);
bool capture_is_joined(const struct capture *capture);
/* Returns CUDA_ERROR_STREAM_CAPTURE_IMPLICIT if the stream is the legacy stream and would wait for a
 * capturing stream. */
CUresult capture_find_implicit(const struct stream *stream, struct capture **capture);

void tail_clear(struct tail *tail);
CUresult tail_add(struct tail *tail, CUgraphNode node, const CUgraphEdgeData *data);

#endif
