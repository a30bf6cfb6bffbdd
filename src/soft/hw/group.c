/* Groups, and the units that take turns: a group, or all groups of a domain. */
#include <errno.h>
#include <stdlib.h>

#include "soft/hw/state.h"

/* The domain's unit, or a new one at the end of the queue. */
static struct hw_unit *unit_of(struct hw_gpu *gpu, uint32_t domain)
{
	struct hw_unit **at = &gpu->units, *unit;

	for (; *at; at = &(*at)->next)
		if (domain && (*at)->domain == domain)
			return *at;
	unit = calloc(1, sizeof(*unit) + gpu->options.sms * sizeof(unit->seats[0]));
	if (unit) {
		unit->domain = domain;
		*at = unit;
	}
	return unit;
}

static void unlink_unit(struct hw_gpu *gpu, struct hw_unit *unit)
{
	struct hw_unit **at = &gpu->units;

	while (*at != unit)
		at = &(*at)->next;
	*at = unit->next;
	unit->next = NULL;
}

static void unit_put(struct hw_gpu *gpu, struct hw_unit *unit)
{
	if (--unit->count)
		return;
	hw_unit_forget(gpu, unit);
	unlink_unit(gpu, unit);
	free(unit);
}

int hw_group_new(struct hw_gpu *gpu, struct hw_group **group)
{
	struct hw_group *g = calloc(1, sizeof(*g));

	*group = NULL;
	if (!g)
		return -ENOMEM;
	g->count = 1;
	g->gpu = gpu;
	g->timeslice_us = HW_TIMESLICE_US;
	hw_lock(gpu->cores);
	g->unit = unit_of(gpu, 0);
	if (g->unit) {
		g->unit->count++;
		g->next = gpu->groups;
		gpu->groups = g;
	}
	hw_unlock(gpu->cores);
	if (!g->unit) {
		free(g);
		return -ENOMEM;
	}
	*group = g;
	return 0;
}

void hw_group_release(struct hw_group *group)
{
	struct hw_group **at = &group->gpu->groups;

	if (--group->count)
		return;
	if (group->gpu->holder == group->unit)
		hw_divide_now(group->gpu);
	while (*at != group)
		at = &(*at)->next;
	*at = group->next;
	unit_put(group->gpu, group->unit);
	free(group);
}

void hw_group_put(struct hw_group *group)
{
	struct hw_cores *cores;

	if (!group)
		return;
	cores = group->gpu->cores;
	hw_lock(cores);
	hw_group_release(group);
	hw_unlock(cores);
}

static void wake(struct hw_gpu *gpu)
{
	gpu->has_news = true;
	hw_kick(gpu->cores);
}

void hw_group_set_scheduled(struct hw_group *group, bool is_scheduled)
{
	struct hw_gpu *gpu = group->gpu;

	hw_lock(gpu->cores);
	group->is_scheduled = is_scheduled;
	if (!is_scheduled)
		hw_wait_quiet(gpu, HW_WHOSE_GROUP, group);
	for (struct hw_channel *ch = group->channels; ch; ch = ch->next)
		hw_channel_park(ch);
	wake(gpu);
	hw_unlock(gpu->cores);
}

void hw_group_set_timeslice(struct hw_group *group, uint64_t us)
{
	const uint64_t most_us = 3600ull * 1000000;

	hw_lock(group->gpu->cores);
	group->timeslice_us = !us ? HW_TIMESLICE_US : us < most_us ? us : most_us;
	hw_unlock(group->gpu->cores);
}

int hw_group_set_interleave(struct hw_group *group, uint32_t level)
{
	if (level > 2)
		return -EINVAL;
	hw_lock(group->gpu->cores);
	group->interleave = level;
	hw_unlock(group->gpu->cores);
	return 0;
}

