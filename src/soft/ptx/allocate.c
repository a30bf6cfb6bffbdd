/* Register allocation: the thousands of names that a compiler writes share as few rows as are live at a time,
 * so that the registers of a warp stay in the cache. The column of a lane belongs to one thread, so the
 * control flow of a thread decides. A name keeps its row from its first use to its last; the number of registers that is
 * reported is smaller, because a compiler gives a name another register where it is set anew. */
#include <stdlib.h>
#include <string.h>

#include "soft/ptx/flow.h"

#define BITS_MAX_WORDS ((size_t)4 << 20)
#define CLASSES 4 /* 8, 4, 2 bytes per lane, predicates */

struct life {
	uint32_t first;
	uint32_t last;
};

struct liveness {
	size_t words;
	uint64_t *reads; /* before any write in the block */
	uint64_t *kills;
	uint64_t *in;
};

struct pool {
	uint32_t *free_slots;
	uint32_t free_count;
	uint32_t slot_count;
};

static bool is_register(uint32_t r)
{
	return r != PTX_NO_OPERAND && !(r & PTX_CONST_BIT);
}

static unsigned class_of(const struct ptx_reg *reg)
{
	return reg->width == 8 ? 0 : reg->width == 4 ? 1 : reg->width == 2 ? 2 : 3;
}

static void note_read(struct liveness *l, uint32_t block, uint32_t reg)
{
	size_t at = block * l->words + reg / 64;

	if (!(l->kills[at] >> (reg % 64) & 1))
		l->reads[at] |= 1ull << (reg % 64);
}

static void scan_block(const struct ptx_body *body, const struct ptx_flow *flow, uint32_t b,
		       struct liveness *l)
{
	for (uint32_t i = flow->blocks[b].first; i < flow->blocks[b].end; i++) {
		const struct ptx_op *op = &body->ops[i];

		if (op->guard != PTX_NO_OPERAND)
			note_read(l, b, op->guard);
		for (unsigned k = op->writes; k < op->count; k++)
			if (is_register(op->r[k]))
				note_read(l, b, op->r[k]);
		for (unsigned k = 0; k < op->writes; k++) /* with a guard, the old value may stay */
			if (is_register(op->r[k]) && op->guard == PTX_NO_OPERAND)
				l->kills[b * l->words + op->r[k] / 64] |= 1ull << (op->r[k] % 64);
	}
}

static void solve(const struct ptx_loader *loader, const struct ptx_body *body, const struct ptx_flow *flow,
		  struct liveness *l)
{
	bool is_changed = true;

	memcpy(l->in, l->reads, flow->count * l->words * sizeof(*l->in));
	while (is_changed) {
		is_changed = false;
		for (uint32_t b = flow->count; b-- > 0;) {
			uint32_t next;

			for (uint32_t n = 0; (next = ptx_flow_next(loader, body, flow, b, n)) != ~0u; n++) {
				for (size_t w = 0; w < l->words; w++) {
					uint64_t *in = &l->in[b * l->words + w];
					uint64_t grown = *in | (l->in[next * l->words + w] &
								~l->kills[b * l->words + w]);

					is_changed |= grown != *in;
					*in = grown;
				}
			}
		}
	}
}

static void extend(struct life *lives, uint32_t reg, uint32_t at)
{
	if (at < lives[reg].first)
		lives[reg].first = at;
	if (at > lives[reg].last || lives[reg].last == ~0u)
		lives[reg].last = at;
}

static void extend_all(struct life *lives, const uint64_t *set, size_t words, uint32_t at)
{
	for (size_t w = 0; w < words; w++)
		for (uint64_t bits = set[w]; bits; bits &= bits - 1)
			extend(lives, (uint32_t)(w * 64 + (unsigned)__builtin_ctzll(bits)), at);
}

static void find_lives(const struct ptx_loader *loader, const struct ptx_body *body,
		       const struct ptx_flow *flow, const struct liveness *l, struct life *lives)
{
	for (uint32_t b = 0; b < flow->count; b++) {
		const struct ptx_flow_block *block = &flow->blocks[b];
		uint32_t next;

		extend_all(lives, l->in + b * l->words, l->words, block->first);
		for (uint32_t n = 0; (next = ptx_flow_next(loader, body, flow, b, n)) != ~0u; n++)
			extend_all(lives, l->in + next * l->words, l->words, block->end - 1);
		for (uint32_t i = block->first; i < block->end; i++) {
			const struct ptx_op *op = &body->ops[i];

			if (op->guard != PTX_NO_OPERAND)
				extend(lives, op->guard, i);
			for (unsigned k = 0; k < op->count; k++)
				if (is_register(op->r[k]))
					extend(lives, op->r[k], i);
		}
	}
}

