/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("kills", "ends processes");

extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	return bpf_task_from_pid(ctx->choice) != 0;
}
