/* belfry-dra: vGPUs for claims of Kubernetes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/own.h"
#include "base/process.h"
#include "client/gather.h"
#include "dra/dra.h"
#include "kube/wire.h"

enum { SOURCES_AT_ONCE = 64, LIMIT_MS = 3000 };
#define TICK_NS 1000000000ull
#define SECRETS "/var/run/secrets/kubernetes.io/serviceaccount/"

struct options {
	struct dra_options dra;
	const char *socket;
	int log_level;
	bool wants_version, wants_slice;
};

static const struct bf_option table[] = {
	BF_OPTION("node", 0, "NAME", "the name of this node (the variable NODE_NAME)", bf_take_text,
		  struct options, dra.node),
	BF_OPTION("server", 0, "URL", "the API server (of the pod that this program runs in)", bf_take_text,
		  struct options, dra.server.url),
	BF_OPTION("token", 0, "FILE", "the token for the API server (" SECRETS "token)", bf_take_text,
		  struct options, dra.server.token),
	BF_OPTION("ca", 0, "FILE", "the certificate of its issuer (" SECRETS "ca.crt)", bf_take_text,
		  struct options, dra.server.ca),
	BF_OPTION("registry", 0, "DIR", "the kubelet's folder (/var/lib/kubelet/plugins_registry)",
		  bf_take_text, struct options, dra.registry),
	BF_OPTION("folder", 0, "DIR", "the driver's folder (/var/lib/kubelet/plugins/" DRA_DRIVER ")",
		  bf_take_text, struct options, dra.folder),
	BF_OPTION("marks", 0, "DIR", "the folder of marks (" ATTACH_MARKS ")", bf_take_text, struct options,
		  dra.marks),
	BF_OPTION("cdi", 0, "DIR", "the folder of CDI specifications (/var/run/cdi)", bf_take_text,
		  struct options, dra.cdi),
	BF_OPTION("socket", 0, "PATH", "belfryd's socket", bf_take_text, struct options, socket),
	BF_OPTION("time-limit", 0, NULL, "the time of a claim is its limit too", bf_take_flag, struct options,
		  dra.has_time_limit),
	BF_OPTION("print-slice", 0, NULL, "print the resource slice, and exit", bf_take_flag, struct options,
		  wants_slice),
	BF_OPTION("log", 0, "LEVEL", "error, warn, info (default) or debug", bf_take_log, struct options,
		  log_level),
	BF_OPTION("version", 0, NULL, "print the version", bf_take_flag, struct options, wants_version),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "belfry-dra",
	.about =
		"usage: belfry-dra --node NAME [--server URL] [--time-limit]\n"
		"\n"
		"The driver " DRA_DRIVER
		" for Dynamic Resource Allocation: publishes the GPUs of this node with memory\n"
		"and time as consumable capacities, and makes a virtual GPU for each device of a claim. See\n"
		"belfry-dra(8).\n",
	.options = table,
};

struct state {
	struct dra dra;
	struct loop *loop;
	struct wire_server *registration, *service;
	char registration_path[PATH_MAX], service_path[PATH_MAX];
	int signals;
	bool is_ending;
};

static void finish(struct grpc_call *call, struct proto_writer *answer, const struct bf_error *err)
{
	if (!err->code)
		grpc_send(call, answer);
	grpc_finish(call, err->code ? GRPC_INVALID : GRPC_OK, err->text);
	free(answer->at);
}

static void prepare(struct state *state, const struct dra_claims *claims, struct proto_writer *answer)
{
	for (size_t i = 0; i < claims->count; i++) {
		const struct dra_claim *prepared = &claims->at[i];
		struct bf_error err = { 0 };
		int rc = dra_prepare(&state->dra, &claims->at[i], &prepared, &err);

		if (rc)
			bf_log(BF_LOG_WARN, "claim %s/%s: %s", claims->at[i].space, claims->at[i].name,
			       err.text);
		dra_write_prepared(answer, prepared, rc ? err.text : NULL);
	}
}

static void unprepare(struct state *state, const struct dra_claims *claims, struct proto_writer *answer)
{
	for (size_t i = 0; i < claims->count; i++) {
		struct bf_error err = { 0 };
		int rc = dra_unprepare(&state->dra, claims->at[i].uid, &err);

		if (rc)
			bf_log(BF_LOG_WARN, "claim %s/%s: %s", claims->at[i].space, claims->at[i].name,
			       err.text);
		dra_write_unprepared(answer, claims->at[i].uid, rc ? err.text : NULL);
	}
}

static const char *method_of(const char *path)
{
	static const char *const services[] = { DRA_SERVICE_V1, DRA_SERVICE_V1BETA1 };

	for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++)
		if (!strncmp(path, services[i], strlen(services[i])))
			return path + strlen(services[i]);
	return "";
}

static void called(void *context, struct grpc_call *call, const char *path, struct proto_bytes message)
{
	bool is_prepare = !strcmp(method_of(path), "NodePrepareResources");
	struct dra_claims claims;
	struct proto_writer answer = { 0 };
	struct bf_error err = { 0 };

	if (!is_prepare && strcmp(method_of(path), "NodeUnprepareResources") != 0) {
		grpc_finish(call, GRPC_UNIMPLEMENTED, "no such method");
		return;
	}
	if (!dra_read_claims(message, &claims, &err))
		(is_prepare ? prepare : unprepare)(context, &claims, &answer);
	free(claims.at);
	finish(call, &answer, &err);
}

static void registered(void *context, struct grpc_call *call, const char *path, struct proto_bytes message)
{
	struct state *state = context;
	struct proto_writer answer = { 0 };
	char text[256];

	if (!strcmp(path, DRA_REGISTRATION "GetInfo")) {
		dra_write_info(&answer, state->service_path);
	} else if (!strcmp(path, DRA_REGISTRATION "NotifyRegistrationStatus")) {
		if (dra_read_status(message, text, sizeof(text)))
			bf_log(BF_LOG_INFO, "registered with the kubelet");
		else
			bf_log(BF_LOG_ERROR, "the kubelet refused the registration: %s", text);
	} else {
		grpc_finish(call, GRPC_UNIMPLEMENTED, "no such method");
		return;
	}
	finish(call, &answer, &(struct bf_error){ 0 });
}

static void gone(void *context, struct grpc_call *call)
{
	(void)context;
	(void)call;
}

static void take_signal(void *context, uint32_t events)
{
	struct state *state = context;

	(void)events;
	state->is_ending = true;
}

/* The socket may have been removed, with its folder. */
static void keep_socket(struct state *state, struct wire_server **server, const char *path,
			void (*call)(void *, struct grpc_call *, const char *, struct proto_bytes))
{
	const struct grpc_events events = { .context = state, .called = call, .gone = gone };
	struct bf_error err = { 0 };

	if (*server && wire_is_there(*server))
		return;
	if (*server)
		wire_close(*server);
	*server = wire_listen(state->loop, path, &events, &err);
	if (!*server)
		bf_log(BF_LOG_WARN, "%s", err.text);
}

