/* The software GPU's files are sockets: messages are sent to them directly, around the filter, also in the name of other
 * processes and as their supervisor. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev.h"
#include "soft/link/link.h"

static void try_calls(int control, pid_t as)
{
	struct rm_arg_alloc root = { .class_id = 0x41, .status = 0x77 };

	if (!link_call_for(control, as, RM_ESC_ALLOC, &root, sizeof(root)) && !root.status)
		dev_got("a client by a message, in the name of %d", as);
}

int main(void)
{
	struct dev dev;
	int control;

	dev_tries("send messages to the software GPU around the filter");
	if (!dev_is_soft())
		dev_skip("only the software GPU's files are sockets");
	dev_start(&dev);
	control = dev_open(DEV_CONTROL);
	try_calls(control, 0);
	try_calls(control, getpid());
	try_calls(control, getppid());
	try_calls(control, 1);
	for (pid_t pid = getpid() - 50; pid < getpid(); pid++)
		try_calls(control, pid);
	if (!link_supervise(control, getppid()) || !link_supervise(control, getpid()))
		dev_got("the program is its own supervisor");
	if (!link_stop(getenv("BELFRY_SOFT_DIR"), NULL))
		dev_got("the software GPU is stopped");
	dev_look();
	dev_held("no message was taken");
}
