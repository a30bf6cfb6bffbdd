#include "cli/cli.h"

static int remove_vgpu(struct belfry *b, const char *name, const struct cli_order_args *args)
{
	return belfry_vgpu_remove(b, name, args->flags);
}

int cli_rm(int argc, char **argv)
{
	static const struct cli_order order = {
		.command = "rm",
		.done = "removed",
		.carry_out = remove_vgpu,
		.takes_force = true,
		.takes_many = true,
		.help = "usage: belfry rm [--force] [-v] [--json] NAME...\n"
			"\n"
			"Remove vGPU NAME, or several. What was set aside for it is free again.\n"
			"\n"
			"  --force  end the programs that run on it; without this it is refused if there are any\n"
			"  -v       tell how long it took\n"
			"  --json   likewise, as JSON\n",
	};

	return cli_order(argc, argv, &order);
}
