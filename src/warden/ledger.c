#include "warden/ledger.h"

#include <stdlib.h>

enum { BUCKETS = 4096 };

struct ledger {
	struct ledger_object *buckets[BUCKETS];
	uint64_t limit_bytes, charged_bytes, managed_bytes, most_bytes;
	struct pool *pool;	/* NULL: the ledger has the whole GPU */
	uint64_t claimed_bytes; /* reserved in the shared part of the pool */
	bool is_overdrawn;	/* it has counted more than the pool had */
	ledger_gone gone;
	void *context;
};

static unsigned bucket_of(uint32_t client, uint32_t handle)
{
	uint32_t mixed = (client * 2654435761u) ^ (handle * 2246822519u);

	return (mixed ^ mixed >> 16) % BUCKETS;
}

struct ledger *ledger_new(uint64_t limit_bytes, ledger_gone gone, void *context)
{
	struct ledger *ledger = calloc(1, sizeof(*ledger));

	if (!ledger)
		return NULL;
	ledger->limit_bytes = limit_bytes;
	ledger->gone = gone;
	ledger->context = context;
	return ledger;
}

/* Whether the ledger uses the shared part of the pool, which is promised to no ledger. */
static bool is_sharing(const struct ledger *ledger)
{
	return ledger->pool && !ledger->limit_bytes;
}

static void discharge(struct ledger *ledger, uint64_t bytes)
{
	if (is_sharing(ledger))
		pool_give(ledger->pool, bytes);
}

void ledger_free(struct ledger *ledger)
{
	if (!ledger)
		return;
	for (unsigned i = 0; i < BUCKETS; i++)
		while (ledger->buckets[i])
			ledger_remove(ledger, ledger->buckets[i]->client, ledger->buckets[i]->client);
	discharge(ledger, ledger_used(ledger) + ledger->claimed_bytes);
	free(ledger);
}

void ledger_set_pool(struct ledger *ledger, struct pool *pool)
{
	ledger->pool = pool;
}

uint64_t ledger_limit(const struct ledger *ledger)
{
	return is_sharing(ledger) ? pool_unpromised(ledger->pool) : ledger->limit_bytes;
}

int ledger_set_limit(struct ledger *ledger, uint64_t bytes, struct bf_error *err)
{
	struct pool_change change = { .promised_before = ledger->limit_bytes,
				      .promised_after = bytes,
				      .shared_before = ledger->limit_bytes ? 0 : ledger_used(ledger),
				      .shared_after = bytes ? 0 : ledger_used(ledger) };
	int rc = ledger->pool ? pool_promise(ledger->pool, &change, err) : 0;

	if (!rc)
		ledger->limit_bytes = bytes;
	return rc;
}

uint64_t ledger_used(const struct ledger *ledger)
{
	return ledger->charged_bytes + ledger->managed_bytes;
}

uint64_t ledger_most_used(const struct ledger *ledger)
{
	return ledger->most_bytes;
}

uint64_t ledger_managed(const struct ledger *ledger)
{
	return ledger->managed_bytes;
}

/* More memory is in use. The part that was reserved for it was taken from the pool already. */
static void charge(struct ledger *ledger, uint64_t bytes)
{
	uint64_t of_claim = bytes < ledger->claimed_bytes ? bytes : ledger->claimed_bytes;

	ledger->claimed_bytes -= of_claim;
	if (is_sharing(ledger) && !pool_note(ledger->pool, bytes - of_claim))
		ledger->is_overdrawn = true;
	if (ledger_used(ledger) > ledger->most_bytes)
		ledger->most_bytes = ledger_used(ledger);
}

void ledger_set_managed(struct ledger *ledger, uint64_t bytes)
{
	uint64_t before = ledger->managed_bytes;

	ledger->managed_bytes = bytes;
	if (bytes > before)
		charge(ledger, bytes - before);
	else
		discharge(ledger, before - bytes);
}

