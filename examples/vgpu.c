/* Make a vGPU, give it more time, show what belfryd reports about it, and remove it.
 * cc vgpu.c $(pkg-config --cflags --libs belfry) -o vgpu && ./vgpu [SOCKET] */
#include <stdio.h>

#include <belfry/belfry.h>

static int use(struct belfry *b)
{
	const char *const options[] = { "mem", "64M", "time", "20:100", NULL };
	const char *const more[] = { "time", "40:100", NULL };
	char *json = NULL;
	int rc = belfry_vgpu_create(b, "example", options, NULL);

	if (rc)
		return rc;
	rc = belfry_vgpu_set(b, "example", more);
	if (!rc)
		rc = belfry_report(b, "example", &json);
	if (!rc)
		puts(json);
	belfry_free(json);
	return rc ? rc : belfry_vgpu_remove(b, "example", 0);
}

int main(int argc, char **argv)
{
	struct belfry *b;
	int rc = belfry_open(&b, argc > 1 ? argv[1] : NULL);

	if (!rc)
		rc = use(b);
	if (rc)
		fprintf(stderr, "vgpu: %s\n", belfry_error(b));
	belfry_close(b);
	return rc ? 1 : 0;
}
