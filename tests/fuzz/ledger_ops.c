/* Random sequences of what the warden does to a ledger, against a list that counts the slow way. Every byte of
 * input decides something, so that a fuzzer finds its way into trees, duplicates and replaced handles. */
#include "warden/ledger.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLES = 12, BLOCKS = 4096 };
static const uint32_t clients[2] = { 0xc1d00001, 0xc1d00002 };

struct model {
	struct {
		bool is_there;
		int parent, block; /* -1: the client; none */
	} at[2][HANDLES];
	uint64_t bytes[BLOCKS];
	bool is_charged[BLOCKS];
	int blocks;
};

static void model_remove(struct model *m, unsigned c, int h)
{
	m->at[c][h].is_there = false;
	for (int i = 0; i < HANDLES; i++)
		if (m->at[c][i].is_there && m->at[c][i].parent == h)
			model_remove(m, c, i);
}

static void model_add(struct model *m, unsigned c, int h, int parent, int block)
{
	if (m->at[c][h].is_there)
		model_remove(m, c, h);
	/* A parent that went with the handle it replaces leaves the client. */
	m->at[c][h].parent = parent >= 0 && m->at[c][parent].is_there ? parent : -1;
	m->at[c][h].is_there = true;
	m->at[c][h].block = block;
}

static uint64_t model_used(const struct model *m)
{
	uint64_t used = 0;

	for (int b = 0; b < m->blocks; b++) {
		bool is_held = false;

		for (int i = 0; i < 2 * HANDLES; i++)
			is_held |= m->at[i / HANDLES][i % HANDLES].is_there &&
				   m->at[i / HANDLES][i % HANDLES].block == b;
		used += is_held && m->is_charged[b] ? m->bytes[b] : 0;
	}
	return used;
}

static void check(const struct ledger *ledger, const struct model *m)
{
	if (ledger_used(ledger) != model_used(m))
		abort();
	for (int c = 0; c < 2; c++) {
		uint64_t named = 0;

		for (int h = 0; h < HANDLES; h++) {
			if (!!ledger_find(ledger, clients[c], 1 + (uint32_t)h) != m->at[c][h].is_there)
				abort();
			if (m->at[c][h].is_there && m->at[c][h].block >= 0)
				named += m->bytes[m->at[c][h].block];
		}
		if (ledger_sum(ledger, clients[c]).named_bytes != named)
			abort();
	}
}

static void step(struct ledger *ledger, struct model *m, const uint8_t *in)
{
	unsigned c = in[1] & 1, from_c = in[1] >> 1 & 1;
	int h = in[2] % HANDLES, parent = in[3] % (HANDLES + 1) - 1, from = in[4] % HANDLES;
	uint32_t client = clients[c], handle = 1 + (uint32_t)h;
	uint32_t under = parent < 0 ? client : 1 + (uint32_t)parent;
	struct ledger_object *source = ledger_find(ledger, clients[from_c], 1 + (uint32_t)from);

	switch (in[0] % 6) {
	case 0:
	case 1:
		m->bytes[m->blocks] = 1ull << in[4] % 48;
		m->is_charged[m->blocks] = in[0] % 6 == 0;
		if (in[0] % 6 == 0)
			ledger_add(ledger, client, under, handle, 0x40, RM_KIND_VIDMEM, m->bytes[m->blocks]);
		else
			ledger_add_import(ledger, client, under, handle, 0, m->bytes[m->blocks]);
		model_add(m, c, h, parent, m->blocks++);
		break;
	case 2:
		ledger_add(ledger, client, under, handle, 0xa06c, RM_KIND_GROUP, 0);
		model_add(m, c, h, parent, -1);
		break;
	case 3:
		if (source) {
			int block = m->at[from_c][from].block;

			ledger_add_duplicate(ledger, client, under, handle, source);
			model_add(m, c, h, parent, block);
		}
		break;
	case 4:
		ledger_remove(ledger, client, in[4] == 255 ? client : handle);
		for (int i = 0; i < HANDLES; i++)
			if (m->at[c][i].is_there && (in[4] == 255 || i == h))
				model_remove(m, c, i);
		break;
	default:
		if (source && source->block) {
			ledger_charge_import(ledger, source);
			m->is_charged[m->at[from_c][from].block] = true;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct model m;
	struct ledger *ledger = ledger_new(1ull << 40, NULL, NULL);

	memset(&m, 0, sizeof(m));
	for (size_t at = 0; ledger && at + 5 <= size && m.blocks < BLOCKS; at += 5) {
		step(ledger, &m, data + at);
		check(ledger, &m);
	}
	ledger_free(ledger);
	return 0;
}

#ifdef FUZZ_STANDALONE
int main(void)
{
	enum { INPUTS = 3000, STEPS = 60 };
	uint8_t data[5 * STEPS];
	uint64_t seed = 88172645463325252ull;

	for (int i = 0; i < INPUTS; i++) {
		for (size_t k = 0; k < sizeof(data); k++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			data[k] = (uint8_t)seed;
		}
		LLVMFuzzerTestOneInput(data, sizeof(data));
	}
	printf("%d sequences of %d operations\n", INPUTS, STEPS);
	return 0;
}
#endif
