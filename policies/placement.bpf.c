// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* placement: within a domain, compute-bound programs run beside memory-bound programs. Shares decide which
 * vGPU is next. The vGPU beside it is the one whose measured use of the SMs and of the memory bus exceeds the
 * whole the least together with it. Without measurements, the built-in policy decides.
 *
 * If the probe roofline is attached to a vGPU, the floating-point operations and the bytes that its kernels have
 * executed since the last look decide instead: with fewer operations for each byte than the GPU can do, the vGPU is
 * taken to use the whole memory bus, otherwise all SMs. The measured use of a GPU on which several vGPUs run at the
 * same time cannot be told apart, and roofline's numbers are of one vGPU.
 *
 * In a shared domain it also moves SM units. A memory-bound vGPU beside a compute-bound one starts with an
 * equal part of the units. It gets one less at a time, until its use of the memory bus falls. Then it gets the
 * last one back. The compute-bound vGPUs get the rest. SM requests and limits still hold.
 *
 * Wrong for: domains of one vGPU, for which it changes nothing; programs whose phases are shorter than the
 * measuring interval; shares within one domain, because the partner is chosen by its use, not by how far
 * behind it is.
 */
#include <stdbool.h>

#include "belfry/policy.h"

const volatile __u32 over_most_ppm = 300000; /* if the best pair exceeds the whole by more, propose none */
const volatile __u32 bound_ppm = 500000;     /* a vGPU is memory-bound from this use of the memory bus on */
const volatile __u32 loss_ppm = 100000;	     /* part of that use that fewer units may cost */
const volatile __u64 settle_ns = 3000000000; /* from one change of units to the next: several measurements */
const volatile __u64 hold_ns = 60000000000;  /* after the use has fallen, until fewer units are tried again */

/* Operations for 1000 bytes at which a kernel needs all SMs and the whole memory bus. The default is for an H200: 67 TFLOP/s
 * without tensor cores, and 4.8 TB/s. */
const volatile __u64 balance_milli = 14000;
const volatile __u64 look_ns = 1000000000; /* between two looks at roofline's numbers */

struct work {
	__u64 flops, bytes, written_bytes;
};
BELFRY_PROBE_MAP(roofline, "roofline", "kernels", __u64, struct work, 1024);

/* What a vGPU has executed. */
struct intensity {
	__u64 flops, bytes;	    /* in roofline's map at the last look */
	__u32 sm_ppm, mem_ppm;	    /* from what it has executed between the last two looks; 0: not known */
	__u64 new_flops, new_bytes; /* sums of the look that is under way */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct intensity);
} intensities SEC(".maps");
static __u64 looked_ns;

/* Each entry of roofline's map is one kernel of a vGPU. */
static long add_kernel(const void *map, struct roofline_key *key, struct work *work, void *data)
{
	struct intensity new = { 0 }, *of;
	__u64 id = key->vgpu;

	(void)map;
	(void)data;
	of = bpf_map_lookup_elem(&intensities, &id);
	if (!of) {
		bpf_map_update_elem(&intensities, &id, &new, BPF_NOEXIST);
		of = bpf_map_lookup_elem(&intensities, &id);
	}
	if (of) {
		of->new_flops += work->flops;
		of->new_bytes += work->bytes;
	}
	return 0;
}

/* The numbers are a program's: they can be anything, and shrink. */
static __u32 part_of(__u64 part, __u64 whole)
{
	if (part > 1ull << 40 || whole > 1ull << 40) {
		part >>= 24;
		whole >>= 24;
	}
	return !whole || part >= whole ? BELFRY_WHOLE_PPM : (__u32)(part * BELFRY_WHOLE_PPM / whole);
}

