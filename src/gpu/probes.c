/* Attaches and detaches probes, and keeps the notes of processes about their kernels. */
#include "gpu/probes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "base/sealed.h"
#include "base/text.h"
#include "gpu/policy.h"

struct vgpu_probes *probes_of(struct vgpu *vgpu)
{
	if (!vgpu->probing) {
		vgpu->probing = calloc(1, sizeof(*vgpu->probing));
		if (vgpu->probing)
			vgpu->probing->vgpu = vgpu;
	}
	return vgpu->probing;
}

struct attached_probe *probes_find(const struct vgpu_probes *probes, uint32_t number)
{
	struct attached_probe *a;

	LIST_FOREACH(a, &probes->attached, next)
		if (a->number == number)
			return a;
	return NULL;
}

static void forget_kernels(struct attached_probe *attached)
{
	struct probe_kernel *k, *after;
	struct probe_reason *r, *following;

	LIST_FOREACH_SAFE(k, &attached->kernels, next, after)
		free(k);
	LIST_FOREACH_SAFE(r, &attached->reasons, next, following)
		free(r);
}

void attached_probe_free(struct attached_probe *attached)
{
	if (!attached)
		return;
	forget_kernels(attached);
	while (!TAILQ_EMPTY(&attached->copies))
		copy_free(attached, TAILQ_FIRST(&attached->copies));
	probe_free(attached->probe);
	bf_close_fd(&attached->pack);
	free(attached);
}

/* Copies text of a process, without bytes that would change a terminal. */
static void take_text(char *to, const char *from, size_t room)
{
	memcpy(to, from, room);
	to[room - 1] = 0;
	bf_plain(to);
}

static void note_kernel(struct attached_probe *attached, const struct probed *probed,
			const struct probe_note *note)
{
	struct probe_kernel *kernel;

	LIST_FOREACH(kernel, &attached->kernels, next)
		if (kernel->id == note->id && kernel->pid == probed->pid)
			return;
	kernel = attached->kernel_count < PROBE_KERNELS ? calloc(1, sizeof(*kernel)) : NULL;
	if (!kernel) {
		attached->kernels_lost++;
		return;
	}
	kernel->id = note->id;
	kernel->pid = probed->pid;
	take_text(kernel->name, note->kernel, sizeof(kernel->name));
	LIST_INSERT_HEAD(&attached->kernels, kernel, next);
	attached->kernel_count++;
}

static void note_reason(struct attached_probe *attached, const struct probed *probed,
			const struct probe_note *note)
{
	struct probe_reason *reason = calloc(1, sizeof(*reason)), *same;

	if (!reason)
		return;
	*reason = (struct probe_reason){ .pid = probed->pid,
					 .outcome = (enum probe_outcome)note->outcome,
					 .times = 1 };
	take_text(reason->text, note->text, sizeof(reason->text));
	take_text(reason->kernel, note->kernel, sizeof(reason->kernel));
	LIST_FOREACH(same, &attached->reasons, next)
		if (same->pid == reason->pid && same->outcome == reason->outcome &&
		    !strcmp(same->text, reason->text) && !strcmp(same->kernel, reason->kernel))
			break;
	if (same)
		same->times++;
	if (!same && attached->reason_count == PROBE_REASONS)
		attached->reasons_lost++;
	if (same || attached->reason_count == PROBE_REASONS) {
		free(reason);
		return;
	}
	LIST_INSERT_HEAD(&attached->reasons, reason, next);
	attached->reason_count++;
}

void probes_note(struct attached_probe *attached, const struct probed *probed, const struct probe_note *note)
{
	if (note->kind == PROBE_NOTE_KERNEL) {
		note_kernel(attached, probed, note);
		return;
	}
	if (!note->outcome || note->outcome >= PROBE_OUTCOMES)
		return;
	attached->outcomes[note->outcome]++;
	if (note->outcome != PROBE_WOVEN)
		note_reason(attached, probed, note);
}

static int pack(struct attached_probe *attached, struct bf_error *err)
{
	cleanup_free void *bytes = NULL;
	size_t size = 0;
	int rc = probe_pack(attached->probe, &bytes, &size, err);

	if (rc)
		return rc;
	if (size > PROBE_WIRE_PACK_BYTES)
		return bf_fail(err, EFBIG, "it has %zu bytes; the limit is %d MiB", size,
			       PROBE_WIRE_PACK_BYTES >> 20);
	attached->pack = bf_sealed_file("belfry-probe", bytes, size);
	return attached->pack < 0 ? bf_fail(err, ENOMEM, "out of memory") : 0;
}

