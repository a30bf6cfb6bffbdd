/* policies: each shipped policy, loaded into the kernel and asked about tables made by hand. Needs libbpf and the right to
 * load eBPF, and of Belfry only the built-in policy. */
#include "policies_rig.h"
#include "sched/sched.h"

/* fair: held against the built-in itself */

static uint64_t random_state;

static uint64_t any(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Often near the others, often equal to one of them, now and then as far out as can be. */
static int64_t any_pass(int64_t near)
{
	static const int64_t extremes[] = { INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX };

	switch (any() % 8) {
	case 0:
		return extremes[any() % COUNT(extremes)];
	case 1:
		return (int64_t)any();
	case 2:
	case 3:
		return (int64_t)((uint64_t)near + 100 * MS + any() % 3 - 1);
	default:
		return (int64_t)((uint64_t)near + any() % 8 * 50 * MS);
	}
}

static void fill_at_random(struct belfry_head *at)
{
	at->count = (uint32_t)(any() % 4 ? any() % 16 : any() % (BELFRY_VGPUS_MAX + 1));
	at->pass_ns = any_pass((int64_t)(any() % (1000 * S)));
	at->round_ns = any() % 8 ? (10 + any() % 1000) * MS : any() % 3;
	at->slice_min_ns = any() % (5 * MS);
	for (uint32_t i = 0; i < at->count; i++) {
		table[i].flags = any() % 3 ? BELFRY_MAY_HAVE : (uint32_t)(any() % 4);
		table[i].class = (uint32_t)(any() % 2);
		table[i].part_ppm = (uint32_t)(any() % (BELFRY_WHOLE_PPM + 1));
		table[i].pass_ns = any_pass(at->pass_ns);
		table[i].window_promised_ns = any() % 4 * 100 * MS;
		table[i].window_used_ns = any() % 8 ? any() % 5 * 100 * MS : any();
	}
}

static void fair_decides_as_the_built_in_does(void **state)
{
	unsigned chosen = 0, stopped = 0;

	(void)state;
	load("fair");
	random_state = 88172645463325252ull;
	for (int i = 0; i < 100000; i++) {
		struct belfry_pick ctx = { .head = head(BELFRY_HOOK_PICK, BELFRY_NOBODY, sizeof(ctx)) };
		struct belfry_preempt cut = { 0 }, expected_cut;
		struct belfry_pick expected;
		uint32_t choice, result;

		fill_at_random(&ctx.head);
		expected = ctx;
		sched_fair_pick(table, &expected);
		choice = expected.choice;
		result = call("pick", &ctx, sizeof(ctx));
		assert_int_equal(result, choice == BELFRY_NOBODY ? BELFRY_DEFAULT : BELFRY_PROPOSE);
		if (choice == BELFRY_NOBODY)
			continue;
		chosen++;
		assert_int_equal(ctx.choice, choice);
		assert_int_equal(ctx.slice_ns, 0); /* as long as the built-in says */
		cut.head = ctx.head;
		cut.head.vgpu = choice;
		cut.holder = (uint32_t)(any() % ctx.head.count);
		expected_cut = cut;
		sched_fair_preempt(table, &expected_cut);
		assert_int_equal(call("preempt", &cut, sizeof(cut)), BELFRY_PROPOSE);
		assert_int_equal(cut.stop != 0, expected_cut.stop != 0);
		stopped += cut.stop != 0;
	}
	assert_true(chosen > 50000 && stopped > 1000); /* it was not all one case */
}

static void fair_says_nothing_of_a_table_that_is_empty(void **state)
{
	(void)state;
	load("fair");
	assert_int_equal(pick().choice, BELFRY_NOBODY);
	add(1, BELFRY_THROUGHPUT)->flags = BELFRY_WAITS;
	assert_int_equal(pick().choice, BELFRY_NOBODY);
	assert_false(stops(BELFRY_NOBODY, 0));
	assert_false(stops(0, BELFRY_NOBODY));
}

/* latency_first */

static void latency_first_takes_the_one_with_the_least_time_left(void **state)
{
	struct belfry_pick ctx;

	(void)state;
	load("latency_first");
	add(1, BELFRY_THROUGHPUT)->pass_ns = -5;
	add(2, BELFRY_LATENCY)->deadline_ns = now_ns + 3 * MS;
	add(3, BELFRY_LATENCY)->deadline_ns = now_ns - 1 * MS;
	add(4, BELFRY_LATENCY)->wants_since_ns = now_ns - 2 * MS; /* as if it had an objective of 10 ms */
	assert_int_equal(pick().choice, 2);
	table[2].flags = 0;
	assert_int_equal(pick().choice, 1);
	table[1].flags = 0;
	assert_int_equal(pick().choice, 3);
	table[3].flags = 0;
	ctx = pick();
	assert_int_equal(ctx.choice, 0);
	assert_int_equal(ctx.slice_ns, 5 * MS); /* short, since there are others */
}

static void latency_first_leaves_throughput_alone_its_slices(void **state)
{
	struct belfry_pick ctx;

	(void)state;
	load("latency_first");
	add(1, BELFRY_THROUGHPUT)->pass_ns = 7;
	add(2, BELFRY_THROUGHPUT)->pass_ns = 3;
	ctx = pick();
	assert_int_equal(ctx.choice, 1);
	assert_int_equal(ctx.slice_ns, 50 * MS);
	table[1].part_ppm = 1;
	assert_int_equal(pick().slice_ns, 2 * MS);
}

static void latency_first_stops_throughput_only(void **state)
{
	(void)state;
	load("latency_first");
	add(1, BELFRY_THROUGHPUT);
	add(2, BELFRY_LATENCY);
	add(3, BELFRY_LATENCY);
	assert_true(stops(1, 0));
	assert_false(stops(1, 2));
	assert_false(stops(0, 1));
	assert_false(stops(0, 0));
}

/* edf */

static uint64_t deadline_in(uint32_t vgpu)
{
	struct belfry_enqueue ctx = { .head = head(BELFRY_HOOK_ENQUEUE, vgpu, sizeof(ctx)) };

	assert_int_equal(call("enqueue", &ctx, sizeof(ctx)), BELFRY_PROPOSE);
	return ctx.deadline_ns - now_ns;
}

static void edf_makes_deadlines_of_objectives_and_shares(void **state)
{
	(void)state;
	load("edf");
	add(1, BELFRY_LATENCY)->objective_ns = 8 * MS;
	add(2, BELFRY_THROUGHPUT)->pass_ns = 30 * MS;
	add(3, BELFRY_THROUGHPUT)->pass_ns = -30 * (int64_t)MS;
	assert_int_equal(deadline_in(0), 8 * MS);
	assert_int_equal(deadline_in(1), 130 * MS); /* head.pass_ns is 0 */
	assert_int_equal(deadline_in(2), 100 * MS);
}

static void edf_has_a_factor(void **state)
{
	static const struct tunable half[] = { { "factor_ppm", 500000 }, { 0 } };

	(void)state;
	load_with("edf", half);
	add(1, BELFRY_LATENCY)->objective_ns = 8 * MS;
	assert_int_equal(deadline_in(0), 4 * MS);
}

static void edf_takes_the_earliest_and_stops_who_is_clearly_later(void **state)
{
	(void)state;
	load("edf");
	add(1, BELFRY_THROUGHPUT); /* it has none */
	add(2, BELFRY_LATENCY)->deadline_ns = now_ns + 3 * MS;
	add(3, BELFRY_THROUGHPUT)->deadline_ns = now_ns + 2500 * US;
	add(4, BELFRY_LATENCY)->deadline_ns = now_ns + 10 * MS;
	assert_int_equal(pick().choice, 2);
	assert_false(stops(2, 1)); /* by half a millisecond: not worth it */
	assert_true(stops(2, 3));
	assert_true(stops(1, 0));
	assert_false(stops(0, 1));
	assert_false(stops(3, 2));
	table[1].flags = table[2].flags = table[3].flags = 0;
	assert_int_equal(pick().choice, 0);
}

/* gpreempt */

static void gpreempt_goes_by_class_alone(void **state)
{
	struct belfry_tick ctx;

	(void)state;
	load("gpreempt");
	add(1, BELFRY_THROUGHPUT)->pass_ns = -9;
	add(2, BELFRY_LATENCY)->pass_ns = 9;
	add(3, BELFRY_LATENCY)->pass_ns = 8;
	assert_int_equal(pick().choice, 2);
	assert_int_equal(pick().slice_ns, 20 * MS);
	assert_true(stops(1, 0));
	assert_false(stops(0, 1));
	ctx = tick(0);
	assert_int_equal(ctx.timeslice_us, 200);
	assert_int_equal(ctx.interleave, 0);
	ctx = tick(1);
	assert_int_equal(ctx.timeslice_us, 1000000);
	assert_int_equal(ctx.interleave, 2);
	table[1].flags = table[2].flags = 0;
	assert_int_equal(pick().slice_ns, 50 * MS);
}

/* reserve */

static void reserve_keeps_a_part_ready(void **state)
{
	uint32_t key = 0, held = 2;
	int map;

	(void)state;
	load("reserve");
	map = bpf_map__fd(bpf_object__find_map_by_name(object, "reserve_now"));
	add(1, BELFRY_THROUGHPUT)->request_ppm = 500000;
	add(2, BELFRY_LATENCY)->pass_ns = 900 * MS;
	table[1].flags = 0;
	assert_int_equal(pick().choice, 0);
	assert_int_equal(pick().slice_ns, 40 * MS); /* 80 % of half a round */
	assert_true(stops(1, 0));
	assert_false(stops(0, 1));
	table[1].flags = BELFRY_MAY_HAVE;
	assert_int_equal(pick().choice, 1);
	assert_int_equal(pick().slice_ns, 50 * MS);
	assert_int_equal(bpf_map_update_elem(map, &key, &held, BPF_ANY), 0);
	assert_int_equal(pick().choice, BELFRY_NOBODY); /* not now: as it would be */
	assert_false(stops(1, 0));
}

static void reserve_has_hours(void **state)
{
	static const struct tunable day[] = {
		{ "period_ns", 100 * S }, { "from_ns", 90 * S }, { "to_ns", 10 * S }, { 0 }
	};
	uint32_t key = 0, held = 1;

	(void)state;
	load_with("reserve", day);
	add(1, BELFRY_THROUGHPUT);
	now_ns = 1095 * S;
	assert_int_equal(pick().choice, 0);
	now_ns = 1105 * S;
	assert_int_equal(pick().choice, 0);
	now_ns = 1110 * S;
	assert_int_equal(pick().choice, BELFRY_NOBODY);
	bpf_map_update_elem(bpf_map__fd(bpf_object__find_map_by_name(object, "reserve_now")), &key, &held,
			    BPF_ANY);
	assert_int_equal(pick().choice, 0);
}

/* quota_guard */

enum { GIB = 1 << 30 };

static uint64_t used_bytes;

static uint32_t ask(uint32_t pid, uint64_t bytes)
{
	struct belfry_mem_alloc ctx = { .head = head(BELFRY_HOOK_MEM_ALLOC, BELFRY_NOBODY, sizeof(ctx)),
					.id = 1,
					.pid = pid,
					.bytes = bytes,
					.used_bytes = used_bytes,
					.limit_bytes = 10ull * GIB };

	assert_int_equal(call("mem_alloc", &ctx, sizeof(ctx)), BELFRY_PROPOSE);
	if (ctx.verdict == BELFRY_MEM_ALLOW)
		used_bytes += bytes;
	return ctx.verdict;
}

static void quota_guard_refuses_at_the_start_what_would_not_fit(void **state)
{
	(void)state;
	load("quota_guard");
	used_bytes = 0;
	assert_int_equal(ask(100, GIB), BELFRY_MEM_ALLOW);
	assert_int_equal(ask(100, 3ull * GIB), BELFRY_MEM_ALLOW);
	assert_int_equal(ask(100, GIB), BELFRY_MEM_ALLOW);	/* 5 GiB, it comes to */
	assert_int_equal(ask(101, GIB / 4), BELFRY_MEM_REFUSE); /* with the headroom that is 10.25 of 10 */
	used_bytes -= GIB;
	assert_int_equal(ask(102, GIB / 4), BELFRY_MEM_ALLOW);
	assert_int_equal(ask(100, GIB), BELFRY_MEM_ALLOW); /* those who have begun go on */
	used_bytes = 0;
	for (uint32_t pid = 200; pid < 210; pid++, used_bytes = 0)
		assert_int_equal(ask(pid, 9ull * GIB), BELFRY_MEM_ALLOW); /* alone it may have all */
}

/* quarantine */

static int begin_context(uint64_t at_ns)
{
	struct belfry_ctx_init ctx = { .head = head(BELFRY_HOOK_CTX_INIT, BELFRY_NOBODY, sizeof(ctx)),
				       .id = 1,
				       .interleave = -1 };
	int rc;

	ctx.head.now_ns = at_ns;
	rc = call("ctx_init", &ctx, sizeof(ctx));
	return rc == BELFRY_PROPOSE && ctx.refuse;
}

static void come_to_grief(uint64_t id, uint64_t at_ns)
{
	struct belfry_fault ctx = { .head = head(BELFRY_HOOK_FAULT, BELFRY_NOBODY, sizeof(ctx)),
				    .id = id,
				    .code = 31 };

	ctx.head.now_ns = at_ns;
	assert_int_equal(call("fault", &ctx, sizeof(ctx)), BELFRY_PROPOSE);
}

static void quarantine_keeps_out_who_fails_again_and_again(void **state)
{
	const uint64_t s = 1000000000, start = 100 * s;

	(void)state;
	load("quarantine");
	assert_false(begin_context(start));
	come_to_grief(1, start);
	come_to_grief(1, start + s);
	assert_false(begin_context(start + s)); /* twice is not often */
	come_to_grief(2, start + s);		/* another's is another's */
	assert_false(begin_context(start + 2 * s));
	come_to_grief(1, start + 2 * s);
	assert_true(begin_context(start + 3 * s));
	assert_true(begin_context(start + 31 * s));
	assert_false(begin_context(start + 33 * s));
	come_to_grief(1, start + 40 * s); /* those of before are forgotten */
	come_to_grief(1, start + 41 * s);
	assert_false(begin_context(start + 42 * s));
}

static void quota_guard_forgets_what_was_long_ago(void **state)
{
	static const struct tunable fast[] = { { "forget_ppm", 500000 }, { 0 } };

	(void)state;
	load_with("quota_guard", fast);
	used_bytes = 0;
	assert_int_equal(ask(100, 8ull * GIB), BELFRY_MEM_ALLOW);
	assert_int_equal(ask(101, GIB / 4), BELFRY_MEM_REFUSE);
	assert_int_equal(ask(102, GIB / 4), BELFRY_MEM_REFUSE);
	assert_int_equal(ask(103, GIB / 4), BELFRY_MEM_REFUSE);
	assert_int_equal(ask(104, GIB / 4), BELFRY_MEM_ALLOW);
}

static void quota_guard_takes_from_who_uses_the_least(void **state)
{
	struct belfry_mem_pressure ctx = { .bytes = GIB };

	(void)state;
	load("quota_guard");
	for (uint64_t id = 1; id <= 3; id++) {
		struct belfry_vgpu_init made = { .head = head(BELFRY_HOOK_VGPU_INIT, BELFRY_NOBODY,
							      sizeof(made)),
						 .id = id,
						 .mem_bytes = id * 10 * GIB };

		assert_int_equal(call("vgpu_init", &made, sizeof(made)), BELFRY_PROPOSE);
		add(id, BELFRY_THROUGHPUT);
	}
	ctx.head = head(BELFRY_HOOK_MEM_PRESSURE, 0, sizeof(ctx));
	assert_int_equal(call("mem_pressure", &ctx, sizeof(ctx)), BELFRY_PROPOSE);
	assert_int_equal(ctx.victim, 2);
	ctx.head.vgpu = 2; /* not from itself */
	assert_int_equal(call("mem_pressure", &ctx, sizeof(ctx)), BELFRY_PROPOSE);
	assert_int_equal(ctx.victim, 1);
}

/* placement */

static void placement_puts_those_together_who_use_different_things(void **state)
{
	(void)state;
	load("placement");
	for (uint64_t id = 1; id <= 4; id++)
		*add(id, BELFRY_THROUGHPUT) =
			(struct belfry_vgpu){ .id = id, .flags = BELFRY_MAY_HAVE, .domain = 7 };
	table[0].sm_ppm = 900000, table[0].mem_ppm = 200000, table[0].pass_ns = -1;
	table[1].sm_ppm = 800000, table[1].mem_ppm = 300000;
	table[2].sm_ppm = 200000, table[2].mem_ppm = 800000;
	assert_int_equal(pick().choice, 0);
	assert_int_equal(pick().beside, 2);
	table[2].domain =
		8; /* of another domain: then rather nobody in particular than one that does the same */
	assert_int_equal(pick().beside, BELFRY_NOBODY);
	table[2].domain = 7;
	table[0].sm_ppm = 0; /* unknown */
	assert_int_equal(pick().choice, 0);
	assert_int_equal(pick().beside, BELFRY_NOBODY);
}

struct work {
	uint64_t flops, bytes, written_bytes;
};

/* What the probe roofline has counted in a kernel of the vGPU. */
static void count_work(uint64_t vgpu, uint64_t kernel, uint64_t flops, uint64_t bytes)
{
	struct bpf_map *map = bpf_object__find_map_by_name(object, "roofline");
	uint64_t key[] = { vgpu, kernel };
	struct work work = { flops, bytes, 0 };

	assert_non_null(map);
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(map), key, &work, BPF_ANY), 0);
}

