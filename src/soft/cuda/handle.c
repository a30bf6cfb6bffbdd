/* A hash table of addresses, with open addressing, at most half full. */
#include <stdint.h>
#include <stdlib.h>

#include "soft/cuda/handle.h"

static struct slot {
	const void *handle;
	enum handle_kind kind;
} * slots;
static size_t slot_count, used_count; /* slot_count is a power of two, or 0 */

static size_t home_of(const void *handle)
{
	return (size_t)((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15ull >> 20) & (slot_count - 1);
}

/* The slot of the handle, or the free slot for it. */
static struct slot *find(const void *handle)
{
	size_t at = home_of(handle);

	while (slots[at].handle && slots[at].handle != handle)
		at = (at + 1) & (slot_count - 1);
	return &slots[at];
}

static bool grow(void)
{
	struct slot *old = slots, *bigger;
	size_t old_count = slot_count, count = slot_count ? slot_count * 2 : 64;

	bigger = calloc(count, sizeof(*bigger));
	if (!bigger)
		return false;
	slots = bigger;
	slot_count = count;
	for (size_t i = 0; i < old_count; i++)
		if (old[i].handle)
			*find(old[i].handle) = old[i];
	free(old);
	return true;
}

bool handle_add(const void *handle, enum handle_kind kind)
{
	if (used_count * 2 >= slot_count && !grow())
		return false;
	*find(handle) = (struct slot){ handle, kind };
	used_count++;
	return true;
}

void handle_remove(const void *handle)
{
	struct slot *at;
	size_t next;

	if (!slot_count || !handle)
		return;
	at = find(handle);
	if (!at->handle)
		return;
	used_count--;
	*at = (struct slot){ NULL, HANDLE_NONE };
	/* Reinsert the following entries: a collision with this one may have displaced them. */
	next = ((size_t)(at - slots) + 1) & (slot_count - 1);
	for (; slots[next].handle; next = (next + 1) & (slot_count - 1)) {
		struct slot moved = slots[next];

		slots[next] = (struct slot){ NULL, HANDLE_NONE };
		*find(moved.handle) = moved;
	}
}

enum handle_kind handle_kind(const void *handle)
{
	if (!slot_count || !handle)
		return HANDLE_NONE;
	return find(handle)->kind;
}
