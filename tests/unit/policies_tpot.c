/* policies: tpot_first, with a tight decode program, a loose one, and one that trains. */
#include "policies_rig.h"

enum { TIGHT, LOOSE, TRAIN };

static void add_decoders(void)
{
	*add(10, BELFRY_LATENCY) = (struct belfry_vgpu){ .id = 10,
							 .class = BELFRY_LATENCY,
							 .percentile_ppm = 990000,
							 .objective_ns = 2 * MS,
							 .burst_ns = 600 * US };
	*add(11, BELFRY_LATENCY) = (struct belfry_vgpu){ .id = 11,
							 .class = BELFRY_LATENCY,
							 .percentile_ppm = 990000,
							 .objective_ns = 5 * MS,
							 .burst_ns = 600 * US };
	add(12, BELFRY_THROUGHPUT);
}

/* So many ticks of all, in each of which the decoders take 40 samples with these tails. */
static void go_on(unsigned ticks, uint64_t tight_ns, uint64_t loose_ns)
{
	for (; ticks; ticks--) {
		now_ns += 25 * MS;
		table[TIGHT].samples += 40;
		table[LOOSE].samples += 40;
		table[TIGHT].tail_ns = tight_ns;
		table[LOOSE].tail_ns = loose_ns;
		table[TIGHT].p50_ns = tight_ns * 3 / 4;
		table[LOOSE].p50_ns = loose_ns * 3 / 4;
		for (uint32_t i = 0; i < vgpu_count; i++)
			tick(i);
	}
}

static void miss(uint32_t vgpu, uint64_t over_ns)
{
	struct belfry_objective ctx = { .head = head(BELFRY_HOOK_OBJECTIVE_MISSED, vgpu, sizeof(ctx)),
					.took_ns = table[vgpu].objective_ns + over_ns,
					.objective_ns = table[vgpu].objective_ns };

	table[vgpu].missed++;
	assert_int_equal(call("objective_missed", &ctx, sizeof(ctx)), BELFRY_PROPOSE);
}

static void assert_says(const char *text)
{
	struct belfry_dump ctx = { .head = head(BELFRY_HOOK_DUMP, BELFRY_NOBODY, sizeof(ctx)) };

	assert_int_equal(call("dump", &ctx, sizeof(ctx)), BELFRY_PROPOSE);
	assert_string_equal(ctx.text, text);
}

static void tpot_first_lengthens_turns_as_far_as_there_is_room(void **state)
{
	(void)state;
	load("tpot_first");
	add_decoders();
	go_on(1, 800 * US, 900 * US);
	assert_int_equal(tick(TRAIN).interleave, 0);
	assert_int_equal(tick(TRAIN).timeslice_us, 1);
	assert_says("turns of at most    1 us beside latency vGPUs");
	go_on(3, 800 * US, 900 * US);
	assert_in_range(tick(TRAIN).timeslice_us, 50, 500); /* step by step */
	go_on(50, 1400 * US, 1500 * US);		    /* up to 1.8 ms: no step of more than 0.4 ms */
	assert_int_equal(tick(TRAIN).timeslice_us, 1000);
	go_on(50, 1790 * US, 1900 * US); /* met, with nothing to spare: it stays */
	assert_int_equal(tick(TRAIN).timeslice_us, 1000);
	go_on(100, 800 * US, 900 * US);
	assert_int_equal(tick(TRAIN).timeslice_us, 2000);
	assert_says("turns of at most 2000 us beside latency vGPUs");
}

static void tpot_first_goes_back_by_what_a_miss_was_over(void **state)
{
	(void)state;
	load("tpot_first");
	add_decoders();
	go_on(30, 800 * US, 900 * US);
	assert_int_equal(tick(TRAIN).timeslice_us, 2000);
	miss(TIGHT, 5 * MS); /* no turn was that long */
	go_on(1, 900 * US, 900 * US);
	assert_int_equal(tick(TRAIN).timeslice_us, 2000);
	for (int i = 0; i < 3; i++)
		miss(TIGHT, 600 * US);
	go_on(1, 900 * US, 900 * US);
	assert_int_equal(tick(TRAIN).timeslice_us, 1000);
	go_on(20, 800 * US, 900 * US); /* for a second it is not tried again */
	assert_int_equal(tick(TRAIN).timeslice_us, 1000);
	go_on(40, 800 * US, 900 * US);
	assert_int_equal(tick(TRAIN).timeslice_us, 2000);
	for (int i = 0; i < 3; i++)
		miss(TIGHT, 1990 * US);
	go_on(60, 800 * US, 900 * US); /* and then for two */
	assert_int_equal(tick(TRAIN).timeslice_us, 1);
	go_on(60, 800 * US, 900 * US);
	assert_int_equal(tick(TRAIN).timeslice_us, 2000);
}

static void tpot_first_puts_the_tightest_above_the_others_when_it_is_near(void **state)
{
	(void)state;
	load("tpot_first");
	add_decoders();
	go_on(10, 900 * US, 900 * US);
	assert_int_equal(tick(TIGHT).interleave, 2); /* enough room: as ever */
	assert_int_equal(tick(LOOSE).interleave, 2);
	go_on(10, 1900 * US, 1000 * US);
	assert_int_equal(tick(TIGHT).interleave, 2);
	assert_int_equal(tick(LOOSE).interleave, 1);
	go_on(10, 1300 * US, 1000 * US); /* near until it is far */
	assert_int_equal(tick(LOOSE).interleave, 1);
	go_on(60, 1300 * US, 4900 * US); /* the other has clearly less room now */
	assert_int_equal(tick(LOOSE).interleave, 2);
	assert_int_equal(tick(TIGHT).interleave, 1);
	go_on(10, 900 * US, 900 * US);
	assert_int_equal(tick(TIGHT).interleave, 2);
	assert_int_equal(tick(LOOSE).interleave, 2);
}

