/* ledger: what is charged, to the byte, whatever the order of allocations, duplicates, imports and frees. */
#include "warden/ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CLIENT 0xc1d00001u
#define OTHER 0xc1d00002u
#define DEVICE 0x5c000001u
#define MIB (1ull << 20)

struct gone {
	unsigned count, channels;
	uint32_t last;
};

static void count_gone(void *context, struct ledger_object *object)
{
	struct gone *gone = context;

	gone->count++;
	gone->channels += object->kind == RM_KIND_CHANNEL;
	gone->last = object->handle;
	assert_null(object->children); /* children first */
}

static struct ledger_object *add_memory(struct ledger *ledger, uint32_t client, uint32_t parent,
					uint32_t handle, uint64_t bytes)
{
	return ledger_add(ledger, client, parent, handle, 0x40, RM_KIND_VIDMEM, bytes);
}

static void room_is_exact_to_the_byte(void **state)
{
	struct ledger *ledger = ledger_new(10 * MIB, NULL, NULL);

	(void)state;
	assert_int_equal(ledger_room(ledger), 10 * MIB);
	assert_non_null(add_memory(ledger, CLIENT, CLIENT, 1, 10 * MIB - 1));
	assert_int_equal(ledger_room(ledger), 1);
	assert_non_null(add_memory(ledger, CLIENT, CLIENT, 2, 1));
	assert_int_equal(ledger_room(ledger), 0);
	assert_int_equal(ledger_used(ledger), 10 * MIB);
	ledger_remove(ledger, CLIENT, 2);
	assert_int_equal(ledger_room(ledger), 1);
	assert_int_equal(ledger_most_used(ledger), 10 * MIB);
	ledger_free(ledger);
}

static void without_a_limit_there_is_always_room(void **state)
{
	struct ledger *ledger = ledger_new(0, NULL, NULL);

	(void)state;
	assert_int_equal(ledger_room(ledger), UINT64_MAX);
	add_memory(ledger, CLIENT, CLIENT, 1, 1ull << 40);
	assert_int_equal(ledger_room(ledger), UINT64_MAX);
	assert_int_equal(ledger_used(ledger), 1ull << 40);
	ledger_free(ledger);
}

static void lowered_limit_leaves_no_room_and_never_wraps(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);

	(void)state;
	add_memory(ledger, CLIENT, CLIENT, 1, 4 * MIB);
	ledger_set_limit(ledger, 2 * MIB);
	assert_int_equal(ledger_limit(ledger), 2 * MIB);
	assert_int_equal(ledger_room(ledger), 0);
	ledger_set_limit(ledger, 5 * MIB);
	assert_int_equal(ledger_room(ledger), MIB);
	ledger_free(ledger);
}

static void managed_memory_counts_against_the_same_limit(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);

	(void)state;
	add_memory(ledger, CLIENT, CLIENT, 1, 3 * MIB);
	ledger_set_managed(ledger, 4 * MIB);
	assert_int_equal(ledger_used(ledger), 7 * MIB);
	assert_int_equal(ledger_room(ledger), MIB);
	ledger_set_managed(ledger, 1);
	assert_int_equal(ledger_room(ledger), 5 * MIB - 1);
	assert_int_equal(ledger_most_used(ledger), 7 * MIB);
	ledger_free(ledger);
}

static void only_device_memory_is_charged(void **state)
{
	struct ledger *ledger = ledger_new(MIB, NULL, NULL);

	(void)state;
	for (uint32_t kind = RM_KIND_OTHER; kind <= RM_KIND_REFUSED; kind++)
		if (kind != RM_KIND_VIDMEM)
			ledger_add(ledger, CLIENT, CLIENT, 100 + kind, 0x3e, (enum rm_kind)kind, 64 * MIB);
	assert_int_equal(ledger_used(ledger), 0);
	assert_int_equal(ledger_find(ledger, CLIENT, 100 + RM_KIND_SYSMEM)->bytes, 64 * MIB);
	ledger_free(ledger);
}

static void duplicates_are_counted_once_until_the_last_goes(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);
	struct ledger_object *first = add_memory(ledger, CLIENT, CLIENT, 1, 3 * MIB);

	(void)state;
	ledger_add_duplicate(ledger, CLIENT, CLIENT, 2, first);
	ledger_add_duplicate(ledger, OTHER, OTHER, 1, ledger_find(ledger, CLIENT, 2));
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	assert_int_equal(ledger_sum(ledger, CLIENT).named_bytes, 6 * MIB);
	assert_int_equal(ledger_sum(ledger, OTHER).named_bytes, 3 * MIB);
	ledger_remove(ledger, CLIENT, CLIENT);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	ledger_remove(ledger, OTHER, 1);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
}

