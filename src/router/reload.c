/* The answer to a client that has asked for a reload. */
#include <errno.h>
#include <stdio.h>

#include "router/internal.h"

enum { RELOAD_S = 10 };

void router_reload_await(struct router *router, struct router_ask *ask)
{
	router->reloading.ask = ask;
	router->reloading.until_ns = bf_now_ns() + RELOAD_S * ROUTER_S;
}

void router_reload_refused(struct router *router, const char *name, const char *why)
{
	if (router->reloading.refused++)
		return;
	snprintf(router->reloading.why, sizeof(router->reloading.why), "vgpu '%.63s': %.430s", name, why);
}

static bool is_starting(const struct router *router)
{
	for (const struct router_server *server = router->servers; server; server = server->next)
		if (server->is_listed && router_server_is_coming(server))
			return true;
	return false;
}

/* The GPUs of the configuration that are not served, and the reason of the first. A private belfryd starts servers on
 * demand. */
static unsigned count_unserved(const struct router *router, const char **why)
{
	unsigned count = 0;

	for (const struct router_server *server = router->servers; server; server = server->next) {
		if (!server->is_listed || server->phase == ROUTER_READY || router->options.is_private)
			continue;
		if (!count++)
			*why = server->failure[0] ? server->failure : server->label;
	}
	return count;
}

/* What the new configuration could not bring about. */
static void reload_result(const struct router *router, struct bf_error *err)
{
	enum { CHANGE = 200, GPU = 220 };
	const char *why = "";
	unsigned refused = router->reloading.refused, unserved = count_unserved(router, &why);

	if (refused && unserved)
		bf_fail(err, EBUSY, "%u GPUs are not served: %.*s; %u of the changes could not be made: %.*s",
			unserved, CHANGE / 2, why, refused, CHANGE / 2, router->reloading.why);
	else if (refused)
		bf_fail(err, EBUSY,
			"%u of the changes could not be made: %.*s; belfryd tries again by itself", refused,
			CHANGE, router->reloading.why);
	else if (unserved)
		bf_fail(err, ENODEV,
			"the configuration was read, but %u of its GPUs %s not served: %.*s; belfryd tries again "
			"by itself",
			unserved, unserved == 1 ? "is" : "are", GPU, why);
	else if (router_is_asking(router))
		bf_fail(err, ETIMEDOUT, "the GPU servers do not answer; the log of belfryd tells more");
}

void router_reload_tick(struct router *router, uint64_t now_ns)
{
	struct router_ask *ask = router->reloading.ask;
	struct bf_error err = { 0 };

	if (!ask || ((router->is_making || router_is_asking(router) || is_starting(router)) &&
		     now_ns < router->reloading.until_ns))
		return;
	router->reloading.ask = NULL;
	reload_result(router, &err);
	if (err.code)
		router_refuse(router, ask, &err);
	else
		router_answer(router, ask, NULL);
}
