/* talk: the client's side of the protocol, against a daemon that answers well, badly or not at all. */
#include "client/talk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "skipping.h"
#include <cmocka.h>

enum answer {
	ANSWER_GOOD,
	ANSWER_NO_BODY,
	ANSWER_REFUSED,
	ANSWER_REFUSED_WITHOUT_A_WORD,
	ANSWER_TRUNCATED,
	ANSWER_LONG,
	ANSWER_GARBAGE,
	ANSWER_OTHER_VERSION,
	ANSWER_OTHER_VERSION_SHORT,
	ANSWER_UNSEALED,
	ANSWER_HUGE,
	ANSWER_NOT_A_MEMORY_FILE,
	ANSWER_CLOSED,
	ANSWER_NEVER,
};

static char folder[64];
static const char words[] = "{\"text\": \"all is well\"}";

static int use_new_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/belfry-test-XXXXXX");
	unsetenv("BELFRY_SOCKET");
	return mkdtemp(folder) ? setenv("BELFRY_RUNTIME_DIR", folder, 1) : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

static int make_body(enum answer answer)
{
	int fd;

	if (answer == ANSWER_NOT_A_MEMORY_FILE)
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	fd = memfd_create("body", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(write(fd, words, strlen(words)), strlen(words));
	if (answer == ANSWER_HUGE)
		assert_int_equal(ftruncate(fd, (256ll << 20) + 1), 0);
	if (answer != ANSWER_UNSEALED)
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
	return fd;
}

static void reply_with(int sock, const void *data, size_t bytes, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)(uintptr_t)data, bytes };
	struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1 };

	if (fd >= 0) {
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fd, sizeof(int));
	}
	sendmsg(sock, &msg, MSG_NOSIGNAL);
}

static void answer_as(int sock, enum answer answer)
{
	struct {
		struct protocol_reply reply;
		char more[64];
	} said = { .reply = { .magic = PROTOCOL_MAGIC, .version = PROTOCOL_VERSION, .took_ns = 77 } };
	size_t bytes = sizeof(said.reply);
	int body = -1;

	snprintf(said.reply.name, sizeof(said.reply.name), "infer");
	switch (answer) {
	case ANSWER_REFUSED:
		said.reply.code = ENOENT;
		snprintf(said.reply.text, sizeof(said.reply.text), "infer: no vGPU of this name");
		break;
	case ANSWER_REFUSED_WITHOUT_A_WORD:
		said.reply.code = -5;
		break;
	case ANSWER_TRUNCATED:
		bytes = 20;
		break;
	case ANSWER_LONG:
		bytes = sizeof(said);
		break;
	case ANSWER_GARBAGE:
		memset(&said, 0x5a, sizeof(said));
		break;
	case ANSWER_OTHER_VERSION:
		said.reply.version = PROTOCOL_VERSION + 1;
		break;
	case ANSWER_OTHER_VERSION_SHORT:
		said.reply.version = 2;
		bytes = 64;
		break;
	case ANSWER_NO_BODY:
		break;
	default:
		body = make_body(answer);
	}
	reply_with(sock, &said, bytes, body);
	if (body >= 0)
		close(body);
}

/* A daemon for one request. */
struct fake {
	enum answer answer;
	int listener;
	struct protocol_request got;
	pthread_t thread;
};

static void *serve(void *context)
{
	struct fake *fake = context;
	int sock = accept(fake->listener, NULL, NULL);

	if (fake->answer != ANSWER_CLOSED)
		(void)!recv(sock, &fake->got, sizeof(fake->got), 0);
	if (fake->answer == ANSWER_NEVER)
		(void)!recv(sock, &fake->got, sizeof(fake->got), 0); /* until the client has had enough */
	else if (fake->answer != ANSWER_CLOSED)
		answer_as(sock, fake->answer);
	close(sock);
	return NULL;
}

static void start_fake(struct fake *fake, const struct talk_place *place, enum answer answer)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	*fake = (struct fake){ .answer = answer,
			       .listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) };
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", place->path);
	unlink(place->path);
	assert_int_equal(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fake->listener, 4), 0);
	assert_int_equal(pthread_create(&fake->thread, NULL, serve, fake), 0);
}

