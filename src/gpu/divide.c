#include "gpu/divide.h"

#include <stdlib.h>

#include "base/number.h"

/* Counts of units are in millionths while they are not whole: a request in ppm times the number of units. */
#define ONE ((uint64_t)DIVIDE_WHOLE_PPM)

struct share {
	struct divide_part *part;
	uint64_t ideal;	       /* in millionths of a unit */
	unsigned units, limit; /* whole units */
	bool is_group;	       /* of all active vGPUs that share units: see is_member() */
	size_t at;	       /* for an order between equals */
};

struct division {
	struct share *shares; /* active vGPUs first */
	size_t count, active;
	unsigned unit_count;
	bool is_tight;	/* not every request can have a unit of its own: those below one unit share */
	uint64_t taken; /* units that are given to a vGPU */
};

static unsigned count_bits(uint64_t units)
{
	return (unsigned)__builtin_popcountll(units);
}

/* To the nearest unit: to round down would leave 12 % of 16 units at one. */
static unsigned limit_of(const struct divide_part *part, unsigned unit_count)
{
	uint64_t ppm = bf_min(part->limit_ppm, ONE);

	return (unsigned)bf_max((ppm * unit_count + ONE / 2) / ONE, 1);
}

/* ---- How many units each vGPU gets */

static uint64_t room_of(const struct share *share)
{
	return share->limit * ONE - share->ideal;
}

/* Give `spare` to the shares with room, in proportion to their requests; in equal parts if those have no request. Returns how
 * much was given: less than `spare` if shares have reached their limits. */
static uint64_t spread_once(struct division *d, uint64_t spare, bool with_wishes)
{
	uint64_t requests = 0, open = 0, given = 0;

	for (size_t i = 0; i < d->active; i++)
		if (room_of(&d->shares[i]) && (with_wishes || !d->shares[i].part->wish)) {
			open++;
			requests += d->shares[i].part->request_ppm;
		}
	for (size_t i = 0; i < d->active && open; i++) {
		struct share *s = &d->shares[i];
		uint64_t weight = requests ? s->part->request_ppm : 1, more;

		if (s->part->wish && !with_wishes)
			continue;
		more = bf_min(spare * weight / (requests ? requests : open), room_of(s));
		s->ideal += more;
		given += more;
	}
	return given;
}

/* Returns what is left. In each round one share at least reaches its limit. */
static uint64_t spread(struct division *d, uint64_t left, bool with_wishes)
{
	for (size_t i = 0; i <= d->active && left; i++)
		left -= spread_once(d, left, with_wishes);
	return left;
}

static uint64_t request_of(const struct division *d, const struct share *share)
{
	return bf_min((uint64_t)share->part->request_ppm * d->unit_count, share->limit * ONE);
}

static uint64_t wish_of(const struct division *d, const struct share *share)
{
	return bf_max(bf_min(share->part->wish, share->limit) * ONE, request_of(d, share));
}

/* The goal of the group is its limit. Other shares have no goal here. */
static uint64_t group_of(const struct division *d, const struct share *share)
{
	(void)d;
	return share->is_group ? share->limit * ONE : 0;
}

/* Raise the shares to their goals, as far as `left` suffices. Returns what is left of it. */
static uint64_t raise_to(struct division *d, uint64_t left,
			 uint64_t (*goal_of)(const struct division *d, const struct share *share))
{
	uint64_t lacks = 0;

	for (size_t i = 0; i < d->active; i++)
		lacks += bf_max(goal_of(d, &d->shares[i]), d->shares[i].ideal) - d->shares[i].ideal;
	for (size_t i = 0; i < d->active; i++) {
		struct share *s = &d->shares[i];
		uint64_t lack = bf_max(goal_of(d, s), s->ideal) - s->ideal;

		s->ideal += lacks > left ? lack * left / lacks : lack;
	}
	return lacks > left ? 0 : left - lacks;
}

/* In the order of divide.h. */
static void find_ideals(struct division *d, unsigned units)
{
	uint64_t left = (units - d->active) * ONE;

	for (size_t i = 0; i < d->active; i++)
		d->shares[i].ideal = ONE;
	left = raise_to(d, left, request_of);
	left = raise_to(d, left, wish_of);
	left = raise_to(d, left, group_of);
	left = spread(d, left, false);
	spread(d, left, true);
}

/* The share that lacks most of its ideal, and may have another unit. */
static struct share *neediest(struct division *d)
{
	struct share *found = NULL;
	int64_t most = 0;

	for (size_t i = 0; i < d->active; i++) {
		struct share *s = &d->shares[i];
		int64_t lack = (int64_t)s->ideal - (int64_t)(s->units * ONE);

		if (s->units < s->limit && lack > most) {
			most = lack;
			found = s;
		}
	}
	return found;
}

