/* SPDX-License-Identifier: MIT */
/* Returns the time plus the number of the SM, if the clock does not go back. */
#include <belfry/probe.h>

BELFRY_PROBE();

BELFRY_PROBE_AT(kernel_enter)
int timers(struct belfry_probe_ctx *ctx)
{
	__u64 start = belfry_clock(), time = belfry_time_ns();

	if (ctx->time_ns != time)
		return 1;
	if (belfry_clock() < start)
		return 2;
	return (int)(time + belfry_sm());
}
