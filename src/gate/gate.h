/* gate: the doorbells of all programs on one GPU. It copies GP_PUT and doorbell rings from the pages that
 * programs write to those that the GPU reads. It decides nothing: its caller says which vGPUs are open. Its
 * poller is the only hot loop: it never allocates, locks or logs, and sleeps only when no doorbell rings.
 *
 * The poller serves the vGPUs in turn. In each pass it does a bounded amount of work for a vGPU: it takes at
 * most one of its rings. A ring without new work is charged to its vGPU, which has GATE_EMPTY_BURST of them,
 * and one more every GATE_EMPTY_NS. When they are used up, the poller looks at its bells once in
 * GATE_EMPTY_NS, and its rings no longer keep the poller awake.
 *
 * Any thread may call any function here at any time, except those that must be called before anything is
 * added. No thread may use an object that another thread removes. */
#ifndef BELFRY_GATE_H
#define BELFRY_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Words in the pages, counted in 32-bit words (clc661.h, clc86f.h; measured, see docs/driver.md). */
enum {
	GATE_BELL_WORD = 0x90 / 4,   /* in a doorbell page: a program stores a token here to ring */
	GATE_GP_GET_WORD = 0x88 / 4, /* in USERD: how far the GPU has read the GPFIFO */
	GATE_GP_PUT_WORD = 0x8c / 4, /* in USERD: how far the program has filled the GPFIFO */
};

/* No channel has this token. It marks a bell that was not rung since the poller last looked. */
#define GATE_NO_TOKEN 0xffffffffu

enum { GATE_EMPTY_BURST = 64, GATE_EMPTY_NS = 50000 };

struct gate;
struct gate_vgpu;
struct gate_program;
struct gate_bell;
struct gate_channel;

/* How the poller sleeps. It spins for spin_us after the last ring. In each stage after that it looks every look_us, until
 * until_us after the last ring; the stage with until_us 0 is the last. Without bells to watch it is parked and uses no CPU
 * time. If every bell has traps (gate_bell_set_traps), it has them armed trap_us after the last ring and then looks every
 * net_us; trap_us 0: never. */
enum { GATE_STAGES = 4 };
struct gate_rest {
	uint64_t spin_us;
	struct {
		uint64_t look_us, until_us;
	} stages[GATE_STAGES];
	uint64_t trap_us, net_us;
};
extern const struct gate_rest gate_rest_default;

/* bell: the real doorbell page of the GPU, or memory in its place. It outlives the gate. */
struct gate *gate_new(volatile uint32_t *bell, const struct gate_rest *rest, struct bf_error *err);
/* For a doorbell page without hardware: `rang` is called after every ring, by the poller and by gate_ring_again, possibly at
 * the same time. Call this before anything is added. */
void gate_set_rang(struct gate *gate, void (*rang)(volatile uint32_t *bell));
/* The poller calls `call` when a vGPU starts to wait behind its closed gate, and when something is passed on
 * for a quiet vGPU. `call` must be quick and must not wait. Call this before anything is added. */
void gate_set_call(struct gate *gate, void (*call)(void *context), void *context);
/* Everything that was added must have been removed. */
void gate_free(struct gate *gate);

/* The unit that is opened and closed. A new vGPU is open. NULL: out of memory, here and below. */
struct gate_vgpu *gate_vgpu_add(struct gate *gate);
void gate_vgpu_remove(struct gate_vgpu *vgpu);

/* The bells of a program ring only its own channels, whatever tokens it writes. */
struct gate_program *gate_program_add(struct gate_vgpu *vgpu);
void gate_program_remove(struct gate_program *program); /* with its bells and channels */

/* page: the program's doorbell page, in shared memory. It is not accessed after the removal. NULL also if the
 * vGPU has GATE_BELLS_MAX bells already. */
enum { GATE_BELLS_MAX = 1024 };
struct gate_bell *gate_bell_add(struct gate_program *program, volatile uint32_t *page);
void gate_bell_remove(struct gate_bell *bell);
/* Hardware breakpoints that wake the poller when the program writes to the doorbell: disabled descriptors of
 * perf_event_open with `inherit`, one for each thread of the program, on the word GATE_BELL_WORD. The gate takes them over,
 * also on failure. A ring that triggers none is found net_us later at most. -errno: the doorbell has no
 * traps, and the poller goes on looking. */
int gate_bell_set_traps(struct gate_bell *bell, const int *events, size_t count);
/* Whether traps are armed at all; they are from the start. */
void gate_allow_traps(struct gate *gate, bool are_allowed);
bool gate_takes_traps(const struct gate *gate); /* they are allowed, and gate_rest::trap_us is not 0 */

