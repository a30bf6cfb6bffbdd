/* Decisions: a policy decides where one is loaded that has the hook and proposes something, the built-in policy otherwise. A
 * proposal is clamped (clamp.c) on sched's own table: the policy reads a copy, which other programs can change. */
#include <string.h>

#include "sched/state.h"

static bool has(const struct sched_policy *policy, enum belfry_hook hook)
{
	return policy->hooks >> hook & 1;
}

static void fail(struct sched_policy *policy, const char *why)
{
	if (policy->hooks && policy->fail)
		policy->fail(policy->context, why);
	policy->hooks = 0;
}

static const struct belfry_tick as_built_in = { .interleave = -1, .ride = -1 };

/* The policy is not called any more. Its lasting proposals are dropped, and no vGPU pays for time that it gave it. */
static void drop_policy(struct sched *sched)
{
	sched_unpark_all(sched);
	sched->are_turns_due = true;
	sched->policy.hooks = 0;
	sched->elected = NULL;
	sched->beside_id = 0;
	sched->settle_ns = 0;
	if (sched->holder)
		sched->holder->is_slice_proposed = false;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all)) {
		v->tick = as_built_in;
		v->picked_units = 0;
		v->starves_ns = 0; /* the policy answers for it */
		vgpu_awaken(sched, v);
	}
	sched_update_line(sched);
	sched_cap_passes(sched);
}

void sched_fail_policy(struct sched *sched, const char *why)
{
	fail(&sched->policy, why);
	drop_policy(sched);
}

/* ctx begins with a head. It is restored after the call: a policy may write to it. */
static int call(struct sched_policy *policy, enum belfry_hook hook, void *ctx, size_t size)
{
	struct belfry_head head;
	int rc;

	memcpy(&head, ctx, sizeof(head));
	rc = policy->ask(policy->context, hook, ctx, size);
	memcpy(ctx, &head, sizeof(head));
	if (rc < 0) {
		policy->hooks = 0;
		return BELFRY_DEFAULT;
	}
	return rc;
}

/* Calls the GPU's policy. The built-in policy decides where there are more vGPUs than a table can have. */
static int ask_policy(struct sched *sched, void *ctx, size_t size)
{
	const struct belfry_head *head = ctx;
	enum belfry_hook hook = (enum belfry_hook)head->hook;
	int rc;

	if (!has(&sched->policy, hook) || head->count > BELFRY_VGPUS_MAX)
		return BELFRY_DEFAULT;
	memcpy(sched->policy.table, sched->table, head->count * sizeof(*sched->table));
	rc = call(&sched->policy, hook, ctx, size);
	if (!sched->policy.hooks)
		drop_policy(sched);
	return rc;
}

/* Calls a vGPU's own policy, with that vGPU alone in the table. */
static int ask_own(struct sched *sched, struct sched_vgpu *vgpu, void *ctx, size_t size)
{
	struct belfry_head head, *of_ctx = ctx;
	uint32_t entry;
	int rc;

	memcpy(&head, ctx, sizeof(head));
	entry = table_entry(sched, head.count, vgpu);
	if (!has(&vgpu->policy, (enum belfry_hook)head.hook) || entry == BELFRY_NOBODY)
		return BELFRY_DEFAULT;
	vgpu->policy.table[0] = sched->table[entry];
	of_ctx->count = 1;
	of_ctx->vgpu = 0;
	rc = call(&vgpu->policy, (enum belfry_hook)head.hook, ctx, size);
	memcpy(ctx, &head, sizeof(head));
	return rc;
}

static bool is_of_interest(const struct sched *sched, enum belfry_hook hook, const struct sched_vgpu *vgpu)
{
	return has(&sched->policy, hook) || (vgpu && has(&vgpu->policy, hook)) || sched->watch.wants_all;
}

/* Whether the decision is made on a table: a policy is called, or a watch wants all decisions. */
static bool has_table(const struct sched *sched, enum belfry_hook hook)
{
	return has(&sched->policy, hook) || sched->watch.wants_all;
}

