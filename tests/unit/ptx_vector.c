/* ptx: kernels of tests/data/ptx/vector.cu and matrix.cu against C on the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define N 1000

static void saxpy_is_one_fused_step_an_element(void **state)
{
	struct rig rig;
	uint64_t seed = 1;
	float x[N], y[N];
	struct {
		int n;
		float a;
		uint64_t x, y;
	} p = { N, 2.5f, 0, 0 };

	(void)state;
	rig_open(&rig, "vector");
	for (int i = 0; i < N; i++) {
		x[i] = rig_random_float(&seed);
		y[i] = rig_random_float(&seed);
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(y), y);
	rig_launch(&rig, "saxpy", (struct rig_shape){ { 8 }, { 128 }, 0 }, &p, sizeof(p));
	for (int i = 0; i < N; i++)
		y[i] = fmaf(2.5f, x[i], y[i]);
	assert_memory_equal(rig_host(&rig, p.y), y, sizeof(y));
	rig_close(&rig);
}

static uint32_t reverse(uint32_t v)
{
	uint32_t r = 0;

	for (int i = 0; i < 32; i++)
		r |= (v >> i & 1) << (31 - i);
	return r;
}

static int32_t ops_on_cpu(int32_t a, int32_t b)
{
	uint32_t ua = (uint32_t)a, ub = (uint32_t)b, s = ua + ub * 3 - (ua ^ ub);

	s += (uint32_t)(a / (b | 1)) + (uint32_t)(a % (b | 1));
	s += (ua << (b & 15)) + (uint32_t)(a >> (b & 7));
	s += (uint32_t)__builtin_popcount(ua) + (ub ? (uint32_t)__builtin_clz(ub) : 32) + reverse(ua);
	s += (uint32_t)(a < b ? a : b) - (uint32_t)(a > b ? a : b);
	s += (uint32_t)((int64_t)a * b >> 32) + (uint32_t)((uint64_t)ua * ub >> 32);
	return (int32_t)(s + ((int32_t)(ua - ub) < 0 ? ub - ua : ua - ub));
}

static void integer_vectors_give_the_same_bits(void **state)
{
	struct rig rig;
	uint64_t seed = 2;
	int32_t x[N], y[N], out[N];
	struct {
		int n, pad;
		uint64_t x, y, out;
	} p = { N, 0, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "vector");
	for (int i = 0; i < N; i++) {
		x[i] = (int32_t)rig_random(&seed) >> (i % 20);
		y[i] = (int32_t)rig_random(&seed) >> (i % 13);
		out[i] = ops_on_cpu(x[i], y[i]);
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(y), y);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "vector_ops", (struct rig_shape){ { 3 }, { 96 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

static void vectors_of_four_move_whole(void **state)
{
	struct rig rig;
	float x[400], y[400];
	struct {
		int n, pad;
		uint64_t x, y;
	} p = { 100, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "vector");
	for (int i = 0; i < 400; i++) {
		x[i] = (float)i;
		y[i / 4 * 4 + 3 - i % 4] = (float)i;
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(y), NULL);
	rig_launch(&rig, "copy4", (struct rig_shape){ { 4 }, { 32 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.y), y, sizeof(y));
	rig_close(&rig);
}

static void narrow_types_extend_and_wrap(void **state)
{
	struct rig rig;
	uint64_t seed = 3;
	int8_t x[300];
	uint16_t y[300];
	int16_t out[300];
	struct {
		int n, pad;
		uint64_t x, y, out;
	} p = { 300, 0, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "vector");
	for (int i = 0; i < 300; i++) {
		x[i] = (int8_t)rig_random(&seed);
		y[i] = (uint16_t)rig_random(&seed);
		out[i] = (int16_t)(x[i] * 3 + y[i] / 7);
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(y), y);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "narrow", (struct rig_shape){ { 3 }, { 128 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

static void tiled_gemm_adds_in_order(void **state)
{
	enum { M = 37, NN = 45, K = 50 };
	struct rig rig;
	uint64_t seed = 4;
	static float a[M * K], b[K * NN], c[M * NN];
	struct {
		int m, n, k, pad;
		uint64_t a, b, c;
	} p = { M, NN, K, 0, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "matrix");
	for (int i = 0; i < M * K; i++)
		a[i] = rig_random_float(&seed);
	for (int i = 0; i < K * NN; i++)
		b[i] = rig_random_float(&seed);
	for (int i = 0; i < M; i++)
		for (int j = 0; j < NN; j++) {
			float sum = 0;

			for (int k = 0; k < K; k++)
				sum = fmaf(a[i * K + k], b[k * NN + j], sum);
			c[i * NN + j] = sum;
		}
	p.a = rig_alloc(&rig, sizeof(a), a);
	p.b = rig_alloc(&rig, sizeof(b), b);
	p.c = rig_alloc(&rig, sizeof(c), NULL);
	rig_launch(&rig, "gemm", (struct rig_shape){ { 3, 3 }, { 16, 16 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.c), c, sizeof(c));
	rig_close(&rig);
}

static void transpose_moves_every_element(void **state)
{
	enum { W = 70, H = 45 };
	struct rig rig;
	static float in[W * H], out[W * H];
	struct {
		int w, h;
		uint64_t in, out;
	} p = { W, H, 0, 0 };

	(void)state;
	rig_open(&rig, "matrix");
	for (int y = 0; y < H; y++)
		for (int x = 0; x < W; x++) {
			in[y * W + x] = (float)(y * 100 + x);
			out[x * H + y] = in[y * W + x];
		}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "transpose", (struct rig_shape){ { 3, 2 }, { 32, 8 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

static void rows_on_cpu(int rows, int cols, const double *a, const double *x, double *dot, double *kahan)
{
	for (int r = 0; r < rows; r++) {
		volatile double sum = 0, c = 0, y, t;
		double product = 0;

		for (int i = 0; i < cols; i++) {
			product = fma(a[r * cols + i], x[i], product);
			y = a[r * cols + i] - c;
			t = sum + y;
			c = t - sum;
			c = c - y;
			sum = t;
		}
		dot[r] = product;
		kahan[r] = sum;
	}
}

static void double_rows_give_the_same_bits(void **state)
{
	enum { R = 50, C = 77 };
	struct rig rig;
	uint64_t seed = 5;
	static double a[R * C], x[C], dot[R], kahan[R];
	struct {
		int rows, cols;
		uint64_t a, x, y;
	} p = { R, C, 0, 0, 0 };
	struct {
		int rows, cols;
		uint64_t a, y;
	} q = { R, C, 0, 0 };

	(void)state;
	rig_open(&rig, "matrix");
	for (int i = 0; i < R * C; i++)
		a[i] = (double)rig_random_float(&seed) * exp2((double)(rig_random(&seed) % 40));
	for (int i = 0; i < C; i++)
		x[i] = (double)rig_random_float(&seed);
	rows_on_cpu(R, C, a, x, dot, kahan);
	p.a = q.a = rig_alloc(&rig, sizeof(a), a);
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(dot), NULL);
	q.y = rig_alloc(&rig, sizeof(kahan), NULL);
	rig_launch(&rig, "matvec", (struct rig_shape){ { 2 }, { 32 }, 0 }, &p, sizeof(p));
	rig_launch(&rig, "kahan", (struct rig_shape){ { 2 }, { 32 }, 0 }, &q, sizeof(q));
	assert_memory_equal(rig_host(&rig, p.y), dot, sizeof(dot));
	assert_memory_equal(rig_host(&rig, q.y), kahan, sizeof(kahan));
	rig_close(&rig);
}

static void floyd_warshall_finds_shortest_ways(void **state)
{
	enum { V = 40 };
	struct rig rig;
	uint64_t seed = 6;
	static int d[V * V];
	struct {
		int n, k;
		uint64_t d;
	} p = { V, 0, 0 };

	(void)state;
	rig_open(&rig, "matrix");
	for (int i = 0; i < V * V; i++)
		d[i] = i % (V + 1) == 0 ? 0 : rig_random(&seed) % 5 ? 100000 : (int)(rig_random(&seed) % 100);
	p.d = rig_alloc(&rig, sizeof(d), d);
	for (p.k = 0; p.k < V; p.k++) {
		rig_launch(&rig, "floyd_warshall", (struct rig_shape){ { 2, V }, { 32 }, 0 }, &p, sizeof(p));
		for (int i = 0; i < V; i++)
			for (int j = 0; j < V; j++)
				if (d[i * V + p.k] + d[p.k * V + j] < d[i * V + j])
					d[i * V + j] = d[i * V + p.k] + d[p.k * V + j];
	}
	assert_memory_equal(rig_host(&rig, p.d), d, sizeof(d));
	rig_close(&rig);
}

static void sparse_rows_of_any_length_add_up(void **state)
{
	enum { R = 200, PER = 12 };
	struct rig rig;
	uint64_t seed = 7;
	static int start[R + 1], col[R * PER];
	static float val[R * PER], x[R], y[R];
	struct {
		int rows, pad;
		uint64_t start, col, val, x, y;
	} p = { R, 0, 0, 0, 0, 0, 0 };
	int n = 0;

	(void)state;
	rig_open(&rig, "matrix");
	for (int r = 0; r < R; r++)
		x[r] = rig_random_float(&seed);
	for (int r = 0; r < R; r++) {
		start[r] = n;
		y[r] = 0;
		for (uint64_t k = rig_random(&seed) % PER; k; k--) {
			col[n] = (int)(rig_random(&seed) % R);
			val[n] = rig_random_float(&seed);
			y[r] = fmaf(val[n], x[col[n]], y[r]);
			n++;
		}
	}
	start[R] = n;
	p.start = rig_alloc(&rig, sizeof(start), start);
	p.col = rig_alloc(&rig, sizeof(col), col);
	p.val = rig_alloc(&rig, sizeof(val), val);
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.y = rig_alloc(&rig, sizeof(y), NULL);
	rig_launch(&rig, "spmv", (struct rig_shape){ { 4 }, { 64 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.y), y, sizeof(y));
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(saxpy_is_one_fused_step_an_element),
		cmocka_unit_test(integer_vectors_give_the_same_bits),
		cmocka_unit_test(vectors_of_four_move_whole),
		cmocka_unit_test(narrow_types_extend_and_wrap),
		cmocka_unit_test(tiled_gemm_adds_in_order),
		cmocka_unit_test(transpose_moves_every_element),
		cmocka_unit_test(double_rows_give_the_same_bits),
		cmocka_unit_test(floyd_warshall_finds_shortest_ways),
		cmocka_unit_test(sparse_rows_of_any_length_add_up),
	};

	return cmocka_run_group_tests_name("ptx vectors and matrices", tests, NULL, NULL);
}
