#include <stdio.h>

#include "base/clock.h"
#include "cli/cli.h"

static const char help_text[] =
	"usage: belfry reload [--json]\n"
	"\n"
	"Have belfryd read its configuration again. What is wrong with it is told, and\n"
	"then nothing changes.\n"
	"\n"
	"  --json   print how long it took\n";

int cli_reload(int argc, char **argv)
{
	cleanup_belfry struct belfry *b = NULL;
	bool is_json = false;
	uint64_t start_ns = bf_now_ns();
	int rc = cli_parse_json(argc, argv, help_text, 0, &is_json);

	if (rc)
		return rc - 1;
	if (belfry_open(&b, NULL) || belfry_reload(b))
		return cli_fail_library(b);
	if (is_json)
		printf("{\"us\": %.1f}\n", (double)(bf_now_ns() - start_ns) / 1000);
	return CLI_OK;
}
