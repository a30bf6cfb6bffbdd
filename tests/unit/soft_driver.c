/* belfry-soft as one program sees it: the calls that nv.c makes, and those of a library. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "soft_client.h"

enum {
	ERR_NAME_TAKEN = 0x19,
	ERR_INSUFFICIENT_RESOURCES = 0x1a,
	ERR_INVALID_CLASS = 0x22,
	ERR_INVALID_DATA = 0x25,
	ERR_INVALID_LIMIT = 0x2e,
	ERR_INVALID_OFFSET = 0x37,
	ERR_NOT_FOUND = 0x57,
	ERR_STATE_IN_USE = 0x63,
};

static struct soft_program program;

static int begin(void **state)
{
	if (soft_folder_new(state))
		return -1;
	soft_start("gpus=2,sms=2,mem=64M,pace=off,cores=1");
	return program_begin(&program);
}

static int end(void **state)
{
	program_close(&program);
	soft_wait_files(0);
	/* Whatever a test has left behind, a closed file takes with it. */
	struct soft_status status = soft_status();
	int leaked = status.client_count || status.channel_count || status.used_bytes[0];

	soft_folder_remove(state);
	return leaked ? -1 : 0;
}

static void cards_are_listed_with_their_instances(void **state)
{
	uint8_t cards[32 * 72] = { 0 };
	uint32_t info[8] = { 0 }, ids[32], attach[33] = { 0 }, number;

	(void)state;
	assert_int_equal(link_call(program.control, RM_ESC_CARD_INFO, cards, sizeof(cards)), 0);
	assert_int_equal(cards[0], 1);
	assert_int_equal(cards[72], 1);
	assert_int_equal(cards[144], 0);
	memcpy(&number, cards + 72 + 56, sizeof(number));
	assert_int_equal(number, 1);
	memcpy(&info[0], cards + 72 + 16, sizeof(number));
	attach[0] = info[0];
	attach[1] = 0xffffffff;
	assert_int_equal(
		program_control(&program, program.client, RM_CTRL_ROOT_ATTACH_IDS, attach, sizeof(attach)),
		0);
	assert_int_equal(
		program_control(&program, program.client, RM_CTRL_ROOT_GET_ID_INFO_V2, info, sizeof(info)),
		0);
	assert_int_equal(info[2], 1);
	attach[0] = 0x4711;
	assert_int_equal(
		program_control(&program, program.client, RM_CTRL_ROOT_ATTACH_IDS, attach, sizeof(attach)),
		RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(
		program_control(&program, program.client, RM_CTRL_ROOT_GET_ATTACHED_IDS, ids, sizeof(ids)),
		0);
	assert_int_equal(ids[1], info[0]);
	assert_int_equal(ids[2], 0xffffffff);
	assert_int_equal(link_call(program.gpu, RM_ESC_CARD_INFO, cards, sizeof(cards)), -EINVAL);
}

static void version_is_checked_and_told(void **state)
{
	struct {
		uint32_t cmd, reply;
		char text[64];
	} version = { 0, 9, SOFT_DRIVER_VERSION };

	(void)state;
	assert_int_equal(link_call(program.control, RM_ESC_CHECK_VERSION_STR, &version, sizeof(version)), 0);
	assert_int_equal(version.reply, 1);
	strcpy(version.text, "999.1");
	assert_int_equal(link_call(program.control, RM_ESC_CHECK_VERSION_STR, &version, sizeof(version)),
			 -EINVAL);
	assert_int_equal(version.reply, 0);
	assert_string_equal(version.text,
			    SOFT_DRIVER_VERSION); /* told although it failed, as an ioctl would */
}

static void gpu_has_a_name_a_uuid_and_a_shape(void **state)
{
	struct soft_shape_params shape;
	uint8_t gid[268] = { 0 };
	char name[132] = { 0 };

	(void)state;
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, 0x20800110, name, sizeof(name)), 0);
	assert_string_equal(name + 4, "Belfry Software GPU");
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, 0x2080014a, gid, sizeof(gid)), 0);
	assert_memory_equal(gid + 12, "GPU-", 4);
	assert_int_equal(strlen((char *)gid + 12), 40);
	assert_int_equal(
		program_control(&program, HANDLE_SUBDEVICE, SOFT_CTRL_GPU_GET_SHAPE, &shape, sizeof(shape)),
		0);
	assert_int_equal(shape.sm_count, 2);
	assert_int_equal(shape.mem_bytes, 64 << 20);
	/* Not on a device, nor with another size, nor one that does not exist. */
	assert_int_equal(program_control(&program, HANDLE_DEVICE, 0x20800110, name, sizeof(name)),
			 RM_ERR_NOT_SUPPORTED);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, 0x20800110, name, 64),
			 RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, 0x20800110, NULL, 0),
			 RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, 0x2080ffff, name, 4),
			 RM_ERR_NOT_SUPPORTED);
	assert_int_equal(program_control(&program, 0x1234, 0x20800110, name, sizeof(name)), ERR_NOT_FOUND);
}

