/* policy: eBPF objects as policies: which are refused and with what words, what a call gives, and when a policy is put out.
 * The objects are those of tests/policies. What must be loaded is skipped where the kernel takes no eBPF from us. */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/own.h"
#include "policy_rig.h"

static void assert_bytes_are_refused(const void *bytes, size_t size, int code, const char *words)
{
	struct policy_description description;
	struct bf_error err = { 0 };

	/* As long as it is and no longer: a sanitizer sees the first byte too far. */
	cleanup_free uint8_t *copy = malloc(size ? size : 1);
	memcpy(copy, bytes, size);
	assert_int_equal(policy_describe(copy, size, NULL, 0, &description, &err), -code);
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
		{ "no_name", EINVAL, "it has no policy header" },
		{ "bad_name", EINVAL, "its name is invalid" },
		{ "no_table", EINVAL, "it has no map belfry_vgpus" },
		{ "small_table", EINVAL, "its map belfry_vgpus differs" },
		{ "table_not_mapped", EINVAL, "its map belfry_vgpus differs" },
		{ "forbidden_map", EPERM, "map programs: type 3 is not allowed" },
		{ "large_map", EFBIG, "map large: the maps are too large" },
		{ "many_maps", E2BIG, "maps; the maximum is 16" },
		{ "large_bss", EFBIG,
		  "its global variables are too large: the maximum for all maps is 64 MiB" },
		{ "many_tunables", E2BIG, "it has 65 tunables; the maximum is 64" },
		{ "pinned_map", EPERM, "map shared: remove 'pinning'" },
		{ "closes_files", EPERM, "it calls bpf_sys_close" },
		{ "reads_memory", EPERM, "it calls bpf_probe_read_kernel" },
		{ "outlives", EPERM, "it calls bpf_timer_init" },
		{ "kills", EPERM, "it refers to 'bpf_task_from_pid', which is not in it" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(wrong); i++) {
		struct bytes bytes = read_object(wrong[i].name);

		assert_bytes_are_refused(bytes.at, bytes.size, wrong[i].code, wrong[i].words);
		free(bytes.at);
	}
}

/* The first section of that type, or with these flags. */
static Elf64_Shdr find_section(struct bytes bytes, uint32_t type, uint64_t flags)
{
	Elf64_Ehdr head;
	Elf64_Shdr section;

	memcpy(&head, bytes.at, sizeof(head));
	for (size_t i = 1; i < head.e_shnum; i++) {
		memcpy(&section, bytes.at + head.e_shoff + i * sizeof(section), sizeof(section));
		if (section.sh_type == type && (section.sh_flags & flags) == flags && section.sh_size)
			return section;
	}
	fail_msg("there is no such section");
	return section;
}

/* Where a function could begin that nobody has looked at. */
static void calls_in_half_an_instruction_are_found(void **state)
{
	const struct bpf_insn wide = { .code = BPF_LD | BPF_IMM | BPF_DW },
			      call = { .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_send_signal };
	struct bytes bytes = read_object("least");
	Elf64_Shdr code = find_section(bytes, SHT_PROGBITS, SHF_EXECINSTR);

	(void)state;
	memcpy(bytes.at + code.sh_offset, &wide, sizeof(wide));
	memcpy(bytes.at + code.sh_offset + sizeof(wide), &call, sizeof(call));
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "half an instruction");
	memcpy(bytes.at + code.sh_offset, &call, sizeof(call));
	assert_bytes_are_refused(bytes.at, bytes.size, EPERM, "it calls bpf_send_signal");
	memcpy(bytes.at + code.sh_offset + code.sh_size - sizeof(wide), &wide, sizeof(wide));
	memset(bytes.at + code.sh_offset, 0, sizeof(call));
	memset(bytes.at + code.sh_offset + sizeof(wide), 0, sizeof(call));
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "half an instruction");
	free(bytes.at);
}

static void the_first_symbol_is_nobodys(void **state)
{
	struct bytes bytes = read_object("least");
	Elf64_Shdr symbols = find_section(bytes, SHT_SYMTAB, 0);

	(void)state;
	memcpy(bytes.at + symbols.sh_offset, bytes.at + symbols.sh_offset + sizeof(Elf64_Sym),
	       sizeof(Elf64_Sym));
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "it is damaged");
	free(bytes.at);
}

