/* The list of the GPU servers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "router/internal.h"

enum { FAILED_SHOWN_S = 60 }; /* how long a failure is shown of a server that is not needed any more */

void router_server_name(const struct router *router, struct router_server *server)
{
	const struct protocol_gpu *gpu = &server->gpu;
	uint32_t hash;

	if (gpu->kind != PROTOCOL_GPU_SOFT) {
		snprintf(server->label, sizeof(server->label), "GPU %" PRIu32, gpu->index);
		snprintf(server->path, sizeof(server->path), "%.90s.gpu%" PRIu32, router->socket, gpu->index);
		return;
	}
	hash = (bf_hash(gpu->folder) ^ gpu->index) * 16777619u;
	snprintf(server->label, sizeof(server->label), "GPU soft:%" PRIu32, gpu->index);
	snprintf(server->path, sizeof(server->path), "%.90s.soft-%08" PRIx32, router->socket, hash);
}

bool router_server_is_of(const struct router_server *server, const struct protocol_gpu *gpu)
{
	return server->gpu.kind == gpu->kind && server->gpu.index == gpu->index &&
	       (gpu->kind != PROTOCOL_GPU_SOFT || !gpu->folder[0] ||
		!strcmp(gpu->folder, server->gpu.folder));
}

struct router_server *router_server_find(struct router *router, const struct protocol_gpu *gpu)
{
	struct router_server *found = NULL;

	/* Without a folder several software GPUs may match. One that runs takes precedence over one that is only
	 * listed. */
	for (struct router_server *server = router->servers; server; server = server->next)
		if (router_server_is_of(server, gpu) &&
		    (!found || (found->phase == ROUTER_OFF && server->phase != ROUTER_OFF)))
			found = server;
	return found;
}

struct router_server *router_server_add(struct router *router, const struct protocol_gpu *gpu,
					struct bf_error *err)
{
	struct router_server **at = &router->servers, *server = NULL;
	unsigned count = 0;

	for (; *at; at = &(*at)->next)
		count++;
	if (count < ROUTER_SERVERS_MAX)
		server = calloc(1, sizeof(*server));
	if (!server) {
		bf_fail(err, ENOSPC, "there are %u GPU servers already, the most is %d", count,
			ROUTER_SERVERS_MAX);
		return NULL;
	}
	*server = (struct router_server){ .router = router,
					  .gpu = *gpu,
					  .sock = -1,
					  .pidfd = -1,
					  .deadline_ns = ROUTER_NEVER,
					  .retry_ns = ROUTER_NEVER,
					  .has_soft = gpu->kind == PROTOCOL_GPU_SOFT && !gpu->folder[0] };
	TAILQ_INIT(&server->asks);
	TAILQ_INIT(&server->sent);
	router_server_name(router, server);
	*at = server;
	return server;
}

void router_server_free(struct router *router, struct router_server *server)
{
	struct router_server **at = &router->servers;

	while (*at != server)
		at = &(*at)->next;
	*at = server->next;
	snprintf(server->failure, sizeof(server->failure), "belfryd is ending; try again");
	router_server_fail_asks(router, server);
	router_sent_lost(router, server);
	router_server_hang_up(server);
	router_server_forget_process(server);
	free(server->tickets);
	free(server);
}

void router_servers_sweep(struct router *router, uint64_t now_ns)
{
	struct router_server *next;

	for (struct router_server *server = router->servers; server; server = next) {
		next = server->next;
		if (server->is_listed || server->phase != ROUTER_OFF || server->ask_count ||
		    server->pidfd >= 0 ||
		    (server->failure[0] && now_ns - server->failed_ns < FAILED_SHOWN_S * ROUTER_S) ||
		    router_vgpus_any(router, server))
			continue;
		router_server_free(router, server);
	}
}