static long conclude(const void *map, __u64 *id, struct intensity *of, void *data)
{
	__u64 flops = of->new_flops - of->flops, bytes = of->new_bytes - of->bytes;

	(void)map;
	(void)id;
	(void)data;
	if (of->new_flops < of->flops || of->new_bytes < of->bytes || (!of->new_flops && !of->new_bytes)) {
		of->sm_ppm = of->mem_ppm = 0; /* processes have ended, or the probe was detached */
	} else if (flops || bytes) {
		__u64 needed = bytes / 1000 * balance_milli; /* operations that balance the bytes */

		of->sm_ppm = part_of(flops, needed);
		of->mem_ppm = part_of(needed, flops);
		of->sm_ppm += !of->sm_ppm; /* 0: not known */
		of->mem_ppm += !of->mem_ppm;
	}
	of->flops = of->new_flops;
	of->bytes = of->new_bytes;
	of->new_flops = of->new_bytes = 0;
	return 0;
}

static void look(__u64 now_ns)
{
	if (now_ns - looked_ns < look_ns)
		return;
	looked_ns = now_ns;
	bpf_for_each_map_elem(&roofline, add_kernel, 0, 0);
	bpf_for_each_map_elem(&intensities, conclude, 0, 0);
}

/* The use of the SMs and of the memory bus: from roofline, or measured. */
struct use {
	__u32 sm_ppm, mem_ppm;
};

static struct use use_of(const struct belfry_vgpu *vgpu)
{
	struct use use = { vgpu->sm_ppm, vgpu->mem_ppm };
	__u64 id = vgpu->id;
	const struct intensity *of = bpf_map_lookup_elem(&intensities, &id);

	if (of && of->sm_ppm && of->mem_ppm) {
		use.sm_ppm = of->sm_ppm;
		use.mem_ppm = of->mem_ppm;
	}
	return use;
}

struct search {
	__u32 choice, beside;
	__u32 domain, sm_ppm, mem_ppm; /* of the picked vGPU */
	__u32 over_ppm;
};

static __u32 above_whole(__u32 a_ppm, __u32 b_ppm)
{
	return a_ppm + b_ppm > BELFRY_WHOLE_PPM ? a_ppm + b_ppm - BELFRY_WHOLE_PPM : 0;
}

static long find_partner(__u32 entry, struct search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	struct use use;
	__u32 over_ppm;

	if (!vgpu || entry == search->choice || vgpu->domain != search->domain ||
	    !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	use = use_of(vgpu);
	if (!use.sm_ppm || !use.mem_ppm)
		return 0;
	over_ppm = above_whole(use.sm_ppm, search->sm_ppm) + above_whole(use.mem_ppm, search->mem_ppm);
	if (over_ppm >= search->over_ppm)
		return 0;
	search->beside = entry;
	search->over_ppm = over_ppm;
	return 0;
}

static __u64 picks, paired;

/* bpf_snprintf would need CAP_PERFMON. The verifier requires constant offsets for writes to the context's text. */
enum { DIGITS = 10 };
static __always_inline void write_number(char *to, __u64 number)
{
#pragma unroll
	for (int i = 0; i < DIGITS; i++, number /= 10)
		to[DIGITS - 1 - i] = number || !i ? '0' + number % 10 : ' ';
}

static const char says[] SEC(".rodata") = "picks           , with a partner           ";
enum { PICKS_AT = 6, PAIRED_AT = 33 };

BELFRY_HOOK(dump)
int placement_dump(struct belfry_dump *ctx)
{
#pragma unroll
	for (unsigned i = 0; i < sizeof(says); i++)
		ctx->text[i] = says[i];
	write_number(ctx->text + PICKS_AT, picks);
	write_number(ctx->text + PAIRED_AT, paired);
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(pick)
int placement_pick(struct belfry_pick *ctx)
{
	struct search search = { .choice = belfry_next(&ctx->head), .beside = BELFRY_NOBODY };
	const struct belfry_vgpu *vgpu = belfry_vgpu(search.choice);
	struct use use;

	if (!vgpu)
		return BELFRY_DEFAULT;
	look(ctx->head.now_ns);
	use = use_of(vgpu);
	if (vgpu->domain && use.sm_ppm && use.mem_ppm) {
		search.domain = vgpu->domain;
		search.sm_ppm = use.sm_ppm;
		search.mem_ppm = use.mem_ppm;
		search.over_ppm = over_most_ppm;
		belfry_each(&ctx->head, find_partner, &search);
	}
	picks++;
	paired += search.beside != BELFRY_NOBODY;
	ctx->choice = search.choice;
	ctx->beside = search.beside;
	ctx->slice_ns = 0;
	return BELFRY_PROPOSE;
}

struct program {
	__u64 next_ns;	   /* when units may change again */
	__u32 units;	   /* proposed; 0: the built-in number */
	__u32 first_units; /* proposed at first */
	__u32 full_ppm;	   /* use of the memory bus before units were taken */
	__u32 reserved;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct program);
} programs SEC(".maps");

static struct program *program_of(const struct belfry_vgpu *vgpu)
{
	struct program new = { 0 };
	__u64 id = vgpu->id;
	struct program *program = bpf_map_lookup_elem(&programs, &id);

	if (program)
		return program;
	bpf_map_update_elem(&programs, &id, &new, BPF_NOEXIST);
	return bpf_map_lookup_elem(&programs, &id);
}

/* The vGPUs beside one vGPU of a shared domain. */
struct beside {
	__u32 self, domain;
	__u32 vgpus, compute_bound;
};

static long count_beside(__u32 entry, struct beside *beside)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	struct use use;

	if (!vgpu || entry == beside->self || vgpu->domain != beside->domain || !vgpu->units)
		return 0;
	beside->vgpus++;
	use = use_of(vgpu);
	beside->compute_bound += use.mem_ppm && use.mem_ppm < bound_ppm;
	return 0;
}