/* ---- the registers that a compiler would report */

static uint32_t weight_of(const struct ptx_body *body, uint32_t reg)
{
	static const uint32_t weights[CLASSES] = { 2, 1, 1, 0 };

	return weights[class_of(&body->regs[reg])];
}

/* The registers that are live, and how many 32-bit registers they are. */
struct live {
	const struct ptx_body *body;
	uint64_t *set;
	uint32_t weight, most;
};

static void live_add(struct live *live, uint32_t reg)
{
	uint64_t bit = 1ull << (reg % 64);

	if (live->set[reg / 64] & bit)
		return;
	live->set[reg / 64] |= bit;
	live->weight += weight_of(live->body, reg);
	if (live->weight > live->most)
		live->most = live->weight;
}

static void live_drop(struct live *live, uint32_t reg)
{
	uint64_t bit = 1ull << (reg % 64);

	if (!(live->set[reg / 64] & bit))
		return;
	live->set[reg / 64] &= ~bit;
	live->weight -= weight_of(live->body, reg);
}

/* From the end of an instruction to its beginning. A result takes a register, also if it is never read. */
static void live_before(struct live *live, const struct ptx_op *op)
{
	for (unsigned k = 0; k < op->writes; k++)
		if (is_register(op->r[k]))
			live_add(live, op->r[k]);
	for (unsigned k = 0; k < op->writes; k++)
		if (is_register(op->r[k]) && op->guard == PTX_NO_OPERAND)
			live_drop(live, op->r[k]);
	for (unsigned k = op->writes; k < op->count; k++)
		if (is_register(op->r[k]))
			live_add(live, op->r[k]);
	if (op->guard != PTX_NO_OPERAND)
		live_add(live, op->guard);
}

/* The most 32-bit registers that are live at one place. A name whose value is not read later takes no register until it is
 * set again, so code that sets the same names at many places needs them only there. A compiler needs about as many. */
static int find_pressure(const struct ptx_loader *loader, struct ptx_body *body, const struct ptx_flow *flow,
			 const struct liveness *l)
{
	struct live live = { .body = body, .set = calloc(l->words + 1, sizeof(*live.set)) };

	if (!live.set)
		return -1;
	for (uint32_t b = 0; b < flow->count; b++) {
		uint32_t next;

		memset(live.set, 0, l->words * sizeof(*live.set));
		live.weight = 0;
		for (uint32_t n = 0; (next = ptx_flow_next(loader, body, flow, b, n)) != ~0u; n++)
			for (size_t w = 0; w < l->words; w++)
				for (uint64_t bits = l->in [next * l->words + w]; bits; bits &= bits - 1)
					live_add(&live, (uint32_t)(w * 64 + (unsigned)__builtin_ctzll(bits)));
		for (uint32_t i = flow->blocks[b].end; i-- > flow->blocks[b].first;)
			live_before(&live, &body->ops[i]);
	}
	body->function->kernel.register_count = live.most;
	free(live.set);
	return 0;
}

static int solve_lives(struct ptx_loader *loader, struct ptx_body *body, struct life *lives)
{
	struct liveness l = { .words = (body->reg_count + 63) / 64 };
	struct ptx_flow flow;
	int rc = ptx_flow_find(loader, body, &flow);

	if (rc)
		return rc;
	if (l.words * flow.count > BITS_MAX_WORDS) {
		ptx_flow_free(&flow);
		return ptx_refuse(loader, body->function->kernel.line, "%s: too many registers and branches",
				  body->function->kernel.name);
	}
	l.reads = calloc(l.words * flow.count, sizeof(*l.reads));
	l.kills = calloc(l.words * flow.count, sizeof(*l.kills));
	l.in = calloc(l.words * flow.count, sizeof(*l.in));
	if (l.reads && l.kills && l.in) {
		for (uint32_t b = 0; b < flow.count; b++)
			scan_block(body, &flow, b, &l);
		solve(loader, body, &flow, &l);
		find_lives(loader, body, &flow, &l, lives);
	}
	if (!l.reads || !l.kills || !l.in || find_pressure(loader, body, &flow, &l))
		rc = ptx_no_memory(loader);
	free(l.reads);
	free(l.kills);
	free(l.in);
	ptx_flow_free(&flow);
	return rc;
}

