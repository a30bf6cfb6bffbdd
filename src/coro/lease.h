/* A lease: which SMs a process may use. A page of memory that the GPU server and the process share; the GPU server makes it
 * and passes it over a socket. Nothing that protects others depends on what the process writes here. */
#ifndef BELFRY_CORO_LEASE_H
#define BELFRY_CORO_LEASE_H

#include <stdatomic.h>
#include <stdint.h>

enum { CORO_LEASE_VERSION = 2, CORO_LEASE_BYTES = 4096, CORO_REQUESTS = 128 };
#define CORO_LEASE_MAGIC 0x6c66726265660a01ull
/* All SMs, without a partition. */
#define CORO_UNITS_ALL UINT64_MAX

/* Units are the smallest parts that SMs can be divided into, as the driver numbers them. The last unit has the SMs that
 * remain; it may be larger than the others. */
struct coro_lease {
	/* Written by the GPU server. */
	uint64_t magic;
	uint32_t version, reserved;
	_Atomic uint64_t units; /* a bit for each unit, or CORO_UNITS_ALL */
	/* Raised after `units` was changed. A futex: the process waits on its lower half. */
	_Atomic uint64_t generation;
	uint64_t unused[12];

	/* Written by the process. */
	_Atomic uint32_t unit_count, unit_sms, last_unit_sms; /* unit_count 0: not known yet */
	_Atomic uint32_t is_fixed;			      /* the process does not move: it uses all SMs */
	_Atomic uint64_t seen;	    /* every later launch uses the units of this generation */
	_Atomic uint64_t fenced;    /* and all work on units of earlier generations has ended */
	_Atomic uint64_t moves;	    /* how often a stream went to other units */
	_Atomic uint64_t fell_back; /* launches that ran on all SMs because they did not fit */
	/* Requests: see request.c. Request n took took_ns[n % CORO_REQUESTS]. */
	_Atomic uint64_t requests;
	_Atomic uint64_t took_ns[CORO_REQUESTS];
};
_Static_assert(sizeof(struct coro_lease) <= CORO_LEASE_BYTES, "it fits into its page");

#endif
