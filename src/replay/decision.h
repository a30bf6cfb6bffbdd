/* Decisions in words, for traces and for people. Pure. */
#ifndef BELFRY_REPLAY_DECISION_H
#define BELFRY_REPLAY_DECISION_H

#include "sched/sched.h"

/* "slice,promise": which of what was proposed was not had; "" if nothing. At least 64 bytes of room. */
const char *decision_clamps(uint32_t clamps, char *to, size_t room);
/* The first of the reasons, as the end of a sentence. */
const char *decision_reason(uint32_t clamps);
/* What its number means: "2.0 ms", "stop the holder", "200 us"; "" if it means nothing. At least 32 bytes of room. */
const char *decision_value(enum belfry_hook hook, uint64_t value, uint64_t at_ns, char *to, size_t room);
/* Whether anything is proposed at this hook. */
bool decision_proposes(enum belfry_hook hook);
/* Whether a GPU's policy, or a vGPU's own, is ever called at this hook. */
bool decision_is_asked(enum belfry_hook hook, bool of_vgpu);
/* The hooks that a vGPU's own policy is called at: "init, exit, dump, ...". At least 256 bytes of room. */
const char *decision_own_hooks(char *to, size_t room);

#endif
