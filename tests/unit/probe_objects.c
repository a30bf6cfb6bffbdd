/* probe: objects that clang has compiled, from the file to the results in their maps. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "policy_rig.h"
#include "probe_rig.h"
#include "skipping.h"

static const char *const good[] = { "blocktime", "count", "pages", "spread", "timers" };

static void kernel_verifies_the_objects(void **state)
{
	(void)state;
	need_ebpf();
	for (unsigned i = 0; i < COUNT(good); i++) {
		size_t size = 0;
		cleanup_free void *data = probe_bytes(good[i], &size);
		cleanup_free char *log = NULL;
		struct bf_error err;

		if (probe_verify(data, size, &log, &err))
			fail_msg("%s: %s\n%s", good[i], err.text, log ? log : "");
		assert_null(log);
	}
}

static void ptxas_assembles_every_program(void **state)
{
	(void)state;
	if (!probe_can_assemble())
		skip_case("there is no ptxas");
	for (unsigned i = 0; i < COUNT(good); i++) {
		struct probe *probe = probe_read(good[i], &(struct probe_options){ .sm_count = 132 });

		for (size_t k = 0; probe_program_at(probe, k); k++)
			for (int is_per_thread = 0; is_per_thread < 2; is_per_thread++) {
				cleanup_free char *text = NULL;
				struct bf_error err;

				assert_int_equal(probe_write_module(probe, k, is_per_thread, &text, &err), 0);
				probe_assemble(text);
			}
		probe_free(probe);
	}
}

static void thread_is_counted_once_however_often_the_program_runs(void **state)
{
	enum { THREADS = 100, PER_BLOCK = 50, WARPS = 4 };
	struct belfry_probe_ctx contexts[THREADS] = { 0 };
	uint64_t results[THREADS];
	struct probe *probe = probe_read("count", NULL);

	(void)state;
	for (size_t k = 0; probe_program_at(probe, k); k++) {
		bool is_per_thread = probe_program_at(probe, k)->event == BELFRY_PROBE_KERNEL_EXIT;
		unsigned runs = 0;
		struct probe_rig rig;

		assert_int_equal(probe_program_at(probe, k)->is_per_thread, is_per_thread);
		probe_rig_open(&rig, probe, k, false, THREADS);
		probe_rig_run(&rig, contexts, results, THREADS, PER_BLOCK);
		for (unsigned i = 0; i < THREADS; i++)
			runs += results[i] == 0;
		assert_int_equal(runs, is_per_thread ? THREADS : WARPS);
		assert_true(probe_has_variable(probe, probe_rig_area(&rig), THREADS));
		assert_true(is_per_thread || probe_has_variable(probe, probe_rig_area(&rig), WARPS));
		probe_rig_close(&rig);
	}
	probe_free(probe);
}

static size_t program_of(const struct probe *probe, enum belfry_probe_event event)
{
	size_t at = 0;

	while (probe_program_at(probe, at)->event != event)
		at++;
	return at;
}

/* Copies the area from one program's rig to another's. */
static void hand_over(struct probe_rig *to, struct probe_rig *from)
{
	memcpy(probe_rig_area(to), probe_rig_area(from), probe_area_bytes(to->probe));
}

struct record {
	uint64_t launch, cycles;
	uint32_t block, sm;
};

enum { BLOCKS = 96, TOOK = 3000 };

/* Runs both programs of blocktime for BLOCKS blocks that take TOOK cycles, one thread each. */
static void run_blocktime(struct probe *probe, struct probe_rig *leave)
{
	struct belfry_probe_ctx contexts[BLOCKS] = { 0 };
	uint64_t results[BLOCKS];
	struct probe_rig enter;

	probe_rig_open(&enter, probe, program_of(probe, BELFRY_PROBE_BLOCK_ENTER), true, BLOCKS);
	probe_rig_open(leave, probe, program_of(probe, BELFRY_PROBE_BLOCK_EXIT), true, BLOCKS);
	for (unsigned i = 0; i < BLOCKS; i++)
		contexts[i] =
			(struct belfry_probe_ctx){ .launch = 7, .clock = 1000 + i, .block = { i }, .sm = 5 };
	probe_rig_run(&enter, contexts, results, BLOCKS, 8);
	hand_over(leave, &enter);
	for (unsigned i = 0; i < BLOCKS; i++)
		contexts[i].clock += TOOK;
	probe_rig_run(leave, contexts, results, BLOCKS, 8);
	for (unsigned i = 0; i < BLOCKS; i++)
		assert_int_equal(results[i], 0);
	probe_rig_close(&enter);
}

