/* ptx: kernels of tests/data/ptx/language.cu and net.cu against C on the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

/* The arrays are small: their indices fit an int. */
/* NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result) */

struct pair {
	int a;
	double b;
	float c[3];
	uint8_t d;
};

static void structs_are_passed_by_value(void **state)
{
	struct rig rig;
	struct pair q[40];
	double out[40];
	struct {
		struct pair p;
		uint64_t q, out;
	} p = { { 3, 1.25, { 0.5f, 1.5f, 2.5f }, 200 }, 0, 0 };

	(void)state;
	rig_open(&rig, "language");
	memset(q, 0, sizeof(q));
	for (int i = 0; i < 40; i++) {
		q[i] = (struct pair){ i - 20, i * 0.125, { 0, 1, (float)i }, (uint8_t)(i * 7) };
		out[i] = fma(p.p.a, p.p.b, (double)p.p.c[i % 3]) + p.p.d;
		out[i] = fma(q[i].a, q[i].b, out[i]) - (double)q[i].c[2] + q[i].d;
	}
	p.q = rig_alloc(&rig, sizeof(q), q);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "struct_param", (struct rig_shape){ { 1 }, { 40 }, 0 }, &p, sizeof(p));
	for (int i = 0; i < 40; i++)
		assert_true(fabs(((double *)rig_host(&rig, p.out))[i] - out[i]) < 1e-12);
	rig_close(&rig);
}

static void calls_pass_and_return_values(void **state)
{
	struct rig rig;
	float x[70], out[70];
	struct {
		uint64_t x, out;
	} p;

	(void)state;
	rig_open(&rig, "language");
	for (int i = 0; i < 70; i++) {
		float c[3] = { 1.0f, 0, 2.0f }, r;
		struct pair v = { i, 1.5, { 0, 2.0f, 3.0f }, (uint8_t)i };

		x[i] = (float)i * 0.25f;
		c[1] = x[i] * 0.5f;
		v.c[0] = x[i];
		if (i & 1) {
			v.a += i;
			v.b *= 2;
			v.c[i % 3] *= v.c[i % 3];
		}
		r = c[0] + c[1] * x[i] +
		    c[2] * (x[i] * x[i]); /* exact in these values: fused or not is the same */
		if (i % 3 == 0)
			r += r * r;
		out[i] = r + (float)v.a + (float)v.b + v.c[0] + v.c[1] + v.c[2] + (float)v.d;
	}
	p.x = rig_alloc(&rig, sizeof(x), x);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "calls", (struct rig_shape){ { 1 }, { 70 }, 0 }, &p, sizeof(p));
	for (int i = 0; i < 70; i++)
		assert_true(fabsf(((float *)rig_host(&rig, p.out))[i] - out[i]) <= fabsf(out[i]) * 1e-6f);
	rig_close(&rig);
}

static int switch_on_cpu(int v, int i, int before)
{
	int r = 0;

	switch (v) {
	case 0:
		return v + 11;
	case 1:
		return v * 13;
	case 2:
		return v - 17 + (v ^ 19);
	case 3:
		return v ^ 19;
	case 4:
		return v << 3;
	case 5:
		return 29 - v;
	case 6:
		for (int k = 0; k < i % 7; k++)
			r += k * v;
		return r;
	case 7:
		return v % 3;
	case 8:
		return -v;
	case 9:
		return before;
	default:
		return 1000 + v;
	}
}

static int nested_on_cpu(int i, int before)
{
	int r = 0;

	for (int a = 0; a < i % 9; a++) {
		if (a == 5)
			continue;
		for (int b = a; b < 20; b++) {
			if ((b * 7 + i) % 11 == 0)
				break;
			if ((b + a) & 1)
				continue;
			r += a * b + 1;
			if (r > 500 + i)
				return r;
		}
		if (r % 13 == 12)
			return before;
	}
	return r;
}

