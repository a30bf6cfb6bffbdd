/* A run of belfry verify: a belfry run of the program, alone or with neighbours. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "cli/verify.h"

enum {
	NEIGHBOURS = 2,
	READY_TIMEOUT_S = 120,
};

static volatile sig_atomic_t signal_taken;
static sigset_t usual; /* the signals that are blocked while none is waited for */

struct neighbour {
	pid_t pid; /* 0: none */
	int output;
};

static void take_signal(int number)
{
	signal_taken = number;
}

/* The runs are ended and the folder is removed. Signals are taken during waits only, so that none comes just before one. */
void verify_take_signals(void)
{
	struct sigaction action = { .sa_handler = take_signal };
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	sigset_t blocked;

	sigemptyset(&blocked);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		sigaction(numbers[i], &action, NULL);
		sigaddset(&blocked, numbers[i]);
	}
	sigprocmask(SIG_BLOCK, &blocked, &usual);
}

int verify_signal(void)
{
	return signal_taken;
}

void verify_run_folder(const char *folder, const struct verify_run *run, char path[PATH_MAX])
{
	char *space;

	snprintf(path, PATH_MAX, "%s/%s", folder, run->name);
	space = strrchr(path, ' ');
	if (space)
		*space = '-';
}

/* A neighbour does not reserve what the program needs. In a domain it shares the SMs that the program leaves. NULL: it has no
 * such option. */
static const char *value_for_neighbour(const char *key, const char *value)
{
	static const char *const left_out[] = { "mem", "objective", "time" };

	for (size_t i = 0; i < sizeof(left_out) / sizeof(*left_out); i++)
		if (!strcmp(key, left_out[i]))
			return NULL;
	return strcmp(key, "sm") ? value : "0:100";
}

/* belfry run [OPTION...] [NAME] -- belfry verify --inside -- PROGRAM..., or --load in the place of the last ones. */
struct words {
	char *words[CLI_OPTIONS_MAX + 16];
	size_t count;
};

static void add(struct words *to, const char *word)
{
	to->words[to->count++] = (char *)word;
}

static void add_options(struct words *to, const struct verify_place *place, bool is_neighbour)
{
	const struct cli_options *given = &place->words;

	for (size_t i = 0; i < given->count && i < CLI_OPTIONS_MAX; i++) {
		const char *key = given->words[2 * i], *value = given->words[2 * i + 1];
		bool is_flag = !strcmp(key, "any-driver");
		char *option;

		if (is_neighbour)
			value = value_for_neighbour(key, value);
		if (!value ||
		    asprintf(&option, "--%s%s%s", key, is_flag ? "" : "=", is_flag ? "" : value) < 0)
			continue;
		add(to, option); /* until the process becomes another one */
	}
}

static void add_run(struct words *to, const struct verify *verify, bool is_neighbour, const char *self)
{
	add(to, "belfry");
	add(to, "run");
	if (verify->vgpu)
		add(to, verify->vgpu);
	else
		add_options(to, &verify->place, is_neighbour);
	add(to, "--");
	add(to, self);
}

/* Without a vGPU. The GPU is the one with that number for the driver. */
static int use_gpu(const struct cli_gpu *gpu, struct bf_error *err)
{
	char folder[108], number[16];

	if (gpu->is_option) {
		snprintf(number, sizeof(number), "%u", gpu->index);
		setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
		setenv("CUDA_VISIBLE_DEVICES", number, 1);
	}
	return gpu->is_soft ? cli_soft_prepare(&gpu->soft, folder, sizeof(folder), err) : 0;
}

static int exec_with(struct words *to, char **program)
{
	size_t count = 0;
	char **all;

	while (program[count])
		count++;
	all = calloc(to->count + count + 1, sizeof(*all));
	if (!all)
		return CLI_FAILED;
	memcpy(all, to->words, to->count * sizeof(*all));
	memcpy(all + to->count, program, count * sizeof(*all));
	execv("/proc/self/exe", all);
	return CLI_NOT_EXECUTABLE;
}

/* In the child. Returns an exit status if that fails. */
static int become(const struct verify *verify, bool is_neighbour)
{
	char self[PATH_MAX], *none = NULL;
	struct words to = { 0 };
	struct bf_error err = { 0 };
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (length < 0)
		return CLI_FAILED;
	self[length] = 0;
	if (verify->place.is_direct) {
		if (use_gpu(&verify->place.which, &err))
			return cli_fail(&err);
		add(&to, "belfry");
	} else {
		add_run(&to, verify, is_neighbour, self);
	}
	add(&to, "verify");
	add(&to, is_neighbour ? "--load" : "--inside");
	if (!is_neighbour)
		add(&to, "--");
	return exec_with(&to, is_neighbour ? &none : verify->program);
}

/* The runs end with this process, however it ends. */
static void prepare_child(pid_t parent, int input, int output)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(CLI_FAILED);
	sigprocmask(SIG_SETMASK, &usual, NULL);
	dup2(input, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
}

