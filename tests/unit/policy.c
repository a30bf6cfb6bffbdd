/* policy: eBPF objects as policies: which are refused and with what words, what a call gives, and when a policy is put out.
 * The objects are those of tests/policies. What must be loaded is skipped where the kernel takes no eBPF from us. */
#include "policy/policy.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct bytes {
	uint8_t *at;
	size_t size;
};

static struct bytes read_object(const char *name)
{
	struct bytes bytes = { .at = malloc(1 << 20) };
	cleanup_file FILE *file = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/policies/%s.bpf.o", BELFRY_BUILD_DIR, name);
	file = fopen(path, "re");
	if (!file)
		fail_msg("%s: %s", path, strerror(errno));
	bytes.size = fread(bytes.at, 1, 1 << 20, file);
	assert_in_range(bytes.size, 1, (1 << 20) - 1);
	return bytes;
}

static void need_ebpf(void)
{
	struct bf_error err;

	if (!policy_is_possible(&err))
		return;
	print_message("skipped: %s\n", err.text);
	skip();
}

/* Loaded, or the test fails with the reason. */
static struct policy *load(const char *name, const struct policy_options *options)
{
	struct bytes bytes = read_object(name);
	struct policy *policy;
	struct bf_error err;
	char *log = NULL;

	policy = policy_load(bytes.at, bytes.size, options, &log, &err);
	free(bytes.at);
	if (!policy)
		fail_msg("%s: %s\n%s", name, err.text, log ? log : "");
	assert_null(log);
	return policy;
}

static void assert_text_has(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' does not say '%s'", text, words);
}

static void assert_bytes_are_refused(const void *bytes, size_t size, int code, const char *words)
{
	struct policy_description description;
	struct bf_error err = { 0 };

	/* As long as it is and no longer: a sanitizer sees the first byte too far. */
	cleanup_free uint8_t *copy = malloc(size ? size : 1);
	memcpy(copy, bytes, size);
	assert_int_equal(policy_describe(copy, size, &description, &err), -code);
	assert_int_equal(err.code, code);
	assert_text_has(err.text, words);
	assert_null(strchr(err.text, '\n'));
	/* Nothing of it reaches the kernel. */
	err = (struct bf_error){ 0 };
	assert_null(policy_load(copy, size, NULL, NULL, &err));
	assert_int_equal(err.code, code);
	assert_text_has(err.text, words);
}

