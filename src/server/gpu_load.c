/* Policies come: from a client or by the configuration. Read, verified, and given their place. */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "server/gpu_policy.h"
#include "server/policy_file.h"

enum { SETS_MAX = 64 };

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

/* What is between the tunables becomes their ends. */
static size_t split_sets(char *text, const char *between, const char **sets)
{
	size_t count = 0;
	char *rest = NULL;

	for (char *line = strtok_r(text, between, &rest); line && count < SETS_MAX;
	     line = strtok_r(NULL, between, &rest))
		sets[count++] = line;
	return count;
}

/* Where its maps are to be seen: root's alone, and only his are. False: nowhere. A bpffs takes no dots in names. */
static bool pin_folder(const struct gpu *gpu, const struct vgpu *vgpu, const char *name, char *to,
		       size_t room)
{
	const char *suffix = strrchr(gpu->socket, '.');

	if (geteuid() || !suffix)
		return false;
	if (vgpu)
		snprintf(to, room, "/sys/fs/bpf/belfry/%s/vgpu%u/%s", suffix + 1, vgpu->track, name);
	else
		snprintf(to, room, "/sys/fs/bpf/belfry/%s/%s", suffix + 1, name);
	for (char *at = to; *at; at++)
		if (*at == '.')
			*at = '_';
	return true;
}

/* An object and what goes with it. */
struct order {
	const char *file; /* for people */
	const void *object;
	size_t bytes;
	char *sets;	     /* cut up */
	const char *between; /* them */
};

/* Without the lock: the verifier may take a while. */
static struct policy *load(const struct gpu *gpu, const struct vgpu *vgpu, const struct order *order,
			   char **log, struct bf_error *err)
{
	const char *sets[SETS_MAX];
	struct policy_options options = { .sets = sets,
					  .set_count = split_sets(order->sets, order->between, sets) };
	struct policy_description description;
	struct bf_error why = { 0 };
	struct policy *policy = NULL;
	char folder[256];

	if (!policy_describe(order->object, order->bytes, &description, &why)) {
		if (pin_folder(gpu, vgpu, description.policy.name, folder, sizeof(folder)))
			options.pin_folder = folder;
		policy = policy_load(order->object, order->bytes, &options, log, &why);
	}
	if (!policy)
		bf_fail(err, why.code ? why.code : EINVAL, "%.120s: %.250s", order->file, why.text);
	return policy;
}

static char *loaded_json(struct gpu *gpu, const struct seat *seat, const struct seat *before,
			 uint64_t swap_ns, size_t *bytes)
{
	struct json_object *top = seat_json(seat);
	char name[24];

	json_object_object_add(top, "replaced", json_object_new_string(before ? before->name : "built-in"));
	snprintf(name, sizeof(name), gpu->which.kind == PROTOCOL_GPU_SOFT ? "soft:%u" : "%u",
		 gpu->which.index);
	json_object_object_add(top, "gpu", json_object_new_string(name));
	json_object_object_add(top, "swap_ns", json_object_new_int64((int64_t)swap_ns));
	return json_text(top, bytes);
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
		*body = loaded_json(gpu, seat, before, bf_now_ns() - start_ns, bytes);
		bf_log(BF_LOG_INFO, "policy %s%s%s was loaded, in place of %s", seat->name,
		       vgpu ? " of " : "", vgpu ? vgpu->name : "", before ? before->name : "the built-in");
	}
	gpu_unlock(gpu);
	turner_wake(gpu);
	seat_free(before);
}

static void carry_out(struct gpu *gpu, struct vgpu *vgpu, const struct order *order, char **body,
		      size_t *bytes, struct bf_error *err)
{
	struct policy *policy = load(gpu, vgpu, order, body, err);
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
