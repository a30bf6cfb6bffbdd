/* A software GPU for the hw tests, and programs on it: a group, an address space, a channel, commands. */
#ifndef BELFRY_TESTS_HW_RIG_H
#define BELFRY_TESTS_HW_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/hw/hw.h"

/* Sanitizers make the host many times slower: what is not about an amount is tried with so many times less. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GPU_RIG_LESS = 4 };
#else
enum { GPU_RIG_LESS = 1 };
#endif

struct gpu_rig {
	struct hw_cores *cores;
	struct hw_gpu *gpu;
	struct hw_options options;
};

/* 4 SMs at 500 million, 256 MiB, copies of 1 GB/s, 2 workers, paced; `change` overrides what is not 0. */
void gpu_open(struct gpu_rig *rig, const struct hw_options *change, bool is_paced);
void gpu_close(struct gpu_rig *rig);

enum { APP_RING = 256, APP_COMMAND_BYTES = 1 << 20, APP_CODE = 77 };
/* Where an app's own things lie; its data comes from app_alloc. */
#define APP_RING_AT 0x10000000ull
#define APP_COMMANDS_AT 0x20000000ull
#define APP_SEMAPHORES_AT 0x30000000ull
#define APP_DATA_AT 0x7f0000000000ull

struct app {
	struct hw_gpu *gpu;
	struct hw_space *space;
	struct hw_group *group;
	struct hw_channel *channel;
	struct hw_memory *ring, *commands, *semaphores, *userd, *notifier;
	struct hw_code *code;
	struct ptx_module *module;  /* a second copy, to find kernels in */
	uint32_t put, at, begin;    /* entries; bytes of commands: used, of the entry that is written */
	uint32_t fence;		    /* the last payload used by app_fence */
	uint64_t offset;	    /* of its ring and commands from the first channel's */
	struct hw_memory *data[64]; /* from app_alloc; the space keeps them */
	uint64_t data_at[64];
	uint32_t data_count;
};

/* Scheduled and ready. `text`: PTX or NULL; a name without a newline is a file of tests/data/ptx. */
void app_open(struct app *app, struct hw_gpu *gpu, const char *text);
/* Another channel in the same group and space as `other`. */
void app_join(struct app *app, struct app *other);
void app_close(struct app *app);
uint64_t app_alloc(struct app *app, size_t bytes, const void *data);
void *app_host(struct app *app, uint64_t address);

/* Commands: pushed, then submitted as one entry. */
void app_push(struct app *app, uint32_t word);
void app_method(struct app *app, uint32_t subchannel, uint32_t method, uint32_t value);
void app_submit(struct app *app);
void app_entry(struct app *app, uint64_t entry); /* as it is */

void app_release(struct app *app, uint32_t slot, uint64_t payload, uint32_t flags);
void app_acquire(struct app *app, uint32_t slot, uint64_t payload, uint32_t operation);
uint64_t app_slot(struct app *app, uint32_t slot);	/* its payload */
uint64_t app_slot_time(struct app *app, uint32_t slot); /* its timestamp */
void app_set_slot(struct app *app, uint32_t slot, uint64_t payload);
/* Until the slot has this payload; fails the test after 20 s, or when the channel has an error. */
void app_wait(struct app *app, uint32_t slot, uint64_t payload);
bool app_wait_ms(struct app *app, uint32_t slot, uint64_t payload, uint32_t ms);
/* Until the channel has an error, which it must. */
const struct soft_notifier *app_wait_error(struct app *app);
/* Submit what was pushed and wait until it is done. */
void app_fence(struct app *app);

struct app_shape {
	uint32_t grid[3], threads[3], dynamic_bytes;
	uint32_t flags;
	uint64_t workspace;
};
void app_launch(struct app *app, const char *kernel, struct app_shape shape, const void *params,
		size_t bytes);
void app_copy(struct app *app, uint64_t to, uint64_t from, uint32_t bytes);

/* PTX of a kernel `work(.u64 out, .u32 rounds)`: every thread runs a loop of rounds, then adds to out[thread]; about
 * 3 instructions a round and thread. */
extern const char *const app_work_text;
struct app_work_params {
	uint64_t out;
	uint32_t rounds, reserved;
};
/* Its thread-instructions for so many threads (of whole warps). */
uint64_t app_work_cost(uint32_t rounds, uint64_t threads);
/* What out[thread] becomes after `launches` launches of it. */
uint32_t app_work_result(uint32_t rounds, uint32_t launches);
/* Launch `blocks` of 32 threads that together with others take this much model time on one SM each; between
 * timestamps in slots 0 and 1. */
void app_time_work(struct app *app, uint64_t out, uint32_t blocks, uint32_t rounds);

/* A new app that does this work; out is its first data. */
enum { APP_FOREVER = 500000000 };
void app_start_work(struct app *app, struct hw_gpu *gpu, uint32_t blocks, uint32_t rounds);
/* Waits for the end of the work, and checks its results. */
void app_assert_result(struct app *app, uint32_t blocks, uint32_t rounds);
struct soft_time_params app_time(struct app *app);
void app_wait_running(struct app *app); /* until it has run some more */
void app_assert_stands_still(struct app *app);

void rig_nap(void);
void gpu_wait_ms(struct hw_gpu *gpu, uint64_t ms); /* by the GPU's clock */
/* Sanitizers slow the host down, which is then late at every look: four times as many percent are allowed. */
void rig_assert_near(uint64_t got, uint64_t want, unsigned percent);

#endif
