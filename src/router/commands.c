/* The command that the configuration names for events. One process for each event: without a shell, with the event in
 * its environment and as JSON on its standard input, without any other descriptor, without privileges, and for a
 * limited time. A few run at once, a few more wait, and further events are dropped and counted. belfryd itself never
 * waits. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "base/sealed.h"
#include "router/internal.h"

enum { VARIABLES_MAX = 16, FILES_MOST = 256, END_STEP_US = 1000, END_STEPS = 1000, NOT_STARTED = 127 };
enum { PLACES_OF_ONE = 16, PLACES_KEPT = 16 };

/* Everything that the child needs, prepared before the fork: the child must not allocate memory. */
struct start {
	const char *command;
	char *variables[VARIABLES_MAX + 1];
	unsigned count;
	int input, null;
	uid_t uid;
	gid_t gid;
	bool drops_rights;
};

static void add_variable(struct start *start, const char *name, const char *value)
{
	char *text = NULL;

	if (start->count < VARIABLES_MAX && value && *value && asprintf(&text, "%s=%s", name, value) >= 0)
		start->variables[start->count++] = text;
}

static void add_number(struct start *start, const char *name, long long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", value);
	add_variable(start, name, text);
}

static void add_variables(struct start *start, const struct event *event)
{
	bool is_policy = event->kind == EVENT_POLICY_LOADED || event->kind == EVENT_POLICY_UNLOADED;
	char time[32];

	add_variable(start, "PATH", "/usr/local/bin:/usr/bin:/bin");
	add_variable(start, "BELFRY_EVENT", event_name(event->kind));
	add_variable(start, "BELFRY_EVENT_TIME", event_time(event, time, sizeof(time)));
	add_number(start, "BELFRY_EVENT_NUMBER", (long long)event->number);
	add_variable(start, "BELFRY_EVENT_GPU", event->gpu);
	add_variable(start, "BELFRY_EVENT_VGPU", event->vgpu);
	if (event->flags & EVENT_HAS_OWNER)
		add_number(start, "BELFRY_EVENT_OWNER", event->owner);
	if (event->pid > 0)
		add_number(start, "BELFRY_EVENT_PID", event->pid);
	add_variable(start, is_policy ? "BELFRY_EVENT_POLICY" : "BELFRY_EVENT_PROGRAM", event->subject);
	if (event->flags & EVENT_HAS_STATUS && WIFSIGNALED(event->status))
		add_number(start, "BELFRY_EVENT_SIGNAL", WTERMSIG(event->status));
	else if (event->flags & EVENT_HAS_STATUS)
		add_number(start, "BELFRY_EVENT_STATUS", WEXITSTATUS(event->status));
	add_variable(start, "BELFRY_EVENT_TEXT", event->text);
}

/* A memory file, so that belfryd does not wait for the command to read it. */
static int input_of(const struct event *event)
{
	cleanup_free char *line = NULL, *whole = NULL;
	size_t bytes;
	int length;

	line = event_json(event, &bytes);
	length = line ? asprintf(&whole, "%s\n", line) : -1;
	return length < 0 ? -1 : bf_sealed_file("belfry-event", whole, (size_t)length);
}

static void limit(int what, rlim_t most)
{
	struct rlimit now;

	if (getrlimit((__rlimit_resource_t)what, &now))
		_exit(NOT_STARTED);
	now.rlim_max = now.rlim_max < most ? now.rlim_max : most;
	now.rlim_cur = now.rlim_max;
	if (setrlimit((__rlimit_resource_t)what, &now))
		_exit(NOT_STARTED);
}

/* In the child. Only calls that are allowed after the fork of a process with threads. */
static void __attribute__((noreturn)) become_command(const struct start *start, pid_t parent)
{
	char *const arguments[] = { (char *)(uintptr_t)start->command, NULL };
	struct sigaction plain = { .sa_handler = SIG_DFL };
	sigset_t none;

	sigemptyset(&none);
	for (int i = 1; i < NSIG; i++)
		sigaction(i, &plain, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_NOFILE, FILES_MOST);
	if (start->drops_rights && (setgroups(0, NULL) || setresgid(start->gid, start->gid, start->gid) ||
				    setresuid(start->uid, start->uid, start->uid)))
		_exit(NOT_STARTED);
	if (bf_drop_capabilities(0) || prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent ||
	    dup2(start->input, 0) < 0 || dup2(start->null, 1) < 0 || dup2(start->null, 2) < 0 ||
	    syscall(SYS_close_range, 3u, ~0u, 0u) || chdir("/"))
		_exit(NOT_STARTED);
	umask(077);
	execve(start->command, arguments, start->variables);
	_exit(NOT_STARTED);
}

static pid_t start_command(const struct config_events *config, const struct event *event)
{
	struct start start = { .command = config->command,
			       .uid = config->uid,
			       .gid = config->gid,
			       .drops_rights = geteuid() == 0 };
	cleanup_close int input = input_of(event), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t parent = getpid(), pid = -1;

	add_variables(&start, event);
	start.input = input;
	start.null = null;
	if (input >= 3 && null >= 3)
		pid = fork();
	if (!pid)
		become_command(&start, parent);
	for (unsigned i = 0; i < start.count; i++)
		free(start.variables[i]);
	return pid;
}

/* Each complaint is logged at most once a minute, because events may be frequent. */
static void complain(struct router *router, enum router_complaint which, const char *what)
{
	uint64_t now_ns = bf_now_ns(), *last_ns = &router->commands.complained_ns[which];

	if (*last_ns && now_ns - *last_ns < 60 * ROUTER_S)
		return;
	*last_ns = now_ns;
	bf_log(BF_LOG_WARN, "events: %s: %s", router->config.events.command, what);
}

