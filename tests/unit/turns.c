/* turns_parse: what the driver writes of context switches, and everything that can be wrong with it. */
#include "warden/turns_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 8, START = 6, END = 7, LOTS = 64 };
#define NOW 1000000ull
#define KERNEL 0xffffffffu

/* What the driver has. */
static struct {
	uint32_t get, put;
	uint64_t count, dropped, vardata_dropped;
} header;
static uint8_t records[COUNT * TURNS_RECORD_BYTES];
static uint16_t number;
static struct turns_parser parser;
static struct device_turn turns[LOTS];

static int begin(void **state)
{
	(void)state;
	memset(&header, 0, sizeof(header));
	memset(records, 0, sizeof(records));
	memset(&parser, 0, sizeof(parser));
	memset(turns, 0xee, sizeof(turns));
	number = 65530; /* it comes around soon */
	return 0;
}

static void write_record(uint16_t type, uint8_t tag, uint32_t pid, uint32_t context, uint64_t ns)
{
	uint8_t *at = records + (size_t)header.put * TURNS_RECORD_BYTES;

	memcpy(at, &type, sizeof(type));
	at[8] = tag;
	memcpy(at + 10, &number, sizeof(number));
	memcpy(at + 12, &context, sizeof(context));
	memcpy(at + 16, &pid, sizeof(pid));
	memcpy(at + 24, &ns, sizeof(ns));
}

/* As the driver does it with KEEP_OLDEST (eventbufferproducer.c). */
static void add(uint8_t tag, uint32_t pid, uint32_t context, uint64_t ns)
{
	if ((header.put + 1) % COUNT == header.get) {
		header.dropped++;
	} else {
		write_record(2, tag, pid, context, ns);
		header.put = (header.put + 1) % COUNT;
	}
	number++;
}

static size_t parse_some(size_t room)
{
	const struct turns_image image = { &header, records, COUNT };
	size_t found = turns_parse(&parser, &image, NOW, turns, room);

	assert_in_range(found, 0, room);
	if (parser.is_empty) { /* UPDATE_GET */
		header.get = parser.get;
		header.dropped = 0;
	}
	return found;
}

static size_t parse(void)
{
	return parse_some(LOTS);
}

static void assert_turn(size_t i, pid_t pid, uint32_t context, uint64_t start_ns, uint64_t end_ns)
{
	assert_int_equal(turns[i].pid, pid);
	assert_int_equal(turns[i].context, context);
	assert_int_equal(turns[i].start_ns, start_ns);
	assert_int_equal(turns[i].end_ns, end_ns);
	assert_false(turns[i].is_open);
}

static void start_and_end_make_a_turn(void **state)
{
	(void)state;
	assert_int_equal(parse(), 0);
	add(START, 10, 1, 100);
	add(END, 10, 1, 300);
	add(START, 20, 2, 380);
	add(END, 20, 2, 500);
	assert_int_equal(parse(), 2);
	assert_turn(0, 10, 1, 100, 300);
	assert_turn(1, 20, 2, 380, 500);
	assert_int_equal(parse(), 0); /* told once */
	assert_int_equal(parser.lost, 0);
	assert_int_equal(parser.strange, 0);
}

static void turn_that_is_on_is_told_as_open_until_it_ends(void **state)
{
	(void)state;
	add(START, 10, 1, 100);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(parse(), 1);
		assert_true(turns[0].is_open);
		assert_int_equal(turns[0].start_ns, 100);
		assert_int_equal(turns[0].end_ns, NOW);
	}
	add(END, 10, 1, 300);
	assert_int_equal(parse(), 1);
	assert_turn(0, 10, 1, 100, 300);
}

static void ring_and_numbers_come_around(void **state)
{
	(void)state;
	for (uint64_t i = 1; i < 70000; i++) {
		add(START, 10, 1, i * 10);
		add(END, 10, 1, i * 10 + 5);
		if (i % 3)
			continue;
		assert_int_equal(parse(), 3);
		assert_turn(2, 10, 1, i * 10, i * 10 + 5);
	}
	assert_int_equal(parser.lost, 0);
	assert_int_equal(parser.strange, 0);
}

