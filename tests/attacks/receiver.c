/* Not an attack: the process outside of the run in pass_files_outside.c. receiver SOCKET: takes one connection, a client
 * and its files, and tries to allocate memory in the client through each of them; answers y or n. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/process.h"
#include "dev.h"
#include "soft/link/link.h"

enum { FILES = 4 };

static int make_call(int fd, uint32_t nr, void *arg, uint32_t size)
{
	return dev_is_soft() ? link_call_for(fd, 0, nr, arg, size) : dev_call(fd, nr, arg, size);
}

static bool gets_memory(int fd, uint32_t client, uint32_t handle)
{
	uint8_t params[128] = { 0 };
	uint64_t bytes = MIB;
	struct rm_arg_alloc arg = { .client = client,
				    .parent = DEV_DEVICE,
				    .object = handle,
				    .class_id = 0x40,
				    .params = (uintptr_t)params,
				    .size = sizeof(params),
				    .status = 0x77 };
	struct rm_arg_free gone = { client, client, client, 0x77 };
	int rc;

	memcpy(params + dev_layout()->memory_bytes, &bytes, sizeof(bytes));
	rc = make_call(fd, RM_ESC_ALLOC, &arg, sizeof(arg));
	printf("outside: memory: %d, status 0x%x\n", rc, arg.status);
	if (!rc && !arg.status)
		return true;
	rc = make_call(fd, RM_ESC_FREE, &gone, sizeof(gone));
	printf("outside: free of the client: %d, status 0x%x\n", rc, gone.status);
	return !rc && !gone.status;
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), sock;
	char answer = 'n';
	uint32_t client;

	if (argc != 2)
		return 2;
	alarm(60);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", argv[1]);
	if (bind(listener, (const struct sockaddr *)&address, sizeof(address)) || listen(listener, 1))
		return 2;
	sock = accept(listener, NULL, NULL);
	if (read(sock, &client, sizeof(client)) != (ssize_t)sizeof(client))
		return 2;
	for (uint32_t i = 0; i < FILES; i++) {
		int file = bf_recv_fd(sock);

		if (file >= 0 && gets_memory(file, client, DEV_MEMORY + 0x100 + i))
			answer = 'y';
	}
	return write(sock, &answer, 1) == 1 ? 0 : 2;
}
