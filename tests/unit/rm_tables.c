/* rm: which driver calls are performed for a program (rm/tables.h). */
#include "rm/rm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skipping.h"
#include <cmocka.h>

/* Controls. */

static void controls_are_in_order_and_found_under_their_own_id(void **state)
{
	uint32_t last = 0;

	(void)state;
	for (unsigned i = 0; rm_control_at(i); i++) {
		const struct rm_control *control = rm_control_at(i);
		bool is_found = false;

		assert_true(control->id >= last);
		for (unsigned s = 0; rm_layout_at(s); s++)
			is_found |= rm_control_find(rm_layout_at(s), control->id) == control;
		assert_true(is_found);
		last = control->id;
	}
}

/* Two entries of an id are for different series: each of them is found (above), and none has a twin. */
static void no_control_has_two_entries_of_the_same_size(void **state)
{
	(void)state;
	for (unsigned i = 0; rm_control_at(i + 1); i++) {
		const struct rm_control *a = rm_control_at(i), *b = rm_control_at(i + 1);

		assert_true(a->id != b->id || a->bytes != b->bytes);
		assert_true(a->id != b->id || a->way == b->way);
	}
}

static void controls_fit_their_limits(void **state)
{
	(void)state;
	for (unsigned i = 0; rm_control_at(i); i++) {
		const struct rm_control *control = rm_control_at(i);

		assert_true(control->bytes <= RM_CONTROL_BYTES_MAX);
		assert_true(strlen(control->name) > 0);
		if (control->client_at >= 0)
			assert_true((uint32_t)control->client_at + 4 <= control->bytes);
		if (control->fd_at >= 0)
			assert_true((uint32_t)control->fd_at + 4 <= control->bytes);
		if (control->way == RM_WAY_REFUSED)
			assert_int_equal(control->pointer_count, 0);
	}
}

static void pointers_lie_inside_the_parameters(void **state)
{
	unsigned count = 0;

	(void)state;
	for (unsigned i = 0; rm_control_at(i); i++) {
		const struct rm_control *control = rm_control_at(i);

		assert_true(control->pointer_count <= RM_POINTERS_MAX);
		for (unsigned k = 0; k < control->pointer_count; k++, count++) {
			const struct rm_pointer *p = &control->pointers[k];

			assert_int_equal(p->at % 8, 0);
			assert_true(p->at + 8u <= control->bytes);
			assert_true(p->count_at + 4u <= control->bytes);
			assert_true(p->count_at + 4u <= p->at || p->count_at >= p->at + 8u);
			assert_true(p->entry_bytes > 0);
			assert_in_range(p->power, 1, 2);
			assert_in_range(p->count_max, 1, 1 << 16);
		}
	}
	assert_true(count > 20);
}

/* Bit 15: passed on to the firmware. Bit 14: for root only, and the caller is Belfry. */
static void no_control_of_the_firmware_for_root_is_known(void **state)
{
	(void)state;
	for (unsigned i = 0; rm_control_at(i); i++)
		if (rm_control_at(i)->id >> 16 == 0x2080)
			assert_int_not_equal(rm_control_at(i)->id & 0xc000, 0xc000);
}

static void series_differ_in_size(void **state)
{
	(void)state;
	assert_int_equal(rm_control_find(rm_layout_find("570"), RM_CTRL_FB_GET_INFO_V2)->bytes, 460);
	assert_int_equal(rm_control_find(rm_layout_find("580"), RM_CTRL_FB_GET_INFO_V2)->bytes, 1028);
	assert_int_equal(rm_control_find(rm_layout_find("580"), 0x20803083)->bytes, 39);
	assert_int_equal(rm_control_find(rm_layout_find("590"), 0x20803083)->bytes, 38);
	assert_null(rm_control_find(rm_layout_find("570"), 0x2080019f));
	for (unsigned s = 0; rm_layout_at(s); s++) {
		const struct rm_layout *l = rm_layout_at(s);

		assert_int_equal(rm_control_find(l, RM_CTRL_GET_PIDS)->bytes, l->pids_size);
		assert_int_equal(rm_control_find(l, RM_CTRL_GET_PID_INFO)->bytes, l->pid_info_size);
		assert_int_equal(rm_control_find(l, RM_CTRL_FB_GET_INFO_V2)->bytes, l->fb_info_size);
		assert_int_equal(rm_control_find(l, RM_CTRL_ROOT_GET_ID_INFO_V2)->bytes, l->id_info_v2_size);
		assert_int_equal(rm_control_find(l, RM_CTRL_GROUP_SCHEDULE)->bytes, l->group_schedule_size);
	}
}