static void counters_are_told_on_a_subdevice_only(void **state)
{
	struct soft_counters_params counters = { .reserved = 7 }, later;

	(void)state;
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, SOFT_CTRL_GPU_GET_COUNTERS, &counters,
					 sizeof(counters)),
			 0);
	assert_int_equal(counters.sm_count, 2);
	assert_int_equal(counters.reserved, 0);
	assert_int_equal(counters.sm_ns, 0);
	assert_int_equal(counters.bus_ns, 0);
	assert_int_equal(counters.moved_bytes, 0);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, SOFT_CTRL_GPU_GET_COUNTERS, &later,
					 sizeof(later)),
			 0);
	assert_true(later.gpu_ns > counters.gpu_ns);
	assert_int_equal(program_control(&program, HANDLE_DEVICE, SOFT_CTRL_GPU_GET_COUNTERS, &counters,
					 sizeof(counters)),
			 RM_ERR_NOT_SUPPORTED);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, SOFT_CTRL_GPU_GET_COUNTERS, &counters,
					 sizeof(counters) - 8),
			 RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, SOFT_CTRL_GPU_GET_COUNTERS, NULL, 0),
			 RM_ERR_INVALID_ARGUMENT);
}

static void handles_are_unique_and_parents_must_fit(void **state)
{
	struct rm_arg_alloc arg = { .client = program.client, .parent = HANDLE_DEVICE, .class_id = 0x90f1 };
	uint64_t bytes = 4096;

	(void)state;
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, HANDLE_SPACE, 0x90f1, NULL, 0),
			 ERR_NAME_TAKEN);
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, program.client, 0x90f1, NULL, 0),
			 RM_ERR_INVALID_OBJECT_HANDLE);
	assert_int_equal(program_alloc(&program, 0x77, 0x78, 0x90f1, NULL, 0), RM_ERR_INVALID_OBJECT_PARENT);
	assert_int_equal(program_alloc(&program, HANDLE_SUBDEVICE, 0x78, 0x90f1, NULL, 0),
			 RM_ERR_INVALID_OBJECT_PARENT);
	assert_int_equal(program_alloc(&program, program.client, 0x78, 0x2080, NULL, 0),
			 RM_ERR_INVALID_OBJECT_PARENT);
	assert_int_equal(program_alloc(&program, HANDLE_SUBDEVICE, 0x78, 0xc761, NULL, 0), ERR_INVALID_CLASS);
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, 0x78, 0xabcdef, NULL, 0), ERR_INVALID_CLASS);
	/* Handle 0: the driver chooses. */
	assert_int_equal(link_call(program.control, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	assert_int_equal(arg.status, 0);
	assert_int_not_equal(arg.object, 0);
	assert_int_equal(program_free(&program, arg.object), 0);
	assert_int_equal(program_free(&program, arg.object), ERR_NOT_FOUND);
	/* What lies below goes too. */
	assert_int_equal(program_memory(&program, HANDLE_FIRST_MEMORY, true, &bytes), 0);
	assert_int_equal(program_free(&program, HANDLE_DEVICE), 0);
	assert_int_equal(program_free(&program, HANDLE_FIRST_MEMORY), ERR_NOT_FOUND);
	assert_int_equal(program_free(&program, HANDLE_SUBDEVICE), ERR_NOT_FOUND);
	assert_int_equal(soft_status().used_bytes[0], 0);
}

static void device_must_exist(void **state)
{
	uint32_t params[14] = { 1 };

	(void)state;
	assert_int_equal(program_alloc(&program, program.client, 0x10, 0x80, params, sizeof(params)), 0);
	params[0] = 2;
	assert_int_equal(program_alloc(&program, program.client, 0x11, 0x80, params, sizeof(params)),
			 RM_ERR_INVALID_DEVICE);
	params[0] = 0;
	assert_int_equal(program_alloc(&program, program.client, 0x11, 0x80, params, 8),
			 RM_ERR_INVALID_ARGUMENT);
	/* Size 0: as many as the class takes. */
	params[0] = 1;
	assert_int_equal(program_alloc(&program, program.client, 0x12, 0x80, params, 0), 0);
}

static void clients_belong_to_their_control_file(void **state)
{
	struct rm_arg_alloc root = { .class_id = 0x41 };
	struct soft_program other = { 0 }, wrong, second;

	(void)state;
	assert_int_equal(program_begin(&other), 0);
	assert_int_not_equal(other.client, program.client);
	wrong = other;
	wrong.client = program.client;
	assert_int_equal(program_free(&wrong, HANDLE_SPACE), RM_ERR_INVALID_CLIENT);
	assert_int_equal(program_free(&wrong, program.client), RM_ERR_INVALID_CLIENT);
	wrong.client = 0x4711;
	assert_int_equal(program_free(&wrong, HANDLE_SPACE), RM_ERR_INVALID_CLIENT);
	/* A file can have several. */
	assert_int_equal(link_call(other.control, RM_ESC_ALLOC, &root, sizeof(root)), 0);
	assert_int_equal(root.status, 0);
	second = other;
	second.client = root.object;
	assert_int_not_equal(second.client, other.client);
	/* On control files only. */
	root.object = 0;
	assert_int_equal(link_call(other.gpu, RM_ESC_ALLOC, &root, sizeof(root)), -EINVAL);
	assert_int_equal(program_free(&other, other.client), 0);
	assert_int_equal(program_free(&second, second.client), 0);
	assert_int_equal(program_free(&other, HANDLE_SPACE), RM_ERR_INVALID_CLIENT);
	root.status = 0;
	assert_int_equal(link_call(other.control, RM_ESC_ALLOC, &root, sizeof(root)), 0);
	assert_int_equal(root.status, 0);
	program_close(&other);
	soft_wait_files(2);
}

static void gpu_files_are_tied_to_a_control_file_once(void **state)
{
	int other = link_open(soft_folder, SOFT_FILE_CONTROL), none = -1;

	(void)state;
	assert_int_equal(link_call(program.gpu, RM_ESC_REGISTER_FD, &program.gpu, 4), -EINVAL);
	assert_int_equal(link_call(program.gpu, RM_ESC_REGISTER_FD, &none, 4), -EINVAL);
	assert_int_equal(link_call(program.gpu, RM_ESC_REGISTER_FD, &program.control, 4), 0);
	assert_int_equal(link_call(program.gpu, RM_ESC_REGISTER_FD, &other, 4), -EINVAL);
	assert_int_equal(link_call(other, RM_ESC_REGISTER_FD, &other, 4), -EINVAL);
	close(other);
}

static void memory_is_rounded_counted_and_refused(void **state)
{
	uint64_t bytes = 1, all = 64 << 20;
	uint32_t fb[1028 / 4] = { 2, 0x08, 0, 0x16, 0 };

	(void)state;
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
	assert_int_equal(bytes, SOFT_VIDMEM_ROUND);
	bytes = 1;
	assert_int_equal(program_memory(&program, 2, false, &bytes), 0);
	assert_int_equal(bytes, SOFT_PAGE_BYTES);
	assert_int_equal(soft_status().used_bytes[0], SOFT_VIDMEM_ROUND);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, sizeof(fb)),
			 0);
	assert_int_equal(fb[2], 64 << 10);
	assert_int_equal(fb[4], (64 << 10) - 64);
	assert_int_equal(program_memory(&program, 3, true, &all), RM_ERR_NO_MEMORY);
	bytes = 0;
	assert_int_equal(program_memory(&program, 3, true, &bytes), RM_ERR_INVALID_ARGUMENT);
	bytes = UINT64_MAX;
	assert_int_equal(program_memory(&program, 3, true, &bytes), RM_ERR_NO_MEMORY);
	bytes = UINT64_MAX;
	assert_int_equal(program_memory(&program, 3, false, &bytes), RM_ERR_NO_MEMORY);
	bytes = (64 << 20) - SOFT_VIDMEM_ROUND; /* to the last byte */
	assert_int_equal(program_memory(&program, 3, true, &bytes), 0);
	bytes = 1;
	assert_int_equal(program_memory(&program, 4, true, &bytes), RM_ERR_NO_MEMORY);
	assert_int_equal(program_free(&program, 1), 0);
	bytes = 1;
	assert_int_equal(program_memory(&program, 4, true, &bytes), 0);
	/* Host memory is not the card's, but there is an end to it: four times what the cards have. */
	bytes = 4ull * 2 * (64 << 20);
	assert_int_equal(program_memory(&program, 5, false, &bytes), RM_ERR_NO_MEMORY);
	bytes -= SOFT_PAGE_BYTES;
	assert_int_equal(program_memory(&program, 5, false, &bytes), 0);
	bytes = 1;
	assert_int_equal(program_memory(&program, 6, false, &bytes), RM_ERR_NO_MEMORY);
	assert_int_equal(program_free(&program, 5), 0);
	assert_int_equal(program_memory(&program, 6, false, &bytes), 0);
}

