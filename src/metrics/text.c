/* Converts JSON to the text format of Prometheus. Metrics of a GPU that DCGM's exporter also has use its names with
 * another prefix, its units and its labels. Metrics of a vGPU have names of their own, so that a sum over one name
 * counts nothing twice. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/read.h"
#include "metrics/write.h"

#define MIB 1048576.0
#define NS 1e-9
#define US 1e-6
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A value at a path of the GPU or the vGPU, or a computed one. */
struct family {
	const char *name, *type, *help;
	const char *path;
	double scale;
	double (*work_out)(const struct read_report *report);
};

/* Over the last window, 0 to 1. */
static double share(const struct read_report *report)
{
	double sum = 0;

	for (size_t i = 0; i < json_object_array_length(report->vgpus); i++)
		sum += read_number(json_object_array_get_idx(report->vgpus, i), "time.share");
	return sum > 1 ? 1 : sum;
}

static double percent(const struct read_report *report)
{
	return share(report) * 100;
}

static double fb_free(const struct read_report *report)
{
	double left = read_number(report->gpu, "mem.total") - read_number(report->gpu, "mem.used");

	return left > 0 ? left / MIB : 0;
}

static const struct family gpu_families[] = {
	{ "BELFRY_FI_DEV_GPU_UTIL", "gauge", "GPU time used in the last window (in %).", NULL, 1, percent },
	{ "BELFRY_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "GPU time used in the last window (0 to 1).", NULL, 1,
	  share },
	{ "BELFRY_FI_PROF_SM_ACTIVE", "gauge", "How busy the SMs are (0 to 1).", "busy.sm", 1, NULL },
	{ "BELFRY_FI_PROF_DRAM_ACTIVE", "gauge", "How busy the memory bus is (0 to 1).", "busy.memory", 1,
	  NULL },
	{ "BELFRY_FI_DEV_FB_USED", "gauge", "Device memory used by vGPUs (in MiB).", "mem.used", 1 / MIB,
	  NULL },
	{ "BELFRY_FI_DEV_FB_FREE", "gauge", "Device memory not used by vGPUs (in MiB).", NULL, 1, fb_free },
	{ "BELFRY_FI_DEV_FB_TOTAL", "gauge", "Device memory (in MiB).", "mem.total", 1 / MIB, NULL },
	{ "BELFRY_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", "temperature_c", 1, NULL },
	{ "BELFRY_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", "power_w", 1, NULL },
	{ "belfry_gpu_reserved_bytes", "gauge", "Device memory reserved for vGPUs.", "mem.reserved", 1,
	  NULL },
	{ "belfry_gpu_request_ratio", "gauge", "Sum of the requested shares of GPU time (0 to 1).", "request",
	  1, NULL },
	{ "belfry_gpu_busy_seconds_total", "counter", "Time the GPU was in use.", "busy_ns", NS, NULL },
	{ "belfry_gpu_handovers_total", "counter", "Times the GPU went from one vGPU to another.",
	  "handovers", 1, NULL },
};