/* All vGPUs have the same measured use, as where they run at the same time. */
static void placement_pairs_by_what_roofline_has_counted(void **state)
{
	(void)state;
	load("placement");
	for (uint64_t id = 1; id <= 4; id++)
		*add(id, BELFRY_THROUGHPUT) = (struct belfry_vgpu){
			.id = id, .flags = BELFRY_MAY_HAVE, .domain = 7, .sm_ppm = 700000, .mem_ppm = 700000
		};
	table[0].pass_ns = -1;
	assert_int_equal(pick().beside, BELFRY_NOBODY); /* every pair exceeds the whole by the same */
	for (uint64_t round = 1; round <= 2; round++) {
		now_ns += 2 * S;
		count_work(1, 11, round * 1000000000, round * 2000000); /* 500 operations for each byte */
		count_work(1, 12, round * 1000000000, round * 2000000);
		count_work(2, 11, round * 900000000, round * 2000000);
		count_work(3, 13, round * 1000000, round * 4000000000); /* nearly none */
		count_work(4, 14, round * 800000000, round * 2000000);
		pick();
	}
	assert_int_equal(pick().choice, 0);
	assert_int_equal(pick().beside, 2);
	table[2].flags = 0; /* it has no work */
	assert_int_equal(pick().beside, BELFRY_NOBODY);
	table[2].flags = BELFRY_MAY_HAVE;
	table[0].pass_ns = 0, table[2].pass_ns = -1; /* the one that waits for memory is next */
	assert_int_equal(pick().choice, 2);
	assert_int_not_equal(pick().beside, BELFRY_NOBODY);
	now_ns += 2 * S; /* numbers that shrink are of other processes, and say nothing */
	count_work(3, 13, 5, 5);
	count_work(1, 11, UINT64_MAX, UINT64_MAX);
	table[0].pass_ns = -1, table[2].pass_ns = 0;
	assert_int_equal(pick().choice, 0);
}

