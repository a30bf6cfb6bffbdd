/* belfry-oci: an OCI runtime. It edits the configuration of a container that has a vGPU, and then becomes crun or runc,
 * with the same command line. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/json.h"
#include "base/own.h"
#include "cli/cli.h"
#include "cli/oci.h"

/* Options of crun and runc before the command that have a value. */
static const char *const valued[] = { "--root", "--log",      "--log-format",	 "--log-level",
				      "--criu", "--rootless", "--cgroup-manager" };

static bool is_valued(const char *option)
{
	for (size_t i = 0; i < sizeof(valued) / sizeof(valued[0]); i++)
		if (!strcmp(option, valued[i]))
			return true;
	return false;
}

/* The index of the command, such as "create"; argc: there is none. */
static int find_command(int argc, char **argv)
{
	int i = 1;

	while (i < argc && argv[i][0] == '-')
		i += is_valued(argv[i]) ? 2 : 1;
	return i < argc ? i : argc;
}

/* The folder of config.json: the current one if no option names it. */
static const char *find_bundle(int argc, char **argv, int command)
{
	const char *bundle = ".";

	for (int i = command + 1; i < argc; i++) {
		if ((!strcmp(argv[i], "--bundle") || !strcmp(argv[i], "-b")) && i + 1 < argc)
			bundle = argv[++i];
		else if (!strncmp(argv[i], "--bundle=", 9))
			bundle = argv[i] + 9;
		else if (!strncmp(argv[i], "-b", 2) && argv[i][2])
			bundle = argv[i] + 2;
	}
	return bundle;
}

/* The new file replaces the old one at once, so that no process reads half of it. */
static int write_config(const char *path, struct json_object *config, struct bf_error *err)
{
	const char *text = json_object_to_json_string_ext(config, JSON_C_TO_STRING_PLAIN |
									  JSON_C_TO_STRING_NOSLASHESCAPE);
	char new[PATH_MAX + 16];
	struct stat st;
	int rc = 0;

	snprintf(new, sizeof(new), "%s.belfry-%d", path, getpid());
	if (!text || stat(path, &st))
		return bf_fail(err, text ? errno : ENOMEM, "%s cannot be edited", path);
	cleanup_close int fd = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	cleanup_file FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file)
		return bf_fail(err, errno, "%s: %s", new, strerror(errno));
	bf_take_fd(&fd);
	if (fchmod(fileno(file), st.st_mode & 07777) || fputs(text, file) < 0 || fflush(file) ||
	    rename(new, path))
		rc = bf_fail(err, errno, "%s: %s", new, strerror(errno));
	if (rc)
		unlink(new);
	return rc;
}

static int edit_bundle(const char *bundle, const char *command, const struct oci_options *options,
		       struct bf_error *err)
{
	char path[PATH_MAX];
	cleanup_file FILE *file = NULL;
	cleanup_free char *text = NULL;
	struct json_object *config;
	size_t bytes = 0;
	bool is_ours;
	int rc;

	if (snprintf(path, sizeof(path), "%s/config.json", bundle) >= (int)sizeof(path))
		return bf_fail(err, ENAMETOOLONG, "the path of the bundle is too long");
	file = fopen(path, "re");
	if (!file)
		return 0; /* the runtime reports it */
	text = oci_read(file, &bytes, err);
	config = text ? attach_parse(text, bytes, err) : NULL;
	if (!config)
		return -err->code;
	rc = oci_edit(config, options, &is_ours, err);
	if (!rc && is_ours && !strcmp(command, "restore"))
		rc = bf_fail(err, ENOTSUP, "a container on a vGPU cannot be restored from a checkpoint");
	if (!rc && is_ours)
		rc = write_config(path, config, err);
	json_object_put(config);
	return rc;
}

static bool is_in_path(const char *name)
{
	const char *path = getenv("PATH");

	for (path = path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"; *path; path += *path == ':') {
		size_t length = strcspn(path, ":");
		char file[PATH_MAX];

		if (snprintf(file, sizeof(file), "%.*s/%s", (int)length, path, name) < (int)sizeof(file) &&
		    !access(file, X_OK))
			return true;
		path += length;
	}
	return false;
}

/* Options of belfry-oci itself. A manager such as podman starts a runtime without its own environment, but with flags. */
struct own_options {
	const char *runtime, *marks, *socket;
};

static bool take_own(const char *word, struct own_options *own)
{
	const struct {
		const char *name;
		const char **to;
	} known[] = { { "--belfry-runtime=", &own->runtime },
		      { "--belfry-marks=", &own->marks },
		      { "--belfry-socket=", &own->socket } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(word, known[i].name, strlen(known[i].name))) {
			*known[i].to = word + strlen(known[i].name);
			return true;
		}
	return false;
}

/* Remove them from the command line: they stand before the command. */
static void take_all_own(int *argc, char **argv, struct own_options *own)
{
	int command = find_command(*argc, argv), kept = 1;

	for (int i = 1; i <= *argc; i++)
		if (i >= command || !take_own(argv[i], own))
			argv[kept++] = argv[i];
	*argc = kept - 1;
}

static const char *find_runtime(const struct own_options *own)
{
	if (own->runtime && *own->runtime)
		return own->runtime;
	return is_in_path("crun") ? "crun" : "runc";
}

/* The ID of the container: the last argument of create, run, restore and delete. */
static const char *find_id(int argc, char **argv, int command)
{
	return argc > command + 1 && argv[argc - 1][0] != '-' ? argv[argc - 1] : NULL;
}

int oci_runtime_main(int argc, char **argv)
{
	struct own_options own = { getenv("BELFRY_OCI_RUNTIME"), getenv("BELFRY_OCI_MARKS"), NULL };
	struct oci_options options = { .marks = ATTACH_MARKS };
	struct bf_error err = { 0 };
	const char *runtime, *word;
	int command;

	take_all_own(&argc, argv, &own);
	runtime = options.runtime = find_runtime(&own);
	if (own.marks && *own.marks)
		options.marks = own.marks;
	if (own.socket)
		setenv("BELFRY_SOCKET", own.socket, 1);
	command = find_command(argc, argv);
	word = command < argc ? argv[command] : "";
	options.id = find_id(argc, argv, command);
	if (!strcmp(word, "delete") && options.id)
		oci_drop_vgpu(options.id);
	if ((!strcmp(word, "create") || !strcmp(word, "run") || !strcmp(word, "restore")) &&
	    edit_bundle(find_bundle(argc, argv, command), word, &options, &err)) {
		oci_log(command, argv, err.text);
		return cli_fail(&err);
	}
	argv[0] = (char *)(uintptr_t)runtime;
	execvp(runtime, argv);
	bf_fail(&err, errno, "%.200s: %s; BELFRY_OCI_RUNTIME names the runtime behind belfry-oci", runtime,
		strerror(errno));
	return cli_fail(&err);
}
