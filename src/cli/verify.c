/* belfry verify: whether sharing changes what a program computes. */
#include "cli/verify.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "base/text.h"
#include "base/units.h"

enum {
	SEEDS = 1000000,
	CONFIRMATIONS = 2, /* runs alone after a shared run that differs */
};

/* An option of belfry run, which each run gets. */
static int take_word(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	struct verify_place *place = member;

	if (!strcmp(option->name, "gpu") && cli_take_gpu(&place->which, option, value, err))
		return -EINVAL;
	if (!strcmp(option->name, "soft") && cli_take_soft(&place->which, option, value, err))
		return -EINVAL;
	return cli_take_word(&place->words, option, value, err);
}

static int take_runs(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option;
	return bf_parse_number("--runs", value, 1, VERIFY_RUNS_MOST, member, err);
}

static int take_seed(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	struct verify_seed *to = member;
	long seed = 0;
	int rc = bf_parse_number("--seed", value, 0, LONG_MAX / 2, &seed, err);

	(void)option;
	*to = (struct verify_seed){ .value = (uint64_t)seed, .is_given = true };
	return rc;
}

static int take_control(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option;
	*(const char **)member = value;
	return !strcmp(value, "sms") || !strcmp(value, "split")
		       ? 0
		       : bf_fail(err, EINVAL, "--control %.40s: say sms or split", value);
}

static bool is_symbol(const char *name)
{
	const char *at = name;

	while (isalnum((unsigned char)*at) || (*at && strchr("_$%.", *at)))
		at++;
	return at != name && !*at;
}

static int take_buffer(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	char *names = member;
	size_t used = strlen(names);

	(void)option;
	if (!is_symbol(value))
		return bf_fail(err, EINVAL, "--buffer '%.100s': not the name of a variable", value);
	if (used + strlen(value) + 2 > VERIFY_BUFFERS_ROOM)
		return bf_fail(err, E2BIG, "--buffer: the names are longer than %d bytes",
			       VERIFY_BUFFERS_ROOM - 1);
	snprintf(names + used, VERIFY_BUFFERS_ROOM - used, "%s%s", used ? "," : "", value);
	return 0;
}

#define RUN_WORD(name, value, help) BF_OPTION(name, 0, value, help, take_word, struct verify, place)

static const struct bf_option options[] = {
	BF_OPTION("runs", 0, "N", "number of shared runs (default: 2)", take_runs, struct verify, runs),
	BF_OPTION("seed", 0, "N", "seed of the first shared run; the next one has N+1 (default: random)",
		  take_seed, struct verify, seed),
	BF_OPTION("buffer", 0, "NAME",
		  "also compare this global variable of a module, at the end of the program;\n"
		  "may be given several times",
		  take_buffer, struct verify, buffers),
	BF_OPTION("keep", 0, "FOLDER", "keep the traces and the program's output in this folder",
		  cli_take_file, struct verify, keep),
	BF_OPTION("json", 0, NULL, "print JSON", bf_take_flag, struct verify, is_json),
	BF_OPTION("direct", 0, NULL, "run directly on the GPU, without vGPUs and belfryd", bf_take_flag,
		  struct verify, place.is_direct),
	RUN_WORD("mem", "SIZE", "memory limit; this and the following options are as for belfry run"),
	RUN_WORD("time", "REQ:LIMIT", "requested share and limit of the GPU's time, in percent"),
	RUN_WORD("class", "CLASS", "latency or throughput"),
	RUN_WORD("domain", "NAME", "the domain, of the program and of its neighbours"),
	RUN_WORD("sm", "REQ:LIMIT", "requested and largest part of the SMs, in percent"),
	RUN_WORD("gpu", "GPU", "N for /dev/nvidiaN, soft or soft:N for the software GPU"),
	RUN_WORD("soft", "CONFIG", "use the software GPU, such as sms=16,mem=4G"),
	RUN_WORD("any-driver", NULL, "accept an unknown driver series, and use the nearest known layout"),
	BF_OPTION("control", 0, "ERROR",
		  "make an error in the shared runs, which must be found: sms (the program\n"
		  "sees half of the SMs) or split (a kernel is launched in two halves)",
		  take_control, struct verify, control),
	BF_OPTION("inside", 0, NULL, NULL, bf_take_flag, struct verify, is_inside),
	BF_OPTION("load", 0, NULL, NULL, bf_take_flag, struct verify, is_load),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "verify",
	.about = "usage: belfry verify [OPTION...] [--] PROGRAM [ARG...]\n"
		 "       belfry verify [OPTION...] NAME -- PROGRAM [ARG...]\n"
		 "\n"
		 "Run PROGRAM twice alone, and then shared: on other SMs at every launch, and beside other\n"
		 "programs. Compare what it launched and what it copied to the host, and print the first\n"
		 "difference.\n",
	.options = options,
	.after = "Exit status: 0 all runs did the same; 1 sharing changed it; 3 the program differs from\n"
		 "itself; 4 it could not be verified; 2 for wrong usage.\n",
	.most = -1,
	.stops_at_argument = true,
};

