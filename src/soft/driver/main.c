/* belfry-soft: the software GPU. libcuda.so.1 and belfryd start it if it is not running. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "soft/driver/driver.h"

static const char usage_text[] =
	"usage: belfry-soft [--config TEXT] [--folder DIR] [--log LEVEL] [--daemon] [--ready-fd N]\n"
	"\n"
	"Serves a software GPU. Programs start it automatically. Started by hand, it stays in\n"
	"the foreground unless --daemon is given.\n"
	"\n"
	"  --config TEXT   gpus=1,sms=16,mem=4G,rate=20M,pace=on,cores=0,linger=10,name=default\n"
	"  --folder DIR    directory of its socket; default: see belfry(1)\n"
	"  --log LEVEL     error, warn, info (default) or debug\n"
	"  --daemon        run in the background\n"
	"  --ready-fd N    write a byte to this descriptor when it is ready\n";

struct options {
	struct link_config config;
	char folder[108];
	bool is_daemon;
	long ready_fd;
	int log_level;
};

static int usage(const char *why)
{
	fprintf(stderr, "belfry-soft: %s; see belfry-soft --help\n", why);
	return 2;
}

static int take_folder(const char *text, struct options *options, struct bf_error *err)
{
	char whole[PATH_MAX];
	int rc = bf_own_folder(text, "--folder", err);

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

static int take_option(int option, struct options *options, struct bf_error *err)
{
	switch (option) {
	case 'c':
		return link_config_parse(optarg, &options->config, err);
	case 'f':
		return take_folder(optarg, options, err);
	case 'l':
		options->log_level = bf_log_level_parse(optarg);
		return options->log_level < 0 ? bf_fail(err, EINVAL, "--log '%s': unknown level", optarg) : 0;
	case 'd':
		options->is_daemon = true;
		return 0;
	default:
		return bf_parse_number("--ready-fd", optarg, 3, 1 << 20, &options->ready_fd, err);
	}
}

/* False: *status is the exit status. */
static bool parse(int argc, char **argv, struct options *options, int *status)
{
	static const struct option long_options[] = {
		{ "config", required_argument, NULL, 'c' },   { "folder", required_argument, NULL, 'f' },
		{ "log", required_argument, NULL, 'l' },      { "daemon", no_argument, NULL, 'd' },
		{ "ready-fd", required_argument, NULL, 'r' }, { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },	      { NULL, 0, NULL, 0 },
	};
	struct bf_error err = { 0 };

	*status = 0;
	for (int option; (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
		if (option == 'h') {
			fputs(usage_text, stdout);
			return false;
		}
		if (option == 'V') {
			puts("belfry-soft " BELFRY_VERSION);
			return false;
		}
		if (option == '?' || take_option(option, options, &err)) {
			*status = option == '?' ? 2 : usage(err.text);
			return false;
		}
	}
	if (optind < argc) {
		*status = usage("it takes no arguments");
		return false;
	}
	return true;
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
