/* SPDX-License-Identifier: MIT */
/* Reads what the probe kernelstat has counted. */
#include <belfry/policy.h>

BELFRY_POLICY("reads_probe", "reads the map of a probe");

struct stat {
	__u64 calls, blocks, threads;
	__u64 time_ns, longest_ns;
};
BELFRY_PROBE_MAP(stats, "kernelstat", "kernels", __u64, struct stat, 64);

struct sums {
	__u64 entries, calls, threads, vgpu;
};

static long add(const void *map, struct stats_key *key, struct stat *stat, struct sums *sums)
{
	(void)map;
	sums->entries++;
	sums->calls += stat->calls;
	sums->threads += stat->threads;
	sums->vgpu = key->vgpu;
	return 0;
}

BELFRY_HOOK(dump)
int dump(struct belfry_dump *ctx)
{
	static const char format[] = "entries %llu calls %llu threads %llu vgpu %llu";
	struct sums sums = { 0 };
	char text[128] = "";

	bpf_for_each_map_elem(&stats, add, &sums, 0);
	bpf_snprintf(text, sizeof(text), format, (__u64 *)&sums, sizeof(sums));
	__builtin_memcpy(ctx->text, text, sizeof(text));
	return BELFRY_PROPOSE;
}
