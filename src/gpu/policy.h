/* Policies on a GPU: who sits where, what was decided lately, who follows it. A part of gpu.h, for those files that have
 * to do with policies. */
#ifndef BELFRY_GPU_POLICY_H
#define BELFRY_GPU_POLICY_H

#include <json-c/json.h>
#include <stdio.h>

#include "gpu/gpu.h"
#include "policy/policy.h"
#include "replay/record.h"

/* A policy's place on the GPU, or on a vGPU whose own it is: one for each that was loaded. */
struct seat {
	struct gpu *gpu;
	struct vgpu *vgpu; /* NULL: the GPU's */
	struct policy *
		policy; /* NULL: it is out, and was let go of. Changes under gpu::lock and gpu::policy_lock */
	uint32_t hooks; /* a bit for each that it has */
	uint64_t number; /* of all that were ever loaded here: from 1 */
	char name[BELFRY_NAME_SIZE], what[128];
	char file[sizeof(((struct protocol_policy *)0)->file)];
	char pinned[256];
	uint64_t since_ns, out_ns; /* out: when it was found out; 0: it decides */
	int64_t since_s;	   /* of the calendar */
	struct policy_info last;   /* as it was when it was let go of */
	uint64_t clamped[BELFRY_HOOKS];
	struct policy_tunable tunables[POLICY_TUNABLES_MAX]; /* as they were set */
	size_t tunable_count;
};

/* An object on its way to being a policy. */
struct load {
	struct gpu *gpu;
	char file[sizeof(((struct settings *)0)->policy)]; /* for people */
	char sets[sizeof(((struct protocol_policy *)0)->sets)];
	const char *between;		   /* them */
	char vgpu_name[SPEC_NAME_MAX + 1]; /* whose own it is to be */
	uint64_t vgpu_id;		   /* 0: the GPU's */
	void *object;
	size_t bytes;
	struct talker *talker; /* who waits for it; NULL: the configuration says so, or he has gone */
	bool is_dropped;       /* nobody wants it any more */
	uint64_t start_ns;

	/* What the verifier makes of it: the loader's until is_done. */
	struct policy *policy; /* NULL: see err */
	char *log;
	struct bf_error err;

	pthread_t thread;
	bool has_thread;
	_Atomic bool is_done;
	struct load *next; /* gpu::loads */
};

/* load.c */
void load_verify(struct load *load); /* in any thread */
/* It takes its place and whoever waits is told, or is forgotten. The end of it. */
void load_settle(struct load *load);

/* loader.c: the main thread's, without the lock */
void loader_add(struct gpu *gpu, struct load *load); /* takes it */
/* Nobody waits any more for what this talker has asked for; NULL: for what the configuration says. */
void loader_drop(struct gpu *gpu, const struct talker *talker);

/* requests.c */
void talker_loaded(struct gpu *gpu, const struct load *load, const char *body, size_t bytes);

/* seat.c */
/* For a policy, which it takes over, also on failure. */
struct seat *seat_new(struct gpu *gpu, struct vgpu *vgpu, struct policy *policy, const char *file);
void seat_free(struct seat *seat); /* without the lock: the last one lets the kernel's part go */
/* Put it in the place of whatever is there, which is returned; NULL: the built-in. One that does not get past its first hooks
 * gets no place, and is returned itself. With the lock. */
struct seat *seat_take(struct gpu *gpu, struct vgpu *vgpu, struct seat *seat);
void seat_info(const struct seat *seat, struct policy_info *info);
/* For a hook that is called outside of sched, about nobody in the table. With gpu::lock or gpu::policy_lock. */
struct belfry_head seat_head(const struct gpu *gpu, enum belfry_hook hook, size_t size);
/* Call a hook outside of sched, about nobody in the table. */
int seat_call(struct seat *seat, enum belfry_hook hook, void *ctx, size_t size);
struct belfry_vgpu_init seat_vgpu_init(const struct vgpu *vgpu);
/* Who decides, in a sentence: policy_name_of, or "the built-in". */
const char *policy_who_decides(const struct gpu *gpu, const struct vgpu *vgpu);

/* policy.c */
struct json_object *seat_json(const struct seat *seat);

/* decisions.c: with the lock */
struct decision {
	struct sched_decision is;
	char policy[BELFRY_NAME_SIZE];
	uint64_t seat;		 /* seat::number */
	uint32_t track;		 /* vgpu::track of who got it; 0: nobody, or one that is gone */
	uint32_t proposed_track; /* of who was proposed */
};
enum { GPU_DECISIONS = 1024 };
struct follower {
	int sock; /* a talker's */
	bool wants_all, wants_work;
	uint64_t id; /* of the vGPU it is about; 0: all */
	uint32_t lost;
	struct follower *next; /* gpu::followers */
};
/* Have sched tell what somebody wants to know, and no more. */
void decisions_settle(struct gpu *gpu);
/* Whether one more may follow. */
int follower_check(const struct gpu *gpu, const struct ucred *who, struct bf_error *err);
/* flags: enum protocol_flag. */
struct follower *follower_add(struct gpu *gpu, const struct talker *talker, uint32_t flags,
			      const struct vgpu *vgpu);
/* Nobody is waited for: one who reads too slowly misses some, and the next he gets says how many. */
void follower_tell(struct follower *follower, struct record_entry *entry);
void follower_remove(struct gpu *gpu, struct follower *follower);
/* Something that sched was not asked about: nobody is in the table. */
void decisions_note(struct gpu *gpu, const struct refusal *refusal, const struct vgpu *about);

/* work.c: with the lock */
void work_introduce(struct gpu *gpu, struct follower *follower); /* all that is so, to one who is new */

/* decisions_told.c: with the lock */
void decisions_say(FILE *to, const struct vgpu *vgpu); /* sentences, if there is anything to say */
struct json_object *decisions_json(const struct vgpu *vgpu);
void decisions_write(FILE *to, const struct gpu *gpu, bool is_first); /* events of a trace */

#endif
