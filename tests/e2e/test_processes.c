/* Threads, processes and descriptors: whatever a program is made of, it is one vGPU, and when it is gone,
 * however it went, nothing of it is left. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/process.h"
#include "stage.h"

#define MIB CARD_MIB
#define NO_MEMORY RM_ERR_NO_MEMORY

static void wait_well(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQUAL(status, 0);
}

struct worker {
	struct actor *actor;
	uint32_t first;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < 50; i++) {
		CHECK_EQUAL(actor_memory(w->actor, STAGE_DEVICE, w->first + i % 3, 1), 0);
		CHECK_EQUAL(actor_free(w->actor, STAGE_DEVICE, w->first + i % 3), 0);
	}
	return NULL;
}

static void program_has_threads(struct actor *a)
{
	enum { THREADS = 4 };
	struct worker workers[THREADS];
	pthread_t threads[THREADS];

	actor_new_device(a);
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ a, STAGE_MEMORY + 100 * i };
		CHECK(!pthread_create(&threads[i], NULL, worker_main, &workers[i]));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
}

static void threads_share_one_client(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_has_threads, 0);
	stage_end_well(&s);
}

/* A thread with a descriptor table of its own: its numbers mean other files. */
static _Atomic pid_t apart_tid;

static void *apart_main(void *arg)
{
	struct actor *outer = arg, own = *outer;

	apart_tid = gettid();
	CHECK(!unshare(CLONE_FILES));
	CHECK(!close(outer->control)); /* here; the other threads still have it */
	own.control = -1;
	actor_new_device(&own);
	CHECK_EQUAL(own.control, outer->control); /* the same number for another file */
	CHECK(own.client != outer->client);
	CHECK_EQUAL(actor_memory(&own, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK_EQUAL(actor_memory(&own, STAGE_DEVICE, STAGE_MEMORY + 1, 8 * MIB), NO_MEMORY);
	return NULL;
}

static void program_has_a_thread_apart(struct actor *a)
{
	pthread_t thread;
	char path[48];

	actor_new_device(a);
	CHECK(!pthread_create(&thread, NULL, apart_main, a));
	pthread_join(thread, NULL);
	/* Joined is not gone: its files are closed a little later. */
	snprintf(path, sizeof(path), "/proc/self/task/%d", apart_tid);
	while (!access(path, F_OK))
		sched_yield();
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0); /* the thread's went with it */
}

static void thread_with_its_own_files_is_served(void)
{
	int fd = bf_pidfd_open_thread(getpid());
	struct stage s;

	if (fd < 0) {
		check_skip("this kernel has no descriptors for threads (6.9)");
		return;
	}
	close(fd);
	stage_start(&s, 8 * MIB, program_has_a_thread_apart, 0);
	stage_end_well(&s);
}

static void program_has_children(struct actor *a)
{
	enum { CHILDREN = 8 };
	int ready[2], go[2][2];
	pid_t children[CHILDREN];
	char byte = 0;

	CHECK(!pipe2(ready, O_CLOEXEC) && !pipe2(go[0], O_CLOEXEC) && !pipe2(go[1], O_CLOEXEC));
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		actor_new_device(a);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
		CHECK(write(ready[1], &byte, 1) == 1);
		CHECK(read(go[0][0], &byte, 1) == 1);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 1), NO_MEMORY);
		CHECK(write(ready[1], &byte, 1) == 1);
		CHECK(read(go[1][0], &byte, 1) == 1);
		_exit(0);
	}
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < CHILDREN; i++)
			CHECK(read(ready[0], &byte, 1) == 1);
		if (!round)
			actor_say(a, 'r');
		for (int i = 0; i < CHILDREN; i++)
			CHECK(write(go[round][1], &byte, 1) == 1);
	}
	for (int i = 0; i < CHILDREN; i++)
		wait_well(children[i]);
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 16 * MIB),
		    0); /* all of theirs is there again */
}

static void processes_share_one_limit(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 16 * MIB, program_has_children, 0);
	stage_until(&s, 'r');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.processes, 8);
	CHECK_EQUAL(report.mem_used_bytes, 16 * MIB);
	CHECK_EQUAL(report.mem_driver_bytes, 16 * MIB);
	for (int i = 0; i < 8; i++)
		CHECK_EQUAL(report.process[i].used_bytes, 2 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* A forked child goes on with the client its parent made, after the parent's death too. */
static void program_leaves_its_client_to_a_child(struct actor *a)
{
	int alive[2];
	char byte;

	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK(!pipe2(alive, O_CLOEXEC));
	if (fork() == 0) {
		close(alive[1]);
		CHECK(read(alive[0], &byte, 1) == 0); /* the parent is gone */
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 6 * MIB + 1), NO_MEMORY);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 6 * MIB), 0);
		actor_say(a, 'c');
		_exit(0);
	}
	_exit(0);
}

