/* The token: which vGPU holds it, until when, and the gates that follow from it. */
#include "sched/state.h"

#include "base/number.h"

enum { RESUME_NS = 350000 }; /* how long a resume takes on an H200 */

bool vgpu_may_have_token(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return vgpu_wants(vgpu) && vgpu_takes_token(sched, vgpu) && !vgpu->is_spent;
}

/* beside_id: the only vGPU of the domain that may share the token; 0: all of the domain. */
static bool may_share_token(const struct sched_vgpu *vgpu, const struct sched_vgpu *other, uint64_t beside_id)
{
	return vgpu == other || (vgpu->share.domain && vgpu->share.domain == other->share.domain &&
				 (!beside_id || beside_id == vgpu->id));
}

bool vgpu_is_with_holder(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return sched->holder && may_share_token(vgpu, sched->holder, sched->beside_id);
}

static bool has_waiters(const struct sched *sched)
{
	if (queue_first(sched))
		return true;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (vgpu_may_have_token(sched, v) && !vgpu_is_with_holder(sched, v))
			return true;
	return false;
}

/* The next holder: decided once for a hand-over, and again if another vGPU begins to wait. */
static struct sched_vgpu *elect(struct sched *sched)
{
	if (sched->elected && vgpu_may_have_token(sched, sched->elected))
		return sched->elected;
	sched->elected = has_waiters(sched)
				 ? ask_pick(sched, &sched->elected_slice_ns,
					    &sched->is_elected_slice_proposed, &sched->elected_beside_id)
				 : NULL;
	return sched->elected;
}

/* How long a holder without work keeps the token: about as long as it usually has no work, if that is short. */
static uint64_t patience_ns(const struct sched *sched, const struct sched_vgpu *holder)
{
	uint64_t usual = 3 * holder->gap_ns;

	return usual <= sched->options.idle_ns ? usual : 0;
}

enum verdict { STAYS, RENEWED, EXPIRED, GIVES_BACK, IS_CUT };

/* Less than slice_min_ns of its slice has passed. */
static bool is_new(const struct sched *sched, const struct sched_vgpu *holder)
{
	return (int64_t)holder->slice_ns - holder->slice_left_ns < (int64_t)sched->options.slice_min_ns;
}

/* Decided when something has happened since the last decision. Under a policy, of two holders in a row at least one has the
 * shortest slice: the vGPU that the built-in policy would stop the holder for need not be the one that the policy picks. */
static bool is_to_be_cut(struct sched *sched)
{
	bool is_early = is_new(sched, sched->holder), is_cut;

	sched->may_cut |= sched->cuts_later && !is_early;
	if (!sched->may_cut)
		return false;
	sched->may_cut = sched->cuts_later = false;
	if (is_early && sched->was_cut_early && sched->policy.hooks) {
		sched->cuts_later = true;
		return false;
	}
	is_cut = ask_preempt(sched);
	sched->cuts_later &= is_early;
	return is_cut;
}

static enum verdict judge(struct sched *sched)
{
	const struct sched_vgpu *holder = sched->holder;

	if (holder->is_held || !vgpu_takes_token(sched, holder))
		return GIVES_BACK;
	if (holder->is_spent)
		return EXPIRED;
	if (!has_waiters(sched))
		return holder->slice_left_ns > 0 ? STAYS : RENEWED;
	if (!vgpu_wants(holder))
		return sched->now_ns - holder->idle_ns >= patience_ns(sched, holder) ? GIVES_BACK : STAYS;
	if (holder->slice_left_ns <= 0)
		return EXPIRED;
	return is_to_be_cut(sched) ? IS_CUT : STAYS;
}

static void begin_slice(struct sched_vgpu *vgpu, uint64_t ns, bool is_proposed)
{
	vgpu->slice_ns = ns;
	vgpu->slice_left_ns = (int64_t)ns;
	vgpu->is_slice_proposed = is_proposed;
}

void sched_update_slice(struct sched *sched)
{
	struct sched_vgpu *holder = sched->holder;
	int64_t had;

	if (!holder || holder->is_slice_proposed)
		return;
	had = (int64_t)holder->slice_ns - holder->slice_left_ns;
	holder->slice_ns = vgpu_slice(sched, holder);
	holder->slice_left_ns = (int64_t)holder->slice_ns - had;
}

/* Waiting vGPUs of the domain share the token. */
static void unpark_domain(struct sched *sched, struct sched_vgpu *vgpu)
{
	for (struct sched_vgpu *v = vgpu->next_in_domain; v != vgpu; v = v->next_in_domain)
		vgpu_unpark(sched, v);
}

