/* belfryd: serves virtual GPUs. Reads its configuration, starts GPU servers, and answers clients on its socket. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "base/options.h"
#include "base/own.h"
#include "base/process.h"
#include "base/units.h"
#include "base/users.h"
#include "gpu/mps.h"
#include "router/check.h"
#include "router/router.h"
#include "soft/link/link.h"

struct belfryd {
	const char *socket, *config_path, *metrics, *gpus;
	const char *gpu_server; /* the descriptor of a GPU server's connection */
	const char *mps_keeper; /* likewise of the keeper of an MPS server */
	bool looks_up_names;	/* --look-up-names */
	int log_level;		/* -1: as configured */
	char gpu_words[CONFIG_LINE_MAX];
	struct link_config soft;
	bool has_soft, has_gpus, is_private, any_driver, is_check, wants_version;
	sigset_t mask_before;
};

static int usage(const char *why)
{
	fprintf(stderr, "belfryd: %s; belfryd --help tells more\n", why);
	return 2;
}

/* For errors at the start, which go to stderr. */
static int fail(const struct bf_error *err)
{
	char text[sizeof(err->text) + BF_USER_ROOM];

	fprintf(stderr, "belfryd: %s\n", bf_name_users(err->text, text, sizeof(text)));
	return 1;
}

static int read_config(void *context, struct config *config, struct bf_error *err)
{
	const struct belfryd *belfryd = context;
	const char *linger = getenv("BELFRY_LINGER");
	long seconds;
	int rc = config_read(config, belfryd->config_path, err);

	if (!rc && belfryd->gpus) {
		config->gpus_line = 0;
		rc = config_parse_gpus(config, belfryd->gpus, err);
	}
	if (!rc && belfryd->is_private) {
		/* A private belfryd is for its user only, and does not create the vGPUs of the system's
		 * configuration. */
		config->access = CONFIG_OWNER;
		config->metrics[0] = 0;
		if (!belfryd->config_path)
			config->oci_socket[0] = 0;
		config->accounting[0] = 0;
		config->events.command[0] = 0;
		if (!belfryd->config_path)
			config->vgpu_count = 0;
	}
	if (!rc && belfryd->metrics)
		rc = config_parse_metrics(config, belfryd->metrics, err);
	if (!rc && belfryd->log_level >= 0)
		config->log = (enum bf_log_level)belfryd->log_level;
	if (!rc && linger && *linger) {
		rc = bf_parse_number("BELFRY_LINGER", linger, 0, 86400, &seconds, err);
		config->linger_us = rc ? 0 : (uint64_t)seconds * 1000000;
	}
	return rc;
}

static int by_index(const void *a, const void *b)
{
	const struct protocol_gpu *one = a, *other = b;

	return one->index < other->index ? -1 : one->index > other->index;
}

/* Every /dev/nvidiaN, or the software GPUs if there is none. */
static unsigned list_gpus(void *context, struct protocol_gpu *gpus, unsigned room)
{
	const struct belfryd *belfryd = context;
	DIR *folder = opendir("/dev");
	struct dirent *entry;
	unsigned count = 0;
	long index;

	while (folder && count < room && (entry = readdir(folder)))
		if (!strncmp(entry->d_name, "nvidia", 6) &&
		    !bf_parse_number("gpu", entry->d_name + 6, 0, CONFIG_NV_MAX, &index, NULL))
			gpus[count++] =
				(struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = (uint32_t)index };
	if (folder)
		closedir(folder);
	qsort(gpus, count, sizeof(*gpus), by_index);
	if (!count)
		for (; count < belfryd->soft.gpus && count < room; count++)
			gpus[count] = (struct protocol_gpu){ .kind = PROTOCOL_GPU_SOFT, .index = count };
	return count;
}

static int start_soft(void *context, char *folder, size_t room, struct bf_error *err)
{
	static const char *const candidates[] = { "belfry-soft", "../libexec/belfry/belfry-soft", NULL };
	const struct belfryd *belfryd = context;
	char server[PATH_MAX];

	if (bf_find_beside("BELFRY_SOFT_SERVER", candidates, server, sizeof(server)))
		return bf_fail(
			err, ENOENT,
			"belfry-soft is not installed; it belongs beside belfryd or in libexec/belfry");
	return link_start(server, &belfryd->soft, folder, room, err);
}