static void values_of_each_sm_are_separate(void **state)
{
	struct probe *probe = probe_read("blocktime", &(struct probe_options){ .sm_count = 3 });
	const struct probe_map *histogram = probe_map_find(probe, "histogram");
	const uint32_t bucket = 11; /* 2^11 <= TOOK < 2^12 */
	struct probe_entry entry;
	uint64_t cursor = 0, sum = 0;
	struct probe_rig rig;

	(void)state;
	assert_int_equal(histogram->slots, 4); /* the next power of two */
	run_blocktime(probe, &rig);
	for (uint32_t slot = 0; slot < 4; slot++)
		assert_int_equal(*(uint64_t *)probe_value(histogram, probe_rig_area(&rig), &bucket, slot),
				 BLOCKS / 4);
	assert_null(probe_value(histogram, probe_rig_area(&rig), &bucket, 4));
	assert_int_equal(histogram->slot_stride % 128, 0); /* no two SMs write to one cache line */
	assert_int_equal(histogram->values % 128, 0);
	while (probe_next(histogram, probe_rig_area(&rig), &cursor, &entry))
		sum += *(uint64_t *)entry.value;
	assert_int_equal(sum, BLOCKS);
	cursor = 0;
	assert_false(probe_next(probe_map_find(probe, "started"), probe_rig_area(&rig), &cursor, &entry));
	probe_rig_close(&rig);
	probe_free(probe);
}

static void records_arrive_until_the_ring_is_full(void **state)
{
	enum { RECORDS = 4096 / (8 + sizeof(struct record)) };
	struct probe *probe = probe_read("blocktime", NULL);
	const struct probe_map *slow = probe_map_find(probe, "slow");
	const struct probe_ring *ring;
	bool was_seen[BLOCKS] = { false };
	struct record record;
	struct probe_rig rig;
	unsigned count = 0;

	(void)state;
	_Static_assert((int)BLOCKS < (int)RECORDS, "all records fit");
	run_blocktime(probe, &rig);
	while (probe_ring_take(slow, probe_rig_area(&rig), &record, sizeof(record)) == sizeof(record)) {
		assert_true(record.launch == 7 && record.cycles == TOOK && record.sm == 5);
		assert_true(record.block < BLOCKS && !was_seen[record.block]);
		was_seen[record.block] = true;
		count++;
	}
	assert_int_equal(count, BLOCKS);
	ring = (const void *)((char *)probe_rig_area(&rig) + slow->states);
	assert_int_equal(ring->dropped, 0);
	assert_int_equal(ring->head, ring->tail);
	probe_rig_close(&rig);
	probe_free(probe);
}

/* Runs the exit program on `blocks` blocks that the map knows. */
static void leave_blocks(struct probe_rig *rig, unsigned blocks)
{
	struct belfry_probe_ctx contexts[256] = { 0 };
	const struct probe_map *started = probe_map_find(rig->probe, "started");
	uint64_t results[256], cursor = 0;
	struct probe_entry entry;
	unsigned count = 0;

	while (count < blocks && probe_next(started, probe_rig_area(rig), &cursor, &entry)) {
		memcpy(&contexts[count].launch, entry.key, 8);
		memcpy(contexts[count].block, (const char *)entry.key + 8, 12);
		contexts[count++].clock = 1u << 20;
	}
	assert_int_equal(count, blocks);
	probe_rig_run(rig, contexts, results, count, 64);
}

static unsigned take_all(struct probe_rig *rig)
{
	const struct probe_map *slow = probe_map_find(rig->probe, "slow");
	struct record record;
	unsigned count = 0;

	while (probe_ring_take(slow, probe_rig_area(rig), &record, sizeof(record)) == sizeof(record)) {
		assert_int_equal(record.cycles, 1u << 20);
		count++;
	}
	return count;
}

/* The second round wraps around the end of the ring. */
static void full_ring_counts_what_it_drops(void **state)
{
	enum { RECORD = 8 + sizeof(struct record), FIT = 4096 / RECORD, MANY = 200 };
	struct probe *probe = probe_read("blocktime", NULL);
	const struct probe_map *slow = probe_map_find(probe, "slow");
	struct belfry_probe_ctx contexts[MANY] = { 0 };
	struct probe_rig enter, leave;
	uint64_t results[MANY];

	(void)state;
	probe_rig_open(&enter, probe, program_of(probe, BELFRY_PROBE_BLOCK_ENTER), true, MANY);
	probe_rig_open(&leave, probe, program_of(probe, BELFRY_PROBE_BLOCK_EXIT), true, 256);
	for (unsigned i = 0; i < MANY; i++)
		contexts[i].block[0] = i;
	for (unsigned round = 1; round <= 2; round++) {
		const struct probe_ring *ring = (void *)((char *)probe_rig_area(&leave) + slow->states);

		probe_rig_run(&enter, contexts, results, MANY, 64);
		hand_over(&leave, &enter);
		leave_blocks(&leave, MANY);
		assert_int_equal(ring->dropped, round * (MANY - FIT));
		assert_int_equal(take_all(&leave), FIT);
		hand_over(&enter, &leave);
	}
	probe_rig_close(&enter);
	probe_rig_close(&leave);
	probe_free(probe);
}

