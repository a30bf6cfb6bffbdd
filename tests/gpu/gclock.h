/* SPDX-License-Identifier: MIT */
/* gclock: the GPU's %globaltimer, by itself and in terms of now_ns(). Both run freely, some ten ppm apart,
 * so one offset does not hold for long: take a sample before and one after, and draw the line between them.
 * The software GPU's clock is no line: it waits when the host is slow. */
#ifndef TESTS_GPU_GCLOCK_H
#define TESTS_GPU_GCLOCK_H

#include <stdint.h>

/* Reads the timer. Needs an open context. */
struct gclock {
	void *kernel;
	volatile uint64_t *stamp; /* which the GPU sees at `at` */
	uint64_t at;
};
void gclock_open(struct gclock *clock);
/* The kernel that read it has ended: what is let to the GPU after this call starts at a later time. */
uint64_t gclock_now(const struct gclock *clock);

struct gclock_sample {
	uint64_t host_ns, gpu_ns;
	uint64_t error_ns; /* host_ns is right to within this */
};

/* The tightest of `tries` launches of a kernel that reads the timer. Needs an open context. */
void gclock_take(struct gclock_sample *sample, int tries);

/* GPU time as host time, by the line through both samples. */
uint64_t gclock_to_host(const struct gclock_sample *before, const struct gclock_sample *after,
			uint64_t gpu_ns);

#endif