/* The runs of a verification, and the first of them, with which the others are compared. */
struct session {
	const struct verify *verify;
	char folder[PATH_MAX];
	struct verify_trace reference;
	struct verify_run *runs;
	size_t count;
	size_t complete; /* of them: those that were compared */
	size_t changed;	 /* the shared run that differs */
	size_t loose;	 /* launches whose parameters vary */
};

static int make_folder(struct session *session, struct bf_error *err)
{
	const char *keep = session->verify->keep, *base = getenv("TMPDIR");
	int used;

	if (keep) {
		struct stat st;

		if ((mkdir(keep, 0700) && errno != EEXIST) || !realpath(keep, session->folder) ||
		    stat(session->folder, &st))
			return bf_fail(err, errno, "%.300s: %s", keep, strerror(errno));
		if (st.st_uid != geteuid() || st.st_mode & 022)
			return bf_fail(err, EPERM, "%.300s: other users can write to it; use another folder",
				       keep);
		return 0;
	}
	used = snprintf(session->folder, sizeof(session->folder), "%s/belfry-verify.XXXXXX",
			base && *base == '/' ? base : "/tmp");
	if (used >= (int)sizeof(session->folder) || !mkdtemp(session->folder))
		return bf_fail(err, errno, "%.300s: %s", session->folder, strerror(errno));
	return 0;
}

/* The files of a run: there are no folders below. The program may have put a link in the place of the folder. */
static void remove_run(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (entry->d_type == DT_REG || entry->d_type == DT_LNK)
			unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		closedir(folder);
	else if (fd >= 0)
		close(fd);
	rmdir(path);
}

static void remove_folder(const struct session *session)
{
	char path[PATH_MAX];

	if (session->verify->keep || !session->folder[0])
		return;
	for (size_t i = 0; i < session->count; i++) {
		verify_run_folder(session->folder, &session->runs[i], path);
		remove_run(path);
	}
	rmdir(session->folder);
}

static void take_counts(struct verify_run *run, const struct verify_trace *trace)
{
	run->launches = trace->counts[VERIFY_LAUNCH];
	run->graphs = trace->counts[VERIFY_GRAPH];
	run->copies = trace->counts[VERIFY_COPY];
	run->processes = trace->file_count;
}

static int make_run(struct session *session, bool is_shared, struct verify_trace *trace, struct bf_error *err)
{
	struct verify_run *run = &session->runs[session->count++];
	size_t number = 1;
	char path[PATH_MAX];
	int rc;

	run->is_shared = is_shared;
	for (const struct verify_run *before = session->runs; before < run; before++)
		number += before->is_shared == is_shared;
	run->seed = session->verify->seed.value + number - 1;
	snprintf(run->name, sizeof(run->name), "%s %zu", is_shared ? "shared" : "alone", number);
	rc = verify_run(session->verify, session->folder, run, err);
	if (rc)
		return rc;
	verify_run_folder(session->folder, run, path);
	rc = verify_read(path, trace, err);
	take_counts(run, trace);
	return rc;
}

static int check_buffers(const struct session *session, struct bf_error *err)
{
	cleanup_free char *names = strdup(session->verify->buffers);
	char *rest = names, *name;

	while (rest && (name = strsep(&rest, ",")))
		if (*name && !verify_has_buffer(&session->reference, name))
			return bf_fail(err, ENOENT,
				       "--buffer %.100s: no module of the program has such a variable", name);
	return 0;
}