static const struct family vgpu_families[] = {
	{ "belfry_vgpu_share_ratio", "gauge", "GPU time used in the last window (0 to 1).", "time.share", 1,
	  NULL },
	{ "belfry_vgpu_sm_active_ratio", "gauge",
	  "How busy the SMs are while it runs, as far as that can be told apart (0 to 1).", "busy.sm", 1,
	  NULL },
	{ "belfry_vgpu_dram_active_ratio", "gauge",
	  "How busy the memory bus is while it runs, as far as that can be told apart (0 to 1).",
	  "busy.memory", 1, NULL },
	{ "belfry_vgpu_memory_used_bytes", "gauge", "Device memory used.", "mem.used", 1, NULL },
	{ "belfry_vgpu_memory_high_water_bytes", "gauge", "The most device memory it has used.", "mem.most",
	  1, NULL },
	{ "belfry_vgpu_request_ratio", "gauge", "Requested share of GPU time (0 to 1).", "time.request", 1,
	  NULL },
	{ "belfry_vgpu_limit_ratio", "gauge", "GPU time not passed over a window (0 to 1).", "time.limit", 1,
	  NULL },
	{ "belfry_vgpu_gpu_seconds_total", "counter", "GPU time used.", "time.gpu_ns", NS, NULL },
	{ "belfry_vgpu_waited_seconds_total", "counter", "Time with work and without the GPU.",
	  "time.waited_ns", NS, NULL },
	{ "belfry_vgpu_limited_seconds_total", "counter", "Time with work at its own time limit.",
	  "time.limited_ns", NS, NULL },
	{ "belfry_vgpu_stopped_seconds_total", "counter", "Time its channels were stopped.",
	  "tokens.stopped_ns", NS, NULL },
	{ "belfry_vgpu_tokens_granted_total", "counter", "Tokens granted.", "tokens.granted", 1, NULL },
	{ "belfry_vgpu_tokens_expired_total", "counter", "Tokens that ran out.", "tokens.expired", 1, NULL },
	{ "belfry_vgpu_tokens_given_back_total", "counter", "Tokens given back before they ran out.",
	  "tokens.given_back", 1, NULL },
	{ "belfry_vgpu_stops_total", "counter", "Times its channels were stopped.", "tokens.stops", 1, NULL },
	{ "belfry_vgpu_submissions_total", "counter", "Submissions passed on to the GPU.",
	  "submissions.forwards", 1, NULL },
	{ "belfry_vgpu_refusals_total", "counter", "Driver calls refused.", "refusals", 1, NULL },
	{ "belfry_vgpu_latency_samples_total", "counter", "Submissions whose time was measured.",
	  "latency.samples", 1, NULL },
	{ "belfry_vgpu_missed_objectives_total", "counter",
	  "Submissions that took longer than the objective.", "latency.missed", 1, NULL },
	{ "belfry_vgpu_sms", "gauge", "SMs that its programs may use now, in a shared domain.",
	  "sm.lease.sms", 1, NULL },
	{ "belfry_vgpu_sm_moves_total", "counter", "Times work of its programs went to other SMs.",
	  "sm.moves", 1, NULL },
	{ "belfry_vgpu_sm_fell_back_total", "counter",
	  "Launches that ran on all SMs because they did not fit on those that it had.", "sm.fell_back", 1,
	  NULL },
	{ "belfry_vgpu_faults_total", "counter", "Faults on the GPU that ended a context of its programs.",
	  "faults.count", 1, NULL },
};

static struct write_labels gpu_labels(const struct read *read, const struct read_report *report)
{
	struct write_labels labels = { 0 };

	write_label(&labels, "gpu", read_text(report->gpu, "gpu"));
	write_label(&labels, "UUID", read_text(report->gpu, "uuid"));
	write_label(&labels, "device", read_text(report->gpu, "device"));
	write_label(&labels, "modelName", read_text(report->gpu, "model"));
	write_label(&labels, "Hostname", read->source->hostname);
	return labels;
}

static void put_owner(struct write_labels *labels, const struct read *read, struct json_object *of)
{
	uint32_t uid = (uint32_t)json_object_get_int64(read_at(of, "owner"));

	write_label_number(labels, "uid", uid);
	write_label(labels, "user", read->source->user(uid));
}

static struct write_labels vgpu_labels(const struct read *read, const struct read_report *report,
				       struct json_object *vgpu)
{
	struct write_labels labels = { 0 };

	write_label(&labels, "gpu", read_text(report->gpu, "gpu"));
	write_label(&labels, "UUID", read_text(report->gpu, "uuid"));
	write_label(&labels, "vgpu", read_text(vgpu, "name"));
	write_label(&labels, "class", read_text(vgpu, "class"));
	put_owner(&labels, read, vgpu);
	return labels;
}

static void write_gpu_family(FILE *out, const struct family *family, const struct read *read)
{
	write_family(out, family->name, family->type, family->help);
	for (unsigned i = 0; i < read->source->count; i++) {
		const struct read_report *report = &read->reports[i];
		struct write_labels labels = gpu_labels(read, report);

		if (family->work_out)
			write_sample(out, family->name, &labels, family->work_out(report));
		else if (read_at(report->gpu, family->path)) /* otherwise this GPU does not report it */
			write_sample(out, family->name, &labels,
				     read_number(report->gpu, family->path) * family->scale);
	}
}

/* Called for each vGPU of all GPUs. */
typedef void each_vgpu(FILE *out, const char *name, struct write_labels *labels, struct json_object *vgpu,
		       const struct family *family);

static void write_vgpus(FILE *out, const char *name, const struct read *read, each_vgpu *each,
			const struct family *family)
{
	for (unsigned i = 0; i < read->source->count; i++)
		for (size_t j = 0; j < json_object_array_length(read->reports[i].vgpus); j++) {
			struct json_object *vgpu = json_object_array_get_idx(read->reports[i].vgpus, j);
			struct write_labels labels;

			if (!json_object_is_type(vgpu, json_type_object))
				continue;
			labels = vgpu_labels(read, &read->reports[i], vgpu);
			each(out, name, &labels, vgpu, family);
		}
}

static void write_value_of(FILE *out, const char *name, struct write_labels *labels, struct json_object *vgpu,
			   const struct family *family)
{
	if (read_at(vgpu, family->path))
		write_sample(out, name, labels, read_number(vgpu, family->path) * family->scale);
}

