/* probe: programs in the body of a kernel. */
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

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry kernel(.param .u64 p)\n{\n"

static char *write_body(const struct probe *probe, const struct probe_site *site)
{
	struct bf_error err;
	char *text;

	if (probe_write_body(probe, 0, site, &text, &err))
		fail_msg("%s", err.text);
	return text;
}

/* A kernel whose odd and even lanes are apart when they reach the same program. */
static char *write_divergent(const struct probe *probe)
{
	cleanup_free char *odd = write_body(probe, &(struct probe_site){ .prefix = "odd", .area = "%area" });
	cleanup_free char *even =
		write_body(probe, &(struct probe_site){ .prefix = "even", .area = "%area" });
	char *text;

	assert_true(
		asprintf(&text,
			 HEAD
			 ".reg .b64 %%area;\n.reg .b32 %%t;\n.reg .pred %%is_even;\n"
			 "ld.param.u64 %%area, [p];\nmov.u32 %%t, %%tid.x;\nand.b32 %%t, %%t, 1;\n"
			 "setp.eq.u32 %%is_even, %%t, 0;\n@%%is_even bra L;\n%sbra M;\nL:\n%sM:\nret;\n}\n",
			 odd, even) > 0);
	return text;
}

static unsigned field_named(const char *name)
{
	unsigned at = 0;

	while (strcmp(probe_field_at(at)->name, name) != 0)
		at++;
	return at;
}

static char *write_access(const struct probe *probe, const char *prefix, const char *is_write)
{
	struct probe_site site = { .prefix = prefix, .area = "%area", .stack = "shared_stack" };

	site.operands[field_named("address")] = "%address";
	site.operands[field_named("size")] = "4";
	site.operands[field_named("is_write")] = is_write;
	return write_body(probe, &site);
}

/* A load and a store of address 0x5123. */
static char *write_accesses(const struct probe *probe)
{
	cleanup_free char *load = write_access(probe, "load", "0"),
			  *store = write_access(probe, "store", "1");
	char *text;

	assert_null(strstr(load, ".local .align"));
	assert_true(asprintf(&text,
			     HEAD ".local .align 8 .b8 shared_stack[%u];\n.reg .b64 %%area, %%address;\n"
				  "ld.param.u64 %%area, [p];\nmov.u64 %%address, 0x5123;\n%s%sret;\n}\n",
			     probe_program_at(probe, 0)->stack_bytes, load, store) > 0);
	return text;
}

/* Runs a kernel in one block. Returns the area's address. */
static void *run_kernel(struct rig *rig, const struct probe *probe, const char *text, uint32_t threads)
{
	uint64_t area;

	rig_open_text(rig, text);
	area = rig_alloc(rig, probe_area_bytes(probe), NULL);
	probe_area_init(probe, rig_host(rig, area));
	rig_launch(rig, "kernel", (struct rig_shape){ .threads = { threads } }, &area, sizeof(area));
	return rig_host(rig, area);
}

static void body_fits_divergent_code_of_a_kernel(void **state)
{
	struct probe *probe = probe_read("count", NULL);
	cleanup_free char *text = write_divergent(probe);
	struct rig rig;
	void *area;

	(void)state;
	assert_int_equal(probe_program_at(probe, 0)->event, BELFRY_PROBE_KERNEL_ENTER);
	area = run_kernel(&rig, probe, text, 37);
	assert_true(probe_has_variable(probe, area, 37));
	assert_true(probe_has_variable(probe, area, 4)); /* two runs for each of two warps */
	rig_close(&rig);
	probe_free(probe);
}

static void bodies_take_operands_and_share_a_stack(void **state)
{
	struct probe *probe = probe_read("pages", NULL);
	cleanup_free char *text = write_accesses(probe);
	const uint64_t *bytes, page = 5;
	struct rig rig;
	void *area;

	(void)state;
	area = run_kernel(&rig, probe, text, 40);
	bytes = probe_value(probe_map_find(probe, "pages"), area, &page, 0);
	assert_non_null(bytes);
	assert_int_equal(bytes[0], 160);
	assert_int_equal(bytes[1], 160);
	rig_close(&rig);
	probe_free(probe);
}

/* ptxas keeps the stack in registers only then. */
static void stack_is_cleared_in_the_sizes_of_its_accesses(void **state)
{
	struct probe *probe = probe_read("spread", NULL);
	cleanup_free char *text = write_body(probe, &(struct probe_site){ .prefix = "x", .area = "%area" });

	(void)state;
	assert_non_null(strstr(text, "st.local.u32 [%x_stack+0], %x_t0;"));
	probe_free(probe);
}

static void ptxas_assembles_kernels_with_bodies(void **state)
{
	struct probe *count, *pages;

	(void)state;
	if (!probe_can_assemble())
		skip_case("there is no ptxas");
	count = probe_read("count", NULL);
	pages = probe_read("pages", NULL);
	{
		cleanup_free char *divergent = write_divergent(count), *accesses = write_accesses(pages);

		probe_assemble(divergent);
		probe_assemble(accesses);
	}
	probe_free(count);
	probe_free(pages);
}

static void site_with_an_invalid_name_is_refused(void **state)
{
	struct probe *probe = probe_read("count", NULL);
	struct probe_site sites[] = { { .prefix = "1x", .area = "0" },
				      { .prefix = "x", .area = "0; trap" },
				      { .prefix = "x", .area = NULL } };
	struct bf_error err;

	(void)state;
	for (unsigned i = 0; i < COUNT(sites); i++) {
		char *text = NULL;

		assert_int_equal(probe_write_body(probe, 0, &sites[i], &text, &err), -EINVAL);
		assert_null(text);
	}
	probe_free(probe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(body_fits_divergent_code_of_a_kernel),
		cmocka_unit_test(bodies_take_operands_and_share_a_stack),
		cmocka_unit_test(stack_is_cleared_in_the_sizes_of_its_accesses),
		cmocka_unit_test(ptxas_assembles_kernels_with_bodies),
		cmocka_unit_test(site_with_an_invalid_name_is_refused),
	};

	return cmocka_run_group_tests_name("probe_bodies", tests, NULL, NULL);
}
