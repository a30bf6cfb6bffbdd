/* ptx: lanes of one warp that execute an instruction together under different member masks. Each group of equal masks is
 * an operation of its own: kernels of tests/data/ptx/groups.cu against C on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define LANES 32u
#define ROWS 8u

struct lanes {
	uint32_t label[LANES];
	uint32_t value[LANES];
	uint32_t members[LANES]; /* of each lane's group */
};

static const char *const layouts[] = {
	"00000000111111112222222233333333", "01010101010101010101010101010101",
	"01234567890123456789012345678901", "00000000000000000000000000000000",
	"40000000000000000000000000000002", "33221100332211003322110033221100",
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static void lanes_set(struct lanes *l, unsigned layout)
{
	uint64_t seed = 31 + layout;

	memset(l->members, 0, sizeof(l->members));
	for (unsigned i = 0; i < LANES; i++) {
		l->label[i] = (uint32_t)(layouts[layout][i] - '0');
		l->value[i] = (uint32_t)rig_random(&seed);
	}
	for (unsigned i = 0; i < LANES; i++)
		for (unsigned k = 0; k < LANES; k++)
			l->members[i] |= (uint32_t)(l->label[i] == l->label[k]) << k;
}

/* One value a row and lane, as a kernel writes them. */
typedef uint32_t expected_fn(const struct lanes *l, unsigned row, unsigned lane);

static void check_rows(struct rig *rig, const char *kernel, expected_fn *expected, unsigned rows,
		       bool has_label)
{
	for (unsigned layout = 0; layout < LAYOUTS; layout++) {
		uint64_t params[3], out = rig_alloc(rig, sizeof(uint32_t) * ROWS * LANES, NULL);
		const uint32_t *got = rig_host(rig, out);
		struct lanes l;
		unsigned used = 0;

		lanes_set(&l, layout);
		if (has_label)
			params[used++] = rig_alloc(rig, sizeof(l.label), l.label);
		params[used++] = rig_alloc(rig, sizeof(l.value), l.value);
		params[used++] = out;
		rig_launch(rig, kernel, (struct rig_shape){ { 1 }, { LANES }, 0 }, params,
			   sizeof(params[0]) * used);
		for (unsigned row = 0; row < rows; row++)
			for (unsigned i = 0; i < LANES; i++)
				if (got[row * LANES + i] != expected(&l, row, i))
					fail_msg("%s, groups %s, row %u, lane %u: %#x, not %#x", kernel,
						 layouts[layout], row, i, got[row * LANES + i],
						 expected(&l, row, i));
	}
}

static void check_kernel(const char *kernel, expected_fn *expected, unsigned rows, bool has_label)
{
	struct rig rig;

	rig_open(&rig, "groups");
	check_rows(&rig, kernel, expected, rows, has_label);
	rig_close(&rig);
}

/* Bit i: lane i is in `members` and its value fits. */
static uint32_t ballot(const struct lanes *l, uint32_t members, bool (*fits)(uint32_t value))
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < LANES; i++)
		bits |= (uint32_t)((members >> i & 1) && fits(l->value[i])) << i;
	return bits;
}

static bool is_odd(uint32_t v)
{
	return v & 1;
}

static bool is_seventh(uint32_t v)
{
	return v % 7 == 0;
}

static bool is_no_third(uint32_t v)
{
	return v % 3 != 0;
}

static bool has_four(uint32_t v)
{
	return v & 4;
}

static uint32_t vote_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t members = l->members[lane], four = ballot(l, members, has_four);

	switch (row) {
	case 0:
		return ballot(l, members, is_odd);
	case 1:
		return ballot(l, members, is_seventh) != 0;
	case 2:
		return ballot(l, members, is_no_third) == members;
	default:
		return !four || four == members;
	}
}

static void vote_asks_each_group_alone(void **state)
{
	(void)state;
	check_kernel("votes", vote_expected, 4, true);
}

static uint32_t equal_in(const struct lanes *l, uint32_t members, unsigned lane, uint32_t modulus)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < LANES; i++)
		bits |= (uint32_t)((members >> i & 1) && l->value[i] % modulus == l->value[lane] % modulus)
			<< i;
	return bits;
}

static uint32_t match_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t members = l->members[lane];
	bool is_all = equal_in(l, members, lane, 2) == members;

	switch (row) {
	case 0:
	case 1:
		return equal_in(l, members, lane, 4);
	case 2:
		return is_all ? members : 0;
	case 3:
		return is_all;
	case 4: /* by the label, which is the group's */
		return members;
	default:
		return 1;
	}
}

static void match_compares_each_group_alone(void **state)
{
	(void)state;
	check_kernel("matches", match_expected, 6, true);
}

static uint32_t reduced(unsigned row, uint32_t a, uint32_t b)
{
	switch (row) {
	case 0:
		return a + b;
	case 1:
		return a < b ? a : b;
	case 2:
		return (int32_t)a > (int32_t)b ? a : b;
	case 3:
		return a & b;
	case 4:
		return a | b;
	default:
		return a ^ b;
	}
}

static uint32_t reduce_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t result = 0;
	bool has_one = false;

	for (unsigned i = 0; i < LANES; i++) {
		uint32_t v = row == 3 ? l->value[i] | 0xf0f : row == 4 ? l->value[i] & 0xff : l->value[i];

		if (!(l->members[lane] >> i & 1))
			continue;
		result = has_one ? reduced(row, result, v) : v;
		has_one = true;
	}
	return result;
}

