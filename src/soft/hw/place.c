/* Places blocks on SMs: as many as an SM's threads, registers and shared memory allow, each on the SM with the
 * fewest threads of those that the channel may use, one block of each waiting launch in turn. */
#include <stdlib.h>

#include "soft/hw/state.h"

/* Limit of host memory for the resident blocks of one group; a single block may exceed it. */
#define HOST_BYTES_MAX (1ull << 30)

static bool is_allowed(const struct hw_launch *l, uint32_t sm)
{
	return l->mask[sm / 64] >> sm % 64 & 1;
}

/* `used` may exceed `all` just after a group moved to a domain that runs, or continued beside others. */
static uint32_t fits(uint32_t all, uint32_t used, uint32_t each, uint32_t room)
{
	uint32_t n = used >= all ? 0 : each ? (all - used) / each : room;

	return n < room ? n : room;
}

/* How many blocks fit on the SM beside the current ones. */
static uint32_t room_for(const struct hw_room *used, const struct hw_launch *l)
{
	uint32_t room = fits(HW_SM_BLOCKS, used->blocks, 1, HW_SM_BLOCKS);

	room = fits(HW_SM_THREADS, used->threads, l->threads, room);
	room = fits(HW_SM_SHARED_BYTES, used->shared_bytes, l->shared_bytes, room);
	return fits(HW_SM_REGISTERS, used->registers, l->registers, room);
}

static bool has_host_room(const struct hw_launch *l)
{
	uint64_t used = l->channel->group->host_bytes;

	return !used || (used < HOST_BYTES_MAX && l->host_bytes < HOST_BYTES_MAX - used);
}

bool hw_place_could(const struct hw_gpu *gpu, const struct hw_launch *l)
{
	const struct hw_room empty = { 0 };
	uint64_t room = 0;

	for (uint32_t i = 0; i < gpu->options.sms; i++)
		room += is_allowed(l, i) ? room_for(&empty, l) : 0;
	if (!l->is_cooperative)
		return room;
	return room >= l->block_count && l->host_bytes * l->block_count <= HOST_BYTES_MAX;
}

/* How many blocks fit now on all SMs beside those of its unit. */
static uint64_t room_now(const struct hw_gpu *gpu, const struct hw_launch *l)
{
	const struct hw_unit *unit = l->channel->group->unit;
	uint64_t room = 0;

	for (uint32_t i = 0; i < gpu->options.sms; i++)
		room += is_allowed(l, i) ? room_for(&unit->seats[i].used, l) : 0;
	return room;
}

static void use_room(struct hw_seat *seat, const struct hw_launch *l)
{
	seat->used.blocks++;
	seat->used.threads += l->threads;
	seat->used.shared_bytes += l->shared_bytes;
	seat->used.registers += l->registers;
}

static void free_room(struct hw_seat *seat, const struct hw_launch *l)
{
	seat->used.blocks--;
	seat->used.threads -= l->threads;
	seat->used.shared_bytes -= l->shared_bytes;
	seat->used.registers -= l->registers;
}

static void seat_add(struct hw_seat *seat, struct hw_resident *r)
{
	if (seat->residents) {
		r->next = seat->residents;
		r->prev = seat->residents->prev;
		r->prev->next = r->next->prev = r;
	} else {
		seat->residents = r->next = r->prev = r;
	}
	seat->count++;
	if (!r->launch->channel->is_parked)
		use_room(seat, r->launch);
}

static void seat_remove(struct hw_seat *seat, struct hw_resident *r)
{
	if (seat->residents == r)
		seat->residents = r->next == r ? NULL : r->next;
	r->prev->next = r->next;
	r->next->prev = r->prev;
	seat->count--;
	if (!r->launch->channel->is_parked)
		free_room(seat, r->launch);
}

static struct hw_resident *take_resident(struct hw_launch *l)
{
	struct hw_resident *r = l->spare;

	if (!r)
		return calloc(1, sizeof(*r));
	l->spare = r->next;
	return r;
}

