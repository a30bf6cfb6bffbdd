/* Makes turns of the records of context switches. The engine has one context at a time, so a start and the
 * next end make a turn. The rest handles lost records, contexts that die, and garbage in memory. */
#include "warden/turns_parse.h"

#include <stdatomic.h>
#include <string.h>

enum {
	PUT_AT = 4,
	DROPPED_AT = 16,
	TYPE_V1 = 134, /* the same layout */
	TYPE_V2 = 2,
	TAG_START = 6,		/* restored and running */
	TAG_END = 7,		/* saved */
	AHEAD_MAX_NS = 1000000, /* of a record, after now_ns: clock error, and newer records */
	NUMBER_HALF = 1 << 15,
};
/* The process ID of the kernel's channels. 0: channels of other users, without the privilege to see them. The
 * times of both are not real. */
#define PID_KERNEL 0xffffffffu

struct record {
	uint16_t type, number;
	uint8_t tag;
	uint32_t context, pid;
	uint64_t ns;
};

static struct record read_record(const struct turns_image *image, uint32_t index)
{
	uint8_t bytes[TURNS_RECORD_BYTES];
	struct record r;

	memcpy(bytes, (const uint8_t *)image->records + (size_t)index * TURNS_RECORD_BYTES, sizeof(bytes));
	memcpy(&r.type, bytes, sizeof(r.type));
	r.tag = bytes[8];
	memcpy(&r.number, bytes + 10, sizeof(r.number));
	memcpy(&r.context, bytes + 12, sizeof(r.context));
	memcpy(&r.pid, bytes + 16, sizeof(r.pid));
	memcpy(&r.ns, bytes + 24, sizeof(r.ns));
	return r;
}

static bool is_known(const struct record *r)
{
	return r->type == TYPE_V2 || r->type == TYPE_V1;
}

/* The driver advances put before it writes the record (eventbufferproducer.c), so the last record may not be
 * written yet. Its place is empty, or has the record of the round before, whose number is lower by the length
 * of the ring. */
static bool is_written(const struct turns_parser *p, const struct record *r)
{
	return is_known(r) && (!p->has_number || (uint16_t)(r->number - p->next_number) < NUMBER_HALF);
}

/* Records are numbered consecutively, including the dropped ones. A number has 16 bits; the header's count of
 * dropped records says how often it wrapped around. After a loss the current context is not known. */
static void take_number(struct turns_parser *p, uint16_t number)
{
	uint16_t missing = p->has_number ? (uint16_t)(number - p->next_number) : (uint16_t)p->dropped;

	if (missing || p->dropped) {
		p->lost += p->dropped + (uint16_t)(missing - p->dropped);
		p->is_on = false;
	}
	p->dropped = 0;
	p->next_number = (uint16_t)(number + 1);
	p->has_number = true;
}

/* True: *to is a turn. */
static bool end_turn(struct turns_parser *p, uint64_t ns, struct device_turn *to)
{
	if (!p->is_on)
		return false;
	*to = p->on;
	to->end_ns = ns;
	p->is_on = false;
	return true;
}

static bool take_start(struct turns_parser *p, const struct record *r, struct device_turn *to)
{
	bool has_ended = end_turn(p, r->ns, to); /* without a save: the context died */

	p->on = (struct device_turn){ .pid = (pid_t)r->pid, .context = r->context, .start_ns = r->ns };
	p->is_on = true;
	return has_ended;
}

/* The end may name another channel of the group than the start. */
static bool take_end(struct turns_parser *p, const struct record *r, struct device_turn *to)
{
	if (p->is_on && p->on.pid != (pid_t)r->pid) { /* neither is reliable */
		p->is_on = false;
		p->strange++;
	}
	return end_turn(p, r->ns, to);
}

static bool take(struct turns_parser *p, const struct record *r, uint64_t now_ns, struct device_turn *to)
{
	if (!is_known(r)) {
		p->strange++;
		return false;
	}
	take_number(p, r->number);
	if (r->pid == PID_KERNEL || !r->pid) {
		p->is_on = false;
		return false;
	}
	if ((r->tag != TAG_START && r->tag != TAG_END) || !r->ns || r->ns < p->last_ns ||
	    r->ns > now_ns + AHEAD_MAX_NS || r->pid > INT32_MAX) {
		p->strange++;
		return false;
	}
	p->last_ns = r->ns;
	return r->tag == TAG_START ? take_start(p, r, to) : take_end(p, r, to);
}

void turns_forget(struct turns_parser *parser)
{
	parser->is_on = false;
	parser->last_ns = 0;
}

static uint32_t read_put(const struct turns_image *image)
{
	const uint8_t *at = (const uint8_t *)image->header + PUT_AT;

	return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

static uint64_t read_dropped(const struct turns_image *image)
{
	uint64_t dropped;

	memcpy(&dropped, (const uint8_t *)image->header + DROPPED_AT, sizeof(dropped));
	return dropped;
}

static size_t take_records(struct turns_parser *p, const struct turns_image *image, uint32_t put,
			   uint64_t now_ns, struct device_turn *to, size_t room)
{
	size_t found = 0;

	while (p->get != put && found < room) {
		struct record r = read_record(image, p->get);
		uint32_t next = (p->get + 1) % image->count;

		if (next == put && !is_written(p, &r) && !p->has_waited) {
			p->has_waited = true;
			break;
		}
		p->has_waited = false;
		p->get = next;
		found += take(p, &r, now_ns, &to[found]);
	}
	return found;
}

size_t turns_parse(struct turns_parser *p, const struct turns_image *image, uint64_t now_ns,
		   struct device_turn *to, size_t room)
{
	uint32_t put = read_put(image);
	size_t found;

	p->is_empty = false;
	if (put >= image->count) { /* the header is invalid */
		p->strange++;
		return 0;
	}
	found = take_records(p, image, put, now_ns, to, room);
	if (p->get != put)
		return found;
	p->is_empty = true;
	p->dropped += read_dropped(image);
	if (p->is_on && !p->dropped && found < room) {
		to[found] = p->on;
		to[found].end_ns = now_ns > p->on.start_ns ? now_ns : p->on.start_ns;
		to[found++].is_open = true;
	}
	return found;
}
