#include <bpf/bpf.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "policy/inside.h"

static bool has_capability(void)
{
	cleanup_file FILE *file = fopen("/proc/self/status", "re");
	unsigned long long effective = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	return effective & (1ull << CAP_BPF | 1ull << CAP_SYS_ADMIN);
}

/* If not all user IDs are mapped one to one, this is not the initial user namespace, and bpf(2) ignores its
 * capabilities. */
static bool is_in_user_namespace(void)
{
	cleanup_file FILE *file = fopen("/proc/self/uid_map", "re");
	unsigned long long first = 0, outside = 0, count = 0;

	if (!file || fscanf(file, "%llu %llu %llu", &first, &outside, &count) != 3)
		return false;
	return first || outside || count != UINT32_MAX;
}

static int say_why(int code, struct bf_error *err)
{
	if (code == EPERM && has_capability() && is_in_user_namespace())
		return bf_fail(
			err, EPERM,
			"eBPF cannot be loaded in a user namespace (a rootless container?); it needs root, or CAP_BPF, of the initial namespace");
	if (code == EPERM && has_capability())
		return bf_fail(
			err, EPERM,
			"eBPF cannot be loaded: a seccomp filter (a container?) or the kernel's lockdown forbids bpf(2)");
	if (code == EPERM)
		return bf_fail(
			err, EPERM,
			"eBPF cannot be loaded: this process lacks CAP_BPF; run it as root or with that capability");
	if (code == ENOSYS)
		return bf_fail(err, ENOSYS,
			       "this kernel has no eBPF: it was built without CONFIG_BPF_SYSCALL");
	if (code == EINVAL)
		return bf_fail(
			err, EINVAL,
			"this kernel does not support callable eBPF programs; use Linux 5.17 or later");
	return bf_fail(err, code, "eBPF cannot be loaded: %s", strerror(code));
}

/* Loading the shortest possible hook is a more reliable test than kernel version and capabilities. */
int policy_is_possible(struct bf_error *err)
{
	static const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct bpf_prog_load_opts options = { .sz = sizeof(options), .prog_flags = BPF_F_SLEEPABLE };
	cleanup_close int fd = bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "belfry_nothing", "Dual MIT/GPL", nothing,
					     sizeof(nothing) / sizeof(nothing[0]), &options);

	return fd < 0 ? say_why(-fd, err) : 0;
}
