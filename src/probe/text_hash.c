/* Hash maps: open addressing. A slot that a thread has claimed keeps its key, and a deleted entry is only
 * marked. So a key never has two slots, and no lock is needed: the atomic exchange of a slot's state
 * decides which thread inserts. Another thread that wants the same key meanwhile polls the state, a limited
 * number of times. The store of PROBE_SLOT_FULL with release order publishes key and value to the load of the
 * state with acquire order in put_search. */
#include <errno.h>

#include "base/number.h"
#include "probe/inside.h"

static uint32_t key_room(const struct probe_map *map)
{
	return (uint32_t)bf_round_up(map->key_bytes, 8);
}

static void put_hash(struct text *text, const struct probe_map *map)
{
	text_put(text, "mov.u64 $h, 0x%llx;", HASH_FACTOR);
	for (uint32_t i = 0; i < key_room(map) / 8; i++) {
		text_put(text, "xor.b64 $h, $h, $k%u;", i);
		text_put(text, "mul.lo.u64 $h, $h, 0x%llx;", HASH_FACTOR);
		text_put(text, "shr.u64 $t0, $h, 32;");
		text_put(text, "xor.b64 $h, $h, $t0;");
	}
	text_put(text, "shr.u64 $t0, $h, 32;");
	text_put(text, "cvt.u32.u64 $tag, $t0;");
	text_put(text, "and.b32 $tag, $tag, 0xfffffffc;");
	text_put(text, "and.b64 $slot, $h, %u;", map->slots - 1);
}

/* Searches for the key in $k registers. Continues at label e (an empty slot), b (a slot that another thread
 * is writing, maybe with this key), f (the key's slot, with its state in $s) or x (none of these). $slot is
 * the slot and $sa the address of its state. Label v reads the state again, n goes on. */
static void put_search(struct text *text, const struct probe_map *map, unsigned label)
{
	put_hash(text, map);
	text_put(text, "mov.u32 $n, %u;", (uint32_t)bf_min(HASH_CHAIN_MAX, map->slots));
	text_put(text, "#h%u:", label);
	text_put(text, "shl.b64 $t0, $slot, 2;");
	text_put(text, "add.u64 $sa, $t0, $area;");
	text_put(text, "#v%u:", label);
	text_put(text, "ld.acquire.gpu.global.u32 $s, [$sa+%llu];", (unsigned long long)map->states);
	text_put(text, "setp.eq.u32 $p0, $s, 0;");
	text_put(text, "@$p0 bra #e%u;", label);
	text_put(text, "and.b32 $w0, $s, 0xfffffffc;");
	text_put(text, "setp.ne.u32 $p0, $w0, $tag;");
	text_put(text, "@$p0 bra #n%u;", label);
	text_put(text, "and.b32 $s, $s, 3;");
	text_put(text, "setp.eq.u32 $p0, $s, %d;", PROBE_SLOT_BUSY);
	text_put(text, "@$p0 bra #b%u;", label);
	text_put(text, "mul.lo.u64 $t1, $slot, %u;", key_room(map));
	text_put(text, "add.u64 $t1, $t1, $area;");
	for (uint32_t i = 0; i < key_room(map) / 8; i++) {
		text_put(text, "ld.relaxed.gpu.global.u64 $t2, [$t1+%llu];", map->keys + 8ull * i);
		text_put(text, "setp.ne.u64 $p0, $t2, $k%u;", i);
		text_put(text, "@$p0 bra #n%u;", label);
	}
	text_put(text, "bra #f%u;", label);
	text_put(text, "#n%u:", label);
	text_put(text, "add.u64 $slot, $slot, 1;");
	text_put(text, "and.b64 $slot, $slot, %u;", map->slots - 1);
	text_put(text, "sub.u32 $n, $n, 1;");
	text_put(text, "setp.ne.u32 $p0, $n, 0;");
	text_put(text, "@$p0 bra #h%u;", label);
	text_put(text, "bra #x%u;", label);
}

/* The address of the slot's value, into $t7. */
static void put_value_address(struct text *text, const struct probe_map *map)
{
	text_put(text, "mul.lo.u64 $t7, $slot, %u;", map->stride);
	text_put(text, "add.u64 $t7, $t7, $area;");
	text_put(text, "add.u64 $t7, $t7, %llu;", (unsigned long long)map->values);
}

void text_hash_lookup(struct text *text, const struct probe_map *map)
{
	unsigned label = text->labels++;

	put_search(text, map, label);
	text_put(text, "#b%u:", label);
	text_put(text, "bra #n%u;", label);
	text_put(text, "#f%u:", label);
	put_value_address(text, map);
	text_put(text, "setp.eq.u32 $p0, $s, %d;", PROBE_SLOT_FULL);
	text_put(text, "selp.b64 $r0, $t7, 0, $p0;");
	text_put(text, "bra #d%u;", label);
	text_put(text, "#e%u:", label);
	text_put(text, "#x%u:", label);
	text_put(text, "mov.u64 $r0, 0;");
	text_put(text, "#d%u:", label);
}

