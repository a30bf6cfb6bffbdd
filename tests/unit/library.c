/* belfry.h: what the client library makes of its arguments, before it asks belfryd and without one. */
#include "belfry/belfry.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* A socket at which nothing answers: whatever arrives there was sent. */
struct deaf {
	char folder[64], path[96];
	int listener;
	struct belfry *b;
};

static int listen_deafly(void **state)
{
	static struct deaf deaf;
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(deaf.folder, sizeof(deaf.folder), "/tmp/belfry-test-XXXXXX");
	if (!mkdtemp(deaf.folder))
		return -1;
	snprintf(deaf.path, sizeof(deaf.path), "%s/s", deaf.folder);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", deaf.path);
	deaf.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(deaf.listener, (struct sockaddr *)&address, sizeof(address)) || listen(deaf.listener, 4))
		return -1;
	*state = &deaf;
	return belfry_open(&deaf.b, deaf.path) || belfry_set_timeout(deaf.b, 50);
}

static int stop_listening(void **state)
{
	struct deaf *deaf = *state;

	belfry_close(deaf->b);
	close(deaf->listener);
	unlink(deaf->path);
	return rmdir(deaf->folder);
}

static void assert_nothing_was_sent(struct deaf *deaf)
{
	struct pollfd fd = { .fd = deaf->listener, .events = POLLIN };

	assert_int_equal(poll(&fd, 1, 0), 0);
}

/* The message is one line of text that a terminal can show. */
static void assert_says(const struct belfry *b, const char *text)
{
	const char *error = belfry_error(b);

	if (!strstr(error, text))
		fail_msg("'%s' does not say '%s'", error, text);
	for (; *error; error++)
		assert_false((unsigned char)*error < ' ' || *error == 0x7f);
}

static void version_is_that_of_the_release(void **state)
{
	(void)state;
	assert_string_equal(belfry_version(), BELFRY_VERSION);
}

static void bad_socket_is_refused_and_explained(void **state)
{
	struct belfry *b = NULL;
	char path[200];

	(void)state;
	assert_int_equal(belfry_open(NULL, NULL), -EINVAL);
	assert_int_equal(belfry_open(&b, ""), -EINVAL);
	assert_says(b, "may have 1 to 107");
	belfry_close(b);
	memset(path, 'x', sizeof(path));
	path[108] = 0;
	assert_int_equal(belfry_open(&b, path), -ENAMETOOLONG);
	assert_says(b, "may have 1 to 107");
	belfry_close(b);
	path[107] = 0;
	assert_int_equal(belfry_open(&b, path), 0);
	assert_string_equal(belfry_error(b), "");
	belfry_close(b);
}

static void null_handle_is_an_error(void **state)
{
	char *json = (char *)1;

	(void)state;
	belfry_close(NULL);
	belfry_free(NULL);
	assert_non_null(belfry_error(NULL));
	assert_int_equal(belfry_took_ns(NULL), 0);
	assert_string_equal(belfry_shared_domain(NULL), "");
	assert_int_equal(belfry_set_timeout(NULL, 1), -EINVAL);
	assert_int_equal(belfry_vgpu_create(NULL, "a", NULL, &json), -EINVAL);
	assert_null(json);
	assert_int_equal(belfry_vgpu_set(NULL, "a", NULL), -EINVAL);
	assert_int_equal(belfry_vgpu_check(NULL, "a", NULL, 0), -EINVAL);
	assert_int_equal(belfry_vgpu_remove(NULL, "a", 0), -EINVAL);
	assert_int_equal(belfry_vgpu_hold(NULL, "a", 0), -EINVAL);
	assert_int_equal(belfry_vgpu_open(NULL, "a"), -EINVAL);
	assert_int_equal(belfry_vgpu_stop(NULL, "a"), -EINVAL);
	assert_int_equal(belfry_vgpu_resume(NULL, "a"), -EINVAL);
	assert_int_equal(belfry_vgpu_explain(NULL, "a", &json), -EINVAL);
	assert_int_equal(belfry_report(NULL, "a", &json), -EINVAL);
	assert_int_equal(belfry_info(NULL, &json), -EINVAL);
	assert_int_equal(belfry_reload(NULL), -EINVAL);
}

