/* belfry events: print events as they occur. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/own.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/report.h"

struct events {
	bool is_json;
	const char *vgpu;
	struct protocol_request request;
};

static int take_gpu(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	struct protocol_gpu *gpu = member;
	struct cli_gpu which = { 0 };
	int rc = cli_gpu_parse(value, &which, err);

	(void)option;
	if (!rc)
		*gpu = (struct protocol_gpu){ .kind = which.is_soft ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV,
					      .index = which.index };
	return rc;
}

static const struct bf_option options[] = {
	BF_OPTION("gpu", 0, "GPU", "events of this GPU only: a number, soft or soft:N", take_gpu,
		  struct events, request.gpu),
	BF_OPTION("vgpu", 0, "NAME", "events of this vGPU only; it need not exist yet", cli_take_name,
		  struct events, vgpu),
	BF_OPTION("since", 0, "TIME", "first print the recorded events of this time, such as 600s",
		  bf_take_time, struct events, request.for_us),
	BF_OPTION("json", 0, NULL, "print JSON, one object a line", bf_take_flag, struct events, is_json),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "events",
	.about =
		"usage: belfry events [--json] [--gpu GPU] [--vgpu NAME] [--since TIME]\n"
		"\n"
		"Print events as they happen, one a line, until interrupted: vGPUs that are created, changed and\n"
		"removed, runs, limits that programs reach, faults, policies, GPU servers, the configuration.\n",
	.options = options,
};

/* Converts "2026-11-16T15:03:12.123456Z" to local time. */
static const char *local_time(const char *time, char *to, size_t room)
{
	struct tm parts = { 0 };
	const char *rest = strptime(time, "%Y-%m-%dT%H:%M:%S", &parts);
	time_t seconds = timegm(&parts);

	if (!rest || !localtime_r(&seconds, &parts) || !strftime(to, room, "%Y-%m-%d %H:%M:%S", &parts))
		snprintf(to, room, "%s", time);
	else
		snprintf(to + strlen(to), room - strlen(to), "%.4s", rest);
	return to;
}

static void print_event(struct json_object *event)
{
	char time[40], user[40] = "-";
	char *text = strdup(report_text(event, "text", ""));

	if (report_at(event, "owner"))
		report_user(event, user, sizeof(user));
	printf("%s %-7s %-16s %-10s %-15s %s\n",
	       local_time(report_text(event, "time", "-"), time, sizeof(time)),
	       report_text(event, "gpu", "-"), report_text(event, "vgpu", "-"), user,
	       report_text(event, "event", "?"), text ? bf_plain(text) : "");
	free(text);
}

static int print_line(const struct events *events, const char *line, struct bf_error *err)
{
	struct json_object *event = json_tokener_parse(line);

	if (!json_object_is_type(event, json_type_object)) {
		json_object_put(event);
		return bf_fail(err, EPROTO, "what belfryd tells makes no sense; restart it");
	}
	if (events->is_json)
		puts(line);
	else if (!strcmp(report_text(event, "event", ""), "dropped"))
		printf("(%lld not shown: too many at once)\n", (long long)report_number(event, "count"));
	else
		print_event(event);
	json_object_put(event);
	return fflush(stdout) ? bf_fail(err, errno, "cannot write: %s", strerror(errno)) : 0;
}

static int print_past(const struct events *events, char *body, struct bf_error *err)
{
	int rc = 0;

	for (char *line; !rc && (line = strsep(&body, "\n"));)
		if (*line)
			rc = print_line(events, line, err);
	return rc;
}

/* Print events until stdout is closed by its reader. poll() reports that without another event. */
static int follow(const struct events *events, int sock, struct bf_error *err)
{
	struct pollfd fds[] = { { sock, POLLIN, 0 }, { STDOUT_FILENO, 0, 0 } };
	char line[PROTOCOL_EVENT_BYTES + 1];
	int rc = 0;

	while (!rc) {
		ssize_t got;

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return bf_fail(err, errno, "cannot wait for events: %s", strerror(errno));
		if (fds[1].revents)
			return 0;
		got = recv(sock, line, sizeof(line) - 1, MSG_DONTWAIT);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0)
			return bf_fail(err, ECONNRESET, "belfryd has ended");
		line[got] = 0;
		rc = print_line(events, line, err);
	}
	return rc;
}

static int run(const struct events *events, struct bf_error *err)
{
	cleanup_close int sock = -1;
	cleanup_free char *body = NULL;
	struct protocol_reply reply;
	struct talk_place place;
	int rc = talk_find(&place, err);

	if (rc)
		return rc;
	sock = talk_connect(&place, err);
	if (sock < 0)
		return sock;
	rc = talk_ask(sock, &events->request, &reply, &body, err);
	if (!rc && body)
		rc = print_past(events, body, err);
	return rc ? rc : follow(events, sock, err);
}

int cli_events(int argc, char **argv)
{
	struct events events = { .request = talk_request(PROTOCOL_EVENTS, NULL) };
	struct bf_error err = { 0 };
	int status, first = cli_parse(&command, argc, argv, &events, &status), rc;

	if (!first)
		return status;
	if (events.vgpu)
		snprintf(events.request.name, sizeof(events.request.name), "%s", events.vgpu);
	signal(SIGPIPE, SIG_IGN);
	rc = run(&events, &err);
	if (rc != -EPIPE || !ferror(stdout))
		return rc ? cli_fail(&err) : CLI_OK;
	__fpurge(stdout); /* the reader closed stdout: not an error */
	clearerr(stdout);
	return CLI_OK;
}
