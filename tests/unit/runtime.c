/* runtime: names, the folder of sockets, and what comes back from them. */
#include "server/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int use_new_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/belfry-test-XXXXXX");
	return mkdtemp(folder) ? setenv("BELFRY_RUNTIME_DIR", folder, 1) : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

static void names_are_short_lower_case_and_plain(void **state)
{
	static const char *const good[] = { "a", "0", "train", "python3-4711", "a.b_c-d", "7up" };
	static const char *const bad[] = {
		"", ".", "..", "-x", "_x", ".x", "A", "a/b", "../x", "a b", "a\n", "\xc3\xa9", "a%s", "a\"b",
	};
	struct bf_error err = { 0 };
	char longest[66];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(runtime_check_name(good[i], NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(runtime_check_name(bad[i], &err), -EINVAL);
	memset(longest, 'x', sizeof(longest));
	longest[64] = 0;
	assert_int_equal(runtime_check_name(longest, &err), -EINVAL);
	assert_non_null(strstr(err.text, "1 to 63"));
	longest[63] = 0;
	assert_int_equal(runtime_check_name(longest, NULL), 0);
}

static void folder_is_made_for_its_owner_alone(void **state)
{
	char at[128], path[128];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/new", folder);
	setenv("BELFRY_RUNTIME_DIR", path, 1);
	assert_int_equal(runtime_folder(at, sizeof(at), NULL), 0);
	assert_string_equal(at, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(runtime_folder(at, sizeof(at), NULL), 0); /* and found again */
}

static void folder_others_can_write_to_is_refused(void **state)
{
	struct bf_error err = { 0 };
	char at[128];

	(void)state;
	assert_int_equal(chmod(folder, 0770), 0);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), -EPERM);
	assert_int_equal(chmod(folder, 0702), 0);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), -EPERM);
	assert_non_null(strstr(err.text, folder));
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), 0);
}

static void folder_of_another_user_is_refused(void **state)
{
	struct bf_error err = { 0 };
	char at[128];

	(void)state;
	if (geteuid() == 0)
		assert_int_equal(chown(folder, 65534, 65534), 0);
	else
		setenv("BELFRY_RUNTIME_DIR", "/usr", 1);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), -EPERM);
	assert_non_null(strstr(err.text, "not a folder of yours alone"));
}

static void folder_that_is_none_is_refused(void **state)
{
	char at[128], path[128], target[128];
	struct bf_error err = { 0 };
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/file", folder);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	setenv("BELFRY_RUNTIME_DIR", path, 1);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), -EPERM);
	/* A link might lead to a folder of somebody else's tomorrow. */
	snprintf(path, sizeof(path), "%s/link", folder);
	snprintf(target, sizeof(target), "%s/target", folder);
	assert_int_equal(mkdir(target, 0700), 0);
	assert_int_equal(symlink(target, path), 0);
	setenv("BELFRY_RUNTIME_DIR", path, 1);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), -EPERM);
	snprintf(path, sizeof(path), "%s/no/such", folder);
	setenv("BELFRY_RUNTIME_DIR", path, 1);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), -ENOENT);
	assert_non_null(strstr(err.text, "BELFRY_RUNTIME_DIR"));
}

static void too_long_a_folder_is_refused(void **state)
{
	char path[300], at[108], sock[108];
	struct bf_error err = { 0 };

	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = 0;
	setenv("BELFRY_RUNTIME_DIR", path, 1);
	assert_int_equal(runtime_folder(at, sizeof(at), &err), -ENAMETOOLONG);
	/* The folder fits, the socket in it does not. */
	snprintf(path, sizeof(path), "%s/%.*s", folder, 70,
		 "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
		 "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy");
	setenv("BELFRY_RUNTIME_DIR", path, 1);
	assert_int_equal(runtime_listen("a-name-of-some-length", sock, sizeof(sock), &err), -ENAMETOOLONG);
}

