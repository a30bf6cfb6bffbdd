#include "base/clock.h"
#include "cli/cli.h"
#include "cli/report.h"

static const struct bf_option options[] = {
	{ "json", 0, NULL, "print how long it took", bf_take_flag, 0, NULL },
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "reload",
	.about = "usage: belfry reload [--json]\n"
		 "\n"
		 "Have belfryd read its configuration again. What is wrong with it is told, and\n"
		 "then nothing changes.\n",
	.options = options,
};

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
	if (is_json)
		report_print_took(NULL, bf_now_ns() - start_ns);
	return CLI_OK;
}
