#include "cli/cli.h"

static int hold_vgpu(struct belfry *b, const char *name, const struct cli_order_args *args)
{
	return belfry_vgpu_hold(b, name, args->for_us);
}

static const struct bf_option hold_options[] = {
	BF_OPTION("for", 0, "TIME", "open the gate again after TIME, such as 300ms", bf_take_time,
		  struct cli_order_args, for_us),
	{ .also = cli_order_options },
	BF_OPTIONS_END,
};

int cli_hold(int argc, char **argv)
{
	static const struct cli_order order = {
		.command = {
			.name = "hold",
			.about = "usage: belfry hold [--for TIME] [-v] [--json] NAME\n"
				 "\n"
				 "Close the gate of vGPU NAME: work that its programs submit from now on does not reach the GPU\n"
				 "until belfry open NAME. Work that they submitted before continues.\n",
			.options = hold_options,
			.least = 1,
			.most = 1,
			.wrong_count = "give the name of one vGPU",
		},
		.done = "held",
		.carry_out = hold_vgpu,
	};

	return cli_order(argc, argv, &order);
}

static int open_vgpu(struct belfry *b, const char *name, const struct cli_order_args *args)
{
	(void)args;
	return belfry_vgpu_open(b, name);
}

int cli_open(int argc, char **argv)
{
	static const struct cli_order order = {
		.command = {
			.name = "open",
			.about = "usage: belfry open [-v] [--json] NAME\n"
				 "\n"
				 "Open the gate of vGPU NAME: work that was held goes to the GPU at once. A stopped vGPU is\n"
				 "resumed.\n",
			.options = cli_order_options,
			.least = 1,
			.most = 1,
			.wrong_count = "give the name of one vGPU",
		},
		.done = "open",
		.carry_out = open_vgpu,
	};

	return cli_order(argc, argv, &order);
}
