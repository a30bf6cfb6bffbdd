#include <stdio.h>

#include "cli/cli.h"

static const char help_text[] =
	"usage: belfry reload\n"
	"\n"
	"Have belfryd read its configuration again. What is wrong with it is told, and\n"
	"then nothing changes.\n";

int cli_reload(int argc, char **argv)
{
	struct protocol_request request = talk_request(PROTOCOL_RELOAD, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	bool is_json = false;
	int rc = cli_parse_json(argc, argv, help_text, 0, &is_json);

	if (rc)
		return rc - 1;
	if (talk_once(&request, &reply, NULL, &err))
		return cli_fail(&err);
	if (is_json)
		printf("{\"us\": %.1f}\n", (double)reply.took_ns / 1000);
	return CLI_OK;
}