static void end_fake(struct fake *fake)
{
	pthread_join(fake->thread, NULL);
	close(fake->listener);
}

/* What talk_ask makes of it. */
static int ask(enum answer answer, struct protocol_reply *reply, char **body, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_EXPLAIN, "infer");
	struct timeval soon = { .tv_usec = 50000 };
	struct talk_place place;
	struct fake fake;
	int sock, rc;

	*err = (struct bf_error){ 0 };
	assert_int_equal(talk_find(&place, err), 0);
	start_fake(&fake, &place, answer);
	sock = talk_connect(&place, err);
	assert_true(sock >= 0);
	if (answer == ANSWER_NEVER)
		setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	rc = talk_ask(sock, &request, reply, body, err);
	close(sock);
	end_fake(&fake);
	if (answer != ANSWER_CLOSED) {
		assert_int_equal(fake.got.magic, PROTOCOL_MAGIC);
		assert_int_equal(fake.got.op, PROTOCOL_EXPLAIN);
		assert_string_equal(fake.got.name, "infer");
	}
	return rc;
}

static void assert_fails(enum answer answer, int code, const char *text)
{
	struct protocol_reply reply;
	struct bf_error err;
	char *body = (char *)folder;

	assert_int_equal(ask(answer, &reply, &body, &err), -code);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, text))
		fail_msg("'%s' does not say '%s'", err.text, text);
	assert_null(body);
}

static void good_answer_brings_its_body(void **state)
{
	struct protocol_reply reply;
	struct bf_error err;
	char *body;

	(void)state;
	assert_int_equal(ask(ANSWER_GOOD, &reply, &body, &err), 0);
	assert_string_equal(body, words);
	assert_string_equal(reply.name, "infer");
	assert_int_equal(reply.took_ns, 77);
	free(body);
	assert_int_equal(ask(ANSWER_NO_BODY, &reply, &body, &err), 0);
	assert_null(body);
}

static void body_nobody_wants_is_closed(void **state)
{
	struct protocol_reply reply;
	struct bf_error err;
	int before = dup(0), after;

	(void)state;
	close(before);
	assert_int_equal(ask(ANSWER_GOOD, &reply, NULL, &err), 0);
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

static void refusal_is_an_error_in_the_daemons_words(void **state)
{
	(void)state;
	assert_fails(ANSWER_REFUSED, ENOENT, "infer: no vGPU of this name");
	assert_fails(ANSWER_REFUSED_WITHOUT_A_WORD, EPROTO, "did not say why");
}

static void answer_that_is_not_whole_is_refused(void **state)
{
	(void)state;
	assert_fails(ANSWER_TRUNCATED, EPROTO, "not whole");
	assert_fails(ANSWER_LONG, EPROTO, "not whole");
	assert_fails(ANSWER_GARBAGE, EPROTO, "not belfryd");
}

static void other_version_is_told_with_both_numbers(void **state)
{
	char text[64];

	(void)state;
	snprintf(text, sizeof(text), "it speaks %u, this belfry %u", PROTOCOL_VERSION + 1, PROTOCOL_VERSION);
	assert_fails(ANSWER_OTHER_VERSION, EPROTO, text);
	assert_fails(ANSWER_OTHER_VERSION_SHORT, EPROTO, "it speaks 2");
}

static void body_must_be_sealed_and_of_bounded_size(void **state)
{
	(void)state;
	assert_fails(ANSWER_UNSEALED, EPROTO, "could still be changed");
	assert_fails(ANSWER_NOT_A_MEMORY_FILE, EPROTO, "could still be changed");
	assert_fails(ANSWER_HUGE, EFBIG, "256 MiB");
}

static void daemon_that_goes_away_or_says_nothing_is_told(void **state)
{
	(void)state;
	assert_fails(ANSWER_NEVER, ETIMEDOUT, "does not answer");
}

static void daemon_that_closes_at_once_is_told(void **state)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	struct talk_place place;
	struct fake fake;

	(void)state;
	assert_int_equal(talk_find(&place, &err), 0);
	start_fake(&fake, &place, ANSWER_CLOSED);
	assert_true(talk_once(&request, &reply, NULL, &err) < 0);
	assert_non_null(strstr(err.text, "belfryd"));
	end_fake(&fake);
}