/* One user's events take a part of the places only, and some are kept for events that belong to no user, such as the death of
 * a GPU server. */
static bool has_place(const struct router_commands *commands, const struct event *event)
{
	bool has_owner = event->flags & EVENT_HAS_OWNER;
	unsigned of_user = 0;

	for (unsigned i = 0; i < commands->waiting; i++) {
		const struct event *other = &commands->queue[(commands->first + i) % ROUTER_COMMANDS_WAIT];

		of_user += has_owner && other->flags & EVENT_HAS_OWNER && other->owner == event->owner;
	}
	return commands->waiting < ROUTER_COMMANDS_WAIT - (has_owner ? PLACES_KEPT : 0) &&
	       of_user < PLACES_OF_ONE;
}

void router_command_add(struct router *router, const struct event *event)
{
	struct router_commands *commands = &router->commands;

	if (!router->config.events.command[0])
		return;
	if (!commands->queue)
		commands->queue = calloc(ROUTER_COMMANDS_WAIT, sizeof(*commands->queue));
	if (!commands->queue || !has_place(commands, event)) {
		commands->dropped++;
		complain(router, ROUTER_IS_FULL, "too many events wait for it; some are dropped");
		return;
	}
	commands->queue[(commands->first + commands->waiting++) % ROUTER_COMMANDS_WAIT] = *event;
}

/* Kill the whole process group, with all that the command has left running. The PID is not reused before waitpid(). */
static void kill_all_of(pid_t pid)
{
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
}

static void forget(struct router_command *command)
{
	if (command->source)
		loop_remove(command->router->loop, command->source);
	if (command->pidfd >= 0)
		close(command->pidfd);
	*command = (struct router_command){ .pidfd = -1 };
}

/* True if the command has ended. */
static bool reap(struct router *router, struct router_command *command)
{
	siginfo_t info = { 0 };
	char text[64];
	int status = 0;

	if (waitid(P_PID, (id_t)command->pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
		return false;
	kill_all_of(command->pid);
	waitpid(command->pid, &status, 0);
	if (status && !router->is_ending) {
		router->commands.failed++;
		snprintf(text, sizeof(text), "it ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		complain(router, ROUTER_HAS_FAILED, text);
	}
	forget(command);
	return true;
}

static void exited(void *context, uint32_t events)
{
	struct router_command *command = context;

	(void)events;
	reap(command->router, command);
}

static void start_next(struct router *router, struct router_command *command, uint64_t now_ns)
{
	struct router_commands *commands = &router->commands;
	const struct event *event = &commands->queue[commands->first];
	pid_t pid = router->config.events.command[0] ? start_command(&router->config.events, event) : 0;

	commands->first = (commands->first + 1) % ROUTER_COMMANDS_WAIT;
	commands->waiting--;
	if (pid < 0) {
		commands->dropped++;
		complain(router, ROUTER_CANNOT_START,
			 "it cannot be started: no more processes, descriptors or memory");
	}
	if (pid <= 0)
		return;
	commands->started++;
	*command = (struct router_command){ .router = router,
					    .pid = pid,
					    .pidfd = bf_pidfd_open(pid),
					    .until_ns = now_ns + router->config.events.timeout_us * 1000 };
	/* Without memory for the source, its end is found when its time is over. */
	if (command->pidfd >= 0)
		command->source =
			loop_add(router->loop, command->pidfd, EPOLLIN, LOOP_FIRST, exited, command);
}

void router_commands_tick(struct router *router, uint64_t now_ns)
{
	for (unsigned i = 0; i < ROUTER_COMMANDS_MAX; i++) {
		struct router_command *command = &router->commands.running[i];

		if (command->pid && command->until_ns <= now_ns) {
			complain(router, ROUTER_IS_LATE, "it runs longer than its timeout, and was killed");
			kill_all_of(command->pid);
			command->until_ns = now_ns + ROUTER_S; /* its pidfd shows the end, or the next look */
			reap(router, command);
		}
		while (!command->pid && router->commands.waiting && !router->is_ending)
			start_next(router, command, now_ns);
	}
}

uint64_t router_commands_due(const struct router *router)
{
	uint64_t due_ns = ROUTER_NEVER;

	for (unsigned i = 0; i < ROUTER_COMMANDS_MAX; i++) {
		const struct router_command *command = &router->commands.running[i];

		if (command->pid && command->until_ns < due_ns)
			due_ns = command->until_ns;
		if (!command->pid && router->commands.waiting)
			due_ns = 0;
	}
	return due_ns;
}

void router_commands_begin(struct router *router)
{
	for (unsigned i = 0; i < ROUTER_COMMANDS_MAX; i++)
		router->commands.running[i].pidfd = -1;
}

void router_commands_end(struct router *router)
{
	for (unsigned i = 0; i < ROUTER_COMMANDS_MAX; i++)
		if (router->commands.running[i].pid)
			kill_all_of(router->commands.running[i].pid);
	for (unsigned i = 0; i < ROUTER_COMMANDS_MAX; i++) {
		struct router_command *command = &router->commands.running[i];

		for (unsigned step = 0; command->pid && step < END_STEPS; step++)
			if (!reap(router, command))
				usleep(END_STEP_US);
	}
	free(router->commands.queue);
	router->commands.queue = NULL;
	router->commands.waiting = 0;
}