static void tell_watch(const struct sched *sched, const struct sched_decision *decision, const void *ctx,
		       size_t size)
{
	if (sched->watch.decided)
		sched->watch.decided(sched->watch.context, decision, ctx, size, sched->table);
}

static struct sched_decision decision_of(const struct sched *sched, enum belfry_hook hook,
					 const struct sched_vgpu *about)
{
	return (struct sched_decision){ .at_ns = sched->now_ns,
					.hook = hook,
					.proposed_id = about ? about->id : 0,
					.got_id = about ? about->id : 0 };
}

/* The vGPU's own policy may shorten the slice. */
static void shorten(struct sched *sched, struct sched_vgpu *vgpu, const struct belfry_pick *picked,
		    uint64_t *slice_ns)
{
	struct belfry_pick ctx = *picked;
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_PICK, vgpu);
	uint64_t fits;

	ctx.choice = ctx.last = 0;
	if (ask_own(sched, vgpu, &ctx, sizeof(ctx)) != BELFRY_PROPOSE)
		return;
	decision.decider = SCHED_BY_OWN_POLICY;
	decision.proposed_ns = fits = ctx.slice_ns;
	if (fits && fits < sched->options.slice_min_ns)
		fits = sched->options.slice_min_ns;
	if (fits && fits < *slice_ns)
		*slice_ns = fits;
	if (ctx.slice_ns && ctx.slice_ns != *slice_ns)
		decision.clamps = SCHED_CLAMP_SLICE;
	decision.got_ns = *slice_ns;
	tell_watch(sched, &decision, &ctx, sizeof(ctx));
}

/* A slice of a proposed length keeps it when other vGPUs come. One of the built-in's length does not. */
static bool is_fixed(const struct sched_decision *decision)
{
	return decision->clamps & SCHED_CLAMP_PROMISE ||
	       (decision->proposed_ns && !(decision->clamps & SCHED_CLAMP_CHOICE));
}

/* The built-in policy's pick, without a table. */
static struct sched_vgpu *pick_built_in(struct sched *sched, uint64_t *slice_ns)
{
	struct belfry_pick ctx = { .last = BELFRY_NOBODY, .choice = BELFRY_NOBODY, .beside = BELFRY_NOBODY };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_PICK, NULL);
	struct sched_vgpu *next;

	ctx.head = table_head(sched, BELFRY_HOOK_PICK, sizeof(ctx));
	next = queue_pick(sched, &ctx.head);
	if (!next || has(&next->policy, BELFRY_HOOK_PICK))
		return next;
	*slice_ns = ctx.slice_ns = fair_slice(&ctx.head, part_ppm(vgpu_part(sched, next)));
	decision.got_id = next->id;
	decision.got_ns = ctx.slice_ns;
	tell_watch(sched, &decision, &ctx, sizeof(ctx));
	return next;
}

