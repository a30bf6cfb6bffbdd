#include "router/router.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/number.h"
#include "base/process.h"
#include "client/inside.h"
#include "router/internal.h"

/* FIRST_S: how long a private belfryd waits for its first request, even if linger is shorter. */
enum { END_S = 10, FIRST_S = 5, WAIT_MOST_S = 60 };
/* All that can be watched: one call of loop_wait handles everything that is ready, in its order. */
enum {
	SOURCES_MAX =
		ROUTER_CLIENTS_MAX + ROUTER_PARTING_MAX + ROUTER_FOLLOWERS_MAX + 2 * ROUTER_SERVERS_MAX +
		ROUTER_COMMANDS_MAX +
		7 /* signals, wake_fd, the socket, belfry-metrics, belfry-oci-listener, two of lookup.c */
};
enum { WAKE_STOP = 1, WAKE_RELOAD = 1 << 16 };

void router_stop(struct router *router)
{
	eventfd_write(router->wake_fd, WAKE_STOP);
}

void router_reload(struct router *router)
{
	eventfd_write(router->wake_fd, WAKE_RELOAD);
}

static void tell(const struct router *router, const char *text)
{
	if (router->options.tell)
		router->options.tell(router->options.context, text);
}

void router_check_settled(struct router *router)
{
	if (router->is_settled || router->is_ending)
		return;
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (router_server_is_coming(server))
			return;
	router->is_settled = true;
	router_config_settled(router);
	tell(router, "READY=1");
}

int router_reload_now(struct router *router, struct bf_error *err)
{
	int rc = router_config_reload(router, err);

	router_event_config(router, rc ? err : NULL);
	if (!rc)
		router_totals_follow(router);
	return rc;
}

static void reload(struct router *router)
{
	char text[64];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)(bf_now_ns() / 1000));
	tell(router, text);
	router_lookup_begin(router, NULL);
}

void router_reload_done(struct router *router, struct router_ask *ask, const struct bf_error *err)
{
	if (ask && err->code) {
		router_refuse(router, ask, err);
	} else if (ask) {
		router_reload_await(router, ask);
	} else {
		if (err->code)
			bf_log(BF_LOG_ERROR, "the configuration was not read again: %s", err->text);
		tell(router, "READY=1");
	}
}