static void two_of_one_name_are_refused(void **state)
{
	struct bf_error err = { 0 };
	char path[108], other[108];
	struct stat st;
	int sock = runtime_listen("train", path, sizeof(path), &err);

	(void)state;
	assert_true(sock >= 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 077, 0);
	assert_int_equal(runtime_listen("train", other, sizeof(other), &err), -EEXIST);
	assert_non_null(strstr(err.text, "train"));
	assert_int_equal(stat(path, &st), 0); /* the first one's socket is still there */
	int second = runtime_listen("train2", other, sizeof(other), &err);
	assert_true(second >= 0);
	close(second);
	close(sock);
}

static void socket_of_a_killed_supervisor_is_replaced(void **state)
{
	struct bf_error err = { 0 };
	char path[108];
	struct stat st;
	int sock;

	(void)state;
	sock = runtime_listen("train", path, sizeof(path), &err);
	assert_true(sock >= 0);
	close(sock); /* and not unlinked: as after kill -9 */
	assert_int_equal(stat(path, &st), 0);
	sock = runtime_listen("train", path, sizeof(path), &err);
	assert_true(sock >= 0);
	close(sock);
}

struct visits {
	unsigned count;
	char last[64];
};

static void note_visit(void *context, const char *name)
{
	struct visits *visits = context;

	visits->count++;
	snprintf(visits->last, sizeof(visits->last), "%s", name);
}