static void tpot_first_cuts_turns_of_riders_to_what_another_can_wait(void **state)
{
	(void)state;
	load("tpot_first");
	add_decoders();
	table[LOOSE].objective_ns = 50 * MS;
	table[LOOSE].burst_ns = 4 * MS;
	go_on(10, 1000 * US, 5000 * US);
	assert_int_equal(tick(LOOSE).timeslice_us, 2048);
	go_on(10, 1900 * US, 5000 * US);
	assert_int_equal(tick(LOOSE).timeslice_us, 1200); /* 2 - 0.6 - 0.2 ms */
	table[LOOSE].objective_ns = 6 * MS;		  /* no room for that any more */
	go_on(10, 1900 * US, 5500 * US);
	assert_int_equal(tick(LOOSE).timeslice_us, 8000);
	vgpu_count = 1;
	assert_int_equal(tick(TIGHT).timeslice_us, 1000000); /* alone it stays until it is done */
}

static void tpot_first_gives_sm_units_where_the_median_needs_them(void **state)
{
	uint32_t units;

	(void)state;
	load("tpot_first");
	add_decoders();
	go_on(4, 2200 * US, 4300 * US);
	assert_int_equal(tick(TIGHT).units, 0); /* no shared domain */
	for (int i = TIGHT; i <= TRAIN; i++) {
		table[i].units = 4;
		table[i].units_all = 16;
	}
	go_on(2, 2200 * US, 4300 * US);
	units = tick(TIGHT).units;
	assert_in_range(units, 5, 6);
	assert_int_equal(tick(LOOSE).units, 0); /* its median would take too long with three */
	assert_int_equal(tick(TRAIN).units, 0);
	for (int i = 0; i < 40; i++) {
		table[TIGHT].units = (uint16_t)tick(TIGHT).units; /* as proposed */
		go_on(1, 2200 * US, 4300 * US);
	}
	assert_int_equal(tick(TIGHT).units, 16);
	table[TIGHT].missed += 100; /* its median is short enough: more units would not help */
	table[TIGHT].units = 8;
	go_on(20, 1900 * US, 4300 * US);
	assert_int_equal(tick(TIGHT).units, 16);
	table[TIGHT].units = 16;
	for (int i = 0; i < 100; i++) {
		table[TIGHT].units = (uint16_t)tick(TIGHT).units;
		go_on(1, 800 * US, 4300 * US);
	}
	assert_in_range(tick(TIGHT).units, 1, 8); /* one less for each 256 samples */
}

static void tpot_first_parks_who_has_all_the_time(void **state)
{
	(void)state;
	load("tpot_first");
	add_decoders();
	table[LOOSE].objective_ns = S;
	table[LOOSE].request_ppm = 100000;
	go_on(10, 900 * US, 100 * MS);
	assert_int_equal(tick(LOOSE).ride, 0);
	assert_int_equal(tick(TIGHT).ride, -1);
	miss(LOOSE, 1 * MS);
	go_on(1, 900 * US, 100 * MS);
	assert_int_equal(tick(LOOSE).ride, -1);
	assert_int_equal(tick(LOOSE).weight_ppm, 150000);
	go_on(1, 900 * US, 100 * MS);
	assert_int_equal(tick(LOOSE).weight_ppm, 0);
	assert_int_equal(tick(LOOSE).ride, 0);
}

static void tpot_first_leaves_a_gpu_without_latency_as_it_is(void **state)
{
	struct belfry_tick ctx;

	(void)state;
	load("tpot_first");
	add(1, BELFRY_THROUGHPUT);
	ctx = tick(0);
	assert_int_equal(ctx.timeslice_us, 0);
	assert_int_equal(ctx.interleave, -1);
	add(2, BELFRY_LATENCY); /* without an objective: turns as short as can be */
	ctx = tick(0);
	assert_int_equal(ctx.timeslice_us, 1);
	assert_int_equal(ctx.interleave, 0);
	assert_int_equal(tick(1).interleave, 2);
}

static void tpot_first_gives_the_token_to_the_tightest(void **state)
{
	(void)state;
	load("tpot_first");
	add_decoders();
	table[TIGHT].flags = table[LOOSE].flags = BELFRY_MAY_HAVE;
	assert_int_equal(pick().choice, BELFRY_NOBODY); /* all have room */
	table[TIGHT].tail_ns = 1800 * US;
	table[LOOSE].tail_ns = 3500 * US;
	assert_int_equal(pick().choice, TIGHT);
	assert_true(stops(TIGHT, TRAIN));
	assert_true(stops(TIGHT, LOOSE));
	assert_false(stops(LOOSE, TIGHT));
	table[TIGHT].burst_ns = 3 * MS; /* it cannot be helped */
	assert_int_equal(pick().choice, LOOSE);
	assert_false(stops(TIGHT, TRAIN));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(tpot_first_lengthens_turns_as_far_as_there_is_room),
		TEST(tpot_first_goes_back_by_what_a_miss_was_over),
		TEST(tpot_first_puts_the_tightest_above_the_others_when_it_is_near),
		TEST(tpot_first_cuts_turns_of_riders_to_what_another_can_wait),
		TEST(tpot_first_gives_sm_units_where_the_median_needs_them),
		TEST(tpot_first_parks_who_has_all_the_time),
		TEST(tpot_first_leaves_a_gpu_without_latency_as_it_is),
		TEST(tpot_first_gives_the_token_to_the_tightest),
	};

	return cmocka_run_group_tests_name("policies_tpot", tests, NULL, NULL);
}
