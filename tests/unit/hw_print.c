/* What kernels print reaches the program's ring; a hostile format or ring reaches nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hw_rig.h"

enum { RING_BYTES = 1024, MEMORY_BYTES = 4096 };

static struct gpu_rig rig;
static struct app app;
static struct hw_memory *memory;
static struct soft_print *ring;

/* print(.u64 format, .u64 a, .u64 b, .u32 *count): vprintf(format, {a, b}) */
static const char *const print_text =
	".version 8.0\n.target sm_90\n.address_size 64\n"
	".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
	".visible .entry print(.param .u64 format, .param .u64 a, .param .u64 b, .param .u64 count)\n{\n"
	".local .align 8 .b8 args[16];\n.reg .b64 %f, %v, %l, %p, %c;\n.reg .b32 %n;\n"
	"ld.param.u64 %f, [format];\nmov.u64 %l, args;\ncvta.local.u64 %p, %l;\n"
	"ld.param.u64 %v, [a];\nst.local.u64 [%l], %v;\nld.param.u64 %v, [b];\nst.local.u64 [%l+8], %v;\n"
	"ld.param.u64 %c, [count];\n"
	"{\n.param .b64 p0;\nst.param.b64 [p0], %f;\n.param .b64 p1;\nst.param.b64 [p1], %p;\n"
	".param .b32 r0;\ncall.uni (r0), vprintf, (p0, p1);\nld.param.b32 %n, [r0];\n}\n"
	"st.global.u32 [%c], %n;\nret;\n}\n";

static int open_all(void **state)
{
	(void)state;
	gpu_open(&rig, NULL, false);
	app_open(&app, rig.gpu, print_text);
	if (hw_memory_new(NULL, MEMORY_BYTES, false, &memory, NULL))
		return -1;
	ring = (struct soft_print *)(void *)hw_memory_at(memory);
	ring->bytes = RING_BYTES;
	return hw_space_set_print(app.space, memory, 0, MEMORY_BYTES);
}

static int close_all(void **state)
{
	(void)state;
	app_close(&app);
	hw_memory_put(memory);
	gpu_close(&rig);
	return 0;
}

static uint64_t data;

/* The text that comes of it; its arguments are counted. */
static const char *print(const char *format, uint64_t a, uint64_t b, int want)
{
	static char text[RING_BYTES + 1];
	uint64_t head, tail = ring->tail, params[4];
	unsigned n = 0;

	if (!data)
		data = app_alloc(&app, 1 << 16, NULL);
	memset(app_host(&app, data), 'z', 1 << 16);
	strcpy(app_host(&app, data), format);
	strcpy((char *)app_host(&app, data) + 2048, "a string");
	params[0] = data;
	params[1] = a;
	params[2] = b;
	params[3] = data + 1024;
	app_launch(&app, "print", (struct app_shape){ .threads = { 1 } }, params, sizeof(params));
	app_fence(&app);
	assert_int_equal(*(int *)(void *)((char *)app_host(&app, data) + 1024), want);
	head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
	for (; tail != head; tail++)
		text[n++] = ring->text[tail & (RING_BYTES - 1)];
	text[n] = '\0';
	__atomic_store_n(&ring->tail, tail, __ATOMIC_RELEASE);
	return text;
}

static uint64_t bits(double value)
{
	uint64_t raw;

	memcpy(&raw, &value, sizeof(raw));
	return raw;
}

static void conversions_are_those_of_c(void **state)
{
	(void)state;
	assert_string_equal(print("plain\n", 0, 0, 0), "plain\n");
	assert_string_equal(print("%d and %d", 5ull | (uint64_t)-6 << 32, 0, 2), "5 and -6");
	assert_string_equal(print("[%-8x|%+5d]", 0xbeefull | 7ull << 32, 0, 2), "[beef    |   +7]");
	assert_string_equal(print("%lld %llu", (uint64_t)-1, (uint64_t)-1, 2), "-1 18446744073709551615");
	assert_string_equal(print("%.3f %g", bits(3.14159), bits(1e100), 2), "3.142 1e+100");
	assert_string_equal(print("%10.2e|%a", bits(12345.678), bits(1), 2), "  1.23e+04|0x1p+0");
	assert_string_equal(print("%s|%12s", data + 2048, data + 2050, 2), "a string|      string");
	assert_string_equal(print("%.3s|%-5c|", data + 2048, 'q', 2), "a s|q    |");
	assert_string_equal(print("%p %#o", 0x1234, 8, 2), "0x1234 010");
	assert_string_equal(print("100%% %u", 9, 0, 1), "100% 9");
	assert_string_equal(print("%*d|%.*f", 5ull | 42ull << 32, 0, 4), "   42|0");
}

static void strange_formats_do_no_harm(void **state)
{
	(void)state;
	assert_string_equal(print("%", 0, 0, 0), "%");
	assert_string_equal(print("%n %y", 1, 2, 0), "%n %y");
	assert_string_equal(print("%s %s", 0, 0xdead, 2), "(null) ");
	assert_int_equal(strlen(print("%999999999d", 1, 0, 1)), 256);
	assert_int_equal(strlen(print("%.999999999d", 1, 0, 1)), 256);
	assert_string_equal(print("%-+-+-+-+-+-+ #0#0#0-5d|", 3, 0, 1), "+3   |");
	assert_string_equal(print("%d%d%d%d%d", 1ull | 2ull << 32, 3ull | 4ull << 32, 5), "12340");
}

static void what_does_not_fit_is_counted(void **state)
{
	char format[700];
	uint64_t head = ring->head;

	(void)state;
	memset(format, 'x', sizeof(format) - 1);
	format[sizeof(format) - 1] = '\0';
	assert_int_equal(strlen(print(format, 0, 0, 0)), 699);
	__atomic_store_n(&ring->tail, head, __ATOMIC_RELEASE); /* as if nothing had been read */
	print(format, 0, 0, 0);
	assert_int_equal(ring->head, head + 699);
	assert_int_equal(ring->lost, 699);
}

/* The program writes nonsense to its own ring: what is printed is lost, nothing else. */
static void hostile_ring_does_no_harm(void **state)
{
	(void)state;
	ring->bytes = 0xffffffff;
	ring->head = 0x123456789abcdef;
	ring->tail = 0xfedcba987654321;
	data = data ? data : app_alloc(&app, 1 << 16, NULL);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t params[4] = { data, 0, 0, data + 1024 };

		app_launch(&app, "print", (struct app_shape){ .threads = { 64 } }, params, sizeof(params));
		app_fence(&app);
	}
	assert_int_equal(hw_space_set_print(app.space, memory, 0, MEMORY_BYTES), -22);
	ring->bytes = 3000;
	assert_int_equal(hw_space_set_print(app.space, memory, 0, MEMORY_BYTES), -22);
	ring->bytes = 4096;
	assert_int_equal(hw_space_set_print(app.space, memory, 0, MEMORY_BYTES), -22);
	assert_int_equal(hw_space_set_print(app.space, memory, 8192, 64), -22);
	assert_int_equal(hw_space_set_print(app.space, NULL, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conversions_are_those_of_c),
		cmocka_unit_test(strange_formats_do_no_harm),
		cmocka_unit_test(what_does_not_fit_is_counted),
		cmocka_unit_test(hostile_ring_does_no_harm),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
