/* ledger: what is charged, to the byte, whatever the order of allocations, duplicates, keepers and frees. */
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
	assert_int_equal(ledger_set_limit(ledger, 2 * MIB, NULL), 0);
	assert_int_equal(ledger_limit(ledger), 2 * MIB);
	assert_int_equal(ledger_room(ledger), 0);
	assert_int_equal(ledger_set_limit(ledger, 5 * MIB, NULL), 0);
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
	assert_int_equal(ledger_named(ledger, CLIENT), 6 * MIB);
	assert_int_equal(ledger_named(ledger, OTHER), 3 * MIB);
	ledger_remove(ledger, CLIENT, CLIENT);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	ledger_remove(ledger, OTHER, 1);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
}

static void a_duplicate_of_other_memory_is_not_charged(void **state)
{
	struct ledger *ledger = ledger_new(MIB, NULL, NULL);
	struct ledger_object *source = ledger_add(ledger, CLIENT, CLIENT, 1, 0x3e, RM_KIND_SYSMEM, 4 * MIB);
	struct ledger_object *duplicate = ledger_add_duplicate(ledger, OTHER, OTHER, 1, source);

	(void)state;
	assert_non_null(duplicate);
	assert_int_equal(duplicate->kind, RM_KIND_SYSMEM);
	assert_int_equal(duplicate->class_id, 0x3e);
	assert_int_equal(duplicate->bytes, 4 * MIB);
	assert_null(duplicate->block);
	assert_int_equal(ledger_used(ledger), 0);
	assert_int_equal(ledger_named(ledger, OTHER), 0);
	ledger_free(ledger);
}

static void memory_is_charged_until_the_last_keeper_lets_go(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);
	struct ledger_block *block = add_memory(ledger, CLIENT, CLIENT, 1, 3 * MIB)->block;

	(void)state;
	ledger_keep(block);
	ledger_keep(block);
	assert_int_equal(ledger_used(ledger), 3 * MIB); /* once */
	ledger_remove(ledger, CLIENT, CLIENT);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	assert_int_equal(ledger_room(ledger), 5 * MIB);
	assert_int_equal(ledger_named(ledger, CLIENT), 0); /* charged, but without a name */
	ledger_drop(ledger, block);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	ledger_drop(ledger, block);
	assert_int_equal(ledger_used(ledger), 0);
	assert_int_equal(ledger_most_used(ledger), 3 * MIB);
	ledger_free(ledger);
}

static void memory_is_charged_while_an_object_outlives_its_keepers(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);
	struct ledger_block *block = add_memory(ledger, CLIENT, CLIENT, 1, 3 * MIB)->block;

	(void)state;
	ledger_keep(block);
	ledger_drop(ledger, block);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	ledger_remove(ledger, CLIENT, 1);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
}

static void a_kept_block_can_be_named_again(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);
	struct ledger_block *block = add_memory(ledger, CLIENT, CLIENT, 1, 3 * MIB)->block;
	struct ledger_object *name;

	(void)state;
	ledger_keep(block);
	ledger_remove(ledger, CLIENT, CLIENT);
	name = ledger_add_name(ledger, OTHER, OTHER, 7, 0x41, block);
	assert_non_null(name);
	assert_ptr_equal(name, ledger_find(ledger, OTHER, 7));
	assert_ptr_equal(name->block, block);
	assert_int_equal(name->kind, RM_KIND_VIDMEM);
	assert_int_equal(name->class_id, 0x41);
	assert_int_equal(name->bytes, 3 * MIB);
	assert_int_equal(ledger_named(ledger, OTHER), 3 * MIB);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	assert_int_equal(ledger_most_used(ledger), 3 * MIB);
	ledger_drop(ledger, block);
	assert_int_equal(ledger_used(ledger), 3 * MIB); /* the name holds it */
	ledger_remove(ledger, OTHER, 7);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
}

static void a_name_is_counted_for_its_client_and_not_charged_again(void **state)
{
	struct ledger *ledger = ledger_new(8 * MIB, NULL, NULL);
	struct ledger_block *block = add_memory(ledger, CLIENT, CLIENT, 1, 3 * MIB)->block;

	(void)state;
	assert_non_null(ledger_add_name(ledger, CLIENT, CLIENT, 2, 0x40, block));
	assert_non_null(ledger_add_name(ledger, OTHER, OTHER, 1, 0x40, block));
	assert_int_equal(ledger_named(ledger, CLIENT), 6 * MIB);
	assert_int_equal(ledger_named(ledger, OTHER), 3 * MIB);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	ledger_remove(ledger, CLIENT, 1);
	ledger_remove(ledger, CLIENT, 2);
	assert_int_equal(ledger_used(ledger), 3 * MIB);
	ledger_remove(ledger, OTHER, 1);
	assert_int_equal(ledger_used(ledger), 0);
	ledger_free(ledger);
}

