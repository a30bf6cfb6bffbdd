/* Events in the router: who sees which, what is kept, and that neither a reader nor a GPU server can make it wait or grow. */
#include "client/event.h"

#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "router_stage.h"

enum { FOLLOWERS = 64, MANY = 3000, KEPT = 1024, WAIT_MS = 5000 };

/* Once its servers are ready. */
static void begin(struct stage *stage)
{
	struct bf_error err = { 0 };

	stage_start(stage);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
}

static int follow(struct stage *stage, const char *name, uint64_t since_us, char **body, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_EVENTS, name);
	struct protocol_reply reply;
	int sock = talk_connect(&stage->place, err), rc;

	assert_true(sock >= 0);
	request.for_us = since_us;
	rc = talk_ask(sock, &request, &reply, body, err);
	if (!rc)
		return sock;
	close(sock);
	return rc;
}

/* As a GPU server says it. Waits for the router, which always reads. */
static void say(struct stage *stage, const struct event *event)
{
	struct hall_message message = {
		.magic = HALL_MAGIC, .version = PROTOCOL_VERSION, .kind = HALL_EVENT, .event = *event
	};

	assert_int_equal(send(stage->fakes[0].hall, &message, sizeof(message), MSG_NOSIGNAL),
			 sizeof(message));
}

static struct event event_of(enum event_kind kind, const char *vgpu, uid_t owner, const char *text)
{
	struct event event = event_make(kind);

	snprintf(event.gpu, sizeof(event.gpu), "0");
	snprintf(event.vgpu, sizeof(event.vgpu), "%s", vgpu);
	event.flags = EVENT_HAS_OWNER;
	event.owner = owner;
	event_say(&event, "%s", text);
	return event;
}

/* The next message, as JSON; NULL: none comes. */
static struct json_object *next(int sock, int wait_ms)
{
	char line[PROTOCOL_EVENT_BYTES + 1];
	struct pollfd fd = { sock, POLLIN, 0 };
	ssize_t got;

	if (poll(&fd, 1, wait_ms) <= 0)
		return NULL;
	got = recv(sock, line, sizeof(line) - 1, MSG_DONTWAIT);
	assert_true(got > 0);
	line[got] = 0;
	return json_tokener_parse(line);
}

static const char *text_at(struct json_object *event, const char *key)
{
	return json_object_get_string(json_object_object_get(event, key));
}

static void who_sees_what_goes_by_the_owner(void **state)
{
	const struct event of_vgpu = event_of(EVENT_FAULT, "a", 1000, "");
	struct event of_gpu = event_make(EVENT_SERVER_DIED), of_config = event_make(EVENT_CONFIG_REFUSED);

	(void)state;
	assert_true(event_is_for(&of_vgpu, 0, 500));
	assert_true(event_is_for(&of_vgpu, 1000, 500));
	assert_false(event_is_for(&of_vgpu, 1001, 500));
	assert_false(event_is_for(&of_vgpu, 500, 500)); /* as with explain */
	assert_true(event_is_for(&of_gpu, 1001, 500));
	assert_true(event_is_for(&of_config, 500, 500));
	assert_true(event_is_for(&of_config, 0, 500));
	assert_false(event_is_for(&of_config, 1000, 500));
}

static void names_of_kinds_are_found_again(void **state)
{
	(void)state;
	for (uint32_t kind = 0; kind < EVENT_KINDS; kind++)
		assert_int_equal(event_find(event_name(kind)), kind);
	assert_int_equal(event_find("nonsense"), -1);
	assert_string_equal(event_name(EVENT_KINDS), "unknown");
}

static void a_reader_that_sleeps_is_told_how_many_it_has_missed(void **state)
{
	struct stage *stage = *state;
	struct event event = event_of(EVENT_FAULT, "a", geteuid(), "again");
	struct bf_error err = { 0 };
	struct json_object *line;
	int64_t seen = 0, dropped = 0;
	int sock;

	begin(stage);
	sock = follow(stage, "a", 0, NULL, &err);
	assert_true(sock >= 0);
	for (unsigned i = 0; i < MANY; i++)
		say(stage, &event);
	stage_look(stage); /* it still answers, and has heard all of that */
	while (seen + dropped < MANY) {
		line = next(sock, WAIT_MS);
		assert_non_null(line);
		if (!strcmp(text_at(line, "event"), "dropped"))
			dropped += json_object_get_int64(json_object_object_get(line, "count"));
		else
			seen++;
		json_object_put(line);
	}
	assert_true(dropped > 0 && seen > 0);
	assert_int_equal(seen + dropped, MANY);
	/* And goes on with what comes then. */
	say(stage, &event);
	line = next(sock, WAIT_MS);
	assert_string_equal(text_at(line, "event"), "fault");
	json_object_put(line);
	close(sock);
}

