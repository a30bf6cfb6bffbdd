/* divide: which SM units the vGPUs of a shared domain get. */
#include "gpu/divide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define ALL(units) divide_all(units)
#define PERCENT 10000u

enum { TRIALS = 20000, PARTS_MOST = 24 };

static struct divide_part part(unsigned request, unsigned limit, bool is_active, uint64_t before)
{
	return (struct divide_part){ .request_ppm = request * PERCENT,
				     .limit_ppm = limit * PERCENT,
				     .is_active = is_active,
				     .before = before };
}

static unsigned bits(uint64_t units)
{
	return (unsigned)__builtin_popcountll(units);
}

static void the_only_active_vgpu_has_all(void **state)
{
	struct divide_part parts[] = { part(25, 100, true, 1), part(50, 100, false, 6),
				       part(0, 100, false, 8) };

	(void)state;
	divide(parts, 3, 4);
	assert_int_equal(parts[0].after, 15);
	assert_int_equal(parts[1].after, 2);
	assert_int_equal(parts[2].after, 8);
	divide(parts, 1, 4);
	assert_int_equal(parts[0].after, 15);
}

static void its_limit_holds_for_the_only_active_vgpu(void **state)
{
	struct divide_part parts[] = { part(25, 50, true, 0), part(50, 100, false, 0) };

	(void)state;
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 8);
	assert_int_equal(bits(parts[1].after), 1);
	assert_int_equal(parts[0].after & parts[1].after, 0);
}

static void limits_are_rounded_to_the_nearest_unit(void **state)
{
	struct divide_part parts[8];

	(void)state;
	for (unsigned i = 0; i < 8; i++)
		parts[i] = part(12, 12, true, 0);
	divide(parts, 8, 16);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(bits(parts[i].after), 2);
	parts[0] = part(40, 40, true, 0);
	parts[1] = part(60, 60, true, 0);
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 6);
	assert_int_equal(bits(parts[1].after), 10);
	parts[0] = part(9, 9, true, 0);
	divide(parts, 1, 16);
	assert_int_equal(bits(parts[0].after), 1);
}

static void spare_units_follow_the_requests(void **state)
{
	struct divide_part parts[] = { part(10, 100, true, 0), part(30, 100, true, 0) };

	(void)state;
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 4);
	assert_int_equal(bits(parts[1].after), 12);
	assert_int_equal(parts[0].after | parts[1].after, ALL(16));
}

static void what_a_limit_leaves_goes_to_the_others(void **state)
{
	struct divide_part parts[] = { part(40, 50, true, 0), part(20, 25, true, 0), part(1, 100, true, 0) };

	(void)state;
	divide(parts, 3, 16);
	assert_int_equal(bits(parts[0].after), 8);
	assert_int_equal(bits(parts[1].after), 4);
	assert_int_equal(bits(parts[2].after), 4);
}

static void vgpus_without_requests_share_what_is_left(void **state)
{
	struct divide_part parts[] = { part(0, 100, true, 0), part(0, 50, true, 0), part(0, 100, true, 0),
				       part(25, 100, true, 0) };

	(void)state;
	divide(parts, 3, 16);
	assert_int_equal(parts[0].after, ALL(16));
	assert_int_equal(bits(parts[1].after), 8);
	assert_int_equal(parts[2].after, ALL(16));
	divide(parts, 4, 16);
	assert_int_equal(bits(parts[3].after), 4);
	assert_int_equal(parts[0].after, ALL(16) & ~parts[3].after);
	assert_int_equal(parts[2].after, parts[0].after);
	assert_int_equal(bits(parts[1].after), 8);
	assert_int_equal(parts[1].after & parts[3].after, 0);
}

static void small_requests_take_no_unit_of_a_large_one(void **state)
{
	struct divide_part parts[] = { part(75, 100, true, 0), part(1, 100, true, 0), part(1, 100, true, 0),
				       part(1, 100, true, 0) };

	(void)state;
	divide(parts, 4, 4);
	assert_int_equal(bits(parts[0].after), 3);
	for (int i = 1; i < 4; i++)
		assert_int_equal(parts[i].after, ALL(4) & ~parts[0].after);
	divide(parts, 4, 16); /* here each has one */
	assert_int_equal(bits(parts[0].after), 13);
	assert_int_equal(parts[1].after & parts[2].after, 0);
	parts[0].request_ppm = 100 * PERCENT;
	parts[1] = part(0, 100, true, 0);
	divide(parts, 2, 4);
	assert_int_equal(parts[0].after, ALL(4));
	assert_int_equal(bits(parts[1].after), 1);
}

