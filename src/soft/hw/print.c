/* Formats what kernels print, into the ring of the program's address space. Format, arguments and ring are
 * untrusted: each is read once, within bounds, and the program's format is never passed to the C library. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "soft/hw/state.h"

enum {
	TEXT_MAX = 8192, /* of one call */
	STRING_MAX = 1024,
	NUMBER_MAX = 256, /* a width or a precision */
	ARGS_MAX = 32,	  /* as CUDA documents it */
};

int hw_space_set_print(struct hw_space *space, struct hw_memory *memory, uint64_t offset, uint64_t bytes)
{
	struct hw_memory *before;
	uint32_t text_bytes = 0;
	uint64_t head = 0;

	if (memory) {
		struct soft_print *ring;

		if (offset % 8 || offset > memory->bytes || bytes > memory->bytes - offset ||
		    bytes < sizeof(*ring))
			return -EINVAL;
		ring = (struct soft_print *)(void *)(memory->at + offset);
		text_bytes = __atomic_load_n(&ring->bytes, __ATOMIC_RELAXED);
		head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
		if (!text_bytes || (text_bytes & (text_bytes - 1)) || text_bytes > bytes - sizeof(*ring))
			return -EINVAL;
		hw_memory_get(memory);
	}
	pthread_mutex_lock(&space->print_lock);
	before = space->print_memory;
	space->print_memory = memory;
	space->print_offset = offset;
	space->print_bytes = text_bytes;
	space->print_head = head;
	space->print_lost = 0;
	pthread_mutex_unlock(&space->print_lock);
	hw_memory_put(before);
	return 0;
}

/* The program reads head (acquire), then the text before it, then advances tail. This side reads tail
 * (acquire) before it overwrites text that was read, and stores head (release) after the text. */
