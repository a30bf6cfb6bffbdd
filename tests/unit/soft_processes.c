/* belfry-soft with several processes: what is shared and with whom, who may speak for whom, and what is left of one
 * that is killed. */
#include <errno.h>
#include <fcntl.h>
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
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "soft/link/wire.h"
#include "soft_client.h"

enum { ERR_NOT_FOUND = 0x57, PID_INFO_BYTES = 14408, PIDS_BYTES = 3812 };

static struct soft_program program;

static int begin(void **state)
{
	if (soft_folder_new(state))
		return -1;
	soft_start("sms=1,mem=64M,pace=off,cores=1");
	memset(&program, 0, sizeof(program));
	return program_begin(&program);
}

static int end(void **state)
{
	program_close(&program);
	soft_wait_files(0);
	return soft_folder_remove(state);
}

struct use {
	uint64_t private_bytes, owned_bytes, duped_bytes;
};

static struct use use_of(pid_t pid)
{
	static uint8_t info[PID_INFO_BYTES];
	uint32_t count = 1, number = (uint32_t)pid;
	struct use use;

	memset(info, 0, sizeof(info));
	memcpy(info, &count, sizeof(count));
	memcpy(info + 8, &number, sizeof(number));
	assert_int_equal(
		program_control(&program, HANDLE_SUBDEVICE, RM_CTRL_GET_PID_INFO, info, sizeof(info)), 0);
	memcpy(&use, info + 8 + 16, sizeof(use));
	return use;
}

static int share(uint32_t object, uint32_t with, uint8_t action)
{
	struct rm_arg_share arg = { .client = program.client,
				    .object = object,
				    .target = with,
				    .access_mask = 1,
				    .type = 3,
				    .action = action };

	assert_int_equal(link_call(program.control, RM_ESC_SHARE, &arg, sizeof(arg)), 0);
	return (int)arg.status;
}

