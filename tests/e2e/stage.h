/* A program under the real filter, the real warden beside it, and a fake device behind that. The program is a
 * function in a forked process; it and the test take turns by saying single letters to each other. */
#ifndef BELFRY_TESTS_STAGE_H
#define BELFRY_TESTS_STAGE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake_device.h"
#include "warden/warden.h"

/* In the test and in the program alike: say what was expected where, and end. */
#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			_exit(1); \
		} \
	} while (0)
#define CHECK_EQUAL(a, b) \
	do { \
		unsigned long long check_a = (unsigned long long)(a), check_b = (unsigned long long)(b); \
\
		if (check_a != check_b) { \
			fprintf(stderr, "%s:%d: %s is 0x%llx, %s is 0x%llx\n", __FILE__, __LINE__, #a, \
				check_a, #b, check_b); \
			_exit(1); \
		} \
	} while (0)

#define STAGE_DEVICE 0x5c000002u
#define STAGE_SUBDEVICE 0x5c000003u
#define STAGE_BELL 0x5c000005u
#define STAGE_GROUP 0x5c000010u
#define STAGE_CHANNEL 0x5c000020u
#define STAGE_USERD 0x5c000030u
#define STAGE_MEMORY 0x5c001000u

/* The program's side. */
struct actor {
	struct fake *fake; /* as it was when the program was started: only its folder and memory are of use */
	int say, hear;
	long arg;
	int control, gpu;
	uint32_t client;
	volatile uint32_t *bell, *userd; /* what it has mapped, once it has a context */
	uint32_t token, put;
};
typedef void (*stage_program)(struct actor *actor);

/* The test's side. */
struct stage {
	struct fake *fake;
	struct gate *gate;
	struct warden *warden;
	pid_t pid;
	int pidfd, say, hear;
	bool has_ended, is_over;
	int status;
	unsigned descriptors_before;
};

void stage_start(struct stage *stage, uint64_t mem_bytes, stage_program program, long arg);
void stage_start_with(struct stage *stage, const struct warden_options *options, stage_program program,
		      long arg);
/* Serve the program until it says `letter`. */
void stage_until(struct stage *stage, char letter);
/* Serve it for a while, whatever it does. */
void stage_serve(struct stage *stage, unsigned ms);
/* Serve it until a word has this value. */
void stage_until_word(struct stage *stage, const _Atomic uint32_t *word, uint32_t value);
void stage_go_on(struct stage *stage);
/* Serve the program and all it started to their end; then nothing of them may be left. Returns its status. */
int stage_end(struct stage *stage);
/* The same, and it must have ended well. */
void stage_end_well(struct stage *stage);

/* Run one test; says its name. */
void stage_test(const char *name, void (*test)(void));
#define STAGE_TEST(test) stage_test(#test, test)

/* What a program does. Calls return the driver's status, or -errno. */
void actor_say(struct actor *actor, char letter);  /* and wait for stage_go_on */
void actor_tell(struct actor *actor, char letter); /* and do not */
int actor_call(int fd, uint32_t nr, void *arg, uint32_t size);
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
void *actor_map_doorbell(struct actor *actor, uint32_t handle, int gpu);
/* What libcuda does for a context: client, device, doorbell, USERD in device memory, a group and a channel. */
void actor_context(struct actor *actor);
void actor_ring(struct actor *actor);

#endif
