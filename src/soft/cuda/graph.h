/* graph: the nodes and edges that a program made (struct graph), and the executable form (struct exec): a
 * copy of a graph with a plan. Private to the files graph*.c; other files use core.h. All functions are
 * called under the api lock. */
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
struct attribute { /* of a kernel node */
	CUlaunchAttributeID id;
	CUlaunchAttributeValue value;
};
struct node { /* CUgraphNode */
	struct graph *graph;
	uint64_t id, origin; /* origin: id of the node it was copied from, or 0 */
	size_t index;	     /* in graph::nodes */
	struct op op;
	struct context *context; /* in which it runs; NULL: that of the launch */
	bool is_disabled;	 /* of an exec: cuGraphNodeSetEnabled */
	CUkernel kernel;	 /* kernel handle; NULL: given as a function */
	void **param_pointers;	 /* returned by cuGraphKernelNodeGetParams; allocated on demand */
	CUDA_MEMCPY3D *copy;	 /* as given; NULL: captured */
	CUmemPoolProps pool;	 /* of an allocation */
	struct attribute *attributes;
	size_t attribute_count;
	struct exec **bodies; /* of a conditional node of an exec */
};
struct object_uses {
	struct user_object *object;
	unsigned count;
};
struct graph {		     /* CUgraph */
	uint64_t id, origin; /* origin: id of the graph it was copied from, or 0 */
	struct node **nodes;
	size_t node_count, node_room;
	struct edge *edges; /* in the order of insertion */
	size_t edge_count, edge_room;
	struct node *parent;	 /* the node whose child it is, or NULL */
	struct capture *capture; /* that is building it: must not be destroyed meanwhile */
	unsigned exec_count;	 /* execs made from it; for memory nodes */
	struct object_uses *objects;
	size_t object_count;
	struct condition **conditions; /* whose handles were made for it */
	size_t condition_count;
};
CUresult graph_new(struct graph **graph);
CUresult graph_find(CUgraph handle, struct graph **graph);
CUresult node_find(CUgraphNode handle, struct node **node);
/* The node owns the op, even after a failure. */
CUresult graph_add_node(struct graph *graph, struct op *op, struct context *context, struct node **node);
void graph_remove_node(struct node *node);	 /* and its edges */
bool node_has_function(const struct node *node); /* false for a kernel whose module was unloaded */
CUresult graph_add_edge(struct graph *graph, struct node *from, struct node *to, const CUgraphEdgeData *data);
struct edge *graph_find_edge(const struct graph *graph, const struct node *from, const struct node *to);
/* Whether there are memory nodes, also in children: they cannot be copied or removed. */
bool graph_has_memory(const struct graph *graph);
/* The node of the copy for this node, or NULL; searches children too. */
struct node *graph_find_copy(const struct graph *copy, const struct node *node);
/* A copy for an exec: memory nodes are allowed. */
CUresult graph_copy(const struct graph *from, struct graph **to);

/* ---- graph_object.c: user objects */
CUresult objects_copy(const struct graph *from, struct graph *to);
void objects_release(struct graph *graph);
/* LEAVE for functions that can release a user object: calls the destructors without the lock. */
CUresult objects_leave(CUresult result);

/* ---- graph_params.c: parameters of nodes, from and to the structures of the API */
/* Make the op and find the context in which the node runs. dptr of an allocation is written back. */
CUresult params_to_op(const struct graph *graph, CUgraphNodeParams *params, struct op *op,
		      struct context **context);
