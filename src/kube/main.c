/* belfry-device-plugin: vGPUs for Kubernetes. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/own.h"
#include "base/process.h"
#include "kube/plugin.h"

enum { SOURCES_AT_ONCE = 64, TICK_NS = 1000000000 };

struct options {
	struct plugin_options plugin;
	const char *socket, *slots;
	int log_level;
	bool wants_version;
};

static const struct bf_option table[] = {
	BF_OPTION("folder", 0, "DIR", "the kubelet's folder (default: /var/lib/kubelet/device-plugins)",
		  bf_take_text, struct options, plugin.folder),
	BF_OPTION("marks", 0, "DIR", "the folder of marks (default: " ATTACH_MARKS ")", bf_take_text,
		  struct options, plugin.marks),
	BF_OPTION("socket", 0, "PATH", "the socket of belfryd (default: BELFRY_SOCKET, or the system's)",
		  bf_take_text, struct options, socket),
	BF_OPTION("slots", 0, "N", "containers on a vGPU at a time (default: 1)", bf_take_text,
		  struct options, slots),
	BF_OPTION("time-limit", 0, NULL, "time-percent is a limit too: no container uses free time",
		  bf_take_flag, struct options, plugin.offer.has_time_limit),
	BF_OPTION("log", 0, "LEVEL", "error, warn, info or debug (default: info)", bf_take_log,
		  struct options, log_level),
	BF_OPTION("version", 0, NULL, "print the version", bf_take_flag, struct options, wants_version),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "belfry-device-plugin",
	.about =
		"usage: belfry-device-plugin [--folder DIR] [--slots N] [--time-limit]\n"
		"\n"
		"Offer the vGPUs of this node to Kubernetes: belfry.dev/vgpu-NAME for each vGPU of root, and\n"
		" belfry.dev/memory-gib and belfry.dev/time-percent for parts of its GPUs. Containers that ask for\n"
		"them must have a runtime class with belfry-oci. See belfry-device-plugin(8).\n",
	.options = table,
};

struct state {
	struct plugin plugin;
	struct follow *follow;
	int signals, changes, reports;
	bool is_ending;
	int folder_watch; /* of `changes`; -1: the folder is not there */
};

static void take_signal(void *context, uint32_t events)
{
	struct state *state = context;

	(void)events;
	state->is_ending = true;
}

static void take_report(void *context, uint32_t events)
{
	struct state *state = context;
	struct follow_report report;

	(void)events;
	if (read(state->reports, &report, sizeof(report)) != (ssize_t)sizeof(report))
		return;
	plugin_take(&state->plugin, report.object);
	json_object_put(report.object);
}

/* What has changed does not matter: plugin_settle() looks at the folder. */
static void take_changes(void *context, uint32_t events)
{
	struct state *state = context;
	char buffer[4096] __attribute__((aligned(8)));
	ssize_t count = read(state->changes, buffer, sizeof(buffer));

	(void)events;
	for (char *at = buffer; count > 0 && at < buffer + count;) {
		const struct inotify_event *event = (const struct inotify_event *)(const void *)at;

		if (event->mask & IN_IGNORED)
			state->folder_watch = -1;
		at += sizeof(*event) + event->len;
	}
}

static void watch_folder(struct state *state)
{
	if (state->folder_watch < 0)
		state->folder_watch = inotify_add_watch(state->changes, state->plugin.options.folder,
							IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_ONLYDIR);
}

static int open_signals(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL); /* before the thread, which inherits it */
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int start(struct state *state, struct bf_error *err)
{
	struct loop *loop = state->plugin.loop = loop_new(SOURCES_AT_ONCE, err);

	if (!loop)
		return -err->code;
	state->signals = open_signals();
	state->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	state->folder_watch = -1;
	if (state->signals < 0 || state->changes < 0)
		return bf_fail(err, errno, "signals or inotify: %s", strerror(errno));
	state->follow = follow_start(&state->reports, err);
	if (!state->follow)
		return -err->code;
	if (!loop_add(loop, state->signals, EPOLLIN, LOOP_FIRST, take_signal, state) ||
	    !loop_add(loop, state->changes, EPOLLIN, LOOP_FIRST, take_changes, state) ||
	    !loop_add(loop, state->reports, EPOLLIN, LOOP_FIRST, take_report, state))
		return bf_fail(err, errno, "epoll: %s", strerror(errno));
	return 0;
}

static int serve(const struct plugin_options *options, struct bf_error *err)
{
	struct state state = { .plugin = { .options = *options } };
	struct endpoint *endpoint, *after;
	int rc = start(&state, err);

	if (rc)
		return rc;
	while (!state.is_ending) {
		uint64_t now_ns = bf_now_ns();

		watch_folder(&state);
		plugin_settle(&state.plugin, now_ns);
		rc = loop_wait(state.plugin.loop, now_ns + TICK_NS);
		if (rc < 0)
			return bf_fail(err, -rc, "epoll: %s", strerror(-rc));
	}
	LIST_FOREACH_SAFE(endpoint, &state.plugin.endpoints, entry, after)
		endpoint_free(endpoint);
	follow_stop(state.follow);
	inventory_free(state.plugin.inventory);
	loop_free(state.plugin.loop);
	return 0;
}

static int usage(const char *why)
{
	fprintf(stderr, "belfry-device-plugin: %s; see belfry-device-plugin --help\n", why);
	return 2;
}

static bool take_slots(struct options *said)
{
	char *end;
	unsigned long slots = strtoul(said->slots, &end, 10);

	said->plugin.offer.slots = (unsigned)slots;
	return *said->slots >= '1' && *said->slots <= '9' && !*end && slots <= INVENTORY_SLOTS_MAX;
}

int main(int argc, char **argv)
{
	struct options said = { .plugin = { .folder = "/var/lib/kubelet/device-plugins",
					    .marks = ATTACH_MARKS },
				.slots = "1",
				.log_level = BF_LOG_INFO };
	struct bf_error err = { 0 };
	int rc;

	bf_hold_standard_files();
	rc = bf_command_parse(&command, argc, argv, &said, &err);
	if (rc == BF_COMMAND_HELP) {
		bf_command_help(&command, stdout);
		return 0;
	}
	if (rc < 0)
		return usage(err.text);
	if (said.wants_version) {
		puts("belfry-device-plugin " BELFRY_VERSION);
		return 0;
	}
	if (!take_slots(&said))
		return usage("--slots: not a number from 1 to 1000");
	if (said.socket)
		setenv("BELFRY_SOCKET", said.socket, 1);
	said.plugin.offer.owner = geteuid();
	bf_log_setup("belfry-device-plugin", (enum bf_log_level)said.log_level);
	if (!serve(&said.plugin, &err))
		return 0;
	bf_log(BF_LOG_ERROR, "%s", err.text);
	return 1;
}
