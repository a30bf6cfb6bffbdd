/* belfry oci edit: the configuration of a container comes in, and goes out edited for its vGPU. A hook of podman (stage
 * precreate). oci_runtime.c does the same for runtimes. */
#include "cli/oci.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/json.h"
#include "base/own.h"
#include "base/process.h"
#include "cli/cli.h"
#include "client/gather.h"

struct request {
	const char *marks, *runtime;
};

static const struct bf_option options[] = {
	BF_OPTION("marks", 0, "DIR", "the folder of marks (default: " ATTACH_MARKS ")", bf_take_text,
		  struct request, marks),
	BF_OPTION("runtime", 0, "NAME", "the runtime that gets the configuration (default: crun)",
		  bf_take_text, struct request, runtime),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "oci edit",
	.about =
		"usage: belfry oci edit [--marks DIR] [--runtime NAME]\n"
		"\n"
		"Read the configuration of a container (config.json) from standard input, edit it for the vGPU\n"
		"of its device " ATTACH_KIND
		"=NAME, and print it. Without such a device it is not changed. A\n"
		"precreate hook of podman calls this; see belfry-oci(1).\n",
	.options = options,
};

/* The path of belfryd's socket for listeners, to be freed. */
static char *find_socket(struct bf_error *err)
{
	struct talk_way usual = { .socket = NULL };
	struct json_object *hello = NULL;
	const char *path;
	char *found = NULL;

	if (gather_hello(&usual, &hello, err))
		return NULL;
	path = gather_text(hello, "daemon.oci_socket", NULL);
	if (path)
		found = strdup(path);
	if (!found)
		bf_fail(err, path ? ENOMEM : ENOTSUP,
			"belfryd attaches no containers; set oci_socket in the section [server] of its "
			"configuration");
	json_object_put(hello);
	return found;
}

/* Whether the vGPU is of a shared domain, by its report. */
static bool is_shared(const char *report)
{
	struct json_object *top = json_tokener_parse(report), *vgpus = gather_at(top, "vgpus");
	bool has_sm = json_object_is_type(vgpus, json_type_array) && json_object_array_length(vgpus) == 1 &&
		      gather_at(json_object_array_get_idx(vgpus, 0), "sm");

	json_object_put(top);
	return has_sm;
}

/* On which GPU the vGPU is. A vGPU that no container can have is refused here, before the container is made. */
static int find_gpu(const char *vgpu, struct protocol_gpu *gpu, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_REPORT, vgpu);
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	int rc = talk_once(&request, &reply, &body, err);

	if (rc)
		return rc;
	if (body && is_shared(body))
		return bf_fail(
			err, ENOTSUP,
			"%s: a container cannot use a vGPU of a shared domain, because only belfry run "
			"starts programs there; use a vGPU whose domain has no vGPU with --sm",
			vgpu);
	*gpu = reply.gpu;
	return 0;
}

/* runc knows the flag since 1.5, and refuses a configuration with it before. */
static bool knows_killable(const char *runtime)
{
	const char *base = strrchr(runtime, '/');

	return !strncmp(base ? base + 1 : runtime, "crun", 4);
}

static int edit_for(struct json_object *config, const char *vgpu, const struct oci_options *options_of,
		    struct bf_error *err)
{
	char library[PATH_MAX] = "";
	cleanup_free char *socket = NULL;
	struct attach_edit edit = { .vgpu = vgpu,
				    .library = library,
				    .waits_killable = knows_killable(options_of->runtime) };
	int rc = find_gpu(vgpu, &edit.gpu, err);

	if (rc)
		return rc;
	socket = find_socket(err);
	if (!socket)
		return -err->code;
	edit.socket = socket;
	if (edit.gpu.kind == PROTOCOL_GPU_SOFT)
		rc = cli_soft_library(library, sizeof(library), err);
	return rc ? rc : attach_edit_config(config, &edit, err);
}

/* A vGPU by name, or parts of a GPU. */
static int find_vgpu(struct json_object *config, const struct oci_options *options_of, char *vgpu,
		     struct attach_share *share, struct bf_error *err)
{
	int rc = attach_find_vgpu(config, options_of->marks, vgpu, err);

	if (!rc)
		rc = attach_find_share(config, options_of->marks, share, err);
	if (!rc && vgpu[0] && share->gpu[0])
		rc = bf_fail(err, EINVAL, "a container has one vGPU: %s, or parts of a GPU, but not both",
			     vgpu);
	return rc;
}

int oci_edit(struct json_object *config, const struct oci_options *options_of, bool *is_ours,
	     struct bf_error *err)
{
	struct attach_share share = { .gpu = "" };
	char vgpu[SPEC_NAME_MAX + 1] = "";
	int rc = find_vgpu(config, options_of, vgpu, &share, err);

	*is_ours = !rc && (vgpu[0] || share.gpu[0]);
	if (!*is_ours)
		return rc ? rc : attach_refuse_listener(config, err);
	if (share.gpu[0])
		rc = oci_make_vgpu(config, &share, options_of->id, vgpu, err);
	if (rc)
		return rc;
	rc = edit_for(config, vgpu, options_of, err);
	if (rc && share.gpu[0])
		oci_drop_vgpu(options_of->id);
	return rc;
}

char *oci_read(FILE *from, size_t *bytes, struct bf_error *err)
{
	cleanup_free char *text = malloc(ATTACH_CONFIG_MAX + 1);
	char *taken = text;

	if (!text) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	*bytes = fread(text, 1, ATTACH_CONFIG_MAX + 1, from);
	if (ferror(from) || *bytes > ATTACH_CONFIG_MAX) {
		bf_fail(err, ferror(from) ? EIO : EFBIG,
			"the configuration cannot be read, or is larger than %d MiB",
			ATTACH_CONFIG_MAX >> 20);
		return NULL;
	}
	text = NULL;
	return taken;
}

/* podman drops what a precreate hook prints, and says only that it failed. So the reason goes to podman's own output. */
static void use_output_of_parent(void)
{
	struct stat st;

	if (!fstat(STDERR_FILENO, &st) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
		return;
	cleanup_close int parent = bf_pidfd_open(getppid());
	cleanup_close int fd = parent < 0 ? parent : bf_pidfd_getfd(parent, STDERR_FILENO);
	if (fd >= 0)
		dup2(fd, STDERR_FILENO);
}

static int edit(const struct request *request)
{
	struct oci_options how = { request->marks, request->runtime, NULL };
	struct json_object *config = NULL;
	struct bf_error err = { 0 };
	cleanup_free char *text = NULL;
	size_t bytes = 0;
	bool is_ours = false;
	int rc = 0;

	use_output_of_parent();
	text = oci_read(stdin, &bytes, &err);
	if (text)
		config = attach_parse(text, bytes, &err);
	if (!config)
		return cli_fail(&err);
	rc = oci_edit(config, &how, &is_ours, &err);
	if (!rc && is_ours)
		puts(json_object_to_json_string_ext(config,
						    JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	else if (!rc)
		fwrite(text, 1, bytes, stdout);
	json_object_put(config);
	return rc ? cli_fail(&err) : CLI_OK;
}

int cli_oci(int argc, char **argv)
{
	struct request request = { .marks = ATTACH_MARKS, .runtime = "crun" };
	const char *what = argc > 1 ? argv[1] : "";
	int status, first;

	if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
		bf_command_help(&command, stdout);
		return CLI_OK;
	}
	if (strcmp(what, "edit") != 0)
		return cli_usage("oci", "say edit");
	first = cli_parse(&command, argc - 1, argv + 1, &request, &status);
	return first ? edit(&request) : status;
}