static void a_wish_is_met_within_limits_and_requests(void **state)
{
	struct divide_part parts[] = { part(25, 50, true, 0), part(25, 100, true, 0) };

	(void)state;
	parts[0].wish = 6;
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 6);
	assert_int_equal(bits(parts[1].after), 10);
	parts[0].wish = 14; /* over its limit */
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 8);
	parts[0].wish = 1; /* under its request */
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 4);
	assert_int_equal(bits(parts[1].after), 12);
	parts[0] = part(0, 100, true, 0);
	parts[0].wish = 16; /* the other keeps its request */
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 12);
	assert_int_equal(bits(parts[1].after), 4);
	parts[0].wish = 2;
	parts[1].limit_ppm = 50 * PERCENT; /* what nobody else may have */
	divide(parts, 2, 16);
	assert_int_equal(bits(parts[0].after), 8);
}

static void fractions_go_to_the_largest_remainders(void **state)
{
	/* 2.1, 1.3 and 0.6 of 4 units. */
	struct divide_part parts[] = { part(52, 100, true, 0), part(33, 100, true, 0),
				       part(15, 100, true, 0) };

	(void)state;
	divide(parts, 3, 4);
	assert_int_equal(bits(parts[0].after), 2);
	assert_int_equal(bits(parts[1].after), 1);
	assert_int_equal(bits(parts[2].after), 1);
}

static void an_idle_vgpu_has_no_unit_of_a_request(void **state)
{
	struct divide_part parts[] = { part(50, 100, true, 3), part(50, 100, true, 12),
				       part(0, 100, false, 1) };

	(void)state;
	divide(parts, 3, 4);
	assert_int_equal(parts[0].after, 3);
	assert_int_equal(parts[1].after, 12);
	assert_int_equal(parts[2].after, 1); /* shared */
}

static void a_vgpu_with_all_units_gives_those_that_others_have_not(void **state)
{
	struct divide_part parts[] = { part(40, 100, true, 0xff), part(40, 100, true, 0x80),
				       part(0, 100, false, 1) };

	(void)state;
	divide(parts, 3, 8);
	assert_int_equal(parts[2].after, 1);
	assert_int_equal(parts[1].after & 0x80, 0x80);
	assert_int_equal(bits(parts[0].after) + bits(parts[1].after), 7);
	assert_int_equal(parts[0].after & parts[1].after, 0);
}

static void units_stay_where_they_are(void **state)
{
	struct divide_part parts[] = { part(50, 100, true, 0x0f), part(25, 100, true, 0xf0) };

	(void)state;
	divide(parts, 2, 8);
	assert_int_equal(parts[0].after & 0x0f, 0x0f);
	assert_int_equal(parts[1].after & ~0xf0ull, 0);
	parts[0].before = parts[0].after;
	parts[1].before = parts[1].after;
	divide(parts, 2, 8);
	assert_int_equal(parts[0].after, parts[0].before);
	assert_int_equal(parts[1].after, parts[1].before);
}

static void a_new_vgpu_gets_units_side_by_side(void **state)
{
	struct divide_part parts[] = { part(25, 25, true, 0x06), part(50, 50, true, 0) };

	(void)state;
	divide(parts, 2, 8);
	assert_int_equal(parts[0].after, 0x06);
	assert_int_equal(parts[1].after, 0x78);
}

static void idle_vgpus_keep_what_they_have(void **state)
{
	struct divide_part parts[] = { part(25, 100, false, 0xf), part(50, 100, false, 2) };

	(void)state;
	divide(parts, 2, 4);
	assert_int_equal(parts[0].after, 0xf);
	assert_int_equal(parts[1].after, 2);
	parts[0].limit_ppm = 50 * PERCENT; /* not beyond the limit */
	divide(parts, 2, 4);
	assert_true(bits(parts[0].after) <= 2);
}

static void vgpus_beyond_the_units_share(void **state)
{
	struct divide_part parts[6];
	uint64_t used = 0;

	(void)state;
	for (int i = 0; i < 6; i++)
		parts[i] = part(i == 5 ? 20 : 10, 100, true, 0);
	divide(parts, 6, 4);
	for (int i = 0; i < 6; i++)
		assert_int_equal(parts[i].after, ALL(4));
	for (int i = 0; i < 6; i++)
		parts[i] = part(i < 2 ? 50 : 0, 100, i < 2, 0); /* no unit is left for idle ones */
	divide(parts, 6, 4);
	for (int i = 2; i < 6; i++) {
		assert_int_equal(bits(parts[i].after), 1);
		used |= parts[i].after;
	}
	assert_int_equal(used & ~ALL(4), 0);
	for (int i = 0; i < 6; i++)
		parts[i].before = parts[i].after;
	divide(parts, 6, 4);
	for (int i = 0; i < 6; i++)
		assert_int_equal(parts[i].after, parts[i].before);
}