static void client_outlives_the_process_that_made_it(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_leaves_its_client_to_a_child, 0);
	while (!s.has_ended)
		stage_serve(&s, 1);
	s.has_ended = false; /* listen on: the child speaks */
	stage_until(&s, 'c');
	s.has_ended = true;
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Double fork and a session of its own: no way out of supervision. */
static void program_hides(struct actor *a)
{
	pid_t first = fork();

	if (!first) {
		if (fork())
			_exit(0);
		CHECK(setsid() > 0);
		actor_new_device(a);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB + 1), NO_MEMORY);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
		actor_say(a, 'h');
		_exit(0);
	}
	wait_well(first);
	actor_say(a, 'p');
}

static void process_that_ran_away_is_still_supervised(void)
{
	struct warden_report report;
	struct stage s;
	char said[2] = { 0 };

	stage_start(&s, 8 * MIB, program_hides, 0);
	/* Both speak, in either order. */
	for (int i = 0; i < 2; i++) {
		while (card_used_bytes(&s.card) != 8 * MIB)
			stage_serve(&s, 1);
		CHECK(read(s.hear, &said[i], 1) == 1);
	}
	CHECK(said[0] + said[1] == 'h' + 'p');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* exec: the filter stays, the files that are closed on exec take their clients along. */
static void program_execs(struct actor *a)
{
	char hear[16], say[16];

	actor_context(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	fcntl(a->say, F_SETFD, 0);
	fcntl(a->hear, F_SETFD, 0);
	snprintf(say, sizeof(say), "%d", a->say);
	snprintf(hear, sizeof(hear), "%d", a->hear);
	execl("/proc/self/exe", "test_processes", "after-exec", a->folder, say, hear, NULL);
	CHECK(!"exec");
}

static int after_exec(char **argv)
{
	struct actor a = { .folder = argv[2], .say = atoi(argv[3]), .hear = atoi(argv[4]) };

	actor_new_device(&a);
	CHECK_EQUAL(actor_memory(&a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
	CHECK_EQUAL(actor_memory(&a, STAGE_DEVICE, STAGE_MEMORY + 1, 1), NO_MEMORY);
	actor_say(&a, 'e');
	_exit(7);
}

static void exec_keeps_the_filter_and_frees_what_it_closes(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_execs, 0);
	stage_until(&s, 'e');
	CHECK_EQUAL(card_used_bytes(&s.card), 8 * MIB);
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_go_on(&s);
	CHECK_EQUAL(stage_end(&s), 7 << 8);
}

static void program_moves_its_files(struct actor *a)
{
	int high, old;

	actor_new_device(a);
	old = a->control;
	high = dup2(old, 200);
	CHECK_EQUAL(high, 200);
	close(old);
	a->control = high;
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	/* Another file at the old number is another file. */
	CHECK_EQUAL(dup2(STDERR_FILENO, old), old);
	actor_say(a, 'm');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 6 * MIB), 0);
}

static void files_are_found_again_wherever_they_moved(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_moves_its_files, 0);
	stage_until(&s, 'm');
	warden_report(s.warden, &report); /* looks the control file up */
	CHECK_EQUAL(report.mem_used_bytes, 2 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* A control file passed over a socket to another process, whose own copy then is the last. */
static void program_passes_its_file(struct actor *a)
{
	int socks[2];
	pid_t receiver;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	receiver = fork();
	if (!receiver) {
		struct actor own = *a;
		char byte;

		own.control = bf_recv_fd(socks[1]);
		CHECK(own.control >= 0);
		CHECK(read(socks[1], &own.client, 4) == 4);
		CHECK(read(socks[1], &byte, 1) == 1); /* the sender has closed its own */
		CHECK_EQUAL(actor_memory(&own, STAGE_DEVICE, STAGE_MEMORY + 1, 6 * MIB + 1), NO_MEMORY);
		CHECK_EQUAL(actor_memory(&own, STAGE_DEVICE, STAGE_MEMORY + 1, 6 * MIB), 0);
		actor_say(a, 's');
		_exit(0);
	}
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK(!bf_send_fd(socks[0], a->control));
	CHECK(write(socks[0], &a->client, 4) == 4);
	close(a->control);
	CHECK(write(socks[0], "c", 1) == 1);
	wait_well(receiver);
	/* Its end was the client's. */
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
}

static void passed_files_carry_their_client(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_passes_its_file, 0);
	stage_until(&s, 's');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_makes_contexts_for_ever(struct actor *a)
{
	for (unsigned i = 0;; i++) {
		struct actor own = *a;

		actor_context(&own);
		if (i == 0)
			actor_tell(a, 'k');
		for (int k = 0; k < 20; k++)
			actor_ring(&own);
		CHECK_EQUAL(actor_memory(&own, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
		close(own.gpu);
		if (i % 2)
			CHECK_EQUAL(actor_free(&own, own.client, own.client), 0);
		munmap((void *)(uintptr_t)own.bell, 0x10000);
		close(own.control);
	}
}

/* At any instant: the program is in a call, before one, after one, ringing, or not yet there. */
static void killed_at_random_it_leaves_nothing(void)
{
	srand(4711);
	for (int i = 0; i < 200; i++) {
		unsigned steps = (unsigned)rand() % 60;
		struct stage s;

		stage_start(&s, 8 * MIB, program_makes_contexts_for_ever, 0);
		if (i % 4)
			stage_until(&s, 'k');
		for (unsigned step = 0; step < steps; step++)
			warden_work(s.warden);
		kill(s.pid, SIGKILL);
		CHECK_EQUAL(stage_end(&s), SIGKILL);
	}
}

static void program_exits_in_the_middle(struct actor *a)
{
	actor_context(a);
	actor_ring(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	_exit(42);
}

static void exit_without_freeing_leaves_nothing(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_exits_in_the_middle, 0);
	CHECK_EQUAL(stage_end(&s), 42 << 8);
}

/* A client that one process makes and its child alone uses: the driver counts for the maker. */
static void program_makes_a_client_for_its_child(struct actor *a)
{
	pid_t child;
	int status;

	actor_new_client(a);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		actor_use_client(a);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 4 * MIB), 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	actor_say(a, 'l');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 6 * MIB), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 4 * MIB), 0);
}

