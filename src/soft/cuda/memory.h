/* memory: what the files about memory say to each other. */
#ifndef BELFRY_SOFT_CUDA_MEMORY_H
#define BELFRY_SOFT_CUDA_MEMORY_H

#include "soft/cuda/core.h"

/* range::flags of RANGE_DEVICE: what its owner is. */
enum memory_maker {
	MEMORY_OF_CONTEXT, /* struct heap_span */
	MEMORY_OF_POOL,	   /* struct heap_span */
	MEMORY_OF_GRAPH,   /* struct graph_memory */
	MEMORY_MAPPED,	   /* struct vmm_map, in a range RANGE_RESERVED */
	MEMORY_OF_ARRAY,   /* struct heap_span: an array's or a texture's, not the program's to free */
};

static inline bool range_is_device(const struct range *range)
{
	return range->kind == RANGE_DEVICE || range->kind == RANGE_RESERVED;
}

/* Whose address space a context has. Memory belongs to that one: it outlives those beside it. */
static inline struct context *context_home(struct context *context)
{
	return context->parent ? context->parent : context;
}

/* host.c. Owner of RANGE_HOST, RANGE_MANAGED and RANGE_REGISTERED. */
struct host_memory {
	struct range *range;
	struct host_memory *next; /* host.c's list of all */
	/* managed.c: what the program said of it; for the whole of it, whatever part was named */
	bool is_read_mostly;
	uint32_t accessed_by; /* a bit for each GPU … */
	bool is_accessed_by_host;
	CUmemLocation preferred, last_prefetch;
};
/* A range like this one, of which pages and memory are there already; seen by every context. */
CUresult host_memory_add(const struct range *like, struct range **range);
void host_memory_forget(struct range *range); /* all but the pages themselves */
void host_detach(struct context *context);

/* register.c. Ends a registration. */
CUresult register_undo(struct range *range);

/* memory.c. Until everything is done that may use the memory; gives the lock up, and the range may go meanwhile. */
CUresult memory_wait(const struct range *range);

/* pool.c */
void pool_trim_all(struct gpu *gpu);	     /* what pools keep without need */
CUresult pool_free_now(struct range *range); /* the caller has waited for all that uses it */
CUresult pool_attach(struct context *context);
void pool_detach(struct context *context);
void pool_settle(struct gpu *gpu);

/* pool_graph.c */
CUresult graph_memory_free_now(struct range *range);
CUresult graph_memory_free_after(struct range *range, struct fence fence);
CUresult graph_memory_attach(struct context *context);
void graph_memory_detach(struct context *context);
void graph_memory_settle(struct gpu *gpu);

/* vmm.c */
CUresult vmm_attach(struct context *context);
/* What the GPU may do with it. */
CUmemAccess_flags vmm_access(const struct range *range);

/* copy_stage.c */
void staging_free(struct context *context);

/* device's handle to a GPU */
static inline struct gpu *gpu_find(CUdevice device)
{
	return device >= 0 && (unsigned)device < port.gpu_count ? &port.gpus[device] : NULL;
}

#endif
