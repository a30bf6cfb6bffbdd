/* belfry policy replay: simulate the work of the record under two policies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/policy.h"
#include "cli/policy_play.h"

static int play_with(struct policy_play *play, struct policy *policy, struct play_result *result,
		     struct bf_error *err)
{
	return play_run(&play->workload, policy, PLAY_EVENTS_MAX, result, err);
}

static bool has_work(const struct workload *workload)
{
	for (unsigned i = 0; i < workload->vgpu_count; i++)
		if (workload->vgpus[i].count || workload->vgpus[i].was.gpu_ns)
			return true;
	return false;
}

int policy_play_run(struct policy_play *play, FILE *record, struct policy *against, struct policy *with,
		    struct bf_error *err)
{
	struct bf_error why = { 0 };
	int rc = workload_read(record, &play->workload, &why);

	if (rc == -ENODATA || (!rc && !has_work(&play->workload)))
		return 0;
	if (rc == -E2BIG) {
		snprintf(play->why_not, sizeof(play->why_not), "%.255s", why.text);
		return 0;
	}
	if (rc)
		*err = why;
	if (!rc)
		rc = play_with(play, against, &play->baseline, err);
	if (!rc)
		rc = play_with(play, with, &play->with, err);
	play->has_work = !rc;
	return rc;
}

void policy_play_free(struct policy_play *play)
{
	workload_free(&play->workload);
	play_free(&play->baseline);
	play_free(&play->with);
}

/* "-" if the value is unknown. */
static const char *ms(uint64_t ns, bool is_known, char *to, size_t room)
{
	snprintf(to, room, is_known ? "%.2f" : "-", (double)ns / 1e6);
	return to;
}

static void print_figures(const struct workload *workload, const char *who, const char *how,
			  const struct workload_figures *f, bool is_play)
{
	char p50[24], tail[24], wait[24];

	printf("%-20.20s %-16.16s %11.1f %6.1f %6llu %9s %9s %6llu %9s %7llu %6llu\n", who, how,
	       (double)f->gpu_ns / 1e6, workload->ns ? 100.0 * (double)f->gpu_ns / (double)workload->ns : 0,
	       (unsigned long long)f->done, ms(f->p50_ns, f->done, p50, sizeof(p50)),
	       ms(f->tail_ns, f->done, tail, sizeof(tail)), (unsigned long long)f->late,
	       ms(f->longest_wait_ns, is_play, wait, sizeof(wait)), (unsigned long long)f->slices,
	       (unsigned long long)f->stops);
}

static void print_trouble(const struct policy_play *play, const struct play_result *result, const char *name)
{
	if (result->why[0])
		printf("%s was put out in the play: %s\n", name, result->why);
	if (result->ns < play->workload.ns)
		printf("the play of %s was cut off after %.3f s: too much happens in so short a time\n", name,
		       (double)result->ns / 1e9);
}

/* A recorded policy can be loaded by name if it comes with Belfry, otherwise from its file. */
static void print_hint(const char *recorded)
{
	char whose[BELFRY_NAME_SIZE + 32];

	if (!recorded[0])
		snprintf(whose, sizeof(whose), "POLICY");
	else if (!strcmp(recorded, "built-in") || policy_is_shipped(recorded))
		snprintf(whose, sizeof(whose), "%s", recorded);
	else
		snprintf(whose, sizeof(whose), "with the file of %s", recorded);
	printf("They are not the same policy: --against %s would tell how far the play can be trusted.\n",
	       whose);
}

static void print_agreement(const struct policy_play *play)
{
	struct play_agreement a = play_agreement(&play->workload, &play->baseline);
	const char *under = play->workload.policy[0] ? play->workload.policy : "several policies";

	printf("%s, played, and what was recorded (under %s) differ by at most %.1f points of GPU time",
	       play->baseline_name, under, a.share_points);
	if (a.p50_percent >= 0)
		printf(", %.0f %% in the median and %.0f %% in the tail", a.p50_percent, a.tail_percent);
	printf(".\n");
	if (strcmp(under, play->baseline_name) != 0)
		print_hint(play->workload.policy);
	else
		printf("Differences of this size between the two plays mean nothing.\n");
}

