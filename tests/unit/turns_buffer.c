/* turns_open and turns_read with a fake driver: the calls that they make, the times that they return, and
 * that nothing is left when the driver refuses. */
#include "warden/turns.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "warden/nv.h"
#include "warden/turns_parse.h"

enum { START = 6, END = 7, ROOM = 8, MEMORIES = 2 };

/* The driver. */
static struct {
	uint32_t refused; /* a class or a control, or 0 */
	unsigned objects, maps, flushes, binds;
	uint32_t header_memory, record_memory, map_next, told_get;
	uint8_t *at[MEMORIES]; /* header, records */
	uint64_t bytes[MEMORIES];
	uint16_t number;
	uint64_t ahead_ns; /* its clock over ours */
} driver;

static struct nv nv;

static uint32_t answer_alloc(const struct rm_arg_alloc *arg)
{
	const uint8_t *params = (const uint8_t *)(uintptr_t)arg->params;

	if (arg->class_id == driver.refused)
		return RM_ERR_NOT_SUPPORTED;
	if (arg->class_id == 0x90cd) {
		assert_int_equal(arg->parent, nv.client);
		assert_int_equal(arg->size, 72);
		assert_memory_equal(params + 60, &driver.header_memory, 4);
		assert_memory_equal(params + 64, &driver.record_memory, 4);
	} else {
		assert_int_equal(arg->class_id, 0x3e);
		assert_true(params[30] & 0x40); /* attribute 2, bit 22 */
		*(driver.header_memory ? &driver.record_memory : &driver.header_memory) = arg->object;
	}
	driver.objects++;
	return RM_OK;
}

static uint32_t answer_control(const struct rm_arg_control *arg)
{
	uint32_t *params = (uint32_t *)(uintptr_t)arg->params;
	uint64_t ns = bf_now_ns() + driver.ahead_ns;

	if (arg->cmd == driver.refused)
		return RM_ERR_NOT_SUPPORTED;
	switch (arg->cmd) {
	case RM_CTRL_GET_TIME:
		memcpy(params, &ns, sizeof(ns));
		break;
	case RM_CTRL_BIND_TURNS:
		assert_int_equal(arg->object, OWN_SUBDEVICE);
		assert_int_equal(arg->size, 24);
		driver.binds++;
		break;
	case RM_CTRL_EVENT_BUFFER_FLUSH:
		driver.flushes++;
		break;
	case RM_CTRL_EVENT_BUFFER_UPDATE_GET:
		driver.told_get = params[0];
		break;
	default:
		assert_int_equal(arg->cmd, RM_CTRL_EVENT_BUFFER_ENABLE);
	}
	return RM_OK;
}

static int fake_call(int fd, uint32_t nr, void *arg, uint32_t size)
{
	struct rm_arg_map *map = arg;

	(void)fd;
	(void)size;
	switch (nr) {
	case RM_ESC_ALLOC:
		((struct rm_arg_alloc *)arg)->status = answer_alloc(arg);
		return 0;
	case RM_ESC_CONTROL:
		((struct rm_arg_control *)arg)->status = answer_control(arg);
		return 0;
	case RM_ESC_MAP_MEMORY:
		assert_int_equal(map->flags & 3, 1);
		driver.map_next = map->memory;
		return driver.refused == RM_ESC_MAP_MEMORY ? -EINVAL : 0;
	default:
		assert_int_equal(nr, RM_ESC_FREE);
		driver.objects--;
		return 0;
	}
}

static int fake_open(const struct nv *of, int minor)
{
	(void)of;
	assert_int_equal(minor, NV_MINOR_CONTROL);
	return dup(0);
}

/* Ours to read; the driver's own view of it can be written. */
static void *fake_map(int fd, uint64_t bytes, int prot)
{
	unsigned which = driver.map_next == driver.header_memory ? 0 : 1;
	int memory = memfd_create("turns", MFD_CLOEXEC);
	void *ours;

	(void)fd;
	assert_int_equal(prot, PROT_READ);
	if (memory < 0 || ftruncate(memory, (off_t)bytes))
		return MAP_FAILED;
	driver.at[which] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	driver.bytes[which] = bytes;
	ours = mmap(NULL, bytes, prot, MAP_SHARED, memory, 0);
	close(memory);
	return ours;
}

static const struct nv_transport transport = { .open = fake_open, .call = fake_call, .map = fake_map };

static int begin(void **state)
{
	(void)state;
	memset(&driver, 0, sizeof(driver));
	driver.ahead_ns = 1700000000ull * 1000000000u; /* as CLOCK_REALTIME is */
	nv = (struct nv){ .transport = &transport, .client = 0xc1d00001, .control_fd = 0 };
	nv.device.layout = rm_layout_find("580");
	return nv.device.layout ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	for (unsigned i = 0; i < MEMORIES; i++)
		if (driver.at[i])
			munmap(driver.at[i], driver.bytes[i]);
	return driver.objects ? -1 : 0;
}

