/* belfry cdi: write the CDI specification, so that containers can name vGPUs as devices. */
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
#include "client/gather.h"

struct request {
	const char *output, *marks;
};

static const struct bf_option options[] = {
	BF_OPTION("output", 'o', "FILE", "output file; - is standard output (default: /run/cdi/belfry.json)",
		  bf_take_text, struct request, output),
	BF_OPTION("marks", 0, "DIR", "the folder of marks (default: " ATTACH_MARKS ")", bf_take_text,
		  struct request, marks),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "cdi",
	.about =
		"usage: belfry cdi [-o FILE] [--marks DIR]\n"
		"\n"
		"Write a specification of the Container Device Interface with one device for each vGPU:\n" ATTACH_KIND
		"=NAME. Run it again after vGPUs were created or removed.\n",
	.options = options,
};

struct names {
	const char **at;
	size_t count;
};

static void take_names(struct json_object *report, struct names *names)
{
	struct json_object *vgpus = NULL, *name = NULL;
	size_t count;

	if (!json_object_object_get_ex(report, "vgpus", &vgpus))
		return;
	count = json_object_array_length(vgpus);
	names->at = calloc(count + 1, sizeof(*names->at));
	for (size_t i = 0; names->at && i < count; i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);
		struct json_object *is_ephemeral = NULL;

		if (json_object_object_get_ex(vgpu, "ephemeral", &is_ephemeral) &&
		    json_object_get_boolean(is_ephemeral))
			continue;
		if (json_object_object_get_ex(vgpu, "name", &name))
			names->at[names->count++] = json_object_get_string(name);
	}
}

/* A new file in place of the old one: managers read it at any time. */
static int write_file(const char *path, const char *text, struct bf_error *err)
{
	char new[PATH_MAX], folder[PATH_MAX];
	char *slash;

	if (snprintf(new, sizeof(new), "%s.new", path) >= (int)sizeof(new))
		return bf_fail(err, ENAMETOOLONG, "%.100s...: too long a path", path);
	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash && slash != folder) {
		*slash = 0;
		mkdir(folder, 0755);
	}
	unlink(new);
	cleanup_close int fd = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd >= 0 && !fchmod(fd, 0644) && dprintf(fd, "%s\n", text) >= 0 && !rename(new, path))
		return 0;
	bf_fail(err, errno, "%.300s: %s", path, strerror(errno));
	unlink(new);
	return -err->code;
}

static int write_all(const struct request *request, const struct names *names, struct bf_error *err)
{
	struct json_object *spec;
	const char *text;
	int rc = attach_write_marks(request->marks, names->at, names->count, err);

	if (rc)
		return rc;
	spec = attach_cdi(ATTACH_KIND, request->marks, names->at, names->count);
	text = json_object_to_json_string_ext(spec, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
	if (!text)
		rc = bf_fail(err, ENOMEM, "out of memory");
	else if (!strcmp(request->output, "-"))
		puts(text);
	else
		rc = write_file(request->output, text, err);
	json_object_put(spec);
	return rc;
}

int cli_cdi(int argc, char **argv)
{
	struct request request = { "/run/cdi/belfry.json", ATTACH_MARKS };
	struct talk_way usual = { .socket = NULL };
	struct json_object *report = NULL;
	struct names names = { NULL, 0 };
	struct bf_error err = { 0 };
	int status, rc;

	if (!cli_parse(&command, argc, argv, &request, &status))
		return status;
	rc = gather_report(&usual, NULL, &report, &err);
	if (!rc)
		take_names(report, &names);
	if (!rc && !names.at)
		rc = bf_fail(&err, ENOMEM, "the list of vGPUs: out of memory");
	if (!rc)
		rc = write_all(&request, &names, &err);
	free(names.at);
	json_object_put(report);
	return rc ? cli_fail(&err) : CLI_OK;
}
