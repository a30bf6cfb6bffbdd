/* SPDX-License-Identifier: MIT */
/* The driver's own checkpoint of another process (cuCheckpointProcess*): a child holds --mib of device memory with known
 * contents; the parent locks, checkpoints, restores and unlocks it, and asks belfry what the vGPU uses in between. The
 * memory must be gone while the child is checkpointed, and be as it was afterwards. A call that is refused at once is
 * reported, and is no failure; one that does not return within --secs is. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cu.h"
#include "json.h"
#include "util.h"

enum { PATTERN = 0xa5, ARGS_WORDS = 16 };

static const char *step = "start";

static void give_up(int signal_number)
{
	static const char words[] = " did not return\n";

	(void)signal_number;
	if (write(STDOUT_FILENO, step, strlen(step)) < 0 ||
	    write(STDOUT_FILENO, words, sizeof(words) - 1) < 0)
		_exit(2);
	_exit(1);
}

static void child(int say, int hear, size_t bytes)
{
	uint8_t *back = malloc(bytes);
	uint64_t at;
	char byte = 'r';
	bool is_whole = true;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	cu_open();
	CU_MUST(cu.MemAlloc(&at, bytes));
	memset(back, PATTERN, bytes);
	CU_MUST(cu.MemcpyHtoD(at, back, bytes));
	memset(back, 0, bytes);
	if (write(say, &byte, 1) != 1 || read(hear, &byte, 1) != 1)
		_exit(2);
	CU_MUST(cu.MemcpyDtoH(back, at, bytes));
	for (size_t i = 0; i < bytes; i++)
		is_whole &= back[i] == PATTERN;
	_exit(is_whole ? 0 : 3);
}

static uint64_t used_mib(void)
{
	static char text[1 << 20];
	const char *const args[] = { "ls", "--json", NULL };
	const char *name = getenv("BELFRY_VGPU");

	if (!name || belfry(text, sizeof(text), args))
		return 0;
	for (const char *v = json_first(json_member(text, "vgpus")); v; v = json_next(v))
		if (json_is_text(json_member(v, "name"), name))
			return json_u64(json_member(json_member(v, "mem"), "used"), 0) >> 20;
	return 0;
}

/* True: done. */
static bool make(void *library, const char *name, pid_t pid)
{
	uint64_t args[ARGS_WORDS] = { 0 };
	int (*function)(int, void *);
	uint64_t start = now_ns();
	int result;

	*(void **)&function = dlsym(library, name);
	if (!function) {
		printf("skipped: libcuda has no %s\n", name);
		exit(77);
	}
	step = name;
	result = function(pid, args);
	printf("%-34s %-28s %8.1f ms   %6llu MiB in use\n", name, cu_error(result),
	       (double)(now_ns() - start) / 1e6, (unsigned long long)used_mib());
	fflush(stdout);
	return !result;
}

int main(int argc, char **argv)
{
	size_t bytes = option_number(argc, argv, "mib", 256) << 20;
	unsigned secs = (unsigned)option_number(argc, argv, "secs", 30);
	int to[2], from[2], status = 0;
	uint64_t before, during;
	void *library;
	pid_t pid;
	char byte;
	bool is_done;

	if (pipe(to) || pipe(from))
		fail("no pipes");
	pid = fork();
	if (!pid)
		child(from[1], to[0], bytes);
	signal(SIGALRM, give_up);
	alarm(secs);
	if (read(from[0], &byte, 1) != 1)
		fail("the child did not start");
	cu_open();
	library = dlopen("libcuda.so.1", RTLD_NOW);
	before = used_mib();
	if (!make(library, "cuCheckpointProcessLock", pid)) {
		printf("refused\n");
		return 0;
	}
	is_done = make(library, "cuCheckpointProcessCheckpoint", pid);
	during = used_mib();
	is_done = is_done && make(library, "cuCheckpointProcessRestore", pid);
	is_done = make(library, "cuCheckpointProcessUnlock", pid) && is_done;
	step = "the child";
	if (write(to[1], "g", 1) != 1 || waitpid(pid, &status, 0) != pid)
		fail("the child is gone");
	printf("contents %s\n", status ? "WRONG" : "as they were");
	if (is_done && before && during + (bytes >> 20) > before)
		fail("the memory was still charged while it was checkpointed");
	return status ? 1 : 0;
}
