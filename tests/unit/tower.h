/* A gate on plain memory. Every page is mapped twice, once for the gate and once for the test, which plays the
 * program and the GPU: as with the real pages, each side has its own address for what the other one writes. */
#ifndef BELFRY_TESTS_TOWER_H
#define BELFRY_TESTS_TOWER_H

#include <stdatomic.h>

#include "gate/gate.h"

enum { CHANNELS = 8 };
#define TOKEN 0x00010000u
#define PATIENCE_NS 20000000000ull

struct page {
	volatile uint32_t *gate; /* as the gate sees it */
	_Atomic uint32_t *test;	 /* the same memory, as the test does */
};

struct tower {
	struct gate *gate;
	struct gate_vgpu *vgpu;
	struct gate_program *program;
	struct gate_bell *watched; /* the program's doorbell */
	struct gate_channel *channel[CHANNELS];
	struct page bell, doorbell, userd[CHANNELS], gpu[CHANNELS];
};

struct page page_new(void);
void page_free(struct page *page);

/* One vGPU with one program, its doorbell and channels with tokens from TOKEN on. */
struct tower *tower_new(const struct gate_rest *rest);
/* The same; `rang`: see gate_set_rang. */
struct tower *tower_new_rung(const struct gate_rest *rest, void (*rang)(volatile uint32_t *bell));
void tower_free(struct tower *t);
/* As a program does it: GP_PUT, then the bell. */
void ring(struct tower *t, uint32_t channel, uint32_t put);
uint32_t gpu_put(struct tower *t, uint32_t channel);
/* Wait for the word to have this value. */
void wait_word(_Atomic uint32_t *word, uint32_t value);
/* Wait until the poller has gone around at least once more: a new token for a channel is known to it on return. */
void poller_goes_around(struct tower *t);

#endif
