/* Warps: selection of the fragment that runs, and barriers. */
#include "soft/ptx/block.h"

/* After this many turns, another fragment than the lowest runs, so that spinning lanes do not starve the
 * lanes they wait for. */
#define FAIR_TURNS 64u

void ptx_warp_start(struct ptx_warp *w)
{
	w->pc = w->block->function->entry;
	w->mask = w->live = w->exists;
	w->stop = ~0u;
	w->carry = 0;
	w->fragment_count = 0;
	w->forced = 0;
	w->turn = 0;
	w->is_spinning = false;
	w->cost = 0;
	for (unsigned i = 0; i < PTX_LANES; i++) {
		w->top[i] = w->block->function->local_total;
		w->depth[i] = 0;
	}
}

static void add_fragment(struct ptx_warp *w, uint32_t pc, uint32_t mask, enum ptx_wait wait, uint32_t barrier)
{
	/* never more than PTX_LANES: each has at least one lane */
	w->fragments[w->fragment_count++] =
		(struct ptx_fragment){ .pc = pc, .mask = mask, .wait = wait, .barrier = barrier };
}

void ptx_warp_park(struct ptx_warp *w, enum ptx_wait wait, uint32_t barrier)
{
	if (w->mask)
		add_fragment(w, w->pc, w->mask, wait, barrier);
	w->mask = 0;
	w->stop = 0;
}

void ptx_warp_leave_behind(struct ptx_warp *w, uint32_t mask, enum ptx_wait wait)
{
	w->mask &= ~mask;
	add_fragment(w, w->pc, mask, wait, 0);
}

/* Move some lanes to pc. The running fragment ends its turn if pc is lower. */
void ptx_warp_split(struct ptx_warp *w, uint32_t mask, uint32_t pc)
{
	w->mask &= ~mask;
	add_fragment(w, pc, mask, PTX_WAIT_NOTHING, 0);
	if (!w->mask)
		w->stop = 0;
	else if (pc < w->stop)
		w->stop = pc <= w->pc ? 0 : pc;
}

static void remove_fragment(struct ptx_warp *w, uint32_t index)
{
	w->fragments[index] = w->fragments[--w->fragment_count];
}

static uint32_t lowest(const struct ptx_warp *w, enum ptx_wait wait)
{
	uint32_t best = ~0u;

	for (uint32_t i = 0; i < w->fragment_count; i++)
		if (w->fragments[i].wait == wait &&
		    (best == ~0u || w->fragments[i].pc < w->fragments[best].pc))
			best = i;
	return best;
}

static uint32_t choose(struct ptx_warp *w)
{
	uint32_t best = lowest(w, PTX_WAIT_NOTHING), at;

	w->turn++;
	if (best == ~0u || (w->turn % FAIR_TURNS && !w->is_spinning))
		return best;
	at = w->is_spinning ? w->turn : w->turn / FAIR_TURNS;
	w->is_spinning = false;
	for (uint32_t n = 0; n < w->fragment_count; n++, at++)
		if (w->fragments[at % w->fragment_count].wait == PTX_WAIT_NOTHING)
			return at % w->fragment_count;
	return best;
}

/* Start all fragments at this pc, and set `stop` to the pc of the next fragment. */
static void start_at(struct ptx_warp *w, uint32_t pc)
{
	w->pc = pc;
	w->stop = ~0u;
	for (uint32_t i = 0; i < w->fragment_count;) {
		struct ptx_fragment *f = &w->fragments[i];

		if (f->wait != PTX_WAIT_BARRIER && f->pc == pc) {
			w->mask |= f->mask;
			remove_fragment(w, i);
			continue;
		}
		if (f->wait != PTX_WAIT_BARRIER && f->pc > pc && f->pc < w->stop)
			w->stop = f->pc;
		i++;
	}
}

/* A pc at which more than one fragment waits for lanes: together they may be complete. ~0 if none. */
static uint32_t shared_pc(const struct ptx_warp *w)
{
	for (uint32_t i = 0; i < w->fragment_count; i++)
		for (uint32_t k = 0; k < i; k++)
			if (w->fragments[i].wait == PTX_WAIT_LANES &&
			    w->fragments[k].wait == PTX_WAIT_LANES &&
			    w->fragments[i].pc == w->fragments[k].pc)
				return w->fragments[i].pc;
	return ~0u;
}

bool ptx_warp_pick(struct ptx_warp *w)
{
	uint32_t best, pc;

	if (w->mask)
		add_fragment(w, w->pc, w->mask, PTX_WAIT_NOTHING, 0);
	w->mask = 0;
	best = choose(w);
	if (best == ~0u) {
		pc = shared_pc(w);
		if (pc != ~0u) {
			start_at(w, pc);
			return true;
		}
		/* all fragments wait for lanes: the missing lanes have exited, or wait elsewhere */
		best = lowest(w, PTX_WAIT_LANES);
		if (best == ~0u)
			return false;
		w->forced |= w->fragments[best].mask;
	}
	start_at(w, w->fragments[best].pc);
	return true;
}

static bool is_complete(const struct ptx_block *block, const struct ptx_barrier *b)
{
	if (!b->arrived)
		return false;
	return b->arrived >= (b->expected ? b->expected : block->live_threads);
}

/* The result of bar.red for the lanes of a fragment; its op is the one before its pc. */
static void put_result(struct ptx_warp *w, const struct ptx_fragment *f, const struct ptx_barrier *b)
{
	const struct ptx_op *op = &w->block->module->code[f->pc - 1];
	uint32_t *d = ptx_out(w, op->r[0]);

	if (op->mode == PTX_BAR_AND || op->mode == PTX_BAR_OR)
		ptx_pred_put(w, op->r[0], (op->mode == PTX_BAR_AND ? b->all : b->any) ? ~0u : 0, f->mask);
	for (unsigned i = 0; op->mode == PTX_BAR_POPC && i < PTX_LANES; i++)
		if (f->mask >> i & 1)
			d[i] = b->votes;
}

void ptx_barrier_check(struct ptx_block *block, uint32_t id)
{
	struct ptx_barrier *b = &block->barriers[id];

	if (!is_complete(block, b))
		return;
	for (uint32_t k = 0; k < block->warp_count; k++) {
		struct ptx_warp *w = &block->warps[k];

		for (uint32_t i = 0; i < w->fragment_count; i++) {
			struct ptx_fragment *f = &w->fragments[i];

			if (f->wait != PTX_WAIT_BARRIER || f->barrier != id)
				continue;
			put_result(w, f, b);
			f->wait = PTX_WAIT_NOTHING;
			if (w->mask && f->pc < w->stop) /* the warp selects its fragment again */
				w->stop = 0;
		}
	}
	*b = (struct ptx_barrier){ 0 };
}

void ptx_barriers_check(struct ptx_block *block)
{
	for (uint32_t i = 0; i < PTX_BARRIERS; i++)
		ptx_barrier_check(block, i);
}
