/* hw: the hardware of the software GPU: memory, address spaces, channel groups, a front end that reads rings,
 * SMs that run blocks, copy engines, one clock. It does not know handles, clients and files: soft/driver
 * does, and calls this module. Whatever a program writes to its memory (rings, commands, launch descriptors,
 * code), at worst its own channel group is ended.
 *
 * All functions may be called from any thread. Objects are reference-counted: _new returns one reference,
 * _put drops one. */
#ifndef BELFRY_SOFT_HW_H
#define BELFRY_SOFT_HW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "soft/abi.h"
#include "soft/ptx/ptx.h"

struct hw_gpu;
struct hw_memory;
struct hw_space;
struct hw_code;
struct hw_group;
struct hw_channel;

/* docs/software-gpu.md describes these options. */
struct hw_options {
	uint32_t sms;
	uint64_t mem_bytes;
	uint64_t rate;	     /* thread-instructions per second and SM */
	uint64_t copy_bytes; /* per second, for all copies together */
	uint32_t cores;	     /* worker threads, shared by all GPUs of one hw_cores */
	bool is_paced;	     /* false: as fast as the host can; the GPU's clock runs ahead */
};

/* The worker threads shared by all GPUs. */
struct hw_cores;
struct hw_cores *hw_cores_new(uint32_t cores, struct bf_error *err);
void hw_cores_free(struct hw_cores *cores); /* after its GPUs */

struct hw_gpu *hw_gpu_new(struct hw_cores *cores, const struct hw_options *options, struct bf_error *err);
void hw_gpu_free(struct hw_gpu *gpu);	    /* after everything on it is put */
uint64_t hw_gpu_now_ns(struct hw_gpu *gpu); /* the GPU's clock; never goes back */
uint64_t hw_gpu_busy_ns(struct hw_gpu *gpu);
void hw_gpu_get_counters(struct hw_gpu *gpu, struct soft_counters_params *counters);
uint64_t hw_gpu_used_bytes(struct hw_gpu *gpu); /* allocated device memory */
/* The doorbell page: SOFT_BELL_BYTES of a memfd that the GPU owns. */
int hw_gpu_bell_file(struct hw_gpu *gpu);
void hw_gpu_rang(struct hw_gpu *gpu); /* rings without a page, for the driver's own use */

/* Memory: a sealed, zeroed memfd, mapped in this process. Device memory counts against the GPU's size, and is
 * refused (-ENOMEM) if it does not fit. Host memory does not count (gpu may be NULL then). */
int hw_memory_new(struct hw_gpu *gpu, uint64_t bytes, bool is_vidmem, struct hw_memory **memory,
		  struct bf_error *err);
struct hw_memory *hw_memory_get(struct hw_memory *memory);
void hw_memory_put(struct hw_memory *memory);
int hw_memory_file(const struct hw_memory *memory);
uint8_t *hw_memory_at(const struct hw_memory *memory);
uint64_t hw_memory_bytes(const struct hw_memory *memory);

/* Address spaces. Maps consist of whole pages, hold a reference to their memory, and may not overlap
 * (-EEXIST). When unmap returns, nothing that runs uses the old translation. */
int hw_space_new(struct hw_gpu *gpu, struct hw_space **space);
struct hw_space *hw_space_get(struct hw_space *space);
void hw_space_put(struct hw_space *space);
int hw_space_map(struct hw_space *space, uint64_t address, struct hw_memory *memory, uint64_t offset,
		 uint64_t bytes, bool is_writable);
int hw_space_unmap(struct hw_space *space, uint64_t address, uint64_t bytes); /* whole maps only */
/* The lowest free aligned address for this many bytes at or above `from`; 0 if there is none. */
uint64_t hw_space_find(struct hw_space *space, uint64_t from, uint64_t bytes, uint64_t align);
int hw_space_set_print(struct hw_space *space, struct hw_memory *memory, uint64_t offset, uint64_t bytes);

/* Code, identified by a number in a space. `addresses`: of its variables, ptx_variable_count of them. */
int hw_code_new(const char *text, size_t length, const uint64_t *addresses, uint32_t count,
		struct hw_code **code, struct bf_error *err);
void hw_code_put(struct hw_code *code);
int hw_space_add_code(struct hw_space *space, uint32_t number, struct hw_code *code); /* takes a reference */
void hw_space_remove_code(struct hw_space *space, uint32_t number);

/* Groups take turns: one group, or all groups of one domain, has the GPU for its timeslice, or until it has
 * no work. A group with an error gets no more turns. */
int hw_group_new(struct hw_gpu *gpu, struct hw_group **group);
void hw_group_put(struct hw_group *group);
void hw_group_set_scheduled(struct hw_group *group, bool is_scheduled);
void hw_group_set_timeslice(struct hw_group *group, uint64_t us); /* 0: the default, 2000 */
/* 0, 1, 2: one, two or four turns a round beside other groups with work. */
int hw_group_set_interleave(struct hw_group *group, uint32_t level);
int hw_group_set_domain(struct hw_group *group, uint32_t domain); /* 0: its own */
/* Ends the group's turn and moves it to the end of the queue. If it is in a domain with other groups, these keep
 * the turn and only the group is interrupted. When it returns, nothing of the group runs. */
void hw_group_preempt(struct hw_group *group);
bool hw_group_has_turn(struct hw_group *group); /* the group, or its domain, has the turn now */
/* When the group last had completed all its work. */
void hw_group_get_done(struct hw_group *group, struct soft_done_params *done);
void hw_group_get_time(struct hw_group *group, struct soft_time_params *time);

struct hw_channel_options {
	struct hw_group *group;
	struct hw_space *space;
	uint64_t ring_address; /* GPU address */
	uint32_t ring_entries; /* a power of two, at most 1 << 20 */
	struct hw_memory *userd;
	uint64_t userd_offset;
	struct hw_memory *notifier; /* or NULL: errors are not reported */
};
/* The channel holds references to its parts. It runs while it and its group are scheduled and it is not
 * disabled. */
int hw_channel_new(const struct hw_channel_options *options, struct hw_channel **channel,
		   struct bf_error *err);
void hw_channel_put(struct hw_channel *channel); /* stops it; running work is dropped */
uint32_t hw_channel_token(const struct hw_channel *channel);
void hw_channel_set_scheduled(struct hw_channel *channel, bool is_scheduled);
/* Several at once, like the driver's DISABLE_CHANNELS. When it returns, nothing of them runs. Interrupted
 * work continues where it stopped when they are enabled again. */
void hw_channels_disable(struct hw_channel *const *channels, uint32_t count, bool is_disabled);
void hw_channel_set_sms(struct hw_channel *channel, const uint64_t mask[SOFT_SMS_MAX / 64]);
bool hw_channel_has_error(struct hw_channel *channel);
/* Whether all its work is done, or will never be because its group has an error. */
bool hw_channel_is_idle(struct hw_channel *channel);

#endif