static int dup_into(const struct soft_program *into, uint32_t client, uint32_t object, uint32_t as)
{
	struct rm_arg_dup arg = { .client = into->client,
				  .parent = HANDLE_DEVICE,
				  .object = as,
				  .source_client = client,
				  .source_object = object };
	int rc = link_call(into->control, RM_ESC_DUP_OBJECT, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

/* A child that does as it is told, one step after the other. */
struct child {
	pid_t pid;
	int sock;
};

static struct child child_new(void (*work)(int sock))
{
	struct child child;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (!child.pid) {
		close(pair[0]);
		close(program.control); /* or they would live on with it */
		close(program.gpu);
		work(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	child.sock = pair[0];
	return child;
}

static uint32_t child_hear(const struct child *child)
{
	uint32_t value;

	assert_int_equal(recv(child->sock, &value, sizeof(value), 0), sizeof(value));
	return value;
}

static void child_tell(const struct child *child, uint32_t value)
{
	assert_int_equal(send(child->sock, &value, sizeof(value), 0), sizeof(value));
}

static void child_end(const struct child *child)
{
	int status;

	close(child->sock);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("the child failed: 0x%x", status);
}

static void say(int sock, uint32_t value)
{
	if (send(sock, &value, sizeof(value), MSG_NOSIGNAL) != sizeof(value))
		_exit(101);
}

static uint32_t hear(int sock)
{
	uint32_t value;

	if (recv(sock, &value, sizeof(value), 0) != sizeof(value))
		_exit(102);
	return value;
}

static void expect(long got, long wanted, int line)
{
	if (got == wanted)
		return;
	fprintf(stderr, "child, line %d: %ld (0x%lx) instead of %ld\n", line, got, got, wanted);
	_exit(103);
}
#define EXPECT(got, wanted) expect((got), (wanted), __LINE__)

/* Duplicates memory 1 of the client it hears of, when told to. */
static void borrow(int sock)
{
	struct soft_program mine = { 0 };
	volatile uint32_t *map;
	uint32_t owner;
	int status;

	EXPECT(program_begin(&mine), 0);
	owner = hear(sock);
	EXPECT(dup_into(&mine, owner, 1, 0x50), RM_ERR_INSUFFICIENT_PERMISSIONS);
	EXPECT(dup_into(&mine, owner, 99, 0x50), ERR_NOT_FOUND);
	EXPECT(dup_into(&mine, 0x4711, 1, 0x50), RM_ERR_INVALID_CLIENT);
	say(sock, mine.client);
	hear(sock); /* it was shared */
	EXPECT(dup_into(&mine, owner, 1, 0x50), 0);
	map = program_map(&mine, 0x50, true, 0, 4096, &status);
	EXPECT(status, 0);
	EXPECT(map[0], 0x4711);
	say(sock, 0);
	hear(sock); /* it was freed there */
	EXPECT(map[0], 0x4711);
	EXPECT(dup_into(&mine, owner, 1, 0x51), ERR_NOT_FOUND);
	say(sock, 0);
	hear(sock);
	program_close(&mine);
}

static void memory_is_duplicated_only_if_it_was_shared(void **state)
{
	uint64_t bytes = SOFT_VIDMEM_ROUND;
	struct child child = child_new(borrow);
	uint32_t other, *map;
	int status;

	(void)state;
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
	map = program_map(&program, 1, true, 0, 4096, &status);
	assert_non_null(map);
	map[0] = 0x4711;
	child_tell(&child, program.client);
	other = child_hear(&child);
	assert_int_equal(share(77, other, 4), ERR_NOT_FOUND);
	assert_int_equal(share(1, 0x4711, 4), RM_ERR_INVALID_CLIENT);
	assert_int_equal(share(1, other, 4), 0);
	assert_int_equal(use_of(getpid()).private_bytes, bytes);
	child_tell(&child, 0);
	child_hear(&child);
	/* Two names: one owns, one borrows. */
	assert_int_equal(use_of(getpid()).private_bytes, 0);
	assert_int_equal(use_of(getpid()).owned_bytes, bytes);
	assert_int_equal(use_of(child.pid).duped_bytes, bytes);
	assert_int_equal(soft_status().used_bytes[0], bytes);
	assert_int_equal(program_free(&program, 1), 0);
	/* It lives on with who has a name for it, and is theirs now. */
	assert_int_equal(use_of(child.pid).private_bytes, bytes);
	assert_int_equal(soft_status().used_bytes[0], bytes);
	child_tell(&child, 0);
	child_hear(&child);
	child_tell(&child, 0);
	child_end(&child);
	soft_wait_files(2);
	assert_int_equal(soft_status().used_bytes[0], 0);
	munmap(map, 4096);
}

static void processes_duplicate_their_own_freely(void **state)
{
	uint64_t bytes = SOFT_VIDMEM_ROUND;
	struct soft_program second = { 0 };

	(void)state;
	assert_int_equal(program_begin(&second), 0);
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
	assert_int_equal(dup_into(&second, program.client, 1, 0), 0);
	assert_int_equal(dup_into(&program, program.client, 1, 2), 0);
	assert_int_equal(dup_into(&program, program.client, HANDLE_SPACE, 3), RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(use_of(getpid()).duped_bytes, 2 * bytes);
	assert_int_equal(share(1, second.client, 1), 0); /* revoked; it was never needed */
	assert_int_equal(dup_into(&second, program.client, 1, 0), 0);
	program_close(&second);
	soft_wait_files(2);
	assert_int_equal(use_of(getpid()).duped_bytes, bytes);
}

static void hold(int sock)
{
	struct soft_program mine = { 0 };
	uint64_t bytes = 60 << 20, address = 0;

	EXPECT(program_begin(&mine), 0);
	EXPECT(program_memory(&mine, 1, true, &bytes), 0);
	EXPECT(program_dma(&mine, 1, bytes, &address, false), 0);
	say(sock, 0);
	pause();
}

static void killed_process_leaves_nothing(void **state)
{
	struct child child = child_new(hold);
	uint64_t bytes = 60 << 20;

	(void)state;
	child_hear(&child);
	assert_int_equal(soft_status().client_count, 2);
	assert_int_equal(program_memory(&program, 1, true, &bytes), RM_ERR_NO_MEMORY);
	assert_int_equal(kill(child.pid, SIGKILL), 0);
	assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
	close(child.sock);
	soft_wait_files(2);
	assert_int_equal(soft_status().client_count, 1);
	assert_int_equal(soft_status().used_bytes[0], 0);
	assert_int_equal(program_memory(&program, 1, true, &bytes), 0);
}

static void users_are_listed(void **state)
{
	static uint8_t pids[PIDS_BYTES];
	struct child child = child_new(hold);
	uint32_t count, pid, class_id = 0x2080;
	bool has_child = false;

	(void)state;
	child_hear(&child);
	memcpy(pids + 4, &class_id, sizeof(class_id));
	assert_int_equal(program_control(&program, HANDLE_SUBDEVICE, RM_CTRL_GET_PIDS, pids, sizeof(pids)),
			 0);
	memcpy(&count, pids + 8, sizeof(count));
	assert_int_equal(count, 2);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&pid, pids + 12 + 4ull * i, sizeof(pid));
		has_child |= (pid_t)pid == child.pid;
	}
	assert_true(has_child);
	kill(child.pid, SIGKILL);
	waitpid(child.pid, NULL, 0);
	close(child.sock);
}

/* As a program under the warden: opens files, and hears that its calls are not taken. */
static void supervised(int sock)
{
	struct rm_arg_alloc root = { .class_id = 0x41 };
	struct soft_status status;
	struct stat st;
	int control;

	hear(sock); /* there is a supervisor */
	control = link_open(soft_folder, SOFT_FILE_CONTROL);
	if (control < 0)
		_exit(104);
	EXPECT(link_call(control, RM_ESC_ALLOC, &root, sizeof(root)), -EPERM);
	EXPECT(root.object, 0);
	EXPECT(link_call_for(control, getpid(), RM_ESC_ALLOC, &root, sizeof(root)), -EPERM);
	EXPECT(link_call_for(control, getppid(), RM_ESC_ALLOC, &root, sizeof(root)), -EPERM);
	EXPECT(link_map_file(control, 0, 4096, 0), -EPERM);
	EXPECT(link_supervise(control, getpid()), -EPERM);
	EXPECT(link_status(soft_folder, &status, NULL), -EPERM);
	EXPECT(link_stop(soft_folder, NULL), -EPERM);
	EXPECT(fstat(control, &st), 0);
	EXPECT(link_what_is(control, st.st_ino), SOFT_FILE_CONTROL);
	say(sock, (uint32_t)getpid());
	hear(sock); /* there is none any more */
	EXPECT(link_call(control, RM_ESC_ALLOC, &root, sizeof(root)), 0);
	EXPECT(root.status, 0);
	close(control);
}

static void supervised_grandchild(int sock)
{
	pid_t child = fork();
	int status;

	if (!child) {
		supervised(sock);
		_exit(0);
	}
	EXPECT(waitpid(child, &status, 0), child);
	EXPECT(status, 0);
}

/* Its own parent ends: it belongs to the supervisor then, which is its subreaper. */
static void supervised_orphan(int sock)
{
	if (!fork()) {
		hear(sock);
		supervised(sock);
		say(sock, 0);
	}
}

static void run_supervised(void (*work)(int sock), bool is_orphan)
{
	struct child child;
	int file;

	if (is_orphan)
		assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	child = child_new(work);
	file = link_open(soft_folder, SOFT_FILE_GPU_0);
	assert_int_equal(link_supervise(file, getpid()), 0);
	assert_int_equal(link_supervise(file, getpid()), 0); /* twice is once */
	if (is_orphan) {
		assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
		child_tell(&child, 0);
	}
	child_tell(&child, 0);
	child_hear(&child);
	close(file);
	soft_wait_files(3); /* ours, and its control file */
	child_tell(&child, 0);
	if (is_orphan) {
		child_hear(&child);
		close(child.sock);
		assert_true(waitpid(-1, NULL, 0) > 0);
		prctl(PR_SET_CHILD_SUBREAPER, 0);
	} else {
		child_end(&child);
	}
}

static void descendants_of_a_supervisor_do_not_speak_for_themselves(void **state)
{
	(void)state;
	run_supervised(supervised, false);
	run_supervised(supervised_grandchild, false);
	run_supervised(supervised_orphan, true);
}

/* Leaves its control file to the supervisor. */
static void leave_file(int sock)
{
	struct wire_files files = { .count = 1 };
	struct iovec part = { "f", 1 };

	hear(sock);
	files.fd[0] = link_open(soft_folder, SOFT_FILE_CONTROL);
	EXPECT(wire_send(sock, &part, 1, &files, 0), 0);
	hear(sock);
}

/* A root: speaks for itself, and has a child that does not. */
static void root_with_a_child(int sock)
{
	struct rm_arg_alloc root = { .class_id = 0x41 };
	pid_t child = fork();
	int control, status;

	if (!child) {
		supervised(sock);
		_exit(0);
	}
	EXPECT(waitpid(child, &status, 0), child);
	EXPECT(status, 0);
	say(sock, 0); /* its child has asked what it is to ask */
	hear(sock);   /* it is a root once more */
	control = link_open(soft_folder, SOFT_FILE_CONTROL);
	EXPECT(link_call(control, RM_ESC_ALLOC, &root, sizeof(root)), 0);
	EXPECT(root.status, 0);
	close(control);
	say(sock, 0);
}

static void only_descendants_of_a_root_are_supervised(void **state)
{
	struct rm_arg_alloc mine = { .class_id = 0x41 };
	struct child child = child_new(root_with_a_child), other = child_new(leave_file);
	int file = link_open(soft_folder, SOFT_FILE_GPU_0), control;

	(void)state;
	assert_int_equal(link_supervise(file, child.pid), 0);
	assert_int_equal(link_supervise(file, other.pid), 0); /* as many as wanted */
	control = link_open(soft_folder, SOFT_FILE_CONTROL);
	assert_int_equal(link_call(control, RM_ESC_ALLOC, &mine, sizeof(mine)), 0); /* above them all */
	/* The root is not spoken for. */
	assert_int_equal(link_call_for(control, child.pid, RM_ESC_ALLOC, &mine, sizeof(mine)), -EPERM);
	close(control);
	child_tell(&child, 0);
	child_hear(&child);
	close(file);
	soft_wait_files(3); /* ours, and the grandchild's control file */
	child_tell(&child, 0);
	child_hear(&child);
	file = link_open(soft_folder, SOFT_FILE_GPU_0);
	assert_int_equal(link_supervise(file, child.pid), 0);
	child_tell(&child, 0);
	child_hear(&child);
	close(file);
	soft_wait_files(2);
	child_end(&child);
	kill(other.pid, SIGKILL);
	waitpid(other.pid, NULL, 0);
	close(other.sock);
}

/* Asks for what it must not have: roots that are another's, or none. Is told the number of another process. */
static void second_supervisor(int sock)
{
	pid_t theirs = (pid_t)hear(sock);
	int file = link_open(soft_folder, SOFT_FILE_GPU_0);

	EXPECT(link_supervise(file, theirs), -EBUSY);	  /* a root */
	EXPECT(link_supervise(file, getppid()), -EINVAL); /* above it: it would be its own supervisor */
	EXPECT(link_supervise(file, 1), -EINVAL);
	EXPECT(link_supervise(file, 0), -EINVAL);
	EXPECT(link_supervise(file, -1), -EINVAL);
	EXPECT(link_supervise(file, 0x7ffffff0), -ESRCH);
	EXPECT(link_supervise(file, getpid()), 0); /* its own descendants are */
	EXPECT(link_supervise(file, getpid()), 0);
	say(sock, 0);
	hear(sock);
	close(file);
}

static void root_has_one_supervisor(void **state)
{
	struct child root = child_new(leave_file), second = child_new(second_supervisor);
	int file = link_open(soft_folder, SOFT_FILE_GPU_0), another = link_open(soft_folder, SOFT_FILE_GPU_0);

	(void)state;
	assert_int_equal(link_supervise(file, root.pid), 0);
	assert_int_equal(link_supervise(another, root.pid), 0); /* the same one, through another file */
	close(file);
	soft_wait_files(3);
	child_tell(&second, (uint32_t)root.pid);
	child_hear(&second);
	assert_int_equal(link_supervise(another, second.pid), -EBUSY);
	child_tell(&second, 0);
	child_end(&second);
	kill(root.pid, SIGKILL);
	waitpid(root.pid, NULL, 0);
	close(root.sock);
	assert_int_equal(link_supervise(another, root.pid), -ESRCH);
	close(another);
	soft_wait_files(2);
}

static void supervisor_speaks_for_its_descendants(void **state)
{
	struct child child = child_new(leave_file), stranger = child_new(leave_file);
	int file = link_open(soft_folder, SOFT_FILE_GPU_0);
	struct rm_arg_alloc root = { .class_id = 0x41 };
	struct soft_program theirs = { .on_behalf = child.pid, .folder = soft_folder, .gpu = -1 };
	struct wire_files files;
	char byte;
	struct iovec part = { &byte, 1 };

	(void)state;
	child_tell(&child, 0);
	assert_int_equal(wire_receive(child.sock, &part, 1, &files, NULL, 0), 1);
	assert_int_equal(files.count, 1);
	theirs.control = files.fd[0];
	/* Not before it has said that it supervises. */
	assert_int_equal(link_call_for(theirs.control, child.pid, RM_ESC_ALLOC, &root, sizeof(root)), -EPERM);
	assert_int_equal(link_supervise(file, getpid()), 0);
	assert_int_equal(link_call_for(theirs.control, 1, RM_ESC_ALLOC, &root, sizeof(root)), -EPERM);
	assert_int_equal(link_call_for(theirs.control, -5, RM_ESC_ALLOC, &root, sizeof(root)), -EINVAL);
	assert_int_equal(link_call_for(theirs.control, child.pid, RM_ESC_ALLOC, &root, sizeof(root)), 0);
	assert_int_equal(root.status, 0);
	theirs.client = root.object;
	/* Counted for whom it was done. */
	uint32_t device[14] = { 0 };
	uint64_t bytes = SOFT_VIDMEM_ROUND;
	assert_int_equal(program_alloc(&theirs, theirs.client, HANDLE_DEVICE, 0x80, device, sizeof(device)),
			 0);
	assert_int_equal(program_memory(&theirs, 1, true, &bytes), 0);
	assert_int_equal(use_of(child.pid).private_bytes, bytes);
	assert_int_equal(use_of(getpid()).private_bytes, 0);
	/* The client lives as long as its file, which we hold too. */
	child_tell(&child, 0);
	child_end(&child);
	assert_int_equal(soft_status().client_count, 2);
	close(theirs.control);
	close(file);
	soft_wait_files(2);
	assert_int_equal(soft_status().client_count, 1);
	kill(stranger.pid, SIGKILL);
	waitpid(stranger.pid, NULL, 0);
	close(stranger.sock);
}

/* A raw message, with or without a place for the answer; the answer's rc, or -1 if there was none. */
static int send_raw(int sock, const void *bytes, size_t count, unsigned file_count)
{
	struct wire_files files = { .count = file_count }, got_files;
	struct iovec part = { (void *)(uintptr_t)bytes, count };
	struct soft_reply reply = { .rc = -1 };
	struct iovec answer = { &reply, sizeof(reply) };
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	for (unsigned i = 0; i < file_count; i++)
		files.fd[i] = pair[1];
	if (wire_send(sock, &part, 1, &files, 0))
		reply.rc = -2;
	close(pair[1]);
	if (reply.rc == -1 &&
	    wire_receive(pair[0], &answer, 1, &got_files, NULL, 0) == (ssize_t)sizeof(reply))
		wire_close_files(&got_files);
	close(pair[0]);
	return reply.rc;
}

static unsigned count_files(pid_t pid)
{
	char path[64], command[128];
	unsigned count;
	FILE *out;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	snprintf(command, sizeof(command), "ls %s | wc -l", path);
	out = popen(command, "r");
	assert_non_null(out);
	assert_int_equal(fscanf(out, "%u", &count), 1);
	pclose(out);
	return count;
}

struct garbage {
	struct soft_request head;
	uint8_t body[70000];
};

static void send_garbage(struct garbage *message)
{
	const size_t head = sizeof(message->head);

	message->head = (struct soft_request){ .magic = SOFT_MAGIC, .kind = SOFT_REQUEST_CALL };
	assert_int_equal(send_raw(program.control, message, 0, 0), -1);
	assert_int_equal(send_raw(program.control, message, 0, 1), -1);
	assert_int_equal(send_raw(program.control, message, 1, 1), -1);
	assert_int_equal(send_raw(program.control, message, head - 1, 1), -1);
	assert_int_equal(send_raw(program.control, message, head, 0), -1);
	assert_int_equal(send_raw(program.control, message, head, 5), -EINVAL);
	assert_int_equal(send_raw(program.control, message, sizeof(*message), 2), -EINVAL);
	message->head.arg_bytes = SOFT_ARG_MAX + 1;
	assert_int_equal(send_raw(program.control, message, head + SOFT_ARG_MAX + 1, 1), -EINVAL);
	message->head.arg_bytes = UINT32_MAX;
	message->head.params_bytes = 1;
	assert_int_equal(send_raw(program.control, message, head, 1), -EINVAL);
	message->head.arg_bytes = message->head.params_bytes = 0;
	for (uint32_t kind = 0; kind < 20; kind++) {
		message->head.kind = kind;
		if (kind != SOFT_REQUEST_SUPERVISE && kind != SOFT_REQUEST_STOP)
			assert_true(send_raw(program.control, message, head, 1) < 0);
	}
	message->head.magic = 1;
	assert_int_equal(send_raw(program.control, message, head, 1), -1);
}

static void garbage_is_refused_and_leaks_nothing(void **state)
{
	enum { ROUNDS = 30, UNDER_WAY = 4 }; /* connections of our own that are just being closed */
	struct garbage *message = calloc(1, sizeof(*message));
	pid_t server = (pid_t)soft_status().pid;
	unsigned before = count_files(server);

	(void)state;
	assert_non_null(message);
	for (int i = 0; i < ROUNDS; i++)
		send_garbage(message);
	/* It goes on, and holds nothing of all that. */
	assert_int_equal(program_free(&program, HANDLE_SPACE), 0);
	assert_true(count_files(server) <= before + UNDER_WAY);
	/* Shut down for one direction, the file is as good as closed. */
	assert_int_equal(shutdown(program.control, SHUT_WR), 0);
	soft_wait_files(1);
	assert_int_equal(soft_status().client_count, 0);
	free(message);
}

/* A program that never reads its answers, and one that names files which are none. */
static void strange_files_do_no_harm(void **state)
{
	int null = open("/dev/null", O_RDWR), status;
	struct {
		struct soft_request head;
		struct rm_arg_free arg;
	} message = { .head = { .magic = SOFT_MAGIC,
				.kind = SOFT_REQUEST_CALL,
				.nr = RM_ESC_FREE,
				.arg_bytes = sizeof(message.arg) } };
	struct wire_files files = { .fd = { null }, .count = 1 };
	struct iovec part = { &message, sizeof(message) };
	struct rm_arg_map map = {
		.client = program.client, .device = HANDLE_DEVICE, .memory = 1, .length = 4096, .fd = null
	};
	uint64_t bytes = 4096;

	(void)state;
	for (int i = 0; i < 100; i++)
		assert_int_equal(wire_send(program.control, &part, 1, &files, 0), 0);
	assert_int_equal(program_memory(&program, 1, false, &bytes), 0);
	assert_int_equal(link_call(program.control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	assert_int_equal(map.status, RM_ERR_INVALID_ARGUMENT);
	map.fd = 9999;
	assert_int_equal(link_call(program.control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	assert_int_equal(map.status, RM_ERR_INVALID_ARGUMENT);
	assert_non_null(program_map(&program, 1, false, 0, bytes, &status));
	close(null);
}

#define WITH_PROGRAM(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PROGRAM(memory_is_duplicated_only_if_it_was_shared),
		WITH_PROGRAM(processes_duplicate_their_own_freely),
		WITH_PROGRAM(killed_process_leaves_nothing),
		WITH_PROGRAM(users_are_listed),
		WITH_PROGRAM(descendants_of_a_supervisor_do_not_speak_for_themselves),
		WITH_PROGRAM(supervisor_speaks_for_its_descendants),
		WITH_PROGRAM(only_descendants_of_a_root_are_supervised),
		WITH_PROGRAM(root_has_one_supervisor),
		WITH_PROGRAM(garbage_is_refused_and_leaks_nothing),
		WITH_PROGRAM(strange_files_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
