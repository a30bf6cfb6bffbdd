/* inherit FOLDER COMMAND [ARG...]: become COMMAND with files open: 40, 41 and 200 are device files of the software GPU in
 * FOLDER; 42 is a connection that is none of its files; 43 is /dev/null. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/link/link.h"

enum { CONTROL = 40, GPU = 41, OTHER = 42, PLAIN = 43, HIGH = 200 };

int main(int argc, char **argv)
{
	int pair[2];

	if (argc < 3 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		return 2;
	/* dup2 makes copies that are not closed by exec. */
	if (dup2(link_open(argv[1], SOFT_FILE_CONTROL), CONTROL) < 0 ||
	    dup2(link_open(argv[1], SOFT_FILE_GPU_0), GPU) < 0 || dup2(CONTROL, HIGH) < 0 ||
	    dup2(pair[0], OTHER) < 0 || dup2(open("/dev/null", O_RDWR), PLAIN) < 0) {
		perror("inherit");
		return 2;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 2;
}