static void objects_that_are_wrong_are_refused_in_one_line(void **state)
{
	static const struct {
		const char *name;
		int code;
		const char *words;
	} wrong[] = {
		{ "wrong_hook", EINVAL, "there is no hook 'pikc'" },
		{ "wrong_section", EINVAL, "is in section kprobe/do_exit" },
		{ "no_hooks", EINVAL, "it has no hooks" },
		{ "two_picks", EINVAL, "programs one and other are both for the hook pick" },
		{ "no_name", EINVAL, "it does not say what it is" },
		{ "bad_name", EINVAL, "its name is none" },
		{ "no_table", EINVAL, "it has no map belfry_vgpus" },
		{ "small_table", EINVAL, "its map belfry_vgpus is another" },
		{ "table_not_mapped", EINVAL, "its map belfry_vgpus is another" },
		{ "forbidden_map", EPERM, "map programs: policies have arrays" },
		{ "large_map", EFBIG, "map large: the maps are too large" },
		{ "many_maps", E2BIG, "maps, of at most 16" },
		{ "pinned_map", EPERM, "map shared: it is to be pinned by name" },
		{ "closes_files", EPERM, "it calls bpf_sys_close" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(wrong); i++) {
		struct bytes bytes = read_object(wrong[i].name);

		assert_bytes_are_refused(bytes.at, bytes.size, wrong[i].code, wrong[i].words);
		free(bytes.at);
	}
}

static void what_is_no_object_is_refused(void **state)
{
	static const char text[] = "int pick(void) { return 0; }";
	struct bytes bytes = read_object("least");

	(void)state;
	assert_bytes_are_refused("", 0, ENOEXEC, "no ELF file");
	assert_bytes_are_refused(text, sizeof(text), ENOEXEC, "no ELF file");
	((Elf64_Ehdr *)bytes.at)->e_machine = EM_X86_64;
	assert_bytes_are_refused(bytes.at, bytes.size, ENOEXEC, "but no eBPF object");
	free(bytes.at);
	bytes.at = calloc(1, (16 << 20) + 1);
	memcpy(bytes.at, ELFMAG, SELFMAG);
	assert_bytes_are_refused(bytes.at, (16 << 20) + 1, EFBIG,
				 "too large: 16777217 bytes, of at most 16777216");
	free(bytes.at);
}

static void object_that_is_cut_anywhere_is_refused(void **state)
{
	struct bytes bytes = read_object("least");

	(void)state;
	for (size_t size = SELFMAG; size < bytes.size; size += 97)
		assert_bytes_are_refused(bytes.at, size, EINVAL, "it is damaged");
	free(bytes.at);
}

/* Each number of the types becomes one that makes no sense; whatever is made of it, nothing falls over it. */
static void object_with_damaged_types_is_refused_or_understood(void **state)
{
	const uint16_t btf_magic = 0xeb9f;
	struct bytes bytes = read_object("least");
	struct policy_description description;
	uint8_t *btf = memmem(bytes.at, bytes.size, &btf_magic, sizeof(btf_magic));
	unsigned refused = 0;

	(void)state;
	assert_non_null(btf);
	for (uint32_t *number = (uint32_t *)(btf + 24); number < (uint32_t *)(btf + 1024); number++) {
		uint32_t good = *number;

		*number = 0x00ffffff;
		refused += policy_describe(bytes.at, bytes.size, &description, NULL) != 0;
		*number = good;
	}
	assert_in_range(refused, 50, 250);
	assert_int_equal(policy_describe(bytes.at, bytes.size, &description, NULL), 0);
	free(bytes.at);
}

static struct belfry_policy *find_says(struct bytes bytes)
{
	const uint32_t magic = BELFRY_POLICY_MAGIC;
	uint8_t *at = memmem(bytes.at, bytes.size, &magic, sizeof(magic));

	assert_non_null(at);
	return (struct belfry_policy *)at;
}

static void what_an_object_says_of_itself_is_checked(void **state)
{
	struct bytes bytes = read_object("least");
	struct belfry_policy *says = find_says(bytes), good = *says;

	(void)state;
	says->abi = 2;
	assert_bytes_are_refused(bytes.at, bytes.size, EPROTO,
				 "it was made for policy ABI 2, and this Belfry has 1");
	*says = good;
	says->magic++;
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "what it says of itself is damaged");
	*says = good;
	says->pick_size += 8;
	assert_bytes_are_refused(bytes.at, bytes.size, EPROTO, "other sizes");
	*says = good;
	memset(says->name, 'x', sizeof(says->name));
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "its name is none");
	*says = good;
	says->what[2] = '\n';
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "not one line");
	free(bytes.at);
}

static const struct policy_tunable *find_tunable(const struct policy_description *description,
						 const char *name)
{
	for (size_t i = 0; i < description->tunable_count; i++)
		if (!strcmp(description->tunables[i].name, name))
			return &description->tunables[i];
	fail_msg("there is no tunable %s", name);
	return NULL;
}

static void object_is_described_without_loading_it(void **state)
{
	struct bytes bytes = read_object("least");
	struct policy_description description;
	struct bf_error err;
	char all[1024] = "";

	(void)state;
	if (policy_describe(bytes.at, bytes.size, &description, &err))
		fail_msg("%s", err.text);
	free(bytes.at);
	assert_string_equal(description.policy.name, "least");
	assert_int_equal(description.hooks, 1u << BELFRY_HOOK_PICK | 1u << BELFRY_HOOK_DUMP);
	assert_int_equal(description.tunable_count, 6); /* an array is none */
	assert_int_equal(find_tunable(&description, "slice_us")->value, 500);
	assert_int_equal(find_tunable(&description, "slice_us")->bytes, 4);
	assert_int_equal(find_tunable(&description, "offset")->value, -3);
	assert_int_equal(find_tunable(&description, "offset")->bytes, 1);
	assert_int_equal(find_tunable(&description, "is_strict")->value, 1);
	assert_int_equal(find_tunable(&description, "mode")->value, 1);
	for (size_t i = 0; i < description.map_count; i++) {
		strcat(all, description.maps[i]);
		strcat(all, "\n");
	}
	assert_text_has(all, "picked: hash of 64\n");
	assert_text_has(all, "belfry_vgpus: array of 256\n");
}

