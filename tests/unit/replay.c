/* replay: a record of decisions of the simulated GPU, read back, and put to the built-in and to another policy. */
#include "replay/replay.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own.h"
#include "sched_sim.h"
#include "skipping.h"

struct recorder {
	FILE *file;
	uint64_t entries, questions;
	uint8_t buffer[RECORD_ENTRY_MAX];
};

static void decided(void *context, const struct sched_decision *decision, const void *ctx, size_t size,
		    const struct belfry_vgpu *table)
{
	struct recorder *recorder = context;
	size_t bytes = record_make(decision, ctx, size, table, recorder->buffer, sizeof(recorder->buffer));

	assert_true(bytes > 0);
	assert_int_equal(record_check(recorder->buffer, bytes, NULL), 0);
	assert_int_equal(fwrite(recorder->buffer, bytes, 1, recorder->file), 1);
	recorder->entries++;
	recorder->questions += decision->hook == BELFRY_HOOK_PICK || decision->hook == BELFRY_HOOK_PREEMPT;
}

/* Five of all kinds for five seconds; by tokens alone, so that some are stopped for others. */
static struct recorder *record(uint64_t seed)
{
	struct recorder *recorder = calloc(1, sizeof(*recorder));
	struct sched_watch watch = { decided, recorder, true };
	struct sched_options options = sched_default;
	struct sched_share shares[] = { sim_request(30), sim_limit(10, 20), sim_latency(20), sim_request(0),
					sim_latency(5) };
	const struct sim_load *loads[] = { &sim_busy_load, &sim_synchronous, &sim_now_and_then, &sim_small,
					   &sim_now_and_then };
	struct sim *sim;

	assert_non_null(recorder);
	recorder->file = tmpfile();
	assert_non_null(recorder->file);
	assert_int_equal(record_write_header(recorder->file, NULL), 0);
	options.how = seed % 2 ? SCHED_TOKENS : SCHED_AUTO;
	options.is_measured = seed % 4 > 1;
	sim = sim_new(&options, seed, 6 * S);
	sched_watch(sim->sched, &watch);
	for (unsigned i = 0; i < 5; i++)
		sim_add(sim, &shares[i], loads[i]);
	sim_run(sim, 5 * S);
	sim_free(sim);
	rewind(recorder->file);
	return recorder;
}

static void recorder_free(struct recorder *recorder)
{
	fclose(recorder->file);
	free(recorder);
}

static void the_built_in_decides_the_same_again(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct recorder *recorder = record(seed);
		struct replay_result result;
		struct bf_error err;

		assert_int_equal(replay_run(recorder->file, NULL, 10, &result, &err), 0);
		assert_int_equal(result.entries, recorder->entries);
		assert_int_equal(result.asked, recorder->questions);
		assert_true(result.asked > 100);
		assert_int_equal(result.different, 0);
		assert_int_equal(result.same, result.asked);
		assert_int_equal(result.difference_count, 0);
		assert_int_equal(result.vgpu_count, 5 - (seed % 2 ? 0 : 2));
		for (size_t i = 0; i < result.vgpu_count; i++) {
			assert_int_equal(result.vgpus[i].picked[0], result.vgpus[i].picked[1]);
			assert_int_equal(result.vgpus[i].slice_ns[0], result.vgpus[i].slice_ns[1]);
			assert_int_equal(result.vgpus[i].stopped_for[0], result.vgpus[i].stopped_for[1]);
		}
		assert_true(result.last_ns - result.first_ns > 4 * S);
		replay_free(&result);
		recorder_free(recorder);
	}
}

static struct policy *load_last(void)
{
	struct bf_error err;
	struct policy *policy;
	uint8_t object[1 << 16];
	size_t bytes;
	FILE *file;

	if (policy_is_possible(&err)) {
		skip_case(err.text);
	}
	file = fopen(BELFRY_BUILD_DIR "/tests/policies/last.bpf.o", "re");
	assert_non_null(file);
	bytes = fread(object, 1, sizeof(object), file);
	fclose(file);
	policy = policy_load(object, bytes, &(struct policy_options){ .budget_ns = S }, NULL, &err);
	if (!policy)
		fail_msg("%s", err.text);
	return policy;
}

