/* Runs belfry-oci-listener as a child, which receives the seccomp listeners of containers at config.oci_socket. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/number.h"
#include "base/process.h"
#include "router/internal.h"

enum { END_STEP_US = 10000, END_STEPS = 100 };

#define SYSTEM_SOCKET "/run/belfry/belfryd.sock"
#define SYSTEM_OCI_SOCKET "/run/belfry/oci.sock"

const char *router_oci_socket(const struct router *router)
{
	const char *set = router->config.oci_socket;

	if (set[0])
		return strcmp(set, "off") ? set : NULL;
	return !router->options.is_private && !strcmp(router->socket, SYSTEM_SOCKET) ? SYSTEM_OCI_SOCKET
										     : NULL;
}

/* The process ID of a child is not reused before the child is waited for. No program of a run can become a child of it. */
bool router_oci_is_parent(const struct router *router, pid_t pid)
{
	struct bf_status status;

	return router->oci.pid && !bf_status_read(pid, &status) && status.parent == router->oci.pid;
}

static void forget(struct router_oci *oci)
{
	loop_remove(oci->router->loop, oci->source);
	if (oci->pidfd >= 0)
		close(oci->pidfd);
	oci->source = NULL;
	oci->pidfd = -1;
	oci->pid = 0;
	oci->start_ns = 0;
}

static void exited(void *context, uint32_t events)
{
	struct router_oci *oci = context;
	int status;

	(void)events;
	if (waitpid(oci->pid, &status, WNOHANG) == 0)
		return;
	bf_log(BF_LOG_WARN, "oci_socket: belfry-oci-listener ended (%s %d); it is started again",
	       WIFSIGNALED(status) ? "signal" : "status",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	forget(oci);
}

/* Repeated by each tick, in case there was no memory. */
static void watch(struct router_oci *oci)
{
	if (oci->pid && oci->pidfd < 0)
		oci->pidfd = bf_pidfd_open(oci->pid);
	if (oci->pid && oci->pidfd >= 0 && !oci->source)
		oci->source = loop_add(oci->router->loop, oci->pidfd, EPOLLIN, LOOP_FIRST, exited, oci);
}

static bool is_wanted(const struct router *router)
{
	return !router->oci.pid && router->options.start_oci && !router->is_ending &&
	       router_oci_socket(router);
}

uint64_t router_oci_due(const struct router *router)
{
	return is_wanted(router) ? router->oci.start_ns : ROUTER_NEVER;
}

void router_oci_tick(struct router *router, uint64_t now_ns)
{
	const struct router_options *options = &router->options;
	struct router_oci *oci = &router->oci;
	struct bf_error err = { 0 };

	oci->router = router;
	watch(oci);
	if (!is_wanted(router) || oci->start_ns > now_ns ||
	    !router_may_start(&oci->starts, now_ns, &oci->start_ns))
		return;
	snprintf(oci->path, sizeof(oci->path), "%s", router_oci_socket(router));
	oci->pid = options->start_oci(options->context, &router->config, oci->path, router->socket, &err);
	oci->pidfd = -1;
	if (oci->pid > 0) {
		watch(oci);
		return;
	}
	bf_log(BF_LOG_ERROR, "oci_socket: %s", err.text);
	oci->pid = 0;
	oci->start_ns = ROUTER_NEVER; /* until the configuration is read again */
}

static bool is_same(const struct router *router)
{
	const char *path = router_oci_socket(router);

	return path && !strcmp(path, router->oci.path);
}

void router_oci_settle(struct router *router)
{
	router->oci.start_ns = 0;
	router->oci.starts = (struct router_starts){ 0 };
	if (!is_same(router))
		router_oci_end(router);
}

void router_oci_end(struct router *router)
{
	struct router_oci *oci = &router->oci;

	if (!oci->pid)
		return;
	kill(oci->pid, SIGTERM);
	for (unsigned i = 0; waitpid(oci->pid, NULL, WNOHANG) == 0; i++) {
		if (i == END_STEPS)
			kill(oci->pid, SIGKILL);
		usleep(END_STEP_US);
	}
	forget(oci);
}
