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

/* FIRST_S: for whoever started a private one to ask it something, however short it is to linger. */
enum { END_S = 10, PART_MS = 200, FIRST_S = 5 };
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

struct router *router_new(const struct router_options *options, struct bf_error *err)
{
	struct router *router = calloc(1, sizeof(*router));

	if (!router) {
		bf_fail(err, ENOMEM, "belfryd: no memory");
		return NULL;
	}
	router->options = *options;
	router->filters_floor = inside_floor(options->is_private);
	router->lock_fd = router->listen_fd = router->metrics_pidfd = -1;
	router->save_ns = router->totals.save_ns = ROUTER_NEVER;
	router_commands_begin(router);
	config_init(&router->config);
	router->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (router->wake_fd < 0)
		bf_fail(err, errno, "belfryd: no descriptors: %s", strerror(errno));
	else if (!router_socket_name(router, err) && !router_config_start(router, err) &&
		 !router_socket_take(router, err))
		return router;
	router_free(router);
	return NULL;
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
	struct bf_error err = { 0 };
	char text[64];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)(bf_now_ns() / 1000));
	tell(router, text);
	if (router_reload_now(router, &err))
		bf_log(BF_LOG_ERROR, "the configuration was not read again: %s", err.text);
	tell(router, "READY=1");
}

