/* A client that sends what is no policy to the belfryd at BELFRY_SOCKET: each is refused, with a reason, and at once. Exit
 * status 0, or 1 with what was not. Or `crowd COUNT SECONDS NAME`: so many followers of a vGPU that do not
 * read. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/message.h"
#include "base/own.h"
#include "client/talk.h"

static int begin(struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_POLICY_LOAD, NULL);
	struct protocol_reply reply;
	struct talk_place place;
	int sock = talk_find(&place, err) ? -1 : talk_connect(&place, err);

	if (sock >= 0 && talk_ask(sock, &request, &reply, NULL, err)) {
		close(sock);
		return -1;
	}
	return sock;
}

static int memory(off_t bytes)
{
	int fd = memfd_create("policy", MFD_CLOEXEC);

	return fd >= 0 && !ftruncate(fd, bytes) ? fd : -1;
}

/* It is refused for this reason. The descriptor is closed. */
static int refuses(const char *what, int fd, uint32_t version, const char *why)
{
	struct protocol_policy policy = { .magic = PROTOCOL_MAGIC, .version = version, .file = "strange" };
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	cleanup_close int file = fd, sock = begin(&err);

	if (sock < 0 || !talk_give_policy(sock, &policy, file, &reply, NULL, &err) ||
	    !strstr(err.text, why)) {
		printf("%s: %s\n", what, err.code ? err.text : "it was taken");
		return 1;
	}
	return 0;
}

/* Half a conversation, or one of another size: the connection is closed. */
static int ends(const char *what, size_t bytes)
{
	char noise[64] = { 0 };
	struct bf_error err = { 0 };
	cleanup_close int sock = begin(&err);

	if (sock < 0 || bf_message_send(sock, noise, bytes, -1, 0) ||
	    recv(sock, noise, sizeof(noise), 0) > 0) {
		printf("%s: %s\n", what, err.code ? err.text : "it was answered");
		return 1;
	}
	return 0;
}

/* As many as are let in follow what is decided, and do not read. */
static int crowd(unsigned count, unsigned seconds, const char *name)
{
	struct protocol_request request = talk_request(PROTOCOL_POLICY_FOLLOW, name);
	struct bf_error err = { 0 };
	unsigned in = 0;

	for (unsigned i = 0; i < count; i++) {
		struct protocol_reply reply;
		struct talk_place place;
		int sock = talk_find(&place, &err) ? -1 : talk_connect(&place, &err);

		if (sock >= 0 && !talk_ask(sock, &request, &reply, NULL, &err))
			in++; /* it stays open */
	}
	printf("%u let in; %s\n", in, err.text);
	fflush(stdout);
	sleep(seconds);
	return 0;
}

int main(int argc, char **argv)
{
	struct bf_error err = { 0 };
	int pipes[2], failed = 0;

	if (argc == 5 && !strcmp(argv[1], "crowd"))
		return crowd((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), argv[4]);

	if (pipe2(pipes, O_CLOEXEC))
		return 1;
	failed += refuses("nothing", -1, PROTOCOL_VERSION, "no memory file");
	failed += refuses("a pipe", pipes[0], PROTOCOL_VERSION, "no memory file");
	failed += refuses("a device", open("/dev/zero", O_RDONLY | O_CLOEXEC), PROTOCOL_VERSION,
			  "no memory file");
	failed += refuses("a folder", open("/", O_RDONLY | O_CLOEXEC), PROTOCOL_VERSION, "no memory file");
	failed += refuses("an empty file", memory(0), PROTOCOL_VERSION, "at most 16 MiB");
	failed += refuses("a large file", memory((16 << 20) + 1), PROTOCOL_VERSION, "at most 16 MiB");
	failed += refuses("zeros", memory(4096), PROTOCOL_VERSION, "strange: ");
	failed += refuses("another version", memory(4096), PROTOCOL_VERSION + 1, "not a policy of version");
	failed += ends("another size", 40);
	close(pipes[1]);
	for (int i = 0; i < 20; i++) { /* and goes away */
		cleanup_close int sock = begin(&err);

		failed += sock < 0;
	}
	return failed != 0;
}
