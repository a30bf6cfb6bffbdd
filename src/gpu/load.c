/* Loads policies from clients and from the configuration: reads, verifies and installs them. */
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
#include "base/process.h"
#include "client/policy_file.h"
#include "gpu/policy.h"
#include "replay/decision.h"

/* Read the whole memory file into private memory, which the client cannot change. */
static void *read_object(int file, uint32_t most, size_t *bytes, struct bf_error *err)
{
	cleanup_free char *object = NULL;
	struct stat st;
	size_t done = 0;
	void *taken;

	if (file < 0 || fstat(file, &st) || !S_ISREG(st.st_mode)) {
		bf_fail(err, EINVAL, "what came is no memory file");
		return NULL;
	}
	if (st.st_size <= 0 || st.st_size > most) {
		bf_fail(err, EFBIG, "it has %lld bytes; an object has at least 1 and at most %u MiB",
			(long long)st.st_size, most >> 20);
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

/* The folder where maps of this GPU's policies are pinned. Only belfryd of root pins maps. The hash keeps two of its
 * instances apart. False: maps are not pinned. */
static bool pin_place(const struct gpu *gpu, char *to, size_t room)
{
	const char *suffix = strrchr(gpu->socket, '.');

	if (geteuid() || !suffix || !suffix[1] || strchr(suffix, '/'))
		return false;
	return snprintf(to, room, "/sys/fs/bpf/belfry/%s-%08" PRIx32, suffix + 1, bf_hash(gpu->socket)) <
	       (int)room;
}

/* The folder of one policy. */
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

/* A vGPU's own policy without such a hook would never be called. */
static int check_is_asked(const struct policy_description *description, struct bf_error *err)
{
	char hooks[256];

	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (description->hooks >> hook & 1 && decision_is_asked((enum belfry_hook)hook, true))
			return 0;
	return bf_fail(err, ENOTSUP, "it has no hook that a vGPU's own policy is asked at: %s",
		       decision_own_hooks(hooks, sizeof(hooks)));
}

void load_verify(struct load *load)
{
	const char *sets[POLICY_FILE_SETS_MAX];
	struct policy_options options = { .sets = sets };
	struct policy_description description;
	struct bf_error why = { 0 };

	if (load->probe) {
		probe_load_verify(load);
		return;
	}
	options.set_count = policy_file_sets(load->sets, load->between, sets);
	if (!policy_describe(load->object, load->bytes, NULL, 0, &description, &why) &&
	    (!load->vgpu_id || !check_is_asked(&description, &why)))
		load->policy = policy_load(load->object, load->bytes, &options, &load->log, &why);
	if (!load->policy)
		bf_fail(&load->err, why.code ? why.code : EINVAL, "%.120s: %.250s", load->file, why.text);
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
	gpu_unlock(gpu); /* only the main thread changes seats, and this is the main thread */
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
	char text[96];

	gpu_lock(gpu);
	start_ns = bf_now_ns();
	before = seat_take(gpu, vgpu, seat);
	if (before == seat) {
		seat_info(seat, &info);
		bf_fail(err, EPROTO, "%s: it is out already: %.250s; nothing has changed", seat->name,
			info.why);
	} else {
		uint64_t swap_ns = bf_now_ns() - start_ns;
		/* The GPU's policy decided about a vGPU without its own. */
		const char *replaced = before ? before->name : vgpu ? policy_name_of(gpu, NULL) : "built-in";

		pin(gpu, seat); /* after seat_take(): it replaces the pins of a policy of the same name */
		*body = loaded_json(gpu, seat, replaced, swap_ns, bytes);
		bf_log(BF_LOG_INFO, "policy %s%s%s was loaded, in place of %s", seat->name,
		       vgpu ? " of " : "", vgpu ? vgpu->name : "",
		       strcmp(replaced, "built-in") != 0 ? replaced : "the built-in");
		snprintf(text, sizeof(text), "in place of %s",
			 strcmp(replaced, "built-in") != 0 ? replaced : "the built-in");
		event_policy(gpu, vgpu, EVENT_POLICY_LOADED, seat->name, text);
	}
	gpu_unlock(gpu);
	turner_wake(gpu);
	seat_free(before);
}

/* *body: the answer. */
static void seat_policy(struct load *load, char **body, size_t *bytes)
{
	/* Only the main thread removes vGPUs, and this is the main thread. */
	struct vgpu *vgpu = vgpu_by_id(load->gpu, load->vgpu_id);
	struct seat *seat;

	if (load->vgpu_id && !vgpu) {
		bf_fail(&load->err, ENOENT, "%s: the vGPU is there no more", load->vgpu_name);
		return;
	}
	seat = seat_new(load->gpu, vgpu, load->policy, load->file);
	load->policy = NULL; /* seat_new() has taken it */
	if (seat)
		take_place(load->gpu, vgpu, seat, body, bytes, &load->err);
	else
		bf_fail(&load->err, ENOMEM, "out of memory");
}

static void load_free(struct load *load)
{
	policy_put(load->policy);
	probe_load_free(load);
	free(load->log);
	free(load->object);
	free(load);
}

static void tell_not_loaded(struct gpu *gpu, const struct bf_error *why)
{
	struct event event = event_make(EVENT_CONFIG_REFUSED);

	bf_log(BF_LOG_ERROR, "the configured policy is not loaded: %s", why->text);
	event_say(&event, "the configured policy is not loaded: %s", why->text);
	gpu_event(gpu, NULL, &event);
}

void load_settle(struct load *load)
{
	cleanup_free char *body = NULL;
	size_t bytes = load->log ? strlen(load->log) : 0;

	body = load->log;
	load->log = NULL;
	if (load->policy && !load->is_dropped)
		seat_policy(load, &body, &bytes);
	if (load->probe && !load->err.code && !load->is_dropped) {
		free(body);
		body = probe_load_settle(load, &bytes);
	}
	if (!load->err.code && !body)
		bf_fail(&load->err, ENOMEM, "it is loaded, but there is no memory to say more");
	if (load->talker)
		talker_loaded(load->gpu, load, body, bytes);
	else if (load->err.code && !load->is_dropped)
		tell_not_loaded(load->gpu, &load->err);
	load_free(load);
}

static struct load *load_new(struct gpu *gpu, const char *file, const char *sets, const char *between)
{
	struct load *load = calloc(1, sizeof(*load));

	if (!load)
		return NULL;
	load->gpu = gpu;
	load->start_ns = bf_now_ns();
	load->between = between;
	snprintf(load->file, sizeof(load->file), "%s", file);
	snprintf(load->sets, sizeof(load->sets), "%s", sets);
	return load;
}

/* name: the vGPU that the talker has named; empty: none. */
static int take_object(struct load *load, const char *name, int file, struct bf_error *err)
{
	const struct vgpu *vgpu = name[0] ? vgpu_find(load->gpu, name) : NULL;

	if (name[0] && !vgpu)
		return bf_fail(err, ENOENT, "%s: the vGPU is there no more", name);
	load->vgpu_id = vgpu ? vgpu->id : 0;
	snprintf(load->vgpu_name, sizeof(load->vgpu_name), "%s", name);
	load->object = read_object(file, load->probe ? PROTOCOL_PROBE_BYTES : PROTOCOL_POLICY_BYTES,
				   &load->bytes, &load->err);
	if (!load->object)
		return bf_fail(err, load->err.code, "%.120s: %.250s", load->file, load->err.text);
	return 0;
}

/* Takes the load. */
static int begin(struct load *load, struct talker *talker, int file, struct bf_error *err)
{
	load->talker = talker;
	load->uid = talker->who.uid;
	load->is_admins = bf_is_admin(load->uid);
	if (take_object(load, talker->load_name, file, err) || loader_add(load->gpu, load, err)) {
		load_free(load);
		return -err->code;
	}
	talker->waits_for_load = true;
	talker->until_ns = 0;
	return 0;
}

int policy_came(struct gpu *gpu, struct talker *talker, const struct protocol_policy *message, int file,
		struct bf_error *err)
{
	struct protocol_policy copy = *message;
	struct load *load;

	talker->is_loading = false;
	copy.file[sizeof(copy.file) - 1] = copy.sets[sizeof(copy.sets) - 1] = 0;
	if (copy.magic != PROTOCOL_MAGIC || copy.version != PROTOCOL_VERSION)
		return bf_fail(err, EPROTO, "not a policy of version %u", PROTOCOL_VERSION);
	load = load_new(gpu, copy.file, copy.sets, "\n");
	if (!load)
		return bf_fail(err, ENOMEM, "out of memory");
	return begin(load, talker, file, err);
}

int probe_came(struct gpu *gpu, struct talker *talker, const struct protocol_probe *message, int file,
	       struct bf_error *err)
{
	struct attached_probe *probe = probe_load_new(message, err);
	struct load *load;

	talker->is_loading = talker->is_probing = false;
	if (!probe)
		return -err->code;
	load = load_new(gpu, message->file, "", "\n"); /* the file's name was checked */
	if (!load) {
		probe_load_free(&(struct load){ .probe = probe });
		return bf_fail(err, ENOMEM, "out of memory");
	}
	load->probe = probe;
	return begin(load, talker, file, err);
}

static void unload_configured(struct gpu *gpu)
{
	struct seat *before;

	gpu_lock(gpu);
	before = seat_take(gpu, NULL, NULL);
	if (before)
		event_policy(gpu, NULL, EVENT_POLICY_UNLOADED, before->name,
			     "the configuration names no policy; the built-in decides");
	gpu_unlock(gpu);
	turner_wake(gpu);
	seat_free(before);
}

static int load_configured(struct gpu *gpu, struct bf_error *err)
{
	struct policy_file file;
	struct load *load;

	if (policy_file_read(gpu->settings.policy, &file, err))
		return -err->code;
	load = load_new(gpu, gpu->settings.policy, gpu->settings.policy_set, " \t");
	if (!load) {
		free(file.bytes);
		return bf_fail(err, ENOMEM, "out of memory");
	}
	load->object = file.bytes;
	load->bytes = file.size;
	load->is_admins = true;
	return loader_add(gpu, load, err); /* an administrator's is always taken */
}

void policy_configure(struct gpu *gpu)
{
	struct bf_error err;

	loader_drop(gpu, NULL); /* a policy of an earlier configuration */
	if (!gpu->settings.policy[0])
		unload_configured(gpu);
	else if (load_configured(gpu, &err))
		tell_not_loaded(gpu, &err);
}
