#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *log_who = "belfry";
static enum bf_log_level log_max = BF_LOG_WARN;
static const char *const log_names[] = { "error", "warn", "info", "debug" };

void bf_log_setup(const char *who, enum bf_log_level max)
{
	log_who = who;
	log_max = max;
}

int bf_log_level_parse(const char *text)
{
	for (int i = 0; i <= BF_LOG_DEBUG; i++)
		if (!strcmp(text, log_names[i]))
			return i;
	return -1;
}

void bf_log(enum bf_log_level level, const char *fmt, ...)
{
	char line[1024];
	int saved = errno;
	va_list args;
	int used;

	if (level > log_max)
		return;
	used = level == BF_LOG_ERROR ? snprintf(line, sizeof(line), "%s: ", log_who)
				     : snprintf(line, sizeof(line), "%s: %s: ", log_who, log_names[level]);
	va_start(args, fmt);
	vsnprintf(line + used, sizeof(line) - (size_t)used - 1, fmt, args);
	va_end(args);
	strcat(line, "\n");
	if (write(STDERR_FILENO, line, strlen(line)) < 0) {
		/* stderr is closed or full, and there is no other place to report it. */
	}
	errno = saved;
}
