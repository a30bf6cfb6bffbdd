/* Which vGPU waited for which. At any time all vGPUs that wait for the token wait for the same vGPU: the one that holds it, or
 * that is about to leave the GPU. So one log is kept for all parked vGPUs, with an entry for each change of that vGPU. A vGPU
 * that stops waiting adds up the entries since it began. Of a longer wait only the last WAIT_LOG entries are told apart. */
#include <string.h>

#include "sched/state.h"

/* Where all are taken the one with the least time is replaced. A free one has none. */
static void note(struct sched_waited *waited, const struct sched_vgpu *other, uint64_t ns)
{
	uint64_t least_ns = waited[0].ns;
	unsigned least = 0;

	for (unsigned i = 0; i < OTHERS; i++)
		if (waited[i].other == other) {
			waited[i].ns += ns;
			return;
		}
	for (unsigned i = 1; i < OTHERS; i++) {
		least = waited[i].ns < least_ns ? i : least;
		least_ns = waited[i].ns < least_ns ? waited[i].ns : least_ns;
	}
	waited[least] = (struct sched_waited){ other, ns };
}

void waited_note(struct sched_vgpu *vgpu, const struct sched_vgpu *other, uint64_t ns)
{
	note(vgpu->waited, other, ns);
}

void wait_log_add(struct sched *sched, const struct sched_vgpu *other, uint64_t ns)
{
	struct sched_waited *last = &sched->wait_log[(sched->wait_count - 1) % WAIT_LOG];

	if (!sched->wait_count || last->other != other) {
		last = &sched->wait_log[sched->wait_count++ % WAIT_LOG];
		*last = (struct sched_waited){ other, 0 };
	}
	last->ns += ns;
}

struct wait_mark wait_log_mark(const struct sched *sched)
{
	uint64_t last = sched->wait_count - 1;

	if (!sched->wait_count)
		return (struct wait_mark){ 0, 0 };
	return (struct wait_mark){ last, sched->wait_log[last % WAIT_LOG].ns };
}

static void replay(const struct sched *sched, struct wait_mark from, struct sched_waited *waited)
{
	uint64_t number = from.number;

	if (sched->wait_count - number > WAIT_LOG)
		number = sched->wait_count - WAIT_LOG;
	for (; number < sched->wait_count; number++) {
		const struct sched_waited *entry = &sched->wait_log[number % WAIT_LOG];
		uint64_t ns = entry->ns - (number == from.number ? from.ns : 0);

		if (entry->other && ns)
			note(waited, entry->other, ns);
	}
}

void wait_log_replay(const struct sched *sched, struct sched_vgpu *vgpu)
{
	replay(sched, vgpu->wait_mark, vgpu->waited);
}

void wait_log_forget(struct sched *sched, const struct sched_vgpu *other)
{
	for (unsigned i = 0; i < WAIT_LOG; i++)
		if (sched->wait_log[i].other == other)
			sched->wait_log[i].other = NULL;
}

size_t sched_waited_for(const struct sched_vgpu *vgpu, struct sched_waited *others, size_t room)
{
	struct sched_waited waited[OTHERS];
	size_t count = 0;

	memcpy(waited, vgpu->waited, sizeof(waited));
	if (vgpu_is_parked_waiter(vgpu))
		replay(vgpu->sched, vgpu->wait_mark, waited);
	for (unsigned i = 0; i < OTHERS; i++) {
		size_t at;

		if (!waited[i].other)
			continue;
		for (at = count < room ? count : room; at > 0 && others[at - 1].ns < waited[i].ns; at--)
			if (at < room)
				others[at] = others[at - 1];
		if (at < room)
			others[at] = waited[i];
		count += count < room;
	}
	return count;
}