static void memory_of_the_older_calls_is_the_same(void **state)
{
	uint32_t heap[184 / 4] = { 0 }, list[4] = { 0x08, 0, 0x0b, 0 };
	struct {
		uint32_t count, pad;
		uint64_t list;
	} fb = { 2, 0, (uintptr_t)list };
	uint64_t value;

	(void)state;
	heap[0] = program.client;
	heap[1] = HANDLE_DEVICE;
	heap[2] = RM_HEAP_ALLOC_SIZE;
	heap[22] = 100000; /* size */
	assert_int_equal(link_call(program.control, RM_ESC_VID_HEAP_CONTROL, heap, sizeof(heap)), 0);
	assert_int_equal(heap[5], 0);
	assert_int_equal(heap[22], 2 * SOFT_VIDMEM_ROUND);
	assert_int_equal(soft_status().used_bytes[0], 2 * SOFT_VIDMEM_ROUND);
	heap[2] = RM_HEAP_INFO;
	assert_int_equal(link_call(program.control, RM_ESC_VID_HEAP_CONTROL, heap, sizeof(heap)), 0);
	memcpy(&value, (char *)heap + 32, sizeof(value));
	assert_int_equal(value, (64 << 20) - 2 * SOFT_VIDMEM_ROUND);
	heap[2] = RM_HEAP_FREE;
	assert_int_equal(link_call(program.control, RM_ESC_VID_HEAP_CONTROL, heap, sizeof(heap)), 0);
	assert_int_equal(heap[5], 0);
	assert_int_equal(soft_status().used_bytes[0], 0);
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, RM_CTRL_FB_GET_INFO, &fb, sizeof(fb)),
			 0);
	assert_int_equal(list[1], 64 << 10);
	assert_int_equal(list[3], 5120);
}

