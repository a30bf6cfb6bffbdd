#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "cli/cli.h"
#include "cli/report.h"

struct trace {
	const char *path;
	struct cli_gpu which;
};

static const struct bf_option options[] = {
	BF_OPTION("output", 'o', "FILE", "output file; - is standard output (default: belfry-trace.json)",
		  cli_take_file, struct trace, path),
	BF_OPTION("gpu", 0, "GPU", "the GPU: a number, soft or soft:N (default: the only one)", cli_take_gpu,
		  struct trace, which),
	BF_OPTION("soft", 0, "CONFIG", "the software GPU, by name=NAME", cli_take_soft, struct trace, which),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "trace",
	.about = "usage: belfry trace [-o FILE] [--gpu GPU]\n"
		 "\n"
		 "Write the last seconds of a GPU, which vGPU had it and which waited, to a file that\n"
		 "ui.perfetto.dev and chrome://tracing open.\n",
	.options = options,
};

static int write_all(int fd, const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t done = write(fd, text, bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		text += done;
		bytes -= (size_t)done;
	}
	return 0;
}

/* Write a temporary file, and rename it once it is complete. */
static int write_whole(const char *path, const char *body)
{
	mode_t mask = umask(0);
	cleanup_free char *other = NULL;
	cleanup_close int fd = -1;
	int rc;

	umask(mask);
	if (asprintf(&other, "%s.XXXXXX", path) < 0) {
		other = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(other, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = write_all(fd, body, strlen(body));
	if (!rc && (fchmod(fd, 0666 & ~mask) || close(bf_take_fd(&fd)) || rename(other, path)))
		rc = -errno;
	if (rc)
		unlink(other);
	return rc;
}

/* Write directly to a pipe or a device, which cannot be renamed. */
static int write_body(const char *path, const char *body)
{
	struct stat st;

	if (!strcmp(path, "-"))
		return write_all(STDOUT_FILENO, body, strlen(body));
	if (stat(path, &st) || S_ISREG(st.st_mode))
		return write_whole(path, body);
	cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : write_all(fd, body, strlen(body));
}

/* Count the events by their phase, without the name events, whose phase is M. */
static size_t count_events(const char *body)
{
	static const char mark[] = "\"ph\":";
	size_t count = 0;

	while ((body = strstr(body, mark))) {
		body += sizeof(mark) - 1;
		body += strspn(body, " \"");
		count += *body != 'M';
	}
	return count;
}

int cli_trace(int argc, char **argv)
{
	struct trace trace = { .path = "belfry-trace.json" };
	struct protocol_request request = talk_request(PROTOCOL_TRACE, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	cleanup_free char *body = NULL;
	int status, rc;

	if (cli_gpu_default(&trace.which, &err))
		return cli_usage("trace", err.text);
	if (!cli_parse(&command, argc, argv, &trace, &status))
		return status;
	if (report_choose(&trace.which, &request.gpu, &err) || talk_once(&request, &reply, &body, &err))
		return cli_fail(&err);
	rc = write_body(trace.path, body ? body : "{\"traceEvents\":[]}");
	if (rc) {
		bf_fail(&err, -rc, "%s: cannot be written: %s", trace.path, strerror(-rc));
		return cli_fail(&err);
	}
	if (strcmp(trace.path, "-"))
		printf("%s: %zu events; open it at ui.perfetto.dev\n", trace.path,
		       body ? count_events(body) : 0);
	return CLI_OK;
}