static void grant(struct sched *sched, struct sched_vgpu *vgpu)
{
	vgpu_unpark(sched, vgpu);
	unpark_domain(sched, vgpu);
	sched->holder = vgpu;
	sched->beside_id = sched->elected_beside_id;
	sched->handovers++;
	vgpu->grants++;
	vgpu->granted_ns = sched->now_ns;
	vgpu->granted_gpu_ns = vgpu->gpu_ns;
	begin_slice(vgpu, sched->elected_slice_ns, sched->is_elected_slice_proposed);
	sched->elected = NULL;
	sched->cuts_later = false;
	tell_running(sched, vgpu);
}

static void take_back(struct sched *sched, enum verdict why)
{
	struct sched_vgpu *holder = sched->holder;

	tell_stopping(sched, holder,
		      why == IS_CUT	  ? BELFRY_WAS_CUT
		      : why == GIVES_BACK ? BELFRY_GAVE_BACK
					  : BELFRY_SLICE_ENDED);
	holder->expiries += why == EXPIRED || why == IS_CUT;
	holder->given_back += why == GIVES_BACK;
	sched->was_cut_early = why == IS_CUT && is_new(sched, holder);
	sched->holder = NULL;
	sched->last = holder;
	sched->elected = NULL;
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (v->is_open && vgpu_takes_token(sched, v))
			v->drain_ns = sched->now_ns + (why == IS_CUT ? 0 : sched->options.grace_ns);
}

/* A vGPU is in the way if it may not share the token with `next`, and is still on the GPU or on the way there. Returns how
 * many are, and one of them. */
static unsigned in_way(const struct sched *sched, const struct sched_vgpu *next,
		       const struct sched_vgpu **one)
{
	unsigned count = 0;

	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (vgpu_takes_token(sched, v) && !may_share_token(v, next, sched->elected_beside_id) &&
		    !v->is_held && (v->is_open || v->is_resuming || vgpu_is_draining(v))) {
			*one = v;
			count++;
		}
	return count;
}

/* Most of a shorter timeslice would be spent on the context switch. */
static bool may_have_company(const struct sched_vgpu *vgpu)
{
	return !vgpu->timeslice_us || vgpu->timeslice_us >= COMPANY_SLICE_US;
}

/* Whether `next` gets the token before `leaving` is stopped, so that the GPU has work during the stop, and during the resume
 * of `next`. The two share the GPU for a while, so this requires that GPU time is measured. The resume begins within the grace
 * time. A vGPU that has reached its limit is stopped without delay. */
static bool may_overlap(const struct sched *sched, const struct sched_vgpu *leaving,
			const struct sched_vgpu *next)
{
	uint64_t resume_ns = next->is_stopped ? RESUME_NS : 0;

	return sched->options.is_measured && vgpu_is_draining(leaving) && !leaving->is_stopping &&
	       !leaving->is_spent && next->is_present && !next->is_stopping && !vgpu_is_on(next) &&
	       may_have_company(leaving) && may_have_company(next) &&
	       sched->now_ns + resume_ns >= leaving->drain_ns;
}

/* Whether the work of all others on the GPU has ended or been stopped, or is about to be. */
static bool is_way_clear(const struct sched *sched, const struct sched_vgpu *next)
{
	const struct sched_vgpu *leaving = NULL;
	unsigned count = in_way(sched, next, &leaving);

	return !count || (count == 1 && may_overlap(sched, leaving, next));
}

/* Takes the token back where its time is over, and gives it to the next vGPU. */
static void move_token(struct sched *sched)
{
	struct sched_vgpu *next;
	enum verdict verdict;

	if (sched->holder) {
		verdict = judge(sched);
		if (verdict == STAYS)
			return;
		if (verdict == RENEWED) {
			begin_slice(sched->holder, vgpu_slice(sched, sched->holder), false);
			return;
		}
		take_back(sched, verdict);
	}
	next = elect(sched);
	if (next && is_way_clear(sched, next))
		grant(sched, next);
}

bool vgpu_belongs_open(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	if (vgpu->is_held || vgpu->is_spent || !vgpu->is_present)
		return false;
	if (!vgpu_takes_token(sched, vgpu))
		return true;
	return vgpu == sched->holder ||
	       (vgpu_is_with_holder(sched, vgpu) && vgpu_may_have_token(sched, vgpu));
}

