#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/own.h"
#include "cli/cli.h"
#include "cli/report.h"

/* A vGPU of the configuration is created again: print where it is configured. */
static void warn_of_section(const char *name)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, name);
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	struct json_object *hello;

	if (talk_once(&request, &reply, &body, NULL) || !body)
		return; /* a private belfryd may have exited */
	hello = json_tokener_parse(body);
	if (report_at(hello, "section.file"))
		fprintf(stderr,
			"belfry: %s: removed, but section [vgpu %s] at %s:%" PRId64
			" creates it again at the next reload; remove the section, too\n",
			name, name, report_text(hello, "section.file", "?"),
			report_number(hello, "section.line"));
	json_object_put(hello);
}

static int remove_vgpu(struct belfry *b, const char *name, const struct cli_order_args *args)
{
	int rc = belfry_vgpu_remove(b, name, args->is_forced ? BELFRY_FORCE : 0);

	if (!rc)
		warn_of_section(name);
	return rc;
}

static const struct bf_option rm_options[] = {
	BF_OPTION("force", 0, NULL, "end the programs that run on it (default: refuse if there are any)",
		  bf_take_flag, struct cli_order_args, is_forced),
	{ .also = cli_order_options },
	BF_OPTIONS_END,
};

int cli_rm(int argc, char **argv)
{
	static const struct cli_order order = {
		.command = {
			.name = "rm",
			.about = "usage: belfry rm [--force] [-v] [--json] NAME...\n"
				 "\n"
				 "Remove vGPU NAME, or several. Reserved memory and requested shares become free. A vGPU of\n"
				 "belfryd.conf(5) is created again by the next belfry reload.\n",
			.options = rm_options,
			.least = 1,
			.most = -1,
			.wrong_count = "give the name of a vGPU, or of several",
		},
		.done = "removed",
		.carry_out = remove_vgpu,
	};

	return cli_order(argc, argv, &order);
}