enum { MEMORY, COMPUTE };

/* Two vGPUs of a shared domain of 16 units, on which both run. */
static void add_shared_pair(void)
{
	for (uint64_t id = 1; id <= 2; id++) {
		struct belfry_vgpu *vgpu = add(id, BELFRY_THROUGHPUT);

		vgpu->domain = 7;
		vgpu->units = vgpu->units_all = 16;
		vgpu->sm_ppm = 900000;
	}
	table[MEMORY].mem_ppm = 800000;
	table[COMPUTE].mem_ppm = 200000;
}

/* After so many seconds, in which the vGPU got the units that were proposed. */
static uint32_t units_after(unsigned seconds)
{
	for (; seconds; seconds--) {
		uint32_t units = tick(MEMORY).units;

		now_ns += S;
		table[MEMORY].units = (uint16_t)(units ? units : 16);
		assert_int_equal(tick(COMPUTE).units, 0); /* it gets what is left */
	}
	return tick(MEMORY).units;
}

static void placement_takes_units_from_who_waits_for_memory(void **state)
{
	(void)state;
	load("placement");
	add_shared_pair();
	assert_int_equal(tick(MEMORY).units, 8);
	assert_int_equal(tick(MEMORY).units, 8);
	table[MEMORY].units = 16; /* not given back yet: nothing was learned */
	now_ns += 10 * S;
	assert_int_equal(tick(MEMORY).units, 8);
	assert_int_equal(units_after(10), 4);
	table[MEMORY].mem_ppm = 690000; /* more than a tenth less than at first */
	assert_int_equal(units_after(4), 5);
	table[MEMORY].mem_ppm = 800000;
	assert_int_equal(units_after(50), 5); /* not tried again soon */
	assert_int_equal(units_after(60), 1);
	now_ns += 10 * S;
	assert_int_equal(tick(MEMORY).units, 1); /* never none */
}