static void maps_show_the_memory_and_nothing_beside_it(void **state)
{
	uint64_t bytes = 3ull * SOFT_VIDMEM_ROUND;
	uint32_t *whole, *part;
	int status;

	(void)state;
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
	whole = program_map(&program, 1, true, 0, bytes, &status);
	assert_non_null(whole);
	part = program_map(&program, 1, true, 0x2000, 0x1000, &status);
	assert_non_null(part);
	whole[0x2000 / 4] = 0x4711;
	assert_int_equal(part[0], 0x4711);
	assert_null(program_map(&program, 1, true, 0x1800, 0x1000, &status));
	assert_int_equal(status, ERR_INVALID_OFFSET);
	assert_null(program_map(&program, 1, true, 0x1000, bytes, &status));
	assert_int_equal(status, ERR_INVALID_LIMIT);
	assert_null(program_map(&program, 1, true, UINT64_MAX - 0xfff, 0x2000, &status));
	assert_int_equal(status, ERR_INVALID_LIMIT);
	assert_null(program_map(&program, 1, true, 0, 0, &status));
	assert_int_equal(status, ERR_INVALID_LIMIT);
	assert_null(program_map(&program, HANDLE_SPACE, true, 0, 4096, &status));
	assert_int_equal(status, ERR_NOT_FOUND);
	munmap(whole, bytes);
	munmap(part, 0x1000);
}

