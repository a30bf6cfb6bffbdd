/* ptx: calls through pointers, functions' addresses in data, virtual functions and recursion: kernels of
 * tests/data/ptx/calls.cu against C on the CPU, and what cannot be called. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx_run.h"

#define THREADS 96

typedef int expected_fn(int i);

static void check_kernel(const char *kernel, expected_fn *expected)
{
	struct rig rig;
	const int *got;
	uint64_t out;

	rig_open(&rig, "calls");
	out = rig_alloc(&rig, sizeof(uint32_t) * THREADS, NULL);
	rig_launch(&rig, kernel, (struct rig_shape){ { 1 }, { THREADS }, 0 }, &out, sizeof(out));
	got = rig_host(&rig, out);
	for (int i = 0; i < THREADS; i++)
		if (got[i] != expected(i))
			fail_msg("%s: thread %d has %d, not %d", kernel, i, got[i], expected(i));
	rig_close(&rig);
}

static int chosen(int which, int a, int b)
{
	return which == 0 ? a + b : which == 1 ? a - b : a * b;
}

static int by_table(int i)
{
	return chosen(i % 3, i, 7) + 1000 * chosen(2 - i % 3 == 1 ? 1 : 2 - i % 3, i, 2);
}

static int by_entry(int i)
{
	return i / 3 % 2 ? i - 9 + 200 + 's' : i + 9 + 100 + 'a';
}

static int by_choice(int i)
{
	return i % 5 == 2 ? 0 : i & 1 ? i + 5 : i * 5;
}

static int structures(int i)
{
	int s = 0;

	for (int k = 0; k < 10; k++)
		s += (i % 3 ? (i + k) * (i % 5) : i + k + i % 5) * k;
	return s;
}

static void tables_hold_functions(void **state)
{
	(void)state;
	check_kernel("by_table", by_table);
	check_kernel("by_entry", by_entry);
}

static void lanes_call_different_functions_at_once(void **state)
{
	(void)state;
	check_kernel("by_choice", by_choice);
}

static void structures_pass_through_pointers(void **state)
{
	(void)state;
	check_kernel("structures", structures);
}

static int tree(int which, int x, int many)
{
	int one = 1 + x;

	switch (which) {
	case 0:
		return one;
	case 1: /* one(x) + many(x + 1) */
		return one + many + x + 1;
	case 2: /* sum(x + 2) * many(x) */
		return tree(1, x + 2, many) * (many + x);
	default: /* product(x) + sum(x + 1) */
		return tree(2, x, many) + tree(1, x + 1, many);
	}
}

static int virtuals(int i)
{
	return tree(i % 4, i % 7, i);
}

static void virtual_functions_call_virtual_functions(void **state)
{
	(void)state;
	check_kernel("virtuals", virtuals);
}

static int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static int fibonacci(int i)
{
	return fib(i % 12);
}

static void a_function_calls_itself(void **state)
{
	(void)state;
	check_kernel("fibonacci", fibonacci);
}

static int alternate(int n, int factor, int *above)
{
	int mine = n * factor, r;

	if (n == 0)
		return factor == 5;
	r = alternate(n - 1, 8 - factor, &mine);
	*above += mine;
	return r;
}

static int mutual(int i)
{
	int t = 0, r = alternate(i % 9, 5, &t) * 1000;

	return r + t;
}

static void functions_call_each_other_with_frames_of_their_own(void **state)
{
	(void)state;
	check_kernel("mutual", mutual);
}

static int compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return x < y ? -1 : x > y;
}

static void quicksort_recurses_twice(void **state)
{
	enum { EACH = 37 };
	static int values[THREADS * EACH];
	struct {
		uint64_t values;
		int each, pad;
	} p = { 0, EACH, 0 };
	uint64_t seed = 5;
	struct rig rig;

	(void)state;
	rig_open(&rig, "calls");
	for (int i = 0; i < THREADS * EACH; i++)
		values[i] = (int)(rig_random(&seed) % 200);
	p.values = rig_alloc(&rig, sizeof(values), values);
	rig_launch(&rig, "quicksort", (struct rig_shape){ { 1 }, { THREADS }, 0 }, &p, 12);
	for (int i = 0; i < THREADS; i++)
		qsort(values + (size_t)i * EACH, EACH, sizeof(int), compare);
	assert_memory_equal(rig_host(&rig, p.values), values, sizeof(values));
	rig_close(&rig);
}

static enum ptx_state run_deep(struct rig *rig, int n, uint64_t *out)
{
	struct {
		int n, pad;
		uint64_t out;
	} p = { n, 0, 0 };

	p.out = *out = rig_alloc(rig, sizeof(uint32_t) * THREADS, NULL);
	return rig_run(rig, "deep", (struct rig_shape){ { 2 }, { THREADS }, 0 }, &p, sizeof(p));
}