static void assert_name_refused(struct belfry *b, const char *name, const char *text)
{
	static const char *const options[] = { "mem", "1G", NULL };
	char *json = NULL;

	assert_int_equal(belfry_vgpu_create(b, name, options, &json), -EINVAL);
	assert_says(b, text);
	assert_null(json);
	assert_int_equal(belfry_vgpu_set(b, name, options), -EINVAL);
	assert_says(b, text);
	assert_int_equal(belfry_vgpu_remove(b, name, BELFRY_FORCE), -EINVAL);
	assert_says(b, text);
	assert_int_equal(belfry_vgpu_hold(b, name, 0), -EINVAL);
	assert_says(b, text);
	assert_int_equal(belfry_vgpu_open(b, name), -EINVAL);
	assert_says(b, text);
	assert_int_equal(belfry_vgpu_stop(b, name), -EINVAL);
	assert_says(b, text);
	assert_int_equal(belfry_vgpu_resume(b, name), -EINVAL);
	assert_says(b, text);
	assert_int_equal(belfry_vgpu_explain(b, name, &json), -EINVAL);
	assert_says(b, text);
	assert_null(json);
}

static void bad_name_is_refused_before_anything_is_sent(void **state)
{
	struct deaf *deaf = *state;
	char long_name[65], endless[1000], *json = NULL;
	const char *const bad[] = { "",		"A",	   ".x",   "../x", "a/b", "a b", "\x1b[31mred\n",
				    "\xff\xfe", long_name, endless };

	snprintf(long_name, sizeof(long_name), "%064d", 0);
	snprintf(endless, sizeof(endless), "%0999d", 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_name_refused(deaf->b, bad[i], "not a name");
		assert_int_equal(belfry_report(deaf->b, bad[i], &json), -EINVAL);
		assert_int_equal(belfry_vgpu_check(deaf->b, bad[i], NULL, 0), -EINVAL);
	}
	assert_name_refused(deaf->b, NULL, "no name");
	assert_nothing_was_sent(deaf);
}

#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define LONG HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED

