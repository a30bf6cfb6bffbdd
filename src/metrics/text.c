/* From JSON to the text format of Prometheus (version 0.0.4). The names of what DCGM's exporter also tells are its names
 * with another prefix, in its units: a dashboard needs only the prefix changed. */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "metrics/metrics.h"

#define MIB 1048576.0
#define NS 1e-9

enum scope { SCOPE_GPU = 1, SCOPE_VGPU = 2, SCOPE_BOTH = 3 };

/* One GPU's report. */
struct report {
	struct json_object *root, *gpu, *vgpus;
};

/* A value at a path of the GPU or vGPU, or one that is worked out. */
struct family {
	const char *name, *type, *help;
	enum scope scope;
	const char *gpu_path, *vgpu_path;
	double scale;
	double (*work_out)(const struct report *report, struct json_object *vgpu);
};

/* "mem.used": NULL if there is none. */
static struct json_object *find(struct json_object *in, const char *path)
{
	char part[32];

	while (in && *path) {
		size_t length = strcspn(path, ".");

		snprintf(part, sizeof(part), "%.*s", (int)length, path);
		in = json_object_object_get(in, part);
		path += length + (path[length] == '.');
	}
	return in;
}

static double number(struct json_object *in, const char *path)
{
	return json_object_get_double(find(in, path));
}

/* Of the last window, 0 to 1. */
static double share(const struct report *report, struct json_object *vgpu)
{
	double sum = 0;

	if (vgpu)
		return number(vgpu, "time.share");
	for (size_t i = 0; i < json_object_array_length(report->vgpus); i++)
		sum += number(json_object_array_get_idx(report->vgpus, i), "time.share");
	return sum > 1 ? 1 : sum;
}

static double percent(const struct report *report, struct json_object *vgpu)
{
	return share(report, vgpu) * 100;
}

static double fb_total(const struct report *report, struct json_object *vgpu)
{
	double limit = vgpu ? number(vgpu, "mem.limit") : 0;

	return (limit > 0 ? limit : number(report->gpu, "mem.total")) / MIB;
}

static double fb_used(const struct report *report, struct json_object *vgpu)
{
	return number(vgpu ? vgpu : report->gpu, "mem.used") / MIB;
}

static double fb_free(const struct report *report, struct json_object *vgpu)
{
	double left = fb_total(report, vgpu) - fb_used(report, vgpu);

	return left > 0 ? left : 0;
}

static const struct family families[] = {
	{ "BELFRY_FI_DEV_GPU_UTIL", "gauge", "GPU time used in the last window (in %).", SCOPE_BOTH, NULL,
	  NULL, 1, percent },
	{ "BELFRY_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "GPU time used in the last window (0 to 1).",
	  SCOPE_BOTH, NULL, NULL, 1, share },
	{ "BELFRY_FI_PROF_SM_ACTIVE", "gauge",
	  "How busy the SMs are (0 to 1); of a vGPU, while it runs, as far as that can be told apart.",
	  SCOPE_BOTH, "busy.sm", "busy.sm", 1, NULL },
	{ "BELFRY_FI_PROF_DRAM_ACTIVE", "gauge", "How busy the memory bus is, likewise.", SCOPE_BOTH,
	  "busy.memory", "busy.memory", 1, NULL },
	{ "BELFRY_FI_DEV_FB_USED", "gauge", "Device memory used (in MiB).", SCOPE_BOTH, NULL, NULL, 1,
	  fb_used },
	{ "BELFRY_FI_DEV_FB_FREE", "gauge", "Device memory free (in MiB); of a vGPU, within its limit.",
	  SCOPE_BOTH, NULL, NULL, 1, fb_free },
	{ "BELFRY_FI_DEV_FB_TOTAL", "gauge", "Device memory (in MiB); of a vGPU, its limit.", SCOPE_BOTH,
	  NULL, NULL, 1, fb_total },
	{ "belfry_gpu_reserved_bytes", "gauge", "Device memory set aside for vGPUs.", SCOPE_GPU,
	  "mem.reserved", NULL, 1, NULL },
	{ "belfry_gpu_request_ratio", "gauge", "Sum of the GPU time guaranteed to vGPUs (0 to 1).", SCOPE_GPU,
	  "request", NULL, 1, NULL },
	{ "belfry_gpu_busy_seconds_total", "counter", "Time the GPU was in use.", SCOPE_GPU, "busy_ns", NULL,
	  NS, NULL },
	{ "belfry_gpu_handovers_total", "counter", "Times the GPU went from one vGPU to another.", SCOPE_GPU,
	  "handovers", NULL, 1, NULL },
	{ "belfry_vgpu_request_ratio", "gauge", "GPU time guaranteed (0 to 1).", SCOPE_VGPU, NULL,
	  "time.request", 1, NULL },
	{ "belfry_vgpu_limit_ratio", "gauge", "GPU time not passed over a window (0 to 1).", SCOPE_VGPU, NULL,
	  "time.limit", 1, NULL },
	{ "belfry_vgpu_gpu_seconds_total", "counter", "GPU time used.", SCOPE_VGPU, NULL, "time.gpu_ns", NS,
	  NULL },
	{ "belfry_vgpu_waited_seconds_total", "counter", "Time with work and without the GPU.", SCOPE_VGPU,
	  NULL, "time.waited_ns", NS, NULL },
	{ "belfry_vgpu_stopped_seconds_total", "counter", "Time its channels were stopped.", SCOPE_VGPU, NULL,
	  "tokens.stopped_ns", NS, NULL },
	{ "belfry_vgpu_tokens_granted_total", "counter", "Tokens granted.", SCOPE_VGPU, NULL,
	  "tokens.granted", 1, NULL },
	{ "belfry_vgpu_tokens_expired_total", "counter", "Tokens that ran out.", SCOPE_VGPU, NULL,
	  "tokens.expired", 1, NULL },
	{ "belfry_vgpu_tokens_given_back_total", "counter", "Tokens given back before they ran out.",
	  SCOPE_VGPU, NULL, "tokens.given_back", 1, NULL },
	{ "belfry_vgpu_stops_total", "counter", "Times its channels were stopped.", SCOPE_VGPU, NULL,
	  "tokens.stops", 1, NULL },
	{ "belfry_vgpu_submissions_total", "counter", "Submissions passed on to the GPU.", SCOPE_VGPU, NULL,
	  "submissions.forwards", 1, NULL },
	{ "belfry_vgpu_refusals_total", "counter", "Driver calls refused.", SCOPE_VGPU, NULL, "refusals", 1,
	  NULL },
	{ "belfry_vgpu_missed_objectives_total", "counter",
	  "Submissions that took longer than the objective.", SCOPE_VGPU, NULL, "latency.missed", 1, NULL },
	{ "belfry_vgpu_faults_total", "counter", "Faults on the GPU that ended a context of its programs.",
	  SCOPE_VGPU, NULL, "faults.count", 1, NULL },
	{ "belfry_vgpu_memory_high_water_bytes", "gauge", "The most device memory it has used.", SCOPE_VGPU,
	  NULL, "mem.most", 1, NULL },
};