static void file_takes_one_map_and_only_what_was_prepared(void **state)
{
	int file = link_open(soft_folder, SOFT_FILE_GPU_0), wrong = link_open(soft_folder, 1);
	uint64_t bytes = SOFT_VIDMEM_ROUND;
	struct rm_arg_map arg = {
		.client = program.client, .device = HANDLE_SUBDEVICE, .memory = 1, .length = 8192, .fd = wrong
	};
	void *at = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
	assert_ptr_equal(link_map(file, NULL, 8192, PROT_READ, 0), MAP_FAILED); /* nothing prepared */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(link_call(program.control, RM_ESC_MAP_MEMORY, &arg, sizeof(arg)), 0);
	assert_int_equal(arg.status, RM_ERR_INVALID_ARGUMENT); /* a file of another GPU */
	arg.fd = file;
	assert_int_equal(link_call(program.control, RM_ESC_MAP_MEMORY, &arg, sizeof(arg)), 0);
	assert_int_equal(arg.status, 0);
	assert_int_equal(link_call(program.control, RM_ESC_MAP_MEMORY, &arg, sizeof(arg)), 0);
	assert_int_equal(arg.status, ERR_STATE_IN_USE);
	assert_ptr_equal(link_map(file, NULL, 12288, PROT_READ, 0), MAP_FAILED);
	assert_ptr_equal(link_map(file, NULL, 8192, PROT_READ, 4096), MAP_FAILED);
	assert_ptr_equal(link_map(file, at, 8192, PROT_READ | PROT_WRITE, 0), at);
	*(volatile uint32_t *)at = 5;
	/* Freed memory cannot be mapped any more. */
	assert_int_equal(program_free(&program, 1), 0);
	assert_ptr_equal(link_map(file, NULL, 8192, PROT_READ, 0), MAP_FAILED);
	assert_int_equal(soft_status().used_bytes[0], 0);
	munmap(at, 8192);
	close(file);
	close(wrong);
}

