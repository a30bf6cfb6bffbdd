/* belfry events: print events as they occur. */
#include <errno.h>
#include <getopt.h>
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
#include "base/units.h"
#include "cli/cli.h"
#include "cli/report.h"

static const char help_text[] =
	"usage: belfry events [--json] [--gpu GPU] [--vgpu NAME] [--since TIME]\n"
	"\n"
	"Show events as they happen, a line each, until interrupted: virtual GPUs that are made, changed and\n"
	"removed, runs, limits that programs meet, faults, policies, GPU servers, the configuration.\n"
	"\n"
	"  --gpu GPU      of this GPU only: a number, soft or soft:N\n"
	"  --vgpu NAME    of this virtual GPU only; it need not exist yet\n"
	"  --since TIME   first those of so long ago that belfryd remembers, such as 600s\n"
	"  --json         as JSON, an object a line\n";

struct events {
	bool is_json;
	struct protocol_request request;
};

static int take_gpu(const char *text, struct protocol_gpu *gpu, struct bf_error *err)
{
	struct cli_gpu which = { 0 };
	int rc = cli_gpu_parse(text, &which, err);

	if (!rc)
		*gpu = (struct protocol_gpu){ .kind = which.is_soft ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV,
					      .index = which.index };
	return rc;
}

/* Returns 0, or an exit status plus 1, so that --help can succeed. */
static int parse(int argc, char **argv, struct events *events)
{
	static const struct option long_options[] = {
		{ "json", no_argument, NULL, 'j' },	  { "gpu", required_argument, NULL, 'g' },
		{ "vgpu", required_argument, NULL, 'v' }, { "since", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },	  { NULL, 0, NULL, 0 }
	};
	struct protocol_request *request = &events->request;
	struct bf_error err = { 0 };
	int rc = 0;

	opterr = 0;
	for (int option; !rc && (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;)
		switch (option) {
		case 'j':
			events->is_json = true;
			break;
		case 'g':
			rc = take_gpu(optarg, &request->gpu, &err);
			break;
		case 'v':
			rc = spec_check_name(optarg, &err);
			snprintf(request->name, sizeof(request->name), "%s", optarg);
			break;
		case 's':
			rc = bf_parse_time(optarg, &request->for_us, &err);
			break;
		case 'h':
			fputs(help_text, stdout);
			return CLI_OK + 1;
		default:
			return cli_bad_option("events", argv) + 1;
		}
	if (rc)
		return cli_usage("events", err.text) + 1;
	return optind == argc ? 0 : cli_usage("events", "it takes no arguments") + 1;
}

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
	int rc = parse(argc, argv, &events);

	if (rc)
		return rc - 1;
	signal(SIGPIPE, SIG_IGN);
	rc = run(&events, &err);
	if (rc != -EPIPE || !ferror(stdout))
		return rc ? cli_fail(&err) : CLI_OK;
	__fpurge(stdout); /* the reader closed stdout: not an error */
	clearerr(stdout);
	return CLI_OK;
}
