/* Random sequences of what the warden does to a ledger, against a list that counts the slow way. Every byte
 * of input decides something, so that a fuzzer reaches trees, duplicates, keepers and handles in use. */
#include "warden/ledger.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLES = 12, KEEPERS = 6, BLOCKS = 4096 };
static const uint32_t clients[2] = { 0xc1d00001, 0xc1d00002 };

struct model {
	struct {
		bool is_there;
		int parent, block; /* -1: the client; none */
	} at[2][HANDLES];
	struct {
		struct ledger_block *kept; /* NULL: keeps nothing */
		int block;
	} keeper[KEEPERS];
	uint64_t bytes[BLOCKS];
	int blocks;
};

static void model_remove(struct model *m, unsigned c, int h)
{
	m->at[c][h].is_there = false;
	for (int i = 0; i < HANDLES; i++)
		if (m->at[c][i].is_there && m->at[c][i].parent == h)
			model_remove(m, c, i);
}

/* False: the handle is in use. An unknown parent means the client. */
static bool model_add(struct model *m, unsigned c, int h, int parent, int block)
{
	if (m->at[c][h].is_there)
		return false;
	m->at[c][h].parent = parent >= 0 && m->at[c][parent].is_there ? parent : -1;
	m->at[c][h].is_there = true;
	m->at[c][h].block = block;
	return true;
}

static uint64_t model_used(const struct model *m)
{
	uint64_t used = 0;

	for (int b = 0; b < m->blocks; b++) {
		bool is_held = false;

		for (int i = 0; i < 2 * HANDLES; i++)
			is_held |= m->at[i / HANDLES][i % HANDLES].is_there &&
				   m->at[i / HANDLES][i % HANDLES].block == b;
		for (int k = 0; k < KEEPERS; k++)
			is_held |= m->keeper[k].kept && m->keeper[k].block == b;
		used += is_held ? m->bytes[b] : 0;
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
		if (ledger_named(ledger, clients[c]) != named)
			abort();
	}
}

static void model_drop(struct ledger *ledger, struct model *m, int k)
{
	if (!m->keeper[k].kept)
		return;
	ledger_drop(ledger, m->keeper[k].kept);
	m->keeper[k].kept = NULL;
}

static void expect_added(const struct ledger_object *object, bool is_added)
{
	if ((object != NULL) != is_added)
		abort();
}

static void step(struct ledger *ledger, struct model *m, const uint8_t *in)
{
	unsigned c = in[1] & 1, from_c = in[1] >> 1 & 1;
	int h = in[2] % HANDLES, parent = in[3] % (HANDLES + 1) - 1, from = in[4] % HANDLES,
	    k = in[3] % KEEPERS;
	uint32_t client = clients[c], handle = 1 + (uint32_t)h;
	uint32_t under = parent < 0 ? client : 1 + (uint32_t)parent;
	struct ledger_object *source = ledger_find(ledger, clients[from_c], 1 + (uint32_t)from), *added;

	switch (in[0] % 7) {
	case 0:
		m->bytes[m->blocks] = 1ull << in[4] % 48;
		added = ledger_add(ledger, client, under, handle, 0x40, RM_KIND_VIDMEM, m->bytes[m->blocks]);
		expect_added(added, model_add(m, c, h, parent, m->blocks));
		m->blocks += added != NULL;
		break;
	case 1:
		added = ledger_add(ledger, client, under, handle, 0xa06c, RM_KIND_GROUP, 0);
		expect_added(added, model_add(m, c, h, parent, -1));
		break;
	case 2:
		if (!source)
			break;
		added = ledger_add_duplicate(ledger, client, under, handle, source);
		expect_added(added, model_add(m, c, h, parent, m->at[from_c][from].block));
		break;
	case 3:
		k = in[4] % KEEPERS;
		if (!m->keeper[k].kept)
			break;
		added = ledger_add_name(ledger, client, under, handle, 0x40, m->keeper[k].kept);
		expect_added(added, model_add(m, c, h, parent, m->keeper[k].block));
		break;
	case 4:
		if (!source || !source->block || m->keeper[k].kept)
			break;
		ledger_keep(source->block);
		m->keeper[k].kept = source->block;
		m->keeper[k].block = m->at[from_c][from].block;
		break;
	case 5:
		model_drop(ledger, m, k);
		break;
	default:
		ledger_remove(ledger, client, in[4] == 255 ? client : handle);
		for (int i = 0; i < HANDLES; i++)
			if (m->at[c][i].is_there && (in[4] == 255 || i == h))
				model_remove(m, c, i);
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
	for (int k = 0; ledger && k < KEEPERS; k++) {
		model_drop(ledger, &m, k);
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
