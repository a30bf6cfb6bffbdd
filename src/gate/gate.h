/* gate: the doorbells of every program on one GPU. Decides nothing: it is told which vGPUs are open, and
 * carries GP_PUT and doorbell rings from the pages programs write to the ones the GPU reads.
 * Its poller is the only hot loop: it never allocates, locks or logs, and sleeps only when nobody rings.
 *
 * The poller goes over the vGPUs in turn. In each pass a vGPU gets a bounded amount of work: at most one of its rings is
 * taken. A ring without new work is charged to the vGPU that rang: it has GATE_EMPTY_BURST of them, and one more every
 * GATE_EMPTY_NS; when they are used up, its bells are looked at once in GATE_EMPTY_NS, and its rings keep the poller awake
 * no longer.
 *
 * Any thread may call anything here at any time, but for what is said of setting up, and as long as nobody uses what
 * another removes. */
#ifndef BELFRY_GATE_H
#define BELFRY_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Words in the pages, counted in 32-bit words (clc661.h, clc86f.h; measured, see docs/driver.md). */
enum {
	GATE_BELL_WORD = 0x90 / 4,   /* in a doorbell page: store a token to ring */
	GATE_GP_GET_WORD = 0x88 / 4, /* in USERD: how far the GPU has read its ring */
	GATE_GP_PUT_WORD = 0x8c / 4, /* in USERD: how far the program has filled it */
};

/* No channel has this token: the mark of a bell that nobody has rung since we looked. */
#define GATE_NO_TOKEN 0xffffffffu

enum { GATE_EMPTY_BURST = 64, GATE_EMPTY_NS = 50000 };

struct gate;
struct gate_vgpu;
struct gate_program;
struct gate_bell;
struct gate_channel;

/* How the poller rests. It spins for spin_us after the last ring, then looks every doze_us until awake_us
 * after the last ring, then every sleep_us until tired_us, then every deep_us; tired_us 0: it does not tire. With no
 * bell to watch it is parked and costs nothing.
 * If every doorbell has traps (gate_bell_set_traps), the poller has them armed trap_us after the last ring, and then looks
 * every net_us; trap_us 0: never. */
struct gate_rest {
	uint64_t spin_us, doze_us, awake_us, sleep_us, tired_us, deep_us, trap_us, net_us;
};
extern const struct gate_rest gate_rest_default;

/* bell: the real doorbell page of the GPU (or memory that stands for it). It outlives the gate. */
struct gate *gate_new(volatile uint32_t *bell, const struct gate_rest *rest, struct bf_error *err);
/* A bell that no hardware hears: call this after every ring. Before anything is added. */
void gate_set_rang(struct gate *gate, void (*rang)(volatile uint32_t *bell));
/* Called by the poller, so it must be quick and wait for nobody: when a vGPU starts to wait behind its closed gate, and
 * when something is passed on for a quiet one. Before anything is added. */
void gate_set_call(struct gate *gate, void (*call)(void *context), void *context);
/* Everything added must have been removed. */
void gate_free(struct gate *gate);

/* What is opened and closed together. A new vGPU is open. NULL: out of memory, here and below. */
struct gate_vgpu *gate_vgpu_add(struct gate *gate);
void gate_vgpu_remove(struct gate_vgpu *vgpu);

/* One program's bells ring only its own channels, whatever tokens it writes. */
struct gate_program *gate_program_add(struct gate_vgpu *vgpu);
void gate_program_remove(struct gate_program *program); /* with its bells and channels */

/* page: the program's doorbell page, shared memory. After removal nothing touches it. NULL also if the vGPU has
 * GATE_BELLS_MAX already. */
enum { GATE_BELLS_MAX = 1024 };
struct gate_bell *gate_bell_add(struct gate_program *program, volatile uint32_t *page);
void gate_bell_remove(struct gate_bell *bell);
/* Hardware breakpoints that wake the poller when the program writes to the doorbell: disabled descriptors of
 * perf_event_open with `inherit`, one for each thread of the program, on the word GATE_BELL_WORD. The gate takes them over,
 * also on failure. A program that rings without springing one is found net_us later at most. -errno: the doorbell has no
 * traps, and the poller goes on looking. */