static void ways_are(const uint32_t *ids, size_t count, enum rm_way way)
{
	for (unsigned s = 0; rm_layout_at(s); s++)
		for (size_t i = 0; i < count; i++) {
			const struct rm_control *control = rm_control_find(rm_layout_at(s), ids[i]);

			assert_non_null(control);
			assert_int_equal(control->way, way);
		}
}

static void what_goes_around_the_scheduler_or_the_ledger_is_refused(void **state)
{
	static const uint32_t ids[] = {
		RM_CTRL_DISABLE_CHANNELS,
		RM_CTRL_FIFO_UPDATE_CHANNEL_INFO,
		RM_CTRL_ROOT_IDLE_CHANNELS,
		RM_CTRL_FIFO_IDLE_CHANNELS,
		RM_CTRL_GROUP_MAKE_REALTIME,
		RM_CTRL_CHANNEL_SET_INTERLEAVE,
		RM_CTRL_BIND_TURNS,
		RM_CTRL_EVENT_BUFFER_ENABLE,
		RM_CTRL_EVENT_BUFFER_FLUSH,
		RM_CTRL_EVENT_BUFFER_UPDATE_GET,

		0x0080180a /* SET_PTE_INFO */,
		0x20800122 /* EXEC_REG_OPS */,
		0x20800112 /* SET_POWER */,
		0x20800174 /* SET_PARTITIONS */,
	};

	(void)state;
	ways_are(ids, sizeof(ids) / sizeof(ids[0]), RM_WAY_REFUSED);
}

static void what_the_warden_handles_is_its_own(void **state)
{
	static const uint32_t ids[] = {
		RM_CTRL_ROOT_GET_ADDRESS_SPACE,
		0x00003d05,
		RM_CTRL_IMPORT_OBJECT_FROM_FD,
		0x00003d08,
		0x00003d0b,
		RM_CTRL_IMPORT_OBJECTS_FROM_FD,
		RM_CTRL_FB_GET_INFO,
		RM_CTRL_FB_GET_INFO_V2,
		RM_CTRL_GET_PIDS,
		RM_CTRL_GET_PID_INFO,
		RM_CTRL_SET_PREEMPTION,
		RM_CTRL_GROUP_SCHEDULE,
		RM_CTRL_GROUP_SET_TIMESLICE,
		RM_CTRL_GROUP_SET_INTERLEAVE,
		RM_CTRL_CHANNEL_GET_TOKEN,
		0xa06f0103,
		0xc36f010a,
	};
	static const uint32_t answered[] = { 0x00000d04, 0x00000d06, 0xa06c0105 };

	(void)state;
	ways_are(ids, sizeof(ids) / sizeof(ids[0]), RM_WAY_OWN);
	ways_are(answered, sizeof(answered) / sizeof(answered[0]), RM_WAY_ANSWERED);
}

static void unknown_controls_are_not_found(void **state)
{
	static const uint32_t ids[] = { 0, 1, 0x2080ffff, 0x2080c000, 0x20800001, 0xffffffff };

	(void)state;
	for (unsigned s = 0; rm_layout_at(s); s++)
		for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
			assert_null(rm_control_find(rm_layout_at(s), ids[i]));
}

/* UVM. */

static bool is_inside(int32_t at, uint32_t width, uint32_t bytes)
{
	return at == -1 || (at >= 0 && (uint32_t)at + width <= bytes);
}

