#include "soft_client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

enum { LIMIT_S = 10 };

char soft_folder[64];

int soft_folder_new(void **state)
{
	(void)state;
	snprintf(soft_folder, sizeof(soft_folder), "/tmp/belfry-soft-XXXXXX");
	return mkdtemp(soft_folder) ? setenv("BELFRY_SOFT_DIR", soft_folder, 1) : -1;
}

int soft_folder_remove(void **state)
{
	char command[128];

	(void)state;
	link_stop(soft_folder, NULL);
	snprintf(command, sizeof(command), "rm -rf '%s'", soft_folder);
	return system(command);
}

const char *soft_server_path(void)
{
	static char path[512];
	const char *given = getenv("BELFRY_SOFT_SERVER");

	snprintf(path, sizeof(path), "%s", given ? given : BELFRY_BUILD_DIR "/belfry-soft");
	return path;
}

void soft_start(const char *text)
{
	struct link_config config;
	struct bf_error err = { 0 };
	char folder[108];

	if (link_config_parse(text, &config, &err) ||
	    link_start(soft_server_path(), &config, folder, sizeof(folder), &err))
		fail_msg("%s", err.text);
	assert_string_equal(folder, soft_folder);
}

struct soft_status soft_status(void)
{
	struct soft_status status;
	struct bf_error err = { 0 };

	if (link_status(soft_folder, &status, &err))
		fail_msg("%s", err.text);
	return status;
}

void soft_wait_files(uint32_t count)
{
	uint64_t until_ns = bf_now_ns() + LIMIT_S * 1000000000ull;

	while (soft_status().file_count != count) {
		assert_true(bf_now_ns() < until_ns);
		usleep(1000);
	}
}

void soft_wait_end(void)
{
	uint64_t until_ns = bf_now_ns() + LIMIT_S * 1000000000ull;

	for (int fd; (fd = link_open(soft_folder, 0xdead)) != -ENOENT && fd != -ECONNREFUSED;) {
		assert_true(fd < 0);
		assert_true(bf_now_ns() < until_ns);
		usleep(1000);
	}
}

static int call(const struct soft_program *program, uint32_t nr, void *arg, uint32_t size)
{
	return program->on_behalf ? link_call_for(program->control, program->on_behalf, nr, arg, size)
				  : link_call(program->control, nr, arg, size);
}

int program_open(struct soft_program *program)
{
	struct rm_arg_alloc root = { .class_id = 0x41 };
	int rc;

	program->folder = soft_folder;
	program->client = 0;
	program->gpu = -1;
	program->control = link_open(soft_folder, SOFT_FILE_CONTROL);
	if (program->control < 0)
		return program->control;
	program->gpu = link_open(soft_folder, SOFT_FILE_GPU_0);
	if (program->gpu < 0)
		return program->gpu;
	rc = call(program, RM_ESC_ALLOC, &root, sizeof(root));
	program->client = root.object;
	return rc ? rc : (int)root.status;
}

int program_begin(struct soft_program *program)
{
	uint32_t device[14] = { 0 }, subdevice = 0;
	int rc = program_open(program);

	if (!rc)
		rc = program_alloc(program, program->client, HANDLE_DEVICE, 0x80, device, sizeof(device));
	if (!rc)
		rc = program_alloc(program, HANDLE_DEVICE, HANDLE_SUBDEVICE, 0x2080, &subdevice,
				   sizeof(subdevice));
	if (!rc)
		rc = program_alloc(program, HANDLE_DEVICE, HANDLE_SPACE, 0x90f1, NULL, 0);
	return rc;
}

void program_close(struct soft_program *program)
{
	if (program->control >= 0)
		close(program->control);
	if (program->gpu >= 0)
		close(program->gpu);
}