static void divergent_lanes_find_their_way(void **state)
{
	enum { N = 300 };
	struct rig rig;
	uint64_t seed = 31;
	int in[N], out[N], nested[N];
	struct {
		int n, pad;
		uint64_t in, out;
	} p = { N, 0, 0, 0 };
	struct {
		int n, pad;
		uint64_t out;
	} q = { N, 0, 0 };

	(void)state;
	rig_open(&rig, "language");
	for (int i = 0; i < N; i++) {
		in[i] = (int)(rig_random(&seed) % 12);
		out[i] = switch_on_cpu(in[i], i, 0);
		nested[i] = nested_on_cpu(i, 0);
	}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	q.out = rig_alloc(&rig, sizeof(nested), NULL);
	rig_launch(&rig, "switches", (struct rig_shape){ { 3 }, { 128 }, 0 }, &p, sizeof(p));
	rig_launch(&rig, "nested", (struct rig_shape){ { 3 }, { 128 }, 0 }, &q, sizeof(q));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	assert_memory_equal(rig_host(&rig, q.out), nested, sizeof(nested));
	rig_close(&rig);
}

static void globals_start_with_their_initial_values(void **state)
{
	static const int table[8] = { 3, 1, 4, 1, 5, 9, 2, 6 }, nodes[3] = { 2, 5, 7 };
	static const char letters[3] = { 'n', 'w', 'h' };
	const float settings[4] = { 100, 200, 300, 400 };
	struct rig rig;
	int out[32];
	uint64_t at;

	(void)state;
	rig_open(&rig, "language");
	memcpy(rig_host(&rig, rig_variable(&rig, "settings")), settings, sizeof(settings));
	for (int i = 0; i < 32; i++)
		out[i] = table[i & 7] + 40 + (int)settings[i & 3] + letters[i % 3] + nodes[i % 3] * 1000;
	at = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "globals", (struct rig_shape){ { 1 }, { 32 }, 0 }, &at, sizeof(at));
	assert_memory_equal(rig_host(&rig, at), out, sizeof(out));
	assert_int_equal(*(int *)rig_host(&rig, rig_variable(&rig, "counter")), 42);
	rig_close(&rig);
}

static void printf_reaches_the_host(void **state)
{
	struct rig rig;
	int n = 2;

	(void)state;
	rig_open(&rig, "language");
	rig_launch(&rig, "talk", (struct rig_shape){ { 1 }, { 32 }, 0 }, &n, sizeof(n));
	assert_string_equal(rig.printed, "thread 0 of one: 0.000000\nthread 1 of two: 0.500000\n");
	rig_close(&rig);
}

static void assertion_is_a_fault_with_its_text(void **state)
{
	struct rig rig;
	int n = 40;

	(void)state;
	rig_open(&rig, "language");
	rig_launch(&rig, "doubt", (struct rig_shape){ { 1 }, { 40 }, 0 }, &n, sizeof(n));
	n = 37;
	assert_int_equal(rig_run(&rig, "doubt", (struct rig_shape){ { 1 }, { 40 }, 0 }, &n, sizeof(n)),
			 PTX_STATE_FAULT);
	assert_int_equal(rig.fault.kind, PTX_FAULT_ASSERT);
	assert_int_equal(rig.fault.thread[0], 37);
	assert_non_null(strstr(rig.fault.text, "threadIdx.x < n"));
	assert_non_null(strstr(rig.fault.text, "language.cu"));
	rig_close(&rig);
}