static void duplicate_over_its_own_source_keeps_the_memory(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);
	struct ledger_object *object = add_memory(ledger, CLIENT, CLIENT, 1, MIB);

	(void)state;
	object = ledger_add_duplicate(ledger, CLIENT, CLIENT, 1, object);
	assert_non_null(object);
	assert_int_equal(object->kind, RM_KIND_VIDMEM);
	assert_int_equal(object->bytes, MIB);
	assert_int_equal(ledger_used(ledger), MIB);
	ledger_remove(ledger, CLIENT, 1);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
}

static void import_is_free_until_the_owner_goes(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);
	struct ledger_object *import = ledger_add_import(ledger, CLIENT, CLIENT, 1, 0, 2 * MIB);

	(void)state;
	assert_int_equal(ledger_used(ledger), 0);
	assert_int_equal(ledger_sum(ledger, CLIENT).named_bytes, 2 * MIB);
	assert_int_equal(ledger_sum(ledger, CLIENT).charged_bytes, 0);
	ledger_charge_import(ledger, import);
	ledger_charge_import(ledger, import); /* once */
	assert_int_equal(ledger_used(ledger), 2 * MIB);
	assert_int_equal(ledger_sum(ledger, CLIENT).charged_bytes, 2 * MIB);
	ledger_remove(ledger, CLIENT, 1);
	assert_int_equal(ledger_used(ledger), 0);
	/* Gone before its owner: it never cost anything. */
	ledger_add_import(ledger, CLIENT, CLIENT, 1, 0, 2 * MIB);
	ledger_remove(ledger, CLIENT, 1);
	assert_int_equal(ledger_used(ledger), 0);
	assert_int_equal(ledger_most_used(ledger), 2 * MIB);
	ledger_free(ledger);
}

static void freeing_an_ancestor_frees_everything_below_it(void **state)
{
	struct gone gone = { 0 };
	struct ledger *ledger = ledger_new(64 * MIB, count_gone, &gone);

	(void)state;
	ledger_add(ledger, CLIENT, CLIENT, DEVICE, 0x80, RM_KIND_DEVICE, 0);
	ledger_add(ledger, CLIENT, DEVICE, 10, 0xa06c, RM_KIND_GROUP, 0);
	ledger_add(ledger, CLIENT, 10, 11, 0xc86f, RM_KIND_CHANNEL, 0);
	ledger_add(ledger, CLIENT, 11, 12, 0xcbc0, RM_KIND_ENGINE, 0);
	for (uint32_t i = 0; i < 8; i++)
		add_memory(ledger, CLIENT, DEVICE, 20 + i, MIB);
	add_memory(ledger, CLIENT, CLIENT, 30, MIB); /* beside the device, not below it */
	ledger_remove(ledger, CLIENT, 10);
	assert_int_equal(gone.count, 3);
	assert_int_equal(gone.channels, 1);
	assert_int_equal(gone.last, 10);
	ledger_remove(ledger, CLIENT, DEVICE);
	assert_int_equal(gone.count, 12);
	assert_int_equal(ledger_used(ledger), MIB);
	ledger_free(ledger);
	assert_int_equal(gone.count, 14); /* the last block, and the client itself */
}

static void freeing_a_client_leaves_the_other(void **state)
{
	struct ledger *ledger = ledger_new(64 * MIB, NULL, NULL);

	(void)state;
	add_memory(ledger, CLIENT, CLIENT, 1, MIB);
	add_memory(ledger, OTHER, OTHER, 1, 2 * MIB); /* the same handle, another object */
	ledger_remove(ledger, CLIENT, CLIENT);
	assert_null(ledger_find(ledger, CLIENT, 1));
	assert_null(ledger_find(ledger, CLIENT, CLIENT));
	assert_non_null(ledger_find(ledger, OTHER, 1));
	assert_int_equal(ledger_used(ledger), 2 * MIB);
	ledger_remove(ledger, CLIENT, CLIENT);
	ledger_remove(ledger, OTHER, 99);
	assert_int_equal(ledger_used(ledger), 2 * MIB);
	ledger_free(ledger);
}

