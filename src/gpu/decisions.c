/* The recent decisions of policies, and the followers that receive them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/process.h"
#include "gpu/policy.h"
#include "replay/decision.h"

enum { FOLLOWERS_MAX = 64, FOLLOWERS_OF_ONE = 8 };

/* Decisions to stop no vGPU are frequent and are not kept. */
static bool is_news(const struct sched_decision *is)
{
	if (is->decider == SCHED_BUILT_IN || !decision_proposes(is->hook))
		return false;
	return is->hook != BELFRY_HOOK_PREEMPT || is->got_ns || is->clamps;
}

static void keep(struct gpu *gpu, const struct sched_decision *is)
{
	const struct vgpu *got = vgpu_by_id(gpu, is->got_id),
			  *proposed = is->proposed_id == is->got_id ? got : vgpu_by_id(gpu, is->proposed_id);
	struct seat *seat = is->decider == SCHED_BY_OWN_POLICY && got ? got->seat : gpu->seat;
	struct decision *to;

	if (!seat || !gpu->decisions.ring)
		return;
	if (is->clamps)
		seat->clamped[is->hook]++;
	to = &gpu->decisions.ring[gpu->decisions.count++ % GPU_DECISIONS];
	to->is = *is;
	to->seat = seat->number;
	to->track = got ? got->track : 0;
	to->proposed_track = proposed ? proposed->track : 0;
	memcpy(to->policy, seat->name, sizeof(to->policy));
}

static bool is_wanted(const struct follower *follower, const struct sched_decision *is)
{
	if (follower->id && follower->id != is->got_id && follower->id != is->proposed_id)
		return false;
	return follower->wants_all || is->decider != SCHED_BUILT_IN || is->clamps;
}

void follower_tell(struct follower *follower, struct record_entry *entry)
{
	entry->lost = follower->lost;
	if (send(follower->sock, entry, entry->bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)entry->bytes)
		follower->lost = 0;
	else
		follower->lost++;
}

static void tell_followers(struct gpu *gpu, const struct sched_decision *is, const void *ctx, size_t size,
			   const struct belfry_vgpu *table)
{
	bool is_made = false;

	for (struct follower *f = gpu->followers; f; f = f->next) {
		if (!is_wanted(f, is))
			continue;
		if (!is_made && !record_make(is, ctx, size, table, gpu->follow_entry, RECORD_ENTRY_MAX))
			return;
		is_made = true;
		follower_tell(f, gpu->follow_entry);
	}
}

/* Called by sched, in the middle of a decision. */
static void decided(void *context, const struct sched_decision *is, const void *ctx, size_t size,
		    const struct belfry_vgpu *table)
{
	struct gpu *gpu = context;

	if (is_news(is))
		keep(gpu, is);
	if (gpu->followers)
		tell_followers(gpu, is, ctx, size, table);
}

void decisions_note(struct gpu *gpu, const struct refusal *refusal, const struct vgpu *about)
{
	bool is_refused = !refusal->clamps;
	struct sched_decision is = { .at_ns = bf_now_ns(),
				     .hook = refusal->hook,
				     .decider = refusal->decider,
				     .proposed_id = about->id,
				     .got_id = about->id,
				     .proposed_ns = is_refused,
				     .got_ns = is_refused,
				     .clamps = refusal->clamps };

	decided(gpu, &is, &refusal->ctx, refusal->size, NULL);
}

static bool has_policies(const struct gpu *gpu)
{
	if (gpu->seat && gpu->seat->policy)
		return true;
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->seat && v->seat->policy)
			return true;
	return false;
}

void decisions_settle(struct gpu *gpu)
{
	struct sched_watch watch = { .decided = decided, .context = gpu };
	bool has_any = has_policies(gpu);

	for (const struct follower *f = gpu->followers; f; f = f->next)
		watch.wants_all |= f->wants_all;
	if (has_any && !gpu->decisions.ring)
		gpu->decisions.ring = calloc(GPU_DECISIONS, sizeof(*gpu->decisions.ring));
	sched_watch(gpu->sched, has_any || gpu->followers ? &watch : NULL);
}

/* Send the existing vGPUs, so that the record can be read by itself. */
static void introduce(struct gpu *gpu, struct follower *follower)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct belfry_vgpu_init ctx = seat_vgpu_init(v);
		struct sched_decision is = { .at_ns = bf_now_ns(),
					     .hook = BELFRY_HOOK_VGPU_INIT,
					     .proposed_id = ctx.id,
					     .got_id = ctx.id };

		ctx.head = (struct belfry_head){ .now_ns = is.at_ns,
						 .hook = BELFRY_HOOK_VGPU_INIT,
						 .size = sizeof(ctx),
						 .vgpu = BELFRY_NOBODY };
		if (is_wanted(follower, &is) &&
		    record_make(&is, &ctx, sizeof(ctx), NULL, gpu->follow_entry, RECORD_ENTRY_MAX))
			follower_tell(follower, gpu->follow_entry);
	}
}

int follower_check(const struct gpu *gpu, const struct ucred *who, struct bf_error *err)
{
	unsigned all = 0, of_user = 0;

	for (const struct talker *t = LIST_FIRST(&gpu->talkers); t; t = LIST_NEXT(t, next))
		if (t->follower) {
			all++;
			of_user += t->who.uid == who->uid;
		}
	if (bf_is_admin(who->uid) ? all >= FOLLOWERS_MAX
				  : of_user >= FOLLOWERS_OF_ONE || all >= FOLLOWERS_MAX / 2)
		return bf_fail(err, EAGAIN, "too many follow what is decided already: %u, %u of them yours",
			       all, of_user);
	return 0;
}

struct follower *follower_add(struct gpu *gpu, const struct talker *talker, uint32_t flags,
			      const struct vgpu *vgpu)
{
	struct follower *follower = calloc(1, sizeof(*follower));
	int sock = talker->sock, room = 4 << 20;

	if (!gpu->follow_entry)
		gpu->follow_entry = malloc(RECORD_ENTRY_MAX);
	if (!follower || !gpu->follow_entry) {
		free(follower);
		return NULL;
	}
	/* A large buffer, so that bursts are not lost. It is kernel memory, so other users get no more than the
	 * system's limit. */
	if (!bf_is_admin(talker->who.uid) ||
	    setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
		setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	*follower = (struct follower){ .sock = sock,
				       .wants_all = flags & PROTOCOL_ALL,
				       .wants_work = flags & PROTOCOL_WORK,
				       .id = vgpu ? vgpu->id : 0,
				       .next = gpu->followers };
	gpu->followers = follower;
	decisions_settle(gpu);
	introduce(gpu, follower);
	if (follower->wants_work)
		work_introduce(gpu, follower);
	return follower;
}

void follower_remove(struct gpu *gpu, struct follower *follower)
{
	struct follower **at = &gpu->followers;

	while (*at && *at != follower)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = follower->next;
	free(follower);
	if (!gpu->followers) {
		free(gpu->follow_entry);
		gpu->follow_entry = NULL;
	}
	decisions_settle(gpu);
}
