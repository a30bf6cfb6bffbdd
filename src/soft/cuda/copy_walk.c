/* Split copies into parts. */
#include <string.h>

#include "soft/cuda/copy.h"

/* Merge lines without a gap between them into longer lines. */
static void copy_flatten(struct op_copy *copy)
{
	if (copy->height == 1) {
		copy->height = copy->depth;
		copy->src_pitch = copy->src_slice;
		copy->dst_pitch = copy->dst_slice;
		copy->depth = 1;
	}
	if (copy->src_pitch == copy->width && copy->dst_pitch == copy->width) {
		copy->width *= copy->height;
		copy->height = 1;
		if (copy->depth > 1)
			copy_flatten(copy);
	}
}

void walk_start(struct walk *walk, const struct op_copy *copy, uint64_t bytes_max)
{
	*walk = (struct walk){ .copy = *copy, .bytes_max = bytes_max };
	if (!copy->width || !copy->height || !copy->depth)
		walk->copy.depth = 0;
	else
		copy_flatten(&walk->copy);
}

/* A copy command has signed 32-bit pitches: lines with a larger pitch are copied one by one. */
static bool pitches_fit(const struct op_copy *copy)
{
	return copy->src_pitch <= INT32_MAX && copy->dst_pitch <= INT32_MAX;
}

bool walk_next(struct walk *walk, struct lines *lines)
{
	const struct op_copy *copy = &walk->copy;
	uint64_t width = copy->width - walk->x, height = 1;

	if (walk->z == copy->depth)
		return false;
	if (width > walk->bytes_max)
		width = walk->bytes_max;
	else if (!walk->x && pitches_fit(copy))
		height = walk->bytes_max / width;
	if (height > copy->height - walk->y)
		height = copy->height - walk->y;
	*lines = (struct lines){
		.src = copy->src + walk->z * copy->src_slice + walk->y * copy->src_pitch + walk->x,
		.dst = copy->dst + walk->z * copy->dst_slice + walk->y * copy->dst_pitch + walk->x,
		.src_pitch = copy->src_pitch,
		.dst_pitch = copy->dst_pitch,
		.width = width,
		.height = height,
	};
	walk->x += width;
	if (walk->x < copy->width)
		return true;
	walk->x = 0;
	walk->y += height;
	if (walk->y == copy->height) {
		walk->y = 0;
		walk->z++;
	}
	return true;
}

void lines_copy_here(const struct lines *lines)
{
	for (uint64_t y = 0; y < lines->height; y++)
		memmove((void *)(uintptr_t)(lines->dst + y * lines->dst_pitch),
			(const void *)(uintptr_t)(lines->src + y * lines->src_pitch), lines->width);
}
