/* soft/link: what a software GPU is to be like, and finding or starting it. */
#include "soft/link/link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "soft_client.h"

static void configuration_left_out_is_the_default(void **state)
{
	struct link_config config;

	(void)state;
	assert_int_equal(link_config_parse("", &config, NULL), 0);
	assert_memory_equal(&config, &link_default, sizeof(config));
	assert_false(config.is_given);
	assert_int_equal(link_config_parse("name=x-1", &config, NULL), 0);
	assert_string_equal(config.name, "x-1");
	assert_false(config.is_given);
	assert_int_equal(link_config_parse("sms=3", &config, NULL), 0);
	assert_int_equal(config.sms, 3);
	assert_int_equal(config.gpus, link_default.gpus);
	assert_true(config.is_given);
}

static void configuration_is_read_back_as_it_was_written(void **state)
{
	static const char text[] = "gpus=8,sms=256,mem=1T,rate=1K,pace=off,cores=256,linger=86400,name=a_b-9";
	struct link_config config, again;
	char written[256], small[20];

	(void)state;
	assert_int_equal(link_config_parse(text, &config, NULL), 0);
	assert_int_equal(config.mem_bytes, 1ull << 40);
	assert_int_equal(config.rate, 1000);
	assert_false(config.is_paced);
	assert_int_equal(link_config_format(&config, written, sizeof(written)), 0);
	assert_string_equal(written, text);
	assert_int_equal(link_config_parse(written, &again, NULL), 0);
	assert_memory_equal(&config, &again, sizeof(config));
	assert_int_not_equal(link_config_format(&config, small, sizeof(small)), 0);
	assert_int_equal(link_config_parse("mem=65M,rate=1025", &config, NULL), 0);
	assert_int_equal(link_config_format(&config, written, sizeof(written)), 0);
	assert_non_null(strstr(written, "mem=65M,rate=1025,"));
}

static void wrong_configuration_is_refused_with_what_is_wrong(void **state)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{ "gpus=0", "gpus '0': not a number from 1 to 8" },
		{ "gpus=9", "from 1 to 8" },
		{ "sms=257", "from 1 to 256" },
		{ "sms=", "sms ''" },
		{ "mem=63M", "64 MiB to 1 TiB" },
		{ "mem=2T", "64 MiB to 1 TiB" },
		{ "mem=lots", "mem: size 'lots'" },
		{ "rate=999", "rate '999'" },
		{ "pace=maybe", "not on or off" },
		{ "cores=257", "from 0 to 256" },
		{ "linger=-1", "from 0 to 86400" },
		{ "name=", "not a name" },
		{ "name=Default", "not a name" },
		{ "name=../x", "not a name" },
		{ "name=abcdefghijklmnopqrstuvwxyz012345", "not a name" },
		{ "speed=9", "'speed': unknown; known are gpus" },
		{ "gpus", "'gpus': not KEY=VALUE" },
		{ "gpus=1,,sms=2", "'': not KEY=VALUE" },
	};
	struct link_config config = { .gpus = 77 };
	char longest[400];
	struct bf_error err;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		memset(&err, 0, sizeof(err));
		assert_int_not_equal(link_config_parse(wrong[i].text, &config, &err), 0);
		if (!strstr(err.text, wrong[i].says))
			fail_msg("%s: said '%s'", wrong[i].text, err.text);
		assert_int_equal(config.gpus, 77); /* left alone */
	}
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = 0;
	assert_int_equal(link_config_parse(longest, &config, &err), -EINVAL);
}

static void folder_is_below_the_runtime_folder(void **state)
{
	char folder[108], wanted[128], above[64], small[8];

	(void)state;
	snprintf(above, sizeof(above), "%s", soft_folder);
	unsetenv("BELFRY_SOFT_DIR");
	setenv("BELFRY_RUNTIME_DIR", above, 1);
	snprintf(wanted, sizeof(wanted), "%s/soft-x", above);
	assert_int_equal(link_folder("x", folder, sizeof(folder), NULL), 0);
	assert_string_equal(folder, wanted);
	assert_int_equal(access(wanted, F_OK), 0);
	assert_int_equal(link_folder("x", small, sizeof(small), NULL), -ENAMETOOLONG);
	unsetenv("BELFRY_RUNTIME_DIR");
}

static void nobody_there_is_told(void **state)
{
	struct soft_status status;
	struct bf_error err = { 0 };

	(void)state;
	assert_int_equal(link_open(soft_folder, SOFT_FILE_CONTROL), -ENOENT);
	assert_int_equal(link_status(soft_folder, &status, &err), -ENOENT);
	assert_non_null(strstr(err.text, "no software GPU runs here"));
	assert_int_equal(link_stop(soft_folder, NULL), -ENOENT);
}