/* Only objects of root and of belfryd's user go to the kernel's verifier. Otherwise any user could make the kernel verify
 * programs, for which Linux demands privileges. The rules for probes do not depend on the verifier. */
static int verify(struct load *load, struct attached_probe *attached, struct bf_error *err)
{
	struct bf_error why = { 0 };

	if (!load->is_admins)
		bf_fail(&why, EPERM, "belfryd has the kernel verify objects of root only");
	else if (!policy_is_possible(&why)) {
		int rc = probe_verify(load->object, load->bytes, &load->log, err);

		attached->is_verified = !rc;
		return rc;
	}
	snprintf(attached->why_not, sizeof(attached->why_not), "%.255s", why.text);
	return 0;
}

/* In the loader's thread. */
void probe_load_verify(struct load *load)
{
	struct attached_probe *attached = load->probe;
	uint32_t sms = load->gpu->device->sm_count;
	struct probe_options options = { .sm_count = sms ? sms : PROBE_SMS, .is_checked_only = true };
	struct bf_error why = { 0 };
	int rc = verify(load, attached, &why);

	if (!rc)
		rc = probe_open(load->object, load->bytes, &options, &attached->probe, &why);
	if (!rc && probe_area_bytes(attached->probe) > PROBE_ATTACHED_BYTES_MAX)
		rc = bf_fail(&why, EFBIG, "its maps have %llu bytes; the limit is %llu MiB",
			     (unsigned long long)probe_area_bytes(attached->probe),
			     PROBE_ATTACHED_BYTES_MAX >> 20);
	if (!rc)
		rc = pack(attached, &why);
	if (!rc)
		probe_keep_maps(attached->probe);
	if (rc)
		bf_fail(&load->err, why.code ? why.code : EINVAL, "%.120s: %.350s", load->file, why.text);
}

/* A bit that no probe of the vGPU has. There are fewer than PROBE_WIRE_PROBES of them. */
static uint32_t free_bit(const struct vgpu_probes *probes)
{
	const struct attached_probe *a;
	uint32_t taken = 0;

	LIST_FOREACH(a, &probes->attached, next)
		taken |= a->bit;
	return ~taken & (taken + 1);
}

static void settle(struct load *load, struct vgpu *vgpu, struct bf_error *err)
{
	struct attached_probe *attached = load->probe;
	struct vgpu_probes *probes = vgpu ? probes_of(vgpu) : NULL;
	struct probed *p, *after;

	if (!vgpu) {
		bf_fail(err, ENOENT, "%s: the vGPU is there no more", load->vgpu_name);
		return;
	}
	if (!probes || probes->attached_count >= PROBE_WIRE_PROBES) {
		bf_fail(err, probes ? E2BIG : ENOMEM,
			probes ? "%s: it has %d probes, the most there may be; detach one"
			       : "%s: out of memory (%d probes)",
			vgpu->name, PROBE_WIRE_PROBES);
		return;
	}
	attached->vgpu = vgpu;
	attached->number = ++vgpu->gpu->next_probe;
	attached->bit = free_bit(probes);
	attached->since_s = (int64_t)time(NULL);
	LIST_INSERT_HEAD(&probes->attached, attached, next);
	probes->attached_count++;
	load->probe = NULL;
	LIST_FOREACH_SAFE(p, &probes->processes, next, after)
		if (probed_is_meant(p, attached) && probed_send(p, PROBE_ORDER_ADD, attached, 0))
			probed_remove(p);
	bf_log(BF_LOG_INFO, "%s: probe %s was attached", vgpu->name, attached->name);
}

char *probe_load_settle(struct load *load, size_t *bytes)
{
	struct vgpu *vgpu = vgpu_by_id(load->gpu, load->vgpu_id);
	struct attached_probe *attached = load->probe;
	char *body = NULL;

	gpu_lock(load->gpu);
	if (!load->err.code)
		settle(load, vgpu, &load->err);
	if (!load->err.code) {
		struct json_object *top = probes_json(vgpu->probing, vgpu);

		json_add_number(top, "number", attached->number);
		body = json_text(top, bytes);
	}
	gpu_unlock(load->gpu);
	return body;
}

void probe_load_free(struct load *load)
{
	attached_probe_free(load->probe);
}

struct attached_probe *probe_load_new(const struct protocol_probe *message, struct bf_error *err)
{
	struct attached_probe *attached;

