/* Calls of helpers on arrays, and the choice of all others. */
#include <errno.h>

#include "base/number.h"
#include "probe/inside.h"

void text_copy_value(struct text *text, const struct probe_map *map, const struct source *value)
{
	for (uint32_t at = 0; at < map->value_bytes; at += 8) {
		text_gather(text, value, at, (uint32_t)bf_min(8, map->value_bytes - at), "$t8");
		text_put(text, "st.relaxed.gpu.global.u64 [$t7+%u], $t8;", at);
	}
}

static void put_key(struct text *text, const struct op *op, const struct state *state,
		    const struct probe_map *map)
{
	struct source key = text_source(text, op, state, BPF_REG_2, 0, map->key_bytes, ACCESS_READ, false);

	for (uint32_t at = 0; at < map->key_bytes; at += 8) {
		char to[16];

		snprintf(to, sizeof(to), "$k%u", at / 8);
		text_gather(text, &key, at, (uint32_t)bf_min(8, map->key_bytes - at), to);
	}
}

/* The address of the value of array entry $k0, into $t7. */
static void put_element(struct text *text, const struct probe_map *map)
{
	text_put(text, "mul.lo.u64 $t7, $k0, %u;", map->stride);
	text_put(text, "add.u64 $t7, $t7, $area;");
	text_put(text, "add.u64 $t7, $t7, %llu;", (unsigned long long)map->values);
	if (map->slots == 1)
		return;
	text_put(text, "mov.u32 $w0, %%smid;");
	text_put(text, "and.b32 $w0, $w0, %u;", map->slots - 1);
	text_put(text, "cvt.u64.u32 $t1, $w0;");
	text_put(text, "mul.lo.u64 $t1, $t1, %llu;", (unsigned long long)map->slot_stride);
	text_put(text, "add.u64 $t7, $t7, $t1;");
}

static void put_array_lookup(struct text *text, const struct probe_map *map)
{
	put_element(text, map);
	text_put(text, "setp.ge.u64 $p0, $k0, %u;", map->max_entries);
	text_put(text, "selp.b64 $r0, 0, $t7, $p0;");
}

/* Errors in the order in which the kernel finds them (array_map_update_elem). */
static void put_array_update(struct text *text, const struct probe_map *map, const struct source *value)
{
	unsigned label = text->labels++;

	text_put(text, "mov.u64 $t2, $r4;");
	text_put(text, "mov.s64 $r0, %d;", -EINVAL);
	text_put(text, "setp.gt.u64 $p0, $t2, %d;", BPF_EXIST);
	text_put(text, "@$p0 bra #d%u;", label);
	text_put(text, "mov.s64 $r0, %d;", -E2BIG);
	text_put(text, "setp.ge.u64 $p0, $k0, %u;", map->max_entries);
	text_put(text, "@$p0 bra #d%u;", label);
	text_put(text, "mov.s64 $r0, %d;", -EEXIST);
	text_put(text, "setp.eq.u64 $p0, $t2, %d;", BPF_NOEXIST);
	text_put(text, "@$p0 bra #d%u;", label);
	put_element(text, map);
	text_copy_value(text, map, value);
	text_put(text, "mov.u64 $r0, 0;");
	text_put(text, "#d%u:", label);
}

static void put_lookup(struct text *text, const struct op *op, const struct state *state,
		       const struct probe_map *map)
{
	put_key(text, op, state, map);
	if (map->kind == PROBE_MAP_HASH)
		text_hash_lookup(text, map);
	else
		put_array_lookup(text, map);
}

static void put_update(struct text *text, const struct op *op, const struct state *state,
		       const struct probe_map *map)
{
	struct source value;

	put_key(text, op, state, map);
	value = text_source(text, op, state, BPF_REG_3, 0, map->value_bytes, ACCESS_READ, false);
	if (map->kind == PROBE_MAP_HASH)
		text_hash_update(text, map, &value);
	else
		put_array_update(text, map, &value);
}

static void put_delete(struct text *text, const struct op *op, const struct state *state,
		       const struct probe_map *map)
{
	put_key(text, op, state, map);
	if (map->kind == PROBE_MAP_HASH)
		text_hash_delete(text, map);
	else
		text_put(text, "mov.s64 $r0, %d;", -EINVAL);
}

static void put_output(struct text *text, const struct op *op, const struct state *state,
		       const struct probe_map *map)
{
	uint32_t bytes = (uint32_t)state_get(text->program, op, state, BPF_REG_3).number;
	struct source data = text_source(text, op, state, BPF_REG_2, 0, bytes, ACCESS_READ, false);

	text_ring_output(text, map, &data, bytes);
}

void text_call(struct text *text, const struct op *op, const struct state *state)
{
	const struct probe_map *map = helper_map(&text->probe->code, text->program, op, state);

	switch (op->insn.imm) {
	case BPF_FUNC_map_lookup_elem:
		put_lookup(text, op, state, map);
		break;
	case BPF_FUNC_map_update_elem:
		put_update(text, op, state, map);
		break;
	case BPF_FUNC_map_delete_elem:
		put_delete(text, op, state, map);
		break;
	case BPF_FUNC_ringbuf_output:
		put_output(text, op, state, map);
		break;
	case BPF_FUNC_ktime_get_ns:
		text_put(text, "mov.u64 $r0, %%globaltimer;");
		break;
	case BPF_FUNC_jiffies64:
		text_put(text, "mov.u64 $r0, %%clock64;");
		break;
	default:
		text_put(text, "mov.u32 $w0, %%smid;");
		text_put(text, "cvt.u64.u32 $r0, $w0;");
	}
}