static void damaged_ring_is_emptied(void **state)
{
	struct probe *probe = probe_read("blocktime", NULL);
	const struct probe_map *slow = probe_map_find(probe, "slow");
	cleanup_free uint8_t *area = malloc(probe_area_bytes(probe));
	struct probe_ring *ring = (void *)(area + slow->states);
	const uint64_t heads[] = { 4, 5000, 1ull << 63, ~0ull, 64 };
	char to[64];

	(void)state;
	for (unsigned i = 0; i < COUNT(heads); i++) {
		probe_area_init(probe, area);
		memset(area + slow->values, 0xee, 64);
		ring->head = heads[i];
		assert_int_equal(probe_ring_take(slow, area, to, sizeof(to)), -EPROTO);
		assert_int_equal(ring->tail, heads[i] & ~7ull);
	}
	probe_free(probe);
}

static void threads_that_insert_one_key_share_its_value(void **state)
{
	enum { THREADS = 512, PAGES = 5 };
	struct belfry_probe_ctx contexts[THREADS] = { 0 };
	struct probe *probe = probe_read("pages", NULL);
	const struct probe_map *pages = probe_map_find(probe, "pages");
	struct probe_entry entry;
	uint64_t results[THREADS], cursor = 0, reads = 0, writes = 0, entries = 0;
	struct probe_rig rig;

	(void)state;
	probe_rig_open(&rig, probe, 0, true, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		contexts[i] = (struct belfry_probe_ctx){ .address = i % PAGES << 12 | i,
							 .size = 4,
							 .is_write = i % 2 };
	probe_rig_run(&rig, contexts, results, THREADS, 128);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(results[i], 0);
	while (probe_next(pages, probe_rig_area(&rig), &cursor, &entry)) {
		const uint64_t *bytes = entry.value;

		assert_true(*(const uint64_t *)entry.key < PAGES);
		reads += bytes[0];
		writes += bytes[1];
		entries++;
	}
	assert_int_equal(entries, PAGES);
	assert_int_equal(reads, 4 * THREADS / 2);
	assert_int_equal(writes, 4 * THREADS / 2);
	probe_rig_close(&rig);
	probe_free(probe);
}

static void unknown_index_is_checked_when_the_program_runs(void **state)
{
	enum { THREADS = 64 };
	struct belfry_probe_ctx contexts[THREADS] = { 0 };
	struct probe *probe = probe_read("spread", NULL);
	uint64_t results[THREADS];
	struct probe_rig rig;

	(void)state;
	probe_rig_open(&rig, probe, 0, true, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		contexts[i] = (struct belfry_probe_ctx){ .lane = i, .size = 3, .site = i };
	probe_rig_run(&rig, contexts, results, THREADS, 32);
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(results[i], (i % 8 + 1) << (i % 8));
	for (uint32_t i = 0; i < 8; i++) {
		uint32_t row = i % 2;
		const uint32_t *cells =
			probe_value(probe_map_find(probe, "rows"), probe_rig_area(&rig), &row, 0);

		assert_int_equal(cells[i], 3 * THREADS / 8);
	}
	assert_int_equal(((struct probe_area *)probe_rig_area(&rig))->out_of_bounds, 0);
	probe_rig_close(&rig);
	probe_free(probe);
}

static void fill(uint8_t *area, size_t bytes, uint64_t *seed)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		/* Many zeros and small numbers: they are states and positions. */
		uint64_t word = rig_random(seed) >> (rig_random(seed) % 4 * 20);

		memcpy(area + i, &word, sizeof(word));
	}
}

static void read_everything(const struct probe *probe, void *area)
{
	const struct probe_map *map;
	struct probe_entry entry;
	char to[64], key[PROBE_KEY_BYTES_MAX] = { 0 };

	for (size_t i = 0; (map = probe_map_at(probe, i)); i++) {
		uint64_t cursor = 0;

		while (probe_next(map, area, &cursor, &entry))
			assert_true((uint8_t *)entry.value + map->value_bytes <=
				    (uint8_t *)area + probe_area_bytes(probe));
		probe_value(map, area, key, 0);
		if (map->kind == PROBE_MAP_RING)
			for (unsigned n = 0; n < 1000; n++)
				probe_ring_take(map, area, to, sizeof(to));
	}
}

