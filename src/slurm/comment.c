#include "slurm/comment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "base/units.h"

enum { SIZE_ROOM = 32 };

static const char between[] = "; ";

/* Appends the parts of `old` that are not this node's. */
static void keep_others(char *to, const char *old, const char *mine)
{
	size_t length = strlen(mine);

	while (*old) {
		size_t part = strstr(old, between) ? (size_t)(strstr(old, between) - old) : strlen(old);

		if (part && strncmp(old, mine, length) != 0) {
			strncat(to, old, part);
			strcat(to, between);
		}
		old += part;
		if (*old)
			old += strlen(between);
	}
}

char *comment_merge(const char *old, const char *node, const struct comment_use *use)
{
	cleanup_free char *mine = NULL, *part = NULL;
	char size[SIZE_ROOM], *all;

	if (!old)
		old = "";
	if (asprintf(&mine, "belfry %s:", node) < 0 ||
	    asprintf(&part, "%s GPU %.3f s, memory at most %s", mine, (double)use->gpu_ns / 1e9,
		     bf_format_size(use->most_bytes, size, sizeof(size))) < 0)
		return NULL;
	all = calloc(1, strlen(old) + strlen(between) + strlen(part) + 1);
	if (!all)
		return NULL;
	keep_others(all, old, mine);
	strcat(all, part);
	return all;
}