static void write_memory_limit(FILE *out, const char *name, struct write_labels *labels,
			       struct json_object *vgpu, const struct family *family)
{
	double limit = read_number(vgpu, "mem.limit");

	(void)family;
	if (limit > 0)
		write_sample(out, name, labels, limit);
}

static void write_runs(FILE *out, const char *name, struct write_labels *labels, struct json_object *vgpu,
		       const struct family *family)
{
	struct json_object *runs = read_at(vgpu, "runs");

	(void)family;
	if (json_object_is_type(runs, json_type_array))
		write_sample(out, name, labels, (double)json_object_array_length(runs));
}

/* An exec into a container is a further run with the same ID. */
static bool is_told(struct json_object *runs, size_t before, const char *id)
{
	for (size_t i = 0; i < before; i++) {
		const char *other = read_text(json_object_array_get_idx(runs, i), "id");

		if (other && !strcmp(other, id))
			return true;
	}
	return false;
}

static void write_run_info(FILE *out, const char *name, struct write_labels *labels, struct json_object *vgpu,
			   const struct family *family)
{
	static const char *const keys[] = { "kind", "id", "pod", "namespace", "container" };
	struct json_object *runs = read_at(vgpu, "runs");

	(void)family;
	(void)labels;
	for (size_t i = 0; json_object_is_type(runs, json_type_array) && i < json_object_array_length(runs);
	     i++) {
		struct json_object *run = json_object_array_get_idx(runs, i);
		const char *id = read_text(run, "id");
		struct write_labels with = { 0 };

		if (!id || is_told(runs, i, id))
			continue;
		write_label(&with, "gpu", read_text(vgpu, "gpu"));
		write_label(&with, "vgpu", read_text(vgpu, "name"));
		for (size_t j = 0; j < COUNT(keys); j++)
			write_label(&with, keys[j], read_text(run, keys[j]));
		write_sample(out, name, &with, 1);
	}
}

static void write_state(FILE *out, const char *name, struct write_labels *labels, struct json_object *vgpu,
			const struct family *family)
{
	static const char *const states[] = { "idle", "running", "waiting", "held", "stopped" };
	const char *state = read_text(vgpu, "state");

	(void)family;
	for (size_t i = 0; state && i < COUNT(states); i++) {
		struct write_labels with = *labels;

		write_label(&with, "state", states[i]);
		write_sample(out, name, &with, !strcmp(state, states[i]));
	}
}

/* The percentile of its objective, or 99. */
static const char *tail_of(struct json_object *vgpu, char *to, size_t room)
{
	double percentile = read_number(vgpu, "objective.percentile");

	snprintf(to, room, "%.6g", percentile > 0 ? percentile : 99);
	return to;
}

static void write_latency(FILE *out, const char *name, struct write_labels *labels, struct json_object *vgpu,
			  const struct family *family)
{
	struct write_labels median = *labels, tail = *labels;
	char percentile[16];

	(void)family;
	if (read_number(vgpu, "latency.samples") < 1)
		return;
	tail_of(vgpu, percentile, sizeof(percentile));
	if (strcmp(percentile, "50") != 0) {
		write_label(&median, "percentile", "50");
		write_sample(out, name, &median, read_number(vgpu, "latency.p50_us") * US);
	}
	write_label(&tail, "percentile", percentile);
	write_sample(out, name, &tail, read_number(vgpu, "latency.p99_us") * US);
}

static void write_objective(FILE *out, const char *name, struct write_labels *labels,
			    struct json_object *vgpu, const struct family *family)
{
	char percentile[16];

	(void)family;
	if (!read_at(vgpu, "objective.us"))
		return;
	write_label(labels, "percentile", tail_of(vgpu, percentile, sizeof(percentile)));
	write_sample(out, name, labels, read_number(vgpu, "objective.us") * US);
}

static const struct {
	const char *name, *type, *help;
	each_vgpu *each;
} special_families[] = {
	{ "belfry_vgpu_memory_limit_bytes", "gauge", "Its memory limit; none where it has no limit.",
	  write_memory_limit },
	{ "belfry_vgpu_runs", "gauge", "Programs that run on it.", write_runs },
	{ "belfry_run_info", "gauge", "1 for each container, pod and job on it, which the labels name.",
	  write_run_info },
	{ "belfry_vgpu_state", "gauge", "1 for the state that it is in, 0 for the others.", write_state },
	{ "belfry_vgpu_latency_seconds", "gauge",
	  "How long submissions took lately: the median, and the percentile of its objective or 99.",
	  write_latency },
	{ "belfry_vgpu_objective_seconds", "gauge", "Its objective for that percentile of submissions.",
	  write_objective },
};