/* In the child: restore the signals. */
static void settle_child(const struct belfryd *belfryd)
{
	struct sigaction plain = { .sa_handler = SIG_DFL };

	sigaction(SIGPIPE, &plain, NULL);
	sigprocmask(SIG_SETMASK, &belfryd->mask_before, NULL);
}

static int start_server(void *context, const struct protocol_gpu *gpu, pid_t *pid, struct bf_error *err)
{
	int ends[2];
	char number[16];

	(void)gpu;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return bf_fail(err, errno, "no socket for its server: %s", strerror(errno));
	*pid = fork();
	if (!*pid) {
		settle_child(context);
		setsid(); /* signals of this terminal are not for it */
		snprintf(number, sizeof(number), "%d", ends[1]);
		if (fcntl(ends[1], F_SETFD, 0) == 0)
			execl("/proc/self/exe", "belfryd", "--gpu-server", number, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	if (*pid > 0)
		return ends[0];
	close(ends[0]);
	*pid = 0;
	return bf_fail(err, EAGAIN, "its server cannot be started: no more processes");
}

static int start_names(void *context, const char *names, pid_t *pid, struct bf_error *err)
{
	return names_start(names, &((const struct belfryd *)context)->mask_before, pid, err);
}

static pid_t start_metrics(void *context, const struct config *config, const char *sock, struct bf_error *err)
{
	static const char *const candidates[] = { "belfry-metrics", "src/metrics/belfry-metrics",
						  "../libexec/belfry/belfry-metrics", NULL };
	char path[PATH_MAX];
	pid_t parent = getpid(), pid;

	if (bf_find_beside("BELFRY_METRICS", candidates, path, sizeof(path)))
		return bf_fail(err, ENOENT,
			       "belfry-metrics is not installed; it belongs beside belfryd or in "
			       "libexec/belfry");
	pid = fork();
	if (pid < 0)
		return bf_fail(err, errno, "belfry-metrics cannot be started: %s", strerror(errno));
	if (pid)
		return pid;
	settle_child(context);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setenv("BELFRY_SOCKET", sock, 1);
	/* It answers the network: it has the right to use a low port, and no descriptors of belfryd. */
	if (bf_drop_capabilities(1u << CAP_NET_BIND_SERVICE) || syscall(SYS_close_range, 3u, ~0u, 0u))
		_exit(127);
	if (getppid() == parent)
		execl(path, "belfry-metrics", "--listen", config->metrics,
		      config->metrics_is_public ? "--public" : (char *)NULL, (char *)NULL);
	_exit(127);
}

/* sd_notify(3) without the library. */
static void tell_systemd(void *context, const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int sock = -1;
	size_t length = path ? strlen(path) : 0;

	(void)context;
	if (length < 2 || length >= sizeof(address.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(address.sun_path, path, length);
	if (*path == '@')
		address.sun_path[0] = 0;
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0 || sendto(sock, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
			       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		bf_log(BF_LOG_DEBUG, "systemd cannot be told: %s", strerror(errno));
}

/* --socket, BELFRY_SOCKET, systemd's folder, or the runtime folder. */
static int find_socket(const struct belfryd *belfryd, const struct config *config, char *path, size_t room,
		       struct bf_error *err)
{
	const char *given = belfryd->socket ? belfryd->socket : getenv("BELFRY_SOCKET");
	const char *folder = getenv("RUNTIME_DIRECTORY");
	char own[108];
	int rc, length;

	if (given && *given) {
		length = snprintf(path, room, "%s", given);
	} else if (folder && *folder == '/') {
		length = snprintf(path, room, "%.*s/belfryd.sock", (int)strcspn(folder, ":"), folder);
	} else {
		rc = bf_runtime_folder(own, sizeof(own), err);
		if (rc)
			return rc;
		/* Users with access to the socket must be able to reach it. */
		if (config->access != CONFIG_OWNER && chmod(own, 0755))
			return bf_fail(err, errno, "%s: %s", own, strerror(errno));
		length = snprintf(path, room, "%s/belfryd.sock", own);
	}
	if (length < 0 || (size_t)length >= room)
		return bf_fail(err, ENAMETOOLONG, "the path of the socket is too long; use another --socket");
	return 0;
}

static int take_signals(struct belfryd *belfryd)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t ours;

	sigaction(SIGPIPE, &ignore, NULL);
	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);
	sigprocmask(SIG_BLOCK, &ours, &belfryd->mask_before);
	return signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int serve(struct belfryd *belfryd, const struct config *config)
{
	cleanup_close int signal_fd = take_signals(belfryd);
	struct router_options options = {
		.is_private = belfryd->is_private,
		.any_driver = belfryd->any_driver,
		.signal_fd = signal_fd,
		.context = belfryd,
		.read_config = read_config,
		.list_gpus = list_gpus,
		.start_soft = start_soft,
		.start_server = start_server,
		.start_metrics = start_metrics,
		.start_oci = router_start_oci,
		.start_names = start_names,
		.tell = tell_systemd,
	};
	struct bf_error err = { 0 };
	struct router *router;
	char path[108];

	if (find_socket(belfryd, config, path, sizeof(path), &err))
		return fail(&err);
	options.socket = path;
	bf_raise_file_limit();
	router = router_new(&options, &err);
	if (!router)
		return fail(&err);
	router_run(router);
	router_free(router);
	return 0;
}

static void print_lines(const char *lines)
{
	for (const char *line = lines, *rest; *line; line = rest) {
		rest = line + strcspn(line, "\n");
		fprintf(stderr, "belfryd: %.*s\n", (int)(rest - line), line);
		rest += *rest == '\n';
	}
}

static int check(struct belfryd *belfryd, const struct config *config, struct bf_error *err)
{
	struct protocol_gpu gpus[CONFIG_GPUS_MAX], there[CONFIG_GPUS_MAX];
	unsigned there_count = list_gpus(belfryd, there, CONFIG_GPUS_MAX);
	const char *given = belfryd->socket ? belfryd->socket : getenv("BELFRY_SOCKET");
	struct check_options options = { .gpus = gpus,
					 .gpu_count = config->gpu_count,
					 .soft_mem_bytes = belfryd->soft.mem_bytes,
					 .socket = given && *given ? given : NULL,
					 .any_driver = belfryd->any_driver };
	char unchecked[CONFIG_GPUS_MAX * 64], warning[CONFIG_GPUS_MAX * 64];
	int rc;

	memcpy(gpus, config->is_all ? there : config->gpus, sizeof(gpus));
	if (config->is_all)
		options.gpu_count = there_count;
	rc = config_check_gpus(config, there, there_count, err);
	if (!rc)
		rc = config_check_served(config, there, there_count, belfryd->soft.gpus, warning,
					 sizeof(warning), err);
	if (rc)
		return rc;
	rc = check_promises(config, &options, unchecked, sizeof(unchecked), err);
	if (rc)
		return rc;
	print_lines(warning);
	print_lines(unchecked);
	return 0;
}

static int fail_to_write(void)
{
	struct bf_error err;

	bf_fail(&err, errno, "cannot write: %s", strerror(errno));
	return fail(&err);
}

static int run(struct belfryd *belfryd)
{
	struct bf_error err = { 0 };
	struct config config;
	int status = 0;

	config_init(&config);
	if (read_config(belfryd, &config, &err))
		status = fail(&err);
	else if (!belfryd->is_check)
		status = serve(belfryd, &config);
	else if (check(belfryd, &config, &err) || config_check_policy(&config, true, &err) ||
		 config_check_events(&config, &err) || config_check_accounting(&config, &err))
		status = fail(&err);
	else if (puts("ok") < 0 || fflush(stdout))
		status = fail_to_write();
	config_free(&config);
	return status;
}

/* Another process of belfryd's, which talks to the one that started it over a descriptor. */
static int serve_as(const char *option, const char *text, int (*serve_over)(int fd))
{
	struct bf_error err = { 0 };
	long fd;

	if (bf_parse_number(option, text, 0, 1 << 20, &fd, &err))
		return usage(err.text);
	fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	return serve_over((int)fd);
}

/* Add another --gpu, as a word of `gpus =`. */
static int add_gpu(struct belfryd *belfryd, const char *text, struct bf_error *err)
{
	size_t used = strlen(belfryd->gpu_words);
	struct protocol_gpu gpu;
	int rc = strcmp(text, "all") ? config_parse_gpu(text, &gpu, err) : 0;

	if (rc)
		return rc;
	if (used + strlen(text) + 2 > sizeof(belfryd->gpu_words))
		return bf_fail(err, E2BIG, "--gpu: said too often");
	if (!strcmp(text, "all"))
		snprintf(belfryd->gpu_words, sizeof(belfryd->gpu_words), "all");
	else if (strcmp(belfryd->gpu_words, "all"))
		snprintf(belfryd->gpu_words + used, sizeof(belfryd->gpu_words) - used, "%s%s",
			 used ? " " : "", text);
	belfryd->gpus = belfryd->gpu_words;
	return 0;
}

static int take_gpu(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	struct belfryd *belfryd = member;

	(void)option;
	belfryd->has_gpus = true;
	return add_gpu(belfryd, value, err);
}

static int take_soft(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	struct belfryd *belfryd = member;

	(void)option;
	belfryd->has_soft = true;
	return link_config_parse(value, &belfryd->soft, err);
}

static const struct bf_option options[] = {
	BF_OPTION("socket", 0, "PATH",
		  "the socket to listen on (default: BELFRY_SOCKET, or in the runtime folder)", bf_take_text,
		  struct belfryd, socket),
	{ "gpu", 0, "GPU", "a GPU to serve: all, a number, soft or soft:N; may be given several times",
	  take_gpu, 0, NULL },
	{ "soft", 0, "CONFIG", "the configuration of the software GPU; see belfry-soft(1)", take_soft, 0,
	  NULL },
	BF_OPTION("config", 0, "FILE", "the configuration file (default: " CONFIG_DEFAULT ")", bf_take_text,
		  struct belfryd, config_path),
	BF_OPTION("metrics", 0, "ADDR:PORT", "serve metrics on this address, or off (default: as configured)",
		  bf_take_text, struct belfryd, metrics),
	BF_OPTION("private", 0, NULL, "start GPU servers on demand, and exit when idle", bf_take_flag,
		  struct belfryd, is_private),
	BF_OPTION("log", 0, "LEVEL", "error, warn, info or debug (default: as configured, or warn)",
		  bf_take_log, struct belfryd, log_level),
	BF_OPTION("any-driver", 0, NULL, "accept an unknown driver series, and use the nearest known layout",
		  bf_take_flag, struct belfryd, any_driver),
	BF_OPTION("check", 0, NULL, "check the configuration, print the first error or ok, and exit",
		  bf_take_flag, struct belfryd, is_check),
	BF_OPTION("version", 0, NULL, "print the version", bf_take_flag, struct belfryd, wants_version),
	BF_OPTION("gpu-server", 0, "FD", NULL, bf_take_text, struct belfryd, gpu_server),
	BF_OPTION("mps-keeper", 0, "FD", NULL, bf_take_text, struct belfryd, mps_keeper),
	BF_OPTION("look-up-names", 0, NULL, NULL, bf_take_flag, struct belfryd, looks_up_names),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "belfryd",
	.about = "usage: belfryd [OPTION...]\n"
		 "\n"
		 "Serve virtual GPUs (vGPUs) to belfry. See belfryd(8) and belfryd.conf(5).\n",
	.options = options,
	.stops_at_argument = true,
};

/* --soft without --gpu: all its GPUs. */
static int add_soft_gpus(struct belfryd *belfryd, struct bf_error *err)
{
	char word[16];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < belfryd->soft.gpus; i++) {
		snprintf(word, sizeof(word), "soft:%u", i);
		rc = add_gpu(belfryd, word, err);
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct belfryd belfryd = { .soft = link_default, .log_level = -1 };
	const char *soft = getenv("BELFRY_SOFT");
	struct bf_error err = { 0 };
	int rc;

	bf_hold_standard_files();
	bf_log_setup("belfryd", BF_LOG_WARN);
	if (soft && *soft && link_config_parse(soft, &belfryd.soft, &err))
		return usage(err.text);
	rc = bf_command_parse(&command, argc, argv, &belfryd, &err);
	if (rc == BF_COMMAND_HELP) {
		bf_command_help(&command, stdout);
		return 0;
	}
	if (rc < 0)
		return usage(err.text);
	if (belfryd.wants_version) {
		puts("belfryd " BELFRY_VERSION);
		return 0;
	}
	if (belfryd.gpu_server)
		return serve_as("--gpu-server", belfryd.gpu_server, gpu_server_main);
	if (belfryd.mps_keeper)
		return serve_as("--mps-keeper", belfryd.mps_keeper, mps_keeper_main);
	if (belfryd.looks_up_names)
		return names_serve(stdin, stdout);
	if (belfryd.has_soft && !belfryd.has_gpus && add_soft_gpus(&belfryd, &err))
		return usage(err.text);
	return run(&belfryd);
}
