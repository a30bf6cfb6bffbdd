#include "cli/cli.h"

static int stop_vgpu(struct belfry *b, const char *name, const struct cli_order_args *args)
{
	(void)args;
	return belfry_vgpu_stop(b, name);
}

int cli_stop(int argc, char **argv)
{
	static const struct cli_order order = {
		.command = {
			.name = "stop",
			.about = "usage: belfry stop [-v] [--json] NAME\n"
				 "\n"
				 "Stop the work of vGPU NAME on the GPU, also in the middle of a kernel. Nothing is lost:\n"
				 "belfry resume NAME continues it.\n",
			.options = cli_order_options,
			.least = 1,
			.most = 1,
			.wrong_count = "give the name of one vGPU",
		},
		.done = "stopped",
		.carry_out = stop_vgpu,
	};

	return cli_order(argc, argv, &order);
}

static int resume_vgpu(struct belfry *b, const char *name, const struct cli_order_args *args)
{
	(void)args;
	return belfry_vgpu_resume(b, name);
}

int cli_resume(int argc, char **argv)
{
	static const struct cli_order order = {
		.command = {
			.name = "resume",
			.about = "usage: belfry resume [-v] [--json] NAME\n"
				 "\n"
				 "Resume the work of vGPU NAME after belfry stop. A hold stays: belfry open ends both.\n",
			.options = cli_order_options,
			.least = 1,
			.most = 1,
			.wrong_count = "give the name of one vGPU",
		},
		.done = "resumed",
		.carry_out = resume_vgpu,
	};

	return cli_order(argc, argv, &order);
}
