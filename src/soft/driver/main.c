/* belfry-soft: the software GPU. libcuda.so.1 and belfryd start it if it is not running. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "base/options.h"
#include "base/process.h"
#include "base/units.h"
#include "soft/driver/driver.h"

struct options {
	struct link_config config;
	char folder[108];
	bool is_daemon, wants_version;
	long ready_fd;
	int log_level;
};

static int usage(const char *why)
{
	fprintf(stderr, "belfry-soft: %s; see belfry-soft --help\n", why);
	return 2;
}

static int take_folder(void *member, const struct bf_option *option, const char *text, struct bf_error *err)
{
	struct options *options = member;
	char whole[PATH_MAX];
	int rc = bf_own_folder(text, "--folder", err);

	(void)option;
	if (rc)
		return rc;
	/* The background process changes its directory. */
	if (!realpath(text, whole))
		return bf_fail(err, errno, "--folder '%s': %s", text, strerror(errno));
	if (strlen(whole) > sizeof(options->folder) - sizeof("/socket")) /* the limit of link_folder() */
		return bf_fail(err, ENAMETOOLONG, "--folder: the path is too long; the maximum is %zu bytes",
			       sizeof(options->folder) - sizeof("/socket"));
	strcpy(options->folder, whole);
	return 0;
}

static int take_config(void *member, const struct bf_option *option, const char *text, struct bf_error *err)
{
	(void)option;
	return link_config_parse(text, member, err);
}

static int take_ready_fd(void *member, const struct bf_option *option, const char *text, struct bf_error *err)
{
	(void)option;
	return bf_parse_number("--ready-fd", text, 3, 1 << 20, member, err);
}

static const struct bf_option table[] = {
	BF_OPTION("config", 0, "TEXT", "gpus=1,sms=16,mem=4G,rate=20M,pace=on,cores=0,linger=10,name=default",
		  take_config, struct options, config),
	{ "folder", 0, "DIR", "the folder of its socket (default: see belfry(1))", take_folder, 0, NULL },
	BF_OPTION("log", 0, "LEVEL", "error, warn, info or debug (default: info)", bf_take_log,
		  struct options, log_level),
	BF_OPTION("daemon", 0, NULL, "run in the background", bf_take_flag, struct options, is_daemon),
	BF_OPTION("ready-fd", 0, "N", "write a byte to this descriptor when it is ready", take_ready_fd,
		  struct options, ready_fd),
	BF_OPTION("version", 0, NULL, "print the version", bf_take_flag, struct options, wants_version),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "belfry-soft",
	.about =
		"usage: belfry-soft [--config TEXT] [--folder DIR] [--log LEVEL] [--daemon] [--ready-fd N]\n"
		"\n"
		"Serve a software GPU. belfry and belfryd start it. Started by hand, it stays in the foreground\n"
		"unless --daemon is given.\n",
	.options = table,
};

/* False: *status is the exit status. */
static bool parse(int argc, char **argv, struct options *options, int *status)
{
	struct bf_error err = { 0 };
	int rc = bf_command_parse(&command, argc, argv, options, &err);

	*status = 0;
	if (rc == BF_COMMAND_HELP)
		bf_command_help(&command, stdout);
	else if (rc < 0)
		*status = usage(err.text);
	else if (options->wants_version)
		puts("belfry-soft " BELFRY_VERSION);
	else
		return true;
	return false;
}

/* Closes the files inherited from the program that started this one. */
static void close_others(int keep)
{
	if (keep > 3)
		close_range(3, (unsigned)keep - 1, 0);
	close_range(keep >= 3 ? (unsigned)keep + 1 : 3, ~0u, 0);
	if (keep >= 3)
		fcntl(keep, F_SETFD, FD_CLOEXEC);
}

/* The parent exits at once, so that this process becomes a child of init or of the nearest subreaper. */
static int go_to_background(void)
{
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child > 0)
		_exit(0);
	setsid();
	return chdir("/") ? -errno : 0;
}

int main(int argc, char **argv)
{
	struct options options = { .config = link_default, .ready_fd = -1, .log_level = BF_LOG_INFO };
	struct bf_error err = { 0 };
	int status;

	if (!parse(argc, argv, &options, &status))
		return status;
	bf_log_setup("belfry-soft", (enum bf_log_level)options.log_level);
	if (!*options.folder &&
	    link_folder(options.config.name, options.folder, sizeof(options.folder), &err)) {
		bf_log(BF_LOG_ERROR, "%s", err.text);
		return 1;
	}
	close_others((int)options.ready_fd);
	if (options.is_daemon && go_to_background()) {
		bf_log(BF_LOG_ERROR, "cannot run in the background: %s", strerror(errno));
		return 1;
	}
	bf_raise_file_limit(); /* every open file and every allocation takes a descriptor */
	struct server_options server = { options.config, options.folder, (int)options.ready_fd };
	if (!server_run(&server, &err))
		return 0;
	bf_log(BF_LOG_ERROR, "%s", err.text);
	return 1;
}
