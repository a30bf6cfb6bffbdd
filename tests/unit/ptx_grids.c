/* ptx: kernels of tests/data/ptx/grid.cu and words.cu against C on the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

/* The arrays are small: their indices fit an int. */
/* NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result) */

static void stencils_give_the_same_bits(void **state)
{
	enum { W = 40, H = 21, D = 9 };
	struct rig rig;
	uint64_t seed = 21;
	static float in[W * H], out[W * H];
	static double in3[W * H * D], out3[W * H * D];
	struct {
		int w, h;
		uint64_t in, out;
	} p = { W, H, 0, 0 };
	struct {
		int w, h, d, pad;
		uint64_t in, out;
	} q = { W, H, D, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "grid");
	for (int i = 0; i < W * H; i++)
		in[i] = rig_random_float(&seed);
	for (int i = 0; i < W * H * D; i++)
		in3[i] = (double)rig_random_float(&seed);
	for (int y = 1; y < H - 1; y++)
		for (int x = 1; x < W - 1; x++) {
			const float *c = &in[y * W + x];

			out[y * W + x] = 0.2f * (c[0] + c[-1] + c[1] + c[-W] + c[W]);
			for (int z = 1; z < D - 1; z++) {
				const double *v = &in3[(z * H + y) * W + x];

				out3[(z * H + y) * W + x] = fma(v[0], -6.0, v[-1]) + v[1] + v[-W] + v[W] +
							    v[-W * H] + v[W * H];
			}
		}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	q.in = rig_alloc(&rig, sizeof(in3), in3);
	q.out = rig_alloc(&rig, sizeof(out3), NULL);
	rig_launch(&rig, "stencil2d", (struct rig_shape){ { 3, 3 }, { 16, 8 }, 0 }, &p, sizeof(p));
	rig_launch(&rig, "stencil3d", (struct rig_shape){ { 5, 6, 3 }, { 8, 4, 4 }, 0 }, &q, sizeof(q));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	assert_memory_equal(rig_host(&rig, q.out), out3, sizeof(out3));
	rig_close(&rig);
}