static void nobody_there_is_no_vgpu_of_this_name(void **state)
{
	struct protocol_request request = talk_request(PROTOCOL_HOLD, "infer");
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	struct talk_place place;

	(void)state;
	assert_int_equal(talk_find(&place, &err), 0);
	unlink(place.path);
	assert_true(place.is_private);
	assert_int_equal(talk_connect(&place, &err), -ENOENT);
	assert_int_equal(talk_once(&request, &reply, NULL, &err), -ENOENT);
	assert_string_equal(
		err.text,
		"infer: no vGPU of this name, as no belfryd runs; belfry create and belfry run start one");
	request = talk_request(PROTOCOL_RELOAD, NULL);
	assert_int_equal(talk_once(&request, &reply, NULL, &err), -ECONNREFUSED);
	assert_int_equal(err.code, ECONNREFUSED);
	assert_string_equal(err.text, "no belfryd runs; belfry create and belfry run start one");
	request = talk_request(PROTOCOL_CREATE, "infer");
	assert_int_equal(talk_once(&request, &reply, NULL, &err), -ECONNREFUSED);
	assert_non_null(strstr(err.text, "no belfryd runs"));
}

/* A belfryd for the node may be down and have vGPUs all the same. */
static void nobody_at_a_socket_that_was_named_is_no_belfryd(void **state)
{
	struct protocol_request request = talk_request(PROTOCOL_HOLD, "infer");
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	struct talk_way way = { .socket = "/no/such/belfryd.sock" };

	(void)state;
	assert_int_equal(talk_by(&way, &request, &reply, NULL, &err), -ECONNREFUSED);
	assert_non_null(strstr(err.text, "no belfryd answers there"));
}

static void ignore_signal(int signal)
{
	(void)signal;
}

/* Every signal interrupts the wait: it must go on with what is left of the time, not with all of it. */
static void time_limit_holds_while_signals_come(void **state)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct sigaction action = { .sa_handler = ignore_signal }, before;
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	struct talk_place place;
	struct fake fake;
	struct talk_way way = { .socket = place.path, .limit_ms = 200 };
	sigset_t alarms;

	(void)state;
	assert_int_equal(talk_find(&place, &err), 0);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL); /* the thread of the daemon inherits this */
	start_fake(&fake, &place, ANSWER_NEVER);
	pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_int_equal(talk_by(&way, &request, &reply, NULL, &err), -ETIMEDOUT);
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	end_fake(&fake);
}

