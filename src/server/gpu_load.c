/* Policies come: from a client or by the configuration. Read, verified, and given their place. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/own.h"
#include "server/decision.h"
#include "server/gpu_policy.h"
#include "server/policy_file.h"

/* All of it, into memory of ours: nobody can change it any more, and nobody is waited for but a disk. */
static void *read_object(int file, size_t *bytes, struct bf_error *err)
{
	cleanup_free char *object = NULL;
	struct stat st;
	size_t done = 0;
	void *taken;

	if (file < 0 || fstat(file, &st) || !S_ISREG(st.st_mode)) {
		bf_fail(err, EINVAL, "what came is no plain file");
		return NULL;
	}
	if (st.st_size <= 0 || st.st_size > PROTOCOL_POLICY_BYTES) {
		bf_fail(err, EFBIG, "it has %lld bytes; a policy has at least 1 and at most %u MiB",
			(long long)st.st_size, PROTOCOL_POLICY_BYTES >> 20);
		return NULL;
	}
	object = malloc((size_t)st.st_size);
	if (!object) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	while (done < (size_t)st.st_size) {
		ssize_t got = pread(file, object + done, (size_t)st.st_size - done, (off_t)done);

		if (got <= 0) {
			bf_fail(err, got ? errno : EIO, "it cannot be read: %s",
				got ? strerror(errno) : "it has become shorter");
			return NULL;
		}
		done += (size_t)got;
	}
	*bytes = done;
	taken = object;
	object = NULL;
	return taken;
}

/* Where maps of policies on this GPU are to be seen: root's alone, and only his are. Two belfryds of root's have a place each.
 * False: nowhere. */
static bool pin_place(const struct gpu *gpu, char *to, size_t room)
{
	const char *suffix = strrchr(gpu->socket, '.');

	if (geteuid() || !suffix || !suffix[1] || strchr(suffix, '/'))
		return false;
	return snprintf(to, room, "/sys/fs/bpf/belfry/%s-%08" PRIx32, suffix + 1, bf_hash(gpu->socket)) <
	       (int)room;
}

/* And those of one policy. */
static bool pin_folder(const struct gpu *gpu, const struct vgpu *vgpu, const char *name, char *to,
		       size_t room)
{
	char place[160];

	if (!pin_place(gpu, place, sizeof(place)))
		return false;
	if (vgpu)
		snprintf(to, room, "%s/vgpu%u/%s", place, vgpu->track, name);
	else
		snprintf(to, room, "%s/%s", place, name);
	return true;
}

void policies_begin(const struct gpu *gpu)
{
	char place[160];

	if (pin_place(gpu, place, sizeof(place)))
		policy_clear_pins(place);
}

/* An object and what goes with it. */
struct order {
	const char *file; /* for people */
	const void *object;
	size_t bytes;
	char *sets;	     /* cut up */
	const char *between; /* them */
};

/* One that is never asked would decide nothing, and nobody would know. */
static int check_is_asked(const struct policy_description *description, struct bf_error *err)
{
	char hooks[256];

	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (description->hooks >> hook & 1 && decision_is_asked((enum belfry_hook)hook, true))
			return 0;
	return bf_fail(err, ENOTSUP, "it has no hook that a vGPU's own policy is asked at: %s",
		       decision_own_hooks(hooks, sizeof(hooks)));
}

/* Without the lock: the verifier may take a while. */
static struct policy *load(const struct vgpu *vgpu, const struct order *order, char **log,
			   struct bf_error *err)
{
	const char *sets[POLICY_FILE_SETS_MAX];
	struct policy_options options = { .sets = sets };
	struct policy_description description;
	struct bf_error why = { 0 };
	struct policy *policy = NULL;

	options.set_count = policy_file_sets(order->sets, order->between, sets);
	if (!policy_describe(order->object, order->bytes, NULL, 0, &description, &why) &&
	    (!vgpu || !check_is_asked(&description, &why)))
		policy = policy_load(order->object, order->bytes, &options, log, &why);
	if (!policy)
		bf_fail(err, why.code ? why.code : EINVAL, "%.120s: %.250s", order->file, why.text);
	return policy;
}

static char *loaded_json(struct gpu *gpu, const struct seat *seat, const char *before, uint64_t swap_ns,
			 size_t *bytes)
{
	struct json_object *top = seat_json(seat);
	char name[24];

	json_add_text(top, "replaced", before);
	json_add_text(top, "gpu", protocol_gpu_name(&gpu->which, name, sizeof(name)));
	json_add_number(top, "swap_ns", swap_ns);
	return json_text(top, bytes);
}