/* Sort the registers by their first use, or by_last by their last: a counting sort. */
static int sort_lives(const struct life *lives, uint32_t count, uint32_t op_count, bool by_last,
		      uint32_t *sorted)
{
	uint32_t *starts = calloc((size_t)op_count + 2, sizeof(*starts));
	uint32_t used = 0;

	if (!starts)
		return -1;
	for (uint32_t i = 0; i < count; i++)
		if (lives[i].last != ~0u)
			starts[(by_last ? lives[i].last : lives[i].first) + 1]++;
	for (uint32_t i = 0; i <= op_count; i++)
		starts[i + 1] += starts[i];
	for (uint32_t i = 0; i < count; i++)
		if (lives[i].last != ~0u) {
			sorted[starts[by_last ? lives[i].last : lives[i].first]++] = i;
			used++;
		}
	free(starts);
	return (int)used;
}

static void assign(struct ptx_body *body, const struct life *lives, const uint32_t *by_first,
		   const uint32_t *by_last, uint32_t used, struct pool pools[CLASSES])
{
	uint32_t ended = 0;

	for (uint32_t i = 0; i < used; i++) {
		struct ptx_reg *reg = &body->regs[by_first[i]];
		struct pool *pool = &pools[class_of(reg)];

		/* a life that ends where this one begins is still read there */
		for (; lives[by_last[ended]].last < lives[by_first[i]].first; ended++) {
			struct ptx_reg *old = &body->regs[by_last[ended]];
			struct pool *to = &pools[class_of(old)];

			to->free_slots[to->free_count++] = old->place;
		}
		reg->place = pool->free_count ? pool->free_slots[--pool->free_count] : pool->slot_count++;
	}
}

/* Convert slots to bytes: the widest first, so that every row is aligned to its size or to 64. */
static void lay_out(struct ptx_body *body, const struct pool pools[CLASSES])
{
	static const uint32_t slot_bytes[CLASSES] = { 256, 128, 64, 4 };
	uint32_t base[CLASSES], at = 0;

	for (unsigned c = 0; c < CLASSES; c++) {
		base[c] = at;
		at += pools[c].slot_count * slot_bytes[c];
	}
	body->function->regs_bytes = (at + 63) & ~63u;
	for (unsigned c = 0; c < CLASSES; c++)
		body->function->rows[c] = pools[c].slot_count;
	body->function->saved_bytes = (8 * pools[0].slot_count + 4 * pools[1].slot_count +
				       2 * pools[2].slot_count + pools[3].slot_count + 15) &
				      ~15u;
	for (uint32_t i = 0; i < body->reg_count; i++) {
		unsigned c = class_of(&body->regs[i]);

		body->regs[i].place = base[c] + body->regs[i].place * slot_bytes[c];
	}
}

int ptx_allocate(struct ptx_loader *loader, struct ptx_body *body)
{
	uint32_t n = body->reg_count;
	struct life *lives = malloc(n * sizeof(*lives));
	uint32_t *orders = malloc((size_t)n * 2 * sizeof(*orders));
	struct pool pools[CLASSES] = { 0 };
	uint32_t *slots = malloc((size_t)n * CLASSES * sizeof(*slots));
	int used = -1, rc = 0;

	if (!lives || !orders || !slots)
		rc = ptx_no_memory(loader);
	if (!rc) {
		for (unsigned c = 0; c < CLASSES; c++)
			pools[c].free_slots = slots + (size_t)c * n;
		memset(lives, 0xff, n * sizeof(*lives));
		lives[body->return_reg] = (struct life){ 0, body->op_count }; /* read by every ret */
		if (body->function->is_stacked) /* read by every use of local memory */
			lives[body->frame_reg] = (struct life){ 0, body->op_count };
		rc = solve_lives(loader, body, lives);
	}
	if (!rc) {
		used = sort_lives(lives, n, body->op_count, false, orders);
		if (used < 0 || sort_lives(lives, n, body->op_count, true, orders + n) < 0)
			rc = ptx_no_memory(loader);
	}
	if (!rc) {
		assign(body, lives, orders, orders + n, (uint32_t)used, pools);
		lay_out(body, pools);
	}
	free(lives);
	free(orders);
	free(slots);
	return rc;
}