/* What tests/policies/last.bpf.c says. */
static bool differs(const struct record_entry *entry)
{
	const struct belfry_vgpu *table = record_table(entry);
	struct belfry_pick pick;

	if (entry->hook == BELFRY_HOOK_PREEMPT)
		return entry->got_ns != 0;
	if (entry->hook != BELFRY_HOOK_PICK)
		return false;
	memcpy(&pick, record_ctx(entry), sizeof(pick));
	pick.choice = pick.beside = BELFRY_NOBODY;
	pick.slice_ns = 7 * MS;
	for (uint32_t i = 0; i < entry->count; i++)
		if (table[i].flags & BELFRY_MAY_HAVE)
			pick.choice = i;
	sched_clamp_pick(table, &pick);
	return table[pick.choice].id != entry->got_id || pick.slice_ns != entry->got_ns;
}

static void another_policy_differs_where_it_decides_otherwise(void **state)
{
	struct policy *policy = load_last();
	struct recorder *recorder = record(3);
	struct replay_result result;
	struct bf_error err;
	uint64_t different = 0;

	(void)state;
	assert_int_equal(replay_run(recorder->file, policy, 50, &result, &err), 0);
	assert_string_equal(result.why, "");
	rewind(recorder->file);
	assert_int_equal(record_read_header(recorder->file, NULL), 0);
	while (record_read(recorder->file, recorder->buffer, NULL) == 1) {
		const struct record_entry *entry = (const void *)recorder->buffer;

		if (!differs(entry))
			continue;
		if (different < 50) {
			assert_int_equal(result.differences[different].at_ns, entry->at_ns);
			assert_int_equal(result.differences[different].hook, entry->hook);
			assert_int_equal(result.differences[different].was_ns, entry->got_ns);
		}
		different++;
	}
	assert_true(different > 100);
	assert_int_equal(result.different, different);
	assert_int_equal(result.same + result.different, result.asked);
	assert_int_equal(result.difference_count, 50);
	replay_free(&result);
	recorder_free(recorder);
	policy_put(policy);
}

static void what_is_no_entry_is_refused(void **state)
{
	struct recorder *recorder = record(1);
	struct record_entry *entry = (void *)recorder->buffer, good;
	struct bf_error err;

	(void)state;
	assert_int_equal(record_read_header(recorder->file, &err), 0);
	do
		assert_int_equal(record_read(recorder->file, recorder->buffer, &err), 1);
	while (entry->hook != BELFRY_HOOK_PREEMPT);
	good = *entry;
	for (size_t size = 0; size < good.bytes; size++)
		assert_int_equal(record_check(entry, size, &err), -EBADMSG);
	assert_int_equal(record_check(entry, good.bytes, &err), 0);
	entry->bytes--;
	assert_int_equal(record_check(entry, good.bytes, &err), -EBADMSG);
	*entry = good;
	entry->count = 0x10000001;
	assert_int_equal(record_check(entry, good.bytes, &err), -EBADMSG);
	*entry = good;
	entry->ctx_bytes = UINT32_MAX - 7;
	assert_int_equal(record_check(entry, good.bytes, &err), -EBADMSG);
	assert_string_equal(err.text, "invalid record entry: a context of 4294967288 bytes");
	*entry = good;
	entry->hook = BELFRY_HOOKS;
	assert_int_equal(record_check(entry, good.bytes, &err), -EBADMSG);
	*entry = good;
	((struct belfry_preempt *)(entry + 1))->holder = entry->count;
	assert_int_equal(record_check(entry, good.bytes, &err), -EBADMSG);
	recorder_free(recorder);
}

/* The file without its last bytes. */
static void cut(struct recorder *recorder, long bytes)
{
	assert_int_equal(fseek(recorder->file, 0, SEEK_END), 0);
	assert_int_equal(ftruncate(fileno(recorder->file), ftell(recorder->file) - bytes), 0);
	rewind(recorder->file);
}