static void add(uint8_t tag, uint32_t pid, uint64_t our_ns)
{
	uint32_t put, context = pid * 10;
	uint64_t ns = our_ns + driver.ahead_ns;
	uint8_t *at;

	memcpy(&put, driver.at[0] + 4, sizeof(put));
	at = driver.at[1] + (size_t)put * TURNS_RECORD_BYTES;
	at[0] = 2;
	at[8] = tag;
	memcpy(at + 10, &driver.number, sizeof(driver.number));
	memcpy(at + 12, &context, sizeof(context));
	memcpy(at + 16, &pid, sizeof(pid));
	memcpy(at + 24, &ns, sizeof(ns));
	put = (uint32_t)((put + 1) % (driver.bytes[1] / TURNS_RECORD_BYTES));
	memcpy(driver.at[0] + 4, &put, sizeof(put));
	driver.number++;
}

static void assert_near(uint64_t ns, uint64_t expected_ns, const struct turns *turns)
{
	uint64_t error_ns = turns_error_ns(turns);

	assert_in_range(ns, expected_ns - error_ns, expected_ns + error_ns);
}

static void turns_are_told_in_our_time(void **state)
{
	uint64_t now_ns = bf_now_ns(), since_ns = now_ns - 5000000;
	struct device_turn turn[ROOM];
	struct bf_error err = { 0 };
	struct turns *turns = turns_open(&nv.device, &err);

	(void)state;
	assert_non_null(turns);
	assert_int_equal(driver.binds, 1);
	assert_int_equal(turns_read(turns, turn, ROOM), 0);
	add(START, 7, since_ns);
	add(END, 7, since_ns + 1000000);
	add(START, 8, since_ns + 1100000);
	assert_int_equal(turns_read(turns, turn, ROOM), 2);
	assert_int_equal(driver.flushes, 2);
	assert_int_equal(driver.told_get, 3);
	assert_int_equal(turn[0].pid, 7);
	assert_int_equal(turn[0].context, 70);
	assert_near(turn[0].start_ns, since_ns, turns);
	assert_int_equal(turn[0].end_ns - turn[0].start_ns, 1000000);
	assert_int_equal(turn[1].pid, 8);
	assert_true(turn[1].is_open);
	assert_true(turn[1].end_ns >= now_ns && turn[1].end_ns <= bf_now_ns());
	assert_int_equal(turns_lost(turns), 0);
	turns_close(turns);
}

static void turns_beyond_the_room_come_next(void **state)
{
	uint64_t since_ns = bf_now_ns() - 5000000;
	struct device_turn turn;
	struct turns *turns = turns_open(&nv.device, NULL);

	(void)state;
	assert_non_null(turns);
	for (uint32_t i = 1; i < 4; i++) {
		add(START, i, since_ns + 1000ull * i);
		add(END, i, since_ns + 1000ull * i + 500);
	}
	for (int i = 1; i < 4; i++) {
		assert_int_equal(turns_read(turns, &turn, 1), 1);
		assert_int_equal(turn.pid, i);
		assert_int_equal(driver.told_get, i == 3 ? 6 : 0); /* all of it was read */
	}
	assert_int_equal(turns_read(turns, &turn, 1), 0);
	turns_close(turns);
}

/* About once a second. */
static void clock_is_measured_again(void **state)
{
	struct device_turn turn[ROOM];
	struct turns *turns = turns_open(&nv.device, NULL);
	uint64_t since_ns;

	(void)state;
	assert_non_null(turns);
	add(START, 7, bf_now_ns());
	assert_int_equal(turns_read(turns, turn, ROOM), 1);
	usleep(1100000);			  /* longer than a measurement is good for */
	driver.ahead_ns -= 3600ull * 1000000000u; /* and it was set back by an hour */
	since_ns = bf_now_ns();
	add(START, 8, since_ns);
	add(END, 8, since_ns + 1000);
	assert_int_equal(turns_read(turns, turn, ROOM), 1);
	assert_int_equal(turn[0].pid, 8);
	assert_near(turn[0].start_ns, since_ns, turns);
	turns_close(turns);
}

static void driver_that_refuses_is_left_as_it_was(void **state)
{
	static const uint32_t steps[] = { 0x3e,
					  RM_ESC_MAP_MEMORY,
					  0x90cd,
					  RM_CTRL_BIND_TURNS,
					  RM_CTRL_EVENT_BUFFER_ENABLE,
					  RM_CTRL_GET_TIME };

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct bf_error err = { 0 };

		driver.refused = steps[i];
		assert_null(turns_open(&nv.device, &err));
		assert_int_equal(err.code, ENOTSUP);
		assert_true(strlen(err.text) > 0);
		assert_int_equal(end(state), 0);
		begin(state);
	}
}

static void driver_that_fails_later_is_an_error(void **state)
{
	struct device_turn turn[ROOM];
	struct turns *turns = turns_open(&nv.device, NULL);

	(void)state;
	assert_non_null(turns);
	driver.refused = RM_CTRL_EVENT_BUFFER_FLUSH;
	assert_int_equal(turns_read(turns, turn, ROOM), -EIO);
	driver.refused = 0;
	assert_int_equal(turns_read(turns, turn, ROOM), 0);
	turns_close(turns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(turns_are_told_in_our_time, begin, end),
		cmocka_unit_test_setup_teardown(turns_beyond_the_room_come_next, begin, end),
		cmocka_unit_test_setup_teardown(clock_is_measured_again, begin, end),
		cmocka_unit_test_setup_teardown(driver_that_refuses_is_left_as_it_was, begin, end),
		cmocka_unit_test_setup_teardown(driver_that_fails_later_is_an_error, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
