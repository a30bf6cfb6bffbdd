/* What belfry verify prints. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "cli/verify.h"

void verify_print_run(const struct verify_run *run)
{
	printf("%-9s ", run->name);
	if (run->is_shared)
		printf("seed %" PRIu64 ", ", run->seed);
	printf("exit status %d, %" PRIu64 " launch%s", run->status, run->launches,
	       run->launches == 1 ? "" : "es");
	if (run->graphs)
		printf(", %" PRIu64 " launch%s of graphs", run->graphs, run->graphs == 1 ? "" : "es");
	printf(", %" PRIu64 " cop%s to the host%s%s\n", run->copies, run->copies == 1 ? "y" : "ies",
	       run->difference.way ? ": " : "", run->difference.way ? run->text : "");
	fflush(stdout);
}

void verify_print_verdict(enum verify_status status, const struct verify_run *runs, size_t count,
			  const struct verify_run *telling, size_t loose)
{
	size_t shared = 0;

	for (size_t i = 0; i < count; i++)
		shared += runs[i].is_shared;
	if (loose)
		printf("note: %zu launch%s ha%s parameters that vary from run to run; the results do not\n",
		       loose, loose == 1 ? "" : "es", loose == 1 ? "s" : "ve");
	if (runs[0].status)
		printf("note: the program exits with status %d, also alone\n", runs[0].status);
	if (status == VERIFY_IS_IDENTICAL)
		printf("identical: %zu runs alone and %zu shared did the same\n", count - shared, shared);
	else if (status == VERIFY_IS_UNSTABLE)
		printf("differs from itself: runs alone did not do the same; %s\n", telling->text);
	else
		printf("changed: sharing changed what the program did; %s\n", telling->text);
}

static struct json_object *run_json(const struct verify_run *run)
{
	struct json_object *to = json_object_new_object();

	json_add_text(to, "name", run->name);
	json_add_bool(to, "shared", run->is_shared);
	if (run->is_shared)
		json_add_number(to, "seed", run->seed);
	json_add_number(to, "status", (uint64_t)run->status);
	json_add_number(to, "processes", run->processes);
	json_add_number(to, "launches", run->launches);
	json_add_number(to, "graph_launches", run->graphs);
	json_add_number(to, "copies", run->copies);
	json_add_bool(to, "identical", !run->difference.way);
	if (run->difference.way) {
		json_add_text(to, "difference", run->text);
		json_add_text(to, "kernel", run->kernel[0] ? run->kernel : NULL);
	}
	return to;
}

void verify_print_json(enum verify_status status, const struct verify *verify, const struct verify_run *runs,
		       size_t count, size_t loose, const char *error)
{
	static const char *const verdicts[] = { [VERIFY_IS_IDENTICAL] = "identical",
						[VERIFY_IS_CHANGED] = "changed",
						[VERIFY_IS_UNSTABLE] = "unstable",
						[VERIFY_IS_UNKNOWN] = "unknown" };
	struct json_object *top = json_object_new_object(), *all = json_object_new_array();

	for (size_t i = 0; i < count; i++)
		json_object_array_add(all, run_json(&runs[i]));
	json_add_text(top, "verdict", verdicts[status]);
	if (error)
		json_add_text(top, "error", error);
	json_add_number(top, "seed", verify->seed.value);
	json_add_number(top, "varying_parameters", loose);
	json_add(top, "runs", all);
	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
	json_object_put(top);
}