static void hooks_have_names_and_contexts(void **state)
{
	(void)state;
	for (int hook = 0; hook < BELFRY_HOOKS; hook++) {
		assert_non_null(policy_hook_name((enum belfry_hook)hook));
		assert_in_range(policy_ctx_size((enum belfry_hook)hook), sizeof(struct belfry_head), 65535);
	}
	assert_string_equal(policy_hook_name(BELFRY_HOOK_OBJECTIVE_MISSED), "objective_missed");
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_PICK), sizeof(struct belfry_pick));
	assert_int_equal(policy_ctx_size(BELFRY_HOOKS), 0);
}

/* Objects that were compiled with ABI 1 stay good: what is here has its place for ever. */
static void abi_keeps_its_places(void **state)
{
	(void)state;
	assert_int_equal(BELFRY_POLICY_ABI, 1);
	assert_int_equal(sizeof(struct belfry_vgpu), 216);
	assert_int_equal(offsetof(struct belfry_vgpu, pass_ns), 80);
	assert_int_equal(offsetof(struct belfry_vgpu, sm_ppm), 192);
	assert_int_equal(sizeof(struct belfry_head), 56);
	assert_int_equal(sizeof(struct belfry_policy), 216);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_DUMP), 568);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_VGPU_INIT), 160);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_CTX_INIT), 88);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_ENQUEUE), 64);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_PICK), 80);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_STOPPING), 88);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_TICK), 80);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_PREEMPT), 64);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_MEM_ALLOC), 112);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_MEM_PRESSURE), 72);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_OBJECTIVE_MISSED), 72);
	assert_int_equal(policy_ctx_size(BELFRY_HOOK_FAULT), 72);
}

static struct belfry_pick pick_of(uint32_t count)
{
	return (struct belfry_pick){
		.head = { .hook = BELFRY_HOOK_PICK,
			  .size = sizeof(struct belfry_pick),
			  .count = count,
			  .vgpu = BELFRY_NOBODY },
		.last = BELFRY_NOBODY,
		.choice = BELFRY_NOBODY,
	};
}

static void fill_table(struct policy *policy, uint32_t count, uint32_t least)
{
	struct belfry_vgpu *table = policy_table(policy);

	for (uint32_t i = 0; i < count; i++)
		table[i] = (struct belfry_vgpu){ .id = i + 1,
						 .flags = BELFRY_MAY_HAVE,
						 .pass_ns = i == least ? -5 : 5 };
}

static int call_pick(struct policy *policy, struct belfry_pick *pick)
{
	*pick = pick_of(pick->head.count);
	return policy_call(policy, BELFRY_HOOK_PICK, pick, sizeof(*pick));
}

static void hook_reads_the_table_and_proposes(void **state)
{
	struct belfry_pick pick = pick_of(BELFRY_VGPUS_MAX);
	struct belfry_dump dump = { .head = { .size = sizeof(dump) } };
	struct policy_info info;
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load("least", NULL);
	assert_string_equal(policy_name(policy), "least");
	assert_string_equal(policy_what(policy), "whoever is furthest behind is next");
	assert_string_equal(policy_pinned(policy), "");
	assert_true(policy_has(policy, BELFRY_HOOK_PICK));
	assert_false(policy_has(policy, BELFRY_HOOK_TICK));
	for (uint32_t least = 0; least < BELFRY_VGPUS_MAX; least += 51) {
		fill_table(policy, BELFRY_VGPUS_MAX, least);
		assert_int_equal(call_pick(policy, &pick), BELFRY_PROPOSE);
		assert_int_equal(pick.choice, least);
		assert_int_equal(pick.slice_ns, 499997);
		assert_int_equal(pick.units, 2 + 4 + 2);
	}
	pick.head.count = 0;
	assert_int_equal(call_pick(policy, &pick), BELFRY_DEFAULT);
	assert_int_equal(policy_call(policy, BELFRY_HOOK_DUMP, &dump, sizeof(dump)), BELFRY_PROPOSE);
	assert_string_equal(dump.text, "hi");
	policy_info(policy, &info);
	assert_false(info.is_out);
	assert_int_equal(info.hooks[BELFRY_HOOK_PICK].calls, 7);
	assert_int_equal(info.hooks[BELFRY_HOOK_PICK].defaults, 1);
	assert_int_equal(info.hooks[BELFRY_HOOK_PICK].errors, 0);
	assert_in_range(info.hooks[BELFRY_HOOK_PICK].most_ns, 1, info.hooks[BELFRY_HOOK_PICK].total_ns);
	policy_put(policy);
	policy_put(NULL);
}