static struct sched_vgpu *pick_from_table(struct sched *sched, uint64_t *slice_ns, bool *is_proposed,
					  uint64_t *beside_id)
{
	struct belfry_pick ctx = { .choice = BELFRY_NOBODY, .beside = BELFRY_NOBODY };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_PICK, NULL);
	struct sched_vgpu *next;
	bool is_left_open = false;
	uint32_t last;
	int rc;

	ctx.head = table_fill(sched, BELFRY_HOOK_PICK, sizeof(ctx), NULL);
	ctx.last = last = table_entry(sched, ctx.head.count, sched->last);
	rc = ask_policy(sched, &ctx, sizeof(ctx));
	ctx.last = last; /* a policy may write to it */
	if (rc == BELFRY_PROPOSE) {
		decision.decider = SCHED_BY_POLICY;
		is_left_open = ctx.choice == BELFRY_NOBODY;
		decision.proposed_id = ctx.choice < ctx.head.count ? sched->table[ctx.choice].id : 0;
		decision.proposed_ns = ctx.slice_ns;
		decision.clamps = sched_clamp_pick(sched->table, &ctx);
	} else {
		sched_fair_pick(sched->table, &ctx);
	}
	if (ctx.choice == BELFRY_NOBODY)
		return NULL;
	next = sched->entries[ctx.choice];
	next->picked_units = ctx.units;
	*slice_ns = ctx.slice_ns;
	*is_proposed = is_fixed(&decision);
	*beside_id = ctx.beside == BELFRY_NOBODY ? 0 : sched->table[ctx.beside].id;
	decision.got_id = next->id;
	if (is_left_open && !(decision.clamps & SCHED_CLAMP_PROMISE))
		decision.proposed_id = next->id;
	decision.got_ns = ctx.slice_ns;
	tell_watch(sched, &decision, &ctx, sizeof(ctx));
	if (has(&next->policy, BELFRY_HOOK_PICK)) {
		shorten(sched, next, &ctx, slice_ns);
		*is_proposed |= *slice_ns != ctx.slice_ns;
	}
	return next;
}

struct sched_vgpu *ask_pick(struct sched *sched, uint64_t *slice_ns, bool *is_proposed, uint64_t *beside_id)
{
	struct sched_vgpu *next;

	*is_proposed = false;
	*beside_id = 0;
	if (!has_table(sched, BELFRY_HOOK_PICK)) {
		next = pick_built_in(sched, slice_ns);
		if (!next || !has(&next->policy, BELFRY_HOOK_PICK))
			return next;
	}
	return pick_from_table(sched, slice_ns, is_proposed, beside_id);
}

/* The built-in policy's decision whether the holder is stopped, without a table. */
static bool preempt_built_in(struct sched *sched)
{
	struct belfry_preempt ctx = { .head = table_head(sched, BELFRY_HOOK_PREEMPT, sizeof(ctx)),
				      .holder = BELFRY_NOBODY };
	struct sched_vgpu *first = queue_pick(sched, &ctx.head);
	struct sched_decision decision;

	if (!first)
		return false;
	ctx.stop = queue_is_due(sched, &ctx.head, first) && !queue_is_due(sched, &ctx.head, sched->holder);
	if (!ctx.stop)
		return false;
	decision = decision_of(sched, BELFRY_HOOK_PREEMPT, first);
	decision.got_ns = 1;
	tell_watch(sched, &decision, &ctx, sizeof(ctx));
	return true;
}

/* The question is asked about the waiting vGPU that the built-in policy would pick. */
static bool preempt_by_table(struct sched *sched)
{
	struct belfry_preempt ctx = { .head = table_fill(sched, BELFRY_HOOK_PREEMPT, sizeof(ctx), NULL) };
	struct belfry_pick first = { .head = ctx.head };
	struct sched_decision decision;
	uint32_t holder = table_entry(sched, ctx.head.count, sched->holder);
	int rc;

	sched_fair_pick(sched->table, &first);
	if (first.choice == BELFRY_NOBODY || holder == BELFRY_NOBODY)
		return false;
	ctx.head.vgpu = first.choice;
	ctx.holder = holder;
	decision = decision_of(sched, BELFRY_HOOK_PREEMPT, sched->entries[first.choice]);
	rc = ask_policy(sched, &ctx, sizeof(ctx));
	ctx.holder = holder; /* a policy may write to it */
	if (rc == BELFRY_PROPOSE) {
		decision.decider = SCHED_BY_POLICY;
		decision.proposed_ns = ctx.stop != 0;
		decision.clamps = sched_clamp_preempt(sched->table, &ctx);
		sched->cuts_later = decision.clamps != 0;
	} else {
		sched_fair_preempt(sched->table, &ctx);
	}
	decision.got_ns = ctx.stop != 0;
	if (decision.decider == SCHED_BY_POLICY || ctx.stop || sched->watch.wants_all)
		tell_watch(sched, &decision, &ctx, sizeof(ctx));
	return ctx.stop;
}

