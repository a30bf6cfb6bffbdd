/* A policy's object in the kernel, and a table made by hand. What the tests of the policies share; in a header, since nothing
 * else is to be linked with libbpf. */
#ifndef BELFRY_TESTS_POLICIES_RIG_H
#define BELFRY_TESTS_POLICIES_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include <cmocka.h>

#include "../../include/belfry/policy.h"
#include "base/number.h"
#include "skipping.h"

#define US 1000ull
#define MS 1000000ull
#define S 1000000000ull
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct bpf_object *object;
static struct belfry_vgpu *table;
static uint64_t now_ns;
static uint32_t vgpu_count;

static inline size_t table_bytes(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = BELFRY_VGPUS_MAX * sizeof(struct belfry_vgpu);

	return bf_round_up(bytes, page);
}

struct tunable {
	const char *name;
	uint64_t value;
};

/* In the object's read-only data, where its types say it is. */
static inline void set_tunable(struct bpf_object *to, const struct tunable *tunable)
{
	struct btf *btf = bpf_object__btf(to);
	int section = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC);
	const struct btf_type *type = btf__type_by_id(btf, (uint32_t)section);
	const struct btf_var_secinfo *variable = btf_var_secinfos(type);
	struct bpf_map *map;
	size_t bytes;

	bpf_object__for_each_map(map, to)
	{
		const void *data = bpf_map__initial_value(map, &bytes);
		char changed[4096];

		if (!data || !strstr(bpf_map__name(map), ".rodata") ||
		    strstr(bpf_map__name(map), ".rodata.belfry"))
			continue;
		assert_true(bytes <= sizeof(changed));
		memcpy(changed, data, bytes);
		for (unsigned i = 0; i < btf_vlen(type); i++, variable++) {
			const struct btf_type *of = btf__type_by_id(btf, variable->type);

			if (strcmp(btf__name_by_offset(btf, of->name_off), tunable->name) == 0) {
				memcpy(changed + variable->offset, &tunable->value, variable->size);
				assert_int_equal(bpf_map__set_initial_value(map, changed, bytes), 0);
				return;
			}
		}
	}
	fail_msg("there is no tunable %s", tunable->name);
}

static inline bool is_refused(int error)
{
	return error == -EPERM || error == -EACCES || error == -ENOSYS;
}

/* Skips the test where eBPF may not be loaded. */
static inline void load_with(const char *name, const struct tunable *tunables)
{
	const char *build = getenv("BELFRY_BUILD_DIR");
	struct bpf_program *program;
	char path[4096];
	int error;

	snprintf(path, sizeof(path), "%s/policies/%s.bpf.o", build ? build : BELFRY_BUILD_DIR, name);
	object = bpf_object__open_file(path, NULL);
	if (!object)
		fail_msg("%s: %s", path, strerror(errno));
	for (; tunables && tunables->name; tunables++)
		set_tunable(object, tunables);
	bpf_object__for_each_program(program, object)
	{
		bpf_program__set_type(program, BPF_PROG_TYPE_SYSCALL);
		bpf_program__set_flags(program, BPF_F_SLEEPABLE);
	}
	error = bpf_object__load(object);
	if (is_refused(error) && geteuid() != 0)
		skip_case("this user may not load eBPF");
	if (is_refused(error) && bpf_prog_get_next_id(0, &(uint32_t){ 0 }) == -EPERM)
		skip_case("this root may not use bpf(2)");
	if (error)
		fail_msg("%s was not loaded: %s", name, strerror(-error));
	table = mmap(NULL, table_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
		     bpf_map__fd(bpf_object__find_map_by_name(object, "belfry_vgpus")), 0);
	assert_true(table != MAP_FAILED);
	now_ns = 1000 * S;
	vgpu_count = 0;
}

static inline void load(const char *name)
{
	load_with(name, NULL);
}

static inline int unload(void **state)
{
	(void)state;
	if (table && table != MAP_FAILED)
		munmap(table, table_bytes());
	table = NULL;
	bpf_object__close(object);
	object = NULL;
	return 0;
}

static inline struct belfry_head head(enum belfry_hook hook, uint32_t vgpu, size_t size)
{
	return (struct belfry_head){
		.now_ns = now_ns,
		.hook = hook,
		.size = (uint32_t)size,
		.count = vgpu_count,
		.vgpu = vgpu,
		.window_ns = S,
		.round_ns = 100 * MS,
		.slice_min_ns = 2 * MS,
	};
}

static inline uint32_t call(const char *hook, void *ctx, size_t size)
{
	struct bpf_test_run_opts options = { .sz = sizeof(options),
					     .ctx_in = ctx,
					     .ctx_size_in = (uint32_t)size };
	struct bpf_program *program;
	char section[64];

	snprintf(section, sizeof(section), "belfry/%s", hook);
	bpf_object__for_each_program(program, object)
	{
		if (strcmp(bpf_program__section_name(program), section) != 0)
			continue;
		assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(program), &options), 0);
		assert_in_range(options.retval, BELFRY_PROPOSE, BELFRY_DEFAULT);
		return options.retval;
	}
	fail_msg("there is no hook %s", hook);
	return BELFRY_DEFAULT;
}

/* A vGPU that may have the token; the rest is for the test to say. */
static inline struct belfry_vgpu *add(uint64_t id, enum belfry_class class)
{
	struct belfry_vgpu *vgpu = &table[vgpu_count++];

	*vgpu = (struct belfry_vgpu){
		.id = id,
		.flags = BELFRY_WAITS | BELFRY_MAY_HAVE,
		.class = class,
		.limit_ppm = BELFRY_WHOLE_PPM,
		.part_ppm = 500000,
		.percentile_ppm = 990000,
		.allowance_ns = ~0ull,
		.interleave = -1,
	};
	return vgpu;
}

static inline struct belfry_pick pick(void)
{
	struct belfry_pick ctx = { .head = head(BELFRY_HOOK_PICK, BELFRY_NOBODY, sizeof(ctx)),
				   .last = BELFRY_NOBODY,
				   .choice = BELFRY_NOBODY,
				   .beside = BELFRY_NOBODY };

	if (call("pick", &ctx, sizeof(ctx)) == BELFRY_DEFAULT)
		ctx.choice = BELFRY_NOBODY;
	return ctx;
}

static inline bool stops(uint32_t waiter, uint32_t holder)
{
	struct belfry_preempt ctx = { .head = head(BELFRY_HOOK_PREEMPT, waiter, sizeof(ctx)),
				      .holder = holder };

	return call("preempt", &ctx, sizeof(ctx)) == BELFRY_PROPOSE && ctx.stop;
}

static inline struct belfry_tick tick(uint32_t vgpu)
{
	struct belfry_tick ctx = { .head = head(BELFRY_HOOK_TICK, vgpu, sizeof(ctx)),
				   .interleave = -1,
				   .ride = -1 };

	call("tick", &ctx, sizeof(ctx));
	return ctx;
}

#define TEST(name) cmocka_unit_test_teardown(name, unload)

#endif
