/* Events: kept for a while, sent to the clients that follow them, and passed to the command of the configuration.
 * belfryd never waits for a client that does not read: events that its socket does not accept are counted, and the
 * client receives the number. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "base/process.h"
#include "base/units.h"
#include "router/internal.h"

/* The buffer for a client that does not read: a few hundred events. The kernel doubles the value. */
enum { FOLLOWER_BYTES = 128 << 10 };

static bool is_wanted(const struct router_follower *follower, const struct event *event)
{
	if (!event_is_for(event, follower->uid, geteuid()))
		return false;
	if (follower->name[0] && strcmp(follower->name, event->vgpu) != 0)
		return false;
	return !follower->gpu[0] || !strcmp(follower->gpu, event->gpu);
}

static bool send_line(const struct router_follower *follower, const char *line, size_t bytes)
{
	return send(follower->fd, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* True once the follower has received the number of dropped events. */
static bool tell_lost(struct router_follower *follower)
{
	struct json_object *dropped;
	cleanup_free char *line = NULL;
	size_t bytes = 0;

	if (!follower->lost)
		return true;
	dropped = json_object_new_object();
	json_add_text(dropped, "event", "dropped");
	json_add_number(dropped, "count", follower->lost);
	line = json_text(dropped, &bytes);
	if (!line || !send_line(follower, line, bytes))
		return false;
	follower->lost = 0;
	return true;
}

/* Wait for room in the socket while there are dropped events to report. */
static void set_blocked(struct router_follower *follower)
{
	if (follower->is_blocked == (follower->lost > 0))
		return;
	follower->is_blocked = follower->lost > 0;
	loop_change(follower->router->loop, follower->source,
		    follower->is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void tell_followers(struct router *router, const struct event *event)
{
	cleanup_free char *line = NULL;
	struct router_follower *follower;
	size_t bytes = 0;

	LIST_FOREACH(follower, &router->events.followers, next) {
		bool is_for = is_wanted(follower, event);

		follower->lost += event->lost;
		if (is_for && !line)
			line = event_json(event, &bytes);
		if (is_for && (!line || !tell_lost(follower) || !send_line(follower, line, bytes)))
			follower->lost++;
		set_blocked(follower);
	}
}

static void keep(struct router *router, const struct event *event)
{
	if (!router->events.ring)
		router->events.ring = calloc(ROUTER_EVENTS_KEPT, sizeof(*router->events.ring));
	if (router->events.ring)
		router->events.ring[event->number % ROUTER_EVENTS_KEPT] = *event;
}

void router_event(struct router *router, const struct event *said)
{
	struct event event = *said;

	if (!event_check(&event) || router->is_ending)
		return;
	event.number = ++router->events.count;
	router->events.of_kind[event.kind]++;
	router->events.lost += event.lost;
	keep(router, &event);
	tell_followers(router, &event);
	if (router->config.events.kinds >> event.kind & 1)
		router_command_add(router, &event);
}

static struct event event_of_server(enum event_kind kind, const struct router_server *server)
{
	struct event event = event_make(kind);

	snprintf(event.gpu, sizeof(event.gpu), "%.20s", server->label + 4);
	return event;
}

void router_event_server(struct router *router, enum event_kind kind, const struct router_server *server,
			 const char *text)
{
	struct event event = event_of_server(kind, server);

	event_say(&event, "%s", text);
	router_event(router, &event);
}

void router_event_config(struct router *router, const struct bf_error *why)
{
	struct event event = event_make(why ? EVENT_CONFIG_REFUSED : EVENT_CONFIG_RELOADED);

	event_say(&event, "%s", why ? why->text : "the configuration was read again");
	router_event(router, &event);
}

void router_event_vgpu(struct router *router, enum event_kind kind, const struct router_vgpu *vgpu,
		       const char *text)
{
	struct event event = event_make(kind);

	if (vgpu->server)
		event = event_of_server(kind, vgpu->server);
	event.flags = EVENT_HAS_OWNER;
	event.owner = vgpu->uid;
	memcpy(event.vgpu, vgpu->name, sizeof(event.vgpu));
	event_say(&event, "%s", text);
	router_event(router, &event);
}

/* "mem 64 MiB, time 30:100": the parts that differ from those of `before`. */
static void say_parts(const struct spec *spec, const struct spec *before, char *to, size_t room)
{
	char text[SPEC_NAME_MAX + 1];

	*to = 0;
	for (uint32_t part = SPEC_MEM; part < SPEC_ALL; part <<= 1) {
		char other[sizeof(text)];
		const char *was = spec_format_part(before, (enum spec_part)part, other, sizeof(other)),
			   *is = spec_format_part(spec, (enum spec_part)part, text, sizeof(text));
		size_t used = strlen(to);

		if (strcmp(is, was) != 0)
			snprintf(to + used, room - used, "%s%s %s", used ? ", " : "",
				 spec_part_name((enum spec_part)part), is);
	}
}

void router_event_spec(struct router *router, const struct router_vgpu *vgpu, const struct spec *before)
{
	char text[200];

	say_parts(&vgpu->spec, before ? before : &spec_default, text, sizeof(text));
	if (text[0] || !before)
		router_event_vgpu(router, before ? EVENT_VGPU_CHANGED : EVENT_VGPU_CREATED, vgpu,
				  text[0] ? text : "without limits");
}

void router_event_gone(struct router *router, const struct router_server *server,
		       const struct hall_message *message)
{
	const struct hall_account *account = &message->account;
	struct event event = event_of_server(EVENT_VGPU_REMOVED, server);
	char most[24];

	event.flags = EVENT_HAS_OWNER;
	event.owner = message->uid;
	memcpy(event.vgpu, message->request.name, sizeof(event.vgpu));
	event_say(&event, "after %" PRIu64 " run%s: %.3f s of GPU time, at most %s of memory", account->runs,
		  account->runs == 1 ? "" : "s", (double)account->gpu_ns / 1e9,
		  bf_format_size(account->mem_most_bytes, most, sizeof(most)));
	router_event(router, &event);
}

/* The events of the last `for_us` that the follower wants, one per line. NULL: none, or out of memory. */
static char *past(const struct router *router, const struct router_follower *follower, uint64_t for_us)
{
	uint64_t last = router->events.count,
		 first = last > ROUTER_EVENTS_KEPT ? last - ROUTER_EVENTS_KEPT + 1 : 1,
		 now_ns = event_make(EVENT_VGPU_CREATED).at_ns,
		 from_ns = for_us < now_ns / 1000 ? now_ns - for_us * 1000 : 0;
	char *text = NULL;
	size_t room = 0;
	FILE *to = for_us && router->events.ring ? open_memstream(&text, &room) : NULL;

	for (uint64_t number = first; to && number <= last; number++) {
		const struct event *event = &router->events.ring[number % ROUTER_EVENTS_KEPT];
		cleanup_free char *line = NULL;
		size_t bytes;

		if (event->number != number || event->at_ns < from_ns || !is_wanted(follower, event))
			continue;
		line = event_json(event, &bytes);
		fprintf(to, "%s\n", line ? line : "");
	}
	if (to && fclose(to)) {
		free(text);
		return NULL;
	}
	return text;
}

static int check_room(const struct router *router, uid_t uid, struct bf_error *err)
{
	const struct router_follower *follower;
	unsigned all = router->events.follower_count, of_user = 0;

	LIST_FOREACH(follower, &router->events.followers, next)
		of_user += follower->uid == uid;
	if (bf_is_admin(uid) ? all < ROUTER_FOLLOWERS_MAX
			     : of_user < ROUTER_FOLLOWERS_OF_ONE && all < ROUTER_FOLLOWERS_MAX / 2)
		return 0;
	return bf_fail(err, EAGAIN, "too many clients follow events already: %u, %u of them yours", all,
		       of_user);
}

static int check_name(const struct router *router, const struct protocol_request *request, uid_t uid,
		      struct bf_error *err)
{
	const struct router_vgpu *vgpu = request->name[0] ? router_vgpu_find(router, request->name) : NULL;
	int rc = request->name[0] ? spec_check_name(request->name, err) : 0;

	if (rc || !vgpu || uid == 0 || uid == vgpu->uid)
		return rc;
	return bf_fail(err, EPERM, "%s: belongs to user %u; only that user and root may see its events",
		       vgpu->name, vgpu->uid);
}

static void follower_free(struct router_follower *follower)
{
	loop_remove(follower->router->loop, follower->source);
	close(follower->fd);
	LIST_REMOVE(follower, next);
	follower->router->events.follower_count--;
	free(follower);
}

/* Followers send nothing: the client is gone, or its socket has room again. */
static void follower_ready(void *context, uint32_t events)
{
	struct router_follower *follower = context;

	if (events != EPOLLOUT) {
		follower_free(follower);
		return;
	}
	tell_lost(follower);
	set_blocked(follower);
}

/* NULL: out of memory. */
static struct router_follower *follower_add(struct router *router, const struct router_ask *ask)
{
	const struct protocol_request *request = &ask->message.request;
	struct router_follower *follower = calloc(1, sizeof(*follower));

	if (!follower)
		return NULL;
	*follower = (struct router_follower){ .router = router, .fd = ask->fd, .uid = ask->message.uid };
	memcpy(follower->name, request->name, sizeof(follower->name));
	if (request->gpu.kind != PROTOCOL_GPU_ANY)
		protocol_gpu_name(&request->gpu, follower->gpu, sizeof(follower->gpu));
	follower->source =
		loop_add(router->loop, follower->fd, EPOLLIN, LOOP_FIRST, follower_ready, follower);
	if (!follower->source) {
		free(follower);
		return NULL;
	}
	LIST_INSERT_HEAD(&router->events.followers, follower, next);
	router->events.follower_count++;
	return follower;
}

void router_events_follow(struct router *router, struct router_ask *ask)
{
	const struct protocol_request *request = &ask->message.request;
	struct router_follower *follower = NULL;
	cleanup_free char *body = NULL;
	struct bf_error err = { 0 };
	int room = FOLLOWER_BYTES;

	if (!check_name(router, request, ask->message.uid, &err) &&
	    !check_room(router, ask->message.uid, &err)) {
		follower = follower_add(router, ask);
		if (!follower)
			bf_fail(&err, EAGAIN, "belfryd has no memory for another client; try again");
	}
	if (!follower) {
		router_refuse(router, ask, &err);
		return;
	}
	setsockopt(ask->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	body = past(router, follower, request->for_us);
	router_reply(ask->fd, 0, "", request->name, body && body[0] ? body : NULL);
	free(ask);
}

void router_events_end(struct router *router)
{
	while (!LIST_EMPTY(&router->events.followers))
		follower_free(LIST_FIRST(&router->events.followers));
	free(router->events.ring);
	router->events.ring = NULL;
}