static void local_arrays_belong_to_their_thread(void **state)
{
	struct rig rig;
	uint64_t seed = 32;
	static int in[50 * 16], out[50];
	struct {
		int n, pad;
		uint64_t in, out;
	} p = { 40, 0, 0, 0 };

	(void)state;
	rig_open(&rig, "language");
	for (int i = 0; i < 50 * 16; i++)
		in[i] = (int)(rig_random(&seed) % 1000);
	for (int i = 0; i < 50; i++) {
		int a[16];
		uint32_t sum = 0;

		memcpy(a, &in[i * 16], sizeof(a));
		for (int k = 0; k < 40; k++) {
			int from = a[k & 15] & 15, t = a[from];

			a[from] = a[(from + k) & 15] + 1;
			a[(from + k) & 15] = t;
		}
		for (int k = 0; k < 16; k++)
			sum = sum * 31 + (uint32_t)a[k];
		out[i] = (int)sum;
	}
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "local_array", (struct rig_shape){ { 1 }, { 50 }, 0 }, &p, sizeof(p));
	assert_memory_equal(rig_host(&rig, p.out), out, sizeof(out));
	rig_close(&rig);
}

static void generic_addresses_know_their_space(void **state)
{
	struct rig rig;
	uint64_t at, out[64];

	(void)state;
	rig_open(&rig, "language");
	for (uint64_t i = 0; i < 64; i++)
		out[i] = i & 1 ? 109 : i & 2 ? 200 + i : 340;
	at = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "places", (struct rig_shape){ { 1 }, { 64 }, 0 }, &at, sizeof(at));
	assert_memory_equal(rig_host(&rig, at), out, sizeof(out));
	rig_close(&rig);
}

static void threads_that_left_are_not_waited_for(void **state)
{
	struct rig rig;
	int out[8] = { 7, 6, 5, 4, 3, 2, 1, 0 };
	uint64_t at;

	(void)state;
	rig_open(&rig, "language");
	at = rig_alloc(&rig, sizeof(out), NULL);
	rig_launch(&rig, "late", (struct rig_shape){ { 1 }, { 256 }, 0 }, &at, sizeof(at));
	assert_memory_equal(rig_host(&rig, at), out, sizeof(out));
	rig_close(&rig);
}

static void a_lock_taken_by_lanes_is_passed_on(void **state)
{
	struct rig rig;
	struct {
		uint64_t lock, value;
	} p;

	(void)state;
	rig_open(&rig, "language");
	p.lock = rig_alloc(&rig, 4, NULL);
	p.value = rig_alloc(&rig, 4, NULL);
	rig_launch(&rig, "spin", (struct rig_shape){ { 1 }, { 64 }, 0 }, &p, sizeof(p));
	assert_int_equal(*(int *)rig_host(&rig, p.value), 64);
	rig_close(&rig);
}

/* Networks: exponentials are approximate on the device, so within a few units of the last place. */

static void softmax_rows_sum_to_one(void **state)
{
	enum { R = 5, C = 50 };
	struct rig rig;
	uint64_t seed = 33;
	float in[R * C];
	const float *out;
	struct {
		int rows, cols;
		uint64_t in, out;
	} p = { R, C, 0, 0 };

	(void)state;
	rig_open(&rig, "net");
	for (int i = 0; i < R * C; i++)
		in[i] = rig_random_float(&seed) * 8.0f;
	p.in = rig_alloc(&rig, sizeof(in), in);
	p.out = rig_alloc(&rig, sizeof(in), NULL);
	rig_launch(&rig, "softmax", (struct rig_shape){ { 2 }, { 96 }, 0 }, &p, sizeof(p));
	out = rig_host(&rig, p.out);
	for (int r = 0; r < R; r++) {
		double sum = 0;

		for (int c = 0; c < C; c++)
			sum += exp((double)in[r * C + c]);
		for (int c = 0; c < C; c++)
			assert_true(fabs((double)out[r * C + c] - exp((double)in[r * C + c]) / sum) < 1e-6);
	}
	rig_close(&rig);
}

