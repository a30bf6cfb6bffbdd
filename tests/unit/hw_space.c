/* Memory and address spaces. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "hw_rig.h"

static struct hw_memory *make(struct hw_gpu *gpu, uint64_t bytes)
{
	struct hw_memory *memory;

	assert_int_equal(hw_memory_new(gpu, bytes, gpu != NULL, &memory, NULL), 0);
	return memory;
}

static void memory_is_zeroed_and_sealed(void **state)
{
	struct hw_memory *memory = make(NULL, 5000);
	int file = hw_memory_file(memory);

	(void)state;
	assert_int_equal(hw_memory_bytes(memory), 8192);
	for (unsigned i = 0; i < 8192; i++)
		assert_int_equal(hw_memory_at(memory)[i], 0);
	assert_true(ftruncate(file, 4096) < 0);
	assert_true(ftruncate(file, 1 << 20) < 0);
	assert_true(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	hw_memory_put(memory);
}

static void device_memory_runs_out(void **state)
{
	struct gpu_rig rig;
	struct hw_memory *a, *b;
	struct bf_error err = { 0 };

	(void)state;
	gpu_open(&rig, &(struct hw_options){ .mem_bytes = 1 << 20 }, false);
	a = make(rig.gpu, 1 << 19);
	assert_int_equal(hw_gpu_used_bytes(rig.gpu), 1 << 19);
	assert_int_equal(hw_memory_new(rig.gpu, (1 << 19) + 1, true, &b, &err), -ENOMEM);
	assert_int_equal(hw_memory_new(rig.gpu, ~0ull, true, &b, &err), -EINVAL);
	assert_int_equal(hw_memory_new(rig.gpu, 0, true, &b, &err), -EINVAL);
	b = make(rig.gpu, 1);
	assert_int_equal(hw_gpu_used_bytes(rig.gpu), (1 << 19) + SOFT_VIDMEM_ROUND);
	hw_memory_put(a);
	hw_memory_put(b);
	assert_int_equal(hw_gpu_used_bytes(rig.gpu), 0);
	gpu_close(&rig);
}

static void maps_do_not_overlap(void **state)
{
	struct gpu_rig rig;
	struct hw_space *space;
	struct hw_memory *memory;

	(void)state;
	gpu_open(&rig, NULL, false);
	memory = make(rig.gpu, 1 << 16);
	assert_int_equal(hw_space_new(rig.gpu, &space), 0);
	assert_int_equal(hw_space_map(space, 0x10000, memory, 0, 0x4000, true), 0);
	assert_int_equal(hw_space_map(space, 0x13000, memory, 0, 0x1000, true), -EEXIST);
	assert_int_equal(hw_space_map(space, 0xf000, memory, 0, 0x2000, true), -EEXIST);
	assert_int_equal(hw_space_map(space, 0x8000, memory, 0, 0x10000, true), -EEXIST);
	assert_int_equal(hw_space_map(space, 0x14000, memory, 0x1000, 0x1000, true), 0);
	assert_int_equal(hw_space_map(space, 0xf000, memory, 0x1000, 0x1000, true), 0);
	assert_int_equal(hw_space_map(space, 0x20001, memory, 0, 0x1000, true), -EINVAL);
	assert_int_equal(hw_space_map(space, 0x20000, memory, 0, 0x1001, true), -EINVAL);
	assert_int_equal(hw_space_map(space, 0x20000, memory, 0xf000, 0x2000, true), -EINVAL);
	assert_int_equal(hw_space_map(space, 0x20000, memory, 0, 0, true), -EINVAL);
	assert_int_equal(hw_space_map(space, 0x7ffffffff000, memory, 0, 0x2000, true), -EINVAL);
	assert_int_equal(hw_space_map(space, ~0xfffull, memory, 0, 0x2000, true), -EINVAL);
	hw_memory_put(memory);
	hw_space_put(space);
	gpu_close(&rig);
}

static void unmap_takes_whole_maps(void **state)
{
	struct gpu_rig rig;
	struct hw_space *space;
	struct hw_memory *memory;

	(void)state;
	gpu_open(&rig, NULL, false);
	memory = make(rig.gpu, 1 << 16);
	assert_int_equal(hw_space_new(rig.gpu, &space), 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(hw_space_map(space, 0x10000 + 0x2000 * i, memory, 0, 0x2000, true), 0);
	hw_memory_put(memory); /* the maps keep it */
	assert_int_equal(hw_space_unmap(space, 0x10000, 0x1000), -EINVAL);
	assert_int_equal(hw_space_unmap(space, 0x11000, 0x3000), -EINVAL);
	assert_int_equal(hw_space_unmap(space, 0x20000, 0x1000), -ENOENT);
	assert_int_equal(hw_space_unmap(space, 0x20000, ~0ull), -EINVAL);
	assert_int_equal(hw_space_unmap(space, 0x12000, 0x4000), 0);
	assert_int_equal(hw_space_unmap(space, 0x12000, 0x4000), -ENOENT);
	assert_true(hw_space_find(space, 0x10000, 0x4000, 0x1000) == 0x12000);
	assert_true(hw_space_find(space, 0x10000, 0x4001, 0x1000) == 0x18000);
	assert_true(hw_space_find(space, 0x10000, 0x1000, 0x10000) == 0x20000);
	assert_true(hw_space_find(space, 0x10000, 1ull << 47, 0x1000) == 0);
	assert_int_equal(hw_space_unmap(space, 0x10000, 0x8000), 0);
	assert_int_equal(hw_gpu_used_bytes(rig.gpu), 0);
	hw_space_put(space);
	gpu_close(&rig);
}

