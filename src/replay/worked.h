/* Finds the vGPUs that had work in a record. Of hundreds of vGPUs most may have had none, and need not be
 * played. */
#ifndef BELFRY_REPLAY_WORKED_H
#define BELFRY_REPLAY_WORKED_H

#include "replay/record.h"

struct worked {
	uint64_t ids[BELFRY_VGPUS_MAX];
	unsigned count;
	size_t idle_count; /* other vGPUs in the record */
};

/* Reads from the record's current position, with a buffer of RECORD_ENTRY_MAX. -E2BIG: more vGPUs than can be
 * played. */
int worked_read(FILE *record, void *buffer, struct worked *worked, struct bf_error *err);
bool worked_has(const struct worked *worked, uint64_t id);

#endif
