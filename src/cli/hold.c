#include "cli/cli.h"

static int hold_vgpu(struct belfry *b, const char *name, const struct cli_order_args *args)
{
	return belfry_vgpu_hold(b, name, args->for_us);
}

int cli_hold(int argc, char **argv)
{
	static const struct cli_order order = {
		.command = "hold",
		.done = "held",
		.carry_out = hold_vgpu,
		.takes_time = true,
		.help = "usage: belfry hold [--for TIME] [-v] [--json] NAME\n"
			"\n"
			"Close the gate of vGPU NAME. When this returns, nothing the vGPU's programs submit reaches the\n"
			"GPU until belfry open NAME; what they submitted before runs on.\n"
			"\n"
			"  --for TIME  open again after TIME, such as 300ms\n"
			"  -v          tell how long it took\n"
			"  --json      likewise, as JSON\n",
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
		.command = "open",
		.done = "open",
		.carry_out = open_vgpu,
		.help = "usage: belfry open [-v] [--json] NAME\n"
			"\n"
			"Open the gate of vGPU NAME: what was held goes to the GPU at once.\n",
	};

	return cli_order(argc, argv, &order);
}