static void call_of_what_is_not_there_costs_nothing(void **state)
{
	struct belfry_tick tick = { 0 };
	struct belfry_pick pick = pick_of(0);
	struct policy_info info;
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load("least", NULL);
	assert_int_equal(policy_call(policy, BELFRY_HOOK_TICK, &tick, sizeof(tick)), -ENOENT);
	assert_int_equal(policy_call(policy, BELFRY_HOOK_PICK, &pick, sizeof(pick) - 8), -EMSGSIZE);
	policy_info(policy, &info);
	assert_false(info.is_out);
	policy_put(policy);
}

static void tunables_change_what_a_policy_does(void **state)
{
	static const char *const sets[] = {
		"slice_us=0x10", "offset=-128", "large=7", "mode=0", "deep=-9223372036854775808",
		"is_strict=true"
	};
	const struct policy_options options = { .sets = sets, .set_count = COUNT(sets) };
	struct belfry_pick pick = pick_of(1);
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load("least", &options);
	fill_table(policy, 1, 0);
	assert_int_equal(call_pick(policy, &pick), BELFRY_PROPOSE);
	assert_int_equal(pick.slice_ns, 16000 - 128);
	assert_int_equal(pick.units, 1 + 2);
	policy_put(policy);
}

static void assert_set_is_refused(const char *set, int code, const char *words)
{
	struct bytes bytes = read_object("least");
	struct bf_error err = { 0 };
	const struct policy_options options = { .sets = &set, .set_count = 1 };

	assert_null(policy_load(bytes.at, bytes.size, &options, NULL, &err));
	free(bytes.at);
	assert_int_equal(err.code, code);
	assert_text_has(err.text, words);
}

static void tunables_are_held_to_their_size(void **state)
{
	(void)state;
	assert_set_is_refused("slice_us=4294967296", ERANGE, "slice_us is a number of 32 bits");
	assert_set_is_refused("slice_us=-1", ERANGE, "slice_us is a number of 32 bits");
	assert_set_is_refused("offset=128", ERANGE, "offset is a signed number of 8 bits");
	assert_set_is_refused("offset=-129", ERANGE, "offset is a signed number of 8 bits");
	assert_set_is_refused("large=18446744073709551616", ERANGE, "large is a number of 64 bits");
	assert_set_is_refused("deep=9223372036854775808", ERANGE, "deep is a signed number of 64 bits");
	assert_set_is_refused("is_strict=2", ERANGE, "is_strict is a number of 1 bits");
	assert_set_is_refused("is_strict=maybe", EINVAL, "true or false");
	assert_set_is_refused("slice_us=", EINVAL, "not a whole number");
	assert_set_is_refused("slice_us=5x", EINVAL, "not a whole number");
	assert_set_is_refused("slice_us= 5", EINVAL, "not a whole number");
	assert_set_is_refused("slice_us", EINVAL, "not NAME=VALUE");
	assert_set_is_refused("=5", EINVAL, "not NAME=VALUE");
	assert_set_is_refused("slice=5", ENOENT, "'slice' cannot be set: this policy has");
	assert_set_is_refused("slice=5", ENOENT, "slice_us, ");
	assert_set_is_refused("several=5", ENOENT, "'several' cannot be set");
	assert_set_is_refused("picks=5", ENOENT, "'picks' cannot be set");
}

