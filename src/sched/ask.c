/* Who decides: a policy where there is one that has the hook and answers, the built-in otherwise. What a policy says is
 * held to what may be (clamp.c) on a table of our own: the one it reads is a copy, which others can get at. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/state.h"

int ask_make_room(struct sched *sched, size_t count)
{
	size_t room = sched->room ? 2 * sched->room : 16;
	struct belfry_vgpu *table;
	struct sched_vgpu **entries;

	if (count <= sched->room)
		return 0;
	table = realloc(sched->table, room * sizeof(*table));
	if (!table)
		return -ENOMEM;
	sched->table = table;
	entries = realloc(sched->entries, room * sizeof(void *));
	if (!entries)
		return -ENOMEM;
	sched->entries = entries;
	sched->room = room;
	return 0;
}

static uint32_t flags_of(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	bool may_have = vgpu_may_have_token(sched, vgpu) && !vgpu_is_with_holder(sched, vgpu);

	return (vgpu->is_waiting ? BELFRY_WAITS : 0u) | (vgpu->is_running ? BELFRY_RUNS : 0u) |
	       (may_have ? BELFRY_MAY_HAVE : 0u) | (vgpu == sched->holder ? BELFRY_HOLDS : 0u) |
	       (vgpu->is_rider ? BELFRY_RIDES : 0u) | (vgpu->is_spent ? BELFRY_SPENT : 0u) |
	       (vgpu_is_overdue(sched, vgpu) ? BELFRY_OVERDUE : 0u);
}

static void describe(const struct sched *sched, const struct sched_vgpu *v, struct belfry_vgpu *to)
{
	uint64_t window = sched->options.window_ns;

	*to = (struct belfry_vgpu){
		.id = v->id,
		.flags = flags_of(sched, v),
		.class = v->share.class == SCHED_LATENCY ? BELFRY_LATENCY : BELFRY_THROUGHPUT,
		.request_ppm = v->share.request_ppm,
		.limit_ppm = v->share.limit_ppm,
		.weight_ppm = (uint32_t)(vgpu_weight(sched, v) * SCHED_WHOLE_PPM + 0.5),
		.part_ppm = part_ppm(vgpu_part(sched, v)),
		.domain = v->share.domain,
		.percentile_ppm = v->share.percentile_ppm,
		.objective_ns = v->share.objective_ns,
		.tail_ns = v->tail_ns,
		.p50_ns = v->p50_ns,
		.samples = v->samples,
		.missed = v->missed,
		.pass_ns = v->pass,
		.owed_ns = (int64_t)v->owed_ns,
		.gpu_ns = v->gpu_ns,
		.window_used_ns = window_used(&v->window, window, sched->now_ns),
		.window_promised_ns = vgpu_window_promised_ns(sched, v),
		.allowance_ns = vgpu_allowance(sched, v),
		.slice_ns = v->slice_ns,
		.slice_left_ns = v->slice_left_ns,
		.wants_since_ns = vgpu_wants(v) ? v->wants_ns : 0,
		.deadline_ns = v->deadline_ns,
		.gap_ns = v->gap_ns,
		.burst_ns = v->burst_ns,
		.waited_ns = v->waited_ns,
		.grants = v->grants,
		.sm_ppm = busy_ppm(v, v->sm),
		.mem_ppm = busy_ppm(v, v->mem),
		.timeslice_us = v->timeslice_us,
		.interleave = v->interleave,
	};
}

static uint32_t entry_of(const struct sched *sched, uint32_t count, const struct sched_vgpu *vgpu)
{
	for (uint32_t i = 0; vgpu && i < count; i++)
		if (sched->entries[i] == vgpu)
			return i;
	return BELFRY_NOBODY;
}

/* Who is in the table of a question: all that have programs; where that is too much, those with work. Not who is only waited
 * for: hundreds of idle vGPUs would keep a policy from being asked about the others. */
static bool belongs(const struct sched_vgpu *v, enum belfry_hook hook, bool is_full)
{
	switch (hook) {
	case BELFRY_HOOK_INIT:
	case BELFRY_HOOK_EXIT:
	case BELFRY_HOOK_VGPU_INIT:
	case BELFRY_HOOK_VGPU_EXIT:
	case BELFRY_HOOK_VGPU_SET:
		return false; /* but for the one it is about */
	case BELFRY_HOOK_MEM_PRESSURE:
		return !is_full || v->is_present;
	default:
		return vgpu_is_on(v) || vgpu_wants(v) || v->is_active || (v->is_present && !is_full);
	}
}

static uint32_t fill_table(struct sched *sched, enum belfry_hook hook, const struct sched_vgpu *about,
			   bool is_full)
{
	uint32_t count = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		if (v == about || belongs(v, hook, is_full)) {
			vgpu_catch_up(sched, v);
			describe(sched, v, &sched->table[count]);
			sched->entries[count++] = v;
		}
	return count;
}