static void tick(struct state *state)
{
	struct json_object *report = NULL;

	/* The driver's own socket first: the kubelet calls it as soon as it finds the other one. */
	keep_socket(state, &state->service, state->service_path, called);
	if (state->service)
		keep_socket(state, &state->registration, state->registration_path, registered);
	gather_report(&(struct talk_way){ .limit_ms = LIMIT_MS }, NULL, &report, NULL);
	if (gather_at(report, "daemon"))
		dra_restore(&state->dra, report);
	dra_publish(&state->dra, report, bf_now_ns());
	json_object_put(report);
}

static int open_signals(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A second driver on the node would remove the sockets of the first. */
static int lock_folder(const struct dra_options *options, int *lock, struct bf_error *err)
{
	*lock = open(options->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*lock >= 0 && !flock(*lock, LOCK_EX | LOCK_NB))
		return 0;
	return bf_fail(err, errno, "%s: %s", options->folder,
		       errno == EWOULDBLOCK ? "another belfry-dra serves this node" : strerror(errno));
}

static int start(struct state *state, int *lock, struct bf_error *err)
{
	int rc;

	snprintf(state->service_path, PATH_MAX, "%.3000s/dra.sock", state->dra.options.folder);
	snprintf(state->registration_path, PATH_MAX, "%.3000s/" DRA_DRIVER "-reg.sock",
		 state->dra.options.registry);
	state->loop = loop_new(SOURCES_AT_ONCE, err);
	if (!state->loop)
		return -err->code;
	rc = dra_state_load(&state->dra, err);
	if (!rc)
		rc = lock_folder(&state->dra.options, lock, err);
	if (!rc)
		rc = dra_server_start(err);
	if (rc)
		return rc;
	state->signals = open_signals();
	if (state->signals < 0 ||
	    !loop_add(state->loop, state->signals, EPOLLIN, LOOP_FIRST, take_signal, state))
		return bf_fail(err, errno, "signals: %s", strerror(errno));
	return 0;
}

static int serve(const struct dra_options *options, struct bf_error *err)
{
	struct state state = { .dra = { .options = *options, .report_ns = bf_now_ns() } };
	cleanup_close int lock = -1;
	struct dra_claim *claim, *after;
	uint64_t due_ns = 0;
	int rc = start(&state, &lock, err);

	while (!rc && !state.is_ending) {
		if (bf_now_ns() >= due_ns) {
			tick(&state);
			due_ns = bf_now_ns() + TICK_NS;
		}
		rc = loop_wait(state.loop, due_ns);
		rc = rc < 0 ? bf_fail(err, -rc, "epoll: %s", strerror(-rc)) : 0;
	}
	if (state.registration)
		wire_close(state.registration);
	if (state.service)
		wire_close(state.service);
	LIST_FOREACH_SAFE(claim, &state.dra.claims, entry, after)
		free(claim);
	if (state.loop)
		loop_free(state.loop);
	return rc;
}

static int print_slice(const struct dra_options *options, struct bf_error *err)
{
	struct json_object *report = NULL, *slice;
	const char *text;
	int rc = gather_report(&(struct talk_way){ .limit_ms = LIMIT_MS }, NULL, &report, err);

	if (rc)
		return rc;
	slice = dra_slice(options->node, "", 1, dra_slice_devices(report));
	text = json_object_to_json_string_ext(slice,
					      JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
	puts(text ? text : "");
	json_object_put(slice);
	json_object_put(report);
	return 0;
}

/* A pod finds the API server by variables that the kubelet sets. */
static int complete(struct options *said, char *url, size_t room, struct bf_error *err)
{
	struct dra_options *dra = &said->dra;
	const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");

	if (!dra->node || !*dra->node || strlen(dra->node) > DRA_NAME_MAX - sizeof("-" DRA_DRIVER))
		return bf_fail(err, EINVAL, "name this node with --node or NODE_NAME");
	if (dra->server.url || said->wants_slice)
		return 0;
	if (!host || !port)
		return bf_fail(err, EINVAL, "not in a pod: name the API server with --server");
	snprintf(url, room, strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
	dra->server.url = url;
	if (!dra->server.token)
		dra->server.token = SECRETS "token";
	if (!dra->server.ca)
		dra->server.ca = SECRETS "ca.crt";
	return 0;
}

static int usage(const char *why)
{
	fprintf(stderr, "belfry-dra: %s; see belfry-dra --help\n", why);
	return 2;
}

int main(int argc, char **argv)
{
	struct options said = { .dra = { .node = getenv("NODE_NAME"),
					 .registry = "/var/lib/kubelet/plugins_registry",
					 .folder = "/var/lib/kubelet/plugins/" DRA_DRIVER,
					 .marks = ATTACH_MARKS,
					 .cdi = "/var/run/cdi" },
				.log_level = BF_LOG_INFO };
	struct bf_error err = { 0 };
	char url[512];
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
		puts("belfry-dra " BELFRY_VERSION);
		return 0;
	}
	if (complete(&said, url, sizeof(url), &err))
		return usage(err.text);
	if (said.socket)
		setenv("BELFRY_SOCKET", said.socket, 1);
	bf_log_setup("belfry-dra", (enum bf_log_level)said.log_level);
	rc = said.wants_slice ? print_slice(&said.dra, &err) : serve(&said.dra, &err);
	if (!rc)
		return 0;
	bf_log(BF_LOG_ERROR, "%s", err.text);
	return 1;
}
