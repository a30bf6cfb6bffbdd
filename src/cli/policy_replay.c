#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "cli/policy.h"
#include "cli/policy_play.h"
#include "cli/report.h"
#include "replay/decision.h"
#include "replay/replay.h"

static const char built_in[] = "built-in";

/* The run time of a hook differs from that in a GPU server: the budget is so large that no policy exceeds
 * it. */
static const uint64_t budget_ns = 1000000000;

/* Returns 0 with *policy NULL for the built-in policy. */
static int load(const struct policy_args *args, const char *name, struct policy **policy,
		struct bf_error *err)
{
	struct policy_options options = { .budget_ns = budget_ns };
	struct policy_file file = { .bytes = NULL };
	struct bf_error why = { 0 };
	int rc;

	*policy = NULL;
	if (!strcmp(name, built_in))
		return 0;
	if (name == args->with) {
		options.sets = args->sets;
		options.set_count = args->set_count;
	}
	rc = policy_object_read(name, &file, err);
	if (rc)
		return rc;
	*policy = policy_load(file.bytes, file.size, &options, NULL, &why);
	if (!*policy)
		rc = bf_fail(err, why.code, "%.100s: %.270s", file.path, why.text);
	free(file.bytes);
	return rc;
}

static const char *name_of(const struct replay_result *result, uint64_t id, char *to, size_t room)
{
	for (size_t i = 0; i < result->vgpu_count; i++)
		if (result->vgpus[i].id == id && result->vgpus[i].name[0])
			return result->vgpus[i].name;
	if (id)
		snprintf(to, room, "vGPU %llu", (unsigned long long)id);
	else
		snprintf(to, room, "nobody");
	return to;
}

static void print_vgpus(const struct replay_result *result)
{
	char name[32];

	printf("%-24s %17s %23s %17s\n", "", "PICKED", "SLICES, ms", "STOPPED FOR IT");
	printf("%-24s %8s %8s %11s %11s %8s %8s\n", "NAME", "WAS", "WOULD BE", "WAS", "WOULD BE", "WAS",
	       "WOULD BE");
	for (size_t i = 0; i < result->vgpu_count; i++) {
		const struct replay_vgpu *v = &result->vgpus[i];

		printf("%-24s %8llu %8llu %11.1f %11.1f %8llu %8llu\n",
		       name_of(result, v->id, name, sizeof(name)), (unsigned long long)v->picked[0],
		       (unsigned long long)v->picked[1], (double)v->slice_ns[0] / 1e6,
		       (double)v->slice_ns[1] / 1e6, (unsigned long long)v->stopped_for[0],
		       (unsigned long long)v->stopped_for[1]);
	}
}

static void print_difference(const struct replay_result *result, const struct replay_difference *d)
{
	char was[32], is[32], was_value[32], is_value[32];

	printf("  %.3f s, %s: was %s %s, would be %s %s\n", (double)(d->at_ns - result->first_ns) / 1e9,
	       policy_hook_name(d->hook), name_of(result, d->was_id, was, sizeof(was)),
	       decision_value(d->hook, d->was_ns, d->at_ns, was_value, sizeof(was_value)),
	       name_of(result, d->is_id, is, sizeof(is)),
	       decision_value(d->hook, d->is_ns, d->at_ns, is_value, sizeof(is_value)));
}

/* Hooks whose results are not compared: the record does not have their outcome, or they do not decide about
 * turns. The simulation calls the first PLAYED of them. */
static const enum belfry_hook not_compared[] = { BELFRY_HOOK_TICK, BELFRY_HOOK_ENQUEUE, BELFRY_HOOK_CTX_INIT,
						 BELFRY_HOOK_MEM_ALLOC, BELFRY_HOOK_MEM_PRESSURE };
enum { NOT_COMPARED = sizeof(not_compared) / sizeof(not_compared[0]), PLAYED = 2 };

struct asked {
	struct replay_result result;
	uint32_t hooks; /* a bit for each hook that the policy has */
};

static void print_not_compared(const struct asked *asked, const char *with, size_t first, size_t end,
			       const char *what)
{
	char names[96];
	size_t used = 0;

	for (size_t i = first; i < end; i++)
		if (asked->hooks >> not_compared[i] & 1)
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
						 used ? " and " : "", policy_hook_name(not_compared[i]));
	if (used)
		printf("%s also decides by %s: %s\n", with, names, what);
}

static void print_heading(const struct replay_result *result, const char *with)
{
	if (result->asked)
		printf("%llu decisions in %.1f s (%llu lost); %s was asked %llu times: %llu the same, "
		       "%llu others, %llu changed to keep limits and requested shares\n",
		       (unsigned long long)result->entries,
		       (double)(result->last_ns - result->first_ns) / 1e9, (unsigned long long)result->lost,
		       with, (unsigned long long)result->asked, (unsigned long long)result->same,
		       (unsigned long long)result->different, (unsigned long long)result->clamped);
	else if (result->entries)
		printf("none of the record's decisions (%llu) is a pick or a preempt: nothing can be "
		       "compared\n",
		       (unsigned long long)result->entries);
	else
		printf("the record has no decisions: nothing can be compared\n");
	if (result->why[0])
		printf("%s failed on the way: %s\n", with, result->why);
}

