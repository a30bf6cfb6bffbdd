/* The control socket of a vGPU, asked well and badly. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "server/control.h"
#include "server/runtime.h"
#include "stage.h"

#define MIB CARD_MIB

static char folder[] = "/tmp/belfry-control-XXXXXX";

static void program_waits(struct actor *a)
{
	actor_context(a);
	actor_say(a, 'c');
}

/* A vGPU with a program on it and its control socket. */
struct house {
	struct stage stage;
	struct control control;
};

static void house_open(struct house *house)
{
	struct bf_error err = { 0 };

	/* The socket first: a stage counts descriptors, and gives it back last. */
	CHECK_EQUAL(control_open(&house->control, "house", &err), 0);
	stage_start(&house->stage, 64 * MIB, program_waits, 0);
	stage_until(&house->stage, 'c');
	house->control.warden = house->stage.warden;
}

static void house_close(struct house *house)
{
	for (int i = 0; i < CONTROL_TALKERS_MAX; i++)
		if (house->control.talkers[i] >= 0) {
			close(house->control.talkers[i]);
			house->control.talkers[i] = -1;
		}
	stage_go_on(&house->stage);
	stage_end_well(&house->stage);
	control_close(&house->control);
}

/* Let the house do what there is to do. */
static void house_work(struct house *house)
{
	struct pollfd fds[CONTROL_FDS];

	for (;;) {
		control_fds(&house->control, fds);
		if (poll(fds, CONTROL_FDS, 0) <= 0)
			return;
		control_work(&house->control, fds);
	}
}

static int talk(const struct house *house)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(address.sun_path, house->control.path, sizeof(house->control.path));
	CHECK(sock >= 0 && !connect(sock, (struct sockaddr *)&address, sizeof(address)));
	return sock;
}

static struct protocol_request request_of(uint32_t op)
{
	return (struct protocol_request){ .magic = PROTOCOL_MAGIC, .version = PROTOCOL_VERSION, .op = op };
}

