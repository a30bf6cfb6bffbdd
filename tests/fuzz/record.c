/* Bytes as a record: from a file, and an entry by itself. Whatever they are, what is taken for an entry can be read to its
 * end, and put to the built-in; and what is taken for work can be played, and that ends. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main() that spoils
 * entries: record [inputs]. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/play.h"
#include "replay/replay.h"

enum { EVENTS = 2000 };

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "record: violated: %s\n", what);
	abort();
}

static uint64_t sum_of(const void *bytes, size_t size)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < size; i++)
		sum += ((const uint8_t *)bytes)[i];
	return sum;
}

static void check_entry(const uint8_t *data, size_t size)
{
	struct record_entry *entry = malloc(size ? size : 1);

	if (!entry)
		return;
	memcpy(entry, data, size);
	if (!record_check(entry, size, NULL)) {
		check(size <= RECORD_ENTRY_MAX, "an entry has room in a buffer");
		check(sum_of(record_ctx(entry), entry->ctx_bytes) +
				      sum_of(record_table(entry),
					     entry->count * sizeof(struct belfry_vgpu)) <=
			      256 * size,
		      "all of it is there");
	}
	free(entry);
}

static void check_file(const uint8_t *data, size_t size)
{
	struct replay_result result;
	FILE *file = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;

	if (!file)
		return;
	if (!replay_run(file, NULL, 8, &result, NULL)) {
		check(result.same + result.different == result.asked, "every answer is one or the other");
		check(result.difference_count <= 8, "no more are kept than wanted");
		replay_free(&result);
	}
	fclose(file);
}

static void check_play(const uint8_t *data, size_t size)
{
	FILE *file = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct workload workload;
	struct play_result result;

	if (!file)
		return;
	if (!workload_read(file, &workload, NULL)) {
		check(workload.ns <= RECORD_LONGEST_NS, "no record is longer than a day");
		check(workload.vgpu_count <= WORKLOAD_VGPUS_MAX, "no more vGPUs than may be");
		check(!play_run(&workload, NULL, EVENTS, &result, NULL), "what was read can be played");
		check(result.events <= EVENTS && result.ns <= workload.ns, "a play ends");
		play_free(&result);
		workload_free(&workload);
	}
	fclose(file);
}

static size_t make_header(uint8_t *to)
{
	struct record_header header = { .abi = BELFRY_POLICY_ABI, .vgpu_size = sizeof(struct belfry_vgpu) };

	memcpy(header.magic, RECORD_MAGIC, sizeof(header.magic));
	memcpy(to, &header, sizeof(header));
	return sizeof(header);
}

/* Two vGPUs: one whose work is done and comes again, one whose is not. */
static size_t make_work(uint8_t *to, size_t room)
{
	const uint64_t ms = 1000000, begin = 1000 * ms;
	struct record_setup setup = record_setup_of(&sched_default);
	size_t size = make_header(to);

	size += record_make_other(RECORD_SETUP, begin, &setup, sizeof(setup), to + size, room - size);
	for (uint64_t id = 1; id <= 2; id++) {
		struct record_share share = { .id = id, .limit_ppm = 1000000, .class = id & 1 };

		size += record_make_other(RECORD_SHARE, begin, &share, sizeof(share), to + size, room - size);
	}
	for (uint64_t i = 0; i < 8; i++) {
		struct record_work work = { .id = 1 + i % 2,
					    .what = i < 2   ? RECORD_HERE
						    : i < 4 ? RECORD_CAME
						    : i & 1 ? RECORD_READ
							    : RECORD_DONE,
					    .came_ns = begin + i * ms,
					    .end_ns = begin + (i + 5) * ms,
					    .gpu_ns = i * ms,
					    .held_ns = i * ms };

		size += record_make_other(RECORD_WORK, begin + i * 20 * ms, &work, sizeof(work), to + size,
					  room - size);
	}
	return size;
}

static size_t make(uint8_t *to, size_t room)
{
	struct belfry_vgpu table[4];
	size_t size = make_header(to);

	for (uint32_t i = 0; i < 4; i++)
		table[i] = (struct belfry_vgpu){ .id = i + 1, .flags = BELFRY_MAY_HAVE, .part_ppm = 250000 };
	for (int i = 0; i < 2; i++) {
		enum belfry_hook hook = i ? BELFRY_HOOK_PICK : BELFRY_HOOK_PREEMPT;
		struct belfry_pick pick = { .head = { .hook = hook, .count = 4, .vgpu = 1 } };
		struct sched_decision decision = { .hook = hook, .got_id = 2 };

		size += record_make(&decision, &pick, sizeof(pick), table, to + size, room - size);
	}
	return size;
}

/* Here and there: three bytes say where and how. */
static void spoil(uint8_t *bytes, size_t all, const uint8_t *data, size_t size)
{
	check(all > sizeof(struct record_header), "entries are made");
	for (size_t i = 0; i + 3 <= size; i += 3)
		bytes[(data[i] | (size_t)data[i + 1] << 8) % all] = data[i + 2];
}

/* Good records of two questions, and of work, spoilt. */
static void check_spoilt(const uint8_t *data, size_t size)
{
	uint8_t bytes[4096];
	size_t all = make_work(bytes, sizeof(bytes));

	spoil(bytes, all, data, size);
	check_play(bytes, all);
	all = make(bytes, sizeof(bytes));
	spoil(bytes, all, data, size);
	check_file(bytes, all);
	check_entry(bytes + sizeof(struct record_header), (all - sizeof(struct record_header)) / 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_entry(data, size);
	check_file(data, size);
	check_play(data, size);
	check_spoilt(data, size);
	return 0;
}

#ifdef FUZZ_STANDALONE
int main(int argc, char **argv)
{
	long inputs = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
	uint8_t data[24];

	srand(1);
	check_spoilt(NULL, 0);
	for (long i = 0; i < inputs; i++) {
		for (size_t k = 0; k < sizeof(data); k++)
			data[k] = (uint8_t)(k % 3 == 1 ? rand() % 8 : rand());
		LLVMFuzzerTestOneInput(data, (size_t)rand() % (sizeof(data) + 1));
	}
	return 0;
}
#endif
