#include "replay/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WAS, IS };

struct replay {
	struct policy *policy;
	struct replay_result *result;
	size_t vgpu_room, most;
};

static struct replay_vgpu *vgpu_of(struct replay *replay, uint64_t id)
{
	struct replay_result *result = replay->result;
	struct replay_vgpu *vgpus;

	for (size_t i = result->vgpu_count; i-- > 0;)
		if (result->vgpus[i].id == id)
			return &result->vgpus[i];
	if (result->vgpu_count == replay->vgpu_room) {
		size_t room = replay->vgpu_room ? 2 * replay->vgpu_room : 16;

		vgpus = realloc(result->vgpus, room * sizeof(*vgpus));
		if (!vgpus)
			return NULL;
		result->vgpus = vgpus;
		replay->vgpu_room = room;
	}
	vgpus = &result->vgpus[result->vgpu_count++];
	*vgpus = (struct replay_vgpu){ .id = id };
	return vgpus;
}

static int count_pick(struct replay *replay, int which, uint64_t id, uint64_t slice_ns)
{
	struct replay_vgpu *vgpu = id ? vgpu_of(replay, id) : NULL;

	if (!vgpu)
		return id ? -ENOMEM : 0;
	vgpu->picked[which]++;
	vgpu->slice_ns[which] += slice_ns;
	return 0;
}

static int count_stop(struct replay *replay, int which, uint64_t id)
{
	struct replay_vgpu *vgpu = vgpu_of(replay, id);

	if (!vgpu)
		return -ENOMEM;
	vgpu->stopped_for[which]++;
	return 0;
}

static void compare(struct replay *replay, const struct replay_difference *now)
{
	struct replay_result *result = replay->result;

	if (now->was_id == now->is_id && now->was_ns == now->is_ns) {
		result->same++;
		return;
	}
	result->different++;
	if (result->difference_count < replay->most)
		result->differences[result->difference_count++] = *now;
}

/* Records why a policy that failed is no longer called. */
static void note_failure(struct replay *replay)
{
	struct policy_info info;

	replay->result->failed++;
	policy_info(replay->policy, &info);
	if (!replay->result->why[0])
		memcpy(replay->result->why, info.why, sizeof(info.why));
}

/* Calls the policy with a recorded question. True: it made a proposal. */
static bool proposes(struct replay *replay, const struct record_entry *entry, void *ctx, size_t size)
{
	enum belfry_hook hook = (enum belfry_hook)entry->hook;
	struct belfry_head head;
	int rc;

	if (!replay->policy || replay->result->failed || !policy_has(replay->policy, hook))
		return false;
	memcpy(&head, ctx, sizeof(head));
	memcpy(policy_table(replay->policy), record_table(entry), entry->count * sizeof(struct belfry_vgpu));
	rc = policy_call(replay->policy, hook, ctx, size);
	memcpy(ctx, &head, sizeof(head)); /* the policy may have overwritten it */
	if (rc < 0)
		note_failure(replay);
	return rc == BELFRY_PROPOSE;
}

static int replay_pick(struct replay *replay, const struct record_entry *entry)
{
	const struct belfry_vgpu *table = record_table(entry);
	struct belfry_pick ctx;
	uint64_t is_id;
	int rc;

	memcpy(&ctx, record_ctx(entry), sizeof(ctx));
	ctx.choice = ctx.beside = BELFRY_NOBODY;
	ctx.slice_ns = ctx.units = 0;
	if (proposes(replay, entry, &ctx, sizeof(ctx)))
		replay->result->clamped += sched_clamp_pick(table, &ctx) != 0;
	else
		sched_fair_pick(table, &ctx);
	is_id = ctx.choice < entry->count ? table[ctx.choice].id : 0;
	compare(replay, &(struct replay_difference){ entry->at_ns, BELFRY_HOOK_PICK, entry->got_id, is_id,
						     entry->got_ns, ctx.slice_ns });
	rc = count_pick(replay, WAS, entry->got_id, entry->got_ns);
	return rc ? rc : count_pick(replay, IS, is_id, ctx.slice_ns);
}

static int replay_preempt(struct replay *replay, const struct record_entry *entry)
{
	const struct belfry_vgpu *table = record_table(entry);
	struct belfry_preempt ctx;
	uint32_t holder;
	uint64_t id;
	int rc = 0;

	memcpy(&ctx, record_ctx(entry), sizeof(ctx));
	holder = ctx.holder;
	ctx.stop = 0;
	if (proposes(replay, entry, &ctx, sizeof(ctx))) {
		ctx.holder = holder;
		replay->result->clamped += sched_clamp_preempt(table, &ctx) != 0;
	} else {
		ctx.holder = holder;
		sched_fair_preempt(table, &ctx);
	}
	id = table[ctx.head.vgpu].id;
	compare(replay, &(struct replay_difference){ entry->at_ns, BELFRY_HOOK_PREEMPT, id, id,
						     entry->got_ns != 0, ctx.stop != 0 });
	if (entry->got_ns)
		rc = count_stop(replay, WAS, id);
	return !rc && ctx.stop ? count_stop(replay, IS, id) : rc;
}

