/* SPDX-License-Identifier: MIT */
/* Bytes that a kernel reads and writes, for each page. Many threads insert the same key at once. */
#include <belfry/probe.h>

BELFRY_PROBE();

struct traffic {
	__u64 read_bytes, written_bytes;
};

BELFRY_HASH(pages, __u64, struct traffic, 64);

BELFRY_PROBE_AT(mem_access)
int access(struct belfry_probe_ctx *ctx)
{
	struct traffic none = { 0, 0 }, *found;
	__u64 page = ctx->address >> 12;

	bpf_map_update_elem(&pages, &page, &none, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&pages, &page);
	if (!found)
		return 1;
	if (ctx->is_write)
		__sync_fetch_and_add(&found->written_bytes, ctx->size);
	else
		__sync_fetch_and_add(&found->read_bytes, ctx->size);
	return 0;
}
