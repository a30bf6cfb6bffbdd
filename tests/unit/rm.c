/* rm: layouts, classes and the taking apart of calls, the recorded ones of a real program among them. */
#include "rm/rm.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "skipping.h"

#define HANDLE_PROVIDED 0x4000u

static void put32(void *arg, size_t at, uint32_t value)
{
	bf_put32((char *)arg + at, value);
}

static void put64(void *arg, size_t at, uint64_t value)
{
	bf_put64((char *)arg + at, value);
}

/* Layouts. */

static void layout_is_found_by_the_major_version(void **state)
{
	(void)state;
	assert_string_equal(rm_layout_find("580.159.04")->series, "580");
	assert_string_equal(rm_layout_find("570.133.20")->series, "570");
	assert_string_equal(rm_layout_find("595")->series, "595");
}

static void layout_is_not_found_for_garbage(void **state)
{
	static const char *const garbage[] = {
		"", "0", "58", "580x", "5800.1", "580.", "580..1", ".580", "580.1 ", "-580.1", "581.1",
	};

	(void)state;
	assert_null(rm_layout_find(NULL));
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
		assert_null(rm_layout_find(garbage[i]));
}

static void layouts_are_listed_in_order_and_end(void **state)
{
	static const char *const series[] = { "570", "580", "590", "595" };

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		assert_string_equal(rm_layout_at(i)->series, series[i]);
		assert_int_equal(rm_layout_at(i)->is_measured, !strcmp(series[i], "580"));
	}
	assert_null(rm_layout_at(4));
	assert_null(rm_layout_at(~0u));
}

static void layout_fields_lie_inside_their_structures(void **state)
{
	const struct rm_layout *l;

	(void)state;
	for (unsigned i = 0; (l = rm_layout_at(i)); i++) {
		assert_true(l->channel_userd_memory + 8 * 4 <= l->channel_userd_offset);
		assert_true(l->channel_userd_offset + 8 * 8 <= l->channel_engine_type);
		assert_true(l->channel_engine_type + 4 <= l->channel_size);
		assert_true(l->memory_bytes + 8 <= l->memory_size);
		assert_int_equal(l->pids_table + 4 * l->pids_max, l->pids_size);
		assert_int_equal(l->pid_info_list + l->pid_info_max * l->pid_info_stride, l->pid_info_size);
		assert_true(l->pid_info_duped + 8 <= l->pid_info_stride);
		assert_int_equal(l->fb_info_list + 8 * l->fb_info_max, l->fb_info_size);
		assert_int_equal(l->disable_clients + 4 * l->disable_max, l->disable_channels);
		assert_int_equal(l->disable_channels + 4 * l->disable_max, l->disable_size);
		assert_true(l->id_info_v2_subdevice_instance + 4 <= l->id_info_v2_size);
	}
}

static void series_580_has_the_measured_layout(void **state)
{
	const struct rm_layout *l = rm_layout_find("580.159.04");

	(void)state;
	assert_int_equal(l->channel_gpfifo_offset, 8);
	assert_int_equal(l->channel_gpfifo_entries, 16);
	assert_int_equal(l->channel_userd_memory, 32);
	assert_int_equal(l->channel_userd_offset, 64);
	assert_int_equal(l->channel_engine_type, 128);
	assert_int_equal(l->memory_bytes, 64);
	assert_int_equal(l->disable_size, 536);
	assert_int_equal(l->fb_info_max, 128);
	assert_int_equal(l->group_schedule_size, 3);
}

static void series_570_takes_shorter_lists(void **state)
{
	const struct rm_layout *l = rm_layout_find("570.133.20");

	(void)state;
	assert_int_equal(l->fb_info_max, 57);
	assert_int_equal(l->fb_info_size, 460);
	assert_int_equal(l->group_schedule_size, 2);
	assert_int_equal(l->va_space_size, 48);
}

/* Classes. */