static void uvm_fields_lie_inside_the_parameters(void **state)
{
	(void)state;
	for (unsigned i = 0; rm_uvm_at(i); i++) {
		const struct rm_uvm_call *call = rm_uvm_at(i);
		const int32_t words[] = { call->status_at, call->fd_at, call->client_at, call->object_at };
		const int32_t ranges[] = { call->base_at, call->length_at };

		assert_true(call->bytes <= RM_UVM_BYTES_MAX);
		assert_true(i == 0 || rm_uvm_at(i - 1)->cmd <= call->cmd);
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			assert_true(is_inside(words[k], 4, call->bytes));
		for (size_t k = 0; k < sizeof(ranges) / sizeof(ranges[0]); k++)
			assert_true(is_inside(ranges[k], 8, call->bytes));
		/* The status is the last thing the driver writes and overlaps nothing. */
		if (call->bytes)
			assert_true(call->status_at > call->object_at && call->status_at > call->length_at);
	}
}

static void uvm_calls_differ_by_series(void **state)
{
	const struct rm_layout *old = rm_layout_find("580"), *new = rm_layout_find("590");

	(void)state;
	assert_int_equal(rm_uvm_find(old, RM_UVM_FREE)->bytes, 24);
	assert_int_equal(rm_uvm_find(old, RM_UVM_FREE)->length_at, 8);
	assert_int_equal(rm_uvm_find(new, RM_UVM_FREE)->bytes, 16);
	assert_int_equal(rm_uvm_find(new, RM_UVM_FREE)->length_at, -1);
	assert_int_equal(rm_uvm_find(old, RM_UVM_MAP_EXTERNAL_ALLOCATION)->fd_at, 9248);
	assert_null(rm_uvm_find(rm_layout_find("570"), 80));
	assert_null(rm_uvm_find(new, 1000));
}

static void uvm_ways_are_those_of_the_warden(void **state)
{
	static const uint32_t own[] = { RM_UVM_INITIALIZE,
					RM_UVM_MM_INITIALIZE,
					RM_UVM_FREE,
					RM_UVM_MAP_EXTERNAL_ALLOCATION,
					RM_UVM_UNMAP_EXTERNAL,
					RM_UVM_REGISTER_GPU_VASPACE,
					RM_UVM_REGISTER_CHANNEL };
	static const uint32_t refused[] = { RM_UVM_ALLOC_DEVICE_P2P, 71, 56, 62, 63, 76 };

	(void)state;
	for (unsigned s = 0; rm_layout_at(s); s++) {
		for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
			assert_int_equal(rm_uvm_find(rm_layout_at(s), own[i])->way, RM_WAY_OWN);
		for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
			assert_int_equal(rm_uvm_find(rm_layout_at(s), refused[i])->way, RM_WAY_REFUSED);
	}
}

/* Escapes. */

static void escapes_have_a_way(void **state)
{
	static const uint32_t refused[] = { 0x28, 0x39, 0x41, 0x4d, 0x54, 0x59,
					    0xd3, 0xd8, 0xd9, 0,    0xff, 0x129 };

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		assert_int_equal(rm_escape_way(refused[i]), RM_WAY_REFUSED);
	assert_int_equal(rm_escape_way(RM_ESC_MAP_MEMORY_DMA), RM_WAY_COPY);
	assert_int_equal(rm_escape_way(RM_ESC_UNMAP_MEMORY_DMA), RM_WAY_COPY);
	assert_int_equal(rm_escape_way(RM_ESC_GET_EVENT_DATA), RM_WAY_OWN);
	assert_int_equal(rm_escape_way(RM_ESC_ATTACH_GPUS_TO_FD), RM_WAY_COPY);
	assert_int_equal(rm_escape_way(RM_ESC_CONTROL), RM_WAY_OWN);
}

