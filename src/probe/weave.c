/* Weaves PTX text: chooses what goes into each function, and copies the text with insertions. */
#include "probe/weave.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/own.h"
#include "probe/weave_inside.h"

static bool is_exit_event(enum belfry_probe_event event)
{
	return event == BELFRY_PROBE_BLOCK_EXIT || event == BELFRY_PROBE_KERNEL_EXIT ||
	       event == BELFRY_PROBE_WARP_EXIT;
}

static bool needs_exits(const struct probe *probe)
{
	const struct probe_program *program;

	for (size_t i = 0; (program = probe_program_at(probe, i)); i++)
		if (is_exit_event(program->event))
			return true;
	return false;
}

/* ---- which functions */

static void name_of(const struct function *function, char *to, size_t room)
{
	snprintf(to, room, "%.*s", (int)(function->name.length < room ? function->name.length : room - 1),
		 function->name.text);
}

static struct function *find_function(struct scan *scan, const struct view *name)
{
	for (size_t i = 0; i < scan->function_count; i++)
		if (view_is(&scan->functions[i].name, name))
			return &scan->functions[i];
	return NULL;
}

/* Marks what a reached function calls. Returns whether something was marked. */
static bool reach_from(struct scan *scan, const struct function *function)
{
	bool is_more = false;

	for (size_t i = 0; i < function->calls; i++) {
		struct function *called = find_function(scan, &scan->calls[function->calls_from + i]);

		is_more |= called && !called->is_reached;
		if (called)
			called->is_reached = true;
	}
	for (size_t i = 0; function->calls_pointers && i < scan->function_count; i++)
		if (!scan->functions[i].is_entry && !scan->functions[i].is_reached)
			is_more = scan->functions[i].is_reached = true;
	return is_more;
}

/* Device functions that a matching kernel calls are instrumented for all their callers. */
static void reach(struct scan *scan, const char *patterns)
{
	bool is_more = true;

	for (size_t i = 0; i < scan->function_count; i++) {
		char name[1024];

		name_of(&scan->functions[i], name, sizeof(name));
		scan->functions[i].is_reached = weave_matches(patterns, name);
	}
	while (is_more) {
		is_more = false;
		for (size_t i = 0; i < scan->function_count; i++)
			if (scan->functions[i].is_reached)
				is_more |= reach_from(scan, &scan->functions[i]);
	}
}

/* For each function, the probes that go into it. */
static uint32_t *choose(struct scan *scan, const struct weave_probe *probes, size_t probe_count,
			struct weave_kernel *kernels)
{
	uint32_t *active = calloc(scan->function_count + 1, sizeof(*active));

	if (!active)
		return NULL;
	for (size_t i = 0; i < probe_count; i++) {
		bool is_refused = scan->exits_inside.length && needs_exits(probes[i].probe);

		reach(scan, probes[i].kernels);
		for (size_t k = 0; k < scan->function_count; k++) {
			if (!scan->functions[k].is_reached)
				continue;
			if (is_refused)
				snprintf(kernels[k].reason, sizeof(kernels[k].reason),
					 "device function %.*s ends threads with exit",
					 (int)bf_min(scan->exits_inside.length, 40), scan->exits_inside.text);
			else
				active[k] |= 1u << i;
		}
	}
	return active;
}

/* ---- the list of functions */

static int list_kernels(const struct scan *scan, struct weave_result *result, struct bf_error *err)
{
	result->kernels = calloc(scan->function_count + 1, sizeof(*result->kernels));
	if (!result->kernels)
		return bf_fail(err, ENOMEM, "not enough memory");
	for (size_t i = 0; i < scan->function_count; i++) {
		const struct function *function = &scan->functions[i];
		struct weave_kernel *kernel = &result->kernels[result->kernel_count];

		kernel->name = strndup(function->name.text, function->name.length);
		if (!kernel->name)
			return bf_fail(err, ENOMEM, "not enough memory");
		result->kernel_count++;
		kernel->id = weave_kernel_id(kernel->name);
		kernel->is_entry = function->is_entry;
	}
	return 0;
}

static void explain(const struct weaver *weaver, struct weave_kernel *kernel)
{
	if (kernel->reason[0] || kernel->probes)
		return;
	snprintf(kernel->reason, sizeof(kernel->reason), "%s",
		 weaver->active ? "it has no place for the probe's programs" : "no pattern matches its name");
}

/* ---- the text */

/* A start of names that the text does not contain. */
static void choose_base(struct weaver *weaver, const char *text, size_t length)
{
	for (unsigned i = 0;; i++) {
		snprintf(weaver->base, sizeof(weaver->base), "bfw%ux", i);
		if (!memmem(text, length, weaver->base, strlen(weaver->base)))
			return;
	}
}

static int check_size(struct weaver *weaver)
{
	if (ftell(weaver->file) <= WEAVE_TEXT_MAX_BYTES)
		return 0;
	return bf_fail(
		weaver->err, EFBIG,
		"the text with probes would be larger than %d MiB; select fewer kernels or a smaller probe",
		WEAVE_TEXT_MAX_BYTES >> 20);
}

/* From the first instruction of the function to its last point. */
static int weave_body(struct weaver *weaver, size_t *done)
{
	const struct scan *scan = weaver->scan;
	const struct function *function = weaver->function;
	int rc;

	*done = function->first;
	rc = site_enter(weaver);
	for (size_t i = function->from; !rc && i < function->to; i++) {
		const struct point *point = &scan->points[i];

		fwrite(scan->text + *done, 1, point->at - *done, weaver->file);
		*done = point->at;
		rc = site_point(weaver, point);
		if (!rc)
			rc = check_size(weaver);
	}
	return rc;
}