static void unknown_class_is_refused_and_never_null(void **state)
{
	(void)state;
	for (uint32_t id = 0; id < 0x20000; id++)
		assert_non_null(rm_class_find(id)->name);
	assert_string_equal(rm_class_find(0xffffffff)->name, "unknown");
	assert_int_equal(rm_class_find(0xffffffff)->kind, RM_KIND_REFUSED);
}

static void known_class_is_found_under_its_own_id(void **state)
{
	unsigned known = 0;

	(void)state;
	for (uint32_t id = 0; id < 0x20000; id++) {
		const struct rm_class *class = rm_class_find(id);

		if (!strcmp(class->name, "unknown"))
			continue;
		assert_int_equal(class->id, id);
		known++;
	}
	assert_true(known > 100);
}

static void only_class_40_makes_device_memory(void **state)
{
	(void)state;
	for (uint32_t id = 0; id < 0x20000; id++)
		assert_int_equal(rm_class_find(id)->kind == RM_KIND_VIDMEM, id == 0x40);
}

static void windows_on_physical_memory_are_refused(void **state)
{
	static const uint32_t ids[] = { 0x3f, 0x50, 0x76, 0x81, 0x82, 0x83, 0xc2, 0x5080 };

	(void)state;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		assert_int_equal(rm_class_find(ids[i])->kind, RM_KIND_REFUSED);
}

static void every_generation_has_channel_engines_and_doorbell(void **state)
{
	static const uint32_t ids[][4] = {
		{ 0xc46f, 0xc5c0, 0xc5b5, 0xc461 }, /* Turing */
		{ 0xc56f, 0xc6c0, 0xc6b5, 0xc561 }, /* Ampere, GA100 */
		{ 0xc56f, 0xc7c0, 0xc7b5, 0xc561 }, /* Ampere, GA10x */
		{ 0xc56f, 0xc9c0, 0xc7b5, 0xc561 }, /* Ada */
		{ 0xc86f, 0xcbc0, 0xc8b5, 0xc661 }, /* Hopper */
		{ 0xc96f, 0xcdc0, 0xc9b5, 0xc761 }, /* Blackwell, data centre */
		{ 0xca6f, 0xcec0, 0xcab5, 0xc761 }, /* Blackwell */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		assert_int_equal(rm_class_find(ids[i][0])->kind, RM_KIND_CHANNEL);
		assert_int_equal(rm_class_find(ids[i][1])->kind, RM_KIND_ENGINE);
		assert_int_equal(rm_class_find(ids[i][2])->kind, RM_KIND_ENGINE);
		assert_int_equal(rm_class_find(ids[i][3])->kind, RM_KIND_DOORBELL);
	}
}

static void params_size_is_known_for_what_belfry_makes_itself(void **state)
{
	const struct rm_layout *l = rm_layout_find("580.159.04");

	(void)state;
	assert_int_equal(rm_class_params_size(l, 0x80), 56);
	assert_int_equal(rm_class_params_size(l, 0x2080), 4);
	assert_int_equal(rm_class_params_size(l, 0x40), 128);
	assert_int_equal(rm_class_params_size(l, 0x3e), 128);
	assert_int_equal(rm_class_params_size(l, 0xa06c), 20);
	assert_int_equal(rm_class_params_size(l, 0xc86f), 368);
	assert_int_equal(rm_class_params_size(l, 0xcbc0), 16);
	assert_int_equal(rm_class_params_size(l, 0xc8b5), 8);
	assert_int_equal(rm_class_params_size(l, 0xc661), 2);
	assert_int_equal(rm_class_params_size(l, 0xc461), 0);
	assert_int_equal(rm_class_params_size(l, 0x9067), 12);
}

static void params_size_is_known_for_every_class_that_is_not_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; rm_layout_at(i); i++)
		for (uint32_t id = 0; id < 0x20000; id++)
			if (rm_class_find(id)->kind == RM_KIND_REFUSED)
				assert_true(rm_class_params_size(rm_layout_at(i), id) <= 0);
			else
				assert_in_range(rm_class_params_size(rm_layout_at(i), id), 0, 512);
	assert_int_equal(rm_class_params_size(rm_layout_find("580"), 0x12345), -1);
	assert_int_equal(rm_class_params_size(rm_layout_find("580"), 0x503b), 72);
	assert_int_equal(rm_class_params_size(rm_layout_find("590"), 0x503b), 88);
}

