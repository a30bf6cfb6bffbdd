/* The engines: which SM runs which block next, how long that takes, and what results from it; the same for
 * the copy engine. */
#include <errno.h>
#include <string.h>

#include "soft/hw/state.h"

/* Products of NS with the work of one step, and of rates (limited in gpu.c) with a quantum, fit in 64
 * bits. */
#define NS 1000000000ull

bool hw_channel_is_live(const struct hw_channel *ch)
{
	return ch->is_scheduled && !ch->is_disabled && ch->group->is_scheduled && !ch->group->has_error;
}

bool hw_channel_may_run(const struct hw_channel *ch)
{
	return hw_channel_is_live(ch) && !ch->space->hold_count && !ch->group->hold_count &&
	       !ch->group->unit->hold_count;
}

/* The next block on this SM that may run, or NULL; it becomes the first of the ring. */
static struct hw_resident *next_resident(struct hw_seat *seat)
{
	for (uint32_t n = 0; n < seat->count; n++) {
		if (!seat->residents->launch->is_dropped &&
		    hw_channel_may_run(seat->residents->launch->channel))
			return seat->residents;
		seat->residents = seat->residents->next;
	}
	return NULL;
}

static bool copy_may_run(const struct hw_channel *ch)
{
	return ch->work == HW_WORK_COPY && !ch->copy.is_done && hw_channel_may_run(ch);
}

/* The unit's next channel with a copy, in round-robin order. */
static struct hw_channel *next_copy(struct hw_gpu *gpu)
{
	struct hw_channel *first = NULL;

	if (!gpu->copy_count)
		return NULL;
	for (struct hw_group *g = gpu->groups; g; g = g->next) {
		for (struct hw_channel *ch = g->unit == gpu->holder ? g->channels : NULL; ch; ch = ch->next) {
			if (!copy_may_run(ch))
				continue;
			if (ch->token >= gpu->next_copy)
				return ch;
			first = first && first->token < ch->token ? first : ch;
		}
	}
	return first;
}

static uint64_t next_copy_ns(struct hw_gpu *gpu)
{
	const struct hw_channel *ch = gpu->copy_running ? NULL : next_copy(gpu);

	return ch && ch->copy.end_ns > gpu->copy_ns ? ch->copy.end_ns : gpu->copy_ns;
}

/* The SM with the earliest time that has work in this turn; the number of SMs if there is none. */
static uint32_t earliest_sm(struct hw_gpu *gpu)
{
	uint32_t best = gpu->options.sms;

	for (uint32_t i = 0; i < gpu->options.sms; i++) {
		struct hw_seat *seat = &gpu->holder->seats[i];

		if (!seat->residents || gpu->sms[i].running || gpu->sms[i].time_ns >= gpu->turn_end_ns ||
		    (best < gpu->options.sms && gpu->sms[best].time_ns <= gpu->sms[i].time_ns))
			continue;
		if (next_resident(seat))
			best = i;
	}
	return best;
}

static uint64_t cost_of_ns(const struct hw_gpu *gpu, uint64_t ns)
{
	uint64_t cost = ns * gpu->options.rate / NS;

	return cost ? cost : 1;
}

static void take_block(struct hw_gpu *gpu, uint32_t sm, struct hw_job *job)
{
	struct hw_seat *seat = &gpu->holder->seats[sm];
	struct hw_resident *r = seat->residents;
	uint64_t left, quantum = HW_QUANTUM_NS;

	seat->residents = r->next; /* the next one to run */
	if (!r->is_started && gpu->sms[sm].time_ns < r->launch->start_ns)
		gpu->sms[sm].time_ns = r->launch->start_ns;
	/* The SM was idle while the channel was stopped and other groups of the domain had the turn. */
	if (gpu->sms[sm].time_ns < r->launch->channel->time_ns)
		gpu->sms[sm].time_ns = r->launch->channel->time_ns;
	left = gpu->turn_end_ns > gpu->sms[sm].time_ns ? gpu->turn_end_ns - gpu->sms[sm].time_ns : 0;
	/* Unpaced and without other units waiting: use fewer, longer quanta. */
	if (!gpu->options.is_paced && !hw_others_wait(gpu))
		left = quantum = HW_LONG_QUANTUM_NS;
	gpu->sms[sm].running = r;
	r->launch->space->running_count++;
	__atomic_store_n(&r->launch->stop, 0, __ATOMIC_RELAXED);
	*job = (struct hw_job){ .gpu = gpu,
				.sm = sm,
				.resident = r,
				.max_cost = cost_of_ns(gpu, left < quantum ? left : quantum) };
}

