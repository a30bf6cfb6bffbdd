/* Runs belfry-metrics as a child as long as the configuration has `metrics`. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "router/internal.h"

enum { END_STEP_US = 10000, END_STEPS = 100 };

void router_metrics_tick(struct router *router, uint64_t now_ns)
{
	const struct router_options *options = &router->options;
	struct bf_error err = { 0 };

	if (router->metrics_pid || router->metrics_ns > now_ns || !router->config.metrics[0] ||
	    !options->start_metrics || router->is_ending)
		return;
	if (!router_may_start(&router->metrics_starts, now_ns, &router->metrics_ns))
		return;
	router->metrics_pid = options->start_metrics(options->context, &router->config, router->socket, &err);
	if (router->metrics_pid > 0) {
		router->metrics_pidfd = bf_pidfd_open(router->metrics_pid);
		return;
	}
	bf_log(BF_LOG_ERROR, "metrics: %s", err.text);
	router->metrics_pid = 0;
	router->metrics_ns = ROUTER_NEVER; /* until the configuration is read again */
}

static void forget(struct router *router)
{
	if (router->metrics_pidfd >= 0)
		close(router->metrics_pidfd);
	router->metrics_pidfd = -1;
	router->metrics_pid = 0;
	router->metrics_ns = 0;
}

void router_metrics_exited(struct router *router)
{
	int status;

	if (waitpid(router->metrics_pid, &status, WNOHANG) == 0)
		return;
	bf_log(BF_LOG_WARN, "metrics: belfry-metrics ended (%s %d); it is started again",
	       WIFSIGNALED(status) ? "signal" : "status",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	forget(router);
}

/* Also resets the limit of starts, which counts for one configuration. */
void router_metrics_end(struct router *router)
{
	router->metrics_ns = 0;
	router->metrics_starts = (struct router_starts){ 0 };
	if (!router->metrics_pid)
		return;
	kill(router->metrics_pid, SIGTERM);
	for (unsigned i = 0; waitpid(router->metrics_pid, NULL, WNOHANG) == 0; i++) {
		if (i == END_STEPS)
			kill(router->metrics_pid, SIGKILL);
		usleep(END_STEP_US);
	}
	forget(router);
}