static void clients_in_allocation_parameters_lie_inside_them(void **state)
{
	(void)state;
	for (unsigned i = 0; rm_layout_at(i); i++)
		for (uint32_t id = 0; id < 0x20000; id++)
			for (unsigned k = 0; k < 2; k++)
				if (rm_class_find(id)->client_at[k] >= 0)
					assert_true(rm_class_find(id)->client_at[k] + 4 <=
						    rm_class_params_size(rm_layout_at(i), id));
}

static void classes_that_keep_memory_alive_are_refused(void **state)
{
	static const uint32_t ids[] = {
		0xda, 0xe0, 0xf1, 0xf3, 0xf8, 0xf9, 0xfb, 0xfd, 0xfe, 0x503c, 0x90cd
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		assert_int_equal(rm_class_find(ids[i])->kind, RM_KIND_REFUSED);
}

/* What programs are told about memory. */

static void fb_indices_mean_total_or_free(void **state)
{
	static const uint32_t total[] = { 0x07, 0x08, 0x09, 0x0a, 0x20 };
	static const uint32_t free_now[] = { 0x12, 0x16 };

	(void)state;
	for (size_t i = 0; i < sizeof(total) / sizeof(total[0]); i++)
		assert_int_equal(rm_fb_meaning(total[i]), RM_FB_TOTAL);
	for (size_t i = 0; i < sizeof(free_now) / sizeof(free_now[0]); i++)
		assert_int_equal(rm_fb_meaning(free_now[i]), RM_FB_FREE);
	assert_int_equal(rm_fb_meaning(0x0b), RM_FB_UNRELATED); /* bus width */
	assert_int_equal(rm_fb_meaning(0x1d), RM_FB_UNRELATED); /* BAR1, not memory */
	assert_int_equal(rm_fb_meaning(0xffffffff), RM_FB_UNRELATED);
}

/* Calls. */

static void alloc_is_taken_apart_in_its_new_form(void **state)
{
	struct rm_arg_alloc a = {
		.client = 1,
		.parent = 2,
		.object = 3,
		.class_id = 0x40,
		.params = 0x700000001000,
		.rights = 0x700000002000,
		.size = 128,
		.flags = 5,
	};
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_ALLOC, sizeof(a), &a, &call), 0);
	assert_int_equal(call.verb, RM_VERB_ALLOC);
	assert_int_equal(call.client, 1);
	assert_int_equal(call.parent, 2);
	assert_int_equal(call.object, 3);
	assert_int_equal(call.class_id, 0x40);
	assert_int_equal(call.params, 0x700000001000);
	assert_int_equal(call.rights, 0x700000002000);
	assert_int_equal(call.params_size, 128);
	assert_int_equal(call.flags, 5);
	assert_int_equal(call.status_at, 40);
	assert_int_equal(call.object_at, 8);
	assert_int_equal(call.fd, -1);
}

static void alloc_is_taken_apart_in_its_old_form(void **state)
{
	unsigned char a[32] = { 0 };
	struct rm_call call;

	(void)state;
	put32(a, 0, 1);
	put32(a, 8, 3);
	put32(a, 12, 0xc86f);
	put64(a, 16, 0x1000);
	put32(a, 24, 368);
	assert_int_equal(rm_decode(RM_ESC_ALLOC, sizeof(a), a, &call), 0);
	assert_int_equal(call.verb, RM_VERB_ALLOC);
	assert_int_equal(call.class_id, 0xc86f);
	assert_int_equal(call.params, 0x1000);
	assert_int_equal(call.params_size, 368);
	assert_int_equal(call.rights, 0);
	assert_int_equal(call.status_at, 28);
}