/* A head without a table. */
static struct belfry_head head_of(const struct sched *sched, enum belfry_hook hook, size_t size)
{
	return (struct belfry_head){ .now_ns = sched->now_ns,
				     .hook = hook,
				     .size = (uint32_t)size,
				     .vgpu = BELFRY_NOBODY,
				     .window_ns = sched->options.window_ns,
				     .round_ns = sched->options.round_ns,
				     .slice_min_ns = sched->options.slice_min_ns,
				     .pass_ns = sched->pass };
}

static struct belfry_head begin(struct sched *sched, enum belfry_hook hook, size_t size,
				const struct sched_vgpu *about)
{
	struct belfry_head head = head_of(sched, hook, size);

	head.count = fill_table(sched, hook, about, false);
	if (head.count > BELFRY_VGPUS_MAX)
		head.count = fill_table(sched, hook, about, true);
	head.vgpu = entry_of(sched, head.count, about);
	return head;
}

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

/* It is not asked any more. What it proposed for longer than a moment is looked at again, and nobody pays for what it let
 * him have. */
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
		v->starves_ns = 0; /* that was its doing */
		vgpu_awaken(sched, v);
	}
	sched_update_line(sched);
	sched_forgive(sched);
}

void sched_fail_policy(struct sched *sched, const char *why)
{
	fail(&sched->policy, why);
	drop_policy(sched);
}

/* ctx begins with a head, which is ours again afterwards, whatever was written there. */
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

/* The GPU's policy. More vGPUs than a policy can be told of at once are the built-in's. */
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

/* A vGPU's own: it is told of nobody else. */
static int ask_own(struct sched *sched, struct sched_vgpu *vgpu, void *ctx, size_t size)
{
	struct belfry_head head, *of_ctx = ctx;
	uint32_t entry;
	int rc;

	memcpy(&head, ctx, sizeof(head));
	entry = entry_of(sched, head.count, vgpu);
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

/* Whether the decision is made on a table: a policy is asked, or a watch wants to have it. */
static bool has_table(const struct sched *sched, enum belfry_hook hook)
{
	return has(&sched->policy, hook) || sched->watch.wants_all;
}

static void told(const struct sched *sched, const struct sched_decision *decision, const void *ctx,
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

/* Its own policy may be content with less. */
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
	told(sched, &decision, &ctx, sizeof(ctx));
}

/* A slice is as long as it was said to be, whoever comes meanwhile; unless nobody said how long. */
static bool is_fixed(const struct sched_decision *decision)
{
	return decision->clamps & SCHED_CLAMP_PROMISE ||
	       (decision->proposed_ns && !(decision->clamps & SCHED_CLAMP_CHOICE));
}

/* The built-in's pick, found without a table. */
static struct sched_vgpu *pick_built_in(struct sched *sched, uint64_t *slice_ns)
{
	struct belfry_pick ctx = { .last = BELFRY_NOBODY, .choice = BELFRY_NOBODY, .beside = BELFRY_NOBODY };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_PICK, NULL);
	struct sched_vgpu *next;

	ctx.head = head_of(sched, BELFRY_HOOK_PICK, sizeof(ctx));
	next = queue_pick(sched, &ctx.head);
	if (!next || has(&next->policy, BELFRY_HOOK_PICK))
		return next;
	*slice_ns = ctx.slice_ns = fair_slice(&ctx.head, part_ppm(vgpu_part(sched, next)));
	decision.got_id = next->id;
	decision.got_ns = ctx.slice_ns;
	told(sched, &decision, &ctx, sizeof(ctx));
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

	ctx.head = begin(sched, BELFRY_HOOK_PICK, sizeof(ctx), NULL);
	ctx.last = last = entry_of(sched, ctx.head.count, sched->last);
	rc = ask_policy(sched, &ctx, sizeof(ctx));
	ctx.last = last; /* whatever was written there */
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
	*slice_ns = ctx.slice_ns;
	*is_proposed = is_fixed(&decision);
	*beside_id = ctx.beside == BELFRY_NOBODY ? 0 : sched->table[ctx.beside].id;
	decision.got_id = next->id;
	if (is_left_open && !(decision.clamps & SCHED_CLAMP_PROMISE))
		decision.proposed_id = next->id;
	decision.got_ns = ctx.slice_ns;
	told(sched, &decision, &ctx, sizeof(ctx));
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

/* The same as preempt_by_table(), where only the built-in is asked. */
static bool preempt_built_in(struct sched *sched)
{
	struct belfry_preempt ctx = { .head = head_of(sched, BELFRY_HOOK_PREEMPT, sizeof(ctx)),
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
	told(sched, &decision, &ctx, sizeof(ctx));
	return true;
}

/* Of those who wait, whoever the built-in would pick. */
static bool preempt_by_table(struct sched *sched)
{
	struct belfry_preempt ctx = { .head = begin(sched, BELFRY_HOOK_PREEMPT, sizeof(ctx), NULL) };
	struct belfry_pick first = { .head = ctx.head };
	struct sched_decision decision;
	uint32_t holder = entry_of(sched, ctx.head.count, sched->holder);
	int rc;

	sched_fair_pick(sched->table, &first);
	if (first.choice == BELFRY_NOBODY || holder == BELFRY_NOBODY)
		return false;
	ctx.head.vgpu = first.choice;
	ctx.holder = holder;
	decision = decision_of(sched, BELFRY_HOOK_PREEMPT, sched->entries[first.choice]);
	rc = ask_policy(sched, &ctx, sizeof(ctx));
	ctx.holder = holder; /* whatever was written there */
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
		told(sched, &decision, &ctx, sizeof(ctx));
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
	ctx.head = begin(sched, BELFRY_HOOK_ENQUEUE, sizeof(ctx), vgpu);
	if (ask_both(sched, vgpu, &ctx, sizeof(ctx), &decision) == BELFRY_PROPOSE)
		vgpu->deadline_ns = ctx.deadline_ns;
	decision.proposed_ns = ctx.deadline_ns;
	decision.got_ns = vgpu->deadline_ns;
	told(sched, &decision, &ctx, sizeof(ctx));
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
	told(sched, &decision, &ctx, sizeof(ctx));
}

/* All of them on one table. */
void ask_ticks(struct sched *sched)
{
	struct belfry_head head;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->awake); v; v = LIST_NEXT(v, in_awake))
		v->tick = as_built_in;
	if (!has_table(sched, BELFRY_HOOK_TICK))
		return;
	sched_update_line(sched);
	head = begin(sched, BELFRY_HOOK_TICK, sizeof(struct belfry_tick), NULL);
	for (uint32_t i = 0; i < head.count; i++)
		if (sched->entries[i]->is_present)
			ask_tick(sched, &head, i);
}

