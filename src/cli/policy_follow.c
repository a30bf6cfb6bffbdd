/* belfry policy trace and record: decisions as they are made, printed or written to a file. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/own.h"
#include "cli/policy.h"
#include "cli/report.h"
#include "replay/decision.h"
#include "replay/record.h"

enum { TAKEN_AT_ONCE = 64 };

struct follow {
	const struct policy_args *args;
	int sock, signals; /* signals -1: a signal handler exits the process */
	uint64_t until_ns; /* 0: no limit */
	uint64_t entries, lost;
	struct policy_names *names;
	int64_t calendar_ns; /* CLOCK_REALTIME minus the clock of decisions */
	FILE *to;
	int (*watch)(struct follow *follow, struct bf_error *err); /* sets up the signals */
	int (*take)(struct follow *follow, const struct record_entry *entry, struct bf_error *err);
	void (*tell)(const struct follow *follow); /* called once a second; NULL: not called */
};

static int open_follow(struct follow *follow, uint32_t flags, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_POLICY_FOLLOW, NULL);
	struct protocol_reply reply;
	struct talk_place place;
	int rc = policy_args_request(follow->args, &request, err);

	if (!rc)
		rc = talk_find(&place, err);
	if (rc)
		return rc;
	request.flags = flags;
	follow->sock = talk_connect(&place, err);
	if (follow->sock < 0)
		return follow->sock;
	rc = talk_ask(follow->sock, &request, &reply, NULL, err);
	if (rc)
		return rc;
	follow->names = policy_names_new(&reply.gpu);
	return follow->names ? 0 : bf_fail(err, ENOMEM, "out of memory");
}

/* Receive a limited number of entries: the caller also has to check the time and the signals. */
static int take_some(struct follow *follow, void *buffer, struct bf_error *err)
{
	for (int i = 0; i < TAKEN_AT_ONCE; i++) {
		ssize_t got = recv(follow->sock, buffer, RECORD_ENTRY_MAX, MSG_DONTWAIT);
		const struct record_entry *entry = buffer;
		int rc;

		if (got < 0)
			return errno == EAGAIN || errno == EINTR
				       ? 0
				       : bf_fail(err, errno, "belfryd has gone: %s", strerror(errno));
		if (!got)
			return bf_fail(err, ECONNRESET, "the GPU server has ended");
		rc = record_check(buffer, (size_t)got, err);
		if (rc)
			return rc;
		follow->entries += entry->kind == RECORD_DECISION;
		follow->lost += entry->lost;
		rc = follow->take(follow, entry, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Receive until the time is over, a signal arrives, or an error occurs. */
static int work(struct follow *follow, struct bf_error *err)
{
	struct pollfd fds[] = { { follow->sock, POLLIN, 0 }, { follow->signals, POLLIN, 0 } };
	cleanup_free void *buffer = malloc(RECORD_ENTRY_MAX);
	uint64_t told_ns = bf_now_ns();
	int rc = 0;

	if (!buffer)
		return bf_fail(err, ENOMEM, "out of memory");
	while (!rc && !fds[1].revents) {
		uint64_t now_ns = bf_now_ns();

		if (follow->until_ns && now_ns >= follow->until_ns)
			return 0;
		if (follow->tell && now_ns - told_ns > 1000000000) {
			follow->tell(follow);
			told_ns = now_ns;
		}
		if (poll(fds, 2, follow->until_ns || follow->tell ? 100 : -1) > 0 && fds[0].revents)
			rc = take_some(follow, buffer, err);
	}
	return rc;
}

static int follow_run(struct follow *follow, uint32_t flags, struct bf_error *err)
{
	int rc = open_follow(follow, flags, err);

	if (!rc && follow->args->for_us)
		follow->until_ns = bf_now_ns() + follow->args->for_us * 1000;
	if (!rc)
		rc = follow->watch(follow, err);
	if (!rc)
		rc = work(follow, err);
	policy_names_free(follow->names);
	bf_close_fd(&follow->signals);
	bf_close_fd(&follow->sock);
	return rc;
}

static const char *decider(const struct follow *follow, const struct record_entry *entry)
{
	if (entry->decider == SCHED_BUILT_IN)
		return "built-in";
	return policy_names_decider(follow->names, entry->got_id, entry->decider == SCHED_BY_OWN_POLICY);
}

static void print_time(const struct follow *follow, uint64_t at_ns)
{
	int64_t ns = (int64_t)at_ns + follow->calendar_ns;
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm = { 0 };

	localtime_r(&seconds, &tm);
	printf("%02d:%02d:%02d.%06d", tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ns % 1000000000 / 1000));
}

static void print_text(const struct follow *follow, const struct record_entry *entry)
{
	enum belfry_hook hook = (enum belfry_hook)entry->hook;
	char got[32], proposed[32], clamps[64];

	decision_value(hook, entry->got_ns, entry->at_ns, got, sizeof(got));
	decision_value(hook, entry->proposed_ns, entry->at_ns, proposed, sizeof(proposed));
	if (entry->lost)
		printf("(%u not shown: too many at once)\n", entry->lost);
	print_time(follow, entry->at_ns);
	printf(" %-10s %-16s %s%s%s", policy_hook_name(hook), decider(follow, entry),
	       policy_names_of(follow->names, entry->got_id), got[0] ? " " : "", got);
	if (entry->clamps)
		printf(" (proposed: %s%s%s; clamped: %s)", policy_names_of(follow->names, entry->proposed_id),
		       proposed[0] ? " " : "", proposed,
		       decision_clamps(entry->clamps, clamps, sizeof(clamps)));
	printf("\n");
}

static void print_json(const struct follow *follow, const struct record_entry *entry)
{
	struct json_object *line = json_object_new_object();
	char clamps[64];

	json_add_number(line, "at_ns", entry->at_ns);
	json_add_text(line, "hook", policy_hook_name((enum belfry_hook)entry->hook));
	json_add_text(line, "policy", decider(follow, entry));
	json_add_text(line, "proposed", policy_names_of(follow->names, entry->proposed_id));
	json_add_number(line, "proposed_value", entry->proposed_ns);
	json_add_text(line, "got", policy_names_of(follow->names, entry->got_id));
	json_add_number(line, "got_value", entry->got_ns);
	json_add_text(line, "clamped", decision_clamps(entry->clamps, clamps, sizeof(clamps)));
	json_add_number(line, "lost", entry->lost);
	puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_SPACED));
	json_object_put(line);
}

