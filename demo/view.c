/* belfry-demo-view FOLDER SECONDS NAME=PID...: which vGPU has the software GPU, sampled every millisecond. PID is the process
 * under which the driver counts the vGPU. One line for every 60 samples: a letter each (the first of the name, a dot when
 * no vGPU has the GPU), then the share of each vGPU. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "soft/link/link.h"

enum { LOOKS_A_LINE = 60, USERS = 8 };

struct seen {
	int pid;
	const char *name;
	uint64_t held_ns;
};

static struct seen *seen_of(struct seen *seen, int pid)
{
	for (int i = 0; i < USERS && seen[i].pid; i++)
		if (seen[i].pid == pid)
			return &seen[i];
	return NULL;
}

/* "latency=1234" */
static bool parse(char *text, struct seen *seen)
{
	char *number = strchr(text, '=');

	if (!number)
		return false;
	*number++ = 0;
	*seen = (struct seen){ .name = text, .pid = atoi(number) };
	return seen->pid > 0;
}

static char look(const struct soft_status *status, struct seen *seen)
{
	char letter = '.';

	for (uint32_t i = 0; i < status->user_count && i < SOFT_USERS_MAX; i++) {
		struct seen *who = seen_of(seen, status->users[i].pid);

		if (who && status->users[i].has_turn)
			letter = who->name[0];
	}
	return letter;
}

/* Each one's part of the GPU's time since the last line. */
static void parts(const struct soft_status *status, struct seen *seen, uint64_t span_ns)
{
	for (uint32_t i = 0; i < status->user_count && i < SOFT_USERS_MAX; i++) {
		struct seen *who = seen_of(seen, status->users[i].pid);

		if (!who)
			continue;
		if (who->held_ns && span_ns)
			printf("  %s %2.0f %%", who->name,
			       100.0 * (double)(status->users[i].held_ns - who->held_ns) / (double)span_ns);
		who->held_ns = status->users[i].held_ns;
	}
	putchar('\n');
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct seen seen[USERS] = { { 0 } };
	struct soft_status status;
	uint64_t end_ns, line_ns = 0;

	for (int i = 3; i < argc && i - 3 < USERS; i++)
		if (!parse(argv[i], &seen[i - 3]))
			argc = 0;
	if (argc < 4) {
		fprintf(stderr, "usage: belfry-demo-view FOLDER SECONDS NAME=PID...\n");
		return 2;
	}
	end_ns = bf_now_ns() + (uint64_t)(strtod(argv[2], NULL) * 1e9);
	while (bf_now_ns() < end_ns) {
		for (int i = 0; i < LOOKS_A_LINE; i++) {
			if (link_status(argv[1], &status, NULL))
				return 1;
			putchar(look(&status, seen));
			usleep(1000);
		}
		parts(&status, seen, line_ns ? status.gpu_ns[0] - line_ns : 0);
		line_ns = status.gpu_ns[0];
	}
	return 0;
}