static void free_and_control_are_taken_apart(void **state)
{
	struct rm_arg_free f = { .client = 1, .parent = 2, .object = 3 };
	struct rm_arg_control c = {
		.client = 1,
		.object = 9,
		.cmd = RM_CTRL_GROUP_SET_TIMESLICE,
		.flags = 4,
		.params = 0x2000,
		.size = 8,
	};
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_FREE, sizeof(f), &f, &call), 0);
	assert_int_equal(call.verb, RM_VERB_FREE);
	assert_int_equal(call.object, 3);
	assert_int_equal(call.status_at, 12);
	assert_int_equal(call.object_at, -1);
	assert_int_equal(rm_decode(RM_ESC_CONTROL, sizeof(c), &c, &call), 0);
	assert_int_equal(call.verb, RM_VERB_CONTROL);
	assert_int_equal(call.object, 9);
	assert_int_equal(call.class_id, RM_CTRL_GROUP_SET_TIMESLICE);
	assert_int_equal(call.params, 0x2000);
	assert_int_equal(call.params_size, 8);
	assert_int_equal(call.status_at, 28);
}

static void dup_names_its_source(void **state)
{
	struct rm_arg_dup d = {
		.client = 1,
		.parent = 2,
		.object = 3,
		.source_client = 4,
		.source_object = 5,
	};
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_DUP_OBJECT, sizeof(d), &d, &call), 0);
	assert_int_equal(call.verb, RM_VERB_DUP);
	assert_int_equal(call.source_client, 4);
	assert_int_equal(call.source_object, 5);
	assert_int_equal(call.status_at, 24);
	assert_int_equal(call.object_at, 8);
}

static void map_and_unmap_are_taken_apart(void **state)
{
	struct rm_arg_map m = {
		.client = 1,
		.device = 2,
		.memory = 3,
		.offset = 0x1000,
		.length = 0x10000,
		.flags = 0x80002,
		.fd = 17,
	};
	struct rm_arg_unmap u = { .client = 1, .device = 2, .memory = 3, .address = 0x7000 };
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_MAP_MEMORY, sizeof(m), &m, &call), 0);
	assert_int_equal(call.verb, RM_VERB_MAP_MEMORY);
	assert_int_equal(call.parent, 2);
	assert_int_equal(call.object, 3);
	assert_int_equal(call.offset, 0x1000);
	assert_int_equal(call.bytes, 0x10000);
	assert_int_equal(call.flags, 0x80002);
	assert_int_equal(call.fd, 17);
	assert_int_equal(call.status_at, 40);
	assert_int_equal(rm_decode(RM_ESC_UNMAP_MEMORY, sizeof(u), &u, &call), 0);
	assert_int_equal(call.verb, RM_VERB_UNMAP_MEMORY);
	assert_int_equal(call.params, 0x7000);
	assert_int_equal(call.status_at, 24);
}

static void negative_files_are_no_file(void **state)
{
	int32_t fd = -77;
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_REGISTER_FD, sizeof(fd), &fd, &call), 0);
	assert_int_equal(call.verb, RM_VERB_REGISTER_FD);
	assert_int_equal(call.fd, -1);
	fd = 9;
	assert_int_equal(rm_decode(RM_ESC_REGISTER_FD, sizeof(fd), &fd, &call), 0);
	assert_int_equal(call.fd, 9);
}

static void alloc_memory_takes_host_memory_only(void **state)
{
	struct rm_arg_alloc_memory a = {
		.client = 1,
		.parent = 2,
		.object = 3,
		.class_id = 0x71,
		.flags = 1u << 30,
		.address = 0x7000,
		.limit = 0xfff,
		.fd = 4,
	};
	static const uint32_t refused[] = { 0x3f, 0x40, 0x76, 0x81, 0x82, 0x83, 0xf3, 0x1234 };
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_ALLOC_MEMORY, sizeof(a), &a, &call), 0);
	assert_int_equal(call.verb, RM_VERB_ALLOC_MEMORY);
	assert_int_equal(call.params, 0x7000);
	assert_int_equal(call.bytes, 0x1000);
	assert_int_equal(call.fd, 4);
	assert_int_equal(call.status_at, 40);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		a.class_id = refused[i];
		assert_int_equal(rm_decode(RM_ESC_ALLOC_MEMORY, sizeof(a), &a, &call), 0);
		assert_int_equal(call.verb, RM_VERB_REFUSED);
		assert_int_equal(call.status_at, 40);
	}
}

