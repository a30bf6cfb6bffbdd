/* A program under the real filter, the real warden beside it, and a software GPU behind that. The program is a
 * function in a forked process; it and the test take turns by saying single letters to each other. */
#ifndef BELFRY_TESTS_STAGE_H
#define BELFRY_TESTS_STAGE_H

#include <stdlib.h>

#include "card.h"
#include "check.h"
#include "soft/abi.h"
#include "warden/warden.h"

enum { STAGE_RUN = 1, STAGE_SECOND_RUN = 2 };

#define STAGE_DEVICE 0x5c000002u
#define STAGE_SUBDEVICE 0x5c000003u
#define STAGE_SPACE 0x5c000004u
#define STAGE_BELL 0x5c000005u
#define STAGE_GROUP 0x5c000010u
#define STAGE_CHANNEL 0x5c000020u
#define STAGE_USERD 0x5c000030u
#define STAGE_MEMORY 0x5c001000u

/* What lies where in the memory STAGE_USERD that a context has, for each of its channels. */
enum {
	STAGE_CHANNELS = 8,
	STAGE_BLOCK_BYTES = 2 << 20,
	STAGE_RING_ENTRIES = 512,
};
#define STAGE_USERD_AT(channel) (0x2000u + (channel)*0x200u)
#define STAGE_RING_AT(channel) (0x10000u + (channel)*0x1000u)
#define STAGE_COMMANDS_AT(channel) (0x40000u + (channel)*0x8000u)
#define STAGE_DONE_AT(channel) (0x80000u + (channel)*64u) /* the GPU writes here what was released */
#define STAGE_WAIT_AT(channel) (0x81000u + (channel)*64u) /* and waits for what is written here */

/* The program's side. */
struct actor {
	const char *folder; /* of the software GPU */
	int say, hear;
	long arg;
	int control, gpu;
	uint32_t client;
	/* Once it has a context: */
	volatile uint32_t *bell;
	uint8_t *block;		/* STAGE_USERD, mapped, */
	uint64_t block_address; /* and for the GPU */
	uint32_t tokens[STAGE_CHANNELS], puts[STAGE_CHANNELS], last_rung;
	uint32_t rings; /* by actor_ring */
};
typedef void (*stage_program)(struct actor *actor);

/* The test's side. A second program, if there is one, is a run of its own, and may have a warden of its own too, which
 * is served by a thread of its own. */
struct stage_second {
	pid_t pid;	       /* 0: there is none */
	struct warden *warden; /* NULL: it shares the first one's */
	pthread_t thread;
	int pidfd, say, hear;
	bool has_ended;
	int status;
};
struct stage {
	struct card card;
	struct gate *gate;
	struct warden *warden;
	pid_t pid;
	int pidfd, say, hear;
	bool has_ended, is_over;
	int status;
	struct stage_second second;
	uint64_t most_bytes; /* of device memory that was ever in use after a step */
	unsigned descriptors_before;
};

/* What else a test may want: a device in which one thing is not as it is (`change` puts its own operations in place), a
 * way to reach the programs, a second program. */
struct stage_setup {
	struct warden_options options;
	void (*change)(struct card *card);
	const struct warden_reach *reach;
	stage_program second;
	long second_arg;
	bool has_two_wardens;
};
/* Two runs on one warden with this limit; `second` is the program of the second run. */
struct stage_setup stage_two(uint64_t mem_bytes, stage_program second, long arg);
void stage_start_as(struct stage *stage, const struct stage_setup *setup, stage_program program, long arg);
void stage_start(struct stage *stage, uint64_t mem_bytes, stage_program program, long arg);
void stage_start_with(struct stage *stage, const struct warden_options *options, stage_program program,
		      long arg);
void stage_start_changed(struct stage *stage, const struct warden_options *options,
			 void (*change)(struct card *card), stage_program program, long arg);
/* Serve the program until it says `letter`. */
void stage_until(struct stage *stage, char letter);
/* Serve it for a while, whatever it does. */
void stage_serve(struct stage *stage, unsigned ms);
/* Serve it until the GPU has done what actor_release(channel, value) asked for; what it has done so far. */
void stage_until_done(struct stage *stage, unsigned channel, uint32_t value);
uint32_t stage_done(const struct stage *stage, unsigned channel);
/* Serve it until the GPU is told of this GP_PUT. */
void stage_until_put(struct stage *stage, uint32_t channel, uint32_t value);
void stage_go_on(struct stage *stage);
/* How many driver calls the warden has seen. */
uint64_t stage_calls(struct stage *stage);
/* Of the second one. */
void stage_until_second(struct stage *stage, char letter);
void stage_second_goes_on(struct stage *stage);
/* Serve the program and all it started to their end; then nothing of them may be left. Returns its status. */
int stage_end(struct stage *stage);
/* The same, and it must have ended well. */
void stage_end_well(struct stage *stage);

/* Runs one test, after its name is printed. main returns check_status(). */
void stage_test(const char *name, void (*test)(void));
#define STAGE_TEST(test) stage_test(#test, test)

/* What a program does. Calls return the driver's status, or -errno. */
void actor_say(struct actor *actor, char letter);  /* and wait for stage_go_on */
void actor_tell(struct actor *actor, char letter); /* and do not */
int actor_call(int fd, uint32_t nr, void *arg, uint32_t size);
int actor_open(const struct actor *actor, uint32_t file); /* SOFT_FILE_* */
void actor_new_client(struct actor *actor);
void actor_use_client(struct actor *actor); /* a device and a subdevice */
void actor_new_device(struct actor *actor); /* both */
int actor_alloc(struct actor *actor, uint32_t parent, uint32_t handle, uint32_t class_id, void *params,
		uint32_t size);
int actor_memory(struct actor *actor, uint32_t parent, uint32_t handle, uint64_t bytes);
int actor_free(struct actor *actor, uint32_t parent, uint32_t handle);
int actor_control(struct actor *actor, uint32_t object, uint32_t cmd, void *params, uint32_t size);
int actor_dup(struct actor *actor, uint32_t handle, uint32_t source_client, uint32_t source);
int actor_channel(struct actor *actor, uint32_t group, uint32_t handle, uint32_t memory, uint64_t offset);
/* What a channel's allocation takes: 368 bytes. */
void actor_channel_params(const struct actor *actor, uint32_t handle, uint32_t memory, uint64_t offset,
			  uint8_t *params);
void *actor_map_doorbell(struct actor *actor, uint32_t handle, int gpu);
/* Memory of the program's, mapped through a file of its own which is closed again. */
void *actor_map_memory(struct actor *actor, uint32_t handle, uint64_t bytes);
/* What libcuda does for a context: client, device, doorbell, an address space, device memory with USERD and rings, a
 * group and a channel. */
void actor_context(struct actor *actor);
void actor_use_device(struct actor *actor); /* the same, of the device that it has */
/* One more channel of it, at STAGE_CHANNEL + channel. */
void actor_add_channel(struct actor *actor, unsigned channel);
/* Submit: write a value where stage_done sees it; wait until the program has written one to STAGE_WAIT_AT. */
void actor_release(struct actor *actor, unsigned channel, uint32_t value);
void actor_acquire(struct actor *actor, unsigned channel, uint32_t value);
/* Release 1, 2, 3... on channel 0. */
void actor_ring(struct actor *actor);

#endif