/* Moves the group's blocks on SMs and its waiting launches. Nothing of the group runs. */
static void move_work(struct hw_group *group, struct hw_unit *to)
{
	struct hw_unit *from = group->unit;

	if (from == to)
		return;
	for (uint32_t i = 0; i < group->gpu->options.sms; i++) {
		struct hw_seat *seat = &from->seats[i];

		for (uint32_t n = seat->count; n; n--) {
			struct hw_resident *r = seat->residents;

			seat->residents = r->next;
			if (r->launch->channel->group == group)
				hw_resident_move(r, from, to);
		}
	}
	for (struct hw_launch **at = &from->waiting; *at;) {
		struct hw_launch *l = *at;

		if (l->channel->group != group) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		l->next = to->waiting;
		to->waiting = l;
	}
}

static void change_unit(struct hw_group *group, struct hw_unit *to, uint32_t domain)
{
	struct hw_unit *from;

	to->count++; /* a reference: its groups may leave it during the wait */
	group->hold_count++;
	hw_wait_quiet(group->gpu, HW_WHOSE_GROUP, group);
	group->hold_count--;
	from = group->unit;
	if (group->gpu->holder == from)
		hw_divide_now(group->gpu);
	group->has_run = group->gpu->holder == to;
	group->work_ns = 0;
	move_work(group, to);
	group->unit = to;
	group->domain = domain;
	hw_place(group->gpu, from);
	hw_place(group->gpu, to);
	unit_put(group->gpu, from);
}

int hw_group_set_domain(struct hw_group *group, uint32_t domain)
{
	struct hw_gpu *gpu = group->gpu;
	struct hw_unit *to;
	int rc = 0;

	hw_lock(gpu->cores);
	if (domain != group->domain) {
		to = unit_of(gpu, domain);
		if (to)
			change_unit(group, to, domain);
		else
			rc = -ENOMEM;
		wake(gpu);
	}
	hw_unlock(gpu->cores);
	return rc;
}

static bool is_alone(const struct hw_group *group)
{
	for (const struct hw_group *g = group->gpu->groups; g; g = g->next)
		if (g != group && g->unit == group->unit)
			return false;
	return true;
}

static void preempt_unit(struct hw_gpu *gpu, struct hw_unit *unit)
{
	unit->count++;
	unit->hold_count++;
	hw_wait_quiet(gpu, HW_WHOSE_UNIT, unit);
	unit->hold_count--;
	if (gpu->holder == unit)
		hw_end_turn(gpu);
	unit->turns_left = 0;
	unit_put(gpu, unit);
}

/* The other groups of its domain keep the turn. */
static void preempt_group(struct hw_group *group)
{
	group->hold_count++;
	hw_wait_quiet(group->gpu, HW_WHOSE_GROUP, group);
	group->hold_count--;
}

void hw_group_preempt(struct hw_group *group)
{
	struct hw_gpu *gpu = group->gpu;

	hw_lock(gpu->cores);
	if (is_alone(group))
		preempt_unit(gpu, group->unit);
	else
		preempt_group(group);
	wake(gpu);
	hw_unlock(gpu->cores);
}

void hw_group_get_done(struct hw_group *group, struct soft_done_params *done)
{
	struct hw_gpu *gpu = group->gpu;

	hw_lock(gpu->cores);
	for (struct hw_channel *ch = group->channels; ch; ch = ch->next)
		if (hw_front_is_dry(ch)) /* and nobody has looked since */
			hw_done_dry(ch);
	*done = group->done;
	hw_unlock(gpu->cores);
}

/* Time is divided in parts of HW_DIVIDE_NS, but a group without work gets its exact time: it may end next. */
void hw_group_get_time(struct hw_group *group, struct soft_time_params *time)
{
	struct hw_gpu *gpu = group->gpu;

	hw_lock(gpu->cores);
	hw_charge_now(gpu);
	if (gpu->holder == group->unit && !hw_group_is_ready(group))
		hw_divide_now(gpu);
	*time = group->time;
	hw_unlock(gpu->cores);
}

bool hw_group_has_turn(struct hw_group *group)
{
	struct hw_gpu *gpu = group->gpu;
	bool has_turn;

	hw_lock(gpu->cores);
	has_turn = gpu->holder && gpu->holder == group->unit;
	hw_unlock(gpu->cores);
	return has_turn;
}