static void lost_records_are_counted_and_their_turns_left_out(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 10; i++) { /* room for seven records: three turns, and a start */
		add(START, 10, 1, 100 + i * 10);
		add(END, 10, 1, 105 + i * 10);
	}
	assert_int_equal(header.dropped, 13);
	assert_int_equal(parse(), 3); /* who is on is not known */
	assert_turn(2, 10, 1, 120, 125);
	assert_int_equal(parse(), 0);
	add(END, 20, 2, 400); /* its start was lost, too */
	add(START, 10, 1, 450);
	add(END, 10, 1, 500);
	assert_int_equal(parse(), 1);
	assert_turn(0, 10, 1, 450, 500);
	assert_int_equal(parser.lost, 13);
}

static void more_are_lost_than_a_number_can_say(void **state)
{
	(void)state;
	add(START, 10, 1, 100);
	add(END, 10, 1, 105);
	assert_int_equal(parse(), 1);
	for (uint64_t i = 0; i < 70007; i++)
		add(START, 10, 1, 200 + i);
	assert_int_equal(parse(), 6);
	add(START, 10, 1, 90000);
	parse();
	assert_int_equal(parser.lost, 70000);
	/* And from the very first on. */
	begin(state);
	for (uint64_t i = 0; i < 20; i++)
		add(END, 10, 1, 200 + i);
	assert_int_equal(parse(), 0);
	add(START, 10, 1, 300);
	parse();
	assert_int_equal(parser.lost, 13);
}

/* The driver lost some itself, before its buffer: only the numbers say so. */
static void gap_in_the_numbers_is_a_loss(void **state)
{
	(void)state;
	add(START, 10, 1, 100);
	number = (uint16_t)(number + 5);
	add(END, 10, 1, 300); /* perhaps of another turn */
	add(START, 10, 1, 400);
	assert_int_equal(parse(), 1);
	assert_true(turns[0].is_open);
	assert_int_equal(turns[0].start_ns, 400);
	assert_int_equal(parser.lost, 5);
}

static void end_may_name_another_channel_of_its_group(void **state)
{
	(void)state;
	add(START, 10, 1, 100);
	add(END, 10, 4, 300);
	assert_int_equal(parse(), 1);
	assert_turn(0, 10, 1, 100, 300);
	assert_int_equal(parser.strange, 0);
}

static void end_without_a_start_is_no_turn(void **state)
{
	(void)state;
	add(END, 10, 1, 300); /* on since before we looked */
	add(START, 20, 2, 400);
	add(END, 10, 1, 500); /* and this cannot be */
	add(END, 20, 2, 600);
	assert_int_equal(parse(), 0);
	assert_int_equal(parser.strange, 1);
}

static void context_that_died_had_its_turn_until_the_next(void **state)
{
	(void)state;
	add(START, 10, 1, 100);
	add(START, 20, 2, 400);
	add(END, 20, 2, 500);
	assert_int_equal(parse(), 2);
	assert_turn(0, 10, 1, 100, 400);
	assert_turn(1, 20, 2, 400, 500);
}

static void those_without_a_name_are_nobodys_turn(void **state)
{
	(void)state;
	add(START, KERNEL, KERNEL, 77); /* its time is made up */
	add(END, KERNEL, KERNEL, NOW * 5);
	add(START, 10, 1, 100);
	add(END, 10, 1, 300);
	add(START, 0, 0, 5);
	add(END, 0, 0, 5);
	assert_int_equal(parse(), 1);
	assert_turn(0, 10, 1, 100, 300);
	assert_int_equal(parser.strange, 0);
}

static void garbage_is_left_out(void **state)
{
	(void)state;
	add(START, 10, 1, 100);
	add(3, 10, 1, 120); /* no such tag at this level of detail */
	add(255, 10, 1, 120);
	add(END, 10, 1, 50);	    /* before its start */
	add(END, 10, 1, NOW * 100); /* not yet */
	add(START, 0x80000000u, 1, 130);
	assert_int_equal(parse(), 1);
	assert_true(turns[0].is_open);
	assert_int_equal(parser.strange, 5);
	write_record(99, END, 10, 1, 150); /* of another kind altogether */
	header.put = (header.put + 1) % COUNT;
	add(END, 10, 1, 200);
	assert_int_equal(parse(), 1);
	assert_turn(0, 10, 1, 100, 200);
	assert_int_equal(parser.strange, 6);
	header.put = COUNT;
	assert_int_equal(parse(), 0);
	header.put = UINT32_MAX;
	assert_int_equal(parse(), 0);
}

