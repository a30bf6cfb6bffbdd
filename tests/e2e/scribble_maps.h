/* Random calls that have to do with maps and files, and those without sense. */
#ifndef BELFRY_TESTS_SCRIBBLE_MAPS_H
#define BELFRY_TESTS_SCRIBBLE_MAPS_H

#include "scribble_worker.h"

void maps_for_gpu(struct worker *w, uint64_t client); /* the client's first memory in its first space */
void maps_map(struct worker *w, uint64_t client, uint32_t memory, bool is_bell);
void maps_unmap(struct map *map);

void maps_ring_any(struct worker *w);
void maps_pages_any(struct worker *w);
void maps_register_any(struct worker *w);
void maps_event_any(struct worker *w);
void maps_escape_any(struct worker *w);
void maps_managed_any(struct worker *w);
void maps_map_managed(struct worker *w);

#endif
