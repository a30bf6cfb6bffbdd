/* How a GPU server shares its GPU: the [sharing] section of the configuration file. */
#ifndef BELFRY_GPU_SETTINGS_H
#define BELFRY_GPU_SETTINGS_H

#include <stdint.h>

enum settings_how { SETTINGS_AUTO = 0, SETTINGS_TOKENS, SETTINGS_TURNS };
enum settings_doorbells { SETTINGS_DOORBELLS_AUTO = 0, SETTINGS_BREAKPOINTS, SETTINGS_POLLING };
enum settings_death { SETTINGS_END = 0, SETTINGS_CARRY };
enum { SETTINGS_PERMITS = 64 };

/* Sent over sockets: fixed sizes. */
struct settings {
	uint64_t window_us;    /* limits and reported shares apply to this window */
	uint64_t round_us;     /* in which each vGPU that wants the GPU gets one slice */
	uint64_t slice_min_us; /* the shortest slice */
	uint64_t grace_us;     /* how long work may continue after the end of a slice before it is stopped */
	uint64_t idle_us;      /* how long a vGPU without work keeps the token at most */
	uint32_t how;	       /* enum settings_how */
	uint32_t doorbells;    /* enum settings_doorbells: how rings of idle programs are noticed */
	uint32_t on_daemon_death; /* enum settings_death: what happens to programs when belfryd dies */
	char policy[256];	  /* a file, or the name of a policy of Belfry; empty: the built-in */
	char policy_set[512];	  /* NAME=VALUE, separated by spaces */
	uint32_t permit_count;
	uint32_t permits[SETTINGS_PERMITS]; /* controls that Belfry does not know and that programs may use */
	char public_domains[512];	    /* names, separated by spaces: vGPUs of every user may join */
	char mps_control
		[256]; /* the control program of MPS; empty: found in PATH, and none for software GPUs */
	char mps_folder[64]; /* where the folders of MPS servers are; empty: see mps_folder.c */
};

extern const struct settings settings_default;

#endif