static void a_record_that_is_cut_off_is_used_as_far_as_it_goes(void **state)
{
	struct recorder *recorder = record(2);
	long cuts[] = { 1, ((struct record_entry *)(void *)recorder->buffer)->bytes - 5 };
	struct replay_result result;
	struct bf_error err;

	(void)state;
	assert_int_equal(replay_run(recorder->file, NULL, 1, &result, &err), 0);
	assert_false(result.is_cut_off);
	replay_free(&result);
	/* In the middle of the last one, and in its first few bytes. */
	for (int i = 0; i < 2; i++) {
		cut(recorder, i ? cuts[1] - cuts[0] : cuts[0]);
		assert_int_equal(replay_run(recorder->file, NULL, 1, &result, &err), 0);
		assert_true(result.is_cut_off);
		assert_int_equal(result.entries, recorder->entries - 1);
		assert_int_equal(result.same, result.asked);
		replay_free(&result);
	}
	cut(recorder, 5);
	assert_int_equal(replay_run(recorder->file, NULL, 1, &result, &err), 0);
	assert_false(result.is_cut_off);
	assert_int_equal(result.entries, recorder->entries - 1);
	replay_free(&result);
	recorder_free(recorder);
}

/* An entry that says it is longer or shorter than it can be, with others after it, is no end of a record. */
static void sizes_that_do_not_add_up_are_no_end(void **state)
{
	static const uint32_t sizes[] = { sizeof(struct record_entry), 0, 56000, UINT32_MAX };
	const long at = sizeof(struct record_header) +
			offsetof(struct record_entry, bytes); /* of the first */
	struct replay_result result;
	struct bf_error err;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct recorder *recorder = record(2);

		assert_int_equal(fseek(recorder->file, at, SEEK_SET), 0);
		assert_int_equal(fwrite(&sizes[i], sizeof(sizes[i]), 1, recorder->file), 1);
		rewind(recorder->file);
		assert_int_equal(replay_run(recorder->file, NULL, 1, &result, &err), -EBADMSG);
		replay_free(&result);
		recorder_free(recorder);
	}
}

/* As a full disk leaves it. */
static void a_record_is_mended_by_cutting_off_what_is_not_whole(void **state)
{
	static const long cuts[] = { 0, 1, sizeof(struct record_entry) + 20 };
	struct replay_result result;
	struct record_kept kept;
	struct bf_error err;

	(void)state;
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		struct recorder *recorder = record(2);

		cut(recorder, cuts[i]);
		assert_int_equal(record_mend(recorder->file, &kept, &err), 0);
		assert_int_equal(kept.decisions, recorder->entries - (cuts[i] > 0));
		assert_int_equal(kept.lost, 0);
		rewind(recorder->file);
		assert_int_equal(replay_run(recorder->file, NULL, 1, &result, &err), 0);
		assert_false(result.is_cut_off);
		assert_int_equal(result.entries, kept.decisions);
		replay_free(&result);
		recorder_free(recorder);
	}
}

static void a_record_without_a_whole_header_is_mended_to_nothing(void **state)
{
	cleanup_file FILE *file = tmpfile();
	struct record_kept kept;

	(void)state;
	assert_non_null(file);
	assert_int_equal(fwrite(RECORD_MAGIC, 8, 1, file), 1);
	assert_int_equal(fflush(file), 0);
	assert_int_equal(record_mend(file, &kept, NULL), 0);
	assert_int_equal(kept.decisions, 0);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	assert_int_equal(ftell(file), 0);
}

/* One that a policy or somebody else has written. */
static void introduce(FILE *file, enum belfry_hook hook, uint64_t id, const char *name, size_t length)
{
	struct sched_decision decision = { .hook = hook, .got_id = id };
	struct belfry_vgpu_init ctx = { .head = { .hook = hook, .vgpu = BELFRY_NOBODY }, .id = id };
	uint64_t entry[64];
	size_t bytes;

	memcpy(ctx.name, name, length);
	bytes = record_make(&decision, &ctx, sizeof(ctx), NULL, entry, sizeof(entry));
	assert_true(bytes > 0);
	assert_int_equal(fwrite(entry, bytes, 1, file), 1);
}