static void what_is_no_object_is_refused(void **state)
{
	static const char text[] = "int pick(void) { return 0; }";
	struct bytes bytes = read_object("least");

	(void)state;
	assert_bytes_are_refused("", 0, ENOEXEC, "not an ELF file");
	assert_bytes_are_refused(text, sizeof(text), ENOEXEC, "not an ELF file");
	((Elf64_Ehdr *)bytes.at)->e_machine = EM_X86_64;
	assert_bytes_are_refused(bytes.at, bytes.size, ENOEXEC, "but not an eBPF object");
	((Elf64_Ehdr *)bytes.at)->e_ident[EI_DATA] = ELFDATA2MSB;
	assert_bytes_are_refused(bytes.at, bytes.size, ENOEXEC, "but not an eBPF object");
	((Elf64_Ehdr *)bytes.at)->e_machine = __builtin_bswap16(EM_BPF);
	assert_bytes_are_refused(bytes.at, bytes.size, ENOEXEC, "the other byte order");
	free(bytes.at);
	bytes.at = calloc(1, (16 << 20) + 1);
	memcpy(bytes.at, ELFMAG, SELFMAG);
	assert_bytes_are_refused(bytes.at, (16 << 20) + 1, EFBIG,
				 "too large: 16777217 bytes; the maximum is 16777216");
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
		refused += policy_describe(bytes.at, bytes.size, NULL, 0, &description, NULL) != 0;
		*number = good;
	}
	assert_in_range(refused, 50, 250);
	assert_int_equal(policy_describe(bytes.at, bytes.size, NULL, 0, &description, NULL), 0);
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
				 "it was compiled for policy ABI 2, and this Belfry has 1");
	*says = good;
	says->magic++;
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "its policy header is damaged");
	*says = good;
	says->pick_size += 8;
	assert_bytes_are_refused(bytes.at, bytes.size, EPROTO, "sizes of its structures differ");
	*says = good;
	memset(says->name, 'x', sizeof(says->name));
	assert_bytes_are_refused(bytes.at, bytes.size, EINVAL, "its name is invalid");
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
	if (policy_describe(bytes.at, bytes.size, NULL, 0, &description, &err))
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

static void tunables_are_checked_without_the_kernel(void **state)
{
	static const char *const good[] = { "slice_us=7", "is_strict=false" }, *const wrong[] = { "bogus=1" };
	struct bytes bytes = read_object("least");
	struct policy_description description;
	struct bf_error err = { 0 };

	(void)state;
	assert_int_equal(policy_describe(bytes.at, bytes.size, NULL, 0, &description, &err), 0);
	assert_int_equal(policy_describe(bytes.at, bytes.size, good, COUNT(good), &description, &err), 0);
	assert_int_equal(policy_describe(bytes.at, bytes.size, wrong, COUNT(wrong), &description, &err),
			 -ENOENT);
	assert_text_has(err.text, "'bogus' cannot be set: this policy has");
	assert_int_equal(policy_describe(bytes.at, 100, NULL, 0, &description, &err), -EINVAL);
	free(bytes.at);
}

