/* belfry-metrics: serves metrics to Prometheus. */
#include <stdio.h>

#include "base/log.h"
#include "base/options.h"
#include "metrics/http.h"
#include "metrics/metrics.h"

struct options {
	const char *listen_at;
	bool is_public, wants_version;
};

static const struct bf_option options[] = {
	BF_OPTION("listen", 0, "ADDRESS:PORT", "the address to listen on (default: 127.0.0.1:9835)",
		  bf_take_text, struct options, listen_at),
	BF_OPTION("public", 0, NULL, "allow an address that other machines can reach", bf_take_flag,
		  struct options, is_public),
	BF_OPTION("version", 0, NULL, "print the version", bf_take_flag, struct options, wants_version),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "belfry-metrics",
	.about = "usage: belfry-metrics [--listen ADDRESS:PORT] [--public]\n"
		 "\n"
		 "Answer GET /metrics for Prometheus with the report of belfryd. See belfry-metrics(1).\n",
	.options = options,
};

static int usage(const char *why)
{
	fprintf(stderr, "belfry-metrics: %s; belfry-metrics --help tells more\n", why);
	return 2;
}

int main(int argc, char **argv)
{
	struct options said = { .listen_at = "127.0.0.1:9835" };
	struct sockaddr_storage address;
	struct bf_error err = { 0 };
	bool is_local;
	int rc;

	bf_log_setup("belfry-metrics", BF_LOG_WARN);
	rc = bf_command_parse(&command, argc, argv, &said, &err);
	if (rc == BF_COMMAND_HELP) {
		bf_command_help(&command, stdout);
		return 0;
	}
	if (rc < 0)
		return usage(err.text);
	if (said.wants_version) {
		puts("belfry-metrics " BELFRY_VERSION);
		return 0;
	}
	if (metrics_address(said.listen_at, &address, &is_local, &err))
		return usage(err.text);
	if (!is_local && !said.is_public)
		return usage("others can reach that address; say --public if they may");
	return http_serve(&address, said.listen_at);
}
