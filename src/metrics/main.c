/* belfry-metrics: serves metrics to Prometheus. */
#include <errno.h>
#include <getopt.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "metrics/metrics.h"

static const char usage_text[] =
	"usage: belfry-metrics [--listen ADDRESS:PORT] [--public]\n"
	"\n"
	"Answers GET /metrics for Prometheus with what belfryd reports. Listens on 127.0.0.1:9835;\n"
	"on an address that others can reach only with --public. See belfry-metrics(1).\n";

enum { CONNECTIONS_MAX = 16, CONNECTION_TIMEOUT_S = 10 };

static int usage(const char *why)
{
	fprintf(stderr, "belfry-metrics: %s; belfry-metrics --help tells more\n", why);
	return 2;
}

/* Takes the text if the mode is MHD_RESPMEM_MUST_FREE. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, char *text,
			      enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, mode);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data, size_t *data_bytes,
			      void **state)
{
	static char not_found[] = "only /metrics is here\n", not_allowed[] = "only GET is understood\n";
	struct bf_error err = { 0 };
	char *text, why[sizeof(err.text) + 2];

	(void)context, (void)version, (void)data, (void)state;
	*data_bytes = 0;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, not_allowed, MHD_RESPMEM_PERSISTENT);
	if (strcmp(url, "/metrics"))
		return answer(connection, MHD_HTTP_NOT_FOUND, not_found, MHD_RESPMEM_PERSISTENT);
	text = metrics_gather(&err);
	if (text)
		return answer(connection, MHD_HTTP_OK, text, MHD_RESPMEM_MUST_FREE);
	bf_log(BF_LOG_WARN, "%s", err.text);
	snprintf(why, sizeof(why), "%s\n", err.text);
	return answer(connection, MHD_HTTP_SERVICE_UNAVAILABLE, why, MHD_RESPMEM_MUST_COPY);
}

/* Serve until a signal arrives. */
static int serve(const struct sockaddr_storage *address, const char *text)
{
	unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD |
			 (address->ss_family == AF_INET6 ? MHD_USE_IPv6 : 0);
	struct MHD_Daemon *daemon;
	sigset_t ending;
	int number;

	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGINT);
	sigprocmask(SIG_BLOCK, &ending, NULL); /* before other threads are created */
	signal(SIGPIPE, SIG_IGN);
	errno = 0;
	daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR, address,
				  MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
				  CONNECTION_TIMEOUT_S, MHD_OPTION_END);
	if (!daemon) {
		fprintf(stderr, "belfry-metrics: %s: cannot listen there: %s; use another --listen\n", text,
			errno ? strerror(errno) : "refused");
		return 1;
	}
	sigwait(&ending, &number);
	MHD_stop_daemon(daemon);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = { { "listen", required_argument, NULL, 'l' },
						      { "public", no_argument, NULL, 'p' },
						      { "help", no_argument, NULL, 'h' },
						      { "version", no_argument, NULL, 'V' },
						      { NULL, 0, NULL, 0 } };
	const char *listen_at = "127.0.0.1:9835";
	struct sockaddr_storage address;
	bool is_local, is_public = false;
	char bad[96];
	struct bf_error err = { 0 };

	opterr = 0;
	bf_log_setup("belfry-metrics", BF_LOG_WARN);
	for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;)
		switch (option) {
		case 'l':
			listen_at = optarg;
			break;
		case 'p':
			is_public = true;
			break;
		case 'h':
			fputs(usage_text, stdout);
			return 0;
		case 'V':
			puts("belfry-metrics " BELFRY_VERSION);
			return 0;
		default:
			return usage(bf_bad_option(argv, bad, sizeof(bad)));
		}
	if (optind != argc)
		return usage("it takes no arguments");
	if (metrics_address(listen_at, &address, &is_local, &err))
		return usage(err.text);
	if (!is_local && !is_public)
		return usage("others can reach that address; say --public if they may");
	return serve(&address, listen_at);
}