bool ask_preempt(struct sched *sched)
{
	return has_table(sched, BELFRY_HOOK_PREEMPT) ? preempt_by_table(sched) : preempt_built_in(sched);
}

static int ask_both(struct sched *sched, struct sched_vgpu *vgpu, void *ctx, size_t size,
		    struct sched_decision *decision)
{
	uint8_t asked[sizeof(struct belfry_enqueue)];

	memcpy(asked, ctx, size);
	if (ask_own(sched, vgpu, ctx, size) == BELFRY_PROPOSE) {
		decision->decider = SCHED_BY_OWN_POLICY;
		return BELFRY_PROPOSE;
	}
	memcpy(ctx, asked, size);
	if (ask_policy(sched, ctx, size) != BELFRY_PROPOSE)
		return BELFRY_DEFAULT;
	decision->decider = SCHED_BY_POLICY;
	return BELFRY_PROPOSE;
}

void ask_enqueue(struct sched *sched, struct sched_vgpu *vgpu)
{
	uint64_t usual = vgpu->share.objective_ns ? vgpu->wants_ns + vgpu->share.objective_ns : 0;
	struct belfry_enqueue ctx = { .deadline_ns = usual };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_ENQUEUE, vgpu);

	vgpu->deadline_ns = usual;
	if (!is_of_interest(sched, BELFRY_HOOK_ENQUEUE, vgpu))
		return;
	ctx.head = table_fill(sched, BELFRY_HOOK_ENQUEUE, sizeof(ctx), vgpu);
	if (ask_both(sched, vgpu, &ctx, sizeof(ctx), &decision) == BELFRY_PROPOSE)
		vgpu->deadline_ns = ctx.deadline_ns;
	decision.proposed_ns = ctx.deadline_ns;
	decision.got_ns = vgpu->deadline_ns;
	tell_watch(sched, &decision, &ctx, sizeof(ctx));
}

static void ask_tick(struct sched *sched, const struct belfry_head *head, uint32_t entry)
{
	struct sched_vgpu *vgpu = sched->entries[entry];
	struct belfry_tick ctx = as_built_in;
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_TICK, vgpu);

	ctx.head = *head;
	ctx.head.vgpu = entry;
	if (ask_policy(sched, &ctx, sizeof(ctx)) == BELFRY_PROPOSE) {
		decision.decider = SCHED_BY_POLICY;
		decision.proposed_ns = ctx.timeslice_us;
		decision.clamps = sched_clamp_tick(sched->table, &ctx);
		decision.got_ns = ctx.timeslice_us;
		vgpu->tick = ctx;
	}
	tell_watch(sched, &decision, &ctx, sizeof(ctx));
}

/* All vGPUs are asked about on one table. */
void ask_ticks(struct sched *sched)
{
	struct belfry_head head;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		v->tick = as_built_in;
	if (!has_table(sched, BELFRY_HOOK_TICK))
		return;
	sched_update_line(sched);
	head = table_fill(sched, BELFRY_HOOK_TICK, sizeof(struct belfry_tick), NULL);
	for (uint32_t i = 0; i < head.count; i++)
		if (sched->entries[i]->is_present)
			ask_tick(sched, &head, i);
}

/* Calls hooks that propose nothing. */
static void tell(struct sched *sched, struct sched_vgpu *vgpu, void *ctx, size_t size,
		 struct sched_decision *decision)
{
	if (ask_policy(sched, ctx, size) == BELFRY_PROPOSE)
		decision->decider = SCHED_BY_POLICY;
	if (ask_own(sched, vgpu, ctx, size) == BELFRY_PROPOSE)
		decision->decider = SCHED_BY_OWN_POLICY;
	tell_watch(sched, decision, ctx, size);
}