/* Nothing is proposed. */
static void tell(struct sched *sched, struct sched_vgpu *vgpu, void *ctx, size_t size,
		 struct sched_decision *decision)
{
	if (ask_policy(sched, ctx, size) == BELFRY_PROPOSE)
		decision->decider = SCHED_BY_POLICY;
	if (ask_own(sched, vgpu, ctx, size) == BELFRY_PROPOSE)
		decision->decider = SCHED_BY_OWN_POLICY;
	told(sched, decision, ctx, size);
}

void tell_running(struct sched *sched, struct sched_vgpu *vgpu)
{
	struct belfry_running ctx = { .slice_ns = vgpu->slice_ns };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_RUNNING, vgpu);

	if (!is_of_interest(sched, BELFRY_HOOK_RUNNING, vgpu))
		return;
	ctx.head = begin(sched, BELFRY_HOOK_RUNNING, sizeof(ctx), vgpu);
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
	ctx.head = begin(sched, BELFRY_HOOK_STOPPING, sizeof(ctx), vgpu);
	decision.got_ns = ctx.gpu_ns;
	tell(sched, vgpu, &ctx, sizeof(ctx), &decision);
}

void tell_missed(struct sched *sched, struct sched_vgpu *vgpu, uint64_t took_ns)
{
	struct belfry_objective ctx = { .took_ns = took_ns, .objective_ns = vgpu->share.objective_ns };
	struct sched_decision decision = decision_of(sched, BELFRY_HOOK_OBJECTIVE_MISSED, vgpu);

	if (!is_of_interest(sched, BELFRY_HOOK_OBJECTIVE_MISSED, vgpu))
		return;
	ctx.head = begin(sched, BELFRY_HOOK_OBJECTIVE_MISSED, sizeof(ctx), vgpu);
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
	if (hook == BELFRY_HOOK_MEM_PRESSURE) /* those who do nothing may have what others need */
		for (struct sched_vgpu *v = LIST_FIRST(&sched->all); v; v = LIST_NEXT(v, in_all))
			vgpu_awaken(sched, v);
	decision = decision_of(sched, hook, about);
	head = begin(sched, hook, size, about);
	sched->told_count = head.count;
	memcpy(ctx, &head, sizeof(head));
	rc = ask_policy(sched, ctx, size);
	decision.decider = rc == BELFRY_PROPOSE ? SCHED_BY_POLICY : SCHED_BUILT_IN;
	told(sched, &decision, ctx, size);
	return rc;
}

/* Whatever the one before proposed is forgotten: the token stays where it is, and the next decision is the new one's. */
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