static void replaced_handle_takes_its_children_along(void **state)
{
	struct gone gone = { 0 };
	struct ledger *ledger = ledger_new(64 * MIB, count_gone, &gone);

	(void)state;
	ledger_add(ledger, CLIENT, CLIENT, 1, 0x80, RM_KIND_DEVICE, 0);
	add_memory(ledger, CLIENT, 1, 2, MIB);
	assert_non_null(add_memory(ledger, CLIENT, 1, 1, 3 * MIB)); /* below itself: the client takes it */
	assert_int_equal(gone.count, 2);
	assert_null(ledger_find(ledger, CLIENT, 2));
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	assert_ptr_equal(ledger_find(ledger, CLIENT, 1)->parent, ledger_find(ledger, CLIENT, CLIENT));
	ledger_free(ledger);
}

static void unknown_parent_means_the_client(void **state)
{
	struct ledger *ledger = ledger_new(64 * MIB, NULL, NULL);

	(void)state;
	add_memory(ledger, CLIENT, 0xdead, 1, MIB);
	ledger_remove(ledger, CLIENT, CLIENT);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
}

static void count_visit(void *context, struct ledger_object *object)
{
	(void)object;
	++*(unsigned *)context;
}

/* A program decides how deep its trees are: a walk or a free by recursion would run out of stack here. */
static void deep_trees_are_walked_and_freed(void **state)
{
	enum { DEPTH = 200000 };
	struct gone gone = { 0 };
	struct ledger *ledger = ledger_new(0, count_gone, &gone);
	unsigned seen = 0;

	(void)state;
	for (uint32_t i = 1; i <= DEPTH; i++)
		ledger_add(ledger, CLIENT, i == 1 ? CLIENT : i - 1, i, 0x80, RM_KIND_OTHER, 0);
	ledger_each(ledger, CLIENT, RM_KIND_OTHER, count_visit, &seen);
	assert_int_equal(seen, DEPTH);
	assert_int_equal(ledger_sum(ledger, CLIENT).named_bytes, 0);
	ledger_remove(ledger, CLIENT, 1);
	assert_int_equal(gone.count, DEPTH);
	ledger_free(ledger);
}

/* The model: an array of what there is, and of the blocks behind it. */
enum { SLOTS = 96, BLOCKS = 1 << 18 };
struct model {
	struct {
		bool is_there;
		int parent; /* slot; -1: the client */
		int block;  /* -1: none */
	} slot[2][SLOTS];
	uint64_t bytes[BLOCKS];
	bool is_charged[BLOCKS];
	int blocks;
};

static uint32_t client_of(int c)
{
	return c ? OTHER : CLIENT;
}

static void model_remove(struct model *m, int c, int s)
{
	m->slot[c][s].is_there = false;
	for (int i = 0; i < SLOTS; i++)
		if (m->slot[c][i].is_there && m->slot[c][i].parent == s)
			model_remove(m, c, i);
}

static uint64_t model_used(const struct model *m)
{
	static uint8_t seen[BLOCKS];
	uint64_t used = 0;

	memset(seen, 0, (size_t)m->blocks);
	for (int c = 0; c < 2; c++)
		for (int s = 0; s < SLOTS; s++) {
			int b = m->slot[c][s].block;

			if (!m->slot[c][s].is_there || b < 0 || seen[b])
				continue;
			seen[b] = 1;
			used += m->is_charged[b] ? m->bytes[b] : 0;
		}
	return used;
}

/* Where a new object hangs: under nothing that replacing slot s would remove. */
static int model_parent(const struct model *m, int c, int s, int wanted)
{
	if (wanted < 0 || !m->slot[c][wanted].is_there)
		return -1;
	for (int up = wanted; up >= 0; up = m->slot[c][up].parent)
		if (up == s)
			return -1;
	return wanted;
}

static void model_add(struct model *m, int c, int s, int parent, int block)
{
	if (m->slot[c][s].is_there)
		model_remove(m, c, s);
	m->slot[c][s].is_there = true;
	m->slot[c][s].parent = parent;
	m->slot[c][s].block = block;
}

static int model_block(struct model *m, uint64_t bytes, bool is_charged)
{
	m->bytes[m->blocks] = bytes;
	m->is_charged[m->blocks] = is_charged;
	return m->blocks++;
}

