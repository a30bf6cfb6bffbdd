/* belfry run: starts belfryd, which starts the program; passes signals on, and the program's status back.
 * belfry, belfryd and the program form a chain: whichever of the first two dies, the other ends what the vGPU
 * runs. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/soft.h"
#include "server/runtime.h"

static const char help_text[] =
	"usage: belfry run [OPTION...] [--] PROGRAM [ARG...]\n"
	"\n"
	"Run PROGRAM, and everything it starts, on a virtual GPU. Ends when PROGRAM does.\n"
	"\n"
	"  --name NAME         what to call the vGPU (PROGRAM-PID)\n"
	"  --mem SIZE          the most device memory, such as 8G or 512M (the whole card)\n"
	"  --gpu N             which GPU: N of /dev/nvidiaN (0); soft or soft:N for the software GPU,\n"
	"                      which is taken by itself where there is no NVIDIA GPU\n"
	"  --soft CONFIG       the software GPU, such as gpus=2,sms=16,mem=4G; see belfry-soft(1)\n"
	"  --timeslice TIME    how long its turn on the GPU is, such as 200us (as the program asks)\n"
	"  --interleave LEVEL  how often its turn comes: low, medium or high (as the program asks)\n"
	"  --any-driver        take the nearest known layout if the driver's series is unknown\n"
	"  --log LEVEL         error, warn, info or debug (warn)\n"
	"\n"
	"Exit status: the program's own; 128+N if signal N ended it; 127 not found, 126 not\n"
	"executable; 1 if Belfry failed; 2 for wrong usage.\n";

/* "/usr/bin/Python3" run as 4711 becomes "python3-4711". */
static void default_name(struct front_options *options, const char *program)
{
	const char *base = strrchr(program, '/');
	size_t used = 0;

	for (base = base ? base + 1 : program; *base && used < 40; base++) {
		int c = tolower((unsigned char)*base);

		if (isalnum(c) || (used && strchr("._-", c)))
			options->name[used++] = (char)c;
	}
	snprintf(options->name + used, sizeof(options->name) - used, "%s%d", used ? "-" : "", getpid());
}

/* 0, or an exit status plus 1 so that --help can end well. */
static int parse(int argc, char **argv, struct front_options *options, struct cli_gpu *which)
{
	static const struct option long_options[] = { { "name", required_argument, NULL, 'n' },
						      { "mem", required_argument, NULL, 'm' },
						      { "gpu", required_argument, NULL, 'g' },
						      { "soft", required_argument, NULL, 's' },
						      { "timeslice", required_argument, NULL, 't' },
						      { "interleave", required_argument, NULL, 'i' },
						      { "any-driver", no_argument, NULL, 'a' },
						      { "log", required_argument, NULL, 'l' },
						      { "help", no_argument, NULL, 'h' },
						      { NULL, 0, NULL, 0 } };
	struct bf_error err = { 0 };
	int level;

	if (cli_gpu_default(which, &err))
		return cli_usage("run", err.text) + 1;
	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "+h", long_options, NULL)) != -1;) {
		int rc = 0;

		switch (option) {
		case 'n':
			rc = runtime_check_name(optarg, &err);
			snprintf(options->name, sizeof(options->name), "%s", optarg);
			break;
		case 'm':
			rc = bf_parse_size(optarg, &options->mem_bytes, &err);
			break;
		case 'g':
			rc = cli_gpu_parse(optarg, which, &err);
			break;
		case 's':
			rc = cli_gpu_parse_soft(optarg, which, &err);
			break;
		case 't':
			rc = bf_parse_time(optarg, &options->timeslice_us, &err);
			break;
		case 'i':
			rc = cli_parse_interleave(optarg, &level, &err);
			options->interleave = level;
			break;
		case 'a':
			options->any_driver = true;
			break;
		case 'l':
			level = bf_log_level_parse(optarg);
			if (level < 0)
				rc = bf_fail(&err, EINVAL, "log level '%s': not error, warn, info or debug",
					     optarg);
			options->log_level = (uint32_t)level;
			break;
		case 'h':
			fputs(help_text, stdout);
			return CLI_OK + 1;
		default:
			return cli_usage("run", "unknown option, or one without its value") + 1;
		}
		if (rc)
			return cli_usage("run", err.text) + 1;
	}
	if (optind == argc || !argv[optind][0])
		return cli_usage("run", "no program given") + 1;
	if (!options->name[0])
		default_name(options, argv[optind]);
	return 0;
}

