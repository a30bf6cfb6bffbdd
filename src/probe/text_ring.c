/* Rings: a thread reserves a record by advancing the head with an atomic exchange, writes the data, and then
 * the record's first word, with release order. The reader (area.c) loads that word with acquire order. The
 * head can be any number, because the program can write to it. So positions are masked. */
#include <errno.h>

#include "base/number.h"
#include "probe/inside.h"

/* The address of the word at position $t0 plus `at`, into $t1. */
static void put_word_address(struct text *text, const struct probe_map *map, uint32_t at)
{
	text_put(text, "add.u64 $t1, $t0, %u;", at);
	text_put(text, "and.b64 $t1, $t1, %u;", map->max_entries - 8);
	text_put(text, "add.u64 $t1, $t1, $area;");
}

/* Reserves `bytes` bytes at position $t0, or continues at label f. */
static void put_reserve(struct text *text, const struct probe_map *map, unsigned label, uint32_t bytes)
{
	unsigned long long ring = map->states;

	text_put(text, "mov.u32 $tries, %d;", TRIES_MAX);
	text_put(text, "ld.relaxed.gpu.global.u64 $t0, [$area+%llu];",
		 ring + offsetof(struct probe_ring, head));
	text_put(text, "#h%u:", label);
	text_put(text, "ld.acquire.sys.global.u64 $t1, [$area+%llu];",
		 ring + offsetof(struct probe_ring, tail));
	text_put(text, "add.u64 $t2, $t0, %u;", bytes);
	text_put(text, "sub.u64 $t1, $t2, $t1;");
	text_put(text, "setp.gt.u64 $p0, $t1, %u;", map->max_entries);
	text_put(text, "@$p0 bra #f%u;", label);
	text_put(text, "atom.relaxed.gpu.global.cas.b64 $t3, [$area+%llu], $t0, $t2;",
		 ring + offsetof(struct probe_ring, head));
	text_put(text, "setp.eq.u64 $p0, $t3, $t0;");
	text_put(text, "@$p0 bra #w%u;", label);
	text_put(text, "mov.u64 $t0, $t3;");
	text_put(text, "sub.u32 $tries, $tries, 1;");
	text_put(text, "setp.ne.u32 $p0, $tries, 0;");
	text_put(text, "@$p0 bra #h%u;", label);
	text_put(text, "bra #f%u;", label);
}

void text_ring_output(struct text *text, const struct probe_map *map, const struct source *data,
		      uint32_t bytes)
{
	enum { FLAGS = BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP };
	unsigned long long values = map->values, done = PROBE_RECORD_DONE | bytes;
	unsigned label = text->labels++;

	text_put(text, "setp.gt.u64 $p0, $r4, %d;", FLAGS);
	text_put(text, "mov.s64 $r0, %d;", -EINVAL);
	text_put(text, "@$p0 bra #d%u;", label);
	put_reserve(text, map, label, 8 + (uint32_t)bf_round_up(bytes, 8));
	text_put(text, "#w%u:", label);
	for (uint32_t at = 0; at < bytes; at += 8) {
		text_gather(text, data, at, (uint32_t)bf_min(8, bytes - at), "$t8");
		put_word_address(text, map, 8 + at);
		text_put(text, "st.relaxed.gpu.global.u64 [$t1+%llu], $t8;", values);
	}
	put_word_address(text, map, 0);
	text_put(text, "mov.u64 $t8, 0x%llx;", done);
	text_put(text, "st.release.sys.global.u64 [$t1+%llu], $t8;", values);
	text_put(text, "mov.u64 $r0, 0;");
	text_put(text, "bra #d%u;", label);
	text_put(text, "#f%u:", label);
	text_put(text, "red.relaxed.gpu.global.add.u64 [$area+%llu], 1;",
		 map->states + (unsigned long long)offsetof(struct probe_ring, dropped));
	text_put(text, "mov.s64 $r0, %d;", -EAGAIN);
	text_put(text, "#d%u:", label);
}