	if (message->magic != PROTOCOL_MAGIC || message->version != PROTOCOL_VERSION || message->pid < 0 ||
	    !bf_is_line(message->name, sizeof(message->name)) || !message->name[0] ||
	    !bf_is_line(message->file, sizeof(message->file)) ||
	    !bf_is_line(message->kernel, sizeof(message->kernel))) {
		bf_fail(err, EPROTO, "not a probe of version %u, or its name or pattern is not printable",
			PROTOCOL_VERSION);
		return NULL;
	}
	attached = calloc(1, sizeof(*attached));
	if (!attached) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	attached->pack = -1;
	attached->pid = message->pid;
	attached->sample = message->sample;
	TAILQ_INIT(&attached->copies);
	memcpy(attached->name, message->name, sizeof(attached->name));
	memcpy(attached->file, message->file, sizeof(attached->file));
	memcpy(attached->kernel, message->kernel, sizeof(attached->kernel));
	return attached;
}

static void detach_one(struct vgpu_probes *probes, struct attached_probe *attached)
{
	struct probed *p, *after;

	mirror_drop(attached);
	LIST_REMOVE(attached, next);
	probes->attached_count--;
	LIST_FOREACH(p, &probes->processes, next)
		p->last &= ~attached->bit; /* the next probe may get it */
	LIST_FOREACH_SAFE(p, &probes->processes, next, after)
		if (probed_is_meant(p, attached) && probed_send(p, PROBE_ORDER_REMOVE, attached, 0))
			probed_remove(p);
	attached_probe_free(attached);
}

static char *detach(struct vgpu *vgpu, uint64_t number, size_t *bytes, struct bf_error *err)
{
	struct json_object *top, *list;
	struct attached_probe *a, *after;
	unsigned count = 0;

	if (vgpu->probing && vgpu->probing->dump) {
		bf_fail(err, EBUSY, "%s: a dump is under way; try again", vgpu->name);
		return NULL;
	}
	top = json_object_new_object();
	list = json_object_new_array();
	if (vgpu->probing)
		LIST_FOREACH_SAFE(a, &vgpu->probing->attached, next, after)
			if (!number || a->number == number) {
				json_object_array_add(list, attached_json(a));
				detach_one(vgpu->probing, a);
				count++;
			}
	json_add_text(top, "vgpu", vgpu->name);
	json_add(top, "detached", list);
	if (count)
		return json_text(top, bytes);
	json_object_put(top);
	if (number)
		bf_fail(err, ENOENT, "%s: it has no probe %llu; belfry probe ls lists its probes", vgpu->name,
			(unsigned long long)number);
	else
		bf_fail(err, ENOENT, "%s: it has no probes", vgpu->name);
	return NULL;
}

static void begin_attach(struct talker *talker, const struct vgpu *vgpu, struct bf_error *err)
{
	enum { ATTACH_LIMIT_S = 30 };

	if (vgpu->is_hidden || talker->vgpu || talker->is_loading || talker->follower) {
		bf_fail(err, EINVAL, "this connection is for something else");
		return;
	}
	talker->is_loading = talker->is_probing = true;
	talker->until_ns = bf_now_ns() + ATTACH_LIMIT_S * 1000000000ull;
	memcpy(talker->load_name, vgpu->name, sizeof(talker->load_name));
}

void probe_request(struct talker *talker, struct vgpu *vgpu, const struct protocol_request *request,
		   char **body, size_t *bytes, struct bf_error *err)
{
	struct vgpu_probes *probes;

	switch (request->op) {
	case PROTOCOL_PROBE_ATTACH:
		begin_attach(talker, vgpu, err);
		return;
	case PROTOCOL_PROBE_DETACH:
		*body = detach(vgpu, request->for_us, bytes, err);
		return;
	case PROTOCOL_PROBE_LIST:
		*body = json_text(probes_json(vgpu->probing, vgpu), bytes);
		break;
	default:
		probes = probes_of(vgpu);
		if (!probes || request->for_us > UINT32_MAX)
			bf_fail(err, probes ? EINVAL : ENOMEM, probes ? "no such probe" : "out of memory");
		else
			dump_begin(probes, talker, (uint32_t)request->for_us, err);
		return;
	}
	if (!*body)
		bf_fail(err, ENOMEM, "out of memory");
}

void probes_leave(struct vgpu *vgpu)
{
	struct vgpu_probes *probes = vgpu->probing;
	struct attached_probe *a, *after;
	struct probed *p, *following;

	if (!probes)
		return;
	dump_fail(probes, "the vGPU was removed");
	LIST_FOREACH_SAFE(p, &probes->processes, next, following)
		probed_remove(p);
	LIST_FOREACH_SAFE(a, &probes->attached, next, after) {
		mirror_drop(a);
		LIST_REMOVE(a, next);
		attached_probe_free(a);
	}
	free(probes);
	vgpu->probing = NULL;
}
