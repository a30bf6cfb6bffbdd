/* SPDX-License-Identifier: MIT */
/* shared: the files through which a program under Belfry and the test that drives it from outside talk.
 * The driver creates and sizes the file, the program maps it; both follow the flags below. */
#ifndef TESTS_GPU_SHARED_H
#define TESTS_GPU_SHARED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gclock.h"

/* gpu_hold's log. `ready` and `done` are stored by gpu_hold after what they announce, `stop` by gpu_gate.
 * `launched` and `ran` go on while it runs: of the first `ran` kernels, all have started. */
enum { HOLD_KERNELS_MAX = 1 << 20 };

struct hold_record {
	uint64_t submit_ns;    /* host time just before the launch call */
	uint64_t start_gpu_ns; /* the kernel's own start, by the GPU's clock; 0: it never ran */
};

struct hold_log {
	_Atomic uint32_t ready, stop, done, launched, ran;
	uint32_t count;
	struct hold_record records[HOLD_KERNELS_MAX];
};

/* gpu_stop's pages: control in the first, the GPU's heartbeat alone in the second, which is registered
 * with CUDA. Where it cannot be, a thread carries the heartbeat there (`is_carried`), whenever it gets to it:
 * who wants to know raises `asked` and waits until `told` has followed. */
struct stop_page {
	_Atomic uint32_t ready, stop, done;
	_Atomic uint32_t kernels, wrong;
	_Atomic uint32_t is_carried, asked, told;
	double kernel_ms; /* undisturbed */
	struct gclock_sample before, after;
	_Alignas(4096) volatile uint64_t beat_gpu_ns;
	char rest[4096 - sizeof(uint64_t)];
};

/* Create a file of this size in /dev/shm (its path goes to `path`) and map it; removed when the program
 * ends. */
void *shared_create(char *path, size_t path_size, const char *name, size_t bytes);
void *shared_open(const char *path, size_t bytes);

/* Kill this process when the program ends, whatever way it ends, so that a failed test leaves nothing
 * running. */
void kill_at_exit(pid_t pid);

/* Wait for a flag while the process that is to set it lives; the test fails after timeout_ms. */
void wait_flag(_Atomic uint32_t *flag, pid_t pid, uint64_t timeout_ms, const char *what);

#endif
