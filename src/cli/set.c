#include "cli/cli.h"
#include "cli/report.h"

struct set {
	struct cli_options words;
	bool is_json;
};

#define SET_WORD(name, value, help) BF_OPTION(name, 0, value, help, cli_take_word, struct set, words)

static const struct bf_option options[] = {
	SET_WORD("mem", "SIZE", "memory limit, such as 8G, which is also reserved; at least what is in use"),
	SET_WORD("time", "REQ:LIMIT", "requested share and limit of the GPU's time, in percent"),
	SET_WORD("class", "CLASS", "latency or throughput"),
	SET_WORD("objective", "PN=TIME",
		 "latency objective, for class latency, such as p99=2ms; none removes it"),
	SET_WORD("domain", "NAME", "vGPUs of one domain hold the token together"),
	SET_WORD("sm", "REQ:LIMIT",
		 "requested and largest part of the SMs, in percent: the programs of the\n"
		 "domain run side by side; none removes it"),
	SET_WORD("timeslice", "TIME", "hardware timeslice, such as 200us"),
	SET_WORD("interleave", "LEVEL", "hardware interleave level: low, medium or high"),
	SET_WORD("public", "[=yes|no]", "whether other users may run programs on it"),
	BF_OPTION("json", 0, NULL, "print how long it took, as JSON", bf_take_flag, struct set, is_json),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "set",
	.about = "usage: belfry set NAME [OPTION...]\n"
		 "\n"
		 "Change vGPU NAME while programs run on it.\n",
	.options = options,
	.most = -1,
};

int cli_set(int argc, char **argv)
{
	struct set set = { .is_json = false };
	cleanup_belfry struct belfry *b = NULL;
	int status, first = cli_parse(&command, argc, argv, &set, &status);

	if (!first)
		return status;
	if (belfry_open(&b, NULL))
		return cli_fail_library(b);
	/* Invalid values are reported before a missing name. */
	if (set.words.count && belfry_vgpu_check(b, NULL, set.words.words, BELFRY_SET))
		return cli_usage("set", belfry_error(b));
	if (first + 1 != argc)
		return cli_usage("set", "give the name of one vGPU");
	if (!set.words.count)
		return cli_usage("set", "nothing to change was given");
	if (belfry_vgpu_set(b, argv[first], set.words.words))
		return cli_fail_library(b);
	cli_say_shared(belfry_shared_domain(b));
	if (set.is_json)
		report_print_took(argv[first], belfry_took_ns(b));
	return CLI_OK;
}