/* What can be compared at all. */
static int check_reference(const struct session *session, struct bf_error *err)
{
	const struct verify_run *run = &session->runs[0];

	if (!session->reference.count && run->status)
		return bf_fail(
			err, ENODATA,
			"the program used no GPU and exited with status %d; there is nothing to verify",
			run->status);
	if (!session->reference.count)
		return bf_fail(err, ENODATA,
			       "the program launched nothing and copied nothing to the host; does it use "
			       "libcuda.so.1, and not a library of its own?");
	return check_buffers(session, err);
}

static void say_status(struct verify_run *run, const struct verify_run *first)
{
	size_t used = run->difference.way ? strlen(run->text) : 0;

	if (run->status == first->status)
		return;
	snprintf(run->text + used, sizeof(run->text) - used, "%sexit status %d instead of %d",
		 used ? "; " : "", run->status, first->status);
	if (!run->difference.way)
		run->difference.way = VERIFY_OTHER;
}

/* Parameters that vary although the program runs alone, without a change of its results, say nothing about sharing. */
static int compare(struct session *session, struct verify_run *run, struct verify_trace *trace,
		   struct bf_error *err)
{
	struct verify_trace *reference = &session->reference;
	const char *kernel;
	int rc = verify_compare(reference, trace, &run->difference);

	if (!rc && run->difference.way && !run->is_shared) {
		session->loose += verify_loosen(reference, trace);
		rc = verify_compare(reference, trace, &run->difference);
	}
	if (rc)
		return bf_fail(err, -rc, "out of memory");
	if (run->difference.way) {
		kernel = verify_kernel(&run->difference, reference, trace);
		verify_say(&run->difference, reference, trace, run->text, sizeof(run->text));
		snprintf(run->kernel, sizeof(run->kernel), "%s", kernel ? kernel : "");
	}
	say_status(run, &session->runs[0]);
	return 0;
}

static int make_and_compare(struct session *session, bool is_shared, struct bf_error *err)
{
	struct verify_run *run = &session->runs[session->count];
	struct verify_trace trace = { 0 };
	int rc = make_run(session, is_shared, &trace, err);

	if (!rc)
		rc = compare(session, run, &trace, err);
	verify_free(&trace);
	if (rc)
		return rc;
	session->complete = session->count;
	if (!session->verify->is_json)
		verify_print_run(run);
	return 0;
}

static int compare_again(struct session *session, struct verify_run *run, struct bf_error *err)
{
	struct verify_trace trace = { 0 };
	char path[PATH_MAX];
	int rc;

	verify_run_folder(session->folder, run, path);
	rc = verify_read(path, &trace, err);
	if (!rc)
		rc = compare(session, run, &trace, err);
	verify_free(&trace);
	if (!rc && !session->verify->is_json)
		verify_print_run(run);
	return rc;
}

static bool differs(const struct session *session)
{
	return session->runs[session->count - 1].difference.way != VERIFY_SAME;
}

/* A program that seldom differs from itself may have differed in the shared run only by chance. If a parameter turns out to
 * vary only now, the shared run is compared again without it. */
static int confirm(struct session *session, enum verify_status *verdict, struct bf_error *err)
{
	struct verify_run *shared = &session->runs[session->count - 1];
	int rc = 0;

	session->changed = session->count - 1;
	*verdict = VERIFY_IS_CHANGED;
	for (int i = 0; !rc && *verdict == VERIFY_IS_CHANGED && i < CONFIRMATIONS; i++) {
		size_t loose = session->loose;

		rc = make_and_compare(session, false, err);
		if (!rc && differs(session))
			*verdict = VERIFY_IS_UNSTABLE;
		else if (!rc && session->loose > loose)
			rc = compare_again(session, shared, err);
		if (!rc && !shared->difference.way)
			*verdict = VERIFY_IS_IDENTICAL;
	}
	return rc;
}

/* The runs, up to the first that sharing has changed. */
static int make_runs(struct session *session, enum verify_status *verdict, struct bf_error *err)
{
	int rc = make_run(session, false, &session->reference, err);

	if (!rc)
		rc = check_reference(session, err);
	if (rc)
		return rc;
	session->complete = 1;
	if (!session->verify->is_json)
		verify_print_run(&session->runs[0]);
	*verdict = VERIFY_IS_IDENTICAL;
	rc = make_and_compare(session, false, err);
	if (!rc && differs(session))
		*verdict = VERIFY_IS_UNSTABLE;
	for (long i = 0; !rc && !*verdict && i < session->verify->runs; i++) {
		rc = make_and_compare(session, true, err);
		if (!rc && differs(session))
			rc = confirm(session, verdict, err);
	}
	return rc;
}

