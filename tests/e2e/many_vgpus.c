/* many_vgpus create PREFIX COUNT [KEY VALUE]...   create PREFIX1, PREFIX2...: options as in belfry_vgpu_create()
 * many_vgpus remove PREFIX COUNT                  remove them
 * many_vgpus again NAME COUNT [KEY VALUE]...      create and remove NAME, COUNT times
 * One process is much faster than one `belfry create` for each vGPU. Prints the first error and exits with 1. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "belfry/belfry.h"

static int change(struct belfry *b, const char *what, const char *name, const char *const *options)
{
	bool is_again = !strcmp(what, "again");
	int rc = 0;

	if (is_again || !strcmp(what, "create"))
		rc = belfry_vgpu_create(b, name, options, NULL);
	if (!rc && (is_again || !strcmp(what, "remove")))
		rc = belfry_vgpu_remove(b, name, 0);
	if (rc)
		fprintf(stderr, "many_vgpus: %s %s: %s\n", what, name, belfry_error(b));
	return rc;
}

int main(int argc, char **argv)
{
	struct belfry *b = NULL;
	int rc;

	if (argc < 4)
		return 2;
	rc = belfry_open(&b, NULL);
	for (int i = 1, count = atoi(argv[3]); !rc && i <= count; i++) {
		char name[64];

		if (strcmp(argv[1], "again") != 0)
			snprintf(name, sizeof(name), "%s%d", argv[2], i);
		else
			snprintf(name, sizeof(name), "%s", argv[2]);
		rc = change(b, argv[1], name, (const char *const *)argv + 4);
	}
	belfry_close(b);
	return rc != 0;
}
