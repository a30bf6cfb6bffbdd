/* SPDX-License-Identifier: MIT */
/* memory: what the parent and the children of gpu_memory share. The children allocate and free at random;
 * at quiet points all of them stand still while the parent compares what the program is told, what Belfry
 * counts and what the driver counts. The parent never touches CUDA. */
#ifndef TESTS_GPU_MEMORY_H
#define TESTS_GPU_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "cu.h"

enum {
	MEMORY_PROCS_MAX = 32,
	MEMORY_KINDS = 8,
	MEMORY_ROUNDS = 5,
	MEMORY_EXCHANGES = 2,	    /* rounds that begin with sharing between processes */
	MEMORY_POINTS_EXCHANGE = 4, /* quiet points in an exchange */
};

/* One for each pair of children: the even one exports, the odd one imports. */
struct memory_offer {
	struct cu_ipc_handle ipc;
	uint64_t ipc_bytes; /* 0: nothing was exported */
	uint64_t vmm_bytes;
};

struct memory_shared {
	pthread_rwlock_t lock; /* read: may allocate and free. write: nobody else does */
	_Atomic uint32_t arrived, point, asked;
	_Atomic uint64_t told_free, told_total; /* child 0's answer when asked */
	_Atomic uint64_t ops, given[MEMORY_KINDS], refused[MEMORY_KINDS], frees;
	_Atomic uint64_t refused_with_room, damaged, imported;
	struct memory_offer offers[MEMORY_PROCS_MAX / 2];
	int sockets[MEMORY_PROCS_MAX / 2][2];
	uint32_t procs;
	uint64_t ops_per_round, seed;
};

extern const char *const memory_kind_names[MEMORY_KINDS];

/* The whole life of a child; exits 0 or 1, or 77. */
_Noreturn void memory_child(struct memory_shared *shared, uint32_t index);

/* Stand still until the parent lets all go on. Child 0 answers the parent's questions meanwhile. */
void memory_wait(struct memory_shared *shared, uint32_t index);

/* Share memory with the other child of the pair: IPC handles and VMM over a socket. */
void memory_exchange(struct memory_shared *shared, uint32_t index);

#endif
