/* ledger: the objects of the programs of one vGPU, as a tree for each RM client, and the device memory among
 * them, which a limit bounds. Pure: handles and bytes in, decisions out. */
#ifndef BELFRY_WARDEN_LEDGER_H
#define BELFRY_WARDEN_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "rm/rm.h"
#include "warden/pool.h"

struct ledger;

/* Device memory. Several objects may refer to one block, and exports and mappings keep it allocated too. A
 * block is counted once, until its last reference is dropped. */
struct ledger_block {
	uint64_t bytes;
	unsigned holders;
};

struct ledger_object {
	uint32_t client, handle, class_id;
	enum rm_kind kind;
	uint64_t bytes; /* of memory of any kind; with a block: what the driver counts for the client */
	struct ledger_block *block; /* NULL: not device memory */
	void *attached;		    /* data of the warden */

	struct ledger_object *parent, *children, *sibling; /* ledger_object::children */
	struct ledger_object *next_in_bucket;		   /* ledger::buckets */
};

/* Called for every object that is removed, children first. */
typedef void (*ledger_gone)(void *context, struct ledger_object *object);

/* limit 0: no limit. NULL: out of memory. */
struct ledger *ledger_new(uint64_t limit_bytes, ledger_gone gone, void *context);
void ledger_free(struct ledger *ledger);

/* From now on the ledger is one of several that share a GPU. Its limit is already promised to it in the pool.
 * Without a limit it shares the memory that is promised to no ledger. The pool outlives the ledger. Call it
 * before anything is added. */
void ledger_set_pool(struct ledger *ledger, struct pool *pool);
/* Without a limit of its own: the memory that the pool has promised to no ledger. 0: no limit. */
uint64_t ledger_limit(const struct ledger *ledger);
/* With a pool, the promise changes with the limit; ENOSPC if it cannot. */
int ledger_set_limit(struct ledger *ledger, uint64_t bytes, struct bf_error *err);
/* Blocks and managed memory: the sum that the limit bounds. */
uint64_t ledger_used(const struct ledger *ledger);
uint64_t ledger_most_used(const struct ledger *ledger);
uint64_t ledger_managed(const struct ledger *ledger);
void ledger_set_managed(struct ledger *ledger, uint64_t bytes);
/* UINT64_MAX without a limit. */
uint64_t ledger_room(const struct ledger *ledger);
/* Whether more memory is in use than allowed, because of this ledger. */
bool ledger_is_over(const struct ledger *ledger);
/* Reserve `bytes` of the room in total before the driver allocates it, so that no other ledger of the pool
 * gets it meanwhile. Later charges use up the reservation. False: there is not enough room, and nothing more
 * is reserved. */
bool ledger_claim(struct ledger *ledger, uint64_t bytes);
void ledger_unclaim(struct ledger *ledger); /* the rest of the reservation */

/* Add an object; the root object of its client is added if needed. Device memory is charged. NULL: out of
 * memory, or the handle is in use; an object is never replaced. */
struct ledger_object *ledger_add(struct ledger *ledger, uint32_t client, uint32_t parent, uint32_t handle,
				 uint32_t class_id, enum rm_kind kind, uint64_t bytes);
/* Add another handle for an object of this ledger. */
struct ledger_object *ledger_add_duplicate(struct ledger *ledger, uint32_t client, uint32_t parent,
					   uint32_t handle, const struct ledger_object *source);
/* Add a handle for memory of which the ledger has a block. */
struct ledger_object *ledger_add_name(struct ledger *ledger, uint32_t client, uint32_t parent,
				      uint32_t handle, uint32_t class_id, struct ledger_block *block);
/* Take and drop a reference to a block without an object. All must be dropped before ledger_free, or while it
 * removes the objects. */
void ledger_keep(struct ledger_block *block);
void ledger_drop(struct ledger *ledger, struct ledger_block *block);

struct ledger_object *ledger_find(const struct ledger *ledger, uint32_t client, uint32_t handle);
/* Remove an object with all its descendants. The client's own handle removes the client. */
void ledger_remove(struct ledger *ledger, uint32_t client, uint32_t handle);

/* Device memory of a client's objects as the driver counts it: once for each handle. */
uint64_t ledger_named(const struct ledger *ledger, uint32_t client);

bool ledger_has_class(const struct ledger *ledger, uint32_t client, uint32_t class_id);

/* Visit the objects of one kind of a client. */
void ledger_each(const struct ledger *ledger, uint32_t client, enum rm_kind kind,
		 void (*visit)(void *context, struct ledger_object *object), void *context);

#endif
