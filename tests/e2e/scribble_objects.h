/* Random calls that make, free, name and control objects. */
#ifndef BELFRY_TESTS_SCRIBBLE_OBJECTS_H
#define BELFRY_TESTS_SCRIBBLE_OBJECTS_H

#include "scribble_worker.h"

struct kind {
	uint32_t class_id, bytes;
	enum role role, parent;
};
/* Those up to KIND_NEEDED are what a channel needs, in this order. */
enum { KIND_ROOT = 0, KIND_MEMORY = 5, KIND_NEEDED = 10, KINDS = 21 };
extern const struct kind objects_kinds[KINDS];

void objects_alloc(struct worker *w, const struct kind *kind, uint64_t client, uint32_t parent,
		   uint32_t object);
void objects_control(struct worker *w, uint64_t client, uint32_t id, uint32_t bytes, uint32_t object);

void objects_alloc_any(struct worker *w);
void objects_free_any(struct worker *w);
void objects_control_any(struct worker *w);
void objects_dup_any(struct worker *w);
void objects_export_any(struct worker *w);
void objects_import_any(struct worker *w);

#endif
