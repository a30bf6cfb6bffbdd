/* A reload whose configuration has names of users or groups. A helper process looks them up, because a name service may be
 * slow and belfryd must not wait. belfryd reads the configuration twice: for its names, and when they are known. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "router/internal.h"

enum { LIMIT_S = 10, READ_BYTES = 4096, ANSWERS_MAX = 4 << 20 };

bool router_lookup_waits(const struct router *router)
{
	return router->lookup.fd >= 0;
}

static void forget_answers(struct router *router)
{
	struct router_lookup *lookup = &router->lookup;

	loop_remove(router->loop, lookup->fd_source);
	lookup->fd_source = NULL;
	if (lookup->fd >= 0)
		close(lookup->fd);
	lookup->fd = -1;
	lookup->until_ns = ROUTER_NEVER;
	free(lookup->text);
	lookup->text = NULL;
	lookup->used = 0;
}

/* The reload goes on, or fails. */
static void finish(struct router *router, struct bf_error *err)
{
	struct router_ask *ask = router->lookup.ask;

	router->lookup.ask = NULL;
	forget_answers(router);
	if (err->code)
		router_event_config(router, err);
	else
		router_reload_now(router, err);
	names_free(&router->lookup.names);
	router_reload_done(router, ask, err);
}

/* Read the configuration for its names. Its other errors are found here, too. */
static int collect(struct router *router, struct bf_error *err)
{
	const struct router_options *options = &router->options;
	struct config config;
	int rc;

	config_init(&config);
	config.names = &router->lookup.names;
	rc = options->read_config(options->context, &config, err);
	config_free(&config);
	return rc;
}

static void answered(struct router *router)
{
	struct bf_error err = { 0 };

	if (names_take(&router->lookup.names, router->lookup.text ? router->lookup.text : ""))
		bf_fail(&err, EIO,
			"names of users: they could not be looked up; write numbers, or try again");
	finish(router, &err);
}

static void answers_ready(void *context, uint32_t events)
{
	struct router *router = context;
	struct router_lookup *lookup = &router->lookup;
	char *more = realloc(lookup->text, lookup->used + READ_BYTES + 1);
	ssize_t got;

	(void)events;
	if (!more || lookup->used > ANSWERS_MAX) {
		free(more ? more : lookup->text);
		lookup->text = NULL;
		answered(router);
		return;
	}
	lookup->text = more;
	got = read(lookup->fd, more + lookup->used, READ_BYTES);
	lookup->used += got > 0 ? (size_t)got : 0;
	more[lookup->used] = 0;
	if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		answered(router);
}

static void drop_helper(struct router *router)
{
	loop_remove(router->loop, router->lookup.pidfd_source);
	router->lookup.pidfd_source = NULL;
	close(router->lookup.pidfd);
	router->lookup.pidfd = -1;
}

static void exited(void *context, uint32_t events)
{
	struct router *router = context;

	(void)events;
	if (waitpid(router->lookup.pid, NULL, WNOHANG) != 0)
		drop_helper(router);
}

static int start(struct router *router, struct bf_error *err)
{
	struct router_lookup *lookup = &router->lookup;
	const struct router_options *options = &router->options;
	cleanup_free char *names = names_unknown(&lookup->names);

	if (!names)
		return bf_fail(err, ENOMEM, "names of users: no memory to look them up; try again");
	if (lookup->pidfd >= 0)
		exited(router, 0);
	if (lookup->pidfd >= 0)
		return bf_fail(
			err, EAGAIN,
			"names of users: the last lookup still hangs; write numbers, or try again later");
	lookup->fd = options->start_names(options->context, names, &lookup->pid, err);
	if (lookup->fd < 0) {
		lookup->fd = -1;
		return -err->code;
	}
	lookup->pidfd = lookup->pid > 0 ? router_child_open(lookup->pid, err) : -1;
	if (lookup->pid > 0 && lookup->pidfd < 0) {
		forget_answers(router);
		return -err->code;
	}
	lookup->until_ns = bf_now_ns() + LIMIT_S * ROUTER_S;
	/* What cannot be watched is found late: the answers by the limit, the end of the helper by the next lookup. */
	lookup->fd_source = loop_add(router->loop, lookup->fd, EPOLLIN, LOOP_FIRST, answers_ready, router);
	if (lookup->pidfd >= 0)
		lookup->pidfd_source =
			loop_add(router->loop, lookup->pidfd, EPOLLIN, LOOP_FIRST, exited, router);
	return 0;
}

void router_lookup_begin(struct router *router, struct router_ask *ask)
{
	struct bf_error err = { 0 };

	router->lookup.ask = ask;
	if (!router->options.start_names || collect(router, &err) || names_are_known(&router->lookup.names) ||
	    start(router, &err))
		finish(router, &err);
}

void router_lookup_tick(struct router *router, uint64_t now_ns)
{
	struct bf_error err = { 0 };

	if (!router_lookup_waits(router) || router->lookup.until_ns > now_ns)
		return;
	if (router->lookup.pidfd >= 0)
		bf_pidfd_kill(router->lookup.pidfd, SIGKILL);
	bf_fail(&err, ETIMEDOUT, "names of users: no answer within %d s; write numbers, or try again",
		LIMIT_S);
	finish(router, &err);
}

void router_lookup_end(struct router *router)
{
	struct router_lookup *lookup = &router->lookup;
	struct bf_error err;

	if (lookup->pidfd >= 0) {
		bf_pidfd_kill(lookup->pidfd, SIGKILL);
		waitpid(lookup->pid, NULL,
			WNOHANG); /* a process that hangs in the kernel is not waited for */
		drop_helper(router);
	}
	forget_answers(router);
	names_free(&lookup->names);
	if (!lookup->ask)
		return;
	bf_fail(&err, EAGAIN, "belfryd is ending; try again");
	router_refuse(router, lookup->ask, &err);
	lookup->ask = NULL;
}
