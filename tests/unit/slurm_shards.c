/* What Slurm writes of the generic resources of a job, and what a job may have for its shards. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "slurm/comment.h"
#include "slurm/shards.h"

#define GIB (1ull << 30)
static const struct shards_rule rule = { .per_gpu = 16, .mem_bytes = GIB };

static void reads(const char *gres, struct shards_grant wanted)
{
	struct shards_grant got;

	assert_int_equal(shards_read(gres, &got, NULL), 0);
	assert_int_equal(got.shards, wanted.shards);
	assert_int_equal(got.gpus, wanted.gpus);
	assert_int_equal(got.spread, wanted.spread);
	assert_int_equal(got.gpu, wanted.gpu);
}

static void resources_are_read_as_slurm_writes_them(void **state)
{
	(void)state;
	reads("", (struct shards_grant){ .gpu = -1 });
	reads("shard:8(IDX:0)", (struct shards_grant){ .shards = 8, .spread = 1, .gpu = 0 });
	reads("gpu:1(IDX:2)", (struct shards_grant){ .gpus = 1, .spread = 1, .gpu = 2 });
	reads("gpu:a100:2(IDX:1-2)", (struct shards_grant){ .gpus = 2, .spread = 2, .gpu = 1 });
	reads("shard:a100:8(0/16,8/16)", (struct shards_grant){ .shards = 8, .spread = 1, .gpu = 1 });
	reads("shard:20(16/16,4/16)", (struct shards_grant){ .shards = 20, .spread = 2, .gpu = 0 });
	reads("gpu:1,shard:16", (struct shards_grant){ .gpus = 1, .shards = 16, .gpu = -1 });
	reads("gpu:4090:2(S:0-1),nic:3(IDX:0,2),shard:32(S:0-1)",
	      (struct shards_grant){ .gpus = 2, .shards = 32, .gpu = -1 });
	reads("gpu", (struct shards_grant){ .gpus = 1, .gpu = -1 });
	reads("shard:(null):8(IDX:3)", (struct shards_grant){ .shards = 8, .spread = 1, .gpu = 3 });
	reads("gpu:0,shard:(null):0(IDX:N/A)", (struct shards_grant){ .gpu = -1 });
}

static void resources_that_make_no_sense_do_no_harm(void **state)
{
	static const char *const texts[] = { ",,,",
					     "(((",
					     ")",
					     "shard:",
					     "shard:8(",
					     "shard:8(IDX:",
					     "gpu:8(IDX:9-1)",
					     "shard:1(99999999999999999999/1)",
					     "shard:1(IDX:0-4294967295)" };
	struct shards_grant got;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		shards_read(texts[i], &got, NULL);
	assert_int_equal(shards_read("shard:4294967297", &got, NULL), -ERANGE);
	assert_int_equal(shards_read("shard:1048576,shard:1", &got, NULL), -ERANGE);
}

static void memory_and_time_follow_from_the_shards(void **state)
{
	struct shards_grant grant = { .shards = 4, .spread = 1 };
	struct spec spec = spec_default;
	uint32_t parts = 0;

	(void)state;
	assert_int_equal(shards_fill(&rule, &grant, &spec, &parts, NULL), 0);
	assert_int_equal(spec.mem_bytes, 4 * GIB);
	assert_int_equal(spec.request_ppm, 250000);
	assert_int_equal(spec.limit_ppm, SPEC_WHOLE_PPM);
	assert_int_equal(parts, SPEC_MEM | SPEC_TIME);
}

static void a_whole_gpu_has_all_of_its_shards(void **state)
{
	struct shards_grant grant = { .gpus = 1, .spread = 1 };
	struct spec spec = spec_default;
	uint32_t parts = 0;

	(void)state;
	assert_int_equal(shards_fill(&rule, &grant, &spec, &parts, NULL), 0);
	assert_int_equal(spec.mem_bytes, 16 * GIB);
	assert_int_equal(spec.request_ppm, SPEC_WHOLE_PPM);
}

/* The requests of as many jobs as a GPU has shards fit on it. */
static void all_shards_together_are_at_most_the_gpu(void **state)
{
	(void)state;
	for (uint32_t per_gpu = 1; per_gpu < 200; per_gpu++) {
		struct shards_rule one = { .per_gpu = per_gpu, .mem_bytes = GIB };
		struct shards_grant grant = { .shards = 1 };
		struct spec spec = spec_default;
		uint32_t parts = 0;

		assert_int_equal(shards_fill(&one, &grant, &spec, &parts, NULL), 0);
		assert_true((uint64_t)spec.request_ppm * per_gpu <= SPEC_WHOLE_PPM);
	}
}

