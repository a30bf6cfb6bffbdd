/* policy: eBPF objects as policies. Opened and loaded with libbpf, verified and compiled by the kernel, called with
 * BPF_PROG_RUN. Knows what include/belfry/policy.h says and nothing about who asks: it neither decides nor checks what is
 * proposed, but watches what a policy costs.
 *
 * Any thread may call a policy at any time, and several may at once, but those who write its table see to it that nobody
 * else does meanwhile. A policy goes when the last one lets go of it. */
#ifndef BELFRY_POLICY_ROOM_H
#define BELFRY_POLICY_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "belfry/policy.h"

struct policy;

struct policy_options {
	const char *const *sets; /* "NAME=VALUE": read-only tunables of the object */
	size_t set_count;
	uint64_t budget_ns; /* of one call; 0: the default */
};

/* From an object's bytes, which are copied. On failure NULL, a reason in err, and in *log, if the verifier refused it, what
 * it said, readably: the program's name, then the last lines first; to be freed. log may be NULL. */
struct policy *policy_load(const void *object, size_t bytes, const struct policy_options *options, char **log,
			   struct bf_error *err);
struct policy *policy_get(struct policy *policy);
void policy_put(struct policy *policy); /* the last one closes and unpins it; NULL is fine */

/* Pin its maps in here, in a bpffs, once, before others use it. The folder is made; what another of that name has in it goes. */
void policy_pin(struct policy *policy, const char *folder);

/* Remove whatever is pinned in a folder of ours in a bpffs, and the folder: left by one of us that was killed. Nothing
 * elsewhere is touched; where there is nothing to be done nothing is. */
void policy_clear_pins(const char *folder);

/* Whether this process may load eBPF at all: 0, or -errno and why not. */
int policy_is_possible(struct bf_error *err);

const char *policy_name(const struct policy *policy); /* as the object says */
const char *policy_what(const struct policy *policy);
bool policy_has(const struct policy *policy, enum belfry_hook hook);
/* BELFRY_VGPUS_MAX entries, which its programs read. */
struct belfry_vgpu *policy_table(const struct policy *policy);
/* Where its maps are pinned; "" if nobody asked for it; "not pinned: ..." if that was not possible, and why. */
const char *policy_pinned(const struct policy *policy);

/* Call a hook it has. ctx is a context of policy.h with its head filled in, and holds the proposal afterwards.
 * BELFRY_PROPOSE or BELFRY_DEFAULT; -EPROTO: it returned something else; -ETIME: it has been past its budget too often;
 * another -errno: it could not be called. After a failure the policy is out: it is not called again (-ENOENT), and
 * policy_info says why. A hook that it does not have (-ENOENT) and a context of another size than policy_ctx_size says
 * (-EMSGSIZE) are the caller's mistakes and cost it nothing. */
int policy_call(struct policy *policy, enum belfry_hook hook, void *ctx, size_t size);
/* Put it out for a reason of the caller's. */
void policy_fail(struct policy *policy, const char *why);

struct policy_hook_info {
	uint64_t calls, defaults, errors, late; /* late: past the budget */
	uint64_t total_ns, most_ns;
};
struct policy_info {
	bool is_out;
	char why[256]; /* it is out */
	struct policy_hook_info hooks[BELFRY_HOOKS];
};
void policy_info(const struct policy *policy, struct policy_info *info);

const char *policy_hook_name(enum belfry_hook hook); /* "pick" */
size_t policy_ctx_size(enum belfry_hook hook);	     /* of its context */

enum { POLICY_TUNABLES_MAX = 64 };
struct policy_tunable {
	char name[64];
	unsigned bytes;
	bool is_signed;
	int64_t value; /* or, unless it is signed, the bits of a uint64_t */
};
/* Those of a policy, as they were set. */
const struct policy_tunable *policy_tunables(const struct policy *policy, size_t *count);

/* What an object has, with these tunables, as far as can be told without the kernel. */
struct policy_description {
	struct belfry_policy policy;
	uint32_t hooks; /* a bit for each */
	size_t tunable_count;
	struct policy_tunable tunables[POLICY_TUNABLES_MAX];
	char maps[16][64]; /* names and kinds, for people */
	size_t map_count;
};
int policy_describe(const void *object, size_t bytes, const char *const *sets, size_t set_count,
		    struct policy_description *description, struct bf_error *err);

#endif