static void memory_lies_where_it_was_mapped_once(void **state)
{
	uint64_t bytes = SOFT_VIDMEM_ROUND, address = 0, second = 0, fixed = 0x7f0000000000;

	(void)state;
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
	assert_int_equal(program_dma(&program, 1, bytes, &address, false), 0);
	assert_int_not_equal(address, 0);
	assert_int_equal(program_dma(&program, 1, bytes, &second, false), 0);
	assert_true(second >= address + bytes || address >= second + bytes);
	assert_int_equal(program_dma(&program, 1, bytes, &fixed, true), 0);
	assert_int_equal(fixed, 0x7f0000000000);
	assert_int_equal(program_dma(&program, 1, bytes, &fixed, true), RM_ERR_NO_MEMORY); /* taken */
	assert_int_equal(program_undma(&program, 1, fixed), 0);
	assert_int_equal(program_undma(&program, 1, fixed), ERR_NOT_FOUND);
	assert_int_equal(program_dma(&program, 1, bytes, &fixed, true), 0);
	fixed = 1ull << 47;
	assert_int_equal(program_dma(&program, 1, bytes, &fixed, true), RM_ERR_INVALID_ARGUMENT);
	fixed = 0x1234;
	assert_int_equal(program_dma(&program, 1, bytes, &fixed, true), RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_dma(&program, 1, bytes + 1, &second, false), ERR_INVALID_LIMIT);
	assert_int_equal(program_dma(&program, 9, bytes, &second, false), ERR_NOT_FOUND);
	/* Freed memory leaves the space, and its place with it. */
	assert_int_equal(program_free(&program, 1), 0);
	assert_int_equal(soft_status().used_bytes[0], 0);
	assert_int_equal(program_undma(&program, 1, address), ERR_NOT_FOUND);
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
	fixed = 0x7f0000000000;
	assert_int_equal(program_dma(&program, 1, bytes, &fixed, true), 0);
	assert_int_equal(program_free(&program, HANDLE_SPACE), 0);
	assert_int_equal(program_free(&program, 1), 0);
	assert_int_equal(soft_status().used_bytes[0], 0);
}

static void range_is_reserved_and_mapped_into(void **state)
{
	uint8_t params[128] = { 0 };
	uint64_t bytes = 4 << 20, base, address = 0x10000, piece = SOFT_VIDMEM_ROUND;
	uint32_t space = HANDLE_SPACE;
	struct {
		uint32_t client, device, space, memory;
		uint64_t offset, bytes;
		uint32_t flags, flags2, kind, pad;
		uint64_t address;
		uint32_t status, pad2;
	} arg = { .client = program.client, .device = HANDLE_DEVICE, .space = 0x20, .memory = 1 };

	(void)state;
	memcpy(params + 64, &bytes, sizeof(bytes));
	memcpy(params + 108, &space, sizeof(space));
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, 0x20, 0x50a0, params, sizeof(params)), 0);
	memcpy(&base, params + 80, sizeof(base));
	assert_int_not_equal(base, 0);
	assert_int_equal(program_memory(&program, 1, true, &piece), 0);
	arg.bytes = piece;
	arg.address = address;
	assert_int_equal(link_call(program.control, RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg)), 0);
	assert_int_equal(arg.status, 0);
	assert_int_equal(arg.address, base + address); /* relative to the range */
	arg.address = bytes;
	assert_int_equal(link_call(program.control, RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg)), 0);
	assert_int_equal(arg.status, RM_ERR_INVALID_ARGUMENT);
	/* Others stay out of it, unless they go through it. */
	address = 0;
	assert_int_equal(program_dma(&program, 1, piece, &address, false), 0);
	assert_true(address >= base + bytes || address + piece <= base);
	address = base + (1 << 20);
	assert_int_equal(program_dma(&program, 1, piece, &address, true), RM_ERR_NO_MEMORY);
	assert_int_equal(program_free(&program, 0x20), 0);
	assert_int_equal(program_dma(&program, 1, piece, &address, true), 0);
}

static void events_are_accepted(void **state)
{
	uint32_t event[4] = { program.client, HANDLE_DEVICE, (uint32_t)program.control, 99 };

	(void)state;
	assert_int_equal(link_call(program.control, RM_ESC_ALLOC_OS_EVENT, event, sizeof(event)), 0);
	assert_int_equal(event[3], 0);
	assert_int_equal(link_call(program.control, RM_ESC_FREE_OS_EVENT, event, sizeof(event)), 0);
	event[0]++;
	assert_int_equal(link_call(program.control, RM_ESC_ALLOC_OS_EVENT, event, sizeof(event)), 0);
	assert_int_equal(event[3], RM_ERR_INVALID_CLIENT);
}

