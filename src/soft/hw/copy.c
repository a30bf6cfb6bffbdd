/* Copies and fills, a piece at a time. The destination of a line is a run of bytes. Its content is the
 * source's bytes, a repeated pattern, or (rarely) components selected one by one. */
#include <string.h>

#include "soft/hw/state.h"

enum {
	FROM_CONST_A = 4,
	FROM_CONST_B = 5,
	FROM_NOTHING = 6,
	PATTERN_BYTES = 3072,  /* a multiple of every element size: 1..4 components of 1, 2, 4 bytes */
	LINE_PRICE_BYTES = 64, /* the minimum cost of a line or element */
};

/* Copies may race with the program's writes. Under the thread sanitizer they use atomics. */
static void move_bytes(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
#ifdef __SANITIZE_THREAD__
	for (uint64_t i = 0; i < bytes; i++)
		__atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
#else
	memmove(to, from, bytes);
#endif
}

static bool set_remap(struct hw_channel *ch, struct hw_copy *c)
{
	const struct hw_methods *m = &ch->methods;
	uint32_t size = (m->components >> 16 & 3) + 1;

	if (size == 3)
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, m->components, "components of 3 bytes");
	c->is_remap = true;
	c->component_bytes = size;
	c->in_count = (m->components >> 20 & 3) + 1;
	c->out_count = (m->components >> 24 & 3) + 1;
	memcpy(c->constant, m->constant, sizeof(c->constant));
	for (uint32_t i = 0; i < c->out_count; i++) {
		c->from[i] = m->components >> (4 * i) & 7;
		if (c->from[i] > FROM_NOTHING || (c->from[i] < FROM_CONST_A && c->from[i] >= c->in_count))
			return hw_channel_fail(ch, SOFT_ERROR_METHOD, m->components,
					       "components that do not exist");
	}
	c->line_bytes *= (uint64_t)size * c->out_count;
	return true;
}

bool hw_copy_begin(struct hw_channel *ch, uint32_t launch)
{
	const struct hw_methods *m = &ch->methods;
	struct hw_copy *c = &ch->copy;
	const uint32_t both = SOFT_COPY_SRC_PITCH | SOFT_COPY_DST_PITCH;

	if (!(launch & SOFT_COPY_TRANSFER))
		return true;
	if ((launch & both) != both)
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, launch, "a copy of block-linear memory");
	*c = (struct hw_copy){ .in = (uint64_t)m->in_hi << 32 | m->in_lo,
			       .out = (uint64_t)m->out_hi << 32 | m->out_lo,
			       .pitch_in = (int32_t)m->pitch_in,
			       .pitch_out = (int32_t)m->pitch_out,
			       .line_bytes = m->line_length,
			       .line_count = launch & SOFT_COPY_MULTI_LINE ? m->line_count : 1 };
	if ((launch & SOFT_COPY_REMAP) && !set_remap(ch, c))
		return false;
	if (!c->line_bytes || !c->line_count)
		return true;
	c->end_ns = ch->time_ns;
	ch->work = HW_WORK_COPY;
	ch->group->has_run = true;
	ch->group->gpu->copy_count++;
	ch->group->gpu->has_news = true;
	return false;
}

static void fault(struct hw_copied *copied, uint64_t address, bool is_write)
{
	copied->is_fault = true;
	copied->fault_address = address;
	copied->is_write = is_write;
}

/* Copies as many bytes as possible at once, from `column` of the line on; 0 after a fault. */
static uint64_t copy_run(const struct hw_copy *c, struct hw_space *space, uint64_t in, uint64_t out,
			 uint64_t max, struct hw_copied *copied)
{
	uint64_t run = max;
	uint8_t *to = hw_space_at(space, out, max, true, &run);
	const uint8_t *from;

	(void)c;
	if (!to) {
		fault(copied, out, true);
		return 0;
	}
	from = hw_space_at(space, in, run, false, &run);
	if (!from) {
		fault(copied, in, false);
		return 0;
	}
	move_bytes(to, from, run);
	copied->moved_bytes += 2 * run;
	return run;
}

static void put_component(uint8_t *to, uint32_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)(value >> (8 * i));
}

