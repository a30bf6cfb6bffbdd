#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/own.h"
#include "base/units.h"
#include "cli/cli.h"

struct create {
	struct cli_vgpu vgpu;
	const char *name;
	struct protocol_gpu gpu;
	char gpu_name[16], owner[16];
	bool is_json;
};

/* Writes the number of the user: the client library takes no names. */
static int take_owner(void *member, const struct bf_option *option, const char *text, struct bf_error *err)
{
	const struct passwd *user = getpwnam(text);
	struct create *create = member;
	long number = 0;

	if (!user && bf_parse_number("--owner", text, 0, (long)UINT32_MAX - 1, &number, NULL))
		return bf_fail(err, ENOENT,
			       "--owner '%.40s': there is no such user; write a name or a number", text);
	snprintf(create->owner, sizeof(create->owner), "%ld", user ? (long)user->pw_uid : number);
	cli_options_add(&create->vgpu.words, option->name, create->owner);
	return 0;
}

static const struct bf_option options[] = {
	BF_OPTIONS_OF(cli_vgpu_options, struct create, vgpu),
	{ "owner", 0, "USER", "its owner, by name or number; for root only (default: this user)", take_owner,
	  0, NULL },
	BF_OPTION("json", 0, NULL, "print its name and its GPU as JSON", bf_take_flag, struct create,
		  is_json),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "create",
	.about =
		"usage: belfry create NAME [OPTION...]\n"
		"\n"
		"Create vGPU NAME. belfry run NAME -- PROGRAM runs programs on it, and belfry rm NAME removes it.\n",
	.options = options,
	.most = -1,
};

/* The client library reports invalid values before a missing name. Returns 0, or an exit status. */
static int check(const struct create *create)
{
	cleanup_belfry struct belfry *b = NULL;

	if (belfry_open(&b, NULL))
		return cli_fail_library(b);
	if (belfry_vgpu_check(b, create->name, create->vgpu.words.words, 0))
		return cli_usage("create", belfry_error(b));
	return create->name ? 0 : cli_usage("create", "give the name of one vGPU");
}

/* Pass the selected GPU to the client library. */
static int add_gpu(struct create *create, const struct talk_place *place, struct bf_error *err)
{
	int rc = cli_gpu_request(&create->vgpu.which, place, &create->gpu, err);

	if (rc || create->gpu.kind == PROTOCOL_GPU_ANY)
		return rc;
	cli_options_add(&create->vgpu.words, "gpu",
			protocol_gpu_name(&create->gpu, create->gpu_name, sizeof(create->gpu_name)));
	if (create->gpu.folder[0])
		cli_options_add(&create->vgpu.words, "folder", create->gpu.folder);
	return 0;
}

/* A private belfryd may exit between its start and the request. The caller then starts another one. */
static bool has_exited(const struct talk_place *place, int rc)
{
	return place->is_private && (rc == -EAGAIN || rc == -ECONNREFUSED);
}

static int make(struct create *create)
{
	enum { TIMES = 5 };

	for (int i = 1;; i++) {
		cleanup_belfry struct belfry *b = NULL;
		struct bf_error err = { 0 };
		struct talk_place place;
		cleanup_close int sock = cli_reach(&place, &err);
		char *json = NULL;
		int rc;

		if (sock < 0 || (i == 1 && add_gpu(create, &place, &err)))
			return cli_fail(&err);
		rc = belfry_open(&b, place.path);
		if (!rc)
			rc = belfry_vgpu_create(b, create->name, create->vgpu.words.words, &json);
		if (!rc && create->is_json)
			puts(json);
		cli_say_shared(belfry_shared_domain(b));
		belfry_free(json);
		if (!rc || !has_exited(&place, rc) || i == TIMES)
			return rc ? cli_fail_library(b) : CLI_OK;
	}
}

int cli_create(int argc, char **argv)
{
	struct create create = { .name = NULL };
	struct bf_error err = { 0 };
	int status, first;

	if (cli_gpu_default(&create.vgpu.which, &err))
		return cli_usage("create", err.text);
	first = cli_parse(&command, argc, argv, &create, &status);
	if (!first)
		return status;
	create.name = first + 1 == argc ? argv[first] : NULL;
	if (create.vgpu.any_driver)
		cli_options_add(&create.vgpu.words, "any-driver", "yes");
	status = check(&create);
	return status ? status : make(&create);
}