static void alloc_object_is_refused(void **state)
{
	unsigned char a[20] = { 0 };
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_ALLOC_OBJECT, sizeof(a), a, &call), 0);
	assert_int_equal(call.verb, RM_VERB_REFUSED);
	assert_int_equal(call.status_at, 16);
}

static void decode_heap(unsigned char arg[184], uint32_t function, struct rm_call *call)
{
	put32(arg, 0, 1);
	put32(arg, 4, 2);
	put32(arg, 8, function);
	assert_int_equal(rm_decode(RM_ESC_VID_HEAP_CONTROL, 184, arg, call), 0);
	assert_int_equal(call->verb, RM_VERB_VID_HEAP);
	assert_int_equal(call->client, 1);
	assert_int_equal(call->parent, 2);
	assert_int_equal(call->class_id, function);
	assert_int_equal(call->status_at, 20);
}

static void heap_alloc_tells_handle_bytes_and_class(void **state)
{
	unsigned char a[184] = { 0 };
	struct rm_call call;

	(void)state;
	put32(a, 44, 77);
	put32(a, 52, HANDLE_PROVIDED);
	put64(a, 88, 2u << 20);
	decode_heap(a, RM_HEAP_ALLOC_SIZE, &call);
	assert_int_equal(call.object, 77);
	assert_int_equal(call.object_at, 44);
	assert_int_equal(call.bytes, 2u << 20);
	assert_int_equal(call.heap_class, 0x40);
	put32(a, 56, 1u << 25); /* in host memory */
	decode_heap(a, RM_HEAP_ALLOC_SIZE, &call);
	assert_int_equal(call.heap_class, 0x3e);
	put32(a, 52, HANDLE_PROVIDED | 0x80000); /* addresses */
	decode_heap(a, RM_HEAP_ALLOC_SIZE, &call);
	assert_int_equal(call.heap_class, 0x50a0);
}

static void heap_alloc_ignores_a_handle_the_driver_will_choose(void **state)
{
	unsigned char a[184] = { 0 };
	struct rm_call call;

	(void)state;
	put32(a, 44, 77);
	decode_heap(a, RM_HEAP_ALLOC_SIZE, &call);
	assert_int_equal(call.object, 0);
	assert_int_equal(call.object_at, 44);
}

static void heap_tiled_alloc_counts_height_by_pitch(void **state)
{
	unsigned char a[184] = { 0 };
	struct rm_call call;

	(void)state;
	put32(a, 56, 1080);
	put32(a, 60, 8192);
	put64(a, 88, 1); /* what the caller claims */
	decode_heap(a, RM_HEAP_ALLOC_TILED, &call);
	assert_int_equal(call.bytes, 1080 * 8192);
	put32(a, 60, 0xffffffff); /* a pitch of -1 becomes enormous, as in the driver */
	decode_heap(a, RM_HEAP_ALLOC_TILED, &call);
	assert_true(call.bytes > UINT64_MAX / 2);
}

static void heap_range_free_and_os_memory_have_fields_of_their_own(void **state)
{
	unsigned char range[184] = { 0 }, gone[184] = { 0 }, pages[184] = { 0 };
	struct rm_call call;

	(void)state;
	put64(range, 80, 4096);
	decode_heap(range, RM_HEAP_ALLOC_RANGE, &call);
	assert_int_equal(call.bytes, 4096);
	put32(gone, 44, 5);
	decode_heap(gone, RM_HEAP_FREE, &call);
	assert_int_equal(call.object, 5);
	assert_int_equal(call.heap_class, 0);
	assert_int_equal(call.object_at, -1);
	put32(pages, 40, 6);
	put32(pages, 48, HANDLE_PROVIDED);
	put64(pages, 64, 0x7000);
	put64(pages, 72, 0x1fff);
	decode_heap(pages, RM_HEAP_ALLOC_OS_DESCRIPTOR, &call);
	assert_int_equal(call.object, 6);
	assert_int_equal(call.params, 0x7000);
	assert_int_equal(call.bytes, 0x2000);
	assert_int_equal(call.heap_class, 0x71);
}