/* Restores the context to its state before the recorded answer. */
static void forget_answer(enum belfry_hook hook, const struct record_entry *entry, void *ctx)
{
	const struct belfry_head *head = ctx;
	struct belfry_tick *tick = ctx;
	struct belfry_ctx_init *init = ctx;

	switch (hook) {
	case BELFRY_HOOK_TICK:
		*tick = (struct belfry_tick){ .head = tick->head, .interleave = -1, .ride = -1 };
		break;
	case BELFRY_HOOK_ENQUEUE:
		((struct belfry_enqueue *)ctx)->deadline_ns =
			head->vgpu < entry->count ? record_table(entry)[head->vgpu].deadline_ns : 0;
		break;
	case BELFRY_HOOK_CTX_INIT:
		init->timeslice_us = init->refuse = 0;
		init->interleave = -1;
		break;
	case BELFRY_HOOK_MEM_ALLOC:
		((struct belfry_mem_alloc *)ctx)->verdict = BELFRY_MEM_ALLOW;
		break;
	case BELFRY_HOOK_MEM_PRESSURE:
		((struct belfry_mem_pressure *)ctx)->victim = BELFRY_NOBODY;
		break;
	default:
		break;
	}
}

/* The hook is called because the policy may keep state, but nothing is compared: the record does not contain
 * the result. */
static int replay_other(struct replay *replay, const struct record_entry *entry)
{
	uint64_t ctx[1024 / 8];
	enum belfry_hook hook = (enum belfry_hook)entry->hook;
	size_t size = policy_ctx_size(hook);

	if (hook != BELFRY_HOOK_INIT && hook != BELFRY_HOOK_EXIT && hook != BELFRY_HOOK_DUMP &&
	    size <= entry->ctx_bytes) {
		memcpy(ctx, record_ctx(entry), entry->ctx_bytes);
		forget_answer(hook, entry, ctx);
		proposes(replay, entry, ctx, size);
	}
	return 0;
}

static void note_name(struct replay *replay, const struct record_entry *entry)
{
	char name[BELFRY_NAME_SIZE];
	struct replay_vgpu *vgpu;
	uint64_t id;

	if (!record_introduces(entry, &id, name))
		return;
	vgpu = vgpu_of(replay, id);
	if (vgpu)
		memcpy(vgpu->name, name, sizeof(vgpu->name));
}

/* An entry whose table is incomplete cannot be put to a policy, and the answer of a vGPU's own policy is not
 * compared. */
static bool is_question(const struct record_entry *entry)
{
	struct belfry_head head;

	memcpy(&head, record_ctx(entry), sizeof(head));
	return head.count == entry->count && entry->decider != SCHED_BY_OWN_POLICY;
}

static int replay_entry(struct replay *replay, const struct record_entry *entry)
{
	struct replay_result *result = replay->result;

	result->lost += entry->lost;
	if (entry->kind != RECORD_DECISION)
		return 0;
	if (!result->entries++)
		result->first_ns = entry->at_ns;
	result->last_ns = entry->at_ns;
	note_name(replay, entry);
	if (!is_question(entry))
		return 0;
	if (entry->hook != BELFRY_HOOK_PICK && entry->hook != BELFRY_HOOK_PREEMPT)
		return replay_other(replay, entry);
	result->asked++;
	return entry->hook == BELFRY_HOOK_PICK ? replay_pick(replay, entry) : replay_preempt(replay, entry);
}

static int replay_all(struct replay *replay, FILE *record, void *buffer, struct bf_error *err)
{
	int rc = record_read_header(record, err);

	while (!rc) {
		rc = record_read(record, buffer, err);
		replay->result->is_cut_off = rc == RECORD_CUT_OFF;
		if (rc != RECORD_ENTRY)
			return rc < 0 ? rc : 0;
		rc = replay_entry(replay, buffer);
	}
	return rc == -ENOMEM ? bf_fail(err, ENOMEM, "not enough memory for the vGPUs of the record") : rc;
}

int replay_run(FILE *record, struct policy *policy, size_t most, struct replay_result *result,
	       struct bf_error *err)
{
	struct replay replay = { .policy = policy, .result = result, .most = most };
	void *buffer = malloc(RECORD_ENTRY_MAX);
	int rc;

	*result = (struct replay_result){ .entries = 0 };
	result->differences = calloc(most ? most : 1, sizeof(*result->differences));
	rc = buffer && result->differences
		     ? replay_all(&replay, record, buffer, err)
		     : bf_fail(err, ENOMEM, "not enough memory for %zu differences", most);
	free(buffer);
	if (rc)
		replay_free(result);
	return rc;
}

void replay_free(struct replay_result *result)
{
	free(result->vgpus);
	free(result->differences);
	*result = (struct replay_result){ .entries = 0 };
}
