/* Runs belfry-metrics as a child as long as the configuration has `metrics`. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/number.h"
#include "base/process.h"
#include "router/internal.h"

enum {
	END_S = 1,    /* from SIGTERM to SIGKILL */
	AGAIN_S = 30, /* after it could not be started */
};

static void forget(struct router *router)
{
	struct router_metrics *metrics = &router->metrics;

	loop_remove(router->loop, metrics->source);
	metrics->source = NULL;
	if (metrics->pidfd >= 0)
		close(metrics->pidfd);
	metrics->pidfd = -1;
	metrics->pid = 0;
	metrics->is_told_to_end = false;
	metrics->kill_ns = ROUTER_NEVER;
	metrics->start_ns = 0;
}

static void exited(void *context, uint32_t events)
{
	struct router *router = context;
	int status = 0;

	(void)events;
	if (waitpid(router->metrics.pid, &status, WNOHANG) == 0)
		return;
	if (!router->metrics.is_told_to_end)
		bf_log(BF_LOG_WARN, "metrics: belfry-metrics ended (%s %d); it is started again",
		       WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	forget(router);
}

/* Repeated by each tick, in case there was no memory. */
static void watch(struct router *router)
{
	struct router_metrics *metrics = &router->metrics;

	if (metrics->pidfd >= 0 && !metrics->source)
		metrics->source = loop_add(router->loop, metrics->pidfd, EPOLLIN, LOOP_FIRST, exited, router);
}

static bool is_wanted(const struct router *router)
{
	return router->config.metrics[0] && router->options.start_metrics && !router->is_ending;
}

static int start(struct router *router, struct bf_error *err)
{
	const struct router_options *options = &router->options;
	pid_t pid = options->start_metrics(options->context, &router->config, router->socket, err);
	int pidfd = pid > 0 ? router_child_open(pid, err) : -1;

	if (pidfd < 0)
		return -err->code;
	router->metrics.pid = pid;
	router->metrics.pidfd = pidfd;
	watch(router);
	return 0;
}

void router_metrics_tick(struct router *router, uint64_t now_ns)
{
	struct router_metrics *metrics = &router->metrics;
	struct bf_error err = { 0 };

	watch(router);
	if (metrics->kill_ns <= now_ns) {
		metrics->kill_ns = ROUTER_NEVER;
		bf_pidfd_kill(metrics->pidfd, SIGKILL);
	}
	if (metrics->pid || metrics->start_ns > now_ns || !is_wanted(router) ||
	    !router_may_start(&metrics->starts, now_ns, &metrics->start_ns))
		return;
	if (start(router, &err)) {
		if (err.code != metrics->failed)
			bf_log(BF_LOG_ERROR, "metrics: %s", err.text);
		metrics->start_ns = now_ns + AGAIN_S * ROUTER_S;
	}
	metrics->failed = err.code;
}

uint64_t router_metrics_due(const struct router *router)
{
	const struct router_metrics *metrics = &router->metrics;

	return metrics->pid ? metrics->kill_ns : is_wanted(router) ? metrics->start_ns : ROUTER_NEVER;
}

void router_metrics_end(struct router *router)
{
	struct router_metrics *metrics = &router->metrics;

	metrics->start_ns = 0;
	metrics->starts = (struct router_starts){ 0 };
	metrics->failed = 0;
	if (!metrics->pid || metrics->is_told_to_end)
		return;
	bf_pidfd_kill(metrics->pidfd, SIGTERM);
	metrics->is_told_to_end = true;
	metrics->kill_ns = bf_now_ns() + END_S * ROUTER_S;
}

static void wait_until(struct router *router, uint64_t until_ns)
{
	while (router->metrics.pid && bf_now_ns() < until_ns && loop_wait(router->loop, until_ns) >= 0)
		;
}

void router_metrics_wait(struct router *router)
{
	wait_until(router, bf_min(router->metrics.kill_ns, bf_now_ns() + END_S * ROUTER_S));
	if (router->metrics.pid) {
		bf_pidfd_kill(router->metrics.pidfd, SIGKILL);
		wait_until(router, bf_now_ns() + END_S * ROUTER_S);
	}
	forget(router);
}