/* A label's value: a backslash, a quote and a new line have to be escaped, and nothing else. */
static void write_label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; value && *value; value++)
		if (*value == '\n')
			fputs("\\n", out);
		else
			fprintf(out, "%s%c", *value == '\\' || *value == '"' ? "\\" : "", *value);
	fputc('"', out);
}

static void write_sample(FILE *out, const struct family *family, const struct report *report,
			 struct json_object *vgpu)
{
	const char *path = vgpu ? family->vgpu_path : family->gpu_path;
	struct json_object *value = family->work_out ? NULL : find(vgpu ? vgpu : report->gpu, path);

	if (!family->work_out && !value)
		return; /* this one does not tell */
	fprintf(out, "%s{", family->name);
	write_label(out, "gpu", json_object_get_string(find(report->gpu, "gpu")));
	if (vgpu) {
		fputc(',', out);
		write_label(out, "vgpu", json_object_get_string(find(vgpu, "name")));
		fputc(',', out);
		write_label(out, "class", json_object_get_string(find(vgpu, "class")));
	}
	fprintf(out, "} %.15g\n",
		family->work_out ? family->work_out(report, vgpu)
				 : json_object_get_double(value) * family->scale);
}

static void write_family(FILE *out, const struct family *family, const struct report *reports, unsigned count)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name, family->type);
	for (unsigned i = 0; i < count; i++) {
		if (family->scope & SCOPE_GPU)
			write_sample(out, family, &reports[i], NULL);
		if (!(family->scope & SCOPE_VGPU))
			continue;
		for (size_t j = 0; j < json_object_array_length(reports[i].vgpus); j++) {
			struct json_object *vgpu = json_object_array_get_idx(reports[i].vgpus, j);

			if (json_object_is_type(vgpu, json_type_object))
				write_sample(out, family, &reports[i], vgpu);
		}
	}
}

static char *write_all(const struct report *reports, unsigned count, struct bf_error *err)
{
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	for (size_t i = 0; out && i < sizeof(families) / sizeof(families[0]); i++)
		write_family(out, &families[i], reports, count);
	if (!out || fclose(out)) {
		free(text);
		bf_fail(err, ENOMEM, "no memory for the metrics");
		return NULL;
	}
	return text;
}

char *metrics_text(const char *const *reports, unsigned count, struct bf_error *err)
{
	cleanup_free struct report *parts = calloc(count + 1, sizeof(*parts));
	char *text = NULL;
	unsigned good = 0;

	for (; parts && good < count; good++) {
		parts[good].root = json_tokener_parse(reports[good]);
		parts[good].gpu = find(parts[good].root, "gpu");
		parts[good].vgpus = find(parts[good].root, "vgpus");
		if (!json_object_is_type(parts[good].gpu, json_type_object) ||
		    !json_object_is_type(parts[good].vgpus, json_type_array))
			break;
	}
	if (parts && good == count)
		text = write_all(parts, count, err);
	else
		bf_fail(err, EPROTO, "belfryd's report is not understood; use programs of one release");
	for (unsigned i = 0; parts && i < count; i++)
		json_object_put(parts[i].root);
	return text;
}