static void placement_leaves_units_as_they_are_without_a_pair(void **state)
{
	(void)state;
	load("placement");
	add_shared_pair();
	table[COMPUTE].mem_ppm = 700000; /* both wait for memory */
	assert_int_equal(tick(MEMORY).units, 0);
	table[COMPUTE].mem_ppm = 0; /* unknown */
	now_ns += 10 * S;
	assert_int_equal(tick(MEMORY).units, 0);
	table[COMPUTE].mem_ppm = 200000;
	table[MEMORY].units_all = table[MEMORY].units = 0; /* no shared domain */
	now_ns += 10 * S;
	assert_int_equal(tick(MEMORY).units, 0);
	table[MEMORY].units_all = table[MEMORY].units = 16;
	assert_int_equal(tick(MEMORY).units, 8);
	vgpu_count = 1; /* the other has ended */
	assert_int_equal(tick(MEMORY).units, 0);
}

/* What is not a policy of its own. */

static char *read_all(const char *name)
{
	const char *source = getenv("BELFRY_SOURCE_DIR");
	char path[4096], *text;
	FILE *file;
	size_t got;

	snprintf(path, sizeof(path), "%s/%s", source ? source : ".", name);
	file = fopen(path, "re");
	if (!file)
		fail_msg("%s: %s", path, strerror(errno));
	text = malloc(1 << 18);
	got = fread(text, 1, (1 << 18) - 1, file);
	text[got] = 0;
	fclose(file);
	return text;
}