static void listing_skips_and_removes_what_is_dead(void **state)
{
	char path[108], dead_path[108], junk[128];
	struct visits visits = { 0 };
	struct stat st;
	int dead = runtime_listen("dead", dead_path, sizeof(dead_path), NULL);
	int alive = runtime_listen("alive", path, sizeof(path), NULL);

	(void)state;
	close(dead);
	snprintf(junk, sizeof(junk), "%s/NOT-A-NAME.sock", folder);
	close(open(junk, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	snprintf(junk, sizeof(junk), "%s/file.sock", folder); /* a name, but no socket */
	close(open(junk, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(runtime_each(note_visit, &visits, NULL), 0);
	assert_int_equal(visits.count, 1);
	assert_string_equal(visits.last, "alive");
	assert_int_equal(stat(dead_path, &st), -1);
	assert_int_equal(stat(path, &st), 0);
	close(alive);
}

static void listing_an_empty_folder_is_no_error(void **state)
{
	struct visits visits = { 0 };

	(void)state;
	assert_int_equal(runtime_each(note_visit, &visits, NULL), 0);
	assert_int_equal(visits.count, 0);
}

static void asking_nobody_says_so(void **state)
{
	struct protocol_request request = { .magic = PROTOCOL_MAGIC,
					    .version = PROTOCOL_VERSION,
					    .op = PROTOCOL_REPORT };
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	char path[108];

	(void)state;
	assert_int_equal(runtime_ask("nobody", &request, &reply, &err), -ENOENT);
	assert_non_null(strstr(err.text, "no vGPU of this name"));
	close(runtime_listen("dead", path, sizeof(path), NULL));
	assert_int_equal(runtime_ask("dead", &request, &reply, &err), -ENOENT);
	assert_int_equal(runtime_ask("../../etc/passwd", &request, &reply, &err), -EINVAL);
}

/* A supervisor that answers one request with `bytes` of whatever. */
struct liar {
	int sock;
	const void *answer;
	ssize_t bytes; /* -1: hangs up instead */
	struct protocol_request heard;
};

static void *liar_main(void *arg)
{
	struct liar *liar = arg;
	int talk;

	do
		talk = accept4(liar->sock, NULL, NULL, SOCK_CLOEXEC);
	while (talk < 0 && (errno == EAGAIN || errno == EINTR));
	if (recv(talk, &liar->heard, sizeof(liar->heard), 0) > 0 && liar->bytes >= 0)
		if (send(talk, liar->answer, (size_t)liar->bytes, MSG_NOSIGNAL) < 0)
			liar->heard.op = 0;
	close(talk);
	return NULL;
}

static int ask_liar(const void *answer, ssize_t bytes, struct protocol_reply *reply, struct bf_error *err)
{
	struct protocol_request request = {
		.magic = PROTOCOL_MAGIC, .version = PROTOCOL_VERSION, .op = PROTOCOL_HOLD, .for_us = 1234
	};
	struct liar liar = { .answer = answer, .bytes = bytes };
	char path[108];
	pthread_t thread;
	int rc;

	liar.sock = runtime_listen("liar", path, sizeof(path), NULL);
	assert_true(liar.sock >= 0);
	fcntl(liar.sock, F_SETFL, 0);
	assert_int_equal(pthread_create(&thread, NULL, liar_main, &liar), 0);
	rc = runtime_ask("liar", &request, reply, err);
	pthread_join(thread, NULL);
	assert_int_equal(liar.heard.op, PROTOCOL_HOLD);
	assert_int_equal(liar.heard.for_us, 1234);
	close(liar.sock);
	unlink(path);
	return rc;
}

static void garbage_and_truncated_answers_are_refused(void **state)
{
	struct protocol_reply *good = calloc(2, sizeof(*good)), reply;
	struct bf_error err = { 0 };

	(void)state;
	good->magic = PROTOCOL_MAGIC;
	good->version = PROTOCOL_VERSION;
	assert_int_equal(ask_liar(good, sizeof(*good), &reply, &err), 0); /* the control: this one is right */
	assert_int_equal(ask_liar(good, sizeof(*good) - 1, &reply, &err), -EPROTO);
	assert_int_equal(ask_liar(good, 1, &reply, &err), -EPROTO);
	assert_int_equal(ask_liar(good, 0, &reply, &err), -EPROTO);
	assert_int_not_equal(ask_liar(good, -1, &reply, &err), 0);
	good->magic++;
	assert_int_equal(ask_liar(good, sizeof(*good), &reply, &err), -EPROTO);
	good->magic--;
	good->version++;
	assert_int_equal(ask_liar(good, sizeof(*good), &reply, &err), -EPROTO);
	assert_non_null(strstr(err.text, "another version"));
	free(good);
}

static void refusal_is_told_and_unterminated_text_is_safe(void **state)
{
	struct protocol_reply *answer = calloc(1, sizeof(*answer)), reply;
	struct bf_error err = { 0 };

	(void)state;
	answer->magic = PROTOCOL_MAGIC;
	answer->version = PROTOCOL_VERSION;
	answer->code = EBUSY;
	memset(answer->text, 'x', sizeof(answer->text));
	memset(answer->name, 'y', sizeof(answer->name));
	assert_int_equal(ask_liar(answer, sizeof(*answer), &reply, &err), -EBUSY);
	assert_non_null(strstr(err.text, "liar: xxx"));
	assert_int_equal(strlen(reply.text), sizeof(reply.text) - 1);
	assert_int_equal(strlen(reply.name), sizeof(reply.name) - 1);
	free(answer);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, use_new_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_short_lower_case_and_plain),
		IN_FOLDER(folder_is_made_for_its_owner_alone),
		IN_FOLDER(folder_others_can_write_to_is_refused),
		IN_FOLDER(folder_of_another_user_is_refused),
		IN_FOLDER(folder_that_is_none_is_refused),
		IN_FOLDER(too_long_a_folder_is_refused),
		IN_FOLDER(two_of_one_name_are_refused),
		IN_FOLDER(socket_of_a_killed_supervisor_is_replaced),
		IN_FOLDER(listing_skips_and_removes_what_is_dead),
		IN_FOLDER(listing_an_empty_folder_is_no_error),
		IN_FOLDER(asking_nobody_says_so),
		IN_FOLDER(garbage_and_truncated_answers_are_refused),
		IN_FOLDER(refusal_is_told_and_unterminated_text_is_safe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