static const struct family past_families[] = {
	{ "belfry_past_gpu_seconds_total", "counter", "GPU time used by vGPUs that are gone.", "gpu_ns", NS,
	  NULL },
	{ "belfry_past_waited_seconds_total", "counter",
	  "Time with work and without the GPU of vGPUs that are gone.", "waited_ns", NS, NULL },
	{ "belfry_past_runs_total", "counter", "Runs on vGPUs that are gone.", "runs", 1, NULL },
	{ "belfry_past_vgpus_total", "counter", "vGPUs that are gone.", "vgpus", 1, NULL },
	{ "belfry_past_memory_high_water_bytes", "gauge",
	  "The most device memory that one of the vGPUs has used that are gone.", "memory_high_water_bytes",
	  1, NULL },
};

static void write_past(FILE *out, const struct family *family, const struct read *read)
{
	struct json_object *totals = read_at(read->account, "totals");

	write_family(out, family->name, family->type, family->help);
	for (size_t i = 0; totals && i < json_object_array_length(totals); i++) {
		struct json_object *total = json_object_array_get_idx(totals, i);
		struct write_labels labels = { 0 };

		write_label(&labels, "vgpu", read_text(total, "name"));
		put_owner(&labels, read, total);
		write_sample(out, family->name, &labels, read_number(total, family->path) * family->scale);
	}
}

static void write_kinds(FILE *out, const struct read *read)
{
	struct json_object *kinds = read_at(read->account, "events.kinds");

	write_family(out, "belfry_events_total", "counter", "Events, by what happened.");
	if (!kinds)
		return;
	json_object_object_foreach(kinds, kind, value)
	{
		struct write_labels labels = { 0 };

		write_label(&labels, "event", kind);
		write_sample(out, "belfry_events_total", &labels, json_object_get_double(value));
	}
}

static void write_events(FILE *out, const struct read *read)
{
	static const struct family counts[] = {
		{ "belfry_events_lost_total", "counter",
		  "Events that a GPU server could not tell belfryd of.", "events.lost", 1, NULL },
		{ "belfry_event_commands_started_total", "counter", "Commands started for events.",
		  "events.commands_started", 1, NULL },
		{ "belfry_event_commands_failed_total", "counter",
		  "Commands for events that failed or were killed.", "events.commands_failed", 1, NULL },
		{ "belfry_event_commands_dropped_total", "counter",
		  "Events without a command, as too many were waiting.", "events.commands_dropped", 1, NULL },
	};
	struct write_labels none = { 0 };

	write_kinds(out, read);
	for (size_t i = 0; i < COUNT(counts); i++) {
		write_family(out, counts[i].name, counts[i].type, counts[i].help);
		if (read->account)
			write_sample(out, counts[i].name, &none, read_number(read->account, counts[i].path));
	}
}

static void write_build(FILE *out, const struct read *read)
{
	struct write_labels labels = { 0 };
	const char *version = read_text(read->account, "version");

	write_family(out, "belfry_build_info", "gauge", "1; the label has the version of belfryd.");
	write_label(&labels, "version", version ? version : BELFRY_VERSION);
	write_sample(out, "belfry_build_info", &labels, 1);
}

static void write_all(FILE *out, const struct read *read)
{
	for (size_t i = 0; i < COUNT(gpu_families); i++)
		write_gpu_family(out, &gpu_families[i], read);
	for (size_t i = 0; i < COUNT(vgpu_families); i++) {
		const struct family *family = &vgpu_families[i];

		write_family(out, family->name, family->type, family->help);
		write_vgpus(out, family->name, read, write_value_of, family);
	}
	for (size_t i = 0; i < COUNT(special_families); i++) {
		write_family(out, special_families[i].name, special_families[i].type,
			     special_families[i].help);
		write_vgpus(out, special_families[i].name, read, special_families[i].each, NULL);
	}
	for (size_t i = 0; i < COUNT(past_families); i++)
		write_past(out, &past_families[i], read);
	write_events(out, read);
	write_build(out, read);
}

char *metrics_text(const struct metrics_source *source, struct bf_error *err)
{
	char *text = NULL;
	struct read read;
	size_t length;
	FILE *out;

	if (read_all(&read, source, err)) {
		read_free(&read);
		return NULL;
	}
	out = open_memstream(&text, &length);
	if (out)
		write_all(out, &read);
	read_free(&read);
	if (!out || fclose(out)) {
		free(text);
		bf_fail(err, ENOMEM, "no memory for the metrics");
		return NULL;
	}
	return text;
}