struct trial {
	struct divide_part parts[PARTS_MOST];
	size_t count, active;
	unsigned units;
};

static void make_trial(struct trial *trial)
{
	unsigned left = 100;

	trial->count = 1 + (size_t)rand() % PARTS_MOST;
	trial->units = 1 + (unsigned)rand() % DIVIDE_UNITS_MOST;
	trial->active = 0;
	for (size_t i = 0; i < trial->count; i++) {
		unsigned request = rand() % 2 ? 0 : (unsigned)rand() % (left + 1);
		unsigned limit = request + (unsigned)rand() % (101 - request);
		uint64_t before = rand() % 3 ? (uint64_t)rand() * (uint64_t)rand() : 0;

		left -= request;
		trial->parts[i] = part(request, limit ? limit : 1, rand() % 2, before & ALL(trial->units));
		trial->parts[i].wish = rand() % 4 ? 0 : (unsigned)rand() % (trial->units + 1);
		trial->active += trial->parts[i].is_active;
	}
}

static unsigned limit_of(const struct trial *trial, const struct divide_part *p)
{
	unsigned limit =
		(unsigned)(((uint64_t)p->limit_ppm * trial->units + DIVIDE_WHOLE_PPM / 2) / DIVIDE_WHOLE_PPM);

	return limit ? limit : 1;
}

/* Its request in whole units, as far as each active vGPU can have a unit beside it. */
static void check_part(const struct trial *trial, const struct divide_part *p, uint64_t promised_units)
{
	unsigned floor = (unsigned)((uint64_t)p->request_ppm * trial->units / DIVIDE_WHOLE_PPM);

	assert_true(p->after && !(p->after & ~ALL(trial->units)));
	assert_true(bits(p->after) <= limit_of(trial, p));
	if (p->is_active && promised_units <= trial->units)
		assert_true(bits(p->after) >= (floor < limit_of(trial, p) ? floor : limit_of(trial, p)));
}

static void whatever_there_is_the_rules_hold(void **state)
{
	struct trial trial;

	(void)state;
	srand(7);
	for (int i = 0; i < TRIALS; i++) {
		uint64_t taken = 0, promised = 0, together = 0;

		make_trial(&trial);
		for (size_t j = 0; j < trial.count; j++) {
			uint64_t ppm = (uint64_t)trial.parts[j].request_ppm * trial.units;

			if (trial.parts[j].is_active)
				promised += ppm > DIVIDE_WHOLE_PPM ? ppm : DIVIDE_WHOLE_PPM;
		}
		promised = (promised + DIVIDE_WHOLE_PPM - 1) / DIVIDE_WHOLE_PPM;
		divide(trial.parts, trial.count, trial.units);
		for (size_t j = 0; j < trial.count; j++) {
			const struct divide_part *p = &trial.parts[j];

			check_part(&trial, p, trial.active ? promised : UINT64_MAX);
			/* With room for all, two active vGPUs never have the same unit, unless both have neither
			 * a request nor a wish. */
			if (trial.active <= 1 || trial.count > trial.units || promised > trial.units ||
			    !p->is_active)
				continue;
			if (!p->request_ppm && !p->wish) {
				together |= p->after;
				continue;
			}
			assert_int_equal(taken & p->after, 0);
			taken |= p->after;
		}
		assert_int_equal(taken & together, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_only_active_vgpu_has_all),
		cmocka_unit_test(its_limit_holds_for_the_only_active_vgpu),
		cmocka_unit_test(limits_are_rounded_to_the_nearest_unit),
		cmocka_unit_test(spare_units_follow_the_requests),
		cmocka_unit_test(what_a_limit_leaves_goes_to_the_others),
		cmocka_unit_test(vgpus_without_requests_share_what_is_left),
		cmocka_unit_test(small_requests_take_no_unit_of_a_large_one),
		cmocka_unit_test(a_wish_is_met_within_limits_and_requests),
		cmocka_unit_test(fractions_go_to_the_largest_remainders),
		cmocka_unit_test(an_idle_vgpu_has_no_unit_of_a_request),
		cmocka_unit_test(a_vgpu_with_all_units_gives_those_that_others_have_not),
		cmocka_unit_test(units_stay_where_they_are),
		cmocka_unit_test(a_new_vgpu_gets_units_side_by_side),
		cmocka_unit_test(idle_vgpus_keep_what_they_have),
		cmocka_unit_test(vgpus_beyond_the_units_share),
		cmocka_unit_test(whatever_there_is_the_rules_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
