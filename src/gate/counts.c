/* What the poller has counted, for other threads. */
#include "base/clock.h"
#include "gate/poller.h"

struct gate_vgpu_counts gate_vgpu_counts(const struct gate_vgpu *vgpu)
{
	uint64_t state_number = atomic_load_explicit(&vgpu->state_number, memory_order_relaxed);
	struct gate_vgpu_counts counts = {
		.rings = atomic_load_explicit(&vgpu->rings, memory_order_relaxed),
		.forwards = atomic_load_explicit(&vgpu->forwards, memory_order_relaxed),
		.last_forward_ns = atomic_load_explicit(&vgpu->last_forward_ns, memory_order_relaxed),
	};

	/* Both pair with the poller's release store of the same word: the time was written before it. */
	if (!atomic_load_explicit(&vgpu->is_quiet, memory_order_acquire)) {
		counts.woke_ns = atomic_load_explicit(&vgpu->woke_ns, memory_order_relaxed);
		counts.woke.found_ns = atomic_load_explicit(&vgpu->woke_found_ns, memory_order_relaxed);
		counts.woke.likely_ns = atomic_load_explicit(&vgpu->woke_likely_ns, memory_order_relaxed);
	}
	if (!gate_state_is_open(state_number) &&
	    atomic_load_explicit(&vgpu->waiting_state, memory_order_acquire) == state_number)
		counts.waiting_since_ns = atomic_load_explicit(&vgpu->waiting_ns, memory_order_relaxed);
	return counts;
}

struct gate_counts gate_counts(const struct gate *gate)
{
	return (struct gate_counts){
		.rings = atomic_load_explicit(&gate->rings, memory_order_relaxed),
		.forwards = atomic_load_explicit(&gate->forwards, memory_order_relaxed),
		.strange = atomic_load_explicit(&gate->strange, memory_order_relaxed),
		.found_unrung = atomic_load_explicit(&gate->found_unrung, memory_order_relaxed),
		.is_armed = gate_traps_are_armed(&gate->traps),
		.trapped = atomic_load_explicit(&gate->traps.wakes, memory_order_relaxed),
		.empty = atomic_load_explicit(&gate->empty, memory_order_relaxed),
	};
}

/* The poller may be replacing it by a later one. */
static struct gate_came came_at(const struct gate_vgpu *vgpu, unsigned at)
{
	struct gate_came came = { .found_ns =
					  atomic_load_explicit(&vgpu->found_ns[at], memory_order_acquire) };

	came.likely_ns = atomic_load_explicit(&vgpu->likely_ns[at], memory_order_relaxed);
	if (came.likely_ns > came.found_ns)
		came.likely_ns = came.found_ns;
	return came;
}

struct gate_came gate_vgpu_came_after(const struct gate_vgpu *vgpu, uint64_t after_ns)
{
	struct gate_came first = { 0 };
	bool is_all = true;

	for (unsigned i = 0; i < GATE_FORWARDS_KEPT; i++) {
		struct gate_came came = came_at(vgpu, i);

		is_all &= came.found_ns > after_ns;
		if (came.found_ns > after_ns && (!first.found_ns || came.found_ns < first.found_ns))
			first = came;
	}
	if (is_all)
		first = (struct gate_came){ 0 };
	return first;
}

uint64_t gate_cpu_ns(const struct gate *gate)
{
	return bf_thread_cpu_ns(gate->poller);
}