static void client_left_to_a_child_is_its_makers(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_makes_a_client_for_its_child, 0);
	stage_until(&s, 'l');
	for (int i = 0; i < 3; i++)
		warden_audit(s.warden); /* must not take it for memory that nobody gave */
	CHECK(!s.has_ended);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What a process submitted before it died still runs if another holds its client; a stop must reach it. */
static void program_leaves_work_to_a_child(struct actor *a)
{
	int alive[2];
	char byte;

	actor_context(a);
	actor_ring(a);
	actor_say(a, 'w');
	CHECK(!pipe2(alive, O_CLOEXEC));
	if (fork() == 0) {
		close(alive[1]);
		CHECK(read(alive[0], &byte, 1) == 0); /* the parent is gone */
		actor_say(a, 'c');
	}
	_exit(0);
}

static void stop_reaches_channels_whose_maker_has_died(void)
{
	struct card_channel channel;
	struct bf_error err;
	struct stage s;

	stage_start(&s, 8 * MIB, program_leaves_work_to_a_child, 0);
	stage_until(&s, 'w');
	stage_until_done(&s, 0, 1);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	s.has_ended = false; /* listen on: the child speaks */
	stage_until(&s, 'c');
	s.has_ended = true;
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	CHECK(card_channel(&s.card, STAGE_CHANNEL, &channel) && channel.is_disabled);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	CHECK(card_channel(&s.card, STAGE_CHANNEL, &channel) && !channel.is_disabled);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(int argc, char **argv)
{
	if (argc == 5)
		return after_exec(argv);
	STAGE_TEST(stop_reaches_channels_whose_maker_has_died);
	STAGE_TEST(client_left_to_a_child_is_its_makers);
	STAGE_TEST(threads_share_one_client);
	STAGE_TEST(thread_with_its_own_files_is_served);
	STAGE_TEST(processes_share_one_limit);
	STAGE_TEST(client_outlives_the_process_that_made_it);
	STAGE_TEST(process_that_ran_away_is_still_supervised);
	STAGE_TEST(exec_keeps_the_filter_and_frees_what_it_closes);
	STAGE_TEST(files_are_found_again_wherever_they_moved);
	STAGE_TEST(passed_files_carry_their_client);
	STAGE_TEST(exit_without_freeing_leaves_nothing);
	STAGE_TEST(killed_at_random_it_leaves_nothing);
	return check_status();
}