static void events_name_a_file(void **state)
{
	unsigned char a[16] = { 0 };
	struct rm_call call;

	(void)state;
	put32(a, 0, 1);
	put32(a, 4, 2);
	put32(a, 8, 12);
	assert_int_equal(rm_decode(RM_ESC_ALLOC_OS_EVENT, sizeof(a), a, &call), 0);
	assert_int_equal(call.verb, RM_VERB_OTHER);
	assert_int_equal(call.client, 1);
	assert_int_equal(call.fd, 12);
	assert_int_equal(call.status_at, 12);
}

static void map_dma_has_two_sizes_and_two_places_for_its_status(void **state)
{
	unsigned char a[64] = { 0 };
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(RM_ESC_MAP_MEMORY_DMA, 56, a, &call), 0);
	assert_int_equal(call.status_at, 48);
	assert_int_equal(rm_decode(RM_ESC_MAP_MEMORY_DMA, 64, a, &call), 0);
	assert_int_equal(call.status_at, 56);
	assert_int_equal(rm_decode(RM_ESC_MAP_MEMORY_DMA, 60, a, &call), -EINVAL);
}

static void sizes_the_driver_refuses_are_refused(void **state)
{
	static const struct {
		uint32_t nr, size, other;
	} calls[] = {
		{ RM_ESC_ALLOC_MEMORY, 56, 56 },
		{ RM_ESC_ALLOC_OBJECT, 20, 20 },
		{ RM_ESC_FREE, 16, 16 },
		{ RM_ESC_CONTROL, 32, 32 },
		{ RM_ESC_ALLOC, 32, 48 },
		{ RM_ESC_DUP_OBJECT, 28, 28 },
		{ RM_ESC_SHARE, 24, 24 },
		{ RM_ESC_IDLE_CHANNELS, 56, 56 },
		{ RM_ESC_VID_HEAP_CONTROL, 184, 184 },
		{ RM_ESC_MAP_MEMORY, 56, 56 },
		{ RM_ESC_UNMAP_MEMORY, 32, 32 },
		{ RM_ESC_REGISTER_FD, 4, 4 },
		{ RM_ESC_UPDATE_DEVICE_MAPPING_INFO, 40, 40 },
		{ RM_ESC_ALLOC_OS_EVENT, 16, 16 },
	};
	unsigned char arg[RM_ARG_MAX] = { 0 };
	struct rm_call call;

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (uint32_t size = 0; size <= RM_ARG_MAX; size++)
			assert_int_equal(rm_decode(calls[i].nr, size, arg, &call),
					 size == calls[i].size || size == calls[i].other ? 0 : -EINVAL);
}

static void unknown_numbers_are_other_and_not_read(void **state)
{
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode(0xfe, 1000, NULL, &call), 0);
	assert_int_equal(call.verb, RM_VERB_OTHER);
	assert_int_equal(call.nr, 0xfe);
	assert_int_equal(call.status_at, -1);
	/* The driver compares an XFER_CMD's number in full: this is no FREE. */
	assert_int_equal(rm_decode(0x100 | RM_ESC_FREE, 16, NULL, &call), 0);
	assert_int_equal(call.verb, RM_VERB_OTHER);
	assert_int_equal(rm_decode(RM_ESC_EXPORT_TO_DMABUF_FD, 2608, NULL, &call), 0);
}

static void xfer_tells_the_call_proper(void **state)
{
	struct rm_xfer in = { .nr = RM_ESC_ALLOC, .size = 48, .address = 0x7000 }, out;
	struct rm_call call;

	(void)state;
	assert_int_equal(rm_decode_xfer(sizeof(in), &in, &out), 0);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_int_equal(rm_decode_xfer(15, &in, &out), -EINVAL);
	in.size = RM_XFER_MAX + 1;
	assert_int_equal(rm_decode_xfer(sizeof(in), &in, &out), -EINVAL);
	assert_int_equal(rm_decode(RM_ESC_XFER_CMD, sizeof(in), &in, &call), -EINVAL);
}

