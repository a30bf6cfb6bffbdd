// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* quota_guard: a program that would run out of memory in the middle fails at its start instead. Of each vGPU it learns how
 * much one program usually comes to need; a new program beside others is refused its first allocation where that would
 * not fit into what is left. With make_room, a vGPU that needs more gets it from the one with the most unused memory.
 *
 * What a program has is not told, only what it asks for and what its vGPU uses: the lesser of the two is taken, which is too
 * much for a program that frees and asks again. A program with its vGPU to itself is never refused.
 *
 * Wrong for: vGPUs whose programs differ much in size. The small ones are judged by the largest there ever was; `forget_ppm`
 * lets that fade.
 */
#include "belfry/policy.h"

const volatile __u32 headroom_ppm = 50000; /* on top of what was learned */
const volatile __u32 forget_ppm = 10000;   /* of what was learned, at each new program */
const volatile __u32 make_room = 0;	   /* 1: a vGPU may grow at the cost of its owner's others */

struct learned {
	__u64 peak_bytes;	       /* of one program */
	__u64 used_bytes, limit_bytes; /* of the vGPU, when it last asked */
	__u64 programs, refused;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct learned);
} vgpus SEC(".maps");

struct program {
	__u64 id;
	__u32 pid, reserved;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct program);
	__type(value, __u64); /* bytes asked for */
} asked SEC(".maps");

static struct learned *learned_of(__u64 id)
{
	struct learned *learned = bpf_map_lookup_elem(&vgpus, &id), none = { 0 };

	if (learned)
		return learned;
	bpf_map_update_elem(&vgpus, &id, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&vgpus, &id);
}

static int remember_limit(const struct belfry_vgpu_init *ctx)
{
	struct learned *learned = learned_of(ctx->id);

	if (learned)
		learned->limit_bytes = ctx->mem_bytes;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(vgpu_init)
int quota_guard_vgpu_init(struct belfry_vgpu_init *ctx)
{
	return remember_limit(ctx);
}

BELFRY_HOOK(vgpu_set)
int quota_guard_vgpu_set(struct belfry_vgpu_init *ctx)
{
	return remember_limit(ctx);
}

BELFRY_HOOK(vgpu_exit)
int quota_guard_vgpu_exit(struct belfry_vgpu_init *ctx)
{
	__u64 id = ctx->id;

	bpf_map_delete_elem(&vgpus, &id);
	return BELFRY_PROPOSE;
}

/* Whether what a new program is expected to need fits beside the others. */
static int judge_new(const struct belfry_mem_alloc *ctx, struct learned *learned)
{
	__u64 expected = learned->peak_bytes + learned->peak_bytes / 1000 * headroom_ppm / 1000;

	learned->programs++;
	learned->peak_bytes -= learned->peak_bytes / 1000 * forget_ppm / 1000;
	if (!ctx->used_bytes || ctx->used_bytes + expected <= ctx->limit_bytes)
		return BELFRY_MEM_ALLOW;
	learned->refused++;
	return BELFRY_MEM_REFUSE;
}

BELFRY_HOOK(mem_alloc)
int quota_guard_mem_alloc(struct belfry_mem_alloc *ctx)
{
	struct learned *learned = learned_of(ctx->id);
	struct program program = { .id = ctx->id, .pid = ctx->pid };
	__u64 *before = bpf_map_lookup_elem(&asked, &program), total = ctx->bytes, all;

	if (!learned)
		return BELFRY_DEFAULT;
	learned->used_bytes = ctx->used_bytes;
	learned->limit_bytes = ctx->limit_bytes;
	ctx->verdict = BELFRY_MEM_ALLOW;
	if (before)
		total += *before;
	else
		ctx->verdict = judge_new(ctx, learned);
	all = ctx->used_bytes + ctx->bytes;
	if (ctx->verdict == BELFRY_MEM_ALLOW && all > ctx->limit_bytes && make_room)
		ctx->verdict = BELFRY_MEM_MAKE_ROOM;
	if (ctx->verdict != BELFRY_MEM_ALLOW || all > ctx->limit_bytes)
		return BELFRY_PROPOSE;
	bpf_map_update_elem(&asked, &program, &total, BPF_ANY);
	learned->used_bytes = all;
	if (total > all)
		total = all;
	if (total > learned->peak_bytes)
		learned->peak_bytes = total;
	return BELFRY_PROPOSE;
}

struct search {
	__u32 victim, needs;
	__u64 unused_bytes;
};

static long look_at(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	__u64 id = vgpu ? vgpu->id : 0;
	struct learned *learned = bpf_map_lookup_elem(&vgpus, &id);

	if (!learned || entry == search->needs || learned->used_bytes >= learned->limit_bytes ||
	    learned->limit_bytes - learned->used_bytes <= search->unused_bytes)
		return 0;
	search->victim = entry;
	search->unused_bytes = learned->limit_bytes - learned->used_bytes;
	return 0;
}

BELFRY_HOOK(mem_pressure)
int quota_guard_mem_pressure(struct belfry_mem_pressure *ctx)
{
	struct search search = { .victim = BELFRY_NOBODY, .needs = ctx->head.vgpu };

	belfry_each(&ctx->head, look_at, &search);
	if (search.victim == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	ctx->victim = search.victim;
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("quota_guard", "programs that would run out of memory in the middle are refused at the start");
