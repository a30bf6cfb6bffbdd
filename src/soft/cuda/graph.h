/* graph: nodes and edges as a program made them (struct graph), and what is run (struct exec): a copy of a graph with
 * a plan. Private to the files graph*.c; others see core.h. Everything here is called under the api lock. */
#ifndef BELFRY_SOFT_CUDA_GRAPH_H
#define BELFRY_SOFT_CUDA_GRAPH_H

#include "soft/cuda/core.h"
#include "soft/cuda/graph_order.h"
#include "soft/cuda/handle.h"

struct exec;
struct node;
struct user_object;

/* ---- graph.c */
struct edge {
	struct node *from, *to;
	CUgraphEdgeData data;
};
struct attribute { /* of a kernel node, as set */
	CUlaunchAttributeID id;
	CUlaunchAttributeValue value;
};
struct node { /* CUgraphNode */
	struct graph *graph;
	uint64_t id, origin; /* origin: id of the node it is a copy of, or 0 */
	size_t index;	     /* graph::nodes */
	struct op op;
	struct context *context; /* in which it runs; NULL: that of the launch */
	bool is_disabled;	 /* an exec's: cuGraphNodeSetEnabled */
	CUkernel kernel;	 /* by which it was named, or NULL: by its function */
	void **param_pointers;	 /* what cuGraphKernelNodeGetParams returned; made on demand */
	CUDA_MEMCPY3D *copy;	 /* as given, or NULL: captured */
	CUmemPoolProps pool;	 /* of an allocation */
	struct attribute *attributes;
	size_t attribute_count;
};
struct object_uses {
	struct user_object *object;
	unsigned count;
};
struct graph {		     /* CUgraph */
	uint64_t id, origin; /* origin: the graph it is a copy of, or 0 */
	struct node **nodes;
	size_t node_count, node_room;
	struct edge *edges; /* in the order in which they were added */
	size_t edge_count, edge_room;
	struct node *parent;	 /* whose child it is, or NULL */
	struct capture *capture; /* that it is being made by: not to be destroyed meanwhile */
	unsigned exec_count;	 /* made from it; matters with memory nodes */
	struct object_uses *objects;
	size_t object_count;
};
CUresult graph_new(struct graph **graph);
CUresult graph_find(CUgraph handle, struct graph **graph);
CUresult node_find(CUgraphNode handle, struct node **node);
/* The op is the node's from here on, even if this fails. */
CUresult graph_add_node(struct graph *graph, struct op *op, struct context *context, struct node **node);
void graph_remove_node(struct node *node);	 /* and its edges */
bool node_has_function(const struct node *node); /* a kernel's: its module may have been unloaded since */
CUresult graph_add_edge(struct graph *graph, struct node *from, struct node *to, const CUgraphEdgeData *data);
struct edge *graph_find_edge(const struct graph *graph, const struct node *from, const struct node *to);
/* Of memory nodes: they cannot be copied or taken out. Children count. */
bool graph_has_memory(const struct graph *graph);
/* The node of the copy that stands for this one, or NULL; children are searched. */
struct node *graph_find_copy(const struct graph *copy, const struct node *node);
/* A copy that may have memory nodes: an exec's. */
CUresult graph_copy(const struct graph *from, struct graph **to);

/* ---- graph_object.c: user objects */
CUresult objects_copy(const struct graph *from, struct graph *to);
void objects_release(struct graph *graph);
/* LEAVE for functions that may have released one: calls destructors after giving up the lock. */
CUresult objects_leave(CUresult result);

/* ---- graph_params.c: parameters of nodes, from and to the structures of the API */
/* Makes the op; dptr of an allocation is written back. The context in which the node runs comes with it. */
CUresult params_to_op(const struct graph *graph, CUgraphNodeParams *params, struct op *op,
		      struct context **context);
/* What the op does not tell: names and shapes as they were given. */
CUresult params_keep(const CUgraphNodeParams *params, struct node *node);
/* What it points to is the node's. */
CUresult params_from_node(struct node *node, CUgraphNodeParams *params);
CUgraphNodeType params_type(enum op_kind kind);
/* From the structures of single kinds. */
void params_set_kernel(CUgraphNodeParams *params, const CUDA_KERNEL_NODE_PARAMS *from);
void params_set_kernel_v1(CUgraphNodeParams *params, const CUDA_KERNEL_NODE_PARAMS_v1 *from);
void params_set_memset(CUgraphNodeParams *params, const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context);
void params_set_values(CUgraphNodeParams *params, const CUDA_BATCH_MEM_OP_NODE_PARAMS *from);

/* ---- graph_attributes.c */
CUresult node_set_attribute(struct node *node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

/* ---- graph_node_params.c: the op becomes the node's */
void node_replace_op(struct node *node, struct op *op, struct context *context);

/* ---- graph_nodes.c: dependencies as the program names them: nodes of the graph, each once, with sound data or none */
CUresult edges_check(const struct graph *graph, const CUgraphNode *handles, const CUgraphEdgeData *data,
		     size_t count);

/* ---- graph_exec.c */
struct plan_place {
	struct context *context; /* NULL: wherever it is launched */
	uint64_t context_id;
};
struct exec {		       /* CUgraphExec */
	struct graph *graph;   /* a copy, nodes with their origins */
	struct graph *made_of; /* counts it (exec_count) while it lives, known by … */
	uint64_t made_of_id;
	uint64_t flags;
	struct order order;
	struct node **nodes; /* of each step; NULL: a child's beginning or end */
	struct plan_place *places;
	uint32_t place_count;
	struct fence *fences; /* of each step, of the launch under way */
	struct fence done;    /* of the last launch: exec_done, its context may be no more */
	struct context *done_context;
	uint64_t done_context_id;
	struct node **by_origin;
	uint32_t node_count; /* of by_origin: all, children's included */
	bool is_launching;
};
CUresult exec_find(CUgraphExec handle, struct exec **exec);
CUresult exec_new(struct graph *graph, uint64_t flags, struct exec **exec,
		  CUDA_GRAPH_INSTANTIATE_PARAMS *why);
void exec_free(struct exec *exec);
struct fence exec_done(const struct exec *exec);
/* The exec's copy of a node of the graph that it was made of. */
CUresult exec_find_node(struct exec *exec, CUgraphNode handle, struct node **node);

/* ---- graph_launch.c */
CUresult exec_launch(struct exec *exec, struct stream *stream);

/* ---- graph_update.c */
/* What may replace what in an exec. 0: it may. */
CUgraphExecUpdateResult update_check(const struct node *old, const struct op *op,
				     const struct context *context);
/* All of it, or nothing and CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE. */
CUresult update_graph(struct graph *old, const struct graph *new, CUgraphExecUpdateResultInfo *info);

/* ---- graph_lane.c: streams of our own on which branches run side by side */
CUresult lane_take(struct context *context, const struct exec *exec, struct stream **stream);
void lane_give_back(const struct stream *stream);
void lane_forget(const struct exec *exec);

#endif