/* A recorded CUDA program: context, kernels, six green contexts, on an H200 with driver 580.159.04. */

struct record {
	unsigned lines, calls, controls, maps, uvm, mmaps;
	unsigned kinds[RM_KIND_REFUSED + 1];
};

static void replay_alloc(const char *what, struct record *seen)
{
	struct rm_arg_alloc a = { 0 };
	struct rm_call call;
	const struct rm_class *class;

	assert_int_equal(sscanf(what, "RM_ALLOC root %x parent %x new %x class %x", &a.client, &a.parent,
				&a.object, &a.class_id),
			 4);
	assert_int_equal(rm_decode(RM_ESC_ALLOC, sizeof(a), &a, &call), 0);
	assert_int_equal(call.verb, RM_VERB_ALLOC);
	assert_int_equal(call.client, a.client);
	assert_int_equal(call.parent, a.parent);
	assert_int_equal(call.object, a.object);
	class = rm_class_find(call.class_id);
	assert_string_not_equal(class->name, "unknown");
	seen->kinds[class->kind]++;
}

static void replay_control(const char *what, struct record *seen)
{
	struct rm_arg_control c = { 0 };
	struct rm_call call;

	assert_int_equal(sscanf(what, "RM_CONTROL client %x obj %x cmd %x", &c.client, &c.object, &c.cmd), 3);
	assert_int_equal(rm_decode(RM_ESC_CONTROL, sizeof(c), &c, &call), 0);
	assert_int_equal(call.verb, RM_VERB_CONTROL);
	assert_int_equal(call.client, c.client);
	assert_int_equal(call.object, c.object);
	assert_int_equal(call.class_id, c.cmd);
	seen->controls++;
}

static void replay_map(const char *what, struct record *seen)
{
	struct rm_arg_map m = { 0 };
	unsigned long long offset, length;
	struct rm_call call;

	assert_int_equal(sscanf(what,
				"RM_MAP_MEMORY client %x dev %x mem %x off %llx len %llx flags %x fd %d",
				&m.client, &m.device, &m.memory, &offset, &length, &m.flags, &m.fd),
			 7);
	m.offset = offset;
	m.length = length;
	assert_int_equal(rm_decode(RM_ESC_MAP_MEMORY, sizeof(m), &m, &call), 0);
	assert_int_equal(call.object, m.memory);
	assert_int_equal(call.bytes, length);
	assert_int_equal(call.fd, m.fd);
	seen->maps++;
}

static void replay_bare(const char *what, struct record *seen)
{
	unsigned char arg[4096] = { 0 };
	uint32_t nr, size;
	struct rm_call call;

	assert_int_equal(sscanf(what, "ioctl nr %x sz %u", &nr, &size), 2);
	assert_true(size <= sizeof(arg));
	put32(arg, 12, 0x71); /* what the one that allocates here asks for: pages of the program */
	assert_int_equal(rm_decode(nr, size, arg, &call), 0);
	assert_int_not_equal(call.verb, RM_VERB_REFUSED);
	seen->calls++;
}

static void replay_line(const char *line, struct record *seen)
{
	const char *what = strchr(line, ' ') + 1;

	if (!strncmp(line, "uvm cmd ", 8))
		seen->uvm++;
	else if (!strncmp(what, "RM_ALLOC ", 9))
		replay_alloc(what, seen);
	else if (!strncmp(what, "RM_CONTROL ", 11))
		replay_control(what, seen);
	else if (!strncmp(what, "RM_MAP_MEMORY ", 14))
		replay_map(what, seen);
	else if (!strncmp(what, "ioctl ", 6))
		replay_bare(what, seen);
	else if (!strncmp(what, "mmap ", 5))
		seen->mmaps++;
	else
		fail_msg("a line of an unknown kind: %s", line);
	seen->lines++;
}