/* Pieces are short, so that turns can end on time. */
static void take_copy(struct hw_gpu *gpu, struct hw_channel *ch, struct hw_job *job)
{
	uint64_t bytes = gpu->options.copy_bytes * HW_QUANTUM_NS / NS;

	bytes = bytes > HW_COPY_BYTES ? HW_COPY_BYTES : bytes;
	*job = (struct hw_job){ .gpu = gpu, .channel = ch, .max_bytes = bytes < 4096 ? 4096 : bytes };
	gpu->copy_running = ch;
	gpu->next_copy = ch->token + 1;
	ch->space->running_count++;
}

bool hw_job_take(struct hw_gpu *gpu, uint64_t now_ns, struct hw_job *job, uint64_t *next_ns)
{
	uint64_t limit = now_ns + (gpu->options.is_paced ? 0 : HW_AHEAD_NS), copy_ns = HW_NEVER;
	struct hw_channel *ch = NULL;
	uint32_t sm;
	uint64_t sm_ns;

	*next_ns = HW_NEVER;
	if (!gpu->holder || gpu->holder->hold_count)
		return false;
	sm = earliest_sm(gpu);
	sm_ns = sm < gpu->options.sms ? gpu->sms[sm].time_ns : HW_NEVER;
	if (!gpu->copy_running && gpu->copy_ns < gpu->turn_end_ns)
		ch = next_copy(gpu);
	if (ch)
		copy_ns = next_copy_ns(gpu);
	*next_ns = sm_ns < copy_ns ? sm_ns : copy_ns;
	if (*next_ns == HW_NEVER || *next_ns > limit)
		return false;
	if (sm_ns <= copy_ns) {
		take_block(gpu, sm, job);
	} else {
		gpu->copy_ns = copy_ns;
		take_copy(gpu, ch, job);
	}
	return true;
}

bool hw_job_is_waiting(struct hw_gpu *gpu, uint64_t now_ns)
{
	uint32_t sm = earliest_sm(gpu);

	if (sm == gpu->options.sms)
		return !gpu->copy_running && next_copy(gpu);
	return !gpu->options.is_paced || gpu->sms[sm].time_ns + HW_LATE_NS <= now_ns;
}

uint64_t hw_lowest_time_ns(struct hw_gpu *gpu)
{
	uint64_t lowest = HW_NEVER;

	if (!gpu->holder)
		return lowest;
	if (gpu->copy_running || (gpu->copy_ns < gpu->turn_end_ns && next_copy(gpu)))
		lowest = next_copy_ns(gpu);
	for (uint32_t i = 0; i < gpu->options.sms; i++) {
		const struct hw_sm *sm = &gpu->sms[i];

		if (sm->time_ns < lowest && (sm->running || (sm->time_ns < gpu->turn_end_ns &&
							     next_resident(&gpu->holder->seats[i]))))
			lowest = sm->time_ns;
	}
	return lowest;
}

bool hw_may_run(struct hw_gpu *gpu)
{
	if (gpu->copy_running || next_copy(gpu))
		return true;
	for (uint32_t i = 0; i < gpu->options.sms; i++)
		if (gpu->sms[i].running || next_resident(&gpu->holder->seats[i]))
			return true;
	return false;
}

void hw_hold_clock(struct hw_gpu *gpu)
{
	uint64_t lowest = hw_lowest_time_ns(gpu);

	hw_clock_set_cap(&gpu->clock, lowest == HW_NEVER ? HW_NEVER : lowest + HW_LAG_NS);
}

bool hw_unit_is_running(const struct hw_gpu *gpu, const struct hw_unit *unit)
{
	if (gpu->copy_running && gpu->copy_running->group->unit == unit)
		return true;
	for (uint32_t i = 0; i < gpu->options.sms; i++)
		if (gpu->sms[i].running && gpu->sms[i].running->launch->channel->group->unit == unit)
			return true;
	return false;
}

/* Wakes threads that wait for this to stop running. */
static void came_back(struct hw_gpu *gpu, struct hw_space *space)
{
	space->running_count--;
	if (gpu->cores->waiter_count)
		pthread_cond_broadcast(&gpu->cores->quiet);
	hw_hold_clock(gpu);
}

static void spend(struct hw_gpu *gpu, struct hw_sm *sm, struct hw_group *group, uint64_t cost)
{
	uint64_t parts = cost * NS + sm->part, ns = parts / gpu->options.rate;

	sm->part = parts % gpu->options.rate;
	sm->time_ns += ns;
	group->has_run = true;
	gpu->sm_ns += ns;
	group->time.sm_ns += ns;
	group->work_ns += ns;
	group->time.thread_instructions += cost;
	if (sm->time_ns >= gpu->turn_end_ns)
		gpu->has_news = true;
}

