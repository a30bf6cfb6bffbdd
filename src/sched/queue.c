/* The vGPUs that may have the token. Those that are parked are in a heap by their pass, so that the one that has had the
 * least for its weight is found without a look at the others. There are few others: they are searched. */
#include <errno.h>

#include "sched/state.h"

static struct sched_vgpu *of_waiter(const struct bf_heap_node *node)
{
	return (struct sched_vgpu *)((char *)node - offsetof(struct sched_vgpu, waiter));
}

static struct sched_vgpu *of_latency_waiter(const struct bf_heap_node *node)
{
	return (struct sched_vgpu *)((char *)node - offsetof(struct sched_vgpu, latency_waiter));
}

static struct sched_vgpu *of_spent(const struct bf_heap_node *node)
{
	return (struct sched_vgpu *)((char *)node - offsetof(struct sched_vgpu, spent));
}

static bool is_unspent_before(const struct bf_heap_node *a, const struct bf_heap_node *b)
{
	return of_spent(a)->unspent_ns < of_spent(b)->unspent_ns;
}

/* The order of sched_fair_pick(): of two with the same pass, the first in the table is picked. */
static bool is_before(const struct sched_vgpu *a, const struct sched_vgpu *b)
{
	return a->pass != b->pass ? a->pass < b->pass : a->awake_number > b->awake_number;
}

static bool is_waiter_before(const struct bf_heap_node *a, const struct bf_heap_node *b)
{
	return is_before(of_waiter(a), of_waiter(b));
}

static bool is_latency_waiter_before(const struct bf_heap_node *a, const struct bf_heap_node *b)
{
	return is_before(of_latency_waiter(a), of_latency_waiter(b));
}

void queue_init(struct sched *sched)
{
	sched->spent.is_before = is_unspent_before;
	sched->waiters.is_before = is_waiter_before;
	sched->latency_waiters.is_before = is_latency_waiter_before;
}

int queue_reserve(struct sched *sched, size_t count)
{
	if (bf_heap_reserve(&sched->spent, count) || bf_heap_reserve(&sched->waiters, count))
		return -ENOMEM;
	return bf_heap_reserve(&sched->latency_waiters, count);
}

void queue_free(struct sched *sched)
{
	bf_heap_free(&sched->spent);
	bf_heap_free(&sched->waiters);
	bf_heap_free(&sched->latency_waiters);
}

void queue_add(struct sched *sched, struct sched_vgpu *vgpu)
{
	if (vgpu->is_spent) {
		vgpu->unspent_ns = vgpu_unspent_ns(sched, vgpu);
		bf_heap_insert(&sched->spent, &vgpu->spent);
	}
	if (!vgpu_may_have_token(sched, vgpu))
		return;
	bf_heap_insert(&sched->waiters, &vgpu->waiter);
	if (vgpu->share.class == SCHED_LATENCY)
		bf_heap_insert(&sched->latency_waiters, &vgpu->latency_waiter);
}

void queue_remove(struct sched *sched, struct sched_vgpu *vgpu)
{
	bf_heap_remove(&sched->spent, &vgpu->spent);
	bf_heap_remove(&sched->waiters, &vgpu->waiter);
	bf_heap_remove(&sched->latency_waiters, &vgpu->latency_waiter);
}

void vgpu_set_pass(struct sched *sched, struct sched_vgpu *vgpu, int64_t pass)
{
	if (pass == vgpu->pass)
		return;
	vgpu->pass = pass;
	bf_heap_update(&sched->waiters, &vgpu->waiter);
	bf_heap_update(&sched->latency_waiters, &vgpu->latency_waiter);
}

struct sched_vgpu *queue_first_spent(const struct sched *sched)
{
	struct bf_heap_node *first = bf_heap_first(&sched->spent);

	return first ? of_spent(first) : NULL;
}

uint64_t queue_unspent_ns(const struct sched *sched)
{
	const struct sched_vgpu *first = queue_first_spent(sched);

	return first ? first->unspent_ns : SCHED_NEVER;
}

struct sched_vgpu *queue_first(const struct sched *sched)
{
	struct bf_heap_node *first = bf_heap_first(&sched->waiters);

	return first ? of_waiter(first) : NULL;
}

bool queue_is_due(const struct sched *sched, const struct belfry_head *head, const struct sched_vgpu *vgpu)
{
	struct belfry_vgpu entry = { .class = BELFRY_LATENCY, .pass_ns = vgpu->pass };

	if (vgpu->share.class != SCHED_LATENCY)
		return false;
	entry.window_used_ns = window_used(&vgpu->window, sched->options.window_ns, sched->now_ns);
	entry.window_promised_ns = vgpu_window_promised_ns(sched, vgpu);
	return fair_is_due(head, &entry);
}

/* A search for the vGPU that the built-in policy picks. */
struct search {
	const struct sched *sched;
	const struct belfry_head *head;
	struct sched_vgpu *best;
	bool is_best_due;
};

static void consider(struct search *search, struct sched_vgpu *vgpu, bool is_due)
{
	bool is_better = !search->best ||
			 (is_due != search->is_best_due ? is_due : is_before(vgpu, search->best));

	if (!is_better)
		return;
	search->best = vgpu;
	search->is_best_due = is_due;
}

/* All below a node have had at least as much: they are looked at only where the node is not due. */
static bool consider_latency(void *context, struct bf_heap_node *node)
{
	struct sched_vgpu *vgpu = of_latency_waiter(node);
	struct search *search = context;

	if (search->is_best_due && is_before(search->best, vgpu))
		return false;
	if (!queue_is_due(search->sched, search->head, vgpu))
		return true;
	consider(search, vgpu, true);
	return false;
}

struct sched_vgpu *queue_pick(const struct sched *sched, const struct belfry_head *head)
{
	struct search search = { .sched = sched, .head = head };
	struct sched_vgpu *first = queue_first(sched);

	for (struct sched_vgpu *v = LIST_FIRST(&sched->hot); v; v = LIST_NEXT(v, in_hot))
		if (vgpu_may_have_token(sched, v) && !vgpu_is_with_holder(sched, v))
			consider(&search, v, queue_is_due(sched, head, v));
	bf_heap_walk(&sched->latency_waiters, consider_latency, &search);
	if (first)
		consider(&search, first, false);
	return search.best;
}