static void recursion_ends_at_the_stack_limit(void **state)
{
	struct rig rig;
	uint64_t out;

	(void)state;
	rig_open(&rig, "calls");
	assert_int_equal(run_deep(&rig, 100, &out), PTX_STATE_DONE);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(((int *)rig_host(&rig, out))[i], 101);
	assert_non_null(strstr(rig.printed, "depth"));
	assert_int_equal(run_deep(&rig, 1000000, &out), PTX_STATE_FAULT);
	assert_int_equal(rig.fault.kind, PTX_FAULT_STACK);
	assert_string_equal(ptx_fault_name(rig.fault.kind), "stack overflow");
	assert_true(rig.fault.line > 0);
	rig_close(&rig);
}

/* `single` holds the address of a function: the host reads it and passes it as a parameter. */
static void a_pointer_travels_through_the_host(void **state)
{
	struct {
		uint64_t f, out;
	} p;
	struct rig rig;

	(void)state;
	rig_open(&rig, "calls");
	memcpy(&p.f, rig_host(&rig, rig_variable(&rig, "single")), 8);
	p.out = rig_alloc(&rig, sizeof(uint32_t) * THREADS, NULL);
	rig_launch(&rig, "by_parameter", (struct rig_shape){ { 1 }, { THREADS }, 0 }, &p, sizeof(p));
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(((int *)rig_host(&rig, p.out))[i], i * 3);
	rig_close(&rig);
}

static void what_is_no_function_of_the_kind_cannot_be_called(void **state)
{
	static const int64_t wrong[] = { 0, 1, 16, -16, 0x7fffffff, 16000 };
	struct {
		uint64_t f, out;
	} p;
	struct rig rig;
	uint64_t right;

	(void)state;
	rig_open(&rig, "calls");
	memcpy(&right, rig_host(&rig, rig_variable(&rig, "single")), 8);
	p.out = rig_alloc(&rig, sizeof(uint32_t) * THREADS, NULL);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		enum ptx_state end;

		p.f = i ? right + (uint64_t)wrong[i] : 0;
		end = rig_run(&rig, "by_parameter", (struct rig_shape){ { 1 }, { THREADS }, 0 }, &p,
			      sizeof(p));
		if (end == PTX_STATE_DONE) /* the next function of the same kind */
			continue;
		assert_int_equal(end, PTX_STATE_FAULT);
		assert_int_equal(rig.fault.kind, PTX_FAULT_CALL);
	}
	p.f = 0;
	assert_int_equal(rig_run(&rig, "by_parameter", (struct rig_shape){ { 1 }, { 1 }, 0 }, &p, sizeof(p)),
			 PTX_STATE_FAULT);
	rig_close(&rig);
}

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"

static void refused(const char *text, const char *why)
{
	struct ptx_module *module;
	struct bf_error err = { 0 };

	assert_int_equal(ptx_module_load(text, strlen(text), &module, &err), -EINVAL);
	assert_null(module);
	if (!strstr(err.text, why))
		fail_msg("'%s' does not say '%s'", err.text, why);
}

static void what_cannot_be_called_is_refused(void **state)
{
	(void)state;
	refused(HEAD ".visible .entry k()\n{\n.reg .b64 %rd<2>;\nmov.u64 %rd1, k;\n}\n",
		"address of k, a kernel");
	refused(HEAD ".extern .func f();\n.visible .entry k()\n{\n.reg .b64 %rd<2>;\nmov.u64 %rd1, f;\n}\n",
		"f, which is not defined");
	refused(HEAD ".visible .entry k()\n{\n.reg .b64 %rd<2>;\ncall %rd1;\n}\n",
		"without a .callprototype");
	refused(HEAD ".visible .entry k()\n{\n.reg .b32 %r<2>;\np: .callprototype _ ();\ncall %r1, p;\n}\n",
		"not of 64 bits");
	refused(HEAD ".visible .entry k()\n{\n.reg .b64 %rd<2>;\np: .callprototype _ (.param .b32 _);\n"
		     "call %rd1, p;\n}\n",
		"takes 1 arguments");
	refused(HEAD ".func f(.param .b64 a)\n{\n.local .b32 x;\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n"
		     "mov.u32 %r1, x;\nld.param.u64 %rd1, [a];\n.param .b64 b;\nst.param.b64 [b], %rd1;\n"
		     "call f, (b);\n}\n",
		"32-bit address");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_hold_functions),
		cmocka_unit_test(lanes_call_different_functions_at_once),
		cmocka_unit_test(structures_pass_through_pointers),
		cmocka_unit_test(virtual_functions_call_virtual_functions),
		cmocka_unit_test(a_function_calls_itself),
		cmocka_unit_test(functions_call_each_other_with_frames_of_their_own),
		cmocka_unit_test(quicksort_recurses_twice),
		cmocka_unit_test(recursion_ends_at_the_stack_limit),
		cmocka_unit_test(a_pointer_travels_through_the_host),
		cmocka_unit_test(what_is_no_function_of_the_kind_cannot_be_called),
		cmocka_unit_test(what_cannot_be_called_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