/* The resident continues with the launch's next block, unless other launches wait for its space. */
static void block_done(struct hw_gpu *gpu, struct hw_resident *r)
{
	struct hw_launch *l = r->launch;
	struct hw_unit *unit = l->channel->group->unit;

	l->done_count++;
	l->channel->group->time.blocks++;
	if (l->end_ns < gpu->sms[r->sm].time_ns)
		l->end_ns = gpu->sms[r->sm].time_ns;
	if (unit->waiting == l && !l->next && l->next_block < l->block_count) {
		r->index = l->next_block++;
		r->is_started = false;
		if (l->next_block == l->block_count)
			unit->waiting = NULL;
		return;
	}
	hw_resident_remove(r);
	hw_place(gpu, unit);
	if (l->done_count == l->block_count)
		gpu->has_news = true;
}

static void account_block(struct hw_job *job, enum ptx_state state, uint64_t cost, const char *failure)
{
	struct hw_gpu *gpu = job->gpu;
	struct hw_resident *r = job->resident;
	struct hw_launch *l = r->launch;
	struct hw_fault fault = { .error = SOFT_ERROR_COMPUTE, .kernel = l->ptx.kernel, .text = failure };

	spend(gpu, &gpu->sms[job->sm], l->channel->group, cost);
	gpu->kernel_moved_bytes += r->block ? ptx_block_moved_bytes(r->block) : 0;
	gpu->sms[job->sm].running = NULL;
	if (l->is_dropped) {
		hw_resident_remove(r);
		hw_place(gpu, l->channel->group->unit);
		if (!l->resident_count)
			hw_launch_bury(l);
	} else if (failure) {
		hw_group_fail(l->channel->group, &fault);
	} else if (state == PTX_STATE_FAULT) {
		fault.ptx = ptx_block_fault(r->block);
		if (fault.ptx->kind == PTX_FAULT_ADDRESS)
			fault.error = SOFT_ERROR_MMU;
		hw_group_fail(l->channel->group, &fault);
	} else if (state == PTX_STATE_DONE) {
		block_done(gpu, r);
	}
	came_back(gpu, l->space);
}

static void split_index(const struct hw_resident *r, uint32_t index[3])
{
	const uint32_t *grid = r->launch->ptx.grid;

	index[0] = (uint32_t)(r->index % grid[0]);
	index[1] = (uint32_t)(r->index / grid[0] % grid[1]);
	index[2] = (uint32_t)(r->index / grid[0] / grid[1]);
}

static void run_block(struct hw_job *job)
{
	struct hw_resident *r = job->resident;
	struct hw_launch *l = r->launch;
	enum ptx_state state = PTX_STATE_RUNNING;
	struct bf_error err = { 0 };
	uint64_t cost = 0;
	uint32_t index[3];

	if (!r->block)
		ptx_block_create(&l->ptx, &l->host, &r->block, &err);
	if (r->block) {
		if (!r->is_started) {
			split_index(r, index);
			ptx_block_start(r->block, index, job->sm);
			r->is_started = true;
		}
		state = ptx_block_run(r->block, job->max_cost, &l->stop, &cost);
	}
	hw_lock(job->gpu->cores);
	account_block(job, state, cost, r->block ? NULL : err.text);
}

static void account_copy(struct hw_job *job, const struct hw_copy *c, const struct hw_copied *copied)
{
	struct hw_channel *ch = job->channel;
	struct hw_gpu *gpu = job->gpu;
	uint64_t ns = copied->bytes * NS / gpu->options.copy_bytes;

	gpu->copy_running = NULL;
	gpu->copy_ns += ns;
	gpu->copy_busy_ns += ns;
	gpu->copy_moved_bytes += copied->moved_bytes;
	ch->group->time.copied_bytes += copied->bytes;
	ch->group->has_run = true;
	ch->group->work_ns += ns;
	if (ch->work == HW_WORK_COPY) {
		ch->copy = *c;
		ch->copy.end_ns = gpu->copy_ns;
		if (copied->is_fault)
			hw_channel_fail(ch, SOFT_ERROR_MMU, copied->fault_address,
					copied->is_write ? "a copy's destination" : "a copy's source");
		else if (copied->is_done) {
			ch->copy.is_done = true;
			gpu->copy_count--;
		}
	}
	gpu->has_news |= copied->is_done || gpu->copy_ns >= gpu->turn_end_ns;
	came_back(gpu, ch->space);
}

static void run_copy(struct hw_job *job)
{
	struct hw_copy copy = job->channel->copy;
	struct hw_copied copied = { 0 };

	hw_copy_run(&copy, job->channel->space, job->max_bytes, &copied);
	hw_lock(job->gpu->cores);
	account_copy(job, &copy, &copied);
}

void hw_job_run(struct hw_job *job)
{
	if (job->resident)
		run_block(job);
	else
		run_copy(job);
}