static void norm_on_cpu(int rows, int cols, const float *in, const float *gain, const float *bias,
			double *out)
{
	for (int r = 0; r < rows; r++) {
		double sum = 0, square = 0, mean, scale;

		for (int c = 0; c < cols; c++) {
			sum += (double)in[r * cols + c];
			square += (double)in[r * cols + c] * (double)in[r * cols + c];
		}
		mean = sum / cols;
		scale = 1 / sqrt(square / cols - mean * mean + 1e-5);
		for (int c = 0; c < cols; c++)
			out[r * cols + c] = ((double)in[r * cols + c] - mean) * scale * (double)gain[c] +
					    (double)bias[c];
	}
}

enum { P = 12, H = 4, D = H * 16, F = 128 };

struct layer {
	struct rig rig;
	uint64_t seed;
	float x[P * D], gain[D], bias[D], zero[F];
	float w[4][D * D], up[D * F], down[F * D];
};

static uint64_t weights(struct layer *l, float *w, size_t count)
{
	for (size_t i = 0; i < count; i++)
		w[i] = rig_random_float(&l->seed) * 0.2f;
	return rig_alloc(&l->rig, count * 4, w);
}

static void linear_on_device(struct layer *l, int in, int out, uint64_t x, uint64_t w, uint64_t b, uint64_t y,
			     int gelu)
{
	struct {
		int rows, in, out, pad;
		uint64_t x, w, b, y;
		int gelu;
	} p = { P, in, out, 0, x, w, b, y, gelu };

	rig_launch(&l->rig, "linear", (struct rig_shape){ { (uint32_t)(out + 63) / 64, P }, { 64 }, 0 }, &p,
		   sizeof(p));
}

static void linear_on_cpu(int in, int out, const double *x, const float *w, const float *b, double *y,
			  bool gelu)
{
	for (int r = 0; r < P; r++)
		for (int c = 0; c < out; c++) {
			double s = (double)b[c];

			for (int i = 0; i < in; i++)
				s += x[r * in + i] * (double)w[i * out + c];
			y[r * out + c] =
				gelu ? 0.5 * s * (1 + tanh(0.7978845608 * (s + 0.044715 * s * s * s))) : s;
		}
}

static void attention_on_cpu(const double *q, const double *k, const double *v, double *out)
{
	for (int h = 0; h < H; h++)
		for (int r = 0; r < P; r++) {
			double score[P], sum = 0;

			for (int t = 0; t <= r; t++) {
				score[t] = 0;
				for (int i = 0; i < 16; i++)
					score[t] += q[r * D + h * 16 + i] * k[t * D + h * 16 + i];
				score[t] = exp(score[t] * 0.25);
				sum += score[t];
			}
			for (int i = 0; i < 16; i++) {
				out[r * D + h * 16 + i] = 0;
				for (int t = 0; t <= r; t++)
					out[r * D + h * 16 + i] += score[t] / sum * v[t * D + h * 16 + i];
			}
		}
}

static void layer_on_cpu(const struct layer *l, double *y)
{
	static double norm[P * D], q[P * D], k[P * D], v[P * D], a[P * D], mid[P * F];
	static float rounded[P * D];

	norm_on_cpu(P, D, l->x, l->gain, l->bias, norm);
	linear_on_cpu(D, D, norm, l->w[0], l->zero, q, false);
	linear_on_cpu(D, D, norm, l->w[1], l->zero, k, false);
	linear_on_cpu(D, D, norm, l->w[2], l->zero, v, false);
	attention_on_cpu(q, k, v, a);
	linear_on_cpu(D, D, a, l->w[3], l->zero, y, false);
	for (int i = 0; i < P * D; i++) {
		y[i] += (double)l->x[i];
		rounded[i] = (float)y[i];
	}
	norm_on_cpu(P, D, rounded, l->gain, l->bias, norm);
	linear_on_cpu(D, F, norm, l->up, l->zero, mid, true);
	linear_on_cpu(F, D, mid, l->down, l->zero, a, false);
	for (int i = 0; i < P * D; i++)
		y[i] += a[i];
}