static void unknown_calls_are_invalid(void **state)
{
	uint8_t arg[64] = { 0 };

	(void)state;
	assert_int_equal(link_call(program.control, 0x99, arg, 32), -EINVAL);
	assert_int_equal(link_call(program.control, RM_ESC_FREE, arg, 15), -EINVAL);
	assert_int_equal(link_call(program.control, RM_ESC_ALLOC, arg, 33), -EINVAL);
	/* Known ones that are not supported say so where they are looked for. */
	assert_int_equal(link_call(program.control, RM_ESC_ALLOC_CONTEXT_DMA2, arg, 56), 0);
	assert_int_equal(arg[48], RM_ERR_NOT_SUPPORTED);
}

static void second_door_leads_to_the_same_calls(void **state)
{
	struct rm_arg_free free_arg = { .client = program.client, .object = HANDLE_SPACE };
	struct rm_xfer xfer = { RM_ESC_FREE, sizeof(free_arg), (uintptr_t)&free_arg };

	(void)state;
	assert_int_equal(link_call(program.control, RM_ESC_XFER_CMD, &xfer, sizeof(xfer)), 0);
	assert_int_equal(free_arg.status, 0);
	assert_int_equal(program_free(&program, HANDLE_SPACE), ERR_NOT_FOUND);
}

/* Threads that share a file: each gets its own answer. */
static void *ask_often(void *context)
{
	uint32_t base = (uint32_t)(uintptr_t)context;

	for (uint32_t i = 0; i < 200; i++) {
		struct rm_arg_alloc arg = { .client = program.client,
					    .parent = HANDLE_DEVICE,
					    .object = base + i,
					    .class_id = i % 2 ? 0x90f1 : 0xffff };

		if (link_call(program.control, RM_ESC_ALLOC, &arg, sizeof(arg)) || arg.object != base + i ||
		    arg.status != (i % 2 ? 0 : (uint32_t)ERR_INVALID_CLASS))
			return "wrong answer";
		if (i % 2 && program_free(&program, base + i))
			return "not freed";
	}
	return NULL;
}

static void threads_never_mix_up_answers(void **state)
{
	pthread_t threads[8];
	void *result;

	(void)state;
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_often, (void *)(0x100000 * (i + 1))),
				 0);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(threads[i], &result), 0);
		if (result)
			fail_msg("%s", (char *)result);
	}
}

static void objects_of_a_client_are_limited(void **state)
{
	uint32_t made = 0;
	int status;

	(void)state;
	do
		status = program_alloc(&program, HANDLE_DEVICE, 0x100000 + made++, 0x79, NULL, 0);
	while (!status && made < 70000);
	assert_int_equal(status, ERR_INSUFFICIENT_RESOURCES);
	assert_int_equal(made, 65536 - 2);
	assert_int_equal(program_free(&program, 0x100000), 0);
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, 0x100000, 0x79, NULL, 0), 0);
}

#define WITH_PROGRAM(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PROGRAM(cards_are_listed_with_their_instances),
		WITH_PROGRAM(version_is_checked_and_told),
		WITH_PROGRAM(gpu_has_a_name_a_uuid_and_a_shape),
		WITH_PROGRAM(counters_are_told_on_a_subdevice_only),
		WITH_PROGRAM(handles_are_unique_and_parents_must_fit),
		WITH_PROGRAM(device_must_exist),
		WITH_PROGRAM(clients_belong_to_their_control_file),
		WITH_PROGRAM(gpu_files_are_tied_to_a_control_file_once),
		WITH_PROGRAM(memory_is_rounded_counted_and_refused),
		WITH_PROGRAM(memory_of_the_older_calls_is_the_same),
		WITH_PROGRAM(maps_show_the_memory_and_nothing_beside_it),
		WITH_PROGRAM(file_takes_one_map_and_only_what_was_prepared),
		WITH_PROGRAM(memory_lies_where_it_was_mapped_once),
		WITH_PROGRAM(range_is_reserved_and_mapped_into),
		WITH_PROGRAM(events_are_accepted),
		WITH_PROGRAM(unknown_calls_are_invalid),
		WITH_PROGRAM(second_door_leads_to_the_same_calls),
		WITH_PROGRAM(threads_never_mix_up_answers),
		WITH_PROGRAM(objects_of_a_client_are_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
