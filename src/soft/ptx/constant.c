/* Immediate operands: each value is stored once, repeated for every lane, so that handlers read it like a
 * register. */
#include "soft/ptx/load.h"

#include <stdlib.h>
#include <string.h>

#define CONSTANTS_MAX_BYTES (1u << 29)

uint32_t ptx_constant_new(struct ptx_loader *loader, uint64_t value, uint32_t width)
{
	struct ptx_module *module = loader->module;
	uint32_t bytes = width ? width * PTX_LANES : 4;
	uint32_t at = (module->constant_bytes + 63) & ~63u;

	if (at + bytes > loader->constant_room) {
		uint32_t room = loader->constant_room ? loader->constant_room * 2 : 16384;
		uint8_t *grown = room > CONSTANTS_MAX_BYTES ? NULL : realloc(module->constants, room);

		if (!grown)
			return PTX_NO_OPERAND;
		memset(grown + loader->constant_room, 0, room - loader->constant_room);
		module->constants = grown;
		loader->constant_room = room;
	}
	module->constant_bytes = at + bytes;
	if (!width) /* a predicate: one bit per lane */
		memset(module->constants + at, value ? 0xff : 0, 4);
	for (uint32_t i = 0; width && i < PTX_LANES; i++)
		memcpy(module->constants + at + (size_t)i * width, &value, width);
	return at | PTX_CONST_BIT;
}

static bool holds(const struct ptx_module *module, uint32_t place, uint64_t value, uint32_t width)
{
	uint32_t at = place & ~PTX_CONST_BIT;

	return !memcmp(module->constants + at, &value, width);
}

static bool index_grow(struct ptx_loader *loader)
{
	uint32_t slots = loader->constant_slots ? loader->constant_slots * 2 : 256;
	uint32_t *grown = calloc(slots, 3 * sizeof(*grown));

	if (!grown)
		return false;
	for (uint32_t i = 0; i < loader->constant_slots; i++) {
		const uint32_t *old = loader->constant_index + (size_t)3 * i;
		uint32_t at = old[1] & (slots - 1);

		if (!old[0])
			continue;
		while (grown[(size_t)3 * at])
			at = (at + 1) & (slots - 1);
		memcpy(grown + (size_t)3 * at, old, 3 * sizeof(*grown));
	}
	free(loader->constant_index);
	loader->constant_index = grown;
	loader->constant_slots = slots;
	return true;
}

uint32_t ptx_constant(struct ptx_loader *loader, uint64_t value, uint32_t width)
{
	uint64_t kept = width && width < 8 ? value & ((1ull << (8 * width)) - 1) : value;
	uint64_t mixed = (kept + width) * 0x9e3779b97f4a7c15ull;
	uint32_t hash = (uint32_t)(mixed >> 32);
	uint32_t at, place;

	if (!width)
		return ptx_constant_new(loader, value, width);
	if (loader->constant_used * 2 >= loader->constant_slots && !index_grow(loader))
		return PTX_NO_OPERAND;
	/* three words per slot: place + 1, hash, width */
	for (at = hash & (loader->constant_slots - 1); loader->constant_index[(size_t)3 * at];
	     at = (at + 1) & (loader->constant_slots - 1)) {
		const uint32_t *slot = loader->constant_index + (size_t)3 * at;

		if (slot[1] == hash && slot[2] == width && holds(loader->module, slot[0] - 1, kept, width))
			return (slot[0] - 1) | PTX_CONST_BIT;
	}
	place = ptx_constant_new(loader, kept, width);
	if (place == PTX_NO_OPERAND)
		return place;
	loader->constant_index[(size_t)3 * at] = (place & ~PTX_CONST_BIT) + 1;
	loader->constant_index[(size_t)3 * at + 1] = hash;
	loader->constant_index[(size_t)3 * at + 2] = width;
	loader->constant_used++;
	return place;
}
