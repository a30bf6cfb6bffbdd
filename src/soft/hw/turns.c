/* Turns: which unit has the GPU, from when to when, in the GPU's time. A turn ends when its timeslice is over
 * and every engine has run up to that time, or when the unit has no work. */
#include "soft/hw/state.h"

enum { PASSES_MAX = 8, ROUNDS_MAX = 1000 };

bool hw_group_is_ready(const struct hw_group *group)
{
	for (const struct hw_channel *ch = group->channels; ch; ch = ch->next)
		if (ch->is_ready)
			return true;
	return false;
}

static bool unit_has_work(const struct hw_gpu *gpu, const struct hw_unit *unit)
{
	if (unit->hold_count)
		return false;
	for (const struct hw_group *g = gpu->groups; g; g = g->next)
		if (g->unit == unit && hw_group_is_ready(g))
			return true;
	return false;
}

static bool others_have_work(const struct hw_gpu *gpu, const struct hw_unit *unit)
{
	for (const struct hw_unit *u = gpu->units; u; u = u->next)
		if (u != unit && unit_has_work(gpu, u))
			return true;
	return false;
}

bool hw_others_wait(const struct hw_gpu *gpu)
{
	return others_have_work(gpu, gpu->holder);
}

/* The longest of its groups' timeslices. */
static uint64_t timeslice_ns(const struct hw_gpu *gpu, const struct hw_unit *unit)
{
	uint64_t us = 0;

	for (const struct hw_group *g = gpu->groups; g; g = g->next)
		if (g->unit == unit && !g->has_error && g->timeslice_us > us)
			us = g->timeslice_us;
	return (us ? us : HW_TIMESLICE_US) * 1000;
}

/* The turns of a unit in a round: by the highest interleave level of its groups. */
static uint32_t turns_a_round(const struct hw_gpu *gpu, const struct hw_unit *unit)
{
	uint32_t level = 0;

	for (const struct hw_group *g = gpu->groups; g; g = g->next)
		if (g->unit == unit && g->interleave > level)
			level = g->interleave;
	return 1u << level;
}

/* The part of ns that is due to a group, of `count` groups with `work_ns` in total. */
static uint64_t part_of(const struct hw_group *group, uint64_t ns, uint64_t work_ns, uint32_t count)
{
	if (!work_ns)
		return ns / count;
	return group->work_ns >= work_ns ? ns
					 : (uint64_t)((double)ns * (double)group->work_ns / (double)work_ns);
}

static void divide_among(struct hw_gpu *gpu, uint64_t work_ns, uint32_t count)
{
	bool are_several = count > 1;

	for (struct hw_group *g = gpu->groups; g; g = g->next) {
		uint64_t ns;

		if (g->unit != gpu->holder || !g->has_run)
			continue;
		ns = part_of(g, gpu->undivided_ns, work_ns, count--);
		gpu->undivided_ns -= ns;
		work_ns -= g->work_ns;
		g->time.held_ns += ns;
		g->work_ns = 0;
		g->has_run = !are_several || hw_group_is_ready(g);
	}
	gpu->undivided_ns = 0;
}

/* Divides the time of the turn among the groups that ran in it, by the time that each used SMs and the copy engine.
 * The engines account for their work in quanta, so the time of several groups is not divided in shorter parts. */
static void divide(struct hw_gpu *gpu, bool is_end)
{
	uint64_t work_ns = 0;
	uint32_t count = 0;

	for (const struct hw_group *g = gpu->groups; g; g = g->next)
		if (g->unit == gpu->holder && g->has_run) {
			work_ns += g->work_ns;
			count++;
		}
	if (count < 2 || is_end || gpu->undivided_ns >= HW_DIVIDE_NS)
		divide_among(gpu, work_ns, count);
}

static void charge(struct hw_gpu *gpu, uint64_t until_ns)
{
	uint64_t ns = until_ns > gpu->turn_front_ns ? until_ns - gpu->turn_front_ns : 0;

	if (!gpu->holder || !ns)
		return;
	gpu->turn_front_ns = until_ns;
	gpu->busy_ns += ns;
	gpu->undivided_ns += ns;
	divide(gpu, false);
}

/* Time that the clock is ahead of the work done is not charged, because the turn may end there. */
void hw_charge_now(struct hw_gpu *gpu)
{
	uint64_t now = hw_clock_settle(&gpu->clock), lowest = hw_lowest_time_ns(gpu);

	charge(gpu, lowest < now ? lowest : now);
}

void hw_divide_now(struct hw_gpu *gpu)
{
	hw_charge_now(gpu);
	divide(gpu, true);
}

/* The latest time at which anything of the holder was done. */
static uint64_t holder_end_ns(const struct hw_gpu *gpu)
{
	uint64_t end = gpu->turn_start_ns > gpu->copy_ns ? gpu->turn_start_ns : gpu->copy_ns;

	for (uint32_t i = 0; i < gpu->options.sms; i++)
		end = gpu->sms[i].time_ns > end ? gpu->sms[i].time_ns : end;
	for (const struct hw_group *g = gpu->groups; g; g = g->next)
		for (const struct hw_channel *ch = g->unit == gpu->holder ? g->channels : NULL; ch;
		     ch = ch->next)
			end = ch->time_ns > end ? ch->time_ns : end;
	return end;
}