static void socket_nobody_listens_on_is_nobody(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct talk_place place;

	(void)state;
	assert_int_equal(talk_find(&place, NULL), 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", place.path);
	unlink(place.path);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	close(sock);
	assert_int_equal(talk_connect(&place, NULL), -ECONNREFUSED);
	unlink(place.path);
}

static void socket_may_be_named_by_hand(void **state)
{
	struct bf_error err = { 0 };
	struct talk_place place;
	char path[200];

	(void)state;
	setenv("BELFRY_SOCKET", "/some/where.sock", 1);
	assert_int_equal(talk_find(&place, &err), 0);
	assert_string_equal(place.path, "/some/where.sock");
	assert_false(place.is_private);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	setenv("BELFRY_SOCKET", path, 1);
	assert_int_equal(talk_find(&place, &err), -ENAMETOOLONG);
	unsetenv("BELFRY_SOCKET");
	memset(path, '/', 1);
	setenv("BELFRY_RUNTIME_DIR", path, 1);
	assert_int_equal(talk_find(&place, &err), -ENAMETOOLONG);
	setenv("BELFRY_RUNTIME_DIR", folder, 1);
}

/* Somebody else's daemon: only root can make one here. */
static void daemon_of_another_user_is_refused(void **state)
{
	struct bf_error err = { 0 };
	struct talk_place place;
	int listener;

	(void)state;
	if (geteuid())
		skip_case("not root");
	assert_int_equal(talk_find(&place, &err), 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	unlink(place.path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", place.path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	/* SO_PEERCRED is what the listener was at listen(). */
	assert_int_equal(seteuid(65534), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(talk_connect(&place, &err), -EPERM);
	assert_non_null(strstr(
		err.text, "served by user 65534; belfry trusts only a belfryd of root or of its own user"));
	close(listener);
	unlink(place.path);
}

/* A script in place of belfryd. */
static void write_script(char *path, size_t room, const char *text)
{
	int fd;

	snprintf(path, room, "%s/fake-belfryd", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void daemon_that_does_not_start_has_the_last_word(void **state)
{
	struct bf_error err = { 0 };
	struct talk_place place;
	char path[128];
	struct stat st;

	(void)state;
	assert_int_equal(talk_find(&place, &err), 0);
	unlink(place.path);
	write_script(path, sizeof(path),
		     "#!/bin/sh\necho first >&2\necho \"belfryd: $1 $2 $3 is taken\" >&2\nexit 1\n");
	assert_int_equal(talk_start(&place, path, &err), -EIO);
	assert_non_null(strstr(err.text, "belfryd: --private --socket"));
	assert_non_null(strstr(err.text, "is taken"));
	/* What an earlier one said is not this one's word. */
	write_script(path, sizeof(path), "#!/bin/sh\nexit 1\n");
	assert_int_equal(talk_start(&place, path, &err), -EIO);
	assert_non_null(strstr(err.text, "without a word"));
	assert_int_equal(talk_start(&place, "/no/such/belfryd", &err), -EIO);
	assert_non_null(strstr(err.text, "/no/such/belfryd: cannot be started"));
	snprintf(path, sizeof(path), "%s/belfryd.log", folder);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	snprintf(path, sizeof(path), "%s/belfryd.sock.start.lock", folder);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void daemon_inherits_nothing(void **state)
{
	struct bf_error err = { 0 };
	struct talk_place place;
	char path[128];
	int leaked = dup2(0, 100);

	(void)state;
	assert_int_equal(talk_find(&place, &err), 0);
	unlink(place.path);
	write_script(
		path, sizeof(path),
		"#!/bin/sh\n"
		"[ -e /proc/$$/fd/100 ] && more=yes\n"
		"echo \"more ${more:-no} in $(readlink /proc/$$/fd/0) out $(readlink /proc/$$/fd/1)\" >&2\n");
	assert_int_equal(talk_start(&place, path, &err), -EIO);
	close(leaked);
	if (!strstr(err.text, "more no in /dev/null out /dev/null"))
		fail_msg("%s", err.text);
}

static void start_finds_one_that_runs(void **state)
{
	struct bf_error err = { 0 };
	struct talk_place place;
	struct fake fake;

	(void)state;
	assert_int_equal(talk_find(&place, &err), 0);
	start_fake(&fake, &place, ANSWER_CLOSED);
	assert_int_equal(talk_start(&place, "/no/such/belfryd", &err), 0);
	end_fake(&fake);
	unlink(place.path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_answer_brings_its_body),
		cmocka_unit_test(body_nobody_wants_is_closed),
		cmocka_unit_test(refusal_is_an_error_in_the_daemons_words),
		cmocka_unit_test(answer_that_is_not_whole_is_refused),
		cmocka_unit_test(other_version_is_told_with_both_numbers),
		cmocka_unit_test(body_must_be_sealed_and_of_bounded_size),
		cmocka_unit_test(daemon_that_goes_away_or_says_nothing_is_told),
		cmocka_unit_test(daemon_that_closes_at_once_is_told),
		cmocka_unit_test(nobody_there_is_no_vgpu_of_this_name),
		cmocka_unit_test(nobody_at_a_socket_that_was_named_is_no_belfryd),
		cmocka_unit_test(time_limit_holds_while_signals_come),
		cmocka_unit_test(socket_nobody_listens_on_is_nobody),
		cmocka_unit_test(socket_may_be_named_by_hand),
		cmocka_unit_test(daemon_of_another_user_is_refused),
		cmocka_unit_test(daemon_that_does_not_start_has_the_last_word),
		cmocka_unit_test(daemon_inherits_nothing),
		cmocka_unit_test(start_finds_one_that_runs),
	};

	return cmocka_run_group_tests(tests, use_new_folder, remove_folder);
}