void tell_running(struct sched *sched, struct sched_vgpu *vgpu)
{
	struct belfry_running ctx = { .slice_ns = vgpu->slice_ns };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_RUNNING, vgpu);

	if (!is_of_interest(sched, BELFRY_HOOK_RUNNING, vgpu))
		return;
	ctx.head = table_fill(sched, BELFRY_HOOK_RUNNING, sizeof(ctx), vgpu);
	decision.got_ns = ctx.slice_ns;
	tell(sched, vgpu, &ctx, sizeof(ctx), &decision);
}

void tell_stopping(struct sched *sched, struct sched_vgpu *vgpu, enum belfry_why why)
{
	struct belfry_running ctx = { .slice_ns = vgpu->slice_ns,
				      .held_ns = sched->now_ns - vgpu->granted_ns,
				      .gpu_ns = vgpu->gpu_ns - vgpu->granted_gpu_ns,
				      .why = why };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_STOPPING, vgpu);

	if (!is_of_interest(sched, BELFRY_HOOK_STOPPING, vgpu))
		return;
	ctx.head = table_fill(sched, BELFRY_HOOK_STOPPING, sizeof(ctx), vgpu);
	decision.got_ns = ctx.gpu_ns;
	tell(sched, vgpu, &ctx, sizeof(ctx), &decision);
}

void tell_missed(struct sched *sched, struct sched_vgpu *vgpu, uint64_t took_ns)
{
	struct belfry_objective ctx = { .took_ns = took_ns, .objective_ns = vgpu->share.objective_ns };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_OBJECTIVE_MISSED, vgpu);

	if (!is_of_interest(sched, BELFRY_HOOK_OBJECTIVE_MISSED, vgpu))
		return;
	ctx.head = table_fill(sched, BELFRY_HOOK_OBJECTIVE_MISSED, sizeof(ctx), vgpu);
	decision.got_ns = took_ns;
	tell(sched, vgpu, &ctx, sizeof(ctx), &decision);
}

int sched_ask(struct sched *sched, enum belfry_hook hook, const struct sched_vgpu *about, void *ctx,
	      size_t size, uint64_t now_ns)
{
	struct sched_decision decision;
	struct belfry_head head;
	int rc;

	sched_advance(sched, now_ns);
	if (!is_of_interest(sched, hook, about))
		return BELFRY_DEFAULT;
	if (hook == BELFRY_HOOK_MEM_PRESSURE) /* vGPUs that are asleep may have memory */
		for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all))
			vgpu_awaken(sched, v);
	decision = decision_of(sched, hook, about);
	head = table_fill(sched, hook, size, about);
	sched->told_count = head.count;
	memcpy(ctx, &head, sizeof(head));
	rc = ask_policy(sched, ctx, size);
	decision.decider = rc == BELFRY_PROPOSE ? SCHED_BY_POLICY : SCHED_BUILT_IN;
	tell_watch(sched, &decision, ctx, size);
	return rc;
}

/* Proposals of the policy before are dropped. The holder keeps the token, and the new policy makes the next decision. */
void sched_set_policy(struct sched *sched, const struct sched_policy *policy, uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	drop_policy(sched);
	sched->policy = policy ? *policy : (struct sched_policy){ .hooks = 0 };
	sched->may_cut = true;
}

void sched_set_vgpu_policy(struct sched *sched, struct sched_vgpu *vgpu, const struct sched_policy *policy,
			   uint64_t now_ns)
{
	sched_advance(sched, now_ns);
	vgpu->policy = policy ? *policy : (struct sched_policy){ .hooks = 0 };
}

void sched_watch(struct sched *sched, const struct sched_watch *watch)
{
	sched->watch = watch ? *watch : (struct sched_watch){ .decided = NULL };
}

const struct sched_vgpu *sched_entry(const struct sched *sched, uint32_t entry)
{
	return entry < sched->told_count ? sched->entries[entry] : NULL;
}

uint64_t sched_id(const struct sched_vgpu *vgpu)
{
	return vgpu->id;
}
