/* The log of a runtime. containerd and podman show the error that they find there, such as in the events of a pod. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/own.h"
#include "cli/oci.h"

/* The value of an option before the command: --log FILE or --log=FILE. NULL: it is not there. */
static const char *value_of(int command, char **argv, const char *name)
{
	size_t length = strlen(name);

	for (int i = 1; i < command; i++) {
		if (strncmp(argv[i], name, length) != 0)
			continue;
		if (argv[i][length] == '=')
			return argv[i] + length + 1;
		if (!argv[i][length] && i + 1 < command)
			return argv[i + 1];
	}
	return NULL;
}

static char *line_of(const char *text, bool is_json)
{
	struct json_object *line;
	char now[32];
	time_t seconds = time(NULL);
	struct tm tm;
	size_t bytes;

	if (!is_json)
		return strdup(text);
	strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
	line = json_object_new_object();
	json_add_text(line, "level", "error");
	json_add_text(line, "msg", text);
	json_add_text(line, "time", now);
	return json_text(line, &bytes);
}

void oci_log(int command, char **argv, const char *text)
{
	const char *file = value_of(command, argv, "--log"),
		   *format = value_of(command, argv, "--log-format");
	cleanup_close int fd = file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	cleanup_free char *line = fd < 0 ? NULL : line_of(text, format && !strcmp(format, "json"));

	if (line)
		dprintf(fd, "%s\n", line);
}
