/* Children allocate on a control file, put the file in flight in a socket and close it, or let it go with them. Nobody
 * has the file open then, but it lives, and so does its memory. */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "dev.h"

enum { CHILDREN = 8 };

/* 0: it has `piece` bytes in flight; 1: it got none. */
static void child(int sock, uint64_t piece)
{
	struct dev dev;

	if (dev_new_client(&dev) || dev_new_device(&dev) || dev_memory(&dev, DEV_MEMORY, piece))
		_exit(1);
	if (bf_send_fd(sock, dev.control))
		_exit(1);
	close(dev.control);
	_exit(0);
}

int main(void)
{
	uint64_t piece = dev_limit() / 4, sum = 0, later;
	int socks[2], status, file;
	struct dev dev;

	dev_tries("hide control files in a socket, and allocate again");
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, socks))
		dev_skip("no socketpair");
	dev_start(&dev);
	for (unsigned i = 0; i < CHILDREN; i++) {
		if (!fork())
			child(socks[0], piece);
		wait(&status);
		if (!status)
			sum += piece;
	}
	dev_look();
	sum += dev_fill(&dev, DEV_MEMORY, piece / 2);
	dev_look();
	if (sum > dev_limit())
		dev_got("%llu bytes with files in flight", (unsigned long long)sum);
	printf("%llu bytes with files in flight\n", (unsigned long long)sum);
	/* Out of flight, they are what they were. */
	file = bf_recv_fd(socks[1]);
	if (file < 0)
		dev_skip("nothing was in flight");
	close(file);
	later = dev_fill(&dev, DEV_MEMORY + 0x100, piece / 2);
	dev_look();
	if (sum - piece + later > dev_limit())
		dev_got("%llu bytes after one was closed", (unsigned long long)sum - piece + later);
	dev_held("%llu bytes of %llu; %llu once a file was closed", (unsigned long long)sum,
		 (unsigned long long)dev_limit(), (unsigned long long)later);
}