static void redux_reduces_each_group_alone(void **state)
{
	(void)state;
	check_kernel("reductions", reduce_expected, 6, true);
}

static uint32_t shuffle_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t members = l->members[lane], later = members & (0xfffffffeu << lane);

	return l->value[__builtin_ctz(row && later ? later : members)];
}

static void shuffles_stay_in_their_group(void **state)
{
	(void)state;
	check_kernel("shuffles", shuffle_expected, 2, true);
}

static uint32_t synchronised_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t sum = 0;

	(void)row;
	for (unsigned i = 0; i < LANES; i++) {
		if (!(l->members[lane] >> i & 1))
			continue;
		sum += l->value[i];
		for (unsigned k = 0; k < l->label[i] % 5 + i % 3; k++)
			sum += l->value[(i + k) % LANES];
	}
	return sum;
}

static void warp_barriers_wait_for_their_group(void **state)
{
	(void)state;
	check_kernel("synchronised", synchronised_expected, 1, true);
}

static uint32_t loops_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t sums[LANES] = { 0 }, members = l->members[lane];

	(void)row;
	for (unsigned i = 0; i <= l->label[lane]; i++) {
		uint32_t bits = 0, total = 0;

		for (unsigned k = 0; k < LANES; k++)
			bits |= (uint32_t)((members >> k & 1) && (l->value[k] >> i & 1)) << k;
		for (unsigned k = 0; k < LANES; k++)
			if (members >> k & 1)
				total += sums[k] + (l->value[k] >> i & 1 ? i * k : 0) + bits;
		for (unsigned k = 0; k < LANES; k++)
			sums[k] = total;
	}
	return sums[lane];
}

static void groups_leave_a_loop_one_by_one(void **state)
{
	(void)state;
	check_kernel("loops", loops_expected, 1, true);
}

static uint32_t tile_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	unsigned first = lane & ~7u;
	uint32_t members = 0xffu << first, sum = 0;

	switch (row) {
	case 0:
		return ballot(l, members, is_odd) >> first;
	case 1:
		return ballot(l, members, is_seventh) != 0;
	case 2:
		return ballot(l, members, is_no_third) == members;
	case 3:
		return equal_in(l, members, lane, 4) >> first;
	case 4:
		for (unsigned i = 0; i < 8; i++)
			sum += l->value[first + i];
		return sum;
	case 5:
		return l->value[lane ^ 3];
	default:
		for (unsigned i = first; i <= lane; i++)
			sum += l->value[i] % 100;
		return sum;
	}
}

static void tiles_of_cooperative_groups_are_apart(void **state)
{
	(void)state;
	check_kernel("tiles", tile_expected, 7, false);
}

static uint32_t labeled_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t members = l->members[lane], x = 0;

	switch (row) {
	case 0:
		return reduce_expected(l, 0, lane);
	case 1:
		return reduce_expected(l, 2, lane);
	case 2:
		return (uint32_t)__builtin_popcount(members) * 100 +
		       (uint32_t)__builtin_popcount(members & ((1u << lane) - 1));
	case 3:
		return l->value[__builtin_ctz(members)];
	default:
		for (unsigned i = 0; i < LANES; i++)
			x ^= (l->value[i] ^ l->value[lane]) & 1 ? 0 : l->value[i];
		return x;
	}
}

static void labeled_partitions_reduce_apart(void **state)
{
	(void)state;
	check_kernel("labeled", labeled_expected, 5, true);
}

/* elect.sync is for sm_90: nvcc emits it for none of the above. */
static const char elect_text[] =
	".version 8.0\n.target sm_90\n.address_size 64\n"
	".visible .entry elects(.param .u64 label, .param .u64 value, .param .u64 out)\n"
	"{\n"
	".reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p;\n"
	"ld.param.u64 %rd1, [label];\n"
	"ld.param.u64 %rd2, [out];\n"
	"mov.u32 %r1, %tid.x;\n"
	"mul.wide.u32 %rd3, %r1, 4;\n"
	"add.u64 %rd1, %rd1, %rd3;\n"
	"add.u64 %rd2, %rd2, %rd3;\n"
	"ld.global.u32 %r2, [%rd1];\n"
	"match.any.sync.b32 %r3, %r2, 0xffffffff;\n"
	"elect.sync %r4|%p, %r3;\n"
	"selp.u32 %r5, 1, 0, %p;\n"
	"st.global.u32 [%rd2], %r4;\n"
	"st.global.u32 [%rd2+128], %r5;\n"
	"ret;\n"
	"}\n";

static uint32_t elect_expected(const struct lanes *l, unsigned row, unsigned lane)
{
	uint32_t leader = (uint32_t)__builtin_ctz(l->members[lane]);

	return row ? leader == lane : leader;
}

static void elect_chooses_one_lane_a_group(void **state)
{
	struct rig rig;

	(void)state;
	rig_open_text(&rig, elect_text);
	check_rows(&rig, "elects", elect_expected, 2, true);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vote_asks_each_group_alone),
		cmocka_unit_test(match_compares_each_group_alone),
		cmocka_unit_test(redux_reduces_each_group_alone),
		cmocka_unit_test(shuffles_stay_in_their_group),
		cmocka_unit_test(warp_barriers_wait_for_their_group),
		cmocka_unit_test(groups_leave_a_loop_one_by_one),
		cmocka_unit_test(tiles_of_cooperative_groups_are_apart),
		cmocka_unit_test(labeled_partitions_reduce_apart),
		cmocka_unit_test(elect_chooses_one_lane_a_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