static void a_call_is_a_number_with_a_size_the_driver_takes(void **state)
{
	(void)state;
	assert_true(rm_is_call(RM_ESC_SYS_PARAMS, 8));
	assert_true(rm_is_call(RM_ESC_NUMA_INFO, 560));
	assert_true(rm_is_call(RM_ESC_EXPORT_TO_DMABUF_FD, 2608));
	assert_true(rm_is_call(RM_ESC_XFER_CMD, 16));
	assert_true(rm_is_call(RM_ESC_CARD_INFO, 2304));
	assert_true(rm_is_call(RM_ESC_ALLOC, 32));
	assert_true(rm_is_call(RM_ESC_ALLOC, 48));
	assert_false(rm_is_call(RM_ESC_ALLOC, 40));
	assert_false(rm_is_call(RM_ESC_CARD_INFO, 0));
	assert_false(rm_is_call(RM_ESC_CARD_INFO, 73));
	assert_false(rm_is_call(0x01, 36)); /* TCGETS and its like */
	assert_false(rm_is_call(0xfe, 8));
}

/* A recorded CUDA program. */

/* What Belfry refuses although libcuda asks for it: it goes on without (measured). */
static bool is_refused_on_purpose(uint32_t id)
{
	return id >> 16 == 0x503c;
}

static void replay_line(const struct rm_layout *layout, const char *line, unsigned *controls, unsigned *uvm)
{
	const char *control_at = strstr(line, "RM_CONTROL client "), *escape_at = strstr(line, " ioctl nr ");
	uint32_t number, size;

	if (!strncmp(line, "uvm cmd ", 8)) {
		assert_int_equal(sscanf(line, "uvm cmd %u", &number), 1);
		assert_non_null(rm_uvm_find(layout, number));
		assert_int_not_equal(rm_uvm_find(layout, number)->way, RM_WAY_REFUSED);
		++*uvm;
	} else if (control_at) {
		assert_int_equal(sscanf(control_at, "RM_CONTROL client %*x obj %*x cmd %x", &number), 1);
		assert_non_null(rm_control_find(layout, number));
		assert_int_equal(rm_control_find(layout, number)->way == RM_WAY_REFUSED,
				 is_refused_on_purpose(number));
		++*controls;
	} else if (escape_at) {
		assert_int_equal(sscanf(escape_at, " ioctl nr %x sz %u", &number, &size), 2);
		assert_int_not_equal(rm_escape_way(number), RM_WAY_REFUSED);
		assert_true(rm_is_call(number, size));
	}
}

static void recorded_program_is_permitted(void **state)
{
	const char *dir = getenv("BELFRY_TEST_DATA");
	unsigned controls = 0, uvm = 0;
	char path[4096], line[512];
	FILE *file;

	(void)state;
	if (!dir) {
		skip_case("BELFRY_TEST_DATA is not set");
	}
	snprintf(path, sizeof(path), "%s/calls-cuda-h200-580.txt", dir);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		replay_line(rm_layout_find("580.159.04"), line, &controls, &uvm);
	fclose(file);
	assert_true(controls > 150);
	assert_true(uvm > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(controls_are_in_order_and_found_under_their_own_id),
		cmocka_unit_test(no_control_has_two_entries_of_the_same_size),
		cmocka_unit_test(controls_fit_their_limits),
		cmocka_unit_test(pointers_lie_inside_the_parameters),
		cmocka_unit_test(no_control_of_the_firmware_for_root_is_known),
		cmocka_unit_test(series_differ_in_size),
		cmocka_unit_test(what_goes_around_the_scheduler_or_the_ledger_is_refused),
		cmocka_unit_test(what_the_warden_handles_is_its_own),
		cmocka_unit_test(unknown_controls_are_not_found),
		cmocka_unit_test(uvm_fields_lie_inside_the_parameters),
		cmocka_unit_test(uvm_calls_differ_by_series),
		cmocka_unit_test(uvm_ways_are_those_of_the_warden),
		cmocka_unit_test(escapes_have_a_way),
		cmocka_unit_test(a_call_is_a_number_with_a_size_the_driver_takes),
		cmocka_unit_test(recorded_program_is_permitted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