/* Kernels have at most 4 KiB of parameters on all GPUs. */
enum { PARAMS_BYTES_MAX = 4096, PARAMS_MAX = 128 };

static bool can_be_timed(const struct weaver *weaver)
{
	const struct function *function = weaver->function;

	return function->is_entry && weaver->report->probes && site_needs_time(weaver) &&
	       !weaver->scan->has_debug && function->params <= PARAMS_MAX &&
	       function->params_bytes + 16 <= PARAMS_BYTES_MAX;
}

/* The kernel once more, with a parameter for the time. Labels, registers and variables of a body are its own. */
static int weave_timed(struct weaver *weaver, size_t *done)
{
	const struct scan *scan = weaver->scan;
	const struct function *function = weaver->function;
	size_t from = (size_t)(function->name.text - scan->text) + function->name.length;
	size_t to = function->params_end ? function->params_end : from;
	struct weave_kernel unused = { 0 }, *report = weaver->report;
	int rc;

	if (asprintf(&report->timed, "%s_timed_%s", weaver->base, report->name) < 0) {
		report->timed = NULL;
		return bf_fail(weaver->err, ENOMEM, "not enough memory");
	}
	report->params = function->params;
	fwrite(scan->text + *done, 1, function->end - *done, weaver->file);
	fprintf(weaver->file, "\n.visible .entry %s", report->timed);
	fwrite(scan->text + from, 1, to - from, weaver->file);
	fprintf(weaver->file, "%s.param .u64 %s_time%s",
		!function->params_end ? "("
		: function->params    ? ", "
				      : "",
		weaver->base, function->params_end ? "" : ")");
	fwrite(scan->text + to, 1, function->first - to, weaver->file);
	weaver->is_timed = true;
	weaver->report = &unused;
	rc = weave_body(weaver, done);
	weaver->report = report;
	weaver->is_timed = false;
	fwrite(scan->text + *done, 1, function->end - *done, weaver->file);
	*done = function->end;
	return rc;
}

static int weave_function(struct weaver *weaver, size_t *done)
{
	const struct function *function = weaver->function;
	int rc;

	fwrite(weaver->scan->text + *done, 1, function->first - *done, weaver->file);
	rc = weave_body(weaver, done);
	if (weaver_wants(weaver, BELFRY_PROBE_MEM_ACCESS))
		weaver->report->skipped = function->skipped;
	if (!rc && can_be_timed(weaver))
		rc = weave_timed(weaver, done);
	return rc;
}

static int weave_all(struct weaver *weaver, const uint32_t *active, struct weave_result *result)
{
	const struct scan *scan = weaver->scan;
	size_t done = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < scan->function_count; i++) {
		weaver->function = &scan->functions[i];
		weaver->report = &result->kernels[i];
		weaver->kernel = weaver->report->id;
		weaver->active = active[i];
		if (active[i])
			rc = weave_function(weaver, &done);
		explain(weaver, weaver->report);
	}
	fwrite(scan->text + done, 1, scan->length - done, weaver->file);
	return rc;
}

static bool is_woven(const struct weave_result *result)
{
	for (size_t i = 0; i < result->kernel_count; i++)
		if (result->kernels[i].probes)
			return true;
	return false;
}

static int write_text(struct weaver *weaver, const uint32_t *active, struct weave_result *result)
{
	bool is_bad;
	int rc;

	weaver->file = open_memstream(&result->text, &result->length);
	if (!weaver->file)
		return bf_fail(weaver->err, ENOMEM, "not enough memory");
	rc = weave_all(weaver, active, result);
	is_bad = ferror(weaver->file);
	if ((fclose(weaver->file) || is_bad) && !rc)
		rc = bf_fail(weaver->err, ENOMEM, "not enough memory");
	if (rc || is_woven(result))
		return rc;
	free(result->text);
	result->text = NULL;
	result->length = 0;
	return 0;
}

static int weave(struct scan *scan, const struct weave_probe *probes, size_t probe_count,
		 struct weave_result *result, struct bf_error *err)
{
	struct weaver weaver = { .scan = scan, .probes = probes, .probe_count = probe_count, .err = err };
	cleanup_free uint32_t *active = NULL;
	int rc = list_kernels(scan, result, err);

	if (rc)
		return rc;
	result->target = scan->target;
	result->text_bytes = scan->length;
	active = choose(scan, probes, probe_count, result->kernels);
	if (!active)
		return bf_fail(err, ENOMEM, "not enough memory");
	choose_base(&weaver, scan->text, scan->length);
	return write_text(&weaver, active, result);
}

int weave_text(const char *text, size_t length, const struct weave_probe *probes, size_t probe_count,
	       struct weave_result *result, struct bf_error *err)
{
	struct scan scan;
	int rc;

	*result = (struct weave_result){ 0 };
	length = strnlen(text, length); /* callers pass C strings with their NUL */
	if (length > WEAVE_TEXT_MAX_BYTES)
		return bf_fail(err, EFBIG, "the PTX has %zu bytes; the limit for probes is %d MiB", length,
			       WEAVE_TEXT_MAX_BYTES >> 20);
	if (probe_count > WEAVE_PROBES_MAX)
		return bf_fail(err, E2BIG, "%zu probes; the limit is %d", probe_count, WEAVE_PROBES_MAX);
	rc = scan_module(&scan, text, length, err);
	if (!rc)
		rc = weave(&scan, probes, probe_count, result, err);
	scan_free(&scan);
	if (rc)
		weave_result_free(result);
	return rc;
}

void weave_result_free(struct weave_result *result)
{
	for (size_t i = 0; i < result->kernel_count; i++) {
		free(result->kernels[i].name);
		free(result->kernels[i].timed);
	}
	free(result->kernels);
	free(result->text);
	*result = (struct weave_result){ 0 };
}
