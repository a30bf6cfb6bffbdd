/* The recent decisions of policies, for belfry explain and belfry trace. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "gpu/policy.h"
#include "replay/decision.h"

static uint64_t first_of(const struct gpu *gpu)
{
	return gpu->decisions.count > GPU_DECISIONS ? gpu->decisions.count - GPU_DECISIONS : 0;
}

/* The decisions in the ring about one vGPU. */
struct lately {
	const struct decision *last, *last_clamped;
	uint64_t count, clamped;
};

/* Whether a policy that is still loaded has decided it. */
static bool is_of_these(const struct vgpu *vgpu, const struct decision *d)
{
	const struct seat *gpus = vgpu->gpu->seat, *own = vgpu->seat;

	return (gpus && d->seat == gpus->number) || (own && d->seat == own->number);
}

static struct lately look(const struct vgpu *vgpu)
{
	const struct gpu *gpu = vgpu->gpu;
	struct lately lately = { 0 };

	for (uint64_t n = first_of(gpu); n < gpu->decisions.count; n++) {
		const struct decision *d = &gpu->decisions.ring[n % GPU_DECISIONS];

		if ((d->track != vgpu->track && d->proposed_track != vgpu->track) || !is_of_these(vgpu, d))
			continue;
		lately.count++;
		if (d->track == vgpu->track)
			lately.last = d;
		if (d->is.clamps) {
			lately.clamped++;
			lately.last_clamped = d;
		}
	}
	return lately;
}

static void say_seat(FILE *to, const struct seat *seat)
{
	struct policy_info info;

	seat_info(seat, &info);
	if (info.is_out)
		fprintf(to, "Policy %s%s is out, since %s; %s decides.\n", seat->name,
			seat->vgpu ? ", its own," : "", info.why, policy_who_decides(seat->gpu, seat->vgpu));
}

static void say_last(FILE *to, const struct vgpu *vgpu, const struct decision *d)
{
	char proposed[32], got[32];

	decision_value(d->is.hook, d->is.proposed_ns, d->is.at_ns, proposed, sizeof(proposed));
	decision_value(d->is.hook, d->is.got_ns, d->is.at_ns, got, sizeof(got));
	fprintf(to, "Policy %s%s last decided about it %.1f ms ago, by its hook %s%s%s", d->policy,
		d->is.decider == SCHED_BY_OWN_POLICY ? ", its own," : "",
		(double)(bf_now_ns() - d->is.at_ns) / 1e6, policy_hook_name(d->is.hook), got[0] ? ": " : "",
		got);
	if (d->proposed_track != vgpu->track)
		fprintf(to, ", though it had proposed %s", d->proposed_track ? "another" : "nobody");
	else if (d->is.clamps && proposed[0] && strcmp(proposed, got) != 0)
		fprintf(to, ", where it had proposed %s", proposed);
	fprintf(to, ".\n");
}

void decisions_say(FILE *to, const struct vgpu *vgpu)
{
	struct lately lately = look(vgpu);

	if (vgpu->gpu->seat)
		say_seat(to, vgpu->gpu->seat);
	if (vgpu->seat)
		say_seat(to, vgpu->seat);
	if (lately.last)
		say_last(to, vgpu, lately.last);
	if (lately.last_clamped)
		fprintf(to,
			"Of the last %llu decisions about it %llu were changed; the last, of %s, as %s.\n",
			(unsigned long long)lately.count, (unsigned long long)lately.clamped,
			lately.last_clamped->policy, decision_reason(lately.last_clamped->is.clamps));
}

static struct json_object *decision_json(const struct decision *d)
{
	struct json_object *to;
	char clamps[64];

	if (!d)
		return NULL;
	to = json_object_new_object();
	json_add_text(to, "policy", d->policy);
	json_add_text(to, "hook", policy_hook_name(d->is.hook));
	json_add_number(to, "ago_ns", bf_now_ns() - d->is.at_ns);
	json_add_number(to, "proposed", d->is.proposed_ns);
	json_add_number(to, "got", d->is.got_ns);
	json_add_text(to, "clamped", decision_clamps(d->is.clamps, clamps, sizeof(clamps)));
	return to;
}

struct json_object *decisions_json(const struct vgpu *vgpu)
{
	struct lately lately = look(vgpu);
	struct json_object *to = json_object_new_object();

	json_add_text(to, "gpu", policy_name_of(vgpu->gpu, NULL));
	json_add_text(to, "own", vgpu->seat && vgpu->seat->policy ? vgpu->seat->name : NULL);
	json_add_number(to, "decisions", lately.count);
	json_add_number(to, "clamped", lately.clamped);
	json_add(to, "last", decision_json(lately.last));
	json_add(to, "last_clamped", decision_json(lately.last_clamped));
	return to;
}

static const char *name_of(const struct gpu *gpu, uint32_t track)
{
	for (size_t i = 0; i < gpu->trace.name_count; i++)
		if (gpu->trace.names[i].track == track)
			return gpu->trace.names[i].name;
	return "";
}

/* An instant on the track of the vGPU that got the decision. comma: the separator before it. Written by hand, as the rest
 * of the trace is (trace.c): an object for each of its events would take many times the memory of its text. */
static void write_one(FILE *to, const struct gpu *gpu, const struct decision *d, const char *comma)
{
	char proposed[32], got[32], clamps[64];

	decision_value(d->is.hook, d->is.proposed_ns, d->is.at_ns, proposed, sizeof(proposed));
	decision_value(d->is.hook, d->is.got_ns, d->is.at_ns, got, sizeof(got));
	fprintf(to,
		"%s{\"name\":\"%s %s%s%s\",\"ph\":\"i\",\"s\":\"t\",\"pid\":%u,\"tid\":1,\"ts\":%.3f,\"args\":"
		"{\"proposed\":\"%s %s\",\"got\":\"%s %s\",\"clamped\":\"%s\"}}",
		comma, d->policy, policy_hook_name(d->is.hook), got[0] ? " " : "", got, d->track,
		(double)d->is.at_ns / 1e3, name_of(gpu, d->proposed_track), proposed, name_of(gpu, d->track),
		got, decision_clamps(d->is.clamps, clamps, sizeof(clamps)));
}

void decisions_write(FILE *to, const struct gpu *gpu, bool is_first)
{
	for (uint64_t n = first_of(gpu); n < gpu->decisions.count; n++) {
		const struct decision *d = &gpu->decisions.ring[n % GPU_DECISIONS];

		if (!d->track)
			continue;
		write_one(to, gpu, d, is_first ? "" : ",\n");
		is_first = false;
	}
}