static void what_the_user_gives_is_kept_up_to_the_last_byte(void **state)
{
	struct shards_grant grant = { .shards = 8 };
	struct spec spec = {
		.mem_bytes = 8 * GIB, .request_ppm = 500000, .limit_ppm = 600000, .interleave = -1
	};
	uint32_t parts = SPEC_MEM | SPEC_TIME;
	struct bf_error err;

	(void)state;
	assert_int_equal(shards_fill(&rule, &grant, &spec, &parts, NULL), 0);
	assert_int_equal(spec.limit_ppm, 600000);
	spec.mem_bytes++;
	assert_int_equal(shards_fill(&rule, &grant, &spec, &parts, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "8 * 1 GiB = 8 GiB"));
	assert_non_null(strstr(err.text, "--gres=shard:9"));
	spec.mem_bytes = GIB;
	spec.request_ppm++;
	assert_int_equal(shards_fill(&rule, &grant, &spec, &parts, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "8 / 16 = 50 %"));
}

static void a_vgpu_is_on_one_gpu(void **state)
{
	struct shards_grant two = { .gpus = 2, .spread = 2 }, spread = { .shards = 8, .spread = 2 },
			    none = { 0 };
	struct spec spec = spec_default;
	uint32_t parts = 0;

	(void)state;
	assert_int_equal(shards_fill(&rule, &two, &spec, &parts, NULL), -ENOTSUP);
	assert_int_equal(shards_fill(&rule, &spread, &spec, &parts, NULL), -ENOTSUP);
	assert_int_equal(shards_fill(&rule, &none, &spec, &parts, NULL), -EDQUOT);
	assert_int_equal(shards_fill(&(struct shards_rule){ 0 }, &none, &spec, &parts, NULL), -EINVAL);
}

static void merges(const char *old, const char *wanted)
{
	struct comment_use use = { .gpu_ns = 1500000000, .most_bytes = GIB };
	char *got = comment_merge(old, "n1", &use);

	assert_string_equal(got, wanted);
	free(got);
}

static void the_comment_keeps_what_others_have_written(void **state)
{
	(void)state;
	merges(NULL, "belfry n1: GPU 1.500 s, memory at most 1 GiB");
	merges("", "belfry n1: GPU 1.500 s, memory at most 1 GiB");
	merges("belfry n1: GPU 0.100 s, memory at most 0 B", "belfry n1: GPU 1.500 s, memory at most 1 GiB");
	merges("paid; belfry n1: old; belfry n10: GPU 2.000 s, memory at most 0 B",
	       "paid; belfry n10: GPU 2.000 s, memory at most 0 B; belfry n1: GPU 1.500 s, memory at most 1 GiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resources_are_read_as_slurm_writes_them),
		cmocka_unit_test(resources_that_make_no_sense_do_no_harm),
		cmocka_unit_test(memory_and_time_follow_from_the_shards),
		cmocka_unit_test(a_whole_gpu_has_all_of_its_shards),
		cmocka_unit_test(all_shards_together_are_at_most_the_gpu),
		cmocka_unit_test(what_the_user_gives_is_kept_up_to_the_last_byte),
		cmocka_unit_test(a_vgpu_is_on_one_gpu),
		cmocka_unit_test(the_comment_keeps_what_others_have_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
