/* base: descriptors that other processes have sent. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/handed.h"
#include "base/message.h"
#include "base/own.h"

enum { LINGER_S = 300, SENDER = 1234, OTHER = 1235, OF_ONE_USER = 16 };

static uint64_t begin_ns;

static int begin(void **state)
{
	(void)state;
	begin_ns = bf_now_ns();
	return 0;
}

/* Fails if the test has waited for a close. */
static int end(void **state)
{
	(void)state;
	return bf_now_ns() - begin_ns > LINGER_S / 2 * 1000000000ull;
}

/* A TCP socket whose last close waits: its data has no reader. The peer stays open. */
static int lingering(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t length = sizeof(address);
	struct linger linger = { 1, LINGER_S };
	cleanup_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	static const char data[1 << 16];

	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	assert_true(!connect(fd, (struct sockaddr *)&address, sizeof(address)) || errno == EINPROGRESS);
	assert_true(accept(listener, NULL, NULL) >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	while (send(fd, data, sizeof(data), 0) > 0)
		;
	return fd;
}

static void descriptor_that_lingers_does_not_block(void **state)
{
	int fd = lingering();

	(void)state;
	bf_close_handed(&fd, OTHER);
	assert_int_equal(fd, -1);
}

static void second_descriptor_of_a_message_does_not_block(void **state)
{
	int pair[2], fds[2] = { lingering(), lingering() }, got;
	char byte = 0, room[CMSG_SPACE(sizeof(fds))] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)
	};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	(void)state;
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(head), fds, sizeof(fds));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(sendmsg(pair[0], &msg, 0), 1);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(bf_message_receive(pair[1], &byte, 1, &got, 0), 1);
	assert_int_equal(got, -1);
	close(pair[0]);
	close(pair[1]);
}

static void connection_with_a_descriptor_in_its_queue_does_not_block(void **state)
{
	int pair[2], fd = lingering();

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(bf_message_send(pair[0], "x", 1, fd, 0), 0);
	close(fd);
	bf_close_connection(&pair[1]);
	assert_int_equal(pair[1], -1);
	close(pair[0]);
}

static void socket_refuses_descriptors(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	bf_handing_allow(pair[1], false);
	if (!bf_message_send(pair[0], "x", 1, 0, 0)) {
		puts("this kernel cannot refuse descriptors");
	} else {
		bf_handing_allow(pair[1], true);
		assert_int_equal(bf_message_send(pair[0], "x", 1, 0, 0), 0);
	}
	close(pair[0]);
	close(pair[1]);
}

static void user_has_a_limit_of_descriptors_that_wait(void **state)
{
	(void)state;
	for (int i = 0; i < OF_ONE_USER; i++) {
		int fd = lingering();

		assert_false(bf_handed_is_full(SENDER));
		bf_close_handed(&fd, SENDER);
	}
	assert_true(bf_handed_is_full(SENDER));
	assert_false(bf_handed_is_full(SENDER + 1));
}

static void memory_file_is_closed_at_once(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC), copy = fd;

	(void)state;
	assert_true(bf_is_memory_file(fd));
	assert_false(bf_is_listener(fd));
	bf_close_handed(&fd, SENDER);
	assert_int_equal(fcntl(copy, F_GETFD), -1);
	assert_false(bf_is_memory_file(STDIN_FILENO));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(descriptor_that_lingers_does_not_block, begin, end),
		cmocka_unit_test_setup_teardown(second_descriptor_of_a_message_does_not_block, begin, end),
		cmocka_unit_test_setup_teardown(connection_with_a_descriptor_in_its_queue_does_not_block,
						begin, end),
		cmocka_unit_test(socket_refuses_descriptors),
		cmocka_unit_test_setup_teardown(user_has_a_limit_of_descriptors_that_wait, begin, end),
		cmocka_unit_test(memory_file_is_closed_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
