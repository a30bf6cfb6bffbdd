/* policy: eBPF objects as policies. They are opened and loaded with libbpf, verified and compiled by the
 * kernel, and called with BPF_PROG_RUN. The module knows only the ABI in include/belfry/policy.h. It neither
 * decides nor checks what a policy proposes, but it measures the policy's cost.
 *
 * Any thread may call a policy at any time, also concurrently. Callers that write the policy's table must
 * serialise those calls. A policy is reference-counted. */
#ifndef BELFRY_POLICY_ROOM_H
#define BELFRY_POLICY_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "belfry/policy.h"

struct policy;

struct policy_options {
	const char *const *sets; /* "NAME=VALUE": values for the object's tunables */
	size_t set_count;
	uint64_t budget_ns; /* for one call; 0: the default */
};

/* Loads a policy from an object's bytes, which are copied. On failure it returns NULL and fills err. If the
 * verifier refused the object, *log (unless log is NULL) receives its log, last lines first, which the caller
 * frees. */
struct policy *policy_load(const void *object, size_t bytes, const struct policy_options *options, char **log,
			   struct bf_error *err);
struct policy *policy_get(struct policy *policy);
void policy_put(struct policy *policy); /* the last reference closes and unpins it; NULL is allowed */

/* Pins the policy's maps in a directory of a bpffs. Call it at most once, before other threads use the
 * policy. The directory is created; pins in it from an earlier policy of that name are removed. */
void policy_pin(struct policy *policy, const char *folder);

/* Removes all pins below a directory of this user in a bpffs, and the directory: a killed daemon leaves them
 * behind. It touches nothing else, and does nothing if the directory does not exist. */
void policy_clear_pins(const char *folder);

/* Whether this process may load eBPF programs: 0, or -errno and the reason. */
int policy_is_possible(struct bf_error *err);

const char *policy_name(const struct policy *policy); /* from the object */
const char *policy_what(const struct policy *policy);
bool policy_has(const struct policy *policy, enum belfry_hook hook);
/* The table of BELFRY_VGPUS_MAX entries that the policy's programs read. */
struct belfry_vgpu *policy_table(const struct policy *policy);
/* The directory of the pins; "" if policy_pin was not called; "not pinned: REASON" if it failed. */
const char *policy_pinned(const struct policy *policy);

/* Calls a hook that the policy has. ctx is a context of include/belfry/policy.h with its head filled in, and
 * holds the proposal afterwards. Returns BELFRY_PROPOSE or BELFRY_DEFAULT; -EPROTO: the hook returned another
 * value; -ETIME: it exceeded its budget too often; another -errno: the call failed. After a failure the
 * policy is disabled: it is not called again (-ENOENT), and policy_info gives the reason. Two errors of the
 * caller do not disable it: a hook that the policy does not have (-ENOENT), and a context whose size is not
 * policy_ctx_size (-EMSGSIZE). */
int policy_call(struct policy *policy, enum belfry_hook hook, void *ctx, size_t size);
/* Disables the policy for a reason of the caller's. */
void policy_fail(struct policy *policy, const char *why);

struct policy_hook_info {
	uint64_t calls, defaults, errors, late; /* late: over the budget */
	uint64_t total_ns, most_ns;
};
struct policy_info {
	bool is_out;
	char why[256]; /* why it is disabled */
	struct policy_hook_info hooks[BELFRY_HOOKS];
};
void policy_info(const struct policy *policy, struct policy_info *info);

const char *policy_hook_name(enum belfry_hook hook); /* "pick" */
size_t policy_ctx_size(enum belfry_hook hook);	     /* size of the hook's context */

enum { POLICY_TUNABLES_MAX = 64 };
struct policy_tunable {
	char name[64];
	unsigned bytes;
	bool is_signed;
	int64_t value; /* if unsigned, the bits of a uint64_t */
};
/* The policy's tunables and their values. */
const struct policy_tunable *policy_tunables(const struct policy *policy, size_t *count);

/* Maps of the policy that have what probes have counted: BELFRY_PROBE_MAP. */
enum { POLICY_BINDINGS_MAX = 8, POLICY_BOUND_MAX = 4096 };
struct policy_binding {
	char map[32], probe[32], probe_map[32];
	uint32_t key_bytes; /* of the probe's map; the policy's has the vGPU in front of it */
	uint32_t value_bytes;
	uint32_t max_entries; /* at most POLICY_BOUND_MAX, of all vGPUs */
};
const struct policy_binding *policy_bindings(const struct policy *policy, size_t *count);
/* Replaces the entries of a vGPU in such a map. `entries`: keys (of the probe's map) and values, one after the other, sorted
 * by key. Returns how many of them the map has. Programs of the policy that run meanwhile may see old and new entries. */
size_t policy_bound_set(struct policy *policy, size_t binding, uint64_t vgpu, const void *entries,
			size_t count);

/* What an object contains, with these tunables set, as far as that is known without the kernel. */
struct policy_description {
	struct belfry_policy policy;
	uint32_t hooks; /* one bit for each hook */
	size_t tunable_count;
	struct policy_tunable tunables[POLICY_TUNABLES_MAX];
	char maps[16][64]; /* names and types, for users */
	size_t map_count;
};
int policy_describe(const void *object, size_t bytes, const char *const *sets, size_t set_count,
		    struct policy_description *description, struct bf_error *err);

#endif