/* To take the largest lack each time rounds by the largest remainder. */
static void count_units(struct division *d, unsigned units)
{
	struct share *s;

	find_ideals(d, units);
	for (size_t i = 0; i < d->active; i++)
		d->shares[i].units = 1;
	for (unsigned given = (unsigned)d->active; given < units && (s = neediest(d)); given++)
		s->units++;
}

/* ---- Which units */

/* The lowest `count` of these units. */
static uint64_t lowest(uint64_t units, unsigned count)
{
	uint64_t kept = 0;

	for (; count && units; count--) {
		kept |= units & -units;
		units &= units - 1;
	}
	return kept;
}

/* A free unit: beside the units that it has, else the first of the smallest free run that has room for `count`, else the
 * lowest. */
static uint64_t next_free(uint64_t has, uint64_t free_units, unsigned count, unsigned unit_count)
{
	uint64_t beside = free_units & (has << 1 | has >> 1), best = 0;
	unsigned best_length = unit_count + 1;

	if (beside)
		return beside & -beside;
	for (unsigned i = 0; i < unit_count; i++) {
		unsigned length = 0;

		while (i + length < unit_count && free_units >> (i + length) & 1)
			length++;
		if (length >= count && length < best_length && length) {
			best = (uint64_t)1 << i;
			best_length = length;
		}
		i += length;
	}
	return best ? best : free_units & -free_units;
}

static void keep(struct division *d, struct share *s)
{
	s->part->after = lowest(s->part->before & divide_all(d->unit_count) & ~d->taken, s->units);
	d->taken |= s->part->after;
}

static void fill(struct division *d, struct share *s)
{
	while (count_bits(s->part->after) < s->units) {
		uint64_t free_units = divide_all(d->unit_count) & ~d->taken;
		uint64_t unit = next_free(s->part->after, free_units, s->units - count_bits(s->part->after),
					  d->unit_count);

		if (!unit)
			return;
		s->part->after |= unit;
		d->taken |= unit;
	}
}

static int by_place(const void *a, const void *b)
{
	size_t x = ((const struct share *)a)->at, y = ((const struct share *)b)->at;

	return x < y ? -1 : x > y;
}

/* Active vGPUs first, then by request: those at the end may have to share a unit. */
static int by_rank(const void *a, const void *b)
{
	const struct divide_part *x = ((const struct share *)a)->part, *y = ((const struct share *)b)->part;

	if (x->is_active != y->is_active)
		return x->is_active ? -1 : 1;
	if (((const struct share *)a)->is_group != ((const struct share *)b)->is_group)
		return ((const struct share *)b)->is_group ? -1 : 1;
	if (x->request_ppm != y->request_ppm)
		return x->request_ppm > y->request_ppm ? -1 : 1;
	return by_place(a, b);
}

/* vGPUs with few units choose first among those that they have: a vGPU that has all of them can do with any. */
static int by_units_before(const void *a, const void *b)
{
	const struct divide_part *x = ((const struct share *)a)->part, *y = ((const struct share *)b)->part;
	int p = (int)count_bits(x->before), q = (int)count_bits(y->before);

	return p != q ? p - q : by_place(a, b);
}

static void place(struct division *d, size_t from, size_t to)
{
	qsort(&d->shares[from], to - from, sizeof(*d->shares), by_units_before);
	for (size_t i = from; i < to; i++)
		keep(d, &d->shares[i]);
	for (size_t i = from; i < to; i++)
		fill(d, &d->shares[i]);
}

/* No unit is left for those after the first `placed`. Each shares the unit that it has already, or one of another vGPU. */
static void share_units(struct division *d, size_t placed)
{
	for (size_t i = placed; placed && i < d->count; i++) {
		struct divide_part *part = d->shares[i].part;
		uint64_t had = part->before & divide_all(d->unit_count);

		part->after = count_bits(had) == 1 ? had : lowest(d->shares[i % placed].part->after, 1);
	}
}

static bool is_content(const struct divide_part *part, unsigned unit_count)
{
	uint64_t has = part->before & divide_all(unit_count);

	return has && count_bits(has) <= limit_of(part, unit_count);
}

/* True: no vGPU needs other units than it has. */
static bool leave(struct divide_part *parts, size_t count, unsigned unit_count)
{
	for (size_t i = 0; i < count; i++)
		if (parts[i].is_active || !is_content(&parts[i], unit_count))
			return false;
	for (size_t i = 0; i < count; i++)
		parts[i].after = parts[i].before & divide_all(unit_count);
	return true;
}

