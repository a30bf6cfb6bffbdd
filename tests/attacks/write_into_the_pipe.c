/* What a program has in place of a control file is a pipe, whose other end tells Belfry when the file is closed. It is
 * opened again through /proc for writing, written to, read, and closed in every order: nothing may be freed while the
 * file can be used, nor stay when it cannot. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dev.h"

int main(void)
{
	uint64_t limit = dev_limit(), sum;
	char path[64], bytes[65536] = { 1 };
	struct dev dev, second;
	int again, writer;

	dev_tries("write into, and reopen, the pipe that stands for a control file");
	dev_start(&dev);
	if (dev_memory(&dev, DEV_MEMORY, limit / 2))
		dev_skip("no memory");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", dev.control);
	writer = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	again = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	printf("opened again: for writing %d, for reading %d\n", writer, again);
	while (writer >= 0 && write(writer, bytes, sizeof(bytes)) > 0)
		;
	while (writer >= 0 && read(dev.control, bytes, sizeof(bytes)) > 0)
		;
	dev_look();
	/* The file goes; what was opened again through /proc is the same pipe, and so the same file. */
	if (again >= 0) {
		close(dev.control);
		dev.control = again;
	}
	dev_start(&second);
	sum = limit / 2 + dev_fill(&second, DEV_MEMORY, limit / 8);
	dev_look();
	if (sum > limit && !dev_free(&dev, DEV_DEVICE, DEV_MEMORY))
		dev_got("%llu bytes: a file that was in use was taken for closed", (unsigned long long)sum);
	/* All reading ends are closed, a writing end is left: the client must be gone. */
	close(dev.control);
	if (dev_ask("look"))
		dev_got("a writing end keeps a client");
	sum = dev_fill(&second, DEV_MEMORY + 0x100, limit / 8);
	if (writer >= 0)
		printf("with a writing end left: %llu bytes came back\n", (unsigned long long)sum);
	dev_look();
	dev_held("the pipe tells what it should");
}
