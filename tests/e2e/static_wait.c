/* static_wait FILE: a program for containers without a C library (test_podman.sh builds it with musl). It makes the kinds of
 * calls that a filter of Belfry examines, none of them for a GPU, and waits until FILE exists. Exits with the number of the
 * step that failed. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STEP_US = 10000 };

int main(int argc, char **argv)
{
	int zero = open("/dev/zero", O_RDWR), available = 0;
	int ends[2];
	char *at;

	if (argc != 2 || zero < 0)
		return 1;
	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
	if (at == MAP_FAILED || at[0])
		return 2;
	if (pipe(ends) || write(ends[1], "abc", 3) != 3 || ioctl(ends[0], FIONREAD, &available) ||
	    available != 3)
		return 3;
	if (open("/dev/nvidiactl", O_RDWR) >= 0)
		return 4;
	while (access(argv[1], F_OK))
		usleep(STEP_US);
	return 0;
}