/* Kernels that store to one page without end, until the page goes. */
static const char *const store_text = ".version 8.0\n.target sm_90\n.address_size 64\n"
				      ".visible .entry store(.param .u64 out)\n{\n"
				      ".reg .b64 %p;\n.reg .b32 %i;\n"
				      "ld.param.u64 %p, [out];\nmov.u32 %i, 1;\n"
				      "LOOP:\nst.global.u32 [%p], %i;\nadd.u32 %i, %i, 1;\nbra LOOP;\n}\n";

static void unmap_while_running_ends_who_uses_it(void **state)
{
	const struct soft_notifier *n;
	struct gpu_rig rig;
	struct app app;
	uint64_t at, *word;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, store_text);
	at = app_alloc(&app, 1 << 16, NULL);
	word = app_host(&app, at);
	app_launch(&app, "store", (struct app_shape){ .grid = { 8 }, .threads = { 32 } }, &at, sizeof(at));
	app_submit(&app);
	while (!__atomic_load_n(word, __ATOMIC_RELAXED))
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	assert_int_equal(hw_space_unmap(app.space, at, 1 << 16), 0);
	n = app_wait_error(&app);
	assert_int_equal(n->error, SOFT_ERROR_MMU);
	assert_int_equal(n->fault, PTX_FAULT_ADDRESS);
	assert_true(n->address == at);
	assert_string_equal(n->kernel, "store");
	assert_int_equal(hw_gpu_used_bytes(rig.gpu), 0);
	app_close(&app);
	gpu_close(&rig);
}

/* Others' maps come and go while a kernel runs in the same space. */
static void maps_change_beside_a_kernel(void **state)
{
	struct gpu_rig rig;
	struct app app;
	uint64_t out;
	unsigned n = 0;

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, app_work_text);
	out = app_alloc(&app, 4096, NULL);
	app_time_work(&app, out, 16, 200000);
	app_submit(&app);
	for (; app_slot(&app, 1) != app.fence; n++) {
		struct hw_memory *memory = make(NULL, 4096);

		assert_int_equal(hw_space_map(app.space, 0x40000000 + 4096ull * n, memory, 0, 4096, true), 0);
		hw_memory_put(memory);
		if (n >= 10)
			assert_int_equal(hw_space_unmap(app.space, 0x40000000 + 4096ull * (n - 10), 4096), 0);
		assert_false(hw_channel_has_error(app.channel));
	}
	assert_true(n > 10);
	for (unsigned i = 0; i < 16 * 32; i++)
		assert_int_equal(((uint32_t *)app_host(&app, out))[i], app_work_result(200000, 1));
	app_close(&app);
	gpu_close(&rig);
}

static void read_only_maps_are_not_written(void **state)
{
	struct app_work_params params = { .out = 0x50000000, .rounds = 1 };
	struct gpu_rig rig;
	struct app app;
	struct hw_memory *memory = make(NULL, 4096);

	(void)state;
	gpu_open(&rig, NULL, true);
	app_open(&app, rig.gpu, app_work_text);
	assert_int_equal(hw_space_map(app.space, 0x50000000, memory, 0, 4096, false), 0);
	app_launch(&app, "work", (struct app_shape){ .threads = { 32 } }, &params, sizeof(params));
	app_submit(&app);
	assert_int_equal(app_wait_error(&app)->error, SOFT_ERROR_MMU);
	hw_memory_put(memory);
	app_close(&app);
	gpu_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_zeroed_and_sealed),
		cmocka_unit_test(device_memory_runs_out),
		cmocka_unit_test(maps_do_not_overlap),
		cmocka_unit_test(unmap_takes_whole_maps),
		cmocka_unit_test(unmap_while_running_ends_who_uses_it),
		cmocka_unit_test(maps_change_beside_a_kernel),
		cmocka_unit_test(read_only_maps_are_not_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