static void example_of_the_docs_is_the_one_that_is_compiled(void **state)
{
	char *docs = read_all("docs/policies.md"), *example = read_all("policies/examples/oldest.bpf.c");

	(void)state;
	assert_non_null(strstr(docs, example));
	free(docs);
	free(example);
}

static void oldest_takes_who_has_wanted_for_the_longest(void **state)
{
	uint64_t id = 6, count = 0;

	(void)state;
	load("oldest");
	add(5, BELFRY_THROUGHPUT)->wants_since_ns = 300;
	add(6, BELFRY_THROUGHPUT)->wants_since_ns = 200;
	add(7, BELFRY_THROUGHPUT)->wants_since_ns = 200;
	assert_int_equal(pick().choice, 1);
	assert_int_equal(pick().slice_ns, 10 * MS);
	bpf_map_lookup_elem(bpf_map__fd(bpf_object__find_map_by_name(object, "picked")), &id, &count);
	assert_int_equal(count, 2);
}

static void template_makes_a_policy(void **state)
{
	(void)state;
	load("begun");
	add(1, BELFRY_THROUGHPUT)->pass_ns = 5;
	add(2, BELFRY_THROUGHPUT)->pass_ns = 4;
	assert_int_equal(pick().choice, 1);
	assert_int_equal(pick().slice_ns, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(fair_decides_as_the_built_in_does),
		TEST(fair_says_nothing_of_a_table_that_is_empty),
		TEST(latency_first_takes_the_one_with_the_least_time_left),
		TEST(latency_first_leaves_throughput_alone_its_slices),
		TEST(latency_first_stops_throughput_only),
		TEST(edf_makes_deadlines_of_objectives_and_shares),
		TEST(edf_has_a_factor),
		TEST(edf_takes_the_earliest_and_stops_who_is_clearly_later),
		TEST(gpreempt_goes_by_class_alone),
		TEST(reserve_keeps_a_part_ready),
		TEST(reserve_has_hours),
		TEST(quota_guard_refuses_at_the_start_what_would_not_fit),
		TEST(quarantine_keeps_out_who_fails_again_and_again),
		TEST(quota_guard_forgets_what_was_long_ago),
		TEST(quota_guard_takes_from_who_uses_the_least),
		TEST(placement_puts_those_together_who_use_different_things),
		TEST(placement_pairs_by_what_roofline_has_counted),
		TEST(placement_takes_units_from_who_waits_for_memory),
		TEST(placement_leaves_units_as_they_are_without_a_pair),
		TEST(example_of_the_docs_is_the_one_that_is_compiled),
		TEST(oldest_takes_who_has_wanted_for_the_longest),
		TEST(template_makes_a_policy),
	};

	return cmocka_run_group_tests_name("policies", tests, NULL, NULL);
}