static void life_goes_on(void **state)
{
	enum { W = 33, H = 20 };
	struct rig rig;
	uint64_t seed = 22;
	static uint8_t in[W * H], out[W * H];
	struct {
		int w, h;
		uint64_t in, out;
	} p = { W, H, 0, 0 };

	(void)state;
	rig_open(&rig, "grid");
	for (int i = 0; i < W * H; i++)
		in[i] = rig_random(&seed) % 3 == 0;
	for (int y = 0; y < H; y++)
		for (int x = 0; x < W; x++) {
			int n = -in[y * W + x];

			for (int d = 0; d < 9; d++)
				n += in[(y + d / 3 - 1 + H) % H * W + (x + d % 3 - 1 + W) % W];
			out[y * W + x] = n == 3 || (n == 2 && in[y * W + x]);
		}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "life", (struct rig_shape){ { 3, 3 }, { 16, 8 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

static void breadth_first_search_reaches_by_levels(void **state)
{
	enum { V = 300, E = 4 };
	struct rig rig;
	uint64_t seed = 23;
	static int start[V + 1], edge[V * E], depth[V];
	struct {
		int n, level;
		uint64_t start, edge, depth, changed;
	} p = { V, 0, 0, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "grid");
	for (int v = 0; v <= V; v++)
		start[v] = v * E;
	for (int i = 0; i < V * E; i++)
		edge[i] = (int)(rig_random(&seed) % V);
	for (int v = 0; v < V; v++)
		depth[v] = v ? -1 : 0;
	p.start = rig_alloc(&rig, sizeof(start), start);
	p.edge = rig_alloc(&rig, sizeof(edge), edge);
	p.depth = rig_alloc(&rig, sizeof(depth), depth);
	p.changed = rig_alloc(&rig, 4, NULL);
	do {
		*(int *)rig_host(&rig, p.changed) = 0;
		rig_launch(&rig, "bfs_step", (struct rig_shape){ { 5 }, { 64 }, 0 }, &p, sizeof(p));
		for (int v = 0; v < V; v++)
			for (int i = start[v]; depth[v] == p.level && i < start[v + 1]; i++)
				if (depth[edge[i]] == -1)
					depth[edge[i]] = p.level + 1;
		p.level++;
	} while (*(int *)rig_host(&rig, p.changed));
	assert_true(p.level > 3);
	assert_memory_equal(rig_host(&rig, p.depth), depth, sizeof(depth));
	rig_close(&rig);
}

static uint32_t escape_on_cpu(int px, int py, int w, int h, int limit)
{
	volatile float cx = (float)px / (float)w, cy = (float)py / (float)h, x = 0, y = 0, xx = 0, yy = 0, t;
	uint32_t i = 0;

	cx = cx * 3.0f;
	cx = cx - 2.0f;
	cy = cy * 2.0f;
	cy = cy - 1.0f;
	while ((int)i < limit && (t = xx + yy) <= 4.0f) {
		volatile float next = xx - yy;

		next = next + cx;
		t = 2.0f * x;
		t = t * y;
		y = t + cy;
		x = next;
		xx = x * x;
		yy = y * y;
		i++;
	}
	return i;
}

static void mandelbrot_counts_the_same_steps(void **state)
{
	enum { W = 60, H = 40, LIMIT = 100 };
	struct rig rig;
	static uint32_t out[W * H];
	struct {
		int w, h, limit, pad;
		uint64_t out;
	} p = { W, H, LIMIT, 0, 0 };

	(void)state;
	rig_open(&rig, "grid");
	for (int i = 0; i < W * H; i++)
		out[i] = escape_on_cpu(i % W, i / W, W, H, LIMIT);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "mandelbrot", (struct rig_shape){ { 4, 5 }, { 16, 8 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

static void bodies_attract_bit_for_bit(void **state)
{
	enum { N = 100 };
	struct rig rig;
	uint64_t seed = 24;
	static float pos[N * 4], acc[N * 4];
	struct {
		int n, pad;
		uint64_t pos, acc;
	} p = { N, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "grid");
	for (int i = 0; i < N * 4; i++)
		pos[i] = rig_random_float(&seed);
	for (int i = 0; i < N; i++) {
		float a[3] = { 0 };

		for (int j = 0; j < 128; j++) {
			const float zero[4] = { 0 }, *q = j < N ? &pos[4 * j] : zero;
			float dx = q[0] - pos[4 * i], dy = q[1] - pos[4 * i + 1], dz = q[2] - pos[4 * i + 2];
			float inv = 1.0f / sqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f))));
			float f = q[3] * inv * inv * inv;

			a[0] = fmaf(dx, f, a[0]);
			a[1] = fmaf(dy, f, a[1]);
			a[2] = fmaf(dz, f, a[2]);
		}
		memcpy(&acc[4 * i], a, sizeof(a));
	}
	p.pos = rig_alloc(&rig, sizeof(pos), pos);
	p.acc = rig_alloc(&rig, sizeof(acc), NULL);
	rig_launch(&rig, "nbody", (struct rig_shape){ { 2 }, { 64 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.acc), acc, sizeof(acc));
	rig_close(&rig);
}

static void monte_carlo_hits_the_same_points(void **state)
{
	struct rig rig;
	uint32_t hits = 0;
	struct {
		int rounds, pad;
		uint64_t hits;
	} p = { 50, 0, 0 };

	(void)state;
	rig_open(&rig, "grid");
	for (uint32_t t = 0; t < 192; t++) {
		uint32_t s = t * 2654435761u + 12345u;

		for (int i = 0; i < 50; i++) {
			s ^= s << 13;
			s ^= s >> 17;
			s ^= s << 5;
			hits += (uint64_t)(s >> 16) * (s >> 16) + (uint64_t)(s & 0xffff) * (s & 0xffff) <
				65536ull * 65536ull;
		}
	}
	p.hits = rig_alloc(&rig, 4, NULL);
	rig_launch(&rig, "monte_carlo", (struct rig_shape){ { 3 }, { 64 }, 0 }, &p, sizeof(p));
	assert_int_equal(*(uint32_t *)rig_host(&rig, p.hits), hits);
	rig_close(&rig);
}

/* "abc" and a second block's worth of other messages; the digest of "abc" is FIPS 180's example. */
static void sha256_of_abc_is_the_published_one(void **state)
{
	static const uint32_t expected[8] = { 0xba7816bf, 0x8f01cfea, 0x414140de, 0x5dae2223,
					      0xb00361a3, 0x96177a9c, 0xb410ff61, 0xf20015ad };
	static const uint32_t empty[8] = { 0xe3b0c442, 0x98fc1c14, 0x9afbf4c8, 0x996fb924,
					   0x27ae41e4, 0x649b934c, 0xa495991b, 0x7852b855 };
	struct rig rig;
	static uint32_t message[40 * 16];
	const uint32_t *digest;
	struct {
		int n, pad;
		uint64_t message, digest;
	} p = { 40, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "words");
	for (int i = 0; i < 40; i++) {
		message[16 * i] = i % 2 ? 0x80000000 : 0x61626380;
		message[16 * i + 15] = i % 2 ? 0 : 24;
	}
	p.message = rig_alloc(&rig, sizeof(message), message);
	p.digest = rig_alloc(&rig, 40 * 32, NULL);
	rig_launch(&rig, "sha256", (struct rig_shape){ { 2 }, { 32 }, 0 }, &p, sizeof(p));
	digest = rig_host(&rig, p.digest);
	for (int i = 0; i < 40; i++)
		assert_memory_equal(&digest[8 * i], i % 2 ? empty : expected, 32);
	rig_close(&rig);
}

static void crc32_is_the_well_known_one(void **state)
{
	struct rig rig;
	struct {
		int n, length;
		uint64_t data, out;
	} p = { 33, 9, 0, 0 };
	char data[33 * 9];

	(void)state;
	rig_open(&rig, "words");
	for (int i = 0; i < 33; i++)
		memcpy(&data[i * 9], "123456789", 9); /* NOLINT(bugprone-not-null-terminated-result) */
	p.data = rig_alloc(&rig, sizeof(data), data);
	p.out = rig_alloc(&rig, 33 * 4, NULL);
	rig_launch(&rig, "crc32", (struct rig_shape){ { 2 }, { 32 }, 0 }, &p, sizeof(p));
	for (int i = 0; i < 33; i++)
		assert_int_equal(((uint32_t *)rig_host(&rig, p.out))[i], 0xcbf43926);
	rig_close(&rig);
}

static void search_finds_first_and_all(void **state)
{
	static const char text[] = "a needle in a stack of needles, not a needl but a needle";
	struct rig rig;
	struct {
		int n, pad;
		uint64_t text;
		int length, pad2;
		uint64_t word, first, count;
	} p = { sizeof(text) - 1, 0, 0, 6, 0, 0, 0, 0 };
	int most = INT32_MAX;

	(void)state;
	rig_open(&rig, "words");
	p.text = rig_alloc(&rig, sizeof(text), text);
	p.word = rig_alloc(&rig, 6, "needle");
	p.first = rig_alloc(&rig, 4, &most);
	p.count = rig_alloc(&rig, 4, NULL);
	rig_launch(&rig, "string_search", (struct rig_shape){ { 2 }, { 32 }, 0 }, &p, sizeof(p));
	assert_int_equal(*(int *)rig_host(&rig, p.first), 2);
	assert_int_equal(*(int *)rig_host(&rig, p.count), 3);
	rig_close(&rig);
}

__extension__ typedef unsigned __int128 wide_int;

static void modular_powers_and_wide_products_are_exact(void **state)
{
	enum { N = 70 };
	struct rig rig;
	uint64_t seed = 25, m = 0xfffffffffffffc5bull;
	static uint64_t base[2 * N], exponent[2 * N], power[N], sum[2 * N];
	struct {
		int n, pad;
		uint64_t base, exponent, m, out;
	} p = { N, 0, 0, 0, m, 0 };
	struct {
		int n, pad;
		uint64_t x, y, out;
	} q = { N, 0, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "words");
	for (int i = 0; i < 2 * N; i++) {
		base[i] = rig_random(&seed);
		exponent[i] = rig_random(&seed) >> (i % 60);
	}
	for (int i = 0; i < N; i++) {
		wide_int r = 1, b = base[i] % m, x = (wide_int)base[2 * i + 1] << 64 | base[2 * i];
		wide_int y = (wide_int)exponent[2 * i + 1] << 64 | exponent[2 * i], s = x * y + (x - y);

		for (uint64_t e = exponent[i]; e; e >>= 1) {
			r = e & 1 ? r * b % m : r;
			b = b * b % m;
		}
		power[i] = (uint64_t)r;
		sum[2 * i] = (uint64_t)s;
		sum[2 * i + 1] = (uint64_t)(s >> 64);
	}
	p.base = q.x = rig_alloc(&rig, sizeof(base), base);
	p.exponent = q.y = rig_alloc(&rig, sizeof(exponent), exponent);
	p.out = rig_alloc(&rig, sizeof(power), NULL);
	q.out = rig_alloc(&rig, sizeof(sum), NULL);
	rig_launch(&rig, "modpow", (struct rig_shape){ { 3 }, { 32 }, 0 }, &p, sizeof(p));
	rig_launch(&rig, "wide", (struct rig_shape){ { 3 }, { 32 }, 0 }, &q, sizeof(q));
	assert_memory_equal(rig_host(&rig, p.out), power, sizeof(power));
	assert_memory_equal(rig_host(&rig, q.out), sum, sizeof(sum));
	rig_close(&rig);
}

static uint32_t bytes_on_cpu(uint32_t a, uint32_t b)
{
	uint32_t r = 0, dot = 5, udot = 7, left = b & 63 & 31, right = (a & 63) < 32 ? a & 63 : 32;
	uint64_t both = (uint64_t)b << 32 | a, swapped = (uint64_t)a << 32 | b;
	int32_t sa = (int32_t)(a << 8) >> 8, sb = (int32_t)(b << 8) >> 8;

	for (int k = 0; k < 4; k++) {
		dot += (uint32_t)((int8_t)(a >> 8 * k) * (int8_t)(b >> 8 * k));
		udot += (uint8_t)(a >> 8 * k) * (uint8_t)(b >> 8 * k);
	}
	r += dot;
	r ^= udot;
	r += (uint32_t)((both >> 24 & 0xff) | (both >> 56 & 0xff) << 8 | (both >> 8 & 0xff) << 16 |
			(both >> 40 & 0xff) << 24);
	r ^= (uint32_t)(both << left >> 32) + (uint32_t)(both >> right);
	r += (uint32_t)__builtin_ffs((int)a) + (uint32_t)__builtin_ffsll((long long)swapped);
	r += (a > b ? a - b : b - a) + 3;
	r += (uint32_t)((int64_t)sa * sb) + (uint32_t)((uint64_t)(a & 0xffffff) * (b & 0xffffff));
	r += (uint32_t)(((int64_t)(int32_t)a + (int32_t)b) >> 1) +
	     (uint32_t)(((int64_t)(int32_t)a + (int32_t)b + 1) >> 1);
	return r;
}

static void bytes_of_words_are_taken_apart(void **state)
{
	struct rig rig;
	uint64_t seed = 26;
	static uint32_t x[500], y[500], out[500];
	struct {
		int n, pad;
		uint64_t x, y, out;
	} p = { 500, 0, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "words");
	for (int i = 0; i < 500; i++) {
		x[i] = (uint32_t)rig_random(&seed) >> (i % 31);
		y[i] = (uint32_t)rig_random(&seed) >> (i % 29);
		out[i] = bytes_on_cpu(x[i], y[i]);
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(y), y);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "bytes", (struct rig_shape){ { 4 }, { 128 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stencils_give_the_same_bits),
		cmocka_unit_test(life_goes_on),
		cmocka_unit_test(breadth_first_search_reaches_by_levels),
		cmocka_unit_test(mandelbrot_counts_the_same_steps),
		cmocka_unit_test(bodies_attract_bit_for_bit),
		cmocka_unit_test(monte_carlo_hits_the_same_points),
		cmocka_unit_test(sha256_of_abc_is_the_published_one),
		cmocka_unit_test(crc32_is_the_well_known_one),
		cmocka_unit_test(search_finds_first_and_all),
		cmocka_unit_test(modular_powers_and_wide_products_are_exact),
		cmocka_unit_test(bytes_of_words_are_taken_apart),
	};

	return cmocka_run_group_tests_name("ptx grids and words", tests, NULL, NULL);
}
/* NOLINTEND(bugprone-implicit-widening-of-multiplication-result) */