static void verifier_is_quoted_with_its_last_lines_first(void **state)
{
	struct bytes bytes = read_object("unverified");
	cleanup_free char *log = NULL;
	struct bf_error err = { 0 };

	(void)state;
	need_ebpf();
	assert_null(policy_load(bytes.at, bytes.size, NULL, &log, &err));
	assert_int_equal(err.code, EACCES);
	assert_text_has(err.text, "verifier refuses program pick_blindly: ");
	assert_text_has(err.text, "map_value_or_null");
	assert_non_null(log);
	assert_ptr_equal(strstr(log, "program pick_blindly, the last lines first:\nR"), log);
	assert_text_has(strchr(log, '\n'), "map_value_or_null");
	assert_null(strstr(log, "processed "));
	/* And without anywhere to put it. */
	assert_null(policy_load(bytes.at, bytes.size, NULL, NULL, &err));
	free(bytes.at);
}

static void assert_is_out(struct policy *policy, const char *words)
{
	struct policy_info info;

	policy_info(policy, &info);
	assert_true(info.is_out);
	assert_text_has(info.why, words);
}

static void answer_that_is_none_puts_a_policy_out(void **state)
{
	struct belfry_init init = { .head = { .size = sizeof(init) } };
	struct policy *policy;
	struct policy_info info;

	(void)state;
	need_ebpf();
	policy = load("seven", NULL);
	assert_int_equal(policy_call(policy, BELFRY_HOOK_INIT, &init, sizeof(init)), -EPROTO);
	assert_is_out(policy, "its hook init returned 7");
	assert_int_equal(policy_call(policy, BELFRY_HOOK_INIT, &init, sizeof(init)), -ENOENT);
	policy_info(policy, &info);
	assert_int_equal(info.hooks[BELFRY_HOOK_INIT].calls, 1);
	assert_int_equal(info.hooks[BELFRY_HOOK_INIT].errors, 1);
	policy_put(policy);
}

static void hook_that_reaches_past_its_context_puts_a_policy_out(void **state)
{
	struct belfry_init init = { .head = { .size = sizeof(init) } };
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load("seven", NULL);
	assert_int_equal(policy_call(policy, BELFRY_HOOK_EXIT, &init, sizeof(init)), -EINVAL);
	assert_is_out(policy, "past its context");
	policy_put(policy);
}

static void caller_can_put_a_policy_out_once(void **state)
{
	struct belfry_pick pick = pick_of(0);
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load("least", NULL);
	policy_fail(policy, "nobody had the GPU for 2 s");
	policy_fail(policy, "another reason");
	assert_is_out(policy, "nobody had the GPU for 2 s");
	assert_int_equal(call_pick(policy, &pick), -ENOENT);
	policy_put(policy);
}

static int call_slow(struct policy *policy, uint64_t rounds)
{
	struct belfry_enqueue enqueue = { .head = { .size = sizeof(enqueue) }, .deadline_ns = rounds };

	return policy_call(policy, BELFRY_HOOK_ENQUEUE, &enqueue, sizeof(enqueue));
}

/* As many rounds as take this long at least. */
static uint64_t rounds_for(uint64_t ns)
{
	const struct policy_options patient = { .budget_ns = 100000000000 };
	struct policy *policy = load("slow", &patient);
	struct policy_info info;
	uint64_t rounds = 1;

	for (;; rounds *= 2) {
		uint64_t before;

		policy_info(policy, &info);
		before = info.hooks[BELFRY_HOOK_ENQUEUE].total_ns;
		assert_int_equal(call_slow(policy, rounds), BELFRY_PROPOSE);
		policy_info(policy, &info);
		if (info.hooks[BELFRY_HOOK_ENQUEUE].total_ns - before >= ns)
			break;
		assert_in_range(rounds, 1, 1 << 22);
	}
	policy_put(policy);
	return rounds;
}