static void norm_on_device(struct layer *l, uint64_t in, uint64_t gain, uint64_t bias, uint64_t out)
{
	struct {
		int rows, cols;
		uint64_t in, gain, bias, out;
	} p = { P, D, in, gain, bias, out };

	rig_launch(&l->rig, "layernorm", (struct rig_shape){ { P }, { 64 }, 0 }, &p, sizeof(p));
}

static void add_on_device(struct layer *l, uint64_t a, uint64_t b, uint64_t out)
{
	struct {
		int n, pad;
		uint64_t a, b, out;
	} p = { P * D, 0, a, b, out };

	rig_launch(&l->rig, "add", (struct rig_shape){ { 12 }, { 64 }, 0 }, &p, sizeof(p));
}

static void transformer_layer_is_close_to_doubles(void **state)
{
	static struct layer l;
	static double y[P * D];
	uint64_t x, gain, bias, w[4], up, down, row[6], mid;
	const float *out;

	(void)state;
	memset(&l, 0, sizeof(l));
	l.seed = 34;
	rig_open(&l.rig, "net");
	x = weights(&l, l.x, P * D);
	gain = weights(&l, l.gain, D);
	bias = weights(&l, l.bias, D);
	for (int i = 0; i < 4; i++)
		w[i] = weights(&l, l.w[i], (size_t)D * D);
	up = weights(&l, l.up, (size_t)D * F);
	down = weights(&l, l.down, (size_t)F * D);
	for (int i = 0; i < 6; i++)
		row[i] = rig_alloc(&l.rig, sizeof(float) * P * D, NULL);
	mid = rig_alloc(&l.rig, sizeof(float) * P * F, NULL);
	norm_on_device(&l, x, gain, bias, row[0]);
	for (int i = 0; i < 3; i++)
		linear_on_device(&l, D, D, row[0], w[i], 0, row[1 + i], 0);
	{
		struct {
			int positions, heads;
			uint64_t q, k, v, out;
		} p = { P, H, row[1], row[2], row[3], row[4] };

		rig_launch(&l.rig, "attention", (struct rig_shape){ { H, P }, { 64 }, 0 }, &p, sizeof(p));
	}
	linear_on_device(&l, D, D, row[4], w[3], 0, row[5], 0);
	add_on_device(&l, row[5], x, row[1]);
	norm_on_device(&l, row[1], gain, bias, row[0]);
	linear_on_device(&l, D, F, row[0], up, 0, mid, 1);
	linear_on_device(&l, F, D, mid, down, 0, row[2], 0);
	add_on_device(&l, row[1], row[2], row[3]);
	layer_on_cpu(&l, y);
	out = rig_host(&l.rig, row[3]);
	for (int i = 0; i < P * D; i++)
		assert_true(fabs((double)out[i] - y[i]) < 1e-4);
	rig_close(&l.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(structs_are_passed_by_value),
		cmocka_unit_test(calls_pass_and_return_values),
		cmocka_unit_test(divergent_lanes_find_their_way),
		cmocka_unit_test(globals_start_with_their_initial_values),
		cmocka_unit_test(printf_reaches_the_host),
		cmocka_unit_test(local_arrays_belong_to_their_thread),
		cmocka_unit_test(generic_addresses_know_their_space),
		cmocka_unit_test(threads_that_left_are_not_waited_for),
		cmocka_unit_test(a_lock_taken_by_lanes_is_passed_on),
		cmocka_unit_test(softmax_rows_sum_to_one),
		cmocka_unit_test(transformer_layer_is_close_to_doubles),
		/* the last one: on a real GPU a failed assertion is the end of the whole process's use of it,
		 * cuCtxCreate answers 710 from then on (measured on an H200, driver 580.159.04) */
		cmocka_unit_test(assertion_is_a_fault_with_its_text),
	};

	return cmocka_run_group_tests_name("ptx language and networks", tests, NULL, NULL);
}
/* NOLINTEND(bugprone-implicit-widening-of-multiplication-result) */
