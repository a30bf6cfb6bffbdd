#include "policy/policy.h"

static const struct {
	const char *name;
	size_t ctx_bytes;
} hooks[BELFRY_HOOKS] = {
	[BELFRY_HOOK_INIT] = { "init", sizeof(struct belfry_init) },
	[BELFRY_HOOK_EXIT] = { "exit", sizeof(struct belfry_init) },
	[BELFRY_HOOK_DUMP] = { "dump", sizeof(struct belfry_dump) },
	[BELFRY_HOOK_VGPU_INIT] = { "vgpu_init", sizeof(struct belfry_vgpu_init) },
	[BELFRY_HOOK_VGPU_EXIT] = { "vgpu_exit", sizeof(struct belfry_vgpu_init) },
	[BELFRY_HOOK_VGPU_SET] = { "vgpu_set", sizeof(struct belfry_vgpu_init) },
	[BELFRY_HOOK_CTX_INIT] = { "ctx_init", sizeof(struct belfry_ctx_init) },
	[BELFRY_HOOK_ENQUEUE] = { "enqueue", sizeof(struct belfry_enqueue) },
	[BELFRY_HOOK_PICK] = { "pick", sizeof(struct belfry_pick) },
	[BELFRY_HOOK_RUNNING] = { "running", sizeof(struct belfry_running) },
	[BELFRY_HOOK_STOPPING] = { "stopping", sizeof(struct belfry_running) },
	[BELFRY_HOOK_TICK] = { "tick", sizeof(struct belfry_tick) },
	[BELFRY_HOOK_PREEMPT] = { "preempt", sizeof(struct belfry_preempt) },
	[BELFRY_HOOK_MEM_ALLOC] = { "mem_alloc", sizeof(struct belfry_mem_alloc) },
	[BELFRY_HOOK_MEM_PRESSURE] = { "mem_pressure", sizeof(struct belfry_mem_pressure) },
	[BELFRY_HOOK_OBJECTIVE_MISSED] = { "objective_missed", sizeof(struct belfry_objective) },
	[BELFRY_HOOK_FAULT] = { "fault", sizeof(struct belfry_fault) },
	[BELFRY_HOOK_MODULE_LOAD] = { "module_load", sizeof(struct belfry_module_load) },
};

const char *policy_hook_name(enum belfry_hook hook)
{
	return (unsigned)hook < BELFRY_HOOKS ? hooks[hook].name : "unknown";
}

size_t policy_ctx_size(enum belfry_hook hook)
{
	return (unsigned)hook < BELFRY_HOOKS ? hooks[hook].ctx_bytes : 0;
}
