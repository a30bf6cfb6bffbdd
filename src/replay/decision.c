#include "replay/decision.h"

#include <stdio.h>
#include <string.h>

#include "policy/policy.h"

static const struct {
	uint32_t clamp;
	const char *name, *reason;
} clamps_known[] = {
	{ SCHED_CLAMP_CHOICE, "choice", "the proposed vGPU cannot have the token" },
	{ SCHED_CLAMP_PROMISE, "promise", "another vGPU comes first: too much of its request is owed to it" },
	{ SCHED_CLAMP_SLICE, "slice", "the slice was too short or too long" },
	{ SCHED_CLAMP_SPACE, "space", "such units, or such a vGPU beside it, are not possible" },
	{ SCHED_CLAMP_TURNS, "turns", "the timeslice, the interleave level or the ride was out of range" },
	{ SCHED_CLAMP_STOP, "stop", "too much is owed to the holder itself, or its slice has just begun" },
	{ SCHED_CLAMP_WEIGHT, "weight", "the weight was below the request, or above the whole" },
};
enum { CLAMPS_KNOWN = sizeof(clamps_known) / sizeof(clamps_known[0]) };

const char *decision_clamps(uint32_t clamps, char *to, size_t room)
{
	size_t at = 0;

	to[0] = 0;
	for (int i = 0; i < CLAMPS_KNOWN && at < room; i++)
		if (clamps & clamps_known[i].clamp)
			at += (size_t)snprintf(to + at, room - at, "%s%s", at ? "," : "",
					       clamps_known[i].name);
	return to;
}

const char *decision_reason(uint32_t clamps)
{
	for (int i = 0; i < CLAMPS_KNOWN; i++)
		if (clamps & clamps_known[i].clamp)
			return clamps_known[i].reason;
	return "";
}

const char *decision_value(enum belfry_hook hook, uint64_t value, uint64_t at_ns, char *to, size_t room)
{
	to[0] = 0;
	switch (hook) {
	case BELFRY_HOOK_PICK:
	case BELFRY_HOOK_RUNNING:
	case BELFRY_HOOK_STOPPING:
	case BELFRY_HOOK_OBJECTIVE_MISSED:
		if (value)
			snprintf(to, room, "%.1f ms", (double)value / 1e6);
		break;
	case BELFRY_HOOK_ENQUEUE:
		if (value)
			snprintf(to, room, "due in %.1f ms", ((double)value - (double)at_ns) / 1e6);
		break;
	case BELFRY_HOOK_TICK:
		if (value)
			snprintf(to, room, "%llu us", (unsigned long long)value);
		break;
	case BELFRY_HOOK_PREEMPT:
		snprintf(to, room, "%s", value ? "stop the holder" : "leave the holder");
		break;
	case BELFRY_HOOK_MEM_ALLOC:
	case BELFRY_HOOK_CTX_INIT:
		snprintf(to, room, "%s", value ? "refuse" : "allow");
		break;
	default:
		break;
	}
	return to;
}

bool decision_proposes(enum belfry_hook hook)
{
	return hook == BELFRY_HOOK_PICK || hook == BELFRY_HOOK_PREEMPT || hook == BELFRY_HOOK_TICK ||
	       hook == BELFRY_HOOK_ENQUEUE || hook == BELFRY_HOOK_MEM_ALLOC || hook == BELFRY_HOOK_CTX_INIT;
}

/* A vGPU's own is called by sched (ask_own in sched/ask.c), by the warden (gpu/consult.c), and for the rest by seat_call.
 * Whose turn it is, who is stopped for whom and who gives memory up is between vGPUs, and so the GPU's policy alone is
 * asked. */
bool decision_is_asked(enum belfry_hook hook, bool of_vgpu)
{
	switch (hook) {
	case BELFRY_HOOK_INIT:
	case BELFRY_HOOK_EXIT:
	case BELFRY_HOOK_DUMP:
	case BELFRY_HOOK_VGPU_INIT:
	case BELFRY_HOOK_VGPU_EXIT:
	case BELFRY_HOOK_VGPU_SET:
	case BELFRY_HOOK_CTX_INIT:
	case BELFRY_HOOK_ENQUEUE:
	case BELFRY_HOOK_PICK: /* of a vGPU's own: for a shorter slice */
	case BELFRY_HOOK_RUNNING:
	case BELFRY_HOOK_STOPPING:
	case BELFRY_HOOK_MEM_ALLOC:
	case BELFRY_HOOK_OBJECTIVE_MISSED:
	case BELFRY_HOOK_FAULT:
	case BELFRY_HOOK_MODULE_LOAD:
		return true;
	case BELFRY_HOOK_TICK:
	case BELFRY_HOOK_PREEMPT:
	case BELFRY_HOOK_MEM_PRESSURE:
		return !of_vgpu;
	case BELFRY_HOOKS:
		break;
	}
	return false;
}

const char *decision_own_hooks(char *to, size_t room)
{
	size_t at = 0;

	to[0] = 0;
	for (int hook = 0; hook < BELFRY_HOOKS && at < room; hook++)
		if (decision_is_asked((enum belfry_hook)hook, true))
			at += (size_t)snprintf(to + at, room - at, "%s%s", at ? ", " : "",
					       policy_hook_name((enum belfry_hook)hook));
	return to;
}