static void a_policy_tells_its_tunables_as_they_were_set(void **state)
{
	static const char *const sets[] = { "slice_us=7", "offset=-5" };
	struct policy_options options = { .sets = sets, .set_count = COUNT(sets) };
	struct policy_description is = { 0 };
	const struct policy_tunable *tunables;
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load_object("least", &options);
	tunables = policy_tunables(policy, &is.tunable_count);
	assert_int_equal(is.tunable_count, 6);
	memcpy(is.tunables, tunables, sizeof(is.tunables));
	assert_int_equal(find_tunable(&is, "slice_us")->value, 7);
	assert_int_equal(find_tunable(&is, "offset")->value, -5);
	assert_true(find_tunable(&is, "offset")->is_signed);
	assert_int_equal((uint64_t)find_tunable(&is, "large")->value, UINT64_MAX);
	assert_false(find_tunable(&is, "large")->is_signed);
	policy_put(policy);
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

static void hook_reads_the_table_and_proposes(void **state)
{
	struct belfry_pick pick = pick_of(BELFRY_VGPUS_MAX);
	struct belfry_dump dump = { .head = { .size = sizeof(dump) } };
	struct policy_info info;
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load_object("least", NULL);
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
	policy = load_object("least", NULL);
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
	policy = load_object("least", &options);
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
	assert_set_is_refused("slice_us=010", EINVAL, "not a whole number, such as 10 or 0xa");
	assert_set_is_refused("slice_us=0b1", EINVAL, "not a whole number");
	assert_set_is_refused("offset=-010", EINVAL, "not a whole number");
	assert_set_is_refused("slice_us=0x", EINVAL, "not a whole number");
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
	assert_ptr_equal(strstr(log, "program pick_blindly, last lines first:\nR"), log);
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
	policy = load_object("seven", NULL);
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
	policy = load_object("seven", NULL);
	assert_int_equal(policy_call(policy, BELFRY_HOOK_EXIT, &init, sizeof(init)), -EINVAL);
	assert_is_out(policy, "more than its context");
	policy_put(policy);
}

static void caller_can_put_a_policy_out_once(void **state)
{
	struct belfry_pick pick = pick_of(0);
	struct policy *policy;

	(void)state;
	need_ebpf();
	policy = load_object("least", NULL);
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

/* As many rounds as take this much CPU time at least. */
static uint64_t rounds_for(uint64_t ns)
{
	const struct policy_options patient = { .budget_ns = 100000000000 };
	struct policy *policy = load_object("slow", &patient);
	uint64_t rounds = 1;

	for (;; rounds *= 2) {
		uint64_t before = bf_thread_cpu_ns(pthread_self());

		assert_int_equal(call_slow(policy, rounds), BELFRY_PROPOSE);
		if (bf_thread_cpu_ns(pthread_self()) - before >= ns)
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
	policy = load_object("slow", &hasty);
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
	const struct policy_options options = { .budget_ns = 1000000 };
	struct policy_info info;
	struct policy *policy;
	uint64_t rounds;

	(void)state;
	need_ebpf();
	/* Far below the CPU time at which one call is enough, also where the host takes time from this machine. */
	rounds = rounds_for(1200000);
	policy = load_object("slow", &options);
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
	policy = load_object("slow", NULL);
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
	policy_put(load_object("least", NULL)); /* what libbpf asks the kernel once */
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
	one = load_object("least", NULL);
	other = load_object("least", NULL);
	fill_table(one, 2, 0);
	fill_table(other, 2, 1);
	assert_int_equal(call_pick(one, &pick), BELFRY_PROPOSE);
	assert_int_equal(pick.choice, 0);
	policy_put(one);
	assert_int_equal(call_pick(other, &pick), BELFRY_PROPOSE);
	assert_int_equal(pick.choice, 1);
	policy_put(other);
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
		/* Whoever asks: belfryd has no part in a check or a replay. */
		is_said = policy_is_possible(&err) == -EPERM &&
			  strstr(err.text, "this process lacks CAP_BPF") && !strstr(err.text, "belfryd");
		err = (struct bf_error){ 0 };
		is_said = is_said && !policy_load(bytes.at, bytes.size, NULL, NULL, &err) &&
			  err.code == EPERM && strstr(err.text, "this process lacks CAP_BPF");
		if (!is_said)
			fprintf(stderr, "said was: %s\n", err.text);
		_exit(is_said ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	free(bytes.at);
	assert_int_equal(status, 0);
}

/* In a process that may load eBPF and nothing else: 0, or the number of those that were refused. */
static int load_with_cap_bpf_alone(const char *const *names, size_t count)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	int refused = 0;

	data[CAP_TO_INDEX(CAP_BPF)].permitted = CAP_TO_MASK(CAP_BPF);
	data[CAP_TO_INDEX(CAP_BPF)].effective = CAP_TO_MASK(CAP_BPF);
	if (syscall(SYS_capset, &header, data))
		return (int)count;
	for (size_t i = 0; i < count; i++) {
		struct bytes bytes = read_object(names[i]);
		struct bf_error err = { 0 };
		struct policy *policy = policy_load(bytes.at, bytes.size, NULL, NULL, &err);

		if (!policy)
			fprintf(stderr, "%s: %s\n", names[i], err.text);
		refused += !policy;
		policy_put(policy);
		free(bytes.at);
	}
	return refused;
}

static void shipped_policies_need_no_right_but_cap_bpf(void **state)
{
	static const char *const names[] = {
		"../../policies/edf",		"../../policies/fair",	    "../../policies/gpreempt",
		"../../policies/latency_first", "../../policies/placement", "../../policies/quota_guard",
		"../../policies/quarantine",	"../../policies/reserve",   "../../policies/tpot_first",
	};
	int status = 0;
	pid_t pid;

	(void)state;
	need_ebpf();
	pid = fork();
	if (!pid)
		_exit(load_with_cap_bpf_alone(names, COUNT(names)));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_that_are_wrong_are_refused_in_one_line),
		cmocka_unit_test(calls_in_half_an_instruction_are_found),
		cmocka_unit_test(the_first_symbol_is_nobodys),
		cmocka_unit_test(what_is_no_object_is_refused),
		cmocka_unit_test(object_that_is_cut_anywhere_is_refused),
		cmocka_unit_test(object_with_damaged_types_is_refused_or_understood),
		cmocka_unit_test(what_an_object_says_of_itself_is_checked),
		cmocka_unit_test(object_is_described_without_loading_it),
		cmocka_unit_test(tunables_are_checked_without_the_kernel),
		cmocka_unit_test(a_policy_tells_its_tunables_as_they_were_set),
		cmocka_unit_test(hooks_have_names_and_contexts),
		cmocka_unit_test(abi_keeps_its_places),
		cmocka_unit_test(tunables_are_held_to_their_size),
		cmocka_unit_test(it_is_said_why_ebpf_is_not_possible),
		cmocka_unit_test(shipped_policies_need_no_right_but_cap_bpf),
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
