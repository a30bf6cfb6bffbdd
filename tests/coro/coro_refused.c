/* A GPU server that gives no lease. */
#include "server.h"

/* Answers without a page, and waits for the end of the connection. */
static void *refuse(void *arg)
{
	struct timeval limit = { .tv_sec = WAIT_MS / 1000 };
	int connection = accept(*(int *)arg, NULL, NULL);
	char byte = 1;

	CHECK(connection >= 0);
	CHECK(!setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	CHECK(send(connection, &byte, 1, 0) == 1);
	CHECK(recv(connection, &byte, 1, 0) == 0);
	return NULL;
}

/* The GPU server would wait for what it reports. */
static void a_process_without_a_page_closes_its_connection(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pthread_t server;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("BELFRY_LEASE"));
	CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&address, sizeof(address)) &&
	      !listen(listener, 1));
	CHECK(!pthread_create(&server, NULL, refuse, &listener));
	check_context();
	CHECK(!pthread_join(server, NULL));
	CU(cuMemAlloc_v2(&memory, sizeof(places)));
	CHECK_EQUAL(launched(check_function(ptx, "where"), NULL), UINT32_MAX);
	close(listener);
}

TESTS(TEST(a_process_without_a_page_closes_its_connection))
