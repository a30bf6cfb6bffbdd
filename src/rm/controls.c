/* Finds a control in the tables of controls_*.c. */
#include "rm/controls.h"

static const struct rm_control_table *const tables[] = {
	&rm_controls_root,
	&rm_controls_device,
	&rm_controls_subdevice,
	&rm_controls_objects,
};

#define TABLE_COUNT (sizeof(tables) / sizeof(tables[0]))

/* The index of the first entry whose id is not less than the given one. */
static size_t entry_lower_bound(const struct rm_control_table *table, uint32_t id)
{
	size_t low = 0, high = table->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->entries[middle].control.id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static const struct rm_control *table_find(const struct rm_control_table *table, uint8_t series, uint32_t id)
{
	for (size_t i = entry_lower_bound(table, id); i < table->count; i++) {
		if (table->entries[i].control.id != id)
			break;
		if (table->entries[i].series & series)
			return &table->entries[i].control;
	}
	return NULL;
}

const struct rm_control *rm_control_find(const struct rm_layout *layout, uint32_t id)
{
	for (size_t i = 0; i < TABLE_COUNT; i++) {
		const struct rm_control *control = table_find(tables[i], layout->series_bit, id);

		if (control)
			return control;
	}
	return NULL;
}

const struct rm_control *rm_control_at(unsigned index)
{
	size_t at = index;

	for (size_t i = 0; i < TABLE_COUNT; i++) {
		if (at < tables[i]->count)
			return &tables[i]->entries[at].control;
		at -= tables[i]->count;
	}
	return NULL;
}