/* What a message of any bytes is answered with: the code, or -1 if the connection is closed. */
static int answer_to(struct house *house, int sock, const void *bytes, size_t count)
{
	static struct protocol_reply reply;
	ssize_t got;

	CHECK(send(sock, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
	house_work(house);
	got = recv(sock, &reply, sizeof(reply), 0);
	if (got <= 0)
		return -1;
	CHECK_EQUAL(got, sizeof(reply));
	CHECK_EQUAL(reply.magic, PROTOCOL_MAGIC);
	CHECK(memchr(reply.text, 0, sizeof(reply.text)));
	return reply.code;
}

static void garbage_is_answered_with_an_error(void)
{
	struct protocol_request request = request_of(PROTOCOL_REPORT);
	uint8_t garbage[9000];
	struct house house;
	int sock;

	house_open(&house);
	sock = talk(&house);
	memset(garbage, 0xa5, sizeof(garbage));
	CHECK_EQUAL(answer_to(&house, sock, garbage, 1), EPROTO);
	CHECK_EQUAL(answer_to(&house, sock, garbage, sizeof(request)), EPROTO);
	CHECK_EQUAL(answer_to(&house, sock, garbage, sizeof(garbage)), EPROTO);
	CHECK_EQUAL(answer_to(&house, sock, &request, sizeof(request) - 1), EPROTO);
	request.version++;
	CHECK_EQUAL(answer_to(&house, sock, &request, sizeof(request)), EPROTO);
	request = request_of(0);
	CHECK_EQUAL(answer_to(&house, sock, &request, sizeof(request)), EPROTO);
	request = request_of(99);
	CHECK_EQUAL(answer_to(&house, sock, &request, sizeof(request)), EPROTO);
	request = request_of(PROTOCOL_SET);
	request.set = PROTOCOL_SET_INTERLEAVE;
	request.interleave = 7;
	CHECK_EQUAL(answer_to(&house, sock, &request, sizeof(request)), EINVAL);
	request = request_of(PROTOCOL_REPORT); /* and it still answers */
	CHECK_EQUAL(answer_to(&house, sock, &request, sizeof(request)), 0);
	close(sock);
	house_close(&house);
}

static void client_that_does_not_read_is_dropped(void)
{
	struct protocol_request request = request_of(PROTOCOL_REPORT);
	struct house house;
	int deaf, sock, sent = 0;

	house_open(&house);
	deaf = talk(&house);
	while (sent < 100000 && send(deaf, &request, sizeof(request), MSG_NOSIGNAL) > 0) {
		house_work(&house);
		sent++;
	}
	CHECK(sent < 100000); /* its answers filled what there is for them, and it was let go */
	sock = talk(&house);
	CHECK_EQUAL(answer_to(&house, sock, &request, sizeof(request)), 0);
	close(sock);
	close(deaf);
	house_close(&house);
}

static void more_clients_than_places_are_turned_away(void)
{
	struct protocol_request request = request_of(PROTOCOL_REPORT);
	int socks[CONTROL_TALKERS_MAX + 4];
	struct house house;
	char byte;

	house_open(&house);
	for (size_t i = 0; i < sizeof(socks) / sizeof(socks[0]); i++) {
		socks[i] = talk(&house);
		house_work(&house);
	}
	CHECK_EQUAL(recv(socks[CONTROL_TALKERS_MAX], &byte, 1, 0), 0);
	CHECK_EQUAL(answer_to(&house, socks[CONTROL_TALKERS_MAX - 1], &request, sizeof(request)), 0);
	close(socks[0]);
	house_work(&house);
	socks[0] = talk(&house);
	CHECK_EQUAL(answer_to(&house, socks[0], &request, sizeof(request)), 0);
	for (size_t i = 0; i < sizeof(socks) / sizeof(socks[0]); i++)
		close(socks[i]);
	house_work(&house);
	house_close(&house);
}

static enum warden_gate gate_of(struct house *house)
{
	static struct warden_report report;

	warden_report(house->stage.warden, &report);
	return report.gate;
}

static void hold_for_a_time_opens_by_itself(void)
{
	struct protocol_request hold = request_of(PROTOCOL_HOLD), open = request_of(PROTOCOL_OPEN);
	struct pollfd fds[CONTROL_FDS];
	struct house house;
	int sock;

	house_open(&house);
	sock = talk(&house);
	hold.for_us = 20000;
	CHECK_EQUAL(answer_to(&house, sock, &hold, sizeof(hold)), 0);
	CHECK_EQUAL(gate_of(&house), WARDEN_HELD);
	control_fds(&house.control, fds);
	CHECK_EQUAL(poll(fds, CONTROL_FDS, 5000), 1);
	control_work(&house.control, fds);
	CHECK_EQUAL(gate_of(&house), WARDEN_OPEN);
	/* Opened before its time, it is not opened again by the old timer. */
	CHECK_EQUAL(answer_to(&house, sock, &hold, sizeof(hold)), 0);
	CHECK_EQUAL(answer_to(&house, sock, &open, sizeof(open)), 0);
	hold.for_us = 0;
	CHECK_EQUAL(answer_to(&house, sock, &hold, sizeof(hold)), 0);
	control_fds(&house.control, fds);
	CHECK_EQUAL(poll(fds, CONTROL_FDS, 50), 0);
	CHECK_EQUAL(gate_of(&house), WARDEN_HELD);
	CHECK_EQUAL(answer_to(&house, sock, &open, sizeof(open)), 0);
	close(sock);
	house_close(&house);
}

static void socket_is_for_its_owner_alone(void)
{
	struct house house;
	struct stat st;

	house_open(&house);
	CHECK(!stat(house.control.path, &st));
	CHECK_EQUAL(st.st_mode & 0777, 0600);
	house_close(&house);
	CHECK(access(house.control.path, F_OK));
}

int main(void)
{
	CHECK(mkdtemp(folder) && !setenv("BELFRY_RUNTIME_DIR", folder, 1));
	STAGE_TEST(garbage_is_answered_with_an_error);
	STAGE_TEST(client_that_does_not_read_is_dropped);
	STAGE_TEST(more_clients_than_places_are_turned_away);
	STAGE_TEST(hold_for_a_time_opens_by_itself);
	STAGE_TEST(socket_is_for_its_owner_alone);
	CHECK(!rmdir(folder));
	return 0;
}
