#include "probe/probe.h"

#define AT(field) (uint32_t) __builtin_offsetof(struct belfry_probe_ctx, field)

static const struct probe_field fields[] = {
	{ "event", AT(event), 4, false, NULL },
	{ "lanes", AT(lanes), 4, false, NULL },
	{ "block[0]", AT(block[0]), 4, false, "%ctaid.x" },
	{ "block[1]", AT(block[1]), 4, false, "%ctaid.y" },
	{ "block[2]", AT(block[2]), 4, false, "%ctaid.z" },
	{ "grid[0]", AT(grid[0]), 4, false, "%nctaid.x" },
	{ "grid[1]", AT(grid[1]), 4, false, "%nctaid.y" },
	{ "grid[2]", AT(grid[2]), 4, false, "%nctaid.z" },
	{ "threads[0]", AT(threads[0]), 4, false, "%ntid.x" },
	{ "threads[1]", AT(threads[1]), 4, false, "%ntid.y" },
	{ "threads[2]", AT(threads[2]), 4, false, "%ntid.z" },
	{ "thread[0]", AT(thread[0]), 4, true, "%tid.x" },
	{ "thread[1]", AT(thread[1]), 4, true, "%tid.y" },
	{ "thread[2]", AT(thread[2]), 4, true, "%tid.z" },
	{ "lane", AT(lane), 4, true, "%laneid" },
	{ "warp", AT(warp), 4, false, NULL },
	{ "sm", AT(sm), 4, false, "%smid" },
	{ "site", AT(site), 4, false, NULL },
	{ "launch", AT(launch), 8, false, "%gridid" },
	{ "time_ns", AT(time_ns), 8, false, "%globaltimer" },
	{ "clock", AT(clock), 8, false, "%clock64" },
	{ "address", AT(address), 8, true, NULL },
	{ "size", AT(size), 4, false, NULL },
	{ "is_write", AT(is_write), 4, false, NULL },
	{ "kernel", AT(kernel), 8, false, NULL },
	{ "begin_ns", AT(begin_ns), 8, false, NULL },
	{ "begin_clock", AT(begin_clock), 8, false, NULL },
	{ "submitted_ns", AT(submitted_ns), 8, false, NULL },
	{ "instructions", AT(instructions), 4, false, NULL },
	{ "flops", AT(flops), 4, false, NULL },
	{ "read_bytes", AT(read_bytes), 4, false, NULL },
	{ "write_bytes", AT(write_bytes), 4, false, NULL },
	{ "period", AT(period), 4, false, NULL },
	{ "reserved", AT(reserved), 4, false, NULL },
};
_Static_assert(sizeof(fields) / sizeof(fields[0]) <= PROBE_FIELDS_MAX,
	       "a site has an operand for each field");

const struct probe_field *probe_field_at(size_t index)
{
	return index < sizeof(fields) / sizeof(fields[0]) ? &fields[index] : NULL;
}
