/* What the programs of one vGPU have made: a tree of objects per RM client, and the device memory among them
 * against a limit. Pure: handles and bytes in, decisions out. */
#ifndef BELFRY_WARDEN_LEDGER_H
#define BELFRY_WARDEN_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "rm/rm.h"
#include "warden/pool.h"

struct ledger;

/* Device memory, whatever keeps it: several objects may name one block, and exports and mappings keep it too. It is
 * counted once, until the last of them is gone. */
struct ledger_block {
	uint64_t bytes;
	unsigned holders;
};

struct ledger_object {
	uint32_t client, handle, class_id;
	enum rm_kind kind;
	uint64_t bytes; /* memory of any kind; what the driver counts for its client if it has a block */
	struct ledger_block *block; /* NULL: not device memory */
	void *attached;		    /* whatever the warden keeps with it */

	struct ledger_object *parent, *children, *sibling; /* ledger_object::children */
	struct ledger_object *next_in_bucket;		   /* ledger::buckets */
};

/* Called for every object that goes, children first. */
typedef void (*ledger_gone)(void *context, struct ledger_object *object);

/* limit 0: no limit. NULL: out of memory. */
struct ledger *ledger_new(uint64_t limit_bytes, ledger_gone gone, void *context);
void ledger_free(struct ledger *ledger);

/* From now on it is one of several that share a card: its limit is promised to it there already, and without a limit it
 * has what is promised to no ledger. The pool outlives it. Before anything is added. */
void ledger_set_pool(struct ledger *ledger, struct pool *pool);
/* Without a limit of its own, what the pool has promised to no ledger; 0: no limit. */
uint64_t ledger_limit(const struct ledger *ledger);
/* With a pool, what is promised there changes with it; ENOSPC if it cannot. */
int ledger_set_limit(struct ledger *ledger, uint64_t bytes, struct bf_error *err);
/* Blocks and managed memory together: what the limit bounds. */
uint64_t ledger_used(const struct ledger *ledger);
uint64_t ledger_most_used(const struct ledger *ledger);
uint64_t ledger_managed(const struct ledger *ledger);
void ledger_set_managed(struct ledger *ledger, uint64_t bytes);
/* UINT64_MAX without a limit. */
uint64_t ledger_room(const struct ledger *ledger);
/* Whether more is in use than may be, and it is this ledger's doing. */
bool ledger_is_over(const struct ledger *ledger);
/* Take so much in all of the room, before the driver is asked for it: other ledgers of the pool cannot have it meanwhile.
 * What is charged next comes out of it. False: there is not so much, and nothing more is taken. */
bool ledger_claim(struct ledger *ledger, uint64_t bytes);
void ledger_unclaim(struct ledger *ledger); /* what is left of it */

/* Objects come into being with the client as their root. Device memory is charged. NULL: out of memory, or the handle is
 * in use, which is never replaced. */
struct ledger_object *ledger_add(struct ledger *ledger, uint32_t client, uint32_t parent, uint32_t handle,
				 uint32_t class_id, enum rm_kind kind, uint64_t bytes);
/* Another name for an object that is known here. */
struct ledger_object *ledger_add_duplicate(struct ledger *ledger, uint32_t client, uint32_t parent,
					   uint32_t handle, const struct ledger_object *source);
/* A name for memory that is kept here. */
struct ledger_object *ledger_add_name(struct ledger *ledger, uint32_t client, uint32_t parent,
				      uint32_t handle, uint32_t class_id, struct ledger_block *block);
/* Keep a block without an object, and let go of it: at the latest while ledger_free removes the objects. */
void ledger_keep(struct ledger_block *block);
void ledger_drop(struct ledger *ledger, struct ledger_block *block);

struct ledger_object *ledger_find(const struct ledger *ledger, uint32_t client, uint32_t handle);
/* With everything below it. The client's own handle removes the client. */
void ledger_remove(struct ledger *ledger, uint32_t client, uint32_t handle);

/* Device memory named by a client's objects, as the driver counts it: once for each name. */
uint64_t ledger_named(const struct ledger *ledger, uint32_t client);

bool ledger_has_class(const struct ledger *ledger, uint32_t client, uint32_t class_id);

/* Walk a client's objects of one kind. */
void ledger_each(const struct ledger *ledger, uint32_t client, enum rm_kind kind,
		 void (*visit)(void *context, struct ledger_object *object), void *context);

#endif
