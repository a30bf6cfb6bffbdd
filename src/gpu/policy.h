/* Policies on a GPU: their seats, their recent decisions, and the followers of decisions. Extends gpu.h, for the
 * files that handle policies.
 *
 * A policy is out if it has failed: it is not called any more. */
#ifndef BELFRY_GPU_POLICY_H
#define BELFRY_GPU_POLICY_H

#include <json-c/json.h>
#include <stdio.h>

#include "gpu/gpu.h"
#include "policy/policy.h"
#include "replay/record.h"

/* The place of a loaded policy, on the GPU or on one vGPU. */
struct seat {
	struct gpu *gpu;
	struct vgpu *vgpu;     /* NULL: the GPU's */
	struct policy *policy; /* NULL: it is out and released. Changes under both locks */
	uint32_t hooks;	       /* a bit for each hook it has */
	uint64_t number;       /* counts all policies ever loaded on this GPU, from 1 */
	char name[BELFRY_NAME_SIZE], what[128];
	char file[sizeof(((struct protocol_policy *)0)->file)];
	char pinned[256];
	uint64_t since_ns, out_ns; /* out_ns: when it was found to be out; 0: it is not */
	int64_t since_s;	   /* CLOCK_REALTIME */
	struct policy_info last;   /* valid when policy is NULL */
	uint64_t clamped[BELFRY_HOOKS];
	struct policy_tunable tunables[POLICY_TUNABLES_MAX]; /* the values in use */
	size_t tunable_count;
};

/* A policy object that is being loaded. */
struct load {
	struct gpu *gpu;
	char file[sizeof(((struct settings *)0)->policy)]; /* for messages */
	char sets[sizeof(((struct protocol_policy *)0)->sets)];
	const char *between;		   /* the separators in sets */
	char vgpu_name[SPEC_NAME_MAX + 1]; /* the vGPU whose own policy it becomes */
	uint64_t vgpu_id;		   /* 0: it becomes the GPU's policy */
	void *object;
	size_t bytes;
	struct talker *talker; /* waits for the result; NULL: it was configured, or the talker is gone */
	bool is_dropped;       /* it must not be installed */
	uid_t uid;	       /* the talker's */
	bool is_admins;	       /* the talker is root or belfryd's user, or it was configured */
	uint64_t start_ns;

	/* The verifier's result: the loader's until is_done. */
	struct policy *policy;	      /* NULL: see err */
	struct attached_probe *probe; /* instead of a policy: see probes.h */
	char *log;
	struct bf_error err;

	pthread_t thread;
	bool has_thread;
	_Atomic bool is_done;
	struct load *next; /* gpu::loads */
};

/* probes.c: a load whose object is a probe */
void probe_load_verify(struct load *load);		   /* in any thread */
char *probe_load_settle(struct load *load, size_t *bytes); /* attaches it; the body of the answer */
void probe_load_free(struct load *load);

/* load.c */
void load_verify(struct load *load); /* in any thread */
/* Install the policy unless it was dropped, answer the talker, and free the load. */
void load_settle(struct load *load);

/* loader.c: the main thread's, without the lock */
/* Takes the load, unless it fails: only root and belfryd's user can have several loads at a time. */
int loader_add(struct gpu *gpu, struct load *load, struct bf_error *err);
/* Drop the loads of this talker; NULL: those of the configuration. */
void loader_drop(struct gpu *gpu, const struct talker *talker);

/* requests.c */
void talker_loaded(struct gpu *gpu, const struct load *load, const char *body, size_t bytes);

/* seat.c */
/* Takes the reference to the policy, also on failure. */
struct seat *seat_new(struct gpu *gpu, struct vgpu *vgpu, struct policy *policy, const char *file);
void seat_free(struct seat *seat); /* without the lock: the last one removes the kernel's part */
/* Install a seat. Returns the seat that it replaces; NULL: the built-in. If the policy fails in its first hooks it is
 * not installed, and its own seat is returned. With the lock. */
struct seat *seat_take(struct gpu *gpu, struct vgpu *vgpu, struct seat *seat);
void seat_info(const struct seat *seat, struct policy_info *info);
/* The head for a hook that is called outside sched, with no vGPU of the table. With gpu::lock or gpu::policy_lock. */
struct belfry_head seat_head(const struct gpu *gpu, enum belfry_hook hook, size_t size);
/* Call a hook outside sched, with no vGPU of the table. */
int seat_call(struct seat *seat, enum belfry_hook hook, void *ctx, size_t size);
struct belfry_vgpu_init seat_vgpu_init(const struct vgpu *vgpu);
/* For messages: policy_name_of, or "the built-in". */
const char *policy_who_decides(const struct gpu *gpu, const struct vgpu *vgpu);

/* policy.c */
struct json_object *seat_json(const struct seat *seat);

/* decisions.c: with the lock */
struct decision {
	struct sched_decision is;
	char policy[BELFRY_NAME_SIZE];
	uint64_t seat;		 /* seat::number */
	uint32_t track;		 /* vgpu::track of the vGPU that got it; 0: none, or it is removed */
	uint32_t proposed_track; /* likewise, of the proposed vGPU */
};
enum { GPU_DECISIONS = 1024 };
struct follower {
	int sock; /* a talker's */
	bool wants_all, wants_work;
	uint64_t id; /* only decisions about this vGPU; 0: all */
	uint32_t lost;
	struct follower *next; /* gpu::followers */
};
/* Have sched report the decisions that are wanted, and no others. */
void decisions_settle(struct gpu *gpu);
/* Whether another follower is allowed. */
int follower_check(const struct gpu *gpu, const struct ucred *who, struct bf_error *err);
/* flags: enum protocol_flag. */
struct follower *follower_add(struct gpu *gpu, const struct talker *talker, uint32_t flags,
			      const struct vgpu *vgpu);
/* Does not wait: a follower that reads too slowly loses entries, and its next entry has their number. */
void follower_tell(struct follower *follower, struct record_entry *entry);
void follower_remove(struct gpu *gpu, struct follower *follower);
/* A decision that was made outside sched, without a table. */
void decisions_note(struct gpu *gpu, const struct refusal *refusal, const struct vgpu *about);

/* work.c: with the lock */
void work_introduce(struct gpu *gpu, struct follower *follower); /* sends the current state */

/* decisions_told.c: with the lock */
void decisions_say(FILE *to, const struct vgpu *vgpu); /* sentences; none if there is nothing to report */
struct json_object *decisions_json(const struct vgpu *vgpu);
void decisions_write(FILE *to, const struct gpu *gpu, bool is_first); /* events of a trace */

#endif