static void policy_that_is_late_again_and_again_is_put_out(void **state)
{
	const struct policy_options hasty = { .budget_ns = 1 };
	struct policy_info info;
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load("slow", &hasty);
	for (int i = 0; i < 7; i++)
		assert_int_equal(call_slow(policy, 0), BELFRY_PROPOSE);
	assert_int_equal(call_slow(policy, 0), -ETIME);
	assert_int_equal(call_slow(policy, 0), -ENOENT);
	assert_is_out(policy, "its hook enqueue took longer than 0 us, as 8 of its last 64 calls did");
	policy_info(policy, &info);
	assert_int_equal(info.hooks[BELFRY_HOOK_ENQUEUE].late, 8);
	assert_int_equal(info.hooks[BELFRY_HOOK_ENQUEUE].errors, 1);
	policy_put(policy);
}

static void policy_that_is_late_at_times_stays(void **state)
{
	const struct policy_options options = { .budget_ns = 5000000 };
	struct policy_info info;
	struct policy *policy;
	uint64_t rounds;

	(void)state;
	need_ebpf();
	rounds = rounds_for(6000000);
	policy = load("slow", &options);
	/* 4 of 64: preemption may make a few more of them late. */
	for (int i = 0; i < 10 * 16; i++)
		if (call_slow(policy, i % 16 ? 0 : rounds) < 0)
			break;
	policy_info(policy, &info);
	if (info.is_out)
		fail_msg("%s", info.why);
	policy_put(policy);
}

static void one_call_that_eats_the_cpu_puts_a_policy_out(void **state)
{
	struct policy *policy;
	uint64_t rounds;

	(void)state;
	need_ebpf();
	rounds = rounds_for(60000000) * 4;
	policy = load("slow", NULL);
	assert_int_equal(call_slow(policy, rounds), -ETIME);
	assert_is_out(policy, "ms of CPU time in one call");
	policy_put(policy);
}

static unsigned count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void loading_leaves_nothing_open(void **state)
{
	struct bytes good = read_object("least"), bad = read_object("unverified");
	unsigned before;

	(void)state;
	need_ebpf();
	policy_put(load("least", NULL)); /* what libbpf asks the kernel once */
	before = count_fds();
	for (int i = 0; i < 200; i++) {
		struct policy *policy = policy_load(good.at, good.size, NULL, NULL, NULL);

		assert_non_null(policy);
		policy_put(policy);
		if (i % 8 == 0)
			assert_null(policy_load(bad.at, bad.size, NULL, NULL, NULL));
	}
	assert_int_equal(count_fds(), before);
	free(good.at);
	free(bad.at);
}

static void one_object_can_be_two_policies(void **state)
{
	struct belfry_pick pick = pick_of(2);
	struct policy *one, *other;

	(void)state;
	need_ebpf();
	one = load("least", NULL);
	other = load("least", NULL);
	fill_table(one, 2, 0);
	fill_table(other, 2, 1);
	assert_int_equal(call_pick(one, &pick), BELFRY_PROPOSE);
	assert_int_equal(pick.choice, 0);
	policy_put(one);
	assert_int_equal(call_pick(other, &pick), BELFRY_PROPOSE);
	assert_int_equal(pick.choice, 1);
	policy_put(other);
}

struct caller {
	pthread_t thread;
	struct policy *policy;
	_Atomic uint64_t calls;
	int last;
};

static void *call_until_it_is_out(void *data)
{
	struct caller *caller = data;
	struct belfry_pick pick = pick_of(8);

	do {
		caller->last = call_pick(caller->policy, &pick);
		atomic_fetch_add(&caller->calls, 1);
	} while (caller->last >= 0);
	policy_put(caller->policy);
	return NULL;
}

static void policy_may_go_while_it_is_called(void **state)
{
	const struct policy_options patient = { .budget_ns = 10000000000 };

	(void)state;
	need_ebpf();
	for (int i = 0; i < 20; i++) {
		struct caller callers[2] = { 0 };
		struct policy *policy = load("least", &patient);

		fill_table(policy, 8, 3);
		for (size_t j = 0; j < COUNT(callers); j++) {
			callers[j].policy = policy_get(policy);
			assert_int_equal(
				pthread_create(&callers[j].thread, NULL, call_until_it_is_out, &callers[j]),
				0);
		}
		for (size_t j = 0; j < COUNT(callers); j++)
			while (atomic_load(&callers[j].calls) < 20)
				sched_yield();
		policy_fail(policy, "the test is over");
		policy_put(policy);
		for (size_t j = 0; j < COUNT(callers); j++) {
			pthread_join(callers[j].thread, NULL);
			assert_int_equal(callers[j].last, -ENOENT);
		}
	}
}