/* program_userd: the program writes GP_PUT here; gpu_userd: the GPU reads it here. The token may be set
 * later. */
struct gate_channel *gate_channel_add(struct gate_program *program, volatile uint32_t *program_userd,
				      volatile uint32_t *gpu_userd);
void gate_channel_set_token(struct gate_channel *channel, uint32_t token);
void gate_channel_remove(struct gate_channel *channel);
/* Whether anything was ever passed on for the channel. Exact while the gate is not open. */
bool gate_channel_was_used(const struct gate_channel *channel);
/* How many submissions were passed on for the channel. Unlike GP_PUT it never repeats. */
uint64_t gate_channel_forwards(const struct gate_channel *channel);
/* The GP_PUT that was last passed on for the channel. Exact while the gate is not open. */
uint32_t gate_channel_sent(const struct gate_channel *channel);

/* A gate is open, closed or stopped. This is the only record of its state. A gate that is not open passes
 * nothing on: when gate_close or gate_stop returns, nothing submitted from then on reaches the GPU. Work that
 * was passed on before continues. While the gate is stopped, gate_open and gate_close have no visible effect:
 * gate_resume leaves the gate as the last of them set it. When gate_open or gate_resume has opened the gate,
 * everything submitted before has been passed on. All are idempotent, and take as long as a pass of the
 * poller, microseconds; gate_open and gate_resume take several passes if there are many channels. */
enum gate_state { GATE_OPEN, GATE_CLOSED, GATE_STOPPED };
void gate_open(struct gate_vgpu *vgpu);
void gate_close(struct gate_vgpu *vgpu);
void gate_stop(struct gate_vgpu *vgpu);
void gate_resume(struct gate_vgpu *vgpu);
enum gate_state gate_state(const struct gate_vgpu *vgpu);
bool gate_is_open(const struct gate_vgpu *vgpu);
bool gate_is_stopped(const struct gate_vgpu *vgpu);
/* Ring again for every channel: a channel that was disabled forgets that it has work. */
void gate_ring_again(struct gate_vgpu *vgpu);
/* Mark the vGPU as quiet, so that the next submission sets woke_ns below. A new vGPU is quiet. A submission
 * that is passed on during this call may count as before or after it: check last_forward_ns afterwards. */
void gate_vgpu_quiet(struct gate_vgpu *vgpu);

/* Counters of the poller. */
struct gate_counts {
	uint64_t rings;	       /* with a token of the program */
	uint64_t forwards;     /* submissions passed on to the GPU */
	uint64_t strange;      /* rings with a token that is not one of the program */
	uint64_t found_unrung; /* submissions found without a ring: two threads rang at the same time */
	uint64_t trapped;      /* times a trap woke the poller */
	bool is_armed;	       /* the traps are armed, and the poller looks every net_us */
	uint64_t empty;	       /* rings charged to their vGPU: strange, or for a channel without new work */
};
struct gate_counts gate_counts(const struct gate *gate);
/* Something that was passed on. Its bell was found rung at found_ns, at the closed gate if it waited there. It rang between
 * that look and the one before; without other knowledge, likely_ns is halfway between the two. struct gate_rest has the
 * interval between looks; it is longer if the poller does not get a processor. */
struct gate_came {
	uint64_t found_ns;  /* 0: nothing */
	uint64_t likely_ns; /* not later */
};
/* Of one vGPU. Times are CLOCK_MONOTONIC, as the poller last read it: some microseconds off. */
struct gate_vgpu_counts {
	uint64_t rings, forwards;
	uint64_t waiting_since_ns; /* when a bell first rang at its closed gate; 0: no such ring is known */
	uint64_t last_forward_ns;  /* 0: nothing was ever passed on */
	uint64_t woke_ns; /* when the first submission since gate_vgpu_quiet was passed on; 0: still quiet */
	struct gate_came woke; /* and when that submission came */
};
struct gate_vgpu_counts gate_vgpu_counts(const struct gate_vgpu *vgpu);
/* The first submission that was found after `after_ns`. None: none was found, or at least GATE_FORWARDS_KEPT were, so that the
 * time is no longer known. */
enum { GATE_FORWARDS_KEPT = 256 };
struct gate_came gate_vgpu_came_after(const struct gate_vgpu *vgpu, uint64_t after_ns);
/* CPU time the poller has used, in ns. */
uint64_t gate_cpu_ns(const struct gate *gate);

#endif
