/* A router whose GPU servers are threads of the test that speak as real ones do. */
#ifndef BELFRY_TESTS_ROUTER_STAGE_H
#define BELFRY_TESTS_ROUTER_STAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/talk.h"
#include "router/router.h"

enum { FAKES = 16, FAKE_VGPUS = 32, STAGE_LATE = 2 };
#define GIB (1ull << 30)

/* A GPU server of pretence. */
struct fake {
	struct stage *stage;
	pthread_t thread;
	int hall, listen_fd;
	bool was_refused; /* the request it is at */
	_Atomic bool is_over;
	_Atomic bool is_hung; /* it receives nothing */
	struct hall_gpu use;
	struct hall_message vgpus[FAKE_VGPUS];
	unsigned vgpu_count;
	struct settings settings;
	uint32_t start_flags; /* of HALL_START */
	char path[108];
};

struct stage {
	pthread_mutex_t lock; /* over everything here but the router */
	char folder[64], socket[108], config[128];
	struct talk_place place;
	struct router *router;
	pthread_t thread;
	bool is_private, is_everyone;
	size_t stack_bytes; /* of the router's thread; 0: the default */
	unsigned gpus;
	struct fake fakes[FAKES];
	_Atomic unsigned fake_count;
	/* What the next servers do. */
	_Atomic bool refuses_removal, refuses_set, does_fail, is_slow;
	_Atomic bool
		runs_are_over; /* vGPUs that go with their run do when it is noticed: when the name is asked for */
	/* Names are looked up by the test: those of the last lookup, how many lookups there were, and where to answer. */
	bool looks_up;
	char names[256];
	_Atomic int lookups, names_fd;
	_Atomic int requests[PROTOCOL_OPS];
	_Atomic int refused;
	char told[256];
	pid_t (*start_metrics)(void *context, const struct config *config, const char *sock,
			       struct bf_error *err);
	/* Called in the router's thread as it begins to end, and who connected there. */
	void (*at_end)(struct stage *stage);
	int late[STAGE_LATE];
};

/* cmocka's: a folder of its own, two GPUs, an empty configuration; nothing of it may be left afterwards. */
int stage_set_up(void **state);
int stage_tear_down(void **state);

struct router_options stage_options(struct stage *stage);
void stage_start(struct stage *stage);
void stage_stop(struct stage *stage);
void stage_join(struct stage *stage); /* one that ends by itself */
void stage_join_fakes(struct stage *stage);
void stage_kill_fake(struct stage *stage, unsigned i);
void stage_hang_fake(struct stage *stage, unsigned i, bool is_hung);
/* After this we see what the servers did before. */
void stage_look(struct stage *stage);
void stage_write(const char *path, const char *text);

/* On a connection of its own. The reply may be NULL. */
int stage_ask(struct stage *stage, const struct protocol_request *request, struct protocol_reply *reply,
	      struct bf_error *err);
int stage_ask_op(struct stage *stage, enum protocol_op op, const char *name, struct bf_error *err);
int stage_create(struct stage *stage, const char *name, uint64_t mem, uint32_t ppm,
		 struct protocol_reply *reply, struct bf_error *err);

/* Until it is so, or too long. */
#define WAIT_FOR(condition) \
	do { \
		uint64_t until_ns = bf_now_ns() + 5000000000ull; \
		while (!(condition)) { \
			assert_true(bf_now_ns() < until_ns); \
			usleep(1000); \
		} \
	} while (0)

#endif