static void names_that_cannot_be_shown_are_left_out(void **state)
{
	static const char *const bad[] = { "\033[2J\033]0;owned\007", "\xff\xfe", "a\nb", "\x7f",
					   "\xc3\xa4" };
	enum { BAD = sizeof(bad) / sizeof(bad[0]) };
	char endless[BELFRY_NAME_SIZE];
	cleanup_file FILE *file = tmpfile();
	struct replay_result result;
	struct bf_error err;

	(void)state;
	assert_non_null(file);
	memset(endless, 'x', sizeof(endless));
	assert_int_equal(record_write_header(file, NULL), 0);
	introduce(file, BELFRY_HOOK_VGPU_INIT, 1, "one", 3);
	introduce(file, BELFRY_HOOK_VGPU_SET, 2, "two", 3);
	for (uint64_t i = 0; i < BAD; i++) {
		introduce(file, BELFRY_HOOK_VGPU_INIT, 1, bad[i], strlen(bad[i]));
		introduce(file, BELFRY_HOOK_VGPU_SET, 3 + i, bad[i], strlen(bad[i]));
	}
	introduce(file, BELFRY_HOOK_VGPU_SET, 2, endless, sizeof(endless));
	rewind(file);
	assert_int_equal(replay_run(file, NULL, 1, &result, &err), 0);
	assert_int_equal(result.entries, 3 + 2 * BAD);
	assert_int_equal(result.vgpu_count, 2);
	assert_string_equal(result.vgpus[0].name, "one");
	assert_string_equal(result.vgpus[1].name, "two");
	replay_free(&result);
}

static void noise_at_the_end_is_not_taken_for_a_cut(void **state)
{
	struct record_entry noise = { .bytes = 4096, .hook = BELFRY_HOOKS };
	struct recorder *recorder = record(2);
	struct replay_result result;
	struct bf_error err;

	(void)state;
	assert_int_equal(fseek(recorder->file, 0, SEEK_END), 0);
	assert_int_equal(fwrite(&noise, sizeof(noise), 1, recorder->file), 1);
	rewind(recorder->file);
	assert_int_equal(replay_run(recorder->file, NULL, 1, &result, &err), -EBADMSG);
	assert_null(result.vgpus);
	recorder_free(recorder);
}

static void a_record_without_its_header_or_another_s_is_refused(void **state)
{
	static const char text[] = "what is not a record of decisions at all";
	struct record_header header = { .abi = BELFRY_POLICY_ABI + 1, .vgpu_size = 8 };
	cleanup_file FILE *other = tmpfile();
	struct replay_result result;
	struct bf_error err;

	(void)state;
	assert_int_equal(fwrite(RECORD_MAGIC, 8, 1, other), 1);
	rewind(other);
	assert_int_equal(replay_run(other, NULL, 1, &result, &err), -EBADMSG);
	assert_string_equal(err.text, "not a record of decisions");
	rewind(other);
	assert_int_equal(fwrite(text, sizeof(text), 1, other), 1);
	rewind(other);
	assert_int_equal(replay_run(other, NULL, 1, &result, &err), -EBADMSG);
	assert_string_equal(err.text, "not a record of decisions");
	memcpy(header.magic, "BELFRYR1", sizeof(header.magic));
	rewind(other);
	assert_int_equal(fwrite(&header, sizeof(header), 1, other), 1);
	rewind(other);
	assert_int_equal(replay_run(other, NULL, 1, &result, &err), -EPROTONOSUPPORT);
	assert_string_equal(err.text, "the record is from another release of Belfry; record again");
	memcpy(header.magic, RECORD_MAGIC, sizeof(header.magic));
	rewind(other);
	assert_int_equal(fwrite(&header, sizeof(header), 1, other), 1);
	rewind(other);
	assert_int_equal(replay_run(other, NULL, 1, &result, &err), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_built_in_decides_the_same_again),
		cmocka_unit_test(another_policy_differs_where_it_decides_otherwise),
		cmocka_unit_test(what_is_no_entry_is_refused),
		cmocka_unit_test(a_record_that_is_cut_off_is_used_as_far_as_it_goes),
		cmocka_unit_test(sizes_that_do_not_add_up_are_no_end),
		cmocka_unit_test(a_record_is_mended_by_cutting_off_what_is_not_whole),
		cmocka_unit_test(a_record_without_a_whole_header_is_mended_to_nothing),
		cmocka_unit_test(names_that_cannot_be_shown_are_left_out),
		cmocka_unit_test(noise_at_the_end_is_not_taken_for_a_cut),
		cmocka_unit_test(a_record_without_its_header_or_another_s_is_refused),
	};

	return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
