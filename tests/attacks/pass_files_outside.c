/* A control file with a client, a GPU's file that is registered with it, and the file of a mapping are sent to a process
 * outside of the run (receiver.c), which tries to allocate memory in the client. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/process.h"
#include "dev.h"

static int reach_receiver(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = getenv("ATTACK_SOCKET");
	int sock = socket(AF_UNIX, SOCK_STREAM, 0);

	if (!path || dev_ask("receiver"))
		dev_skip("there is no receiver outside");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(sock, (const struct sockaddr *)&address, sizeof(address)))
		dev_skip("the receiver cannot be reached: %s", strerror(errno));
	return sock;
}

int main(void)
{
	struct dev dev;
	int sock, mapped, fresh;
	char answer = 0;

	dev_tries("use this vGPU's device files from a process outside of the run");
	dev_start(&dev);
	sock = reach_receiver();
	mapped = dev_open(DEV_GPU);
	if (dev_memory(&dev, DEV_MEMORY, MIB) || dev_prepare_map(&dev, DEV_MEMORY, MIB, mapped) ||
	    mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0) == MAP_FAILED)
		dev_skip("nothing can be mapped");
	fresh = dev_open(DEV_CONTROL); /* no call was ever made on it */
	if (write(sock, &dev.client, sizeof(dev.client)) != (ssize_t)sizeof(dev.client) ||
	    bf_send_fd(sock, dev.control) || bf_send_fd(sock, dev.gpu) || bf_send_fd(sock, mapped) ||
	    bf_send_fd(sock, fresh))
		dev_skip("files cannot be sent");
	if (read(sock, &answer, 1) != 1)
		dev_skip("the receiver does not answer");
	dev_look();
	if (answer != 'n')
		dev_got("the process outside has memory in the client");
	dev_held("the process outside got nothing from the client");
}