static void it_is_started_once_and_found_again(void **state)
{
	struct soft_status first;
	char path[128];
	struct stat st;

	(void)state;
	soft_start("gpus=2,sms=3,mem=64M,rate=2M,cores=1,pace=off");
	first = soft_status();
	assert_int_equal(first.gpu_count, 2);
	assert_int_equal(first.sm_count, 3);
	assert_int_equal(first.mem_bytes, 64 << 20);
	assert_int_equal(first.rate, 2000000);
	assert_int_equal(first.is_paced, 0);
	assert_int_equal(first.cores, 1);
	soft_start("");
	assert_int_equal(soft_status().pid, first.pid);
	soft_start("gpus=2,sms=3,mem=64M,rate=2M,cores=1,pace=off");
	assert_int_equal(soft_status().pid, first.pid);
	snprintf(path, sizeof(path), "%s/socket", soft_folder);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void it_is_no_child_of_ours(void **state)
{
	char path[64], name[64];
	FILE *stat_file;
	int parent;

	(void)state;
	soft_start("mem=64M,sms=1");
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	snprintf(path, sizeof(path), "/proc/%u/stat", soft_status().pid);
	stat_file = fopen(path, "re");
	assert_non_null(stat_file);
	assert_int_equal(fscanf(stat_file, "%*d %63s %*c %d", name, &parent), 2);
	assert_int_not_equal(parent, getpid());
	fclose(stat_file);
}

/* A file of ours that it held open would keep a pipe or a device busy. */
static void it_inherits_no_files(void **state)
{
	int ends[2];
	char byte;

	(void)state;
	assert_int_equal(pipe(ends), 0); /* not close-on-exec */
	soft_start("mem=64M,sms=1");
	close(ends[1]);
	assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}

static void another_configuration_is_refused_and_told(void **state)
{
	struct link_config config;
	struct bf_error err = { 0 };
	char folder[108];

	(void)state;
	soft_start("mem=64M,sms=1");
	assert_int_equal(link_config_parse("mem=128M,sms=1", &config, &err), 0);
	assert_int_equal(link_start(soft_server_path(), &config, folder, sizeof(folder), &err), -EBUSY);
	assert_non_null(strstr(err.text, "mem=64M"));
	assert_non_null(strstr(err.text, "belfry soft stop"));
}

static void failure_to_start_tells_why(void **state)
{
	struct link_config config = link_default;
	struct bf_error err = { 0 };
	char folder[108], path[128];

	(void)state;
	assert_int_not_equal(link_start("/no/such/server", &config, folder, sizeof(folder), &err), 0);
	assert_non_null(strstr(err.text, "/no/such/server"));
	assert_int_not_equal(link_start("/bin/false", &config, folder, sizeof(folder), &err), 0);
	assert_non_null(strstr(err.text, "did not start"));
	/* Something in the place of its socket that cannot be removed. */
	snprintf(path, sizeof(path), "%s/socket", soft_folder);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_not_equal(link_start(soft_server_path(), &config, folder, sizeof(folder), &err), 0);
	if (!strstr(err.text, "socket"))
		fail_msg("%s", err.text);
}

static void socket_of_a_killed_one_is_replaced(void **state)
{
	uint32_t first;
	int fd;

	(void)state;
	soft_start("mem=64M,sms=1");
	first = soft_status().pid;
	fd = link_open(soft_folder, SOFT_FILE_CONTROL);
	assert_true(fd >= 0);
	assert_int_equal(kill((pid_t)first, SIGKILL), 0);
	soft_wait_end();
	assert_int_equal(link_what_is(fd, 1), -ENODEV);
	close(fd);
	soft_start("mem=128M,sms=1");
	assert_int_not_equal(soft_status().pid, first);
	assert_int_equal(soft_status().mem_bytes, 128 << 20);
}

static pid_t run_server(const char *config)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, 2);
		execl(soft_server_path(), "belfry-soft", "--folder", soft_folder, "--config", config,
		      (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void of_many_started_at_once_one_serves(void **state)
{
	enum { COUNT = 6 };
	pid_t pids[COUNT];
	unsigned ended = 0;
	int status;

	(void)state;
	for (int i = 0; i < COUNT; i++)
		pids[i] = run_server("mem=64M,sms=1,cores=1");
	while (ended < COUNT - 1) {
		pid_t pid = wait(&status);

		assert_true(pid > 0);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		ended++;
	}
	status = (int)soft_status().pid;
	assert_true(status == pids[0] || status == pids[1] || status == pids[2] || status == pids[3] ||
		    status == pids[4] || status == pids[5]);
	assert_int_equal(link_stop(soft_folder, NULL), 0);
	assert_true(wait(&status) > 0);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void programs_that_start_at_once_share_one(void **state)
{
	enum { COUNT = 6 };
	int status;

	(void)state;
	for (int i = 0; i < COUNT; i++)
		if (fork() == 0) {
			struct link_config config;
			char folder[108];
			int fd;

			if (link_config_parse("mem=64M,sms=1,linger=0", &config, NULL) ||
			    link_start(soft_server_path(), &config, folder, sizeof(folder), NULL))
				_exit(1);
			fd = link_open(folder, SOFT_FILE_CONTROL);
			_exit(fd < 0 ? 2 : 0);
		}
	for (int i = 0; i < COUNT; i++) {
		assert_true(wait(&status) > 0);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

static void it_ends_when_the_last_file_is_closed(void **state)
{
	char path[128];
	int first, second;

	(void)state;
	soft_start("mem=64M,sms=1,linger=0");
	first = link_open(soft_folder, SOFT_FILE_CONTROL);
	second = link_open(soft_folder, SOFT_FILE_GPU_0);
	assert_true(first >= 0 && second >= 0);
	close(first);
	soft_wait_files(1);
	close(second);
	soft_wait_end();
	snprintf(path, sizeof(path), "%s/socket", soft_folder);
	assert_int_equal(access(path, F_OK), -1);
}

static void it_ends_by_signal_and_files_say_so(void **state)
{
	char path[128];
	int fd;

	(void)state;
	soft_start("mem=64M,sms=1");
	fd = link_open(soft_folder, SOFT_FILE_CONTROL);
	assert_true(fd >= 0);
	assert_int_equal(kill((pid_t)soft_status().pid, SIGTERM), 0);
	soft_wait_end();
	snprintf(path, sizeof(path), "%s/socket", soft_folder);
	assert_int_equal(access(path, F_OK), -1);
	while (link_what_is(fd, 1) != -ENODEV)
		usleep(1000);
	close(fd);
}

static void files_are_known_by_inode(void **state)
{
	struct stat st;
	int control, gpu, other;

	(void)state;
	soft_start("gpus=2,mem=64M,sms=1");
	control = link_open(soft_folder, SOFT_FILE_CONTROL);
	gpu = link_open(soft_folder, 1);
	assert_int_equal(link_open(soft_folder, 2), -ENODEV);
	other = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_int_equal(fstat(control, &st), 0);
	assert_int_equal(link_what_is(gpu, st.st_ino), SOFT_FILE_CONTROL);
	assert_int_equal(fstat(gpu, &st), 0);
	assert_int_equal(link_what_is(control, st.st_ino), 1);
	assert_int_equal(fstat(other, &st), 0);
	assert_int_equal(link_what_is(control, st.st_ino), -ENOENT);
	close(control);
	close(gpu);
	close(other);
}

/* What a program's filter is once its GPU server has died: nobody listens, and the calls are not made. */
static bool filter_alone(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 1, 0), /* of no file */
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static void supervisor_that_died_is_told(void **state)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };
	int fd, status;
	pid_t pid;

	(void)state;
	soft_start("mem=64M,sms=1");
	fd = link_open(soft_folder, SOFT_FILE_CONTROL);
	assert_true(fd >= 0);
	pid = fork();
	if (!pid) {
		if (!filter_alone())
			_exit(77);
		if (link_call(fd, RM_ESC_ALLOC, &arg, sizeof(arg)) != -ENODEV)
			_exit(1);
		_exit(link_map(fd, NULL, 4096, PROT_READ, 0) == MAP_FAILED && errno == ENODEV ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(fd);
	assert_int_equal(status, 0);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, soft_folder_new, soft_folder_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(configuration_left_out_is_the_default),
		cmocka_unit_test(configuration_is_read_back_as_it_was_written),
		cmocka_unit_test(wrong_configuration_is_refused_with_what_is_wrong),
		IN_FOLDER(folder_is_below_the_runtime_folder),
		IN_FOLDER(nobody_there_is_told),
		IN_FOLDER(it_is_started_once_and_found_again),
		IN_FOLDER(it_is_no_child_of_ours),
		IN_FOLDER(it_inherits_no_files),
		IN_FOLDER(another_configuration_is_refused_and_told),
		IN_FOLDER(failure_to_start_tells_why),
		IN_FOLDER(socket_of_a_killed_one_is_replaced),
		IN_FOLDER(of_many_started_at_once_one_serves),
		IN_FOLDER(programs_that_start_at_once_share_one),
		IN_FOLDER(it_ends_when_the_last_file_is_closed),
		IN_FOLDER(it_ends_by_signal_and_files_say_so),
		IN_FOLDER(files_are_known_by_inode),
		IN_FOLDER(supervisor_that_died_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