static void close_gate(struct sched *sched, struct sched_vgpu *vgpu)
{
	vgpu->is_open = false;
	if (vgpu->drain_ns < sched->now_ns)
		vgpu->drain_ns = sched->now_ns + sched->options.grace_ns;
}

static void open_gate(struct sched_vgpu *vgpu)
{
	vgpu->is_open = true;
	vgpu->drain_ns = 0;
	vgpu->is_resuming = vgpu->is_stopped;
	vgpu->is_running |= vgpu->is_waiting;
	vgpu->is_waiting = false;
}

/* The holder got the token, and its work does not run yet. */
static bool is_holder_to_come(const struct sched *sched)
{
	const struct sched_vgpu *holder = sched->holder;

	return holder && vgpu_belongs_open(sched, holder) && !holder->is_stopping &&
	       (!holder->is_open || holder->is_resuming);
}

/* Whether its work on the GPU has to be stopped, for another vGPU or for its own limit. */
static bool must_stop(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	if (!vgpu_is_draining(vgpu) || vgpu->is_stopping || sched->now_ns < vgpu->drain_ns)
		return false;
	return vgpu->is_spent || (!is_holder_to_come(sched) && vgpu_takes_token(sched, vgpu) &&
				  !vgpu_belongs_open(sched, vgpu) && (has_waiters(sched) || sched->holder));
}

static bool order(struct sched_order *to, enum sched_order_kind kind, struct sched_vgpu *vgpu)
{
	*to = (struct sched_order){ .kind = kind, .vgpu = vgpu };
	return true;
}

bool sched_next_token(struct sched *sched, struct sched_order *to)
{
	move_token(sched);
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (v->is_open && !v->is_held && !vgpu_belongs_open(sched, v)) {
			close_gate(sched, v);
			return order(to, SCHED_CLOSE, v);
		}
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (must_stop(sched, v)) {
			v->is_stopping = true;
			v->stops++;
			return order(to, SCHED_STOP, v);
		}
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (!v->is_open && !v->is_held && !v->is_stopping && vgpu_belongs_open(sched, v)) {
			open_gate(v);
			return order(to, SCHED_OPEN, v);
		}
	return false;
}

static uint64_t after(const struct sched *sched, int64_t ns)
{
	return ns > 0 ? sched->now_ns + (uint64_t)ns : sched->now_ns;
}

static bool has_rider_on(const struct sched *sched)
{
	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (v->is_rider && vgpu_is_on(v))
			return true;
	return false;
}

/* When its slice may be over. Beside a rider the slice passes more slowly, or not at all: it is looked at every LEAST_NS. */
static uint64_t slice_end_ns(const struct sched *sched, const struct sched_vgpu *holder)
{
	enum { LEAST_NS = 50000 };
	bool waits_to_cut = sched->cuts_later && is_new(sched, holder);
	int64_t left = holder->slice_left_ns;

	if (waits_to_cut)
		left += (int64_t)sched->options.slice_min_ns - (int64_t)holder->slice_ns;
	if (left < LEAST_NS && has_rider_on(sched))
		left = LEAST_NS;
	return after(sched, left);
}

static uint64_t holder_wake_ns(const struct sched *sched)
{
	const struct sched_vgpu *holder = sched->holder;

	if (!holder || !has_waiters(sched))
		return SCHED_NEVER;
	if (!vgpu_wants(holder))
		return holder->idle_ns + patience_ns(sched, holder);
	return slice_end_ns(sched, holder);
}

/* When the work of a vGPU may have to be stopped, or that of the next holder resumed before. */
static uint64_t drained_wake_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	bool may_resume = sched->options.is_measured && !sched->holder &&
			  vgpu->drain_ns > sched->now_ns + RESUME_NS;

	if (!vgpu_is_draining(vgpu) || vgpu->is_stopping || vgpu->drain_ns < sched->now_ns)
		return SCHED_NEVER;
	return may_resume ? vgpu->drain_ns - RESUME_NS : vgpu->drain_ns;
}

uint64_t sched_token_wake_ns(const struct sched *sched)
{
	uint64_t wake = bf_min(holder_wake_ns(sched), queue_unspent_ns(sched));

	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot)) {
		wake = bf_min(wake, drained_wake_ns(sched, v));
		if (!vgpu_has_limit(v) || !(vgpu_wants(v) || v->is_spent))
			continue;
		wake = bf_min(wake, v->is_spent	    ? vgpu_unspent_ns(sched, v)
				    : vgpu_is_on(v) ? vgpu_spent_ns(sched, v)
						    : SCHED_NEVER);
	}
	return wake;
}