bool ledger_is_over(const struct ledger *ledger)
{
	struct pool_use use;

	if (ledger->limit_bytes)
		return ledger_used(ledger) > ledger->limit_bytes;
	if (!ledger->pool || !ledger->is_overdrawn)
		return false;
	use = pool_use(ledger->pool);
	return use.promised_bytes + use.shared_bytes > use.total_bytes;
}

bool ledger_claim(struct ledger *ledger, uint64_t bytes)
{
	if (!is_sharing(ledger))
		return bytes <= ledger_room(ledger);
	if (bytes > ledger->claimed_bytes) {
		if (!pool_take(ledger->pool, bytes - ledger->claimed_bytes))
			return false;
		ledger->claimed_bytes = bytes;
	}
	return true;
}

void ledger_unclaim(struct ledger *ledger)
{
	discharge(ledger, ledger->claimed_bytes);
	ledger->claimed_bytes = 0;
}

uint64_t ledger_room(const struct ledger *ledger)
{
	uint64_t used = ledger_used(ledger);

	if (is_sharing(ledger))
		return pool_room(ledger->pool);
	if (!ledger->limit_bytes)
		return UINT64_MAX;
	return used < ledger->limit_bytes ? ledger->limit_bytes - used : 0;
}

struct ledger_object *ledger_find(const struct ledger *ledger, uint32_t client, uint32_t handle)
{
	for (struct ledger_object *o = ledger->buckets[bucket_of(client, handle)]; o; o = o->next_in_bucket)
		if (o->client == client && o->handle == handle)
			return o;
	return NULL;
}

static struct ledger_object *object_new(struct ledger *ledger, uint32_t client, uint32_t handle)
{
	struct ledger_object *object = calloc(1, sizeof(*object));
	struct ledger_object **bucket = &ledger->buckets[bucket_of(client, handle)];

	if (!object)
		return NULL;
	object->client = client;
	object->handle = handle;
	object->next_in_bucket = *bucket;
	*bucket = object;
	return object;
}

/* The parent, or the client if the parent is of a kind that the ledger does not record. */
static struct ledger_object *parent_of(struct ledger *ledger, uint32_t client, uint32_t parent)
{
	struct ledger_object *found = ledger_find(ledger, client, parent);

	if (!found)
		found = ledger_find(ledger, client, client);
	if (!found) {
		found = object_new(ledger, client, client);
		if (found)
			found->kind = RM_KIND_ROOT;
	}
	return found;
}

static struct ledger_object *object_add(struct ledger *ledger, uint32_t client, uint32_t parent,
					uint32_t handle)
{
	struct ledger_object *under, *object;

	if (handle == client)
		return ledger_find(ledger, client, client) ? NULL : parent_of(ledger, client, client);
	if (ledger_find(ledger, client, handle))
		return NULL;
	under = parent_of(ledger, client, parent);
	object = under ? object_new(ledger, client, handle) : NULL;
	if (!object)
		return NULL;
	object->parent = under;
	object->sibling = under->children;
	under->children = object;
	return object;
}

static void object_unlink(struct ledger *ledger, struct ledger_object *object)
{
	struct ledger_object **at = &ledger->buckets[bucket_of(object->client, object->handle)];

	while (*at != object)
		at = &(*at)->next_in_bucket;
	*at = object->next_in_bucket;
	if (!object->parent)
		return;
	for (at = &object->parent->children; *at != object; at = &(*at)->sibling)
		;
	*at = object->sibling;
}

void ledger_keep(struct ledger_block *block)
{
	block->holders++;
}

void ledger_drop(struct ledger *ledger, struct ledger_block *block)
{
	if (--block->holders)
		return;
	ledger->charged_bytes -= block->bytes;
	discharge(ledger, block->bytes);
	free(block);
}

/* Without recursion: a program determines the depth of its trees. */
static void object_remove(struct ledger *ledger, struct ledger_object *top)
{
	struct ledger_object *object = top;

	for (;;) {
		struct ledger_object *up = object->parent;
		bool is_last = object == top;

		if (object->children) {
			object = object->children;
			continue;
		}
		if (ledger->gone)
			ledger->gone(ledger->context, object);
		object_unlink(ledger, object);
		if (object->block)
			ledger_drop(ledger, object->block);
		free(object);
		if (is_last)
			return;
		object = up;
	}
}