static void what_is_kept_is_bounded(void **state)
{
	struct stage *stage = *state;
	struct event event = event_of(EVENT_FAULT, "a", geteuid(), "again");
	struct bf_error err = { 0 };
	char *body = NULL;
	unsigned lines = 0;
	int sock;

	begin(stage);
	for (unsigned i = 0; i < MANY; i++)
		say(stage, &event);
	stage_look(stage);
	sock = follow(stage, "a", 600000000, &body, &err);
	assert_true(sock >= 0);
	assert_non_null(body);
	for (const char *at = body; *at; at++)
		lines += *at == '\n';
	assert_int_equal(lines, KEPT);
	assert_null(next(sock, 0)); /* they are not sent again */
	free(body);
	close(sock);
	sock = follow(stage, "other", 600000000, &body, &err);
	assert_null(body);
	close(sock);
}

static void what_a_server_says_is_checked(void **state)
{
	struct stage *stage = *state;
	struct event event = event_of(EVENT_KINDS, "a", geteuid(), "no such kind");
	struct bf_error err = { 0 };
	struct json_object *line;
	int sock;

	begin(stage);
	sock = follow(stage, NULL, 0, NULL, &err);
	assert_true(sock >= 0);
	say(stage, &event);
	event = event_of(EVENT_RUN_ENDED, "a", geteuid(), "");
	event.flags |= EVENT_HAS_STATUS;
	event.status = 9;
	memset(event.text, 0xff, sizeof(event.text));
	memset(event.subject, 0x1b, sizeof(event.subject));
	say(stage, &event);
	line = next(sock, WAIT_MS);
	assert_non_null(line);
	assert_string_equal(text_at(line, "event"), "run_ended");
	assert_int_equal(json_object_get_int64(json_object_object_get(line, "signal")), 9);
	assert_int_equal(strspn(text_at(line, "text"), "?"), sizeof(event.text) - 1);
	assert_int_equal(strspn(text_at(line, "program"), "?"), sizeof(event.subject) - 1);
	json_object_put(line);
	close(sock);
}

static void followers_are_limited_and_make_room_when_they_go(void **state)
{
	struct stage *stage = *state;
	int socks[FOLLOWERS];
	struct bf_error err = { 0 };
	int one;

	begin(stage);
	for (unsigned i = 0; i < FOLLOWERS; i++) {
		socks[i] = follow(stage, NULL, 0, NULL, &err);
		assert_true(socks[i] >= 0);
	}
	assert_int_equal(follow(stage, NULL, 0, NULL, &err), -EAGAIN);
	assert_non_null(strstr(err.text, "too many clients follow events already: 64"));
	close(socks[7]);
	/* One that says something is sent away, too. */
	assert_int_equal(send(socks[8], "x", 1, MSG_NOSIGNAL), 1);
	WAIT_FOR((one = follow(stage, NULL, 0, NULL, &err)) >= 0);
	close(one);
	for (unsigned i = 0; i < FOLLOWERS; i++)
		if (i != 7)
			close(socks[i]);
}

static void a_vgpu_has_a_story(void **state)
{
	static const char *const events[] = { "vgpu_created", "vgpu_removed" };
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	int sock;

	begin(stage);
	sock = follow(stage, "a", 0, NULL, &err);
	assert_int_equal(stage_create(stage, "a", GIB, 300000, NULL, &err), 0);
	assert_int_equal(stage_create(stage, "b", GIB, 0, NULL, &err), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REMOVE, "a", &err), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct json_object *line = next(sock, WAIT_MS);

		assert_non_null(line);
		assert_string_equal(text_at(line, "event"), events[i]);
		assert_string_equal(text_at(line, "vgpu"), "a");
		if (!i)
			assert_string_equal(text_at(line, "text"), "mem 1 GiB, time 30:100");
		json_object_put(line);
	}
	close(sock);
}

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, stage_set_up, stage_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_sees_what_goes_by_the_owner),
		cmocka_unit_test(names_of_kinds_are_found_again),
		ON_STAGE(a_reader_that_sleeps_is_told_how_many_it_has_missed),
		ON_STAGE(what_is_kept_is_bounded),
		ON_STAGE(what_a_server_says_is_checked),
		ON_STAGE(followers_are_limited_and_make_room_when_they_go),
		ON_STAGE(a_vgpu_has_a_story),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