static void put_text(struct hw_space *space, const char *text, uint32_t length)
{
	struct soft_print *ring;
	uint64_t used;

	pthread_mutex_lock(&space->print_lock);
	if (space->print_memory) {
		ring = (struct soft_print *)(void *)(space->print_memory->at + space->print_offset);
		used = space->print_head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
		if (used > space->print_bytes || length > space->print_bytes - used) {
			space->print_lost += length;
			__atomic_store_n(&ring->lost, space->print_lost, __ATOMIC_RELEASE);
		} else {
			for (uint32_t i = 0; i < length; i++)
				__atomic_store_n(
					&ring->text[(space->print_head + i) & (space->print_bytes - 1)],
					text[i], __ATOMIC_RELAXED);
			space->print_head += length;
			__atomic_store_n(&ring->head, space->print_head, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&space->print_lock);
}

struct writer {
	struct hw_space *space;
	const struct ptx_print *print;
	uint64_t arg_at;
	int arg_count;
	char text[TEXT_MAX];
	uint32_t length;
};

/* A checked conversion of a format. */
struct conversion {
	char flags[6];
	int width, precision; /* -1: none */
	bool is_long;
	char kind;
};

static void put_char(struct writer *w, char c)
{
	if (w->length < TEXT_MAX)
		w->text[w->length++] = c;
}

/* The next argument of `bytes` bytes, aligned to its size; 0 if there is none. */
static uint64_t argument(struct writer *w, uint32_t bytes)
{
	uint64_t value = 0, at = bf_round_up(w->arg_at, bytes);

	if (w->arg_count < ARGS_MAX)
		w->arg_count++;
	if (!w->print->args || at > w->print->args_bytes || w->print->args_bytes - at < bytes)
		return 0;
	memcpy(&value, w->print->args + at, bytes);
	w->arg_at = at + bytes;
	return value;
}

/* Reads a string of the program, up to its end, STRING_MAX, or the end of readable memory. */
static void read_string(struct hw_space *space, uint64_t address, char text[STRING_MAX])
{
	unsigned n = 0;
	uint64_t run;

	if (!address) {
		strcpy(text, "(null)");
		return;
	}
	for (; n < STRING_MAX - 1; n++) {
		const uint8_t *at = hw_space_at(space, address + n, 1, false, &run);
		char c = at ? (char)__atomic_load_n(at, __ATOMIC_RELAXED) : '\0';

		if (!c)
			break;
		text[n] = c;
	}
	text[n] = '\0';
}

static int number(struct writer *w, const char **f)
{
	int value = 0;

	if (**f == '*') {
		(*f)++;
		value = (int32_t)argument(w, 4);
		return value > NUMBER_MAX ? NUMBER_MAX : value < -NUMBER_MAX ? -NUMBER_MAX : value;
	}
	for (; **f >= '0' && **f <= '9'; (*f)++)
		value = value >= NUMBER_MAX ? NUMBER_MAX : value * 10 + (**f - '0');
	return value > NUMBER_MAX ? NUMBER_MAX : value;
}

/* Parses a conversion; *f is after the %, and is moved past the conversion. */
static struct conversion parse(struct writer *w, const char **f)
{
	struct conversion c = { .width = 0, .precision = -1 };
	unsigned flags = 0;

	for (; **f && strchr("-+ #0", **f); (*f)++)
		if (flags < sizeof(c.flags) - 1 && !strchr(c.flags, **f))
			c.flags[flags++] = **f;
	c.width = number(w, f);
	if (**f == '.') {
		(*f)++;
		c.precision = number(w, f);
	}
	for (; **f && strchr("hlLqjzt", **f); (*f)++)
		c.is_long |= **f != 'h' && **f != 'L';
	c.kind = **f;
	if (c.kind)
		(*f)++;
	return c;
}

static void put_text_of(struct writer *w, const char *text)
{
	while (*text)
		put_char(w, *text++);
}

/* The formats are built here from a checked conversion, which the compiler cannot see. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void put_integer(struct writer *w, const struct conversion *c)
{
	char format[24], text[2 * NUMBER_MAX + 64];
	uint64_t raw = argument(w, c->is_long ? 8 : 4);
	bool is_signed = c->kind == 'd' || c->kind == 'i';
	long long value = !c->is_long && is_signed ? (int32_t)raw : (long long)raw;

	if (c->kind == 'c') {
		snprintf(format, sizeof(format), "%%%s*c", strchr(c->flags, '-') ? "-" : "");
		snprintf(text, sizeof(text), format, c->width, (int)(uint8_t)raw);
	} else {
		snprintf(format, sizeof(format), "%%%s*.*ll%c", c->flags, c->kind);
		snprintf(text, sizeof(text), format, c->width, c->precision, value);
	}
	put_text_of(w, text);
}

static void put_double(struct writer *w, const struct conversion *c)
{
	char format[24], text[2 * NUMBER_MAX + 512]; /* %f of the largest double has 309 digits */
	uint64_t raw = argument(w, 8);
	double value;

	memcpy(&value, &raw, sizeof(value));
	snprintf(format, sizeof(format), "%%%s*.*%c", c->flags, c->kind);
	snprintf(text, sizeof(text), format, c->width, c->precision, value);
	put_text_of(w, text);
}

static void put_string(struct writer *w, const struct conversion *c)
{
	char format[24], text[STRING_MAX + NUMBER_MAX], string[STRING_MAX];

	read_string(w->space, argument(w, 8), string);
	snprintf(format, sizeof(format), "%%%s*.*s", strchr(c->flags, '-') ? "-" : "");
	snprintf(text, sizeof(text), format, c->width, c->precision, string);
	put_text_of(w, text);
}
#pragma GCC diagnostic pop

static void put_pointer(struct writer *w, const struct conversion *c)
{
	char text[NUMBER_MAX + 32], digits[24];
	bool is_left = strchr(c->flags, '-');

	snprintf(digits, sizeof(digits), "0x%llx", (unsigned long long)argument(w, 8));
	snprintf(text, sizeof(text), "%*s", is_left ? -c->width : c->width, digits);
	put_text_of(w, text);
}

static void put_conversion(struct writer *w, const char **f)
{
	const char *start = *f;
	struct conversion c = parse(w, f);

	if (c.kind && strchr("diuxXoc", c.kind)) {
		put_integer(w, &c);
	} else if (c.kind && strchr("fFeEgGaA", c.kind)) {
		put_double(w, &c);
	} else if (c.kind == 's') {
		put_string(w, &c);
	} else if (c.kind == 'p') {
		put_pointer(w, &c);
	} else if (c.kind == '%') {
		put_char(w, '%');
	} else { /* not a conversion: print it unchanged */
		for (put_char(w, '%'); start < *f; start++)
			put_char(w, *start);
	}
}

int hw_print(struct hw_space *space, const struct ptx_print *print)
{
	const char *f = print->format; /* a copy, which the program cannot change */
	struct writer w;	       /* not zeroed, which would cost more than the rest */

	w.space = space;
	w.print = print;
	w.arg_at = 0;
	w.arg_count = 0;
	w.length = 0;
	while (*f) {
		if (*f == '%') {
			f++;
			put_conversion(&w, &f);
		} else {
			put_char(&w, *f++);
		}
	}
	put_text(space, w.text, w.length);
	return w.arg_count;
}