void hw_end_turn(struct hw_gpu *gpu)
{
	uint64_t end = holder_end_ns(gpu);

	if (end > gpu->turn_end_ns)
		gpu->holder->debt_ns += end - gpu->turn_end_ns;
	charge(gpu, end);
	divide(gpu, true);
	gpu->free_ns = end;
	gpu->last_holder = gpu->holder;
	gpu->holder = NULL;
	gpu->has_news = true;
}

void hw_unit_forget(struct hw_gpu *gpu, struct hw_unit *unit)
{
	if (gpu->holder == unit)
		hw_end_turn(gpu);
	if (gpu->last_holder == unit)
		gpu->last_holder = NULL;
}

/* Whether it is the unit's turn. A unit that held the GPU for too long skips turns. */
static bool takes_turn(struct hw_gpu *gpu, struct hw_unit *unit)
{
	uint64_t slice = timeslice_ns(gpu, unit);

	if (!unit->turns_left || !unit_has_work(gpu, unit))
		return false;
	unit->turns_left--;
	if (unit->debt_ns < slice)
		return true;
	if (!others_have_work(gpu, unit)) {
		unit->debt_ns = 0;
		return true;
	}
	unit->debt_ns -= slice;
	return false;
}

/* One pass over the units, starting after the last holder. */
static struct hw_unit *choose_in_round(struct hw_gpu *gpu)
{
	struct hw_unit *first = gpu->last_holder && gpu->last_holder->next ? gpu->last_holder->next
									   : gpu->units;

	for (struct hw_unit *u = first; u; u = u->next)
		if (takes_turn(gpu, u))
			return u;
	for (struct hw_unit *u = gpu->units; u && u != first; u = u->next)
		if (takes_turn(gpu, u))
			return u;
	return NULL;
}

static struct hw_unit *choose(struct hw_gpu *gpu)
{
	if (!others_have_work(gpu, NULL))
		return NULL;
	for (unsigned n = 0; n < ROUNDS_MAX; n++) {
		struct hw_unit *unit = choose_in_round(gpu);

		if (unit)
			return unit;
		for (struct hw_unit *u = gpu->units; u; u = u->next)
			u->turns_left = turns_a_round(gpu, u);
	}
	return NULL;
}

/* When the first of its channels became ready. */
static uint64_t ready_ns(const struct hw_gpu *gpu, const struct hw_unit *unit)
{
	uint64_t first = HW_NEVER;

	for (const struct hw_group *g = gpu->groups; g; g = g->next)
		for (const struct hw_channel *ch = g->unit == unit ? g->channels : NULL; ch; ch = ch->next)
			if (ch->is_ready && ch->time_ns < first)
				first = ch->time_ns;
	return first;
}

static void begin_turn(struct hw_gpu *gpu, struct hw_unit *unit, uint64_t now_ns)
{
	uint64_t start = ready_ns(gpu, unit), slice = timeslice_ns(gpu, unit);

	start = start < gpu->free_ns ? gpu->free_ns : start;
	start = start + HW_LAG_NS < now_ns ? now_ns - HW_LAG_NS : start;
	if (gpu->last_holder && gpu->last_holder != unit)
		start += HW_SWITCH_NS;
	gpu->holder = unit;
	gpu->turn_start_ns = gpu->turn_front_ns = start;
	gpu->turn_end_ns = start + slice - (unit->debt_ns < slice ? unit->debt_ns : 0);
	unit->debt_ns = 0;
	for (uint32_t i = 0; i < gpu->options.sms; i++)
		gpu->sms[i].time_ns = start;
	gpu->copy_ns = start;
	for (struct hw_group *g = gpu->groups; g; g = g->next) {
		if (g->unit != unit)
			continue;
		g->has_run = false;
		g->work_ns = 0;
		g->time.turns++;
		for (struct hw_channel *ch = g->channels; ch; ch = ch->next) {
			g->has_run |= ch->is_ready;
			if (ch->time_ns < start)
				ch->time_ns = start;
		}
	}
	gpu->has_news = true;
}

/* The timeslice is over: the turn continues if no other unit has work, else it ends once all engines have
 * reached that time. */
static void check_end(struct hw_gpu *gpu)
{
	struct hw_unit *unit = gpu->holder;

	if (!others_have_work(gpu, unit)) {
		hw_charge_now(gpu);
		gpu->turn_end_ns += timeslice_ns(gpu, unit);
		gpu->has_news = true;
	} else if (hw_lowest_time_ns(gpu) == HW_NEVER) {
		hw_end_turn(gpu);
	}
}