int gate_bell_set_traps(struct gate_bell *bell, const int *events, size_t count);
bool gate_takes_traps(const struct gate *gate); /* gate_rest::trap_us is not 0 */

/* program_userd: where the program writes GP_PUT; gpu_userd: what the GPU reads. The token may come later. */
struct gate_channel *gate_channel_add(struct gate_program *program, volatile uint32_t *program_userd,
				      volatile uint32_t *gpu_userd);
void gate_channel_set_token(struct gate_channel *channel, uint32_t token);
void gate_channel_remove(struct gate_channel *channel);
/* Whether anything was ever passed on for it. Exact while the gate is not open. */
bool gate_channel_was_used(const struct gate_channel *channel);
/* How often. Unlike GP_PUT it never comes around to a value it had before. */
uint64_t gate_channel_forwards(const struct gate_channel *channel);
/* The GP_PUT that was last passed on for it. Exact while the gate is not open. */
uint32_t gate_channel_sent(const struct gate_channel *channel);

/* A gate is open, closed or stopped. This is the only record of it. A gate that is not open passes nothing on: when
 * gate_close or gate_stop returns, nothing submitted from then on reaches the GPU. What was passed on before runs on.
 * gate_open and gate_close change nothing visible while the gate is stopped: gate_resume leaves it as the last of the two
 * said. When gate_open or gate_resume has opened the gate, everything submitted before has been passed on. All are
 * idempotent, and take as long as the poller takes to go around: microseconds. */
enum gate_state { GATE_OPEN, GATE_CLOSED, GATE_STOPPED };
void gate_open(struct gate_vgpu *vgpu);
void gate_close(struct gate_vgpu *vgpu);
void gate_stop(struct gate_vgpu *vgpu);
void gate_resume(struct gate_vgpu *vgpu);
enum gate_state gate_state(const struct gate_vgpu *vgpu);
bool gate_is_open(const struct gate_vgpu *vgpu);
bool gate_is_stopped(const struct gate_vgpu *vgpu);
/* Ring for every channel again: a channel that was disabled forgets that it has work. */
void gate_ring_again(struct gate_vgpu *vgpu);
/* Tell when something is next passed on for it: woke_ns below. A new vGPU is quiet. What was passed on while this
 * was called may have been before or after: look at last_forward_ns afterwards. */
void gate_vgpu_quiet(struct gate_vgpu *vgpu);

/* What the poller counted. */
struct gate_counts {
	uint64_t rings;	   /* bells found rung, with a token of the program's */
	uint64_t forwards; /* submissions carried to the GPU */
	uint64_t strange;  /* rings with a token that is not the program's */
	uint64_t swept;	   /* submissions found without their ring: two threads rang at once */
	uint64_t trapped;  /* times a trap woke the poller */
	bool is_armed;	   /* the traps are armed, and the poller looks every net_us */
	uint64_t empty;	   /* rings charged to their vGPU: strange, or for a channel with nothing new */
};
struct gate_counts gate_counts(const struct gate *gate);
/* Of one vGPU. Times are CLOCK_MONOTONIC, as the poller last looked at it: microseconds late or early. */
struct gate_vgpu_counts {
	uint64_t rings, forwards;
	uint64_t waiting_since_ns; /* when a bell first rang behind its closed gate; 0: none that is known */
	uint64_t last_forward_ns;  /* 0: nothing was ever passed on */
	uint64_t woke_ns;	   /* the first passed on since it was quiet; 0: still quiet */
};
struct gate_vgpu_counts gate_vgpu_counts(const struct gate_vgpu *vgpu);
/* When something was first passed on for it after this; 0: nothing was, or so much that it is not known any more. */
enum { GATE_FORWARDS_KEPT = 64 };
uint64_t gate_vgpu_forward_after(const struct gate_vgpu *vgpu, uint64_t after_ns);
/* CPU time the poller has used, in ns. */
uint64_t gate_cpu_ns(const struct gate *gate);

#endif