/* The program in which a probe runs writes what it wants to the maps. */
static void garbage_in_maps_causes_no_fault(void **state)
{
	enum { ROUNDS = 40, THREADS = 64 };
	uint64_t seed = 5, results[THREADS];

	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct probe *probe = probe_read(good[round % COUNT(good)], NULL);

		for (size_t k = 0; probe_program_at(probe, k); k++) {
			struct belfry_probe_ctx contexts[THREADS];
			struct probe_rig rig;

			probe_rig_open(&rig, probe, k, true, THREADS);
			fill(probe_rig_area(&rig), probe_area_bytes(probe), &seed);
			for (unsigned i = 0; i < THREADS; i++)
				contexts[i] = probe_random_context(&seed);
			probe_rig_run(&rig, contexts, results, THREADS,
				      THREADS); /* fails the test after a fault */
			read_everything(probe, probe_rig_area(&rig));
			probe_rig_close(&rig);
		}
		probe_free(probe);
	}
}

static uint64_t tell_time(void *ctx, uint32_t sm, uint64_t cost)
{
	(void)ctx;
	(void)sm;
	(void)cost;
	return 123456789;
}

static void helpers_read_the_timers(void **state)
{
	struct probe *probe = probe_read("timers", NULL);
	struct belfry_probe_ctx contexts[9] = { 0 };
	uint64_t results[9];
	struct probe_rig rig;

	(void)state;
	assert_false(probe_program_at(probe, 0)->is_per_thread);
	probe_rig_open(&rig, probe, 0, false, 9);
	rig.rig.host.now_ns = tell_time;
	probe_rig_run(&rig, contexts, results, 9, 3); /* on SMs 0 to 2 */
	for (unsigned i = 0; i < 9; i++)
		assert_int_equal(results[i], i % 3 ? UINT64_MAX : 123456789 + i / 3);
	probe_rig_close(&rig);
	probe_free(probe);
}

static void refusal_names_the_source_line(void **state)
{
	static const struct {
		const char *name, *words;
	} cases[] = {
		{ "backward", "the object needs more than 262144 steps to be checked" },
		{ "prints", "prints.bpf.c:12: it calls bpf_get_prandom_u32" },
		{ "writes", "writes.bpf.c:10: it writes to the context" },
		{ "wrong_event", "program enter is in section probe/grid_middle" },
	};

	(void)state;
	for (unsigned i = 0; i < COUNT(cases); i++) {
		size_t size = 0;
		cleanup_free void *data = probe_bytes(cases[i].name, &size);
		struct bf_error err;
		struct probe *probe;

		assert_int_equal(probe_open(data, size, NULL, &probe, &err), -EINVAL);
		assert_null(probe);
		assert_text_has(err.text, cases[i].words);
	}
}

static void policy_is_not_a_probe(void **state)
{
	struct bytes bytes = read_object("least");
	struct bf_error err;
	struct probe *probe;

	(void)state;
	assert_int_equal(probe_open(bytes.at, bytes.size, NULL, &probe, &err), -EINVAL);
	assert_text_has(err.text, "it is not a probe");
	free(bytes.at);
}

static void verifier_log_of_a_refused_object_is_returned(void **state)
{
	size_t size = 0;
	cleanup_free uint8_t *data = probe_bytes("count", &size);
	cleanup_free char *log = NULL;
	struct bf_error err;
	uint8_t *code = NULL;

	(void)state;
	need_ebpf();
	/* The last instruction becomes a jump to itself. Fuel bounds it here; the kernel refuses it. */
	for (size_t i = 0; i + 16 <= size && !code; i += 8)
		if (data[i] == (BPF_ALU | BPF_MOV | BPF_K) && data[i + 8] == (BPF_JMP | BPF_EXIT))
			code = data + i;
	assert_non_null(code);
	memcpy(code + 8, &(struct bpf_insn){ .code = BPF_JMP | BPF_JA, .off = -1 }, 8);
	assert_true(probe_verify(data, size, &log, &err) < 0);
	assert_text_has(err.text, "the kernel's verifier refuses program");
	assert_non_null(log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_verifies_the_objects),
		cmocka_unit_test(ptxas_assembles_every_program),
		cmocka_unit_test(thread_is_counted_once_however_often_the_program_runs),
		cmocka_unit_test(values_of_each_sm_are_separate),
		cmocka_unit_test(records_arrive_until_the_ring_is_full),
		cmocka_unit_test(full_ring_counts_what_it_drops),
		cmocka_unit_test(damaged_ring_is_emptied),
		cmocka_unit_test(threads_that_insert_one_key_share_its_value),
		cmocka_unit_test(unknown_index_is_checked_when_the_program_runs),
		cmocka_unit_test(garbage_in_maps_causes_no_fault),
		cmocka_unit_test(helpers_read_the_timers),
		cmocka_unit_test(refusal_names_the_source_line),
		cmocka_unit_test(policy_is_not_a_probe),
		cmocka_unit_test(verifier_log_of_a_refused_object_is_returned),
	};

	return cmocka_run_group_tests_name("probe_objects", tests, NULL, NULL);
}