/* Ends the update with an error if its flags are `flag`. */
static void put_flag(struct text *text, unsigned label, int flag, int error)
{
	text_put(text, "mov.s64 $r0, %d;", -error);
	text_put(text, "setp.eq.u64 $p0, $t6, %d;", flag);
	text_put(text, "@$p0 bra #d%u;", label);
}

/* Claims the slot if its state is still `state`; otherwise continues at b. */
static void put_claim(struct text *text, const struct probe_map *map, unsigned label, const char *state)
{
	text_put(text, "or.b32 $w1, $tag, %d;", PROBE_SLOT_BUSY);
	text_put(text, "atom.acq_rel.gpu.global.cas.b32 $w3, [$sa+%llu], %s, $w1;",
		 (unsigned long long)map->states, state);
	text_put(text, "setp.ne.u32 $p0, $w3, %s;", state);
	text_put(text, "@$p0 bra #b%u;", label);
}

static void put_insert(struct text *text, const struct probe_map *map, unsigned label)
{
	put_flag(text, label, BPF_EXIST, ENOENT);
	put_claim(text, map, label, "0");
	text_put(text, "mul.lo.u64 $t1, $slot, %u;", key_room(map));
	text_put(text, "add.u64 $t1, $t1, $area;");
	for (uint32_t i = 0; i < key_room(map) / 8; i++)
		text_put(text, "st.relaxed.gpu.global.u64 [$t1+%llu], $k%u;", map->keys + 8ull * i, i);
	text_put(text, "bra #w%u;", label);
}

static void put_retry(struct text *text, unsigned label)
{
	text_put(text, "sub.u32 $tries, $tries, 1;");
	text_put(text, "setp.ne.u32 $p0, $tries, 0;");
	text_put(text, "@$p0 bra #v%u;", label);
	text_put(text, "red.relaxed.gpu.global.add.u64 [$area+%zu], 1;", offsetof(struct probe_area, busy));
	text_put(text, "mov.s64 $r0, %d;", -EBUSY);
	text_put(text, "bra #d%u;", label);
}

void text_hash_update(struct text *text, const struct probe_map *map, const struct source *value)
{
	unsigned label = text->labels++;

	text_put(text, "mov.u64 $t6, $r4;");
	text_put(text, "mov.s64 $r0, %d;", -EINVAL);
	text_put(text, "setp.gt.u64 $p0, $t6, %d;", BPF_EXIST);
	text_put(text, "@$p0 bra #d%u;", label);
	text_put(text, "mov.u32 $tries, %d;", TRIES_MAX);
	put_search(text, map, label);
	text_put(text, "#b%u:", label);
	put_retry(text, label);
	text_put(text, "#f%u:", label);
	put_value_address(text, map);
	text_put(text, "setp.eq.u32 $p0, $s, %d;", PROBE_SLOT_DELETED);
	text_put(text, "@$p0 bra #g%u;", label);
	put_flag(text, label, BPF_NOEXIST, EEXIST);
	text_copy_value(text, map, value);
	text_put(text, "mov.u64 $r0, 0;");
	text_put(text, "bra #d%u;", label);
	text_put(text, "#g%u:", label);
	put_flag(text, label, BPF_EXIST, ENOENT);
	text_put(text, "or.b32 $w2, $tag, %d;", PROBE_SLOT_DELETED);
	put_claim(text, map, label, "$w2");
	text_put(text, "bra #w%u;", label);
	text_put(text, "#e%u:", label);
	put_insert(text, map, label);
	text_put(text, "#x%u:", label);
	put_flag(text, label, BPF_EXIST, ENOENT);
	text_put(text, "mov.s64 $r0, %d;", -E2BIG);
	text_put(text, "bra #d%u;", label);
	text_put(text, "#w%u:", label);
	put_value_address(text, map);
	text_copy_value(text, map, value);
	text_put(text, "or.b32 $w1, $tag, %d;", PROBE_SLOT_FULL);
	text_put(text, "st.release.gpu.global.u32 [$sa+%llu], $w1;", (unsigned long long)map->states);
	text_put(text, "mov.u64 $r0, 0;");
	text_put(text, "#d%u:", label);
}

void text_hash_delete(struct text *text, const struct probe_map *map)
{
	unsigned label = text->labels++;

	put_search(text, map, label);
	text_put(text, "#b%u:", label);
	text_put(text, "bra #n%u;", label);
	text_put(text, "#f%u:", label);
	text_put(text, "or.b32 $w1, $tag, %d;", PROBE_SLOT_FULL);
	text_put(text, "or.b32 $w2, $tag, %d;", PROBE_SLOT_DELETED);
	text_put(text, "atom.acq_rel.gpu.global.cas.b32 $w3, [$sa+%llu], $w1, $w2;",
		 (unsigned long long)map->states);
	text_put(text, "setp.eq.u32 $p0, $w3, $w1;");
	text_put(text, "selp.b64 $r0, 0, %d, $p0;", -ENOENT);
	text_put(text, "bra #d%u;", label);
	text_put(text, "#e%u:", label);
	text_put(text, "#x%u:", label);
	text_put(text, "mov.s64 $r0, %d;", -ENOENT);
	text_put(text, "#d%u:", label);
}
