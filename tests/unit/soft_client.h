/* A program of the software GPU, as small as it can be: a client with a device, made through soft/link. */
#ifndef BELFRY_TEST_SOFT_CLIENT_H
#define BELFRY_TEST_SOFT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rm/rm.h"
#include "soft/link/link.h"

enum {
	HANDLE_DEVICE = 0x5c000001,
	HANDLE_SUBDEVICE,
	HANDLE_SPACE,
	HANDLE_BELL,
	HANDLE_GROUP,
	HANDLE_CHANNEL,
	HANDLE_FIRST_MEMORY = 0x5c000100,
};

struct soft_program {
	const char *folder;
	int control, gpu;
	uint32_t client;
	pid_t on_behalf; /* of whom the calls are made; 0: its own */
};

/* A folder of its own for each test, in BELFRY_SOFT_DIR, and removed again, with whoever serves it ended. */
extern char soft_folder[64];
int soft_folder_new(void **state);
int soft_folder_remove(void **state);
const char *soft_server_path(void);
/* Start it with this configuration; fails the test if that fails. */
void soft_start(const char *config);
struct soft_status soft_status(void);
/* Until there are so many files; fails the test after ten seconds. */
void soft_wait_files(uint32_t count);
/* Until nobody answers in the folder. */
void soft_wait_end(void);

/* Files and a client; then device, subdevice and address space. -errno or a status. */
int program_open(struct soft_program *program);
int program_begin(struct soft_program *program);
void program_close(struct soft_program *program);
int program_alloc(const struct soft_program *program, uint32_t parent, uint32_t handle, uint32_t class_id,
		  void *params, uint32_t size);
int program_free(const struct soft_program *program, uint32_t handle);
int program_control(const struct soft_program *program, uint32_t object, uint32_t cmd, void *params,
		    uint32_t size);
/* *bytes is rounded as the driver does. */
int program_memory(const struct soft_program *program, uint32_t handle, bool is_vidmem, uint64_t *bytes);
int program_dma(const struct soft_program *program, uint32_t memory, uint64_t bytes, uint64_t *address,
		bool is_fixed);
int program_undma(const struct soft_program *program, uint32_t memory, uint64_t address);
/* NULL and *status. */
void *program_map(const struct soft_program *program, uint32_t memory, bool is_vidmem, uint64_t offset,
		  uint64_t bytes, int *status);
int program_channel(const struct soft_program *program, uint32_t parent, uint32_t userd, uint64_t ring,
		    uint32_t entries, uint32_t error);

#endif
