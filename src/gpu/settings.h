/* How a GPU server shares its GPU: what the configuration file says in [sharing]. */
#ifndef BELFRY_GPU_SETTINGS_H
#define BELFRY_GPU_SETTINGS_H

#include <stdint.h>

enum settings_how { SETTINGS_AUTO = 0, SETTINGS_TOKENS, SETTINGS_TURNS };
enum settings_doorbells { SETTINGS_DOORBELLS_AUTO = 0, SETTINGS_BREAKPOINTS, SETTINGS_POLLING };
enum settings_death { SETTINGS_END = 0, SETTINGS_CARRY };
enum { SETTINGS_PERMITS = 64 };

/* Goes over sockets: fixed sizes. */
struct settings {
	uint64_t window_us;	  /* over which a limit is not passed, and shares are told */
	uint64_t round_us;	  /* in which everybody who wants the GPU has had his slice */
	uint64_t slice_min_us;	  /* no slice is shorter */
	uint64_t grace_us;	  /* what runs at the end of a slice may end by itself for this long */
	uint64_t idle_us;	  /* a holder without work keeps its token for this long at most */
	uint32_t how;		  /* enum settings_how */
	uint32_t doorbells;	  /* enum settings_doorbells: how rings of idle programs are noticed */
	uint32_t on_daemon_death; /* enum settings_death: what becomes of programs when belfryd dies */
	char policy[256];	  /* a file, or the name of one that comes with Belfry; empty: the built-in */
	char policy_set[512];	  /* NAME=VALUE, spaces between them */
	uint32_t permit_count;
	uint32_t permits[SETTINGS_PERMITS]; /* controls that Belfry does not know and programs may use */
	char public_domains[512];	    /* names, spaces between them: vGPUs of every user may join */
};

extern const struct settings settings_default;

#endif
