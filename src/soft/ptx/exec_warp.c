/* Operations of the whole warp. */
#include "soft/ptx/lane.h"

/* Lanes with equal member masks execute one operation: this is the group of the lowest lane of `mask`.
 * Without a member mask (place PTX_NO_OPERAND) all lanes are one group. */
struct group {
	uint32_t lanes;	  /* that execute with this mask, and get the result */
	uint32_t members; /* lanes of the group that are in the mask */
	uint32_t wanted;  /* the mask, whether the lanes are present or not */
};

static struct group group_of(const struct ptx_warp *w, uint32_t mask, uint32_t place)
{
	struct group g = { .lanes = mask, .members = mask, .wanted = mask };
	const uint32_t *row;

	if (place == PTX_NO_OPERAND)
		return g;
	row = ptx_in(w, place);
	g.wanted = row[__builtin_ctz(mask)];
	if (!(place & PTX_CONST_BIT)) {
		g.lanes = 0;
		for (unsigned i = 0; i < PTX_LANES; i++)
			g.lanes |= (uint32_t)(row[i] == g.wanted) << i;
		g.lanes &= mask;
	}
	g.members = g.lanes & g.wanted;
	return g;
}

/* The lanes that execute now. A group executes when all running lanes of its mask are present; otherwise its
 * lanes wait. When nothing else can run, the missing lanes cannot come, and the group executes with the
 * present lanes (see ptx_warp_pick). */
uint32_t PTX_BUILT(ptx_gather)(struct ptx_warp *w, uint32_t mask, uint32_t place)
{
	uint32_t waiting = 0;

	if (place == PTX_NO_OPERAND || !w->fragment_count)
		return mask;
	for (uint32_t left = mask; left;) {
		struct group g = group_of(w, left, place);

		if ((g.wanted & w->live & ~w->mask) && !(w->forced & g.lanes))
			waiting |= g.lanes;
		left &= ~g.lanes;
	}
	w->forced &= ~(mask & ~waiting);
	if (!waiting)
		return mask;
	w->pc--;
	if (waiting == mask) {
		ptx_warp_park(w, PTX_WAIT_LANES, 0);
		return 0;
	}
	ptx_warp_leave_behind(w, waiting, PTX_WAIT_LANES);
	w->pc++;
	return mask & ~waiting;
}

static void put_all(uint32_t *d, uint32_t value, uint32_t lanes)
{
	for (unsigned i = 0; i < PTX_LANES; i++)
		if (lanes >> i & 1)
			d[i] = value;
}

/* The source lane of `lane`, and whether it is inside its segment (PTX ISA, shfl.sync). */
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

	mask = PTX_BUILT(ptx_gather)(w, mask, op->r[5]);
	if (!mask)
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

static bool vote_answer(unsigned mode, uint32_t yes, uint32_t members)
{
	switch (mode) {
	case PTX_VOTE_ALL:
		return yes == members;
	case PTX_VOTE_ANY:
		return yes != 0;
	default:
		return !yes || yes == members;
	}
}

PTX_HANDLER(vote)
{
	uint32_t said = ptx_pred(w, op, 1), *d = ptx_out(w, op->r[0]);
	struct group g;

	for (uint32_t left = PTX_BUILT(ptx_gather)(w, mask, op->r[5]); left; left &= ~g.lanes) {
		uint32_t yes;

		g = group_of(w, left, op->r[5]);
		yes = said & g.members;
		if (op->mode == PTX_VOTE_BALLOT)
			put_all(d, yes, g.lanes);
		else
			ptx_pred_put(w, op->r[0], vote_answer(op->mode, yes, g.members) ? ~0u : 0, g.lanes);
	}
}

static uint64_t match_value(const struct ptx_warp *w, const struct ptx_op *op, unsigned i)
{
	return op->type2 == PTX_TYPE_B64 ? ((const uint64_t *)ptx_in(w, op->r[2]))[i]
					 : ((const uint32_t *)ptx_in(w, op->r[2]))[i];
}

static void match_group(struct ptx_warp *w, const struct ptx_op *op, const struct group *g)
{
	uint32_t same[PTX_LANES] = { 0 }, *d = ptx_out(w, op->r[0]);
	bool is_all;

	for (unsigned i = 0; i < PTX_LANES; i++)
		for (unsigned k = 0; k < PTX_LANES && (g->lanes >> i & 1); k++)
			if ((g->members >> k & 1) && match_value(w, op, i) == match_value(w, op, k))
				same[i] |= 1u << k;
	is_all = same[__builtin_ctz(g->lanes)] == g->members;
	for (unsigned i = 0; i < PTX_LANES; i++)
		if (g->lanes >> i & 1)
			d[i] = !op->mode ? same[i] : is_all ? g->members : 0;
	if (op->r[1] != PTX_NO_OPERAND)
		ptx_pred_put(w, op->r[1], is_all ? ~0u : 0, g->lanes);
}

PTX_HANDLER(match)
{
	struct group g;

	for (uint32_t left = PTX_BUILT(ptx_gather)(w, mask, op->r[5]); left; left &= ~g.lanes) {
		g = group_of(w, left, op->r[5]);
		match_group(w, op, &g);
	}
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
	uint32_t *d = ptx_out(w, op->r[0]);
	struct group g;

	for (uint32_t left = PTX_BUILT(ptx_gather)(w, mask, op->r[5]); left; left &= ~g.lanes) {
		uint32_t result = 0, more;

		g = group_of(w, left, op->r[5]);
		more = g.members;
		if (more)
			result = a[__builtin_ctz(more)];
		while (more &= more - 1)
			result = reduce(op, result, a[__builtin_ctz(more)]);
		put_all(d, result, g.lanes);
	}
}

PTX_HANDLER(activemask)
{
	put_all(ptx_out(w, op->r[0]), mask, mask);
}

PTX_HANDLER(warpsync)
{
	PTX_BUILT(ptx_gather)(w, mask, op->r[0]);
}

PTX_HANDLER(elect)
{
	struct group g;

	for (uint32_t left = PTX_BUILT(ptx_gather)(w, mask, op->r[5]); left; left &= ~g.lanes) {
		uint32_t leader;

		g = group_of(w, left, op->r[5]);
		leader = (uint32_t)__builtin_ctz(g.members ? g.members : g.lanes);
		put_all(ptx_out(w, op->r[0]), leader, g.lanes);
		ptx_pred_put(w, op->r[1], 1u << leader, g.lanes);
	}
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