static void print_text(const struct asked *asked, const struct policy_play *play)
{
	const struct replay_result *result = &asked->result;
	const char *with = play->with_name;

	print_heading(result, with);
	print_not_compared(asked, with, 0, PLAYED,
			   play->has_work ? "not compared here, but the play below asks that too"
					  : "not compared here");
	print_not_compared(asked, with, PLAYED, NOT_COMPARED, "neither compared here nor played");
	if (result->asked)
		print_vgpus(result);
	if (result->difference_count)
		printf("the first differences, from the beginning of the record:\n");
	for (size_t i = 0; i < result->difference_count; i++)
		print_difference(result, &result->differences[i]);
	policy_play_print(play);
}

static struct json_object *pair(const uint64_t *values)
{
	struct json_object *to = json_object_new_object();

	json_add_number(to, "was", values[0]);
	json_add_number(to, "would_be", values[1]);
	return to;
}

static struct json_object *vgpus_json(const struct replay_result *result)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < result->vgpu_count; i++) {
		const struct replay_vgpu *v = &result->vgpus[i];
		struct json_object *to = json_object_new_object();

		json_add_number(to, "id", v->id);
		json_add_text(to, "name", v->name);
		json_add(to, "picked", pair(v->picked));
		json_add(to, "slice_ns", pair(v->slice_ns));
		json_add(to, "stopped_for", pair(v->stopped_for));
		json_object_array_add(list, to);
	}
	return list;
}

static struct json_object *differences_json(const struct replay_result *result)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < result->difference_count; i++) {
		const struct replay_difference *d = &result->differences[i];
		struct json_object *to = json_object_new_object();

		json_add_number(to, "at_ns", d->at_ns);
		json_add_text(to, "hook", policy_hook_name(d->hook));
		json_add(to, "id", pair((const uint64_t[]){ d->was_id, d->is_id }));
		json_add(to, "value", pair((const uint64_t[]){ d->was_ns, d->is_ns }));
		json_object_array_add(list, to);
	}
	return list;
}

static struct json_object *not_compared_json(const struct asked *asked)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < NOT_COMPARED; i++)
		if (asked->hooks >> not_compared[i] & 1)
			json_object_array_add(list,
					      json_object_new_string(policy_hook_name(not_compared[i])));
	return list;
}

static void print_json(const struct asked *asked, const struct policy_play *play)
{
	const struct replay_result *result = &asked->result;
	struct json_object *top = json_object_new_object();

	json_add_number(top, "decisions", result->entries);
	json_add_number(top, "lost", result->lost);
	json_add_number(top, "asked", result->asked);
	json_add_number(top, "same", result->same);
	json_add_number(top, "different", result->different);
	json_add_number(top, "clamped", result->clamped);
	json_add_number(top, "failed", result->failed);
	json_add_number(top, "ns", result->last_ns - result->first_ns);
	json_add_bool(top, "cut_off", result->is_cut_off);
	json_add(top, "not_compared", not_compared_json(asked));
	json_add_text(top, "why", result->why[0] ? result->why : NULL);
	json_add(top, "vgpus", vgpus_json(result));
	json_add(top, "differences", differences_json(result));
	json_add(top, "play", policy_play_json(play));
	json_add_text(top, "not_played", play->why_not[0] ? play->why_not : NULL);
	report_print(top);
	json_object_put(top);
}

/* Prefix an error with the name of the record. */
static int fail_record(const struct policy_args *args, const struct bf_error *why, struct bf_error *err)
{
	return bf_fail(err, why->code, "%.100s: %.270s", args->name, why->text);
}

static int ask_again(const struct policy_args *args, FILE *record, struct asked *asked, struct bf_error *err)
{
	struct policy *policy;
	struct bf_error why = { 0 };
	int rc = load(args, args->with, &policy, err);

	if (rc)
		return rc;
	for (int hook = 0; policy && hook < BELFRY_HOOKS; hook++)
		asked->hooks |= (uint32_t)policy_has(policy, (enum belfry_hook)hook) << hook;
	if (replay_run(record, policy, (size_t)args->most, &asked->result, &why))
		rc = fail_record(args, &why, err);
	policy_put(policy);
	return rc;
}

/* Loads the policies again: those of ask_again may have changed their state. */
static int play_again(const struct policy_args *args, FILE *record, struct policy_play *play,
		      struct bf_error *err)
{
	const char *name = args->against ? args->against : built_in;
	struct policy *against = NULL, *with = NULL;
	struct bf_error why = { 0 };
	int rc = load(args, name, &against, err);

	if (!rc)
		rc = load(args, args->with, &with, err);
	snprintf(play->baseline_name, sizeof(play->baseline_name), "%s",
		 against ? policy_name(against) : built_in);
	snprintf(play->with_name, sizeof(play->with_name), "%s", with ? policy_name(with) : built_in);
	if (!rc && policy_play_run(play, record, against, with, &why))
		rc = fail_record(args, &why, err);
	policy_put(against);
	policy_put(with);
	return rc;
}

