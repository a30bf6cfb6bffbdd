/* The names of the vGPU ids in decisions. Names come from belfryd's report and are cached. The report is read
 * again after a second, or after 0.1 s if an id is unknown. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/own.h"
#include "cli/policy.h"
#include "cli/report.h"

struct known {
	uint64_t id;
	char name[SPEC_NAME_MAX + 1];
	char policy[BELFRY_NAME_SIZE]; /* the vGPU's own policy; "": none */
};

struct policy_names {
	struct protocol_gpu gpu;
	struct known *known;
	size_t count, room;
	char policy[BELFRY_NAME_SIZE];
	uint64_t asked_ns;
};

static const uint64_t again_ns = 1000000000;

struct policy_names *policy_names_new(const struct protocol_gpu *gpu)
{
	struct policy_names *names = calloc(1, sizeof(*names));

	if (names)
		names->gpu = *gpu;
	return names;
}

void policy_names_free(struct policy_names *names)
{
	if (names)
		free(names->known);
	free(names);
}

static struct known *find(const struct policy_names *names, uint64_t id)
{
	for (size_t i = names->count; i; i--)
		if (names->known[i - 1].id == id)
			return &names->known[i - 1];
	return NULL;
}

static struct known *find_or_add(struct policy_names *names, uint64_t id)
{
	struct known *known = find(names, id);

	if (known)
		return known;
	if (names->count == names->room) {
		size_t room = names->room ? 2 * names->room : 16;
		struct known *more = realloc(names->known, room * sizeof(*more));

		if (!more)
			return NULL;
		names->known = more;
		names->room = room;
	}
	known = &names->known[names->count++];
	*known = (struct known){ .id = id };
	return known;
}

void policy_names_learn(struct policy_names *names, uint64_t id, const char *name)
{
	struct known *known = find_or_add(names, id);

	if (known)
		snprintf(known->name, sizeof(known->name), "%.*s", SPEC_NAME_MAX, name);
}

static void learn(struct policy_names *names, struct json_object *report)
{
	struct json_object *vgpus = report_at(report, "vgpus");

	snprintf(names->policy, sizeof(names->policy), "%s", report_text(report, "gpu.policy", "?"));
	for (size_t i = 0; json_object_is_type(vgpus, json_type_array) && i < json_object_array_length(vgpus);
	     i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);
		struct known *known = find_or_add(names, (uint64_t)report_number(vgpu, "id"));

		if (!known)
			return;
		snprintf(known->name, sizeof(known->name), "%s", report_text(vgpu, "name", "?"));
		snprintf(known->policy, sizeof(known->policy), "%s", report_text(vgpu, "policy", ""));
	}
}

static void ask(struct policy_names *names)
{
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	struct protocol_reply reply;
	struct json_object *report;
	cleanup_free char *body = NULL;

	request.gpu = names->gpu;
	names->asked_ns = bf_now_ns();
	if (talk_once(&request, &reply, &body, NULL))
		return;
	report = body ? json_tokener_parse(body) : NULL;
	learn(names, report);
	json_object_put(report);
}

const char *policy_names_of(struct policy_names *names, uint64_t id)
{
	const struct known *known = id ? find(names, id) : NULL;

	if (!id)
		return "-";
	if (!known && bf_now_ns() - names->asked_ns > again_ns / 10) {
		ask(names);
		known = find(names, id);
	}
	return known && known->name[0] ? known->name : "?";
}

const char *policy_names_decider(struct policy_names *names, uint64_t id, bool is_own)
{
	const struct known *known;

	if (bf_now_ns() - names->asked_ns > again_ns)
		ask(names);
	if (!is_own)
		return names->policy;
	known = find(names, id);
	return known && known->policy[0] ? known->policy : "?";
}