struct dropping {
	struct ledger *ledger;
	unsigned drops;
};

static void drop_attached(void *context, struct ledger_object *object)
{
	struct dropping *dropping = context;

	if (!object->attached)
		return;
	dropping->drops++;
	ledger_drop(dropping->ledger, object->attached);
}

/* A channel keeps the memory of its USERD and drops it in the callback, before or after the object of that
 * memory is removed. ledger_free calls back too. */
static void a_keeper_may_let_go_while_objects_are_removed(void **state)
{
	struct dropping dropping = { NULL, 0 };
	struct ledger *ledger = dropping.ledger = ledger_new(8 * MIB, drop_attached, &dropping);

	(void)state;
	for (uint32_t round = 1; round <= 3; round++) {
		struct ledger_object *before =
			ledger_add(ledger, CLIENT, CLIENT, 1, 0xc86f, RM_KIND_CHANNEL, 0);
		struct ledger_block *block = add_memory(ledger, CLIENT, CLIENT, 2, MIB)->block;
		struct ledger_object *after =
			ledger_add(ledger, CLIENT, CLIENT, 3, 0xc86f, RM_KIND_CHANNEL, 0);

		before->attached = after->attached = block;
		ledger_keep(block);
		ledger_keep(block);
		if (round == 3)
			break;
		ledger_remove(ledger, CLIENT, CLIENT);
		assert_int_equal(dropping.drops, 2 * round);
		assert_int_equal(ledger_used(ledger), 0);
	}
	assert_int_equal(ledger_used(ledger), MIB);
	ledger_free(ledger);
	assert_int_equal(dropping.drops, 6);
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

static void a_handle_in_use_is_refused_and_nothing_changes(void **state)
{
	struct gone gone = { 0 };
	struct ledger *ledger = ledger_new(64 * MIB, count_gone, &gone);
	struct ledger_object *device = ledger_add(ledger, CLIENT, CLIENT, 1, 0x80, RM_KIND_DEVICE, 0);
	struct ledger_object *memory = add_memory(ledger, CLIENT, 1, 2, MIB);
	const struct ledger_object device_before = *device, memory_before = *memory;

	(void)state;
	for (uint32_t handle = 1; handle <= 2; handle++) {
		assert_null(add_memory(ledger, CLIENT, CLIENT, handle, 3 * MIB));
		assert_null(ledger_add(ledger, CLIENT, CLIENT, handle, 0xa06c, RM_KIND_GROUP, 0));
		assert_null(ledger_add_duplicate(ledger, CLIENT, CLIENT, handle, device));
		assert_null(ledger_add_duplicate(ledger, CLIENT, CLIENT, handle, memory));
		assert_null(ledger_add_name(ledger, CLIENT, CLIENT, handle, 0x41, memory->block));
	}
	assert_int_equal(gone.count, 0);
	assert_ptr_equal(ledger_find(ledger, CLIENT, 1), device);
	assert_ptr_equal(ledger_find(ledger, CLIENT, 2), memory);
	assert_memory_equal(device, &device_before, sizeof(*device));
	assert_memory_equal(memory, &memory_before, sizeof(*memory));
	assert_int_equal(ledger_used(ledger), MIB);
	assert_int_equal(ledger_most_used(ledger), MIB);
	assert_int_equal(ledger_named(ledger, CLIENT), MIB);
	ledger_remove(ledger, CLIENT, 2);
	assert_int_equal(ledger_used(ledger), 0); /* a refused name holds nothing */
	ledger_free(ledger);
}

static void a_client_in_use_is_refused_and_keeps_its_objects(void **state)
{
	struct ledger *ledger = ledger_new(64 * MIB, NULL, NULL);
	struct ledger_object *memory = add_memory(ledger, CLIENT, CLIENT, 1, MIB); /* creates the client */
	struct ledger_object *root = ledger_find(ledger, CLIENT, CLIENT);

	(void)state;
	assert_non_null(root);
	assert_null(ledger_add(ledger, CLIENT, CLIENT, CLIENT, 0x41, RM_KIND_ROOT, 0));
	assert_null(add_memory(ledger, CLIENT, CLIENT, CLIENT, MIB));
	assert_null(ledger_add_duplicate(ledger, CLIENT, CLIENT, CLIENT, memory));
	assert_null(ledger_add_name(ledger, CLIENT, CLIENT, CLIENT, 0x40, memory->block));
	assert_ptr_equal(ledger_find(ledger, CLIENT, CLIENT), root);
	assert_int_equal(root->kind, RM_KIND_ROOT);
	assert_ptr_equal(root->children, memory);
	assert_int_equal(ledger_used(ledger), MIB);
	ledger_remove(ledger, CLIENT, CLIENT);
	assert_int_equal(ledger_used(ledger), 0);
	assert_non_null(ledger_add(ledger, CLIENT, CLIENT, CLIENT, 0x41, RM_KIND_ROOT, 0));
	ledger_free(ledger);
}

static void a_removed_handle_is_free_again(void **state)
{
	struct ledger *ledger = ledger_new(64 * MIB, NULL, NULL);
	struct ledger_object *object;

	(void)state;
	ledger_add(ledger, CLIENT, CLIENT, DEVICE, 0x80, RM_KIND_DEVICE, 0);
	add_memory(ledger, CLIENT, DEVICE, 1, MIB);
	ledger_remove(ledger, CLIENT, DEVICE);
	object = add_memory(ledger, CLIENT, 1, 1, 3 * MIB); /* below itself: the client is the parent */
	assert_non_null(object);
	assert_ptr_equal(object->parent, ledger_find(ledger, CLIENT, CLIENT));
	assert_int_equal(ledger_used(ledger), 3 * MIB);
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
	assert_int_equal(ledger_named(ledger, CLIENT), 0);
	ledger_remove(ledger, CLIENT, 1);
	assert_int_equal(gone.count, DEPTH);
	ledger_free(ledger);
}

/* The model: an array of what there is, and of the blocks behind it. */
enum { SLOTS = 96, KEEPERS = 24, BLOCKS = 1 << 18 };
struct model {
	struct {
		bool is_there;
		int parent; /* slot; -1: the client */
		int block;  /* -1: none */
	} slot[2][SLOTS];
	struct {
		struct ledger_block *kept; /* NULL: keeps nothing */
		int block;
	} keeper[KEEPERS];
	uint64_t bytes[BLOCKS];
	int blocks;
	uint64_t most_bytes;
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

/* Add a block that is held, once. */
static void count_held(const struct model *m, int block, uint8_t *seen, uint64_t *used)
{
	if (block < 0 || seen[block])
		return;
	seen[block] = 1;
	*used += m->bytes[block];
}

static uint64_t model_used(const struct model *m)
{
	static uint8_t seen[BLOCKS];
	uint64_t used = 0;

	memset(seen, 0, (size_t)m->blocks);
	for (int i = 0; i < 2 * SLOTS; i++)
		if (m->slot[i / SLOTS][i % SLOTS].is_there)
			count_held(m, m->slot[i / SLOTS][i % SLOTS].block, seen, &used);
	for (int k = 0; k < KEEPERS; k++)
		if (m->keeper[k].kept)
			count_held(m, m->keeper[k].block, seen, &used);
	return used;
}

/* False: the handle is in use. An unknown parent means the client. */
static bool model_add(struct model *m, int c, int s, int parent, int block)
{
	if (m->slot[c][s].is_there)
		return false;
	m->slot[c][s].parent = parent >= 0 && m->slot[c][parent].is_there ? parent : -1;
	m->slot[c][s].is_there = true;
	m->slot[c][s].block = block;
	return true;
}

static int model_block(struct model *m, uint64_t bytes)
{
	m->bytes[m->blocks] = bytes;
	return m->blocks++;
}

static void check_against_model(const struct ledger *ledger, const struct model *m)
{
	for (int c = 0; c < 2; c++) {
		uint64_t named = 0;

		for (int s = 0; s < SLOTS; s++) {
			struct ledger_object *object = ledger_find(ledger, client_of(c), 1 + (uint32_t)s);
			int b = m->slot[c][s].block;

			assert_int_equal(object != NULL, m->slot[c][s].is_there);
			if (!object)
				continue;
			assert_int_equal(object->block != NULL, b >= 0);
			if (b < 0)
				continue;
			assert_int_equal(object->bytes, m->bytes[b]);
			named += m->bytes[b];
		}
		assert_int_equal(ledger_named(ledger, client_of(c)), named);
	}
}

static void keep_or_drop(struct ledger *ledger, struct model *m, int k, struct ledger_block *block, int b)
{
	if (m->keeper[k].kept) {
		ledger_drop(ledger, m->keeper[k].kept);
		m->keeper[k].kept = NULL;
	} else if (block) {
		ledger_keep(block);
		m->keeper[k].kept = block;
		m->keeper[k].block = b;
	}
}

static void one_random_step(struct ledger *ledger, struct model *m)
{
	int c = rand() % 2, s = rand() % SLOTS, parent = rand() % (SLOTS + 20) - 20;
	int other = rand() % 2, from = rand() % SLOTS, k = rand() % KEEPERS;
	uint32_t client = client_of(c), handle = 1 + (uint32_t)s;
	uint32_t under = parent < 0 ? client : 1 + (uint32_t)parent;
	uint64_t bytes = (uint64_t)rand() % (8 * MIB);
	struct ledger_object *source = ledger_find(ledger, client_of(other), 1 + (uint32_t)from), *added;

	switch (rand() % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
		added = add_memory(ledger, client, under, handle, bytes);
		assert_int_equal(added != NULL, model_add(m, c, s, parent, model_block(m, bytes)));
		break;
	case 4:
	case 5:
		added = ledger_add(ledger, client, under, handle, 0xa06c, RM_KIND_GROUP, 0);
		assert_int_equal(added != NULL, model_add(m, c, s, parent, -1));
		break;
	case 6:
	case 7:
		if (!source)
			break;
		added = ledger_add_duplicate(ledger, client, under, handle, source);
		assert_int_equal(added != NULL, model_add(m, c, s, parent, m->slot[other][from].block));
		break;
	case 8:
	case 9:
		if (!m->keeper[k].kept)
			break;
		added = ledger_add_name(ledger, client, under, handle, 0x40, m->keeper[k].kept);
		assert_int_equal(added != NULL, model_add(m, c, s, parent, m->keeper[k].block));
		break;
	case 10:
	case 11:
		keep_or_drop(ledger, m, k, source ? source->block : NULL, m->slot[other][from].block);
		break;
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

static void check_use(const struct ledger *ledger, struct model *m)
{
	uint64_t used = model_used(m);

	if (used > m->most_bytes)
		m->most_bytes = used;
	assert_int_equal(ledger_used(ledger), used);
	assert_int_equal(ledger_most_used(ledger), m->most_bytes);
	assert_int_equal(ledger_room(ledger), used < 64 * MIB ? 64 * MIB - used : 0);
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
		one_random_step(ledger, m);
		check_use(ledger, m);
		if (i % LOOK_EVERY == 0)
			check_against_model(ledger, m);
	}
	for (int c = 0; c < 2; c++) {
		ledger_remove(ledger, client_of(c), client_of(c));
		for (int s = 0; s < SLOTS; s++)
			m->slot[c][s].is_there = false;
	}
	for (int k = 0; k < KEEPERS; k++) {
		check_use(ledger, m);
		keep_or_drop(ledger, m, k, NULL, -1);
	}
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
		cmocka_unit_test(a_duplicate_of_other_memory_is_not_charged),
		cmocka_unit_test(memory_is_charged_until_the_last_keeper_lets_go),
		cmocka_unit_test(memory_is_charged_while_an_object_outlives_its_keepers),
		cmocka_unit_test(a_kept_block_can_be_named_again),
		cmocka_unit_test(a_name_is_counted_for_its_client_and_not_charged_again),
		cmocka_unit_test(a_keeper_may_let_go_while_objects_are_removed),
		cmocka_unit_test(freeing_an_ancestor_frees_everything_below_it),
		cmocka_unit_test(freeing_a_client_leaves_the_other),
		cmocka_unit_test(a_handle_in_use_is_refused_and_nothing_changes),
		cmocka_unit_test(a_client_in_use_is_refused_and_keeps_its_objects),
		cmocka_unit_test(a_removed_handle_is_free_again),
		cmocka_unit_test(unknown_parent_means_the_client),
		cmocka_unit_test(deep_trees_are_walked_and_freed),
		cmocka_unit_test(random_operations_agree_with_a_simple_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