static void check_turn(struct hw_gpu *gpu, uint64_t now_ns)
{
	if (gpu->holder && !unit_has_work(gpu, gpu->holder)) {
		if (!hw_unit_is_running(gpu, gpu->holder))
			hw_end_turn(gpu);
	} else if (gpu->holder && gpu->turn_end_ns <= now_ns) {
		check_end(gpu);
	}
	if (!gpu->holder) {
		struct hw_unit *unit = choose(gpu);

		if (unit)
			begin_turn(gpu, unit, now_ns);
	}
}

static void look(struct hw_gpu *gpu)
{
	gpu->is_polling = false;
	for (struct hw_group *g = gpu->groups; g; g = g->next)
		for (struct hw_channel *ch = g->channels; ch; ch = ch->next) {
			hw_front_look(ch);
			gpu->is_polling |= ch->work == HW_WORK_ACQUIRE && hw_channel_is_live(ch);
		}
}

/* Executes commands of the holder's channels in round-robin order, within the budget. */
static void run_fronts(struct hw_gpu *gpu, uint64_t now_ns)
{
	uint32_t budget = HW_BUDGET, first = gpu->next_channel, next = first;

	for (unsigned around = 0; around < 2; around++)
		for (struct hw_group *g = gpu->groups; g; g = g->next)
			for (struct hw_channel *ch = g->unit == gpu->holder ? g->channels : NULL; ch;
			     ch = ch->next) {
				if (!ch->is_ready || !budget || (ch->token >= first) == !!around)
					continue;
				hw_front_run(ch, now_ns, &budget);
				next = ch->token + 1;
			}
	gpu->next_channel = next;
	gpu->has_news |= budget < HW_BUDGET;
}

/* When the channel can next do something by itself. */
static uint64_t channel_event_ns(const struct hw_channel *ch)
{
	if (!ch->is_ready)
		return HW_NEVER;
	switch (ch->work) {
	case HW_WORK_LAUNCH:
		return ch->launch->done_count == ch->launch->block_count ? ch->launch->end_ns : HW_NEVER;
	case HW_WORK_COPY:
		return ch->copy.is_done ? ch->copy.end_ns : HW_NEVER;
	default:
		return ch->time_ns > HW_SLACK_NS ? ch->time_ns - HW_SLACK_NS : 0;
	}
}

/* When the next event of the holder's channels is due. */
static uint64_t channels_event_ns(const struct hw_gpu *gpu)
{
	uint64_t next = HW_NEVER;

	for (const struct hw_group *g = gpu->groups; g; g = g->next)
		for (const struct hw_channel *ch = g->unit == gpu->holder ? g->channels : NULL; ch;
		     ch = ch->next) {
			uint64_t ns = channel_event_ns(ch);

			next = ns < next ? ns : next;
		}
	return next;
}

static uint64_t next_event_ns(const struct hw_gpu *gpu)
{
	uint64_t next;

	if (!gpu->holder)
		return HW_NEVER;
	next = channels_event_ns(gpu);
	return next < gpu->turn_end_ns ? next : gpu->turn_end_ns;
}

bool hw_advance(struct hw_gpu *gpu)
{
	uint64_t to = hw_lowest_time_ns(gpu), now;

	/* A block may have moved its SM past the clock's cap. With that cap, the clock would be advanced
	 * forever. */
	hw_hold_clock(gpu);
	now = hw_clock_settle(&gpu->clock);
	to = to < gpu->event_ns ? to : gpu->event_ns;
	if (gpu->options.is_paced || to == HW_NEVER || to <= now)
		return false;
	/* If nothing may run now (for example while an address space changes), the end of a turn matters only
	 * to waiting units. */
	if (gpu->holder && to == gpu->turn_end_ns && !others_have_work(gpu, gpu->holder) &&
	    !hw_may_run(gpu) && channels_event_ns(gpu) == HW_NEVER)
		return false;
	hw_clock_advance(&gpu->clock, to);
	return true;
}

/* The more channels, the longer a look at all of them takes, and the less often it happens. */
static void set_poll(struct hw_gpu *gpu)
{
	gpu->poll_ns = HW_NEVER;
	if (gpu->is_polling)
		gpu->poll_ns = hw_clock_read(&gpu->clock) + HW_POLL_NS +
			       (uint64_t)gpu->channel_count * HW_EFFECT_NS;
}

bool hw_update(struct hw_gpu *gpu)
{
	bool has_changed = gpu->has_news;

	for (unsigned n = 0; n < PASSES_MAX; n++) {
		uint64_t now;

		gpu->has_news = false;
		look(gpu);
		now = hw_clock_settle(&gpu->clock); /* what was seen existed by then */
		if (gpu->holder)		    /* reports completed work before the turn ends */
			run_fronts(gpu, now);
		check_turn(gpu, now);
		gpu->event_ns = next_event_ns(gpu);
		if (!gpu->has_news)
			break;
		has_changed = true;
	}
	set_poll(gpu);
	hw_hold_clock(gpu);
	return has_changed;
}
