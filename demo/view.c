/* belfry-demo-view FOLDER SECONDS: who has the software GPU, looked at every millisecond. One line for every tenth of a
 * second: a letter for each look (the first of the program's mode, a dot when nobody has it), then each one's part. */
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
	char name[24];
	uint64_t held_ns;
};

/* What the program was started as: "belfry-demo latency" is latency. */
static void name_of(int pid, char *name, size_t room)
{
	char path[32], words[256] = "";
	FILE *file;
	size_t length;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	file = fopen(path, "r");
	length = file ? fread(words, 1, sizeof(words) - 1, file) : 0;
	if (file)
		fclose(file);
	words[length] = 0;
	snprintf(name, room, "%s", strlen(words) < length ? words + strlen(words) + 1 : "?");
}

static struct seen *seen_of(struct seen *seen, int pid)
{
	for (int i = 0; i < USERS; i++) {
		if (seen[i].pid == pid)
			return &seen[i];
		if (!seen[i].pid) {
			seen[i].pid = pid;
			name_of(pid, seen[i].name, sizeof(seen[i].name));
			return &seen[i];
		}
	}
	return NULL;
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

	if (argc != 3) {
		fprintf(stderr, "usage: belfry-demo-view FOLDER SECONDS\n");
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