static void recorded_program_is_understood_whole(void **state)
{
	const char *dir = getenv("BELFRY_TEST_DATA");
	struct record seen = { 0 };
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
		replay_line(line, &seen);
	fclose(file);

	assert_int_equal(seen.lines, 567);
	assert_int_equal(seen.kinds[RM_KIND_ROOT], 2);
	assert_int_equal(seen.kinds[RM_KIND_DEVICE], 1);
	assert_int_equal(seen.kinds[RM_KIND_SUBDEVICE], 1);
	assert_int_equal(seen.kinds[RM_KIND_VIDMEM], 35);
	assert_int_equal(seen.kinds[RM_KIND_SYSMEM], 26);
	assert_int_equal(seen.kinds[RM_KIND_OS_MEMORY], 0); /* by ALLOC_MEMORY: among the bare calls */
	assert_int_equal(seen.kinds[RM_KIND_GROUP], 4);
	assert_int_equal(seen.kinds[RM_KIND_CHANNEL], 8 + 3 * 4);
	assert_int_equal(seen.kinds[RM_KIND_ENGINE], 8 + 20); /* compute on eight, copy on all */
	assert_int_equal(seen.kinds[RM_KIND_DOORBELL], 2);
	assert_int_equal(seen.kinds[RM_KIND_EVENT], 8);
	assert_int_equal(seen.kinds[RM_KIND_OTHER], 9);
	assert_int_equal(seen.kinds[RM_KIND_REFUSED], 1); /* 0x503c */
	assert_int_equal(seen.calls, 33);
	assert_true(seen.controls > 150);
	assert_true(seen.maps > 20);
	assert_true(seen.uvm > 100);
	assert_true(seen.mmaps > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout_is_found_by_the_major_version),
		cmocka_unit_test(layout_is_not_found_for_garbage),
		cmocka_unit_test(layouts_are_listed_in_order_and_end),
		cmocka_unit_test(layout_fields_lie_inside_their_structures),
		cmocka_unit_test(series_580_has_the_measured_layout),
		cmocka_unit_test(series_570_takes_shorter_lists),
		cmocka_unit_test(unknown_class_is_refused_and_never_null),
		cmocka_unit_test(known_class_is_found_under_its_own_id),
		cmocka_unit_test(only_class_40_makes_device_memory),
		cmocka_unit_test(windows_on_physical_memory_are_refused),
		cmocka_unit_test(every_generation_has_channel_engines_and_doorbell),
		cmocka_unit_test(params_size_is_known_for_what_belfry_makes_itself),
		cmocka_unit_test(params_size_is_known_for_every_class_that_is_not_refused),
		cmocka_unit_test(clients_in_allocation_parameters_lie_inside_them),
		cmocka_unit_test(classes_that_keep_memory_alive_are_refused),
		cmocka_unit_test(fb_indices_mean_total_or_free),
		cmocka_unit_test(alloc_is_taken_apart_in_its_new_form),
		cmocka_unit_test(alloc_is_taken_apart_in_its_old_form),
		cmocka_unit_test(free_and_control_are_taken_apart),
		cmocka_unit_test(dup_names_its_source),
		cmocka_unit_test(map_and_unmap_are_taken_apart),
		cmocka_unit_test(negative_files_are_no_file),
		cmocka_unit_test(alloc_memory_takes_host_memory_only),
		cmocka_unit_test(alloc_object_is_refused),
		cmocka_unit_test(heap_alloc_tells_handle_bytes_and_class),
		cmocka_unit_test(heap_alloc_ignores_a_handle_the_driver_will_choose),
		cmocka_unit_test(heap_tiled_alloc_counts_height_by_pitch),
		cmocka_unit_test(heap_range_free_and_os_memory_have_fields_of_their_own),
		cmocka_unit_test(events_name_a_file),
		cmocka_unit_test(map_dma_has_two_sizes_and_two_places_for_its_status),
		cmocka_unit_test(sizes_the_driver_refuses_are_refused),
		cmocka_unit_test(unknown_numbers_are_other_and_not_read),
		cmocka_unit_test(xfer_tells_the_call_proper),
		cmocka_unit_test(recorded_program_is_understood_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