static void add_share(struct division *d, struct divide_part *part, bool is_group)
{
	d->shares[d->count] = (struct share){ .part = part,
					      .units = 1,
					      .limit = limit_of(part, d->unit_count),
					      .is_group = is_group,
					      .at = d->count };
	d->active += part->is_active;
	d->count++;
}

/* Of the group, whose members have the same units. */
static bool is_member(const struct division *d, const struct divide_part *part)
{
	uint64_t least = d->is_tight ? ONE : 1;

	return part->is_active && !part->wish && (uint64_t)part->request_ppm * d->unit_count < least;
}

static void find_tight(struct division *d, const struct divide_part *parts, size_t count)
{
	uint64_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		if (parts[i].is_active && !is_member(d, &parts[i]))
			wanted += bf_max((uint64_t)parts[i].request_ppm * d->unit_count, ONE);
	d->is_tight = wanted > d->unit_count * ONE;
}

/* A share for each vGPU, and one for the members of the group. */
static void make_shares(struct division *d, struct divide_part *parts, size_t count,
			struct divide_part *group)
{
	for (size_t i = 0; i < count; i++) {
		parts[i].after = 0;
		if (!is_member(d, &parts[i])) {
			add_share(d, &parts[i], false);
			continue;
		}
		group->is_active = true;
		group->request_ppm += parts[i].request_ppm;
		group->limit_ppm = (uint32_t)bf_max(group->limit_ppm, parts[i].limit_ppm);
		group->before |= parts[i].before;
	}
	if (group->is_active)
		add_share(d, group, true);
	qsort(d->shares, d->count, sizeof(*d->shares), by_rank);
}

/* The members have the units of the group, as far as their limits allow. */
static void give_members(const struct division *d, struct divide_part *parts, size_t count,
			 const struct divide_part *group)
{
	for (size_t i = 0; i < count; i++) {
		unsigned limit = limit_of(&parts[i], d->unit_count);
		uint64_t kept;

		if (!is_member(d, &parts[i]))
			continue;
		kept = lowest(group->after & parts[i].before, limit);
		parts[i].after = kept | lowest(group->after & ~kept, limit - count_bits(kept));
	}
}

/* If no vGPU is active, the units are divided as if all were. */
static void wake_all(struct divide_part *parts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (parts[i].is_active)
			return;
	for (size_t i = 0; i < count; i++)
		parts[i].is_active = true;
}

/* All units for the only active vGPU. The idle ones keep units as if it were not there. Returns how many vGPUs have units. */
static size_t give_all(struct division *d)
{
	size_t idle = bf_min(d->count - 1, d->unit_count);

	d->shares[0].part->after = divide_all(d->unit_count);
	place(d, 1, 1 + idle);
	return 1 + idle;
}

/* If the requests leave less than half a unit, the group, which is the last of the active ones, shares one with another vGPU. */
static void leave_requests(struct division *d)
{
	uint64_t requests = 0;

	if (d->active < 2 || !d->shares[d->active - 1].is_group)
		return;
	for (size_t i = 0; i + 1 < d->active; i++)
		requests += bf_max(request_of(d, &d->shares[i]), ONE);
	if (requests + ONE / 2 > d->unit_count * ONE)
		d->active--;
}

/* Likewise, for any number of active vGPUs. */
static size_t give_parts(struct division *d)
{
	uint64_t wanted = 0;
	size_t kept;

	d->active = bf_min(d->active, d->unit_count);
	leave_requests(d);
	for (size_t i = 0; i < d->active; i++)
		wanted += bf_max(wish_of(d, &d->shares[i]), ONE); /* the group makes do with one */
	wanted = bf_min((wanted + ONE - 1) / ONE, d->unit_count);
	kept = bf_min(d->count - d->active, d->unit_count - wanted);
	count_units(d, (unsigned)(d->unit_count - kept));
	place(d, 0, d->active + kept);
	return d->active + kept;
}

void divide(struct divide_part *parts, size_t count, unsigned unit_count)
{
	struct division d = { .unit_count = unit_count };
	struct divide_part group = { 0 };
	bool is_alone;

	if (!count || leave(parts, count, unit_count))
		return;
	d.shares = calloc(count, sizeof(*d.shares));
	if (!d.shares) { /* all on all units, as without leases */
		for (size_t i = 0; i < count; i++)
			parts[i].after = divide_all(unit_count);
		return;
	}
	wake_all(parts, count);
	find_tight(&d, parts, count);
	make_shares(&d, parts, count, &group);
	is_alone = d.active == 1 && d.shares[0].limit == unit_count;
	share_units(&d, is_alone ? give_all(&d) : give_parts(&d));
	give_members(&d, parts, count, &group);
	free(d.shares);
}
