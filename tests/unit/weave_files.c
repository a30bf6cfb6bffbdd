/* weave: the PTX of tests/data/ptx with every shipped probe, one at a time and all together. ptxas assembles it. */
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "policy_rig.h"
#include "probe_rig.h"
#include "skipping.h"
#include "weave_rig.h"

static const char *const files[] = { "async",	"async_90", "block", "calls",  "grid",	 "groups", "language",
				     "library", "matrix",   "net",   "tensor", "triton", "vector", "words" };

static struct probe *probes[SHIPPED];

static int open_all(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SHIPPED; i++)
		probes[i] = weave_rig_probe("probes", shipped_names[i]);
	return 0;
}

static int close_all(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SHIPPED; i++)
		probe_free(probes[i]);
	return 0;
}

static const char *arch_of(const char *text, bool is_90)
{
	if (strstr(text, ".target sm_90a"))
		return "-arch=sm_90a";
	return is_90 || strstr(text, ".target sm_90") ? "-arch=sm_90" : "-arch=sm_80";
}

/* ptxas takes seconds: one probe for each file, and one of the two targets. */
static void ptxas_assembles_each_file_with_a_probe(void **state)
{
	(void)state;
	if (!probe_can_assemble())
		skip_case("there is no ptxas");
	for (unsigned i = 0; i < COUNT(files); i++) {
		cleanup_free char *text = weave_rig_file(files[i]);
		struct weave_probe probe = { .probe = probes[i % SHIPPED],
					     .area = 0x7f0012345600,
					     .period = i % 2 ? 100 : 1 };
		struct weave_result result;

		weave_rig_text(text, &probe, 1, &result);
		assert_non_null(result.text);
		probe_assemble_for(arch_of(text, i % 2), result.text);
		weave_result_free(&result);
	}
}

/* A kernel in the form that Triton gives it, with wgmma and tensor copies, with each probe and with those of bench/. */
static void ptxas_assembles_text_of_triton_with_every_probe(void **state)
{
	cleanup_free char *text = weave_rig_file("triton_dot");
	struct probe *all[SHIPPED + 2];

	(void)state;
	if (!probe_can_assemble())
		skip_case("there is no ptxas");
	for (unsigned i = 0; i < SHIPPED; i++)
		all[i] = probes[i];
	all[SHIPPED] = weave_rig_probe("bench", "probe_count");
	all[SHIPPED + 1] = weave_rig_probe("bench", "probe_time");
	for (unsigned i = 0; i < COUNT(all); i++) {
		struct weave_probe probe = {
			.probe = all[i], .area = 0x7f0012345600, .kernels = "belfry_*", .has_times = true
		};
		struct weave_result result;

		weave_rig_text(text, &probe, 1, &result);
		assert_int_equal(result.kernel_count, 1);
		assert_int_equal(result.kernels[0].probes, 1);
		probe_assemble_for("-arch=sm_90a", result.text);
		weave_result_free(&result);
	}
	probe_free(all[SHIPPED]);
	probe_free(all[SHIPPED + 1]);
}

static void ptxas_assembles_every_probe_together(void **state)
{
	cleanup_free char *text = weave_rig_file("vector");
	struct weave_probe list[SHIPPED];
	struct weave_result result;

	(void)state;
	if (!probe_can_assemble())
		skip_case("there is no ptxas");
	for (unsigned k = 0; k < SHIPPED; k++)
		list[k] = (struct weave_probe){ .probe = probes[k], .area = 0x10000ull * (k + 1) };
	weave_rig_text(text, list, SHIPPED, &result);
	probe_assemble(result.text);
	weave_result_free(&result);
}

static void every_kernel_of_every_file_is_woven(void **state)
{
	(void)state;
	for (unsigned i = 0; i < COUNT(files); i++) {
		cleanup_free char *text = weave_rig_file(files[i]);
		struct weave_probe list[SHIPPED];
		struct weave_result result;
		struct ptx_module *module;
		struct bf_error err;

		for (unsigned k = 0; k < SHIPPED; k++)
			list[k] = (struct weave_probe){ .probe = probes[k], .area = 0x10000ull * (k + 1) };
		weave_rig_text(text, list, SHIPPED, &result);
		assert_true(result.kernel_count > 0);
		for (size_t k = 0; k < result.kernel_count; k++) {
			const struct weave_kernel *kernel = &result.kernels[k];

			/* A kernel that only calls functions has no access of its own, for memtrace. */
			if (kernel->is_entry && ((kernel->probes | 1u << 3) != (1u << SHIPPED) - 1 ||
						 !kernel->exits || !kernel->enters))
				fail_msg("%s: %s: probes %#x, %u exits: %s", files[i], kernel->name,
					 kernel->probes, kernel->exits, kernel->reason);
		}
		if (ptx_module_load(result.text, result.length, &module, &err))
			fail_msg("%s: %s", files[i], err.text);
		ptx_module_free(module);
		weave_result_free(&result);
	}
}

static uint32_t registers_of(const struct ptx_module *module, const char *name)
{
	const struct ptx_kernel *kernel = ptx_kernel_find(module, name);

	assert_non_null(kernel);
	return kernel->register_count;
}

static struct ptx_module *load(const char *text)
{
	struct ptx_module *module = NULL;
	struct bf_error err;

	if (ptx_module_load(text, strlen(text), &module, &err))
		fail_msg("%s", err.text);
	return module;
}

/* 64 registers are the most with which a block of 1024 threads fits on an SM. */
static void a_small_kernel_with_a_probe_still_has_blocks_of_1024_threads(void **state)
{
	cleanup_free char *text = weave_rig_file("vector");
	struct ptx_module *plain = load(text);
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < SHIPPED; i++) {
		struct weave_probe probe = { .probe = probes[i], .area = 0x7f0012345600, .period = 1 };
		struct weave_result result;
		struct ptx_module *woven;

		weave_rig_text(text, &probe, 1, &result);
		woven = load(result.text);
		for (size_t k = 0; k < result.kernel_count; k++) {
			const char *name = result.kernels[k].name;
			uint32_t with = registers_of(woven, name);

			if (!result.kernels[k].is_entry || !result.kernels[k].probes ||
			    registers_of(plain, name) > 24)
				continue;
			if (with > 64)
				fail_msg("%s: %s needs %u registers, and %u without it", shipped_names[i],
					 name, with, registers_of(plain, name));
			seen++;
		}
		ptx_module_free(woven);
		weave_result_free(&result);
	}
	ptx_module_free(plain);
	assert_true(seen > SHIPPED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kernel_of_every_file_is_woven),
		cmocka_unit_test(a_small_kernel_with_a_probe_still_has_blocks_of_1024_threads),
		cmocka_unit_test(ptxas_assembles_each_file_with_a_probe),
		cmocka_unit_test(ptxas_assembles_every_probe_together),
		cmocka_unit_test(ptxas_assembles_text_of_triton_with_every_probe),
	};

	return cmocka_run_group_tests_name("weave_files", tests, open_all, close_all);
}
