#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/own.h"
#include "cli/policy.h"

static const char word[] = "@NAME@";

/* The lines of policies/template.bpf.c, ended by NULL. tools/embed.sh generates them. */
extern const char *const policy_template[];

/* The name becomes part of C identifiers. */
static int check_name(const char *name, struct bf_error *err)
{
	size_t length = strlen(name);

	if (!length || length >= BELFRY_NAME_SIZE / 2 || !islower((unsigned char)name[0]))
		return bf_fail(
			err, EINVAL,
			"'%.40s': a policy's name begins with a small letter and has at most %d characters",
			name, BELFRY_NAME_SIZE / 2 - 1);
	for (const char *c = name; *c; c++)
		if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
			return bf_fail(err, EINVAL,
				       "'%.40s': a policy's name is made of small letters, digits and _",
				       name);
	return 0;
}

static void write_line(FILE *to, const char *line, const char *name)
{
	for (const char *at; (at = strstr(line, word)); line = at + sizeof(word) - 1)
		fprintf(to, "%.*s%s", (int)(at - line), line, name);
	fputs(line, to);
}

static int write_file(const char *path, const char *name, struct bf_error *err)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	cleanup_file FILE *to = NULL;

	if (fd < 0 && errno == EEXIST)
		return bf_fail(err, EEXIST, "%s: is there already, and stays as it is; choose another name",
			       path);
	if (fd >= 0)
		to = fdopen(fd, "w");
	if (!to)
		return bf_fail(err, errno, "%s: cannot be made: %s", path, strerror(errno));
	bf_take_fd(&fd);
	for (const char *const *line = policy_template; *line; line++)
		write_line(to, *line, name);
	if (fflush(to) || ferror(to))
		return bf_fail(err, errno, "%s: cannot be written: %s", path, strerror(errno));
	return 0;
}

/* The -I option for the folder of belfry/policy.h, relative to this program; "" if clang finds the header
 * itself. */
static const char *include_option(char *to, size_t room)
{
	static const char *const candidates[] = { "../include/belfry/policy.h", "include/belfry/policy.h",
						  NULL };
	char path[PATH_MAX], folder[PATH_MAX];
	char *end;

	to[0] = 0;
	if (bf_find_beside(NULL, candidates, path, sizeof(path)))
		return to;
	end = strstr(path, "/belfry/policy.h");
	if (end && (size_t)(end - path) + sizeof(" -I ") < room) {
		*end = 0;
		if (!realpath(path, folder))
			snprintf(folder, sizeof(folder), "%s", path);
		if (strcmp(folder, "/usr/include"))
			snprintf(to, room, " -I %.*s", (int)room - 8, folder);
	}
	return to;
}

static int write_new(struct policy_args *args)
{
	struct bf_error err = { 0 };
	char path[BELFRY_NAME_SIZE], option[512];

	if (check_name(args->name, &err))
		return cli_fail(&err);
	snprintf(path, sizeof(path), "%s.bpf.c", args->name);
	if (write_file(path, args->name, &err))
		return cli_fail(&err);
	printf("%s: written. Compile it with\n"
	       "  clang -target bpf -mcpu=v3 -O2 -g -Wall%s -idirafter /usr/include/$(uname -m)-linux-gnu "
	       "-c %s -o %s.bpf.o\n"
	       "and load it with\n"
	       "  belfry policy load ./%s.bpf.o\n",
	       path, include_option(option, sizeof(option)), path, args->name, args->name);
	return CLI_OK;
}

const struct policy_command policy_new_command = {
	.command = {
		.name = "policy new",
		.about = "usage: belfry policy new NAME\n"
			 "\n"
			 "Write NAME.bpf.c, a policy to begin with, and print how to compile and load it.\n",
		.least = 1,
		.most = 1,
		.wrong_count = "give a name for the policy",
	},
	.main = write_new,
};