/* belfryd stands beside belfry, in the build folder, in the portable one and where it is installed. */
static int find_daemon(char *path, size_t room, struct bf_error *err)
{
	ssize_t length = readlink("/proc/self/exe", path, room - 1);
	char *slash;

	path[length > 0 ? length : 0] = 0;
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + sizeof("/belfryd") > room)
		return bf_fail(err, ENOENT, "belfryd: cannot tell where it is");
	memcpy(slash, "/belfryd", sizeof("/belfryd"));
	if (access(path, X_OK))
		return bf_fail(err, errno, "%s: %s; it belongs beside belfry", path, strerror(errno));
	return 0;
}

/* "belfryd --front FD -- PROGRAM ARG...", in place of this process. */
static void __attribute__((noreturn)) exec_daemon(const char *path, int sock, char **program)
{
	char front[16];
	size_t count = 0;

	while (program[count])
		count++;
	char **args = calloc(count + 5, sizeof(*args));
	if (args) {
		snprintf(front, sizeof(front), "%d", sock);
		memcpy(args, (char *[]){ "belfryd", "--front", front, "--" }, 4 * sizeof(*args));
		memcpy(args + 4, program, count * sizeof(*args));
		execv(path, args);
	}
	fprintf(stderr, "belfry: %s: %s\n", path, strerror(errno));
	_exit(CLI_FAILED);
}

/* Signals meant for the program. From the terminal they reach its whole process group by themselves. */
static void pass_signal(int signals, pid_t program)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if ((info.ssi_signo == SIGINT || info.ssi_signo == SIGQUIT) && info.ssi_code == SI_KERNEL)
			continue;
		if (program > 0)
			kill(program, (int)info.ssi_signo);
	}
}

static int supervisor_died(void)
{
	bf_end_descendants();
	fprintf(stderr, "belfry: the supervisor died; what ran on the vGPU was ended\n");
	return CLI_FAILED;
}

static int ended(const struct front_message *message)
{
	int status = message->value;

	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* Until the program has ended, or belfryd. */
static int follow(int sock, int signals)
{
	struct pollfd fds[] = { { sock, POLLIN, 0 }, { signals, POLLIN, 0 } };
	struct front_message message;
	pid_t program = 0;

	for (;;) {
		ssize_t got;

		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[1].revents)
			pass_signal(signals, program);
		if (!fds[0].revents)
			continue;
		got = recv(sock, &message, sizeof(message), 0);
		if (got != (ssize_t)sizeof(message))
			return supervisor_died();
		message.text[sizeof(message.text) - 1] = 0;
		if (message.kind == FRONT_STARTED)
			program = message.value;
		else if (message.kind == FRONT_ENDED)
			return ended(&message);
		else if (message.kind == FRONT_FAILED) {
			fprintf(stderr, "belfry: %s\n", message.text);
			return message.value;
		}
	}
}

int cli_run(int argc, char **argv)
{
	static const int passed_on[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH };
	struct front_options options = { .magic = PROTOCOL_MAGIC,
					 .version = PROTOCOL_VERSION,
					 .interleave = -1,
					 .log_level = BF_LOG_WARN };
	struct bf_error err = { 0 };
	char daemon[PATH_MAX];
	struct cli_gpu which;
	int socks[2], status = parse(argc, argv, &options, &which);
	sigset_t set;
	pid_t pid;

	if (status)
		return status - 1;
	if (find_daemon(daemon, sizeof(daemon), &err))
		return cli_fail(&err);
	cli_gpu_settle(&which);
	options.gpu = which.index;
	/* Before we become the one to whom orphans go: the software GPU is to outlive us. */
	if (which.is_soft &&
	    cli_soft_prepare(&which.soft, options.soft_folder, sizeof(options.soft_folder), &err))
		return cli_fail(&err);
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&set, passed_on[i]);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks) ||
	    send(socks[0], &options, sizeof(options), MSG_NOSIGNAL) != (ssize_t)sizeof(options)) {
		bf_fail(&err, errno, "no descriptors: %s", strerror(errno));
		return cli_fail(&err);
	}
	fcntl(socks[0], F_SETFD, FD_CLOEXEC);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	pid = fork();
	if (pid < 0) {
		bf_fail(&err, errno, "cannot start a process: %s", strerror(errno));
		return cli_fail(&err);
	}
	if (!pid)
		exec_daemon(daemon, socks[1], argv + optind);
	close(socks[1]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	cleanup_close int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	status = follow(socks[0], signals);
	close(socks[0]);
	waitpid(pid, NULL, 0);
	bf_end_descendants();
	return status;
}