static void hear_signals(struct router *router)
{
	struct signalfd_siginfo info;

	while (read(router->options.signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGHUP)
			router->is_reload_due = true;
		else
			router->is_ending = true;
}

static void hear_wake(struct router *router)
{
	eventfd_t value = 0;

	if (eventfd_read(router->wake_fd, &value))
		return;
	router->is_reload_due |= value >= WAKE_RELOAD;
	router->is_ending |= value % WAKE_RELOAD != 0;
}

/* What is polled, in order: the fixed ones, then hall and process of each server, then the clients, then those who follow
 * events. */
enum {
	POLL_SIGNAL,
	POLL_WAKE,
	POLL_LISTEN,
	POLL_METRICS,
	POLL_COMMANDS,
	POLL_FIXED = POLL_COMMANDS + ROUTER_COMMANDS_MAX
};

static void add_poll_for(struct router *router, int fd, short events)
{
	if (router->poll_count == router->poll_room) {
		unsigned room = router->poll_room ? 2 * router->poll_room : 64;
		struct pollfd *more = reallocarray(router->polls, room, sizeof(*more));

		if (!more)
			return; /* who is left out is polled when there is memory */
		router->polls = more;
		router->poll_room = room;
	}
	router->polls[router->poll_count++] = (struct pollfd){ .fd = fd, .events = events };
}

static void add_poll(struct router *router, int fd)
{
	add_poll_for(router, fd, POLLIN);
}

static void fill_polls(struct router *router, uint64_t now_ns)
{
	router->poll_count = 0;
	add_poll(router, router->options.signal_fd);
	add_poll(router, router->wake_fd);
	add_poll(router, router->accept_after_ns <= now_ns ? router->listen_fd : -1);
	add_poll(router, router->metrics_pidfd);
	for (unsigned i = 0; i < ROUTER_COMMANDS_MAX; i++)
		add_poll(router, router->commands.running[i].pidfd);
	for (struct router_server *server = router->servers; server; server = server->next) {
		add_poll(router, server->sock);
		add_poll(router, server->pidfd);
	}
	for (unsigned i = 0; i < router->client_count; i++)
		add_poll(router, router->clients[i].fd);
	for (unsigned i = 0; i < router->events.follower_count; i++)
		add_poll_for(router, router->events.followers[i].fd,
			     router_follower_polls(&router->events.followers[i]));
}

static bool is_idle(const struct router *router)
{
	if (!router->options.is_private || router->client_count || router->vgpus ||
	    router->events.follower_count)
		return false;
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (server->first || server->use.runs || router_server_is_coming(server))
			return false;
	return true;
}

static uint64_t linger_ns(const struct router *router)
{
	uint64_t ns = router->config.linger_us * 1000;

	return router->was_asked || ns > FIRST_S * ROUTER_S ? ns : FIRST_S * ROUTER_S;
}

static uint64_t next_due(const struct router *router, uint64_t now_ns)
{
	uint64_t due_ns = bf_min(router->save_ns, router->totals.save_ns);

	due_ns = bf_min(due_ns, router_pending_due(router));
	due_ns = bf_min(due_ns, router_commands_due(router));
	if (router->reloading.ask)
		due_ns = bf_min(due_ns, router->reloading.until_ns);
	if (router->accept_after_ns > now_ns)
		due_ns = bf_min(due_ns, router->accept_after_ns);
	if (router->config.metrics[0] && !router->metrics_pid && router->options.start_metrics)
		due_ns = bf_min(due_ns, router->metrics_ns);
	if (is_idle(router))
		due_ns = bf_min(due_ns, router->idle_since_ns + linger_ns(router));
	for (const struct router_server *server = router->servers; server; server = server->next)
		due_ns = bf_min(due_ns, router_server_due(server));
	for (const struct router_vgpu *vgpu = router->vgpus; vgpu; vgpu = vgpu->next)
		due_ns = bf_min(due_ns, vgpu->until_ns);
	for (unsigned i = 0; i < router->client_count; i++)
		due_ns = bf_min(due_ns, router->clients[i].deadline_ns);
	return due_ns;
}

static int poll_ms(uint64_t due_ns, uint64_t now_ns)
{
	const uint64_t most_ms = 60000;

	if (due_ns <= now_ns)
		return 0;
	return (int)bf_min((due_ns - now_ns) / ROUTER_MS + 1, most_ms);
}

static void hear_servers(struct router *router, unsigned count)
{
	struct router_server *server = router->servers;

	/* New ones come to the end of the list and were not polled. */
	for (unsigned i = 0; i < count; i++, server = server->next) {
		const struct pollfd *polls = &router->polls[POLL_FIXED + 2 * i];

		if (polls[0].revents && server->sock == polls[0].fd)
			router_server_hear(router, server);
		if (polls[1].revents && server->pidfd == polls[1].fd && server->pidfd >= 0)
			router_server_exited(router, server);
	}
}

static void hear_clients(struct router *router, unsigned first, unsigned count)
{
	for (unsigned i = 0; i < count && first + i < router->poll_count; i++)
		if (router->polls[first + i].revents && router->clients[i].fd >= 0)
			router_client_hear(router, &router->clients[i]);
}

static void hear_followers(struct router *router, unsigned first, unsigned count)
{
	for (unsigned i = 0; i < count && first + i < router->poll_count; i++)
		if (router->polls[first + i].revents && router->events.followers[i].fd >= 0)
			router_follower_hear(&router->events.followers[i], router->polls[first + i].revents);
	router_followers_sweep(router);
}

static void hear_children(struct router *router)
{
	if (router->polls[POLL_METRICS].revents)
		router_metrics_exited(router);
	for (unsigned i = 0; i < ROUTER_COMMANDS_MAX; i++)
		if (router->polls[POLL_COMMANDS + i].revents)
			router_commands_hear(router, i);
}

static void tick(struct router *router)
{
	uint64_t now_ns = bf_now_ns();

	for (struct router_server *server = router->servers; server; server = server->next)
		router_server_tick(router, server, now_ns);
	router_servers_sweep(router, now_ns);
	router_vgpus_expire(router, now_ns);
	router_clients_sweep(router, now_ns);
	router_metrics_tick(router, now_ns);
	router_config_tick(router);
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
	uint64_t now_ns = bf_now_ns();
	unsigned servers = 0, clients = router->client_count, followers = router->events.follower_count;

	fill_polls(router, now_ns);
	for (const struct router_server *server = router->servers; server; server = server->next)
		servers++;
	if (router->poll_count < POLL_FIXED + 2 * servers ||
	    poll(router->polls, router->poll_count, poll_ms(next_due(router, now_ns), now_ns)) < 0)
		return;
	if (router->polls[POLL_SIGNAL].revents)
		hear_signals(router);
	if (router->polls[POLL_WAKE].revents)
		hear_wake(router);
	hear_children(router);
	hear_servers(router, servers);
	hear_followers(router, POLL_FIXED + 2 * servers + clients, followers);
	hear_clients(router, POLL_FIXED + 2 * servers, clients);
	router_clients_sweep(router, 0);
	if (router->polls[POLL_LISTEN].revents)
		router_clients_accept(router);
	if (router->is_reload_due && !router->is_ending)
		reload(router);
	router->is_reload_due = false;
	router_state_settle(router);
	tick(router);
}

/* Who still waits is told to try again: the next belfryd will be there. */
static void part_clients(struct router *router)
{
	uint64_t until_ns = bf_now_ns() + PART_MS * ROUTER_MS;

	for (unsigned i = 0, count = router->client_count; i < count; i++) {
		struct router_client *client = &router->clients[i];

		if (client->fd >= 0 && !client->is_parting) {
			router_client_part(router, client->fd, EAGAIN, "belfryd is ending; try again");
			client->fd = -1;
		}
	}
	router_clients_sweep(router, 0);
	for (uint64_t now_ns = bf_now_ns(); router->client_count && now_ns < until_ns; now_ns = bf_now_ns()) {
		router->poll_count = 0;
		for (unsigned i = 0; i < router->client_count; i++)
			add_poll(router, router->clients[i].fd);
		if (poll(router->polls, router->poll_count, poll_ms(until_ns, now_ns)) > 0)
			hear_clients(router, 0, router->client_count);
		router_clients_sweep(router, 0);
	}
	router_clients_sweep(router, ROUTER_NEVER);
}

/* With "carry" they are left alone: they see the end of their hall. */
static void end_servers(struct router *router)
{
	bool is_carry = router->config.sharing.on_daemon_death == SETTINGS_CARRY &&
			!router->options.is_private;
	struct hall_message message = router_message(router, HALL_END);

	for (struct router_server *server = router->servers; server; server = server->next) {
		if (server->sock < 0)
			continue;
		/* One that cannot be told sees the end of its hall, which tells it as much. */
		if (is_carry || router_server_send(server, &message)) {
			close(server->sock);
			server->sock = -1;
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

static void wait_servers(struct router *router)
{
	uint64_t until_ns = bf_now_ns() + END_S * ROUTER_S;
	bool are_killed = false;

	while (still_there(router)) {
		uint64_t now_ns = bf_now_ns();
		unsigned servers = 0;

		if (now_ns >= until_ns && are_killed)
			return;
		if (now_ns >= until_ns) {
			for (struct router_server *server = router->servers; server; server = server->next)
				if (server->pidfd >= 0) {
					bf_log(BF_LOG_WARN, "%s: its server does not end; it is killed",
					       server->label);
					bf_pidfd_kill(server->pidfd, SIGKILL);
				}
			are_killed = true;
			until_ns = now_ns + ROUTER_S;
		}
		fill_polls(router, now_ns);
		for (const struct router_server *server = router->servers; server; server = server->next)
			servers++;
		router->polls[POLL_SIGNAL].fd = router->polls[POLL_WAKE].fd = -1;
		if (poll(router->polls, router->poll_count, poll_ms(until_ns, now_ns)) > 0)
			hear_servers(router, servers);
	}
}

static void end(struct router *router)
{
	router->is_ending = true;
	bf_log(BF_LOG_INFO, "ending");
	tell(router, "STOPPING=1");
	router_socket_close(router);
	router_reload_tick(router, ROUTER_NEVER);
	part_clients(router);
	if (router->save_ns != ROUTER_NEVER)
		router_state_save(router, NULL);
	router_state_settle(router);
	router_metrics_end(router);
	router_commands_end(router);
	router_events_end(router);
	end_servers(router);
	wait_servers(router);
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
	part_clients(router);
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
	free(router->polls);
	free(router);
}