static void pin(struct gpu *gpu, struct seat *seat)
{
	char folder[256];

	if (!pin_folder(gpu, seat->vgpu, seat->name, folder, sizeof(folder)))
		return;
	gpu_unlock(gpu); /* the main thread alone, which is here, gives and takes places */
	policy_pin(seat->policy, folder);
	gpu_lock(gpu);
	snprintf(seat->pinned, sizeof(seat->pinned), "%s", policy_pinned(seat->policy));
}

static void take_place(struct gpu *gpu, struct vgpu *vgpu, struct seat *seat, char **body, size_t *bytes,
		       struct bf_error *err)
{
	struct policy_info info;
	struct seat *before;
	uint64_t start_ns;

	gpu_lock(gpu);
	start_ns = bf_now_ns();
	before = seat_take(gpu, vgpu, seat);
	seat_info(seat, &info);
	if (info.is_out) { /* it did not get past its first hooks: all is as it was */
		bf_fail(err, EPROTO, "%s: it is out already: %.250s; nothing has changed", seat->name,
			info.why);
		before = seat_take(gpu, vgpu, before);
	} else {
		uint64_t swap_ns = bf_now_ns() - start_ns;
		/* Where a vGPU had none, the GPU's has decided about it. */
		const char *replaced = before ? before->name : vgpu ? policy_name_of(gpu, NULL) : "built-in";

		pin(gpu, seat); /* not before: it takes the place of the pins of one of the same name */
		*body = loaded_json(gpu, seat, replaced, swap_ns, bytes);
		bf_log(BF_LOG_INFO, "policy %s%s%s was loaded, in place of %s", seat->name,
		       vgpu ? " of " : "", vgpu ? vgpu->name : "",
		       strcmp(replaced, "built-in") != 0 ? replaced : "the built-in");
	}
	gpu_unlock(gpu);
	turner_wake(gpu);
	seat_free(before);
}

static void carry_out(struct gpu *gpu, struct vgpu *vgpu, const struct order *order, char **body,
		      size_t *bytes, struct bf_error *err)
{
	struct policy *policy = load(vgpu, order, body, err);
	struct seat *seat;

	*bytes = *body ? strlen(*body) : 0;
	if (!policy)
		return;
	seat = seat_new(gpu, vgpu, policy, order->file);
	if (seat)
		take_place(gpu, vgpu, seat, body, bytes, err);
	else
		bf_fail(err, ENOMEM, "out of memory");
}

void policy_came(struct gpu *gpu, struct talker *talker, const struct protocol_policy *message, int file,
		 char **body, size_t *bytes, struct bf_error *err)
{
	struct protocol_policy copy = *message;
	struct order order = { .file = copy.file, .sets = copy.sets, .between = "\n" };
	cleanup_free void *object = NULL;
	struct vgpu *vgpu;

	talker->is_loading = false;
	copy.file[sizeof(copy.file) - 1] = copy.sets[sizeof(copy.sets) - 1] = 0;
	if (copy.magic != PROTOCOL_MAGIC || copy.version != PROTOCOL_VERSION) {
		bf_fail(err, EPROTO, "not a policy of version %u", PROTOCOL_VERSION);
		return;
	}
	/* The main thread alone removes vGPUs, and is here. */
	vgpu = talker->load_name[0] ? vgpu_find(gpu, talker->load_name) : NULL;
	if (talker->load_name[0] && !vgpu) {
		bf_fail(err, ENOENT, "%s: the vGPU is there no more", talker->load_name);
		return;
	}
	object = read_object(file, &order.bytes, err);
	if (!object) {
		struct bf_error why = *err;

		bf_fail(err, why.code, "%.120s: %.250s", copy.file, why.text);
		return;
	}
	order.object = object;
	carry_out(gpu, vgpu, &order, body, bytes, err);
}

static void unload_configured(struct gpu *gpu)
{
	struct seat *before;

	gpu_lock(gpu);
	before = seat_take(gpu, NULL, NULL);
	gpu_unlock(gpu);
	turner_wake(gpu);
	seat_free(before);
}

void policy_configure(struct gpu *gpu)
{
	const char *name = gpu->settings.policy;
	char sets[sizeof(gpu->settings.policy_set)];
	struct order order = { .file = name, .sets = sets, .between = " \t" };
	struct policy_file file = { .bytes = NULL };
	cleanup_free char *body = NULL;
	struct bf_error err = { 0 };
	size_t told;

	if (!name[0]) {
		unload_configured(gpu);
		return;
	}
	memcpy(sets, gpu->settings.policy_set, sizeof(sets));
	if (!policy_file_read(name, &file, &err)) {
		order.object = file.bytes;
		order.bytes = file.size;
		carry_out(gpu, NULL, &order, &body, &told, &err);
		free(file.bytes);
	}
	if (err.code)
		bf_log(BF_LOG_ERROR, "the configured policy is not loaded: %s", err.text);
}