/* The run that the verdict is about. */
static const struct verify_run *telling_run(const struct session *session, enum verify_status verdict)
{
	return &session->runs[verdict == VERIFY_IS_CHANGED ? session->changed : session->count - 1];
}

static int run_all(const struct verify *verify)
{
	enum verify_status verdict = VERIFY_IS_UNKNOWN;
	struct session session = { .verify = verify };
	struct bf_error err = { 0 };
	int rc;

	session.runs = calloc(2 + (size_t)verify->runs * (1 + CONFIRMATIONS), sizeof(*session.runs));
	if (!session.runs) {
		bf_fail(&err, ENOMEM, "out of memory");
		cli_fail(&err);
		return VERIFY_IS_UNKNOWN;
	}
	rc = make_folder(&session, &err);
	if (!rc) {
		verify_take_signals();
		rc = make_runs(&session, &verdict, &err);
		remove_folder(&session);
	}
	if (rc)
		cli_fail(&err);
	if (verify->is_json)
		verify_print_json(rc ? VERIFY_IS_UNKNOWN : verdict, verify, session.runs, session.complete,
				  session.loose, rc ? bf_plain(err.text) : NULL);
	else if (!rc)
		verify_print_verdict(verdict, session.runs, session.count, telling_run(&session, verdict),
				     session.loose);
	verify_free(&session.reference);
	free(session.runs);
	if (verify_signal())
		return 128 + verify_signal();
	return rc ? VERIFY_IS_UNKNOWN : (int)verdict;
}

/* `verify NAME -- PROGRAM` uses an existing vGPU, as belfry run does. */
static bool is_named(char *const *argv, int first)
{
	return strcmp(argv[first - 1], "--") && argv[first] && argv[first + 1] &&
	       !strcmp(argv[first + 1], "--");
}

static bool has_vgpu_words(const struct cli_options *words)
{
	for (size_t i = 0; i < words->count; i++)
		if (strcmp(words->words[2 * i], "gpu") && strcmp(words->words[2 * i], "soft"))
			return true;
	return false;
}

static int take_arguments(struct verify *verify, char **argv, int first, struct bf_error *err)
{
	bool has_name = is_named(argv, first);

	verify->vgpu = has_name ? argv[first] : NULL;
	verify->program = argv + first + (has_name ? 2 : 0);
	if (verify->is_load)
		return 0;
	if (!verify->program[0] || !verify->program[0][0])
		return bf_fail(err, EINVAL, "no program given");
	if (verify->place.words.count > CLI_OPTIONS_MAX)
		return bf_fail(err, E2BIG, "too many options; the most is %d", CLI_OPTIONS_MAX);
	if (verify->place.is_direct && has_vgpu_words(&verify->place.words))
		return bf_fail(err, EINVAL,
			       "--direct makes no vGPUs; of their options it takes --gpu and --soft");
	if (has_name && (verify->place.words.count || verify->place.is_direct))
		return bf_fail(err, EINVAL,
			       "these options are for runs with vGPUs of their own, and not on %s",
			       verify->vgpu);
	return has_name ? spec_check_name(verify->vgpu, err) : 0;
}

/* A short one, for people to give again. */
static int choose_seed(struct verify_seed *seed, struct bf_error *err)
{
	if (seed->is_given)
		return 0;
	if (getrandom(&seed->value, sizeof(seed->value), 0) != sizeof(seed->value))
		return bf_fail(err, errno, "no random seed: %s; give one with --seed", strerror(errno));
	seed->value %= SEEDS;
	return 0;
}

int cli_verify(int argc, char **argv)
{
	struct verify verify = { .runs = 2 };
	struct bf_error err = { 0 };
	int status, first;

	if (cli_gpu_default(&verify.place.which, &err))
		return cli_usage("verify", err.text);
	first = cli_parse(&command, argc, argv, &verify, &status);
	if (!first)
		return status;
	if (take_arguments(&verify, argv, first, &err))
		return cli_usage("verify", err.text);
	if (verify.is_load)
		return verify_load();
	if (verify.is_inside)
		return verify_inside(verify.program);
	if (choose_seed(&verify.seed, &err)) {
		cli_fail(&err);
		return VERIFY_IS_UNKNOWN;
	}
	cli_gpu_settle(&verify.place.which);
	return run_all(&verify);
}