static int show(struct follow *follow, const struct record_entry *entry, struct bf_error *err)
{
	char name[BELFRY_NAME_SIZE];
	uint64_t id;

	if (record_introduces(entry, &id, name))
		policy_names_learn(follow->names, id, name);
	if (entry->decider == SCHED_BUILT_IN && !decision_proposes((enum belfry_hook)entry->hook))
		return 0; /* no policy decided */
	if (follow->args->is_json)
		print_json(follow, entry);
	else
		print_text(follow, entry);
	return fflush(stdout) ? bf_fail(err, errno, "cannot write: %s", strerror(errno)) : 0;
}

static void end_at_once(int signal)
{
	(void)signal;
	_exit(CLI_OK);
}

/* Signals and the timer end the process at once, because a write to a slow reader may block. Each line is
 * flushed by itself, so that the output has only whole lines. */
static int suffer_signals(struct follow *follow, struct bf_error *err)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM };
	struct sigaction action = { .sa_handler = end_at_once };
	uint64_t us = follow->args->for_us;
	struct itimerval timer = { .it_value = { (time_t)(us / 1000000), (suseconds_t)(us % 1000000) } };

	signal(SIGPIPE, SIG_IGN); /* write returns EPIPE instead */
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaction(ends[i], &action, NULL);
	return setitimer(ITIMER_REAL, &timer, NULL) ? bf_fail(err, errno, "no timer: %s", strerror(errno))
						    : 0;
}

static int64_t calendar_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - (int64_t)bf_now_ns();
}

static int trace(struct policy_args *args)
{
	struct follow follow = { .args = args,
				 .sock = -1,
				 .signals = -1,
				 .watch = suffer_signals,
				 .take = show,
				 .calendar_ns = calendar_ns() };
	struct bf_error err = { 0 };
	int rc = follow_run(&follow, args->wants_all ? PROTOCOL_ALL : 0, &err);

	if (rc != -EPIPE || !ferror(stdout))
		return rc ? cli_fail(&err) : CLI_OK;
	__fpurge(stdout); /* the reader closed stdout: not an error */
	clearerr(stdout);
	return CLI_OK;
}

