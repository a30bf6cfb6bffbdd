/* Probes on the software GPU's PTX interpreter, in the kernel, and through ptxas. */
#ifndef BELFRY_TESTS_PROBE_RIG_H
#define BELFRY_TESTS_PROBE_RIG_H

#include <stdbool.h>

#include "probe/probe.h"
#include "ptx_run.h"

struct probe_rig {
	const struct probe *probe;
	struct rig rig;
	uint64_t area, contexts, results;
	unsigned room;
};

/* Translates a program and loads the text. `room`: the most contexts of a run. */
void probe_rig_open(struct probe_rig *rig, const struct probe *probe, size_t program, bool is_per_thread,
		    unsigned room);
void probe_rig_close(struct probe_rig *rig);
/* Runs the program on each context, in blocks of `threads`. Results of threads that did not run are ~0. */
void probe_rig_run(struct probe_rig *rig, const struct belfry_probe_ctx *contexts, uint64_t *results,
		   unsigned count, unsigned threads);
void *probe_rig_area(struct probe_rig *rig); /* the host's address of the area */

/* Whether a global variable, of 8 bytes and without an initial value, has this value. */
bool probe_has_variable(const struct probe *probe, void *area, uint64_t wanted);

/* A context of random fields. */
struct belfry_probe_ctx probe_random_context(uint64_t *seed);

/* tests/probes/NAME.bpf.o, opened; fails the test if it is refused. */
struct probe *probe_read(const char *name, const struct probe_options *options);
/* Its bytes, which the caller frees. */
void *probe_bytes(const char *name, size_t *size);

/* Whether ptxas exists. */
bool probe_can_assemble(void);
/* Assembles a module, with ptxas's option for the target; fails the test if ptxas refuses it. */
void probe_assemble_for(const char *arch, const char *text);
/* Assembles a module for sm_80 and sm_90; fails the test if ptxas refuses it. */
void probe_assemble(const char *text);

#endif
