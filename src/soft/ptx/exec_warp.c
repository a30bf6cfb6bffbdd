/* What the lanes of a warp do together. */
#include "soft/ptx/lane.h"

/* The lanes named in the member mask that still run must be here. If some are not, this fragment waits for them;
 * when nothing else can run, they are not coming, and it goes on with who is there (see ptx_warp_pick). */
static bool gather(struct ptx_warp *w, uint32_t mask, uint32_t place)
{
	const uint32_t *members;
	uint32_t wanted;

	if (place == PTX_NO_OPERAND || !w->fragment_count)
		return true;
	members = ptx_in(w, place);
	wanted = members[__builtin_ctz(mask)] & w->live;
	if (!(wanted & ~w->mask) || (w->forced & mask)) {
		w->forced &= ~mask;
		return true;
	}
	w->pc--;
	ptx_warp_park(w, PTX_WAIT_LANES, 0);
	return false;
}

/* Lanes that take part: active and named. */
static uint32_t members_of(const struct ptx_warp *w, uint32_t mask, uint32_t place)
{
	const uint32_t *members;

	if (place == PTX_NO_OPERAND)
		return mask;
	members = ptx_in(w, place);
	return mask & members[__builtin_ctz(mask)];
}

/* Which lane `lane` reads from, and whether that is inside of its segment (PTX ISA, shfl.sync). */
static unsigned shuffle_source(unsigned lane, unsigned mode, uint32_t b, uint32_t c, bool *is_inside)
{
	int by = (int)(b & 31), clamp = (int)(c & 31), segments = (int)(c >> 8 & 31);
	int most = ((int)lane & segments) | (clamp & ~segments), least = (int)lane & segments;
	int from;

	switch (mode) {
	case PTX_SHFL_UP:
		from = (int)lane - by;
		*is_inside = from >= most;
		break;
	case PTX_SHFL_DOWN:
		from = (int)lane + by;
		*is_inside = from <= most;
		break;
	case PTX_SHFL_BFLY:
		from = (int)lane ^ by;
		*is_inside = from <= most;
		break;
	default:
		from = least | (by & ~segments);
		*is_inside = from <= most;
		break;
	}
	return *is_inside ? (unsigned)from & 31 : lane;
}

PTX_HANDLER(shuffle)
{
	uint32_t before[PTX_LANES], inside = 0;
	const uint32_t *b = ptx_in(w, op->r[3]), *c = ptx_in(w, op->r[4]);
	uint32_t *d = ptx_out(w, op->r[0]);

	if (!gather(w, mask, op->r[5]))
		return;
	memcpy(before, ptx_in(w, op->r[2]), sizeof(before));
	for (unsigned i = 0; i < PTX_LANES; i++) {
		bool is_inside;
		unsigned from;

		if (!(mask >> i & 1))
			continue;
		from = shuffle_source(i, op->mode, b[i], c[i], &is_inside);
		d[i] = before[from];
		inside |= (uint32_t)is_inside << i;
	}
	if (op->r[1] != PTX_NO_OPERAND)
		ptx_pred_put(w, op->r[1], inside, mask);
}

PTX_HANDLER(vote)
{
	uint32_t members, yes, *d = ptx_out(w, op->r[0]);
	bool answer;

	if (!gather(w, mask, op->r[5]))
		return;
	members = members_of(w, mask, op->r[5]);
	yes = ptx_pred(w, op, 1) & members;
	if (op->mode == PTX_VOTE_BALLOT) {
		for (unsigned i = 0; i < PTX_LANES; i++)
			if (mask >> i & 1)
				d[i] = yes;
		return;
	}
	answer = op->mode == PTX_VOTE_ALL   ? yes == members
		 : op->mode == PTX_VOTE_ANY ? yes != 0
					    : !yes || yes == members;
	ptx_pred_put(w, op->r[0], answer ? ~0u : 0, mask);
}

static uint64_t match_value(const struct ptx_warp *w, const struct ptx_op *op, unsigned i)
{
	return op->type2 == PTX_TYPE_B64 ? ((const uint64_t *)ptx_in(w, op->r[2]))[i]
					 : ((const uint32_t *)ptx_in(w, op->r[2]))[i];
}

PTX_HANDLER(match)
{
	uint32_t members, same[PTX_LANES] = { 0 }, *d = ptx_out(w, op->r[0]);
	bool is_all;

	if (!gather(w, mask, op->r[5]))
		return;
	members = members_of(w, mask, op->r[5]);
	for (unsigned i = 0; i < PTX_LANES; i++)
		for (unsigned k = 0; k < PTX_LANES && (mask >> i & 1); k++)
			if ((members >> k & 1) && match_value(w, op, i) == match_value(w, op, k))
				same[i] |= 1u << k;
	is_all = same[__builtin_ctz(mask)] == members;
	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			d[i] = !op->mode ? same[i] : is_all ? members : 0;
	if (op->r[1] != PTX_NO_OPERAND)
		ptx_pred_put(w, op->r[1], is_all ? ~0u : 0, mask);
}

static uint32_t reduce(const struct ptx_op *op, uint32_t a, uint32_t b)
{
	bool is_less = op->type2 == PTX_TYPE_S32 ? (int32_t)a < (int32_t)b : a < b;

	switch (op->mode) {
	case PTX_ATOM_ADD:
		return a + b;
	case PTX_ATOM_MIN:
		return is_less ? a : b;
	case PTX_ATOM_MAX:
		return is_less ? b : a;
	case PTX_ATOM_AND:
		return a & b;
	case PTX_ATOM_OR:
		return a | b;
	default:
		return a ^ b;
	}
}

PTX_HANDLER(redux)
{
	const uint32_t *a = ptx_in(w, op->r[1]);
	uint32_t members, result = 0, *d = ptx_out(w, op->r[0]);
	bool has_one = false;

	if (!gather(w, mask, op->r[5]))
		return;
	members = members_of(w, mask, op->r[5]);
	for (unsigned i = 0; i < PTX_LANES; i++) {
		if (!(members >> i & 1))
			continue;
		result = has_one ? reduce(op, result, a[i]) : a[i];
		has_one = true;
	}
	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			d[i] = result;
}

PTX_HANDLER(activemask)
{
	uint32_t *d = ptx_out(w, op->r[0]);

	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			d[i] = mask;
}

PTX_HANDLER(warpsync)
{
	gather(w, mask, op->r[0]);
}

PTX_HANDLER(elect)
{
	uint32_t members, leader, *d = ptx_out(w, op->r[0]);

	if (!gather(w, mask, op->r[5]))
		return;
	members = members_of(w, mask, op->r[5]);
	leader = (uint32_t)__builtin_ctz(members ? members : mask);
	for (unsigned i = 0; i < PTX_LANES; i++)
		if (mask >> i & 1)
			d[i] = leader;
	ptx_pred_put(w, op->r[1], 1u << leader, mask);
}

ptx_handler PTX_BUILT(ptx_find_warp)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT] = {
		[PTX_SHFL] = shuffle, [PTX_VOTE] = vote,	 [PTX_MATCH] = match,
		[PTX_REDUX] = redux,  [PTX_WARPSYNC] = warpsync, [PTX_ELECT] = elect,
	};

	if (family == PTX_ACTIVEMASK)
		return type == PTX_TYPE_B32 ? activemask : NULL;
	return type == PTX_TYPE_NONE ? handlers[family] : NULL;
}