static void check_against_model(const struct ledger *ledger, const struct model *m)
{
	for (int c = 0; c < 2; c++) {
		struct ledger_sum sum = ledger_sum(ledger, client_of(c));
		uint64_t named = 0, charged = 0;

		for (int s = 0; s < SLOTS; s++) {
			struct ledger_object *object = ledger_find(ledger, client_of(c), 1 + (uint32_t)s);
			int b = m->slot[c][s].block;

			assert_int_equal(object != NULL, m->slot[c][s].is_there);
			if (!object || b < 0)
				continue;
			assert_int_equal(object->bytes, m->bytes[b]);
			named += m->bytes[b];
			charged += m->is_charged[b] ? m->bytes[b] : 0;
		}
		assert_int_equal(sum.named_bytes, named);
		assert_int_equal(sum.charged_bytes, charged);
	}
}

static void one_random_step(struct ledger *ledger, struct model *m)
{
	int c = rand() % 2, s = rand() % SLOTS, parent = model_parent(m, c, s, rand() % (SLOTS + 20) - 20);
	int other = rand() % 2, source = rand() % SLOTS;
	uint32_t client = client_of(c), handle = 1 + (uint32_t)s;
	uint32_t under = parent < 0 ? client : 1 + (uint32_t)parent;
	uint64_t bytes = (uint64_t)rand() % (8 * MIB);
	struct ledger_object *object = ledger_find(ledger, client_of(other), 1 + (uint32_t)source);

	switch (rand() % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		assert_non_null(add_memory(ledger, client, under, handle, bytes));
		model_add(m, c, s, parent, model_block(m, bytes, true));
		break;
	case 5:
	case 6:
		assert_non_null(ledger_add(ledger, client, under, handle, 0xa06c, RM_KIND_GROUP, 0));
		model_add(m, c, s, parent, -1);
		break;
	case 7:
	case 8:
		if (object) {
			int block = m->slot[other][source].block;

			assert_non_null(ledger_add_duplicate(ledger, client, under, handle, object));
			model_add(m, c, s, parent, block);
		}
		break;
	case 9:
		assert_non_null(ledger_add_import(ledger, client, under, handle, 0, bytes));
		model_add(m, c, s, parent, model_block(m, bytes, false));
		break;
	case 10:
		if (object && m->slot[other][source].block >= 0) {
			ledger_charge_import(ledger, object);
			m->is_charged[m->slot[other][source].block] = true;
		}
		break;
	case 11:
	case 12:
	case 13:
	case 14:
		ledger_remove(ledger, client, handle);
		if (m->slot[c][s].is_there)
			model_remove(m, c, s);
		break;
	default:
		if (rand() % 50)
			break;
		ledger_remove(ledger, client, client);
		for (int i = 0; i < SLOTS; i++)
			m->slot[c][i].is_there = false;
	}
}

static void random_operations_agree_with_a_simple_model(void **state)
{
	enum { STEPS = 100000, LOOK_EVERY = 97 };
	struct ledger *ledger = ledger_new(64 * MIB, NULL, NULL);
	struct model *m = calloc(1, sizeof(*m));

	(void)state;
	assert_non_null(m);
	srand(20260101);
	for (int i = 0; i < STEPS; i++) {
		uint64_t used;

		one_random_step(ledger, m);
		used = model_used(m);
		assert_int_equal(ledger_used(ledger), used);
		assert_int_equal(ledger_room(ledger), used < 64 * MIB ? 64 * MIB - used : 0);
		if (i % LOOK_EVERY == 0)
			check_against_model(ledger, m);
	}
	ledger_remove(ledger, CLIENT, CLIENT);
	ledger_remove(ledger, OTHER, OTHER);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(room_is_exact_to_the_byte),
		cmocka_unit_test(without_a_limit_there_is_always_room),
		cmocka_unit_test(lowered_limit_leaves_no_room_and_never_wraps),
		cmocka_unit_test(managed_memory_counts_against_the_same_limit),
		cmocka_unit_test(only_device_memory_is_charged),
		cmocka_unit_test(duplicates_are_counted_once_until_the_last_goes),
		cmocka_unit_test(duplicate_over_its_own_source_keeps_the_memory),
		cmocka_unit_test(import_is_free_until_the_owner_goes),
		cmocka_unit_test(freeing_an_ancestor_frees_everything_below_it),
		cmocka_unit_test(freeing_a_client_leaves_the_other),
		cmocka_unit_test(replaced_handle_takes_its_children_along),
		cmocka_unit_test(unknown_parent_means_the_client),
		cmocka_unit_test(deep_trees_are_walked_and_freed),
		cmocka_unit_test(random_operations_agree_with_a_simple_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