static bool has_lost(const struct program *program, const struct belfry_vgpu *vgpu)
{
	return vgpu->mem_ppm < program->full_ppm - (__u64)program->full_ppm * loss_ppm / BELFRY_WHOLE_PPM;
}

static void begin(struct program *program, const struct belfry_vgpu *vgpu, const struct beside *beside)
{
	__u32 equal = vgpu->units_all / (beside->vgpus + 1);

	if (use_of(vgpu).mem_ppm < bound_ppm)
		return;
	if (!equal)
		equal = 1;
	program->units = program->first_units = equal < vgpu->units ? equal : vgpu->units;
	program->full_ppm = vgpu->mem_ppm;
}

/* The vGPU may have more units than proposed: its SM request comes first, or kernels still run on them. */
static void settle(struct program *program, const struct belfry_vgpu *vgpu, const struct beside *beside,
		   __u64 now_ns)
{
	if (now_ns < program->next_ns || (program->units && vgpu->units > program->units))
		return;
	program->next_ns = now_ns + settle_ns;
	if (!program->units) {
		begin(program, vgpu, beside);
	} else if (has_lost(program, vgpu)) {
		program->units = program->units < program->first_units ? program->units + 1 : 0;
		program->next_ns = now_ns + hold_ns;
	} else if (program->units > 1) {
		program->units--;
	}
}

BELFRY_HOOK(tick)
int placement_tick(struct belfry_tick *ctx)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(ctx->head.vgpu);
	struct beside beside = { .self = ctx->head.vgpu };
	struct program *program;

	if (!vgpu || !vgpu->domain || !vgpu->units || !vgpu->units_all || !use_of(vgpu).mem_ppm)
		return BELFRY_DEFAULT;
	look(ctx->head.now_ns);
	program = program_of(vgpu);
	if (!program)
		return BELFRY_DEFAULT;
	beside.domain = vgpu->domain;
	belfry_each(&ctx->head, count_beside, &beside);
	if (!beside.compute_bound)
		program->units = 0;
	else
		settle(program, vgpu, &beside, ctx->head.now_ns);
	ctx->units = program->units;
	return BELFRY_PROPOSE;
}

BELFRY_HOOK(vgpu_exit)
int placement_vgpu_exit(struct belfry_vgpu_init *ctx)
{
	__u64 id = ctx->id;

	bpf_map_delete_elem(&programs, &id);
	bpf_map_delete_elem(&intensities, &id);
	return BELFRY_PROPOSE;
}

BELFRY_POLICY("placement", "within a domain, compute-bound beside memory-bound programs");