/* A record is read more than once, so the content of a pipe is copied. This is the limit. */
static const size_t pipe_most_bytes = 1u << 30;

/* Read from a non-blocking pipe. Returns 0 at the end. */
static ssize_t read_pipe(int from, void *to, size_t room)
{
	struct pollfd fds = { from, POLLIN, 0 };
	ssize_t got;

	do
		got = read(from, to, room);
	while (got < 0 && (errno == EINTR || (errno == EAGAIN && poll(&fds, 1, -1) >= 0)));
	return got;
}

static int copy_pipe(int from, int to, struct bf_error *err)
{
	char bytes[1 << 16];
	size_t all = 0;
	ssize_t got;

	while ((got = read_pipe(from, bytes, sizeof(bytes))) > 0) {
		all += (size_t)got;
		if (all > pipe_most_bytes)
			return bf_fail(err, EFBIG, "more than %zu bytes through a pipe; give the file itself",
				       pipe_most_bytes);
		if (write(to, bytes, (size_t)got) != got)
			return bf_fail(err, ENOMEM, "no memory for what comes through a pipe");
	}
	if (got < 0 || lseek(to, 0, SEEK_SET) < 0)
		return bf_fail(err, errno, "%s", strerror(errno));
	return all ? 0 : bf_fail(err, ENODATA, "nothing came through this pipe");
}

/* A seekable descriptor of the record. Opening a pipe does not wait for a writer. */
static int open_again_and_again(const char *path, struct bf_error *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), copy = -1;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st))
		return bf_fail(err, errno, "%s", strerror(errno));
	if (S_ISREG(st.st_mode))
		return bf_take_fd(&fd);
	if (!S_ISFIFO(st.st_mode))
		return bf_fail(err, EINVAL, "neither a plain file nor a pipe");
	copy = memfd_create("belfry-record", MFD_CLOEXEC);
	if (copy < 0)
		return bf_fail(err, errno, "no memory for what comes through a pipe: %s", strerror(errno));
	rc = copy_pipe(fd, copy, err);
	return rc ? rc : bf_take_fd(&copy);
}

static FILE *open_record(const struct policy_args *args, struct bf_error *err)
{
	struct bf_error why = { 0 };
	int fd = open_again_and_again(args->name, &why);
	FILE *record = NULL;

	if (fd < 0) {
		fail_record(args, &why, err);
		return NULL;
	}
	record = fdopen(fd, "r");
	if (!record) {
		close(fd);
		bf_fail(err, ENOMEM, "out of memory");
	}
	return record;
}

static int replay(struct policy_args *args)
{
	struct asked asked = { .hooks = 0 };
	struct policy_play play = { .has_work = false };
	struct bf_error err = { 0 };
	cleanup_file FILE *record = NULL;
	int rc;

	if (!args->with)
		return cli_usage("policy replay", "say with which policy, by --with");
	if (args->set_count && !strcmp(args->with, built_in))
		return cli_usage("policy replay",
				 "--set is for the policy of --with, and the built-in has nothing to set");
	record = open_record(args, &err);
	if (!record)
		return cli_fail(&err);
	rc = ask_again(args, record, &asked, &err);
	if (!rc && asked.result.is_cut_off)
		fprintf(stderr, "belfry: %s: the last entry is cut off: what comes before is used\n",
			args->name);
	if (!rc)
		rc = play_again(args, record, &play, &err);
	if (!rc && args->is_json)
		print_json(&asked, &play);
	else if (!rc)
		print_text(&asked, &play);
	replay_free(&asked.result);
	policy_play_free(&play);
	return rc ? cli_fail(&err) : CLI_OK;
}

static const struct bf_option replay_options[] = {
	BF_OPTION("with", 0, "POLICY",
		  "the policy: an object, one that comes with Belfry, or built-in (required)", bf_take_text,
		  struct policy_args, with),
	{ "set", 0, "K=V", "set a tunable of that policy; may be given several times", policy_take_set, 0,
	  NULL },
	BF_OPTION("against", 0, "POLICY", "the policy to compare the simulation with (default: built-in)",
		  bf_take_text, struct policy_args, against),
	BF_OPTION("most", 0, "N", "number of differences to show (default: 10)", policy_take_most,
		  struct policy_args, most),
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct policy_args, is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_replay_command = {
	.command = {
		.name = "policy replay",
		.about = "usage: belfry policy replay FILE --with FILE|NAME|built-in [OPTION...]\n"
			 "\n"
			 "Show what another policy would have decided in a record of belfry policy record. First, each\n"
			 "decision is put to it, with what was known at that time, and its answers to pick and preempt are\n"
			 "compared with those of the record. Then the work of the record is played on a simulated GPU,\n"
			 "under both policies, and the results are compared for each vGPU.\n",
		.options = replay_options,
		.least = 1,
		.most = 1,
		.wrong_count = "give the file of one record",
	},
	.main = replay,
	.lists_shipped = true,
};
