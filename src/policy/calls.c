/* Checks which helpers an object calls. Programs of type BPF_PROG_TYPE_SYSCALL can close descriptors of the
 * calling process, change its maps, kill processes and read memory, and timers run outside the measured
 * calls. Policies may use maps, clocks and a few utility helpers only. */
#include <errno.h>
#include <linux/bpf.h>
#include <string.h>

#include "policy/inside.h"

static bool may_call(__s32 helper)
{
	switch (helper) {
	case BPF_FUNC_map_lookup_elem:
	case BPF_FUNC_map_update_elem:
	case BPF_FUNC_map_delete_elem:
	case BPF_FUNC_map_push_elem:
	case BPF_FUNC_map_pop_elem:
	case BPF_FUNC_map_peek_elem:
	case BPF_FUNC_map_lookup_percpu_elem:
	case BPF_FUNC_for_each_map_elem:
	case BPF_FUNC_ringbuf_output:
	case BPF_FUNC_ringbuf_reserve:
	case BPF_FUNC_ringbuf_submit:
	case BPF_FUNC_ringbuf_discard:
	case BPF_FUNC_ringbuf_query:
	case BPF_FUNC_spin_lock:
	case BPF_FUNC_spin_unlock:
	case BPF_FUNC_loop:
	case BPF_FUNC_ktime_get_ns:
	case BPF_FUNC_ktime_get_boot_ns:
	case BPF_FUNC_ktime_get_tai_ns:
	case BPF_FUNC_jiffies64:
	case BPF_FUNC_get_prandom_u32:
	case BPF_FUNC_get_smp_processor_id:
	case BPF_FUNC_trace_printk:
	case BPF_FUNC_trace_vprintk:
	case BPF_FUNC_snprintf:
	case BPF_FUNC_strncmp:
	case BPF_FUNC_strtol:
	case BPF_FUNC_strtoul:
		return true;
	default:
		return false;
	}
}

static const char *name_of(__s32 helper)
{
#define NAME(name) "bpf_" #name
	static const char *const names[] = { __BPF_FUNC_MAPPER(NAME) };
#undef NAME

	return helper > 0 && helper < (__s32)(sizeof(names) / sizeof(names[0])) ? names[helper]
										: "an unknown helper";
}

static int check_call(const struct bpf_insn *insn, struct bf_error *err)
{
	if (insn->src_reg == BPF_PSEUDO_CALL || (!insn->src_reg && may_call(insn->imm)))
		return 0;
	return bf_fail(err, EPERM,
		       "it calls %s, which policies may not call; docs/policies.md lists the allowed helpers",
		       insn->src_reg ? "a kernel function" : name_of(insn->imm));
}

/* Maps must be referred to by relocations: an immediate number would be a descriptor of the loading process.
 * The second half of the instruction must have opcode 0, because a function could begin there with a call
 * that is not checked. */
static int check_wide(const struct bpf_insn *insn, const struct bpf_insn *second, struct bf_error *err)
{
	if (second->code)
		return bf_fail(err, EINVAL, "it is damaged: half an instruction; compile it again");
	if (insn->src_reg && insn->src_reg != BPF_PSEUDO_FUNC)
		return bf_fail(err, EPERM, "it refers to a map by number, which policies may not do");
	return 0;
}

static int check_code(const void *code, size_t code_bytes, struct bf_error *err)
{
	struct bpf_insn insn, second;
	int rc = 0;

	for (size_t at = 0; !rc && at + sizeof(insn) <= code_bytes; at += sizeof(insn)) {
		memcpy(&insn, (const char *)code + at, sizeof(insn));
		if (insn.code == (BPF_JMP | BPF_CALL))
			rc = check_call(&insn, err);
		if (insn.code != (BPF_LD | BPF_IMM | BPF_DW))
			continue;
		second = (struct bpf_insn){ .code = 0xff };
		at += sizeof(insn);
		if (at + sizeof(second) <= code_bytes)
			memcpy(&second, (const char *)code + at, sizeof(second));
		rc = check_wide(&insn, &second, err);
	}
	return rc;
}

int calls_check(const void *bytes, size_t size, struct bf_error *err)
{
	const char *name = elf_first_extern(bytes, size);
	char plain[64] = "";

	if (!name)
		return elf_each_code(bytes, size, check_code, err);
	for (size_t i = 0; i + 1 < sizeof(plain) && name[i]; i++)
		plain[i] = name[i] < ' ' || name[i] > '~' ? '?' : name[i];
	return bf_fail(err, EPERM,
		       "it refers to '%s', which is not in it; policies may not use kernel symbols", plain);
}
