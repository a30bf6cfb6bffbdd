/* Messages with descriptors: what a stranger sends must not stay open here. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/message.h"

static int pair[2];

static int make_pair(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
	(void)state;
	close(pair[0]);
	close(pair[1]);
	return 0;
}

/* The lowest number that is free: it rises if one was left open. */
static int lowest_free(void)
{
	int fd = dup(pair[0]);

	close(fd);
	return fd;
}

/* Descriptors are closed in a thread (base/handed.h). */
static void wait_until_free(int fd)
{
	while (lowest_free() != fd)
		usleep(1000);
}

static void send_files(unsigned count)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(253 * sizeof(int))];
	} control = { 0 };
	struct iovec part = { "x", 1 };
	struct msghdr msg = { .msg_iov = &part,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = CMSG_SPACE(count * sizeof(int)) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(count * sizeof(int));
	for (unsigned i = 0; i < count; i++)
		memcpy(CMSG_DATA(head) + i * sizeof(int), &pair[0], sizeof(int));
	assert_int_equal(sendmsg(pair[0], &msg, 0), 1);
}

static void a_descriptor_comes_along(void **state)
{
	char text[8] = "";
	int fd;

	(void)state;
	assert_int_equal(bf_message_send(pair[0], "hello", 6, pair[0], 0), 0);
	assert_int_equal(bf_message_receive(pair[1], text, sizeof(text), &fd, 0), 6);
	assert_string_equal(text, "hello");
	assert_true(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	close(fd);
	assert_int_equal(bf_message_send(pair[0], "none", 5, -1, 0), 0);
	assert_int_equal(bf_message_receive(pair[1], text, sizeof(text), &fd, 0), 5);
	assert_int_equal(fd, -1);
}

static void more_than_one_are_closed(void **state)
{
	static const unsigned counts[] = { 2, 3, 17, 253 };
	int free_before = lowest_free(), fd;
	char byte;

	(void)state;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		send_files(counts[i]);
		assert_int_equal(bf_message_receive(pair[1], &byte, 1, &fd, 0), 1);
		assert_int_equal(fd, -1);
		wait_until_free(free_before);
	}
}

static void too_long_a_message_brings_nothing(void **state)
{
	int free_before = lowest_free(), fd;
	char text[4];

	(void)state;
	assert_int_equal(bf_message_send(pair[0], "too long", 9, pair[0], 0), 0);
	assert_int_equal(bf_message_receive(pair[1], text, sizeof(text), &fd, 0), -EMSGSIZE);
	assert_int_equal(fd, -1);
	wait_until_free(free_before);
}

static void an_end_is_an_end(void **state)
{
	char byte;
	int fd;

	(void)state;
	assert_int_equal(bf_message_receive(pair[1], &byte, 1, &fd, MSG_DONTWAIT), -EAGAIN);
	close(pair[0]);
	assert_int_equal(bf_message_receive(pair[1], &byte, 1, &fd, 0), 0);
	assert_int_equal(fd, -1);
	pair[0] = -1;
	assert_int_equal(bf_message_send(pair[1], "x", 1, -1, 0), -EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_descriptor_comes_along, make_pair, close_pair),
		cmocka_unit_test_setup_teardown(more_than_one_are_closed, make_pair, close_pair),
		cmocka_unit_test_setup_teardown(too_long_a_message_brings_nothing, make_pair, close_pair),
		cmocka_unit_test_setup_teardown(an_end_is_an_end, make_pair, close_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