static int open_output(const char *path)
{
	char name[PATH_MAX];

	if (snprintf(name, sizeof(name), "%s/stdout", path) >= (int)sizeof(name)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static void set_environment(const struct verify *verify, const struct verify_run *run, const char *path)
{
	char seed[32];

	setenv("BELFRY_TRACE", path, 1);
	if (verify->buffers[0])
		setenv("BELFRY_TRACE_BUFFERS", verify->buffers, 1);
	unsetenv("BELFRY_CORO_SHUFFLE");
	unsetenv("BELFRY_VERIFY_CONTROL");
	if (!run->is_shared)
		return;
	snprintf(seed, sizeof(seed), "%" PRIu64, run->seed);
	setenv("BELFRY_CORO_SHUFFLE", seed, 1);
	if (verify->control)
		setenv("BELFRY_VERIFY_CONTROL", verify->control, 1);
}

static int status_of(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* A signal for this command is passed on, and the run ends by it. */
static int await(pid_t pid)
{
	cleanup_close int process = bf_pidfd_open(pid);
	struct pollfd end = { .fd = process, .events = POLLIN };
	int status;

	while (process >= 0 && ppoll(&end, 1, NULL, &usual) < 0)
		if (signal_taken)
			kill(pid, signal_taken);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return CLI_FAILED;
	return status_of(status);
}

static int start_program(const struct verify *verify, const struct verify_run *run, const char *path,
			 pid_t *child, struct bf_error *err)
{
	cleanup_close int input = open("/dev/null", O_RDONLY | O_CLOEXEC), output = open_output(path);
	pid_t parent = getpid();

	if (input < 0 || output < 0)
		return bf_fail(err, errno, "%.300s/stdout: %s", path, strerror(errno));
	fflush(stdout);
	*child = fork();
	if (*child < 0)
		return bf_fail(err, errno, "cannot start a run: %s", strerror(errno));
	if (*child)
		return 0;
	prepare_child(parent, input, output);
	set_environment(verify, run, path);
	_exit(become(verify, false));
}

static int start_neighbour(const struct verify *verify, struct neighbour *neighbour, struct bf_error *err)
{
	cleanup_close int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
	pid_t parent = getpid();
	int ends[2];

	if (input < 0 || pipe2(ends, O_CLOEXEC))
		return bf_fail(err, errno, "cannot start a load: %s", strerror(errno));
	neighbour->output = ends[0];
	fflush(stdout);
	neighbour->pid = fork();
	if (!neighbour->pid) {
		prepare_child(parent, input, ends[1]);
		_exit(become(verify, true));
	}
	close(ends[1]);
	if (neighbour->pid > 0)
		return 0;
	neighbour->pid = 0;
	return bf_fail(err, errno, "cannot start a load: %s", strerror(errno));
}

/* It writes a byte when its first kernel has run. */
static int await_neighbour(const struct neighbour *neighbour, struct bf_error *err)
{
	static const struct timespec limit = { .tv_sec = READY_TIMEOUT_S };
	struct pollfd output = { .fd = neighbour->output, .events = POLLIN };
	char byte;

	if (ppoll(&output, 1, &limit, &usual) == 1 && read(neighbour->output, &byte, 1) == 1)
		return 0;
	if (signal_taken)
		return bf_fail(err, EINTR, "ended by signal %d", (int)signal_taken);
	return bf_fail(err, EIO, "the load beside the program did not start; is there room for its vGPU?");
}

static bool is_running(const struct neighbour *neighbour)
{
	return !waitpid(neighbour->pid, NULL, WNOHANG);
}

static void end_neighbour(struct neighbour *neighbour)
{
	if (neighbour->output >= 0)
		close(neighbour->output);
	if (neighbour->pid <= 0)
		return;
	kill(neighbour->pid, SIGTERM);
	while (waitpid(neighbour->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int start_neighbours(const struct verify *verify, struct neighbour *neighbours, struct bf_error *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < NEIGHBOURS; i++)
		rc = start_neighbour(verify, &neighbours[i], err);
	for (size_t i = 0; !rc && i < NEIGHBOURS; i++)
		rc = await_neighbour(&neighbours[i], err);
	return rc;
}

/* A run without its neighbours would show nothing. */
static int end_neighbours(struct neighbour *neighbours, bool are_needed, struct bf_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < NEIGHBOURS; i++) {
		if (are_needed && !rc && !is_running(&neighbours[i])) {
			neighbours[i].pid = 0;
			rc = bf_fail(err, EIO, "the load beside the program ended before the program");
		}
		end_neighbour(&neighbours[i]);
	}
	return rc;
}

static bool has_begun(const char *path)
{
	char name[PATH_MAX];

	return snprintf(name, sizeof(name), "%s/" VERIFY_BEGUN, path) < (int)sizeof(name) &&
	       !access(name, F_OK);
}

int verify_run(const struct verify *verify, const char *folder, struct verify_run *run, struct bf_error *err)
{
	struct neighbour neighbours[NEIGHBOURS];
	char path[PATH_MAX];
	pid_t program = 0;
	int rc = 0, ended;

	for (size_t i = 0; i < NEIGHBOURS; i++)
		neighbours[i] = (struct neighbour){ .output = -1 };
	verify_run_folder(folder, run, path);
	if (mkdir(path, 0700))
		return bf_fail(err, errno, "%.300s: %s; --keep needs a folder without runs", path,
			       strerror(errno));
	if (run->is_shared)
		rc = start_neighbours(verify, neighbours, err);
	if (!rc)
		rc = start_program(verify, run, path, &program, err);
	if (!rc)
		run->status = await(program);
	ended = end_neighbours(neighbours, run->is_shared && !rc, err);
	if (!rc && signal_taken)
		return bf_fail(err, EINTR, "ended by signal %d", (int)signal_taken);
	if (!rc && !has_begun(path))
		return bf_fail(err, EIO, "the program was not started (%s): see above", run->name);
	return rc ? rc : ended;
}
