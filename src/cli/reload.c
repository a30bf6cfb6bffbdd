#include <stdio.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/report.h"
#include "client/gather.h"

static const struct bf_option options[] = {
	{ "json", 0, NULL, "print how long it took, as JSON", bf_take_flag, 0, NULL },
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "reload",
	.about =
		"usage: belfry reload [--json]\n"
		"\n"
		"Make belfryd read its configuration again. If the configuration has an error, the error is\n"
		"printed and nothing changes. Without a configuration file, belfryd takes the defaults.\n",
	.options = options,
};

/* A file that is missing is no error, but may be a mistake. */
static void say_if_no_file(void)
{
	struct talk_way usual = { .socket = NULL };
	struct json_object *hello = NULL;

	if (!gather_hello(&usual, &hello, NULL) && !report_text(hello, "daemon.config", NULL))
		fputs("belfry: there is no configuration file /etc/belfry/belfryd.conf: belfryd has taken the "
		      "defaults\n",
		      stderr);
	json_object_put(hello);
}

int cli_reload(int argc, char **argv)
{
	cleanup_belfry struct belfry *b = NULL;
	bool is_json = false;
	uint64_t start_ns = bf_now_ns();
	int status, first = cli_parse(&command, argc, argv, &is_json, &status);

	if (!first)
		return status;
	if (belfry_open(&b, NULL) || belfry_reload(b))
		return cli_fail_library(b);
	say_if_no_file();
	if (is_json)
		report_print_took(NULL, bf_now_ns() - start_ns);
	return CLI_OK;
}