static void signal_ready(void *context, uint32_t events)
{
	struct router *router = context;
	struct signalfd_siginfo info;

	(void)events;
	while (read(router->options.signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGHUP)
			router->is_reload_due = true;
		else
			router->is_ending = true;
}

static void wake_ready(void *context, uint32_t events)
{
	struct router *router = context;
	eventfd_t value = 0;

	(void)events;
	if (eventfd_read(router->wake_fd, &value))
		return;
	router->is_reload_due |= value >= WAKE_RELOAD;
	router->is_ending |= value % WAKE_RELOAD != 0;
}

static int make_loop(struct router *router, struct bf_error *err)
{
	int signal_fd = router->options.signal_fd;

	router->loop = loop_new(SOURCES_MAX, err);
	if (!router->loop)
		return -ENOMEM;
	router->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (router->wake_fd < 0 ||
	    !loop_add(router->loop, router->wake_fd, EPOLLIN, LOOP_FIRST, wake_ready, router) ||
	    (signal_fd >= 0 && !loop_add(router->loop, signal_fd, EPOLLIN, LOOP_FIRST, signal_ready, router)))
		return bf_fail(err, errno, "belfryd: no descriptors: %s", strerror(errno));
	return 0;
}

struct router *router_new(const struct router_options *options, struct bf_error *err)
{
	struct router *router = calloc(1, sizeof(*router));

	if (!router) {
		bf_fail(err, ENOMEM, "belfryd: no memory");
		return NULL;
	}
	router->options = *options;
	router->filters_floor = inside_floor(options->is_private);
	router->lock_fd = router->listen_fd = router->wake_fd = router->metrics.pidfd = -1;
	router->lookup.fd = router->lookup.pidfd = -1;
	router->save_ns = router->totals.save_ns = router->lookup.until_ns = ROUTER_NEVER;
	router->metrics.kill_ns = ROUTER_NEVER;
	router_commands_begin(router);
	config_init(&router->config);
	LIST_INIT(&router->clients);
	LIST_INIT(&router->events.followers);
	if (!make_loop(router, err) && !router_socket_name(router, err) &&
	    !router_config_start(router, err) && !router_socket_take(router, err))
		return router;
	router_free(router);
	return NULL;
}

static bool is_idle(const struct router *router)
{
	if (!router->options.is_private || router->client_count || router->vgpus ||
	    router->events.follower_count || router_lookup_waits(router))
		return false;
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (server->ask_count || server->use.runs || router_server_is_coming(server))
			return false;
	return true;
}

static uint64_t linger_ns(const struct router *router)
{
	uint64_t ns = router->config.linger_us * 1000;

	return router->was_asked || ns > FIRST_S * ROUTER_S ? ns : FIRST_S * ROUTER_S;
}

static uint64_t next_due(const struct router *router)
{
	uint64_t due_ns =
		bf_min(bf_now_ns() + WAIT_MOST_S * ROUTER_S, bf_min(router->save_ns, router->totals.save_ns));

	due_ns = bf_min(due_ns, router_pending_due(router));
	due_ns = bf_min(due_ns, router_commands_due(router));
	due_ns = bf_min(due_ns, router->lookup.until_ns);
	if (router->is_making)
		due_ns = bf_min(due_ns, router->making_until_ns);
	if (router->reloading.ask)
		due_ns = bf_min(due_ns, router->reloading.until_ns);
	due_ns = bf_min(due_ns, router_clients_due(router));
	due_ns = bf_min(due_ns, router_metrics_due(router));
	due_ns = bf_min(due_ns, router_oci_due(router));
	if (is_idle(router))
		due_ns = bf_min(due_ns, router->idle_since_ns + linger_ns(router));
	for (const struct router_server *server = router->servers; server; server = server->next)
		due_ns = bf_min(due_ns, router_server_due(server));
	return due_ns;
}

static void tick(struct router *router)
{
	uint64_t now_ns = bf_now_ns();

	for (struct router_server *server = router->servers; server; server = server->next)
		router_server_tick(router, server, now_ns);
	router_servers_sweep(router, now_ns);
	router_clients_sweep(router, now_ns);
	router_metrics_tick(router, now_ns);
	router_oci_tick(router, now_ns);
	router_config_tick(router, now_ns);
	router_lookup_tick(router, now_ns);
	router_reload_tick(router, now_ns);
	router_pending_tick(router, now_ns);
	router_commands_tick(router, now_ns);
	if (router->save_ns <= now_ns)
		router_state_save(router, NULL);
	if (router->totals.save_ns <= now_ns)
		router_totals_save(router);
	if (!is_idle(router))
		router->idle_since_ns = now_ns;
	else if (now_ns - router->idle_since_ns >= linger_ns(router))
		router->is_ending = true;
}

static void turn(struct router *router)
{
	int rc = loop_wait(router->loop, next_due(router));

	if (rc < 0) {
		bf_log(BF_LOG_ERROR, "cannot wait for events: %s; belfryd ends", strerror(-rc));
		router->is_ending = true;
	}
	/* A signal during a reload is for the next one. */
	if (router->is_reload_due && !router->is_ending && !router->reloading.ask &&
	    !router_lookup_waits(router)) {
		router->is_reload_due = false;
		reload(router);
	}
	router_state_settle(router);
	tick(router);
}

bool router_carries(const struct router *router)
{
	return router->config.sharing.on_daemon_death == SETTINGS_CARRY && !router->options.is_private;
}

/* With "carry", belfryd only closes the connection; GPU servers keep running. */
static void end_servers(struct router *router)
{
	bool is_carry = router_carries(router);
	struct hall_message message = router_message(router, HALL_END);

	for (struct router_server *server = router->servers; server; server = server->next) {
		if (server->sock < 0)
			continue;
		/* If HALL_END cannot be sent, closing the connection has the same effect. */
		if (is_carry || router_server_send(server, &message)) {
			router_server_hang_up(server);
			server->phase = is_carry || server->pidfd < 0 ? ROUTER_OFF : ROUTER_LEAVING;
		}
	}
}

static bool still_there(const struct router *router)
{
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (server->phase != ROUTER_OFF)
			return true;
	return false;
}

static void kill_servers(struct router *router)
{
	for (struct router_server *server = router->servers; server; server = server->next)
		if (server->pidfd >= 0) {
			bf_log(BF_LOG_WARN, "%s: its server does not end; it is killed", server->label);
			bf_pidfd_kill(server->pidfd, SIGKILL);
		}
}

static void wait_servers(struct router *router)
{
	uint64_t until_ns = bf_now_ns() + END_S * ROUTER_S;

	while (still_there(router) && bf_now_ns() < until_ns)
		loop_wait(router->loop, until_ns);
	if (!still_there(router))
		return;
	kill_servers(router);
	until_ns = bf_now_ns() + ROUTER_S;
	while (still_there(router) && bf_now_ns() < until_ns)
		loop_wait(router->loop, until_ns);
}

static void end(struct router *router)
{
	router->is_ending = true;
	bf_log(BF_LOG_INFO, "ending");
	tell(router, "STOPPING=1");
	router_socket_close(router);
	router_lookup_end(router);
	router_reload_tick(router, ROUTER_NEVER);
	router_clients_end(router);
	if (router->save_ns != ROUTER_NEVER)
		router_state_save(router, NULL);
	router_state_settle(router);
	router_metrics_end(router);
	router_oci_end(router);
	router_commands_end(router);
	router_events_end(router);
	end_servers(router);
	wait_servers(router);
	router_metrics_wait(router);
	router_totals_save(router);
}

void router_run(struct router *router)
{
	router_totals_follow(router);
	router_config_begin(router);
	bf_log(BF_LOG_INFO, "serving at %s", router->socket);
	router_check_settled(router);
	router->idle_since_ns = bf_now_ns();
	while (!router->is_ending)
		turn(router);
	end(router);
}

void router_free(struct router *router)
{
	if (!router)
		return;
	router->is_ending = true;
	router_socket_close(router);
	router_lookup_end(router);
	router_clients_end(router);
	while (router->servers)
		router_server_free(router, router->servers);
	while (router->vgpus)
		router_vgpu_drop(router, router->vgpus);
	router_pending_free(router);
	router_commands_end(router);
	router_events_end(router);
	router_totals_end(router);
	if (router->lock_fd >= 0)
		close(router->lock_fd);
	if (router->wake_fd >= 0)
		close(router->wake_fd);
	config_free(&router->config);
	loop_free(router->loop);
	free(router);
}