static void bad_option_is_refused_before_anything_is_sent(void **state)
{
	struct deaf *deaf = *state;
	static const struct {
		const char *const words[7];
		int code;
		const char *text;
	} bad[] = {
		{ { "mem", "-1", NULL }, EINVAL, "size '-1'" },
		{ { "mem", "", NULL }, EINVAL, "size ''" },
		{ { "mem", "99999999T", NULL }, ERANGE, "too large" },
		{ { "mem", "1G", "mem", "x", NULL }, EINVAL, "size 'x'" },
		{ { "time", "60:50", NULL }, EINVAL, "above the limit" },
		{ { "class", "fast", NULL }, EINVAL, "'fast'" },
		{ { "domain", "../x", NULL }, EINVAL, "domain '../x'" },
		{ { "public", "\x1b[2J", NULL }, EINVAL, "not yes or no" },
		{ { "frob", "1", NULL }, EINVAL, "'frob': unknown" },
		{ { "", "", NULL }, EINVAL, "'': unknown" },
		{ { "class", LONG, NULL }, EINVAL, "not latency or throughput" },
		{ { LONG, "1", NULL }, EINVAL, "unknown; a vGPU has" },
		{ { "mem", NULL }, EINVAL, "'mem' is without its value" },
		{ { "time", "40", "mem", NULL }, EINVAL, "'mem' is without its value" },
	};
	static const struct {
		const char *const words[7];
		const char *text;
	} bad_to_create[] = {
		{ { "objective", "p99=2ms", NULL }, "class latency" },
		{ { "gpu", "soft:", NULL }, "gpu 'soft:'" },
		{ { "gpu", "softy", NULL }, "gpu 'softy'" },
		{ { "gpu", "254", NULL }, "gpu '254'" },
		{ { "gpu", "-1", NULL }, "gpu '-1'" },
		{ { "folder", "/tmp", NULL }, "only a software GPU" },
		{ { "gpu", "0", "folder", "/tmp", NULL }, "only a software GPU" },
		{ { "gpu", "soft", "folder", "tmp", NULL }, "not a path" },
		{ { "owner", "root", NULL }, "owner 'root'" },
		{ { "owner", "4294967295", NULL }, "owner" },
		{ { "any-driver", "1", NULL }, "not yes or no" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(belfry_vgpu_create(deaf->b, "a", bad[i].words, NULL), -bad[i].code);
		assert_says(deaf->b, bad[i].text);
		assert_int_equal(belfry_vgpu_set(deaf->b, "a", bad[i].words), -bad[i].code);
		assert_says(deaf->b, bad[i].text);
		assert_int_equal(belfry_vgpu_check(deaf->b, NULL, bad[i].words, 0), -bad[i].code);
		assert_int_equal(belfry_vgpu_check(deaf->b, "a", bad[i].words, BELFRY_SET), -bad[i].code);
	}
	for (size_t i = 0; i < sizeof(bad_to_create) / sizeof(bad_to_create[0]); i++) {
		assert_int_equal(belfry_vgpu_create(deaf->b, "a", bad_to_create[i].words, NULL), -EINVAL);
		assert_says(deaf->b, bad_to_create[i].text);
	}
	assert_nothing_was_sent(deaf);
}

static void list_without_an_end_is_noticed(void **state)
{
	struct deaf *deaf = *state;
	const char *words[200];

	for (size_t i = 0; i < 200; i += 2) {
		words[i] = "mem";
		words[i + 1] = "1G";
	}
	assert_int_equal(belfry_vgpu_check(deaf->b, NULL, words, 0), -EINVAL);
	assert_says(deaf->b, "does not end with NULL");
	words[128] = NULL;
	assert_int_equal(belfry_vgpu_check(deaf->b, NULL, words, 0), 0);
}

static void good_options_are_accepted(void **state)
{
	static const char *const all[] = { "mem",	"40G",	     "time",	   "40:100", "class",
					   "latency",	"objective", "p99=2ms",	   "domain", "d",
					   "timeslice", "200us",     "interleave", "high",   "public",
					   "yes",	"gpu",	     "soft:1",	   "folder", "/tmp",
					   "owner",	"1000",	     "any-driver", "yes",    NULL };
	static const char *const change[] = { "objective", "p99=2ms", NULL };
	static const char *const none[] = { NULL };
	struct deaf *deaf = *state;

	assert_int_equal(belfry_vgpu_check(deaf->b, "a", all, 0), 0);
	assert_string_equal(belfry_error(deaf->b), "");
	assert_int_equal(belfry_vgpu_check(deaf->b, "a", NULL, 0), 0);
	assert_int_equal(belfry_vgpu_check(deaf->b, "a", none, 0), 0);
	assert_int_equal(belfry_vgpu_check(deaf->b, NULL, change, BELFRY_SET), 0);
	assert_nothing_was_sent(deaf);
}

static void set_changes_something_and_no_place(void **state)
{
	static const char *const keys[] = { "gpu", "folder", "owner", "any-driver" };
	static const char *const none[] = { NULL };
	struct deaf *deaf = *state;

	assert_int_equal(belfry_vgpu_set(deaf->b, "a", NULL), -EINVAL);
	assert_says(deaf->b, "nothing to change");
	assert_int_equal(belfry_vgpu_set(deaf->b, "a", none), -EINVAL);
	for (size_t i = 0; i < 4; i++) {
		const char *const words[] = { keys[i], "0", NULL };

		assert_int_equal(belfry_vgpu_set(deaf->b, "a", words), -EINVAL);
		assert_says(deaf->b, "cannot be changed");
	}
	assert_nothing_was_sent(deaf);
}

static void numbers_out_of_range_are_refused(void **state)
{
	struct deaf *deaf = *state;

	assert_int_equal(belfry_vgpu_hold(deaf->b, "a", 86400000001ull), -ERANGE);
	assert_says(deaf->b, "one day");
	assert_int_equal(belfry_vgpu_hold(deaf->b, "a", UINT64_MAX), -ERANGE);
	assert_int_equal(belfry_set_timeout(deaf->b, 86400001), -ERANGE);
	assert_says(deaf->b, "one day");
	assert_int_equal(belfry_vgpu_remove(deaf->b, "a", 2), -EINVAL);
	assert_says(deaf->b, "flags 0x2");
	assert_int_equal(belfry_vgpu_check(deaf->b, "a", NULL, 4), -EINVAL);
	assert_says(deaf->b, "flags 0x4");
	assert_nothing_was_sent(deaf);
}

static void result_needs_a_place(void **state)
{
	struct deaf *deaf = *state;

	assert_int_equal(belfry_report(deaf->b, NULL, NULL), -EINVAL);
	assert_says(deaf->b, "no pointer");
	assert_int_equal(belfry_info(deaf->b, NULL), -EINVAL);
	assert_int_equal(belfry_vgpu_explain(deaf->b, "a", NULL), -EINVAL);
	assert_nothing_was_sent(deaf);
}

static void belfryd_that_does_not_answer_is_left_in_time(void **state)
{
	struct deaf *deaf = *state;
	char *json = (char *)1;
	int before = dup(0), after;

	close(before);
	assert_int_equal(belfry_info(deaf->b, &json), -ETIMEDOUT);
	assert_null(json);
	assert_says(deaf->b, "does not answer");
	/* Its backlog fills up: then there is no connection, either. */
	for (int i = 0; i < 8; i++)
		assert_int_equal(belfry_vgpu_stop(deaf->b, "a"), -ETIMEDOUT);
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

static void *accept_and_close(void *context)
{
	struct deaf *deaf = context;
	struct pollfd fd = { .fd = deaf->listener, .events = POLLIN };

	poll(&fd, 1, -1);
	close(accept(deaf->listener, NULL, NULL));
	return NULL;
}

/* SIGPIPE would end this test. */
static void belfryd_that_goes_away_is_an_error_and_no_signal(void **state)
{
	struct deaf *deaf = *state;
	char *json = NULL;
	pthread_t thread;

	assert_int_equal(belfry_set_timeout(deaf->b, 0), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(pthread_create(&thread, NULL, accept_and_close, deaf), 0);
		assert_int_equal(belfry_report(deaf->b, NULL, &json), -ECONNRESET);
		assert_says(deaf->b, "closed the connection");
		pthread_join(thread, NULL);
	}
}

static void absent_belfryd_is_told_apart_from_an_absent_vgpu(void **state)
{
	struct belfry *b;
	char *json = NULL;

	(void)state;
	assert_int_equal(belfry_open(&b, "/no/such/belfryd.sock"), 0);
	assert_int_equal(belfry_vgpu_remove(b, "a", 0), -ECONNREFUSED);
	assert_int_equal(belfry_vgpu_create(b, "a", NULL, &json), -ECONNREFUSED);
	assert_int_equal(belfry_report(b, "a", &json), -ECONNREFUSED);
	assert_int_equal(belfry_report(b, NULL, &json), -ECONNREFUSED);
	assert_int_equal(belfry_reload(b), -ECONNREFUSED);
	assert_says(b, "no belfryd answers there");
	belfry_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version_is_that_of_the_release),
		cmocka_unit_test(bad_socket_is_refused_and_explained),
		cmocka_unit_test(null_handle_is_an_error),
		cmocka_unit_test_setup_teardown(bad_name_is_refused_before_anything_is_sent, listen_deafly,
						stop_listening),
		cmocka_unit_test_setup_teardown(bad_option_is_refused_before_anything_is_sent, listen_deafly,
						stop_listening),
		cmocka_unit_test_setup_teardown(list_without_an_end_is_noticed, listen_deafly,
						stop_listening),
		cmocka_unit_test_setup_teardown(good_options_are_accepted, listen_deafly, stop_listening),
		cmocka_unit_test_setup_teardown(set_changes_something_and_no_place, listen_deafly,
						stop_listening),
		cmocka_unit_test_setup_teardown(numbers_out_of_range_are_refused, listen_deafly,
						stop_listening),
		cmocka_unit_test_setup_teardown(result_needs_a_place, listen_deafly, stop_listening),
		cmocka_unit_test_setup_teardown(belfryd_that_does_not_answer_is_left_in_time, listen_deafly,
						stop_listening),
		cmocka_unit_test_setup_teardown(belfryd_that_goes_away_is_an_error_and_no_signal,
						listen_deafly, stop_listening),
		cmocka_unit_test(absent_belfryd_is_told_apart_from_an_absent_vgpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