int program_alloc(const struct soft_program *program, uint32_t parent, uint32_t handle, uint32_t class_id,
		  void *params, uint32_t size)
{
	struct rm_arg_alloc arg = { .client = program->client,
				    .parent = parent,
				    .object = handle,
				    .class_id = class_id,
				    .params = (uintptr_t)params,
				    .size = size };
	int rc = call(program, RM_ESC_ALLOC, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int program_free(const struct soft_program *program, uint32_t handle)
{
	struct rm_arg_free arg = { .client = program->client, .parent = HANDLE_DEVICE, .object = handle };
	int rc = call(program, RM_ESC_FREE, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int program_control(const struct soft_program *program, uint32_t object, uint32_t cmd, void *params,
		    uint32_t size)
{
	struct rm_arg_control arg = { .client = program->client,
				      .object = object,
				      .cmd = cmd,
				      .params = (uintptr_t)params,
				      .size = size };
	int rc = call(program, RM_ESC_CONTROL, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int program_memory(const struct soft_program *program, uint32_t handle, bool is_vidmem, uint64_t *bytes)
{
	uint8_t params[128] = { 0 };
	uint32_t attr = is_vidmem ? 0 : 1u << 25;
	int rc;

	memcpy(params + 24, &attr, sizeof(attr));
	memcpy(params + 64, bytes, sizeof(*bytes));
	rc = program_alloc(program, HANDLE_DEVICE, handle, is_vidmem ? 0x40 : 0x3e, params, sizeof(params));
	memcpy(bytes, params + 64, sizeof(*bytes));
	return rc;
}

int program_dma(const struct soft_program *program, uint32_t memory, uint64_t bytes, uint64_t *address,
		bool is_fixed)
{
	struct {
		uint32_t client, device, space, memory;
		uint64_t offset, bytes;
		uint32_t flags, flags2, kind, pad;
		uint64_t address;
		uint32_t status, pad2;
	} arg = { .client = program->client,
		  .device = HANDLE_DEVICE,
		  .space = HANDLE_SPACE,
		  .memory = memory,
		  .bytes = bytes,
		  .flags = is_fixed ? 1u << 15 : 0,
		  .address = *address };
	int rc = call(program, RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg));

	*address = arg.address;
	return rc ? rc : (int)arg.status;
}

int program_undma(const struct soft_program *program, uint32_t memory, uint64_t address)
{
	struct {
		uint32_t client, device, space, memory, flags, pad;
		uint64_t address, size;
		uint32_t status, pad2;
	} arg = { .client = program->client,
		  .device = HANDLE_DEVICE,
		  .space = HANDLE_SPACE,
		  .memory = memory,
		  .address = address };
	int rc = call(program, RM_ESC_UNMAP_MEMORY_DMA, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

void *program_map(const struct soft_program *program, uint32_t memory, bool is_vidmem, uint64_t offset,
		  uint64_t bytes, int *status)
{
	int file = link_open(program->folder, is_vidmem ? SOFT_FILE_GPU_0 : SOFT_FILE_CONTROL);
	struct rm_arg_map arg = { .client = program->client,
				  .device = is_vidmem ? HANDLE_SUBDEVICE : HANDLE_DEVICE,
				  .memory = memory,
				  .offset = offset,
				  .length = bytes,
				  .fd = file };
	void *map = NULL;
	int rc;

	assert_true(file >= 0);
	rc = call(program, RM_ESC_MAP_MEMORY, &arg, sizeof(arg));
	*status = rc ? rc : (int)arg.status;
	if (!*status) {
		map = link_map(file, NULL, bytes, PROT_READ | PROT_WRITE, 0);
		if (map == MAP_FAILED) {
			*status = -errno;
			map = NULL;
		}
	}
	close(file);
	return map;
}

int program_channel(const struct soft_program *program, uint32_t parent, uint32_t userd, uint64_t ring,
		    uint32_t entries, uint32_t error)
{
	uint8_t params[368] = { 0 };
	uint32_t space = HANDLE_SPACE;

	memcpy(params + 0, &error, sizeof(error));
	memcpy(params + 8, &ring, sizeof(ring));
	memcpy(params + 16, &entries, sizeof(entries));
	memcpy(params + 28, &space, sizeof(space));
	memcpy(params + 32, &userd, sizeof(userd));
	return program_alloc(program, parent, HANDLE_CHANNEL, 0xc86f, params, sizeof(params));
}
