/* SPDX-License-Identifier: MIT */
/* a_program_computes: context, module, launch, right result. `--times N` does it again and again. */
#include <stdio.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

int main(int argc, char **argv)
{
	uint64_t times = option_number(argc, argv, "times", 1);

	cu_open();
	for (uint64_t i = 0; i < times; i++)
		if (saxpy_check(1 << 20))
			return 1;
	printf("ok\n");
	return 0;
}