/* put moves before the record is written. */
static void record_is_waited_for_until_it_is_written(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		uint64_t ns = 100 + round * 100;

		add(START, 10, 1, ns);
		header.put = (header.put + 1) % COUNT; /* empty, or of the round before */
		assert_int_equal(parse(), 0);	       /* not even as open: it may have ended */
		header.put = (header.put + COUNT - 1) % COUNT;
		add(END, 10, 1, ns + 50);
		assert_int_equal(parse(), 1);
		assert_turn(0, 10, 1, ns, ns + 50);
	}
	assert_int_equal(parser.lost, 0);
	assert_int_equal(parser.strange, 0);
	/* It is not waited for twice. */
	header.put = (header.put + 1) % COUNT;
	number++;
	parse();
	parse();
	assert_int_equal(parser.get, header.put);
}

static void what_has_no_room_comes_the_next_time(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 3; i++) {
		add(START, 10, 1, 100 + i * 10);
		add(END, 10, 1, 105 + i * 10);
	}
	add(START, 10, 1, 130);
	add(END, 10, 1, 135); /* lost */
	assert_int_equal(parse_some(0), 0);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(parse_some(1), 1);
		assert_turn(0, 10, 1, 100 + i * 10, 105 + i * 10);
	}
	assert_int_equal(parse_some(1), 0);
	add(START, 10, 1, 140);
	assert_int_equal(parse_some(1), 1);
	assert_true(turns[0].is_open);
	assert_int_equal(parser.lost, 1);
}

static void clock_that_was_set_back_is_believed(void **state)
{
	(void)state;
	add(START, 10, 1, 900);
	assert_int_equal(parse(), 1);
	turns_forget(&parser);
	assert_int_equal(parse(), 0);
	add(START, 10, 1, 100);
	add(END, 10, 1, 200);
	assert_int_equal(parse(), 1);
	assert_turn(0, 10, 1, 100, 200);
}

static void random_memory_is_read_to_its_end(void **state)
{
	uint64_t seed = 88172645463325252ull;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t last_ns = 0;
		size_t found;

		for (size_t k = 0; k < sizeof(records); k++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			records[k] = (uint8_t)seed;
		}
		for (uint8_t *r = records; r < records + sizeof(records); r += TURNS_RECORD_BYTES) {
			r[0] = 2;
			r[1] = 0;
			r[8] = START + (r[8] & 1);
			r[19] &= 0x7f;
			memset(r + 26, 0, 6); /* a time that can be */
		}
		header.put = (uint32_t)(seed >> 40) % (COUNT + 1);
		header.dropped = seed >> 60;
		turns_forget(&parser);
		found = parse_some(seed >> 32 & 7);
		for (size_t k = 0; k < found; k++) {
			assert_true(turns[k].start_ns >= last_ns && turns[k].end_ns >= turns[k].start_ns);
			last_ns = turns[k].end_ns;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(start_and_end_make_a_turn, begin),
		cmocka_unit_test_setup(turn_that_is_on_is_told_as_open_until_it_ends, begin),
		cmocka_unit_test_setup(ring_and_numbers_come_around, begin),
		cmocka_unit_test_setup(lost_records_are_counted_and_their_turns_left_out, begin),
		cmocka_unit_test_setup(more_are_lost_than_a_number_can_say, begin),
		cmocka_unit_test_setup(gap_in_the_numbers_is_a_loss, begin),
		cmocka_unit_test_setup(end_may_name_another_channel_of_its_group, begin),
		cmocka_unit_test_setup(end_without_a_start_is_no_turn, begin),
		cmocka_unit_test_setup(context_that_died_had_its_turn_until_the_next, begin),
		cmocka_unit_test_setup(those_without_a_name_are_nobodys_turn, begin),
		cmocka_unit_test_setup(garbage_is_left_out, begin),
		cmocka_unit_test_setup(record_is_waited_for_until_it_is_written, begin),
		cmocka_unit_test_setup(what_has_no_room_comes_the_next_time, begin),
		cmocka_unit_test_setup(clock_that_was_set_back_is_believed, begin),
		cmocka_unit_test_setup(random_memory_is_read_to_its_end, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