static const struct bf_option trace_options[] = {
	BF_OPTION("gpu", 0, "GPU", "the GPU: a number, soft or soft:N (default: the only one)", cli_take_gpu,
		  struct policy_args, which),
	BF_OPTION("soft", 0, "CONFIG", "the software GPU, by name=NAME", cli_take_soft, struct policy_args,
		  which),
	BF_OPTION("vgpu", 0, "NAME", "decisions about this vGPU only", cli_take_name, struct policy_args,
		  vgpu),
	BF_OPTION("all", 0, NULL, "also the decisions of the built-in policy", bf_take_flag,
		  struct policy_args, wants_all),
	BF_OPTION("for", 0, "TIME", "end after this time, such as 5s (default: when interrupted)",
		  bf_take_time, struct policy_args, for_us),
	BF_OPTION("json", 0, NULL, "print JSON, one object a line", bf_take_flag, struct policy_args,
		  is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_trace_command = {
	.command = {
		.name = "policy trace",
		.about = "usage: belfry policy trace [OPTION...]\n"
			 "\n"
			 "Print the decisions of policies as they are made: time, hook, policy, vGPU and result; and the\n"
			 "proposal, if the result is another one.\n",
		.options = trace_options,
	},
	.main = trace,
};

static int fail_to_write(const struct follow *follow, int code, struct bf_error *err)
{
	return bf_fail(err, code, "%.200s: cannot be written: %s", follow->args->output, strerror(code));
}

static int keep(struct follow *follow, const struct record_entry *entry, struct bf_error *err)
{
	if (fwrite(entry, entry->bytes, 1, follow->to) == 1)
		return 0;
	return fail_to_write(follow, errno, err);
}

/* Signals are received through signalfd: an entry is written whole or not at all, and the count is
 * printed. */
static int read_signals(struct follow *follow, struct bf_error *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit returns EFBIG */
	follow->signals = signalfd(-1, &set, SFD_CLOEXEC);
	return follow->signals < 0 ? bf_fail(err, errno, "no descriptors: %s", strerror(errno)) : 0;
}

static void tell_count(const struct follow *follow)
{
	fprintf(stderr, "\r%llu decisions, %llu lost", (unsigned long long)follow->entries,
		(unsigned long long)follow->lost);
}

/* A write failed, for example because the disk is full: cut the record after its last whole entry. */
static int end_in_time(struct follow *follow, int code, struct bf_error *err)
{
	const char *output = follow->args->output;
	struct bf_error why = { 0 };
	struct record_kept kept;
	int rc = record_mend(follow->to, &kept, &why);

	follow->entries = kept.decisions;
	follow->lost = kept.lost;
	if (rc)
		return bf_fail(err, code, "%.150s: cannot be written: %s; %.100s", output, strerror(code),
			       why.text);
	if (!kept.decisions)
		return fail_to_write(follow, code, err);
	return bf_fail(err, code,
		       "%.200s: cannot be written: %s; what came before that is kept, %llu decisions", output,
		       strerror(code), (unsigned long long)kept.decisions);
}

static void print_counts(const struct follow *follow)
{
	struct json_object *counts;

	if (!follow->args->is_json) {
		printf("%s: %" PRIu64 " decisions, %" PRIu64 " lost\n", follow->args->output, follow->entries,
		       follow->lost);
		return;
	}
	counts = json_object_new_object();
	json_add_number(counts, "decisions", follow->entries);
	json_add_number(counts, "lost", follow->lost);
	report_print_line(counts);
}

static int end_record(struct follow *follow, int rc, struct bf_error *err)
{
	if (ferror(follow->to))
		return end_in_time(follow, -rc, err);
	return fflush(follow->to) ? end_in_time(follow, errno, err) : rc;
}

static int record(struct policy_args *args)
{
	struct follow follow = {
		.args = args, .sock = -1, .signals = -1, .watch = read_signals, .take = keep
	};
	struct bf_error err = { 0 };
	cleanup_file FILE *to = NULL;
	int rc;

	if (!args->output)
		return cli_usage("policy record", "say where to, with -o FILE");
	to = fopen(args->output, "w+xe");
	if (!to) {
		bf_fail(&err, errno, "%s: cannot be made: %s", args->output, strerror(errno));
		return cli_fail(&err);
	}
	follow.to = to;
	if (isatty(STDERR_FILENO))
		follow.tell = tell_count;
	rc = record_write_header(to, &err);
	if (!rc)
		rc = follow_run(&follow, PROTOCOL_ALL | PROTOCOL_WORK, &err);
	if (follow.tell)
		fputs("\n", stderr);
	rc = end_record(&follow, rc, &err);
	if (rc && !follow.entries)
		unlink(args->output);
	if (args->is_json || !rc || follow.entries)
		print_counts(&follow);
	return rc ? cli_fail(&err) : CLI_OK;
}

static const struct bf_option record_command_options[] = {
	BF_OPTION("output", 'o', "FILE", "output file, which must not exist", cli_take_file,
		  struct policy_args, output),
	BF_OPTION("for", 0, "TIME", "end after this time, such as 30s (default: when interrupted)",
		  bf_take_time, struct policy_args, for_us),
	BF_OPTION("gpu", 0, "GPU", "the GPU: a number, soft or soft:N (default: the only one)", cli_take_gpu,
		  struct policy_args, which),
	BF_OPTION("soft", 0, "CONFIG", "the software GPU, by name=NAME", cli_take_soft, struct policy_args,
		  which),
	BF_OPTION("json", 0, NULL, "print the number of decisions as JSON", bf_take_flag, struct policy_args,
		  is_json),
	BF_OPTIONS_END,
};

const struct policy_command policy_record_command = {
	.command = {
		.name = "policy record",
		.about = "usage: belfry policy record -o FILE [OPTION...]\n"
			 "\n"
			 "Write each decision on a GPU to a file, with what was known when it was made, and the work that\n"
			 "it was about: when it was submitted, when it was done, what it used. belfry policy replay shows\n"
			 "what another policy would have decided and changed.\n",
		.options = record_command_options,
	},
	.main = record,
};