/* Repeats the pattern, so that any run of it can be copied from an offset in its first element. */
static void make_pattern(const struct hw_copy *c, uint8_t *pattern, uint32_t bytes)
{
	uint32_t size = c->component_bytes * c->out_count;

	for (uint32_t i = 0; i < c->out_count; i++)
		put_component(pattern + (size_t)i * c->component_bytes,
			      c->constant[c->from[i] - FROM_CONST_A], c->component_bytes);
	for (uint32_t at = size; at < bytes; at += size)
		memcpy(pattern + at, pattern, size);
}

static uint64_t fill_run(const struct hw_copy *c, struct hw_space *space, uint64_t out, uint64_t max,
			 const uint8_t *pattern, struct hw_copied *copied)
{
	uint32_t size = c->component_bytes * c->out_count;
	uint64_t run = max, done = 0, at = c->column % size;
	uint8_t *to = hw_space_at(space, out, max, true, &run);

	if (!to) {
		fault(copied, out, true);
		return 0;
	}
	while (done < run) {
		uint64_t n = PATTERN_BYTES - at < run - done ? PATTERN_BYTES - at : run - done;

		move_bytes(to + done, pattern + at, n);
		done += n;
		at = 0; /* the pattern consists of whole elements */
	}
	copied->moved_bytes += run;
	return run;
}

static bool is_pattern(const struct hw_copy *c)
{
	for (uint32_t i = 0; i < c->out_count; i++)
		if (c->from[i] != FROM_CONST_A && c->from[i] != FROM_CONST_B)
			return false;
	return c->is_remap;
}

/* Copies one element, component by component. */
static uint64_t remap_one(const struct hw_copy *c, struct hw_space *space, uint64_t in, uint64_t out,
			  struct hw_copied *copied)
{
	uint32_t size = c->component_bytes, out_bytes = size * c->out_count;
	uint64_t element = c->column / out_bytes;
	uint8_t from[16], value[4];

	in += element * size * c->in_count;
	if (!hw_space_read(space, in, from, (uint64_t)size * c->in_count)) {
		fault(copied, in, false);
		return 0;
	}
	for (uint32_t i = 0; i < c->out_count; i++) {
		if (c->from[i] == FROM_NOTHING)
			continue;
		if (c->from[i] >= FROM_CONST_A)
			put_component(value, c->constant[c->from[i] - FROM_CONST_A], size);
		else
			memcpy(value, from + (size_t)c->from[i] * size, size);
		if (!hw_space_write(space, out + (uint64_t)i * size, value, size)) {
			fault(copied, out, true);
			return 0;
		}
		copied->moved_bytes += size;
	}
	copied->moved_bytes += (uint64_t)size * c->in_count;
	copied->bytes += LINE_PRICE_BYTES;
	return out_bytes;
}

/* Copies a part of the current line; 0 after a fault. */
static uint64_t step(const struct hw_copy *c, struct hw_space *space, uint64_t max, const uint8_t *pattern,
		     struct hw_copied *copied)
{
	uint64_t in = c->in + (uint64_t)((int64_t)c->pitch_in * c->line);
	uint64_t out = c->out + (uint64_t)((int64_t)c->pitch_out * c->line) + c->column;
	uint64_t left = c->line_bytes - c->column;

	max = max < left ? max : left;
	if (!c->is_remap)
		return copy_run(c, space, in + c->column, out, max, copied);
	if (is_pattern(c))
		return fill_run(c, space, out, max, pattern, copied);
	return remap_one(c, space, in, out, copied);
}

void hw_copy_run(struct hw_copy *c, struct hw_space *space, uint64_t max_bytes, struct hw_copied *copied)
{
	uint8_t pattern[PATTERN_BYTES];

	if (is_pattern(c))
		make_pattern(c, pattern, sizeof(pattern));
	while (copied->bytes < max_bytes && c->line < c->line_count) {
		uint64_t done = step(c, space, max_bytes - copied->bytes, pattern, copied);

		if (copied->is_fault)
			return;
		copied->bytes += done;
		c->column += done;
		if (c->column < c->line_bytes)
			continue;
		c->column = 0;
		c->line++;
		copied->bytes += c->line_count > 1 ? LINE_PRICE_BYTES : 0;
	}
	copied->is_done = c->line >= c->line_count;
}