static char bpffs_folder[32];

/* A bpffs of this process alone, in a folder that is removed again; skips the test where that is not allowed. */
static const char *private_bpffs(void)
{
	char *folder = bpffs_folder;

	if (folder[0])
		return folder;
	need_ebpf();
	snprintf(folder, sizeof(bpffs_folder), "/tmp/belfry-pin-XXXXXX");
	if (!mkdtemp(folder))
		fail_msg("%s: %s", folder, strerror(errno));
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("bpf", folder, "bpf", 0, NULL)) {
		print_message("skipped: no bpffs can be mounted: %s\n", strerror(errno));
		rmdir(folder);
		folder[0] = 0;
		skip();
	}
	return folder;
}

static unsigned count_entries(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	unsigned count = 0;

	if (!folder)
		return 0;
	while ((entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

static void remove_entries(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;

	assert_non_null(folder);
	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
	closedir(folder);
}

static bool has_entry(const char *folder, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !access(path, F_OK);
}

static void maps_are_pinned_as_long_as_the_policy_is_there(void **state)
{
	const char *bpffs = private_bpffs();
	char pins[128];
	struct policy_options options = { .pin_folder = pins };
	struct policy *policy;
	struct stat st;

	(void)state;
	snprintf(pins, sizeof(pins), "%s/belfry/gpu0/least", bpffs);
	policy = load("least", &options);
	assert_string_equal(policy_pinned(policy), pins);
	assert_true(has_entry(pins, "belfry_vgpus"));
	assert_true(has_entry(pins, "picked"));
	assert_true(has_entry(pins, "rodata"));
	assert_true(has_entry(pins, "rodata_belfry"));
	assert_true(has_entry(pins, "bss"));
	assert_int_equal(stat(pins, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	policy_put(policy);
	assert_false(has_entry(bpffs, "belfry"));
}

static void pins_that_are_removed_from_outside_stop_nothing(void **state)
{
	const char *bpffs = private_bpffs();
	struct belfry_pick pick = pick_of(4);
	char pins[128];
	struct policy_options options = { .pin_folder = pins };
	struct policy *policy;

	(void)state;
	snprintf(pins, sizeof(pins), "%s/least", bpffs);
	policy = load("least", &options);
	remove_entries(pins);
	assert_int_equal(rmdir(pins), 0);
	fill_table(policy, 4, 2);
	assert_int_equal(call_pick(policy, &pick), BELFRY_PROPOSE);
	assert_int_equal(pick.choice, 2);
	policy_put(policy);
	assert_false(has_entry(bpffs, "least"));
}

static void pins_of_the_dead_are_replaced_and_those_of_the_next_kept(void **state)
{
	const char *bpffs = private_bpffs();
	char pins[128];
	struct policy_options options = { .pin_folder = pins };
	struct policy *old, *next;
	unsigned left;
	int status = 0;
	pid_t pid;

	(void)state;
	snprintf(pins, sizeof(pins), "%s/belfry/least", bpffs);
	pid = fork();
	if (!pid) {
		load("least", &options);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	left = count_entries(pins);
	assert_in_range(left, 5, 16);
	old = load("least", &options);
	assert_string_equal(policy_pinned(old), pins);
	next = load("least", &options);
	assert_string_equal(policy_pinned(next), pins);
	policy_put(old);
	assert_int_equal(count_entries(pins), left);
	policy_put(next);
	assert_false(has_entry(bpffs, "belfry"));
}

static void assert_is_not_pinned(const char *folder, const char *words)
{
	struct policy_options options = { .pin_folder = folder };
	struct belfry_pick pick = pick_of(0);
	struct policy *policy = load("least", &options);

	assert_ptr_equal(strstr(policy_pinned(policy), "not pinned: "), policy_pinned(policy));
	assert_text_has(policy_pinned(policy), words);
	assert_int_equal(call_pick(policy, &pick), BELFRY_DEFAULT);
	policy_put(policy);
}

static void where_nothing_can_be_pinned_a_policy_works_without(void **state)
{
	const char *bpffs = private_bpffs();
	char long_path[400];

	(void)state;
	assert_is_not_pinned("/tmp/belfry-no-bpffs/gpu0", "is in no bpffs");
	assert_int_not_equal(access("/tmp/belfry-no-bpffs", F_OK), 0);
	assert_is_not_pinned("relative", "not a path");
	memset(long_path, 'x', sizeof(long_path));
	long_path[0] = '/';
	long_path[sizeof(long_path) - 1] = 0;
	assert_is_not_pinned(long_path, "not a path");
	/* The bpffs itself is everybody's. */
	assert_is_not_pinned(bpffs, "not a folder of ours alone");
	assert_int_equal(access(bpffs, F_OK), 0);
}

static void it_is_said_why_ebpf_is_not_possible(void **state)
{
	struct bytes bytes = read_object("least");
	struct bf_error err = { 0 };
	int status = 0;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		bool is_said;

		if (!geteuid() && setuid(65534))
			_exit(1);
		is_said = policy_is_possible(&err) == -EPERM && strstr(err.text, "it lacks CAP_BPF");
		err = (struct bf_error){ 0 };
		is_said = is_said && !policy_load(bytes.at, bytes.size, NULL, NULL, &err) &&
			  err.code == EPERM && strstr(err.text, "it lacks CAP_BPF");
		if (!is_said)
			fprintf(stderr, "said was: %s\n", err.text);
		_exit(is_said ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	free(bytes.at);
	assert_int_equal(status, 0);
}

static int remove_bpffs(void **state)
{
	(void)state;
	if (bpffs_folder[0] && (umount(bpffs_folder) || rmdir(bpffs_folder)))
		return -1;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_that_are_wrong_are_refused_in_one_line),
		cmocka_unit_test(what_is_no_object_is_refused),
		cmocka_unit_test(object_that_is_cut_anywhere_is_refused),
		cmocka_unit_test(object_with_damaged_types_is_refused_or_understood),
		cmocka_unit_test(what_an_object_says_of_itself_is_checked),
		cmocka_unit_test(object_is_described_without_loading_it),
		cmocka_unit_test(hooks_have_names_and_contexts),
		cmocka_unit_test(abi_keeps_its_places),
		cmocka_unit_test(tunables_are_held_to_their_size),
		cmocka_unit_test(it_is_said_why_ebpf_is_not_possible),
		cmocka_unit_test(hook_reads_the_table_and_proposes),
		cmocka_unit_test(call_of_what_is_not_there_costs_nothing),
		cmocka_unit_test(tunables_change_what_a_policy_does),
		cmocka_unit_test(verifier_is_quoted_with_its_last_lines_first),
		cmocka_unit_test(answer_that_is_none_puts_a_policy_out),
		cmocka_unit_test(hook_that_reaches_past_its_context_puts_a_policy_out),
		cmocka_unit_test(caller_can_put_a_policy_out_once),
		cmocka_unit_test(policy_that_is_late_again_and_again_is_put_out),
		cmocka_unit_test(policy_that_is_late_at_times_stays),
		cmocka_unit_test(one_call_that_eats_the_cpu_puts_a_policy_out),
		cmocka_unit_test(loading_leaves_nothing_open),
		cmocka_unit_test(one_object_can_be_two_policies),
		cmocka_unit_test(policy_may_go_while_it_is_called),
		cmocka_unit_test(maps_are_pinned_as_long_as_the_policy_is_there),
		cmocka_unit_test(pins_that_are_removed_from_outside_stop_nothing),
		cmocka_unit_test(pins_of_the_dead_are_replaced_and_those_of_the_next_kept),
		cmocka_unit_test(where_nothing_can_be_pinned_a_policy_works_without),
	};

	return cmocka_run_group_tests(tests, NULL, remove_bpffs);
}
