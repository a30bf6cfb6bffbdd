// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* quota_guard: a program that would run out of memory later fails at its start instead. The policy learns for
 * each vGPU how much memory one program usually needs. It refuses the first allocation of a new program
 * beside others if that much does not fit. With make_room, a vGPU that needs more memory gets it from the
 * vGPU with the most unused memory.
 *
 * The hooks do not say how much memory a program has, only what it requests and what its vGPU uses. The
 * lesser of the two is taken, which is too much for a program that frees and allocates again. A program that
 * is alone in its vGPU is never refused.
 *
 * Wrong for: vGPUs whose programs differ much in size. Small programs are judged by the largest one so far;
 * `forget_ppm` reduces that over time.
 */
#include "belfry/policy.h"

const volatile __u32 headroom_ppm = 50000; /* added to the learned size */
const volatile __u32 forget_ppm = 10000;   /* deducted from the learned size at each new program */
const volatile __u32 make_room = 0;	   /* 1: a vGPU may grow at the expense of its owner's other vGPUs */

struct learned {
	__u64 peak_bytes;	       /* of one program */
	__u64 used_bytes, limit_bytes; /* of the vGPU, at its last allocation */
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
	__type(value, __u64); /* bytes requested */
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

/* Whether the expected need of a new program fits beside the others. */
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

BELFRY_POLICY("quota_guard", "programs that would run out of memory later are refused at the start");