void ledger_remove(struct ledger *ledger, uint32_t client, uint32_t handle)
{
	struct ledger_object *object = ledger_find(ledger, client, handle);

	if (object)
		object_remove(ledger, object);
}

static struct ledger_object *memory_add(struct ledger *ledger, uint32_t client, uint32_t parent,
					uint32_t handle, uint32_t class_id, uint64_t bytes)
{
	struct ledger_block *block = calloc(1, sizeof(*block));
	struct ledger_object *object = block ? object_add(ledger, client, parent, handle) : NULL;

	if (!object) {
		free(block);
		return NULL;
	}
	*block = (struct ledger_block){ .bytes = bytes, .holders = 1 };
	object->block = block;
	object->kind = RM_KIND_VIDMEM;
	object->class_id = class_id;
	object->bytes = bytes;
	ledger->charged_bytes += bytes;
	charge(ledger, bytes);
	return object;
}

struct ledger_object *ledger_add(struct ledger *ledger, uint32_t client, uint32_t parent, uint32_t handle,
				 uint32_t class_id, enum rm_kind kind, uint64_t bytes)
{
	struct ledger_object *object;

	if (kind == RM_KIND_VIDMEM)
		return memory_add(ledger, client, parent, handle, class_id, bytes);
	object = object_add(ledger, client, parent, handle);
	if (!object)
		return NULL;
	object->class_id = class_id;
	object->kind = kind;
	object->bytes = bytes;
	return object;
}

struct ledger_object *ledger_add_duplicate(struct ledger *ledger, uint32_t client, uint32_t parent,
					   uint32_t handle, const struct ledger_object *source)
{
	struct ledger_object *object = object_add(ledger, client, parent, handle);

	if (!object)
		return NULL;
	if (source->block)
		ledger_keep(source->block);
	object->block = source->block;
	object->kind = source->kind;
	object->class_id = source->class_id;
	object->bytes = source->bytes;
	return object;
}

struct ledger_object *ledger_add_name(struct ledger *ledger, uint32_t client, uint32_t parent,
				      uint32_t handle, uint32_t class_id, struct ledger_block *block)
{
	struct ledger_object *object = object_add(ledger, client, parent, handle);

	if (!object)
		return NULL;
	ledger_keep(block);
	object->block = block;
	object->kind = RM_KIND_VIDMEM;
	object->class_id = class_id;
	object->bytes = block->bytes;
	return object;
}

/* The next object of a tree in depth-first order; NULL at the end. */
static struct ledger_object *tree_next(struct ledger_object *at, const struct ledger_object *top)
{
	if (at->children)
		return at->children;
	while (at != top && !at->sibling)
		at = at->parent;
	return at == top ? NULL : at->sibling;
}

void ledger_each(const struct ledger *ledger, uint32_t client, enum rm_kind kind,
		 void (*visit)(void *context, struct ledger_object *object), void *context)
{
	struct ledger_object *top = ledger_find(ledger, client, client);

	for (struct ledger_object *o = top; o; o = tree_next(o, top))
		if (o->kind == kind)
			visit(context, o);
}

static void add_bytes(void *context, struct ledger_object *object)
{
	*(uint64_t *)context += object->bytes;
}

uint64_t ledger_named(const struct ledger *ledger, uint32_t client)
{
	uint64_t bytes = 0;

	ledger_each(ledger, client, RM_KIND_VIDMEM, add_bytes, &bytes);
	return bytes;
}

bool ledger_has_class(const struct ledger *ledger, uint32_t client, uint32_t class_id)
{
	struct ledger_object *top = ledger_find(ledger, client, client);

	for (struct ledger_object *o = top; o; o = tree_next(o, top))
		if (o->class_id == class_id)
			return true;
	return false;
}
