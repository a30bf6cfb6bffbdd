/* memory: shared by the files about memory. */
#ifndef BELFRY_SOFT_CUDA_MEMORY_H
#define BELFRY_SOFT_CUDA_MEMORY_H

#include "soft/cuda/core.h"

/* range::flags of RANGE_DEVICE: the type of the owner. */
enum memory_maker {
	MEMORY_OF_CONTEXT, /* struct heap_span */
	MEMORY_OF_POOL,	   /* struct heap_span */
	MEMORY_OF_GRAPH,   /* struct graph_memory */
	MEMORY_MAPPED,	   /* struct vmm_map, inside a RANGE_RESERVED range */
	MEMORY_OF_ARRAY,   /* struct heap_span of an array or a texture; the program cannot free it */
};

static inline bool range_is_device(const struct range *range)
{
	return range->kind == RANGE_DEVICE || range->kind == RANGE_RESERVED;
}

/* The context that owns the address space. Memory belongs to it: it outlives its green contexts. */
static inline struct context *context_home(struct context *context)
{
	return context->parent ? context->parent : context;
}

/* host.c. Owner of RANGE_HOST, RANGE_MANAGED and RANGE_REGISTERED. */
struct host_memory {
	struct range *range;
	struct host_memory *next; /* list of all in host.c */
	/* managed.c: advice, always for the whole allocation */
	bool is_read_mostly;
	uint32_t accessed_by; /* a bit for each GPU … */
	bool is_accessed_by_host;
	CUmemLocation preferred, last_prefetch;
};
/* Add a range like this one, whose pages and memory exist; maps it into every context. */
CUresult host_memory_add(const struct range *like, struct range **range);
void host_memory_forget(struct range *range); /* keeps the pages */
void host_detach(struct context *context);

/* register.c. Undo a registration. */
CUresult register_undo(struct range *range);

/* memory.c. Wait until no work can use the memory. Releases the lock; the range can be freed meanwhile. */
CUresult memory_wait(const struct range *range);

/* pool.c */
void pool_trim_all(struct gpu *gpu);	     /* releases unused memory of pools */
CUresult pool_free_now(struct range *range); /* the caller has waited for all uses */
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
/* The access rights of the GPU. */
CUmemAccess_flags vmm_access(const struct range *range);

/* copy_stage.c */
void staging_free(struct context *context);

/* CUdevice to struct gpu */
static inline struct gpu *gpu_find(CUdevice device)
{
	return device >= 0 && (unsigned)device < port.gpu_count ? &port.gpus[device] : NULL;
}

#endif