/* Store what the op does not contain: names and shapes as given. */
CUresult params_keep(const CUgraphNodeParams *params, struct node *node);
/* The node owns what the result points to. */
CUresult params_from_node(struct node *node, CUgraphNodeParams *params);
CUgraphNodeType params_type(enum op_kind kind);
CUresult params_find_context(CUcontext handle, struct context **context); /* NULL: the current one */
/* Convert the structures of each node type. */
void params_set_kernel(CUgraphNodeParams *params, const CUDA_KERNEL_NODE_PARAMS *from);
void params_set_kernel_v1(CUgraphNodeParams *params, const CUDA_KERNEL_NODE_PARAMS_v1 *from);
void params_set_memset(CUgraphNodeParams *params, const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context);
void params_set_values(CUgraphNodeParams *params, const CUDA_BATCH_MEM_OP_NODE_PARAMS *from);

/* ---- graph_condition.c: conditional nodes */
CUresult conditions_copy(const struct graph *from, struct graph *to);
void conditions_release(struct graph *graph);
CUresult condition_to_op(const struct graph *graph, CUDA_CONDITIONAL_NODE_PARAMS *params, struct op *op,
			 struct context **context);
void condition_from_op(const struct op_condition *op, CUDA_CONDITIONAL_NODE_PARAMS *params);
/* Execs of the bodies of a node of an exec; node_free_bodies also after a failure. */
CUresult node_make_bodies(struct node *node, CUDA_GRAPH_INSTANTIATE_PARAMS *why);
void node_free_bodies(struct node *node);
bool graph_has_conditions(const struct graph *graph); /* nodes, also in children */
/* Set the conditions that have a default, also of children, at the begin of a launch. */
CUresult conditions_begin(struct stream *stream, const struct graph *graph);
CUresult condition_submit(struct stream *stream, const struct node *node);

/* ---- graph_attributes.c */
CUresult node_set_attribute(struct node *node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

/* ---- graph_node_params.c: the node takes the op */
void node_replace_op(struct node *node, struct op *op, struct context *context);

/* ---- graph_nodes.c: check dependencies: nodes of the graph, each once, with valid data or none */
CUresult edges_check(const struct graph *graph, const CUgraphNode *handles, const CUgraphEdgeData *data,
		     size_t count);

/* ---- graph_exec.c */
struct plan_place {
	struct context *context; /* NULL: that of the launch */
	uint64_t context_id;
};
struct exec {		       /* CUgraphExec */
	struct graph *graph;   /* a copy; its nodes have origins */
	struct graph *made_of; /* its exec_count includes this exec; identified by … */
	uint64_t made_of_id;
	uint64_t flags;
	struct order order;
	struct node **nodes; /* of each step; NULL: begin or end of a child */
	struct plan_place *places;
	uint32_t place_count;
	struct fence *fences; /* of each step of the current launch */
	struct fence done;    /* of the last launch; use exec_done, its context may be gone */
	struct context *done_context;
	uint64_t done_context_id;
	struct node **by_origin;
	uint32_t node_count; /* of by_origin, children included */
	bool is_launching;
};
CUresult exec_find(CUgraphExec handle, struct exec **exec);
CUresult exec_new(struct graph *graph, uint64_t flags, struct exec **exec,
		  CUDA_GRAPH_INSTANTIATE_PARAMS *why);
void exec_free(struct exec *exec);
struct fence exec_done(const struct exec *exec);
/* The exec's copy of a node of the original graph. */
CUresult exec_find_node(struct exec *exec, CUgraphNode handle, struct node **node);

/* ---- graph_launch.c */
CUresult exec_launch(struct exec *exec, struct stream *stream);

/* ---- graph_update.c */
/* Whether `op` can replace that of a node of an exec. 0: it can. */
CUgraphExecUpdateResult update_check(const struct node *old, const struct op *op,
				     const struct context *context);
/* Updates everything, or nothing and returns CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE. */
CUresult update_graph(struct graph *old, const struct graph *new, CUgraphExecUpdateResultInfo *info);

/* ---- graph_lane.c: internal streams on which branches run concurrently */
CUresult lane_take(struct context *context, const struct exec *exec, struct stream **stream);
void lane_give_back(const struct stream *stream);
void lane_forget(const struct exec *exec);

#endif