void policy_play_print(const struct policy_play *play)
{
	const struct workload *workload = &play->workload;

	if (play->why_not[0]) {
		printf("nothing can be played: %s\n", play->why_not);
		return;
	}
	if (!play->has_work) {
		printf("the record says nothing of any work: nothing can be played\n");
		return;
	}
	printf("the work of the record, %.1f s, played on a simulated GPU:\n", (double)workload->ns / 1e9);
	printf("%-20s %-16s %11s %6s %6s %9s %9s %6s %9s %7s %6s\n", "NAME", "UNDER", "GPU, ms", "%", "DONE",
	       "P50, ms", "TAIL, ms", "LATE", "WAIT, ms", "SLICES", "STOPS");
	for (unsigned i = 0; i < workload->vgpu_count; i++) {
		const struct workload_vgpu *v = &workload->vgpus[i];

		print_figures(workload, v->name, "(recorded)", &v->was, false);
		print_figures(workload, "", play->baseline_name, &play->baseline.vgpus[i], true);
		print_figures(workload, "", play->with_name, &play->with.vgpus[i], true);
	}
	if (workload->idle_count)
		printf("left out: %zu that had no work\n", workload->idle_count);
	print_trouble(play, &play->baseline, play->baseline_name);
	print_trouble(play, &play->with, play->with_name);
	print_agreement(play);
}

static struct json_object *figures_json(const struct workload *workload, const struct workload_figures *f,
					bool is_play)
{
	struct json_object *to = json_object_new_object();
	double share = workload->ns ? (double)f->gpu_ns / (double)workload->ns : 0;

	json_add_number(to, "gpu_ns", f->gpu_ns);
	json_add_real(to, "share", share);
	json_add_number(to, "done", f->done);
	json_add_number(to, "late", f->late);
	json_add_number(to, "p50_ns", f->p50_ns);
	json_add_number(to, "tail_ns", f->tail_ns);
	if (is_play)
		json_add_number(to, "longest_wait_ns", f->longest_wait_ns);
	json_add_number(to, "slices", f->slices);
	json_add_number(to, "stops", f->stops);
	return to;
}

static struct json_object *result_json(const struct policy_play *play, const struct play_result *result,
				       const char *name)
{
	struct json_object *to = json_object_new_object();

	json_add_text(to, "policy", name);
	json_add_text(to, "why", result->why[0] ? result->why : NULL);
	json_add_bool(to, "cut_off", result->ns < play->workload.ns);
	json_add_number(to, "ns", result->ns);
	return to;
}

static struct json_object *agreement_json(const struct policy_play *play)
{
	struct play_agreement a = play_agreement(&play->workload, &play->baseline);
	struct json_object *to = json_object_new_object();
	bool has_times = a.p50_percent >= 0;

	json_add_bool(to, "same_policy", !strcmp(play->workload.policy, play->baseline_name));
	json_add_real(to, "share_points", a.share_points);
	json_add(to, "p50_percent", has_times ? json_object_new_double(a.p50_percent) : NULL);
	json_add(to, "tail_percent", has_times ? json_object_new_double(a.tail_percent) : NULL);
	return to;
}

struct json_object *policy_play_json(const struct policy_play *play)
{
	const struct workload *workload = &play->workload;
	struct json_object *to, *list;

	if (!play->has_work)
		return NULL;
	to = json_object_new_object();
	list = json_object_new_array();
	json_add_number(to, "ns", workload->ns);
	json_add_text(to, "recorded_under", workload->policy[0] ? workload->policy : NULL);
	json_add(to, "baseline", result_json(play, &play->baseline, play->baseline_name));
	json_add(to, "with", result_json(play, &play->with, play->with_name));
	for (unsigned i = 0; i < workload->vgpu_count; i++) {
		const struct workload_vgpu *v = &workload->vgpus[i];
		struct json_object *one = json_object_new_object();

		json_add_number(one, "id", v->id);
		json_add_text(one, "name", v->name);
		json_add_number(one, "objective_ns", v->share.objective_ns);
		json_add(one, "recorded", figures_json(workload, &v->was, false));
		json_add(one, "baseline", figures_json(workload, &play->baseline.vgpus[i], true));
		json_add(one, "with", figures_json(workload, &play->with.vgpus[i], true));
		json_object_array_add(list, one);
	}
	json_add(to, "vgpus", list);
	json_add_number(to, "idle", workload->idle_count);
	json_add(to, "agreement", agreement_json(play));
	return to;
}