static bool put_on(struct hw_gpu *gpu, struct hw_launch *l, uint32_t sm)
{
	struct hw_seat *seat = &l->channel->group->unit->seats[sm];
	struct hw_resident *r = take_resident(l);

	if (!r)
		return false;
	r->launch = l;
	r->sm = sm;
	r->index = l->next_block++;
	r->is_started = false;
	/* In the turn of another unit, the SM's time is that unit's. */
	if (!seat->residents && l->channel->group->unit == gpu->holder && gpu->sms[sm].time_ns < l->start_ns)
		gpu->sms[sm].time_ns = l->start_ns;
	seat_add(seat, r);
	l->resident_count++;
	l->channel->group->unit->resident_count++;
	l->channel->group->host_bytes += l->host_bytes;
	return true;
}

/* Of the SMs with space, the one with the fewest threads; of equal ones, the next in order. The number of SMs if there
 * is no space. If the unit has no other launch on its SMs, the next one in order has the fewest. */
static uint32_t choose_sm(const struct hw_gpu *gpu, const struct hw_launch *l)
{
	const struct hw_unit *unit = l->channel->group->unit;
	bool is_alone = unit->resident_count == l->resident_count;
	uint32_t best = gpu->options.sms;

	for (uint32_t n = 0; n < gpu->options.sms; n++) {
		uint32_t sm = (l->next_sm + n) % gpu->options.sms;
		const struct hw_room *used = &unit->seats[sm].used;

		if (!is_allowed(l, sm) || !room_for(used, l))
			continue;
		if (is_alone || !used->threads)
			return sm;
		if (best == gpu->options.sms || used->threads < unit->seats[best].used.threads)
			best = sm;
	}
	return best;
}

static bool place_one(struct hw_gpu *gpu, struct hw_launch *l)
{
	uint32_t sm = has_host_room(l) ? choose_sm(gpu, l) : gpu->options.sms;

	if (sm == gpu->options.sms)
		return false;
	l->next_sm = sm + 1;
	return put_on(gpu, l, sm);
}

/* A cooperative launch is placed completely or not at all. */
static bool place_some(struct hw_gpu *gpu, struct hw_launch *l)
{
	bool has_placed = false;

	if (!l->is_cooperative)
		return place_one(gpu, l);
	if (room_now(gpu, l) < l->block_count)
		return false;
	while (l->next_block < l->block_count && place_one(gpu, l))
		has_placed = true;
	return has_placed;
}

void hw_place(struct hw_gpu *gpu, struct hw_unit *unit)
{
	bool has_placed = true;

	while (has_placed) {
		struct hw_launch **at = &unit->waiting;

		has_placed = false;
		while (*at) {
			struct hw_launch *l = *at;

			has_placed |= hw_channel_is_live(l->channel) && place_some(gpu, l);
			if (l->next_block == l->block_count)
				*at = l->next;
			else
				at = &l->next;
		}
	}
}

void hw_resident_remove(struct hw_resident *r)
{
	struct hw_launch *l = r->launch;

	seat_remove(&l->channel->group->unit->seats[r->sm], r);
	l->channel->group->host_bytes -= l->host_bytes;
	l->resident_count--;
	l->channel->group->unit->resident_count--;
	r->next = l->spare;
	l->spare = r;
}

void hw_resident_move(struct hw_resident *r, struct hw_unit *from, struct hw_unit *to)
{
	seat_remove(&from->seats[r->sm], r);
	from->resident_count--;
	seat_add(&to->seats[r->sm], r);
	to->resident_count++;
}

/* Blocks of a stopped channel stay on their SM with their state. Other groups of the domain may use the space
 * meanwhile. So an SM may have more blocks than fit after the channel continues, until some of them end. */
void hw_channel_park(struct hw_channel *ch)
{
	struct hw_gpu *gpu = ch->group->gpu;
	bool is_parked = !hw_channel_is_live(ch);

	for (uint32_t i = 0; i < gpu->options.sms && is_parked != ch->is_parked; i++) {
		struct hw_seat *seat = &ch->group->unit->seats[i];
		struct hw_resident *r = seat->residents;

		for (uint32_t n = seat->count; n; n--, r = r->next) {
			if (r->launch->channel != ch)
				continue;
			if (is_parked)
				free_room(seat, r->launch);
			else
				use_room(seat, r->launch);
		}
	}
	ch->is_parked = is_parked;
	ch->is_ready &= !is_parked;
	hw_place(gpu, ch->group->unit);
}
