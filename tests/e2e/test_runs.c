/* Several runs on one warden, which several threads use; and a warden that reaches its programs by somebody else. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "stage.h"

#define MIB CARD_MIB

static struct stage_setup setup_two(uint64_t mem_bytes, stage_program second, long arg)
{
	return (struct stage_setup){ .options = { .mem_bytes = mem_bytes, .interleave = -1 },
				     .second = second,
				     .second_arg = arg };
}

static void program_takes_memory(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, (uint64_t)a->arg), 0);
	actor_say(a, 'm');
}

static void program_takes_what_is_left(struct actor *a)
{
	actor_new_device(a);
	actor_say(a, 'n');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, (uint64_t)a->arg + 1), RM_ERR_NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, (uint64_t)a->arg), 0);
	actor_say(a, 'm');
}

static void runs_share_one_limit(void)
{
	struct stage_setup setup = setup_two(8 * MIB, program_takes_what_is_left, 2 * MIB);
	struct warden_report report;
	struct stage s;

	stage_start_as(&s, &setup, program_takes_memory, 6 * MIB);
	stage_until(&s, 'm');
	stage_until_second(&s, 'n');
	stage_second_goes_on(&s);
	stage_until_second(&s, 'm');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.processes, 2);
	CHECK_EQUAL(report.mem_used_bytes, 8 * MIB);
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_second_goes_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

static void program_rings_on(struct actor *a)
{
	actor_context(a);
	for (int i = 0; i < 3; i++) {
		actor_ring(a);
		actor_say(a, 'r');
	}
}

static void program_stays(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 's');
	pause();
}

static bool has_process(struct warden *warden, pid_t pid)
{
	struct warden_report report;

	warden_report(warden, &report);
	for (uint32_t i = 0; i < report.processes; i++)
		if (report.process[i].pid == pid)
			return true;
	return false;
}

static void run_that_is_ended_leaves_the_other_alone(void)
{
	struct stage_setup setup = setup_two(8 * MIB, program_stays, 0);
	struct stage s;

	stage_start_as(&s, &setup, program_rings_on, 0);
	stage_until(&s, 'r');
	stage_until_second(&s, 's');
	CHECK_EQUAL(card_used_bytes(&s.card), 4 * MIB);
	CHECK(has_process(s.warden, s.pid) && has_process(s.warden, s.second.pid));
	warden_end_run(s.warden, STAGE_SECOND_RUN, "the test says so");
	warden_end_run(s.warden, STAGE_SECOND_RUN, "once more"); /* changes nothing */
	warden_end_run(s.warden, 77, "nobody");
	while (!s.second.has_ended || has_process(s.warden, s.second.pid) ||
	       card_used_bytes(&s.card) != 2 * MIB)
		stage_serve(&s, 1);
	CHECK(!s.is_over && has_process(s.warden, s.pid));
	CHECK_EQUAL(s.second.status, SIGKILL);
	stage_until_done(&s, 0, 1);
	stage_go_on(&s);
	stage_until(&s, 'r');
	stage_until_done(&s, 0, 2);
	stage_go_on(&s);
	stage_until(&s, 'r');
	stage_go_on(&s);
	stage_end_well(&s);
}

static void run_that_ends_leaves_the_other_alone(void)
{
	struct stage_setup setup = setup_two(8 * MIB, program_takes_memory, MIB);
	struct stage s;

	stage_start_as(&s, &setup, program_rings_on, 0);
	stage_until(&s, 'r');
	stage_until_second(&s, 'm');
	stage_second_goes_on(&s);
	while (has_process(s.warden, s.second.pid))
		stage_serve(&s, 1);
	CHECK(!s.is_over && has_process(s.warden, s.pid));
	for (int i = 0; i < 2; i++) {
		stage_go_on(&s);
		stage_until(&s, 'r');
	}
	stage_go_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

static void number_that_is_taken_is_refused(void)
{
	struct bf_error err = { 0 };
	struct stage s;

	stage_start(&s, 8 * MIB, program_takes_memory, MIB);
	stage_until(&s, 'm');
	/* What was given is closed all the same: stage_end counts. */
	CHECK_EQUAL(warden_add_run(s.warden, STAGE_RUN, eventfd(0, EFD_CLOEXEC), NULL, &err), -EEXIST);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Has a call under way while the vGPU is stopped. */
static void program_calls_when_told(struct actor *a)
{
	actor_new_device(a);
	actor_say(a, 'c');
	actor_tell(a, 't');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 'd');
}

static uint64_t calls_of(struct stage *s)
{
	struct warden_report report;

	warden_report(s->warden, &report);
	return report.calls;
}

static void stop_with_two_calls(struct stage *s)
{
	struct bf_error err = { 0 };
	uint64_t calls;

	stage_until(s, 'c');
	stage_until_second(s, 'c');
	calls = calls_of(s);
	CHECK_EQUAL(warden_stop(s->warden, &err), 0);
	stage_go_on(s);
	stage_until(s, 't');
	stage_second_goes_on(s);
	stage_until_second(s, 't');
	while (calls_of(s) < calls + 2)
		stage_serve(s, 1);
}

static void calls_that_wait_are_answered_on_their_own_listener(void)
{
	struct stage_setup setup = setup_two(8 * MIB, program_calls_when_told, 0);
	struct bf_error err = { 0 };
	struct stage s;

	stage_start_as(&s, &setup, program_calls_when_told, 0);
	stop_with_two_calls(&s);
	CHECK_EQUAL(card_used_bytes(&s.card), 0);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	stage_until(&s, 'd');
	stage_until_second(&s, 'd');
	CHECK_EQUAL(card_used_bytes(&s.card), 4 * MIB);
	stage_go_on(&s);
	stage_second_goes_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

static void call_that_waits_goes_with_its_run(void)
{
	struct stage_setup setup = setup_two(8 * MIB, program_calls_when_told, 0);
	struct bf_error err = { 0 };
	struct stage s;

	stage_start_as(&s, &setup, program_calls_when_told, 0);
	stop_with_two_calls(&s);
	warden_end_run(s.warden, STAGE_SECOND_RUN, "the test says so");
	while (!s.second.has_ended)
		stage_serve(&s, 1);
	CHECK_EQUAL(s.second.status, SIGKILL);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	stage_until(&s, 'd');
	CHECK_EQUAL(card_used_bytes(&s.card), 2 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Several threads. */

enum { BUSY_ROUNDS = 150 };

static void program_is_busy(struct actor *a)
{
	actor_context(a);
	for (int i = 0; i < BUSY_ROUNDS; i++) {
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, MIB), 0);
		actor_ring(a);
		CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY), 0);
	}
	actor_say(a, 'd');
}

struct caller {
	struct stage *stage;
	_Atomic bool is_over;
	_Atomic unsigned rounds;
};

/* As a scheduler does: a hold during a stop stays one, and a stop during a hold. */
static void *turns_main(void *arg)
{
	struct caller *caller = arg;
	struct warden *warden = caller->stage->warden;
	struct bf_error err = { 0 };

	while (!atomic_load(&caller->is_over)) {
		struct gate_vgpu *gate = warden_gate(warden);

		warden_close(warden);
		CHECK(!gate_is_open(gate));
		CHECK_EQUAL(warden_stop(warden, &err), 0);
		warden_open(warden);
		CHECK(!gate_is_open(gate));
		warden_close(warden);
		CHECK_EQUAL(warden_resume(warden, &err), 0);
		CHECK(!gate_is_open(gate));
		warden_open(warden);
		CHECK(gate_is_open(gate));
		gate_vgpu_quiet(gate);
		CHECK_EQUAL(warden_set_timeslice(warden, 1000, &err), 0);
		atomic_fetch_add(&caller->rounds, 1);
	}
	return NULL;
}

static void *looks_main(void *arg)
{
	struct caller *caller = arg;
	struct warden *warden = caller->stage->warden;
	struct bf_error err = { 0 };
	uint64_t last_ns = 0, gpu_ns;

	while (!atomic_load(&caller->is_over)) {
		struct warden_report report;

		warden_report(warden, &report);
		CHECK(report.mem_used_bytes <= 2 * (uint64_t)STAGE_BLOCK_BYTES + 2 * MIB);
		CHECK_EQUAL(warden_set_mem(warden, 16 * MIB, &err), 0);
		CHECK_EQUAL(warden_gpu_time(warden, &gpu_ns), 0);
		CHECK(gpu_ns >= last_ns);
		last_ns = gpu_ns;
		gate_vgpu_counts(warden_gate(warden));
		warden_has_processes(warden);
		atomic_fetch_add(&caller->rounds, 1);
	}
	return NULL;
}

static void warden_is_used_by_several_threads(void)
{
	struct stage_setup setup = setup_two(16 * MIB, program_is_busy, 0);
	struct stage s;
	struct caller turns = { .stage = &s }, looks = { .stage = &s };
	pthread_t turning, looking;

	stage_start_as(&s, &setup, program_is_busy, 0);
	CHECK(!pthread_create(&turning, NULL, turns_main, &turns));
	CHECK(!pthread_create(&looking, NULL, looks_main, &looks));
	stage_until(&s, 'd');
	stage_until_second(&s, 'd');
	while (!atomic_load(&turns.rounds) || !atomic_load(&looks.rounds)) {
		stage_serve(&s, 1);
		warden_audit(s.warden); /* by the thread that works */
	}
	atomic_store(&turns.is_over, true);
	atomic_store(&looks.is_over, true);
	CHECK(!pthread_join(turning, NULL));
	CHECK(!pthread_join(looking, NULL));
	stage_until_done(&s, 0, BUSY_ROUNDS);
	stage_go_on(&s);
	stage_second_goes_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

static void program_is_busy_in_its_limit(struct actor *a)
{
	actor_context(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 5 * MIB), 0);
	actor_say(a, 'c');
	for (int i = 0; i < BUSY_ROUNDS; i++) {
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, MIB), 0);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 2, 1), RM_ERR_NO_MEMORY);
		actor_ring(a);
		CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY), 0);
		if (i % 10 == 0) { /* the device makes pages and views for both */
			CHECK_EQUAL(actor_channel(a, STAGE_GROUP, STAGE_CHANNEL + 1, STAGE_USERD,
						  STAGE_USERD_AT(1)),
				    0);
			CHECK_EQUAL(actor_free(a, STAGE_GROUP, STAGE_CHANNEL + 1), 0);
		}
	}
	actor_say(a, 'd');
}

/* Each has its own limit, its own gate and its own thread; the card and the poller are one. */
static void wardens_share_a_card_and_nothing_else(void)
{
	struct stage_setup setup = setup_two(8 * MIB, program_is_busy_in_its_limit, 0);
	struct warden_report one, two;
	struct stage s;

	setup.has_two_wardens = true;
	stage_start_as(&s, &setup, program_is_busy_in_its_limit, 0);
	stage_until(&s, 'c');
	stage_until_second(&s, 'c');
	warden_close(s.second.warden);
	stage_go_on(&s);
	stage_second_goes_on(&s);
	stage_until(&s, 'd');
	stage_until_second(&s, 'd');
	warden_close(s.second.warden); /* the poller has been around since */
	warden_report(s.warden, &one);
	warden_report(s.second.warden, &two);
	CHECK_EQUAL(one.mem_used_bytes, 7 * MIB);
	CHECK_EQUAL(two.mem_used_bytes, 7 * MIB);
	CHECK_EQUAL(one.gate, GATE_OPEN);
	CHECK_EQUAL(two.gate, GATE_CLOSED);
	CHECK(one.forwards > 0);
	CHECK_EQUAL(two.forwards, 0);
	CHECK(gate_vgpu_counts(warden_gate(s.second.warden)).waiting_since_ns != 0);
	warden_open(s.second.warden);
	while (!gate_vgpu_counts(warden_gate(s.second.warden)).forwards)
		stage_serve(&s, 1);
	stage_go_on(&s);
	stage_second_goes_on(&s);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
}

/* Ended by one thread while another serves it. */
static void *end_main(void *arg)
{
	struct caller *caller = arg;

	warden_end_run(caller->stage->warden, STAGE_SECOND_RUN, "the test says so");
	return NULL;
}

static void run_can_be_ended_by_another_thread(void)
{
	struct stage_setup setup = setup_two(16 * MIB, program_is_busy, 0);

	for (int round = 0; round < 20; round++) {
		struct stage s;
		struct caller caller = { .stage = &s };
		pthread_t ending;

		stage_start_as(&s, &setup, program_is_busy, 0);
		stage_serve(&s, (unsigned)round);
		CHECK(!pthread_create(&ending, NULL, end_main, &caller));
		while (!s.second.has_ended)
			stage_serve(&s, 1);
		CHECK(!pthread_join(ending, NULL));
		/* Killed, or it had made no call yet and the kernel refused its first one. */
		CHECK(s.second.status);
		stage_until(&s, 'd'); /* no call of the other one has failed for that */
		stage_go_on(&s);
		stage_end_well(&s);
	}
}

static bool read_nothing(int fd, char *said)
{
	struct pollfd poll_for = { .fd = fd, .events = POLLIN };

	if (poll(&poll_for, 1, 0) != 1)
		return true;
	CHECK(read(fd, said, 1) == 1);
	return false;
}

/* Gives the call time to be under way. */
static void *end_first_main(void *arg)
{
	struct caller *caller = arg;

	usleep(200000);
	warden_end_run(caller->stage->warden, STAGE_RUN, "the test says so");
	return NULL;
}

/* A page that the kernel waits for until its owner fills it, which never happens: -1, or the descriptor. */
static int page_that_does_not_answer(void *page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .range = { (uintptr_t)page, 4096 },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (uffd >= 0 && !ioctl(uffd, UFFDIO_API, &api) && !ioctl(uffd, UFFDIO_REGISTER, &range))
		return uffd;
	return -1;
}

/* A device whose files have names: then the paths that programs open are read, and reading one waits for such a page. */
static enum device_file no_file_at(const struct device *device, const char *path)
{
	(void)device, (void)path;
	return DEVICE_FILE_NONE;
}

static void add_names(struct card *card)
{
	static struct device_ops ops;

	ops = *card->device->ops;
	ops.file_at = no_file_at;
	card->device->ops = &ops;
}

/* Arguments are read so that such a page is an error; a path is not. */
static void program_has_memory_that_does_not_answer(struct actor *a)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	actor_new_device(a);
	if (page_that_does_not_answer(page) < 0) {
		actor_say(a, 'n');
		return;
	}
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC, page, 48), -EFAULT);
	actor_say(a, 'y');
	open(page, O_RDWR);
	CHECK(!"an answer");
}

static void *look_and_stop_main(void *arg)
{
	struct caller *caller = arg;
	struct warden *warden = caller->stage->warden;
	struct bf_error err = { 0 };

	while (!atomic_load(&caller->is_over)) {
		uint64_t before_ns = bf_now_ns();
		struct warden_report report;

		warden_report(warden, &report);
		CHECK_EQUAL(warden_stop(warden, &err), 0);
		CHECK_EQUAL(warden_resume(warden, &err), 0);
		CHECK(bf_now_ns() - before_ns < 1000000000ull);
		atomic_fetch_add(&caller->rounds, 1);
		usleep(1000);
	}
	return NULL;
}

/* Of a GPU server, the thread that serves a vGPU may be another one later. */
static void *serve_first_main(void *arg)
{
	struct stage *s = arg;

	while (!s->has_ended)
		stage_serve(s, 1);
	return NULL;
}

static void program_whose_memory_does_not_answer_is_ended_and_holds_up_no_stop(void)
{
	struct stage_setup setup = setup_two(8 * MIB, program_calls_when_told, 0);
	struct stage s;
	struct caller caller = { .stage = &s };
	pthread_t looking, serving;
	char said;

	setup.change = add_names;
	stage_start_as(&s, &setup, program_has_memory_that_does_not_answer, 0);
	while (read_nothing(s.hear, &said))
		stage_serve(&s, 1);
	stage_until_second(&s, 'c');
	if (said == 'n')
		stage_skip("needs userfaultfd for the kernel's own accesses");
	stage_go_on(&s);
	CHECK(!pthread_create(&looking, NULL, look_and_stop_main, &caller));
	CHECK(!pthread_create(&serving, NULL, serve_first_main, &s));
	CHECK(!pthread_join(serving, NULL));
	atomic_store(&caller.is_over, true);
	CHECK(!pthread_join(looking, NULL));
	CHECK(atomic_load(&caller.rounds) > 1);
	CHECK_EQUAL(s.status, said == 'n' ? 0 : SIGKILL);
	stage_second_goes_on(&s);
	stage_until_second(&s, 't');
	stage_until_second(&s, 'd'); /* the other run goes on */
	stage_second_goes_on(&s);
	CHECK_EQUAL(stage_end(&s), s.status);
	CHECK_EQUAL(s.second.status, 0);
}

/* The same for a run that another thread ends meanwhile: the warden is not kept waiting. */
static void run_whose_memory_does_not_answer_can_be_ended(void)
{
	struct warden_options options = { .mem_bytes = 8 * MIB, .interleave = -1 };
	struct stage s;
	struct caller caller = { .stage = &s };
	uint64_t before_ns;
	pthread_t ending;
	char said;

	stage_start_changed(&s, &options, add_names, program_has_memory_that_does_not_answer, 0);
	while (read_nothing(s.hear, &said))
		stage_serve(&s, 1);
	if (said == 'n')
		stage_skip("needs userfaultfd for the kernel's own accesses");
	stage_go_on(&s);
	CHECK(!pthread_create(&ending, NULL, end_first_main, &caller));
	before_ns = bf_now_ns();
	while (!s.has_ended)
		stage_serve(&s, 1);
	CHECK(!pthread_join(ending, NULL));
	CHECK(bf_now_ns() - before_ns < 2000000000ull);
	if (said == 'y')
		CHECK_EQUAL(s.status, SIGKILL);
	CHECK_EQUAL(stage_end(&s), s.status);
}

/* Somebody else's reach. */

struct helper {
	_Atomic unsigned files, memories;
	bool gives_files, gives_memory;
};

static int helper_get_fd(void *context, pid_t pid, int fd)
{
	struct helper *helper = context;
	int pidfd, found;

	atomic_fetch_add(&helper->files, 1);
	if (!helper->gives_files)
		return -EPERM;
	pidfd = bf_tgid_of(pid) == pid ? bf_pidfd_open(pid) : bf_pidfd_open_thread(pid);
	if (pidfd < 0)
		return pidfd;
	found = bf_pidfd_getfd(pidfd, fd);
	close(pidfd);
	return found;
}

static int helper_open_memory(void *context, pid_t pid)
{
	struct helper *helper = context;
	char path[32];
	int fd;

	atomic_fetch_add(&helper->memories, 1);
	if (!helper->gives_memory)
		return -EPERM;
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void start_reached(struct stage *s, struct helper *helper, stage_program program)
{
	const struct warden_reach reach = { helper_get_fd, helper_open_memory, helper };
	struct stage_setup setup = { .options = { .mem_bytes = 8 * MIB, .interleave = -1 }, .reach = &reach };

	stage_start_as(s, &setup, program, 0);
}

static void program_is_reached(struct actor *a)
{
	uint32_t fb[257] = { 1, 0x08, 0 };

	actor_context(a);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FB_GET_INFO_V2, fb, sizeof(fb)), 0);
	CHECK_EQUAL(fb[2], 8 * MIB >> 10);
	/* An argument that is nowhere. */
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC, (void *)8, 48), -EFAULT);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB + 1), RM_ERR_NO_MEMORY);
	actor_ring(a);
	actor_say(a, 'r');
}

static void program_is_reached_by_a_helper(void)
{
	struct helper helper = { .gives_files = true, .gives_memory = true };
	struct stage s;

	start_reached(&s, &helper, program_is_reached);
	stage_until(&s, 'r');
	stage_until_done(&s, 0, 1);
	CHECK(atomic_load(&helper.files) > 0);
	CHECK_EQUAL(atomic_load(&helper.memories),
		    2); /* kept; and once more, for the argument that was nowhere */
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_execs(struct actor *a)
{
	char hear[16], say[16];

	actor_context(a);
	fcntl(a->say, F_SETFD, 0);
	fcntl(a->hear, F_SETFD, 0);
	snprintf(say, sizeof(say), "%d", a->say);
	snprintf(hear, sizeof(hear), "%d", a->hear);
	execl("/proc/self/exe", "test_runs", "after-exec", a->folder, say, hear, NULL);
	CHECK(!"exec");
}

static int after_exec(char **argv)
{
	struct actor a = { .folder = argv[2], .say = atoi(argv[3]), .hear = atoi(argv[4]) };

	actor_new_device(&a);
	CHECK_EQUAL(actor_memory(&a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
	actor_say(&a, 'e');
	_exit(0);
}

static void memory_after_exec_is_the_new_one(void)
{
	struct helper helper = { .gives_files = true, .gives_memory = true };
	struct stage s;

	start_reached(&s, &helper, program_execs);
	stage_until(&s, 'e');
	CHECK_EQUAL(card_used_bytes(&s.card), 8 * MIB);
	CHECK_EQUAL(atomic_load(&helper.memories), 2);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* A thread with descriptors of its own has them looked up by its own number. */
static void *own_files_main(void *arg)
{
	struct actor *a = arg;

	CHECK(!unshare(CLONE_FILES));
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, MIB), 0);
	actor_say(a, 't');
	return NULL;
}

static void program_has_a_thread_apart(struct actor *a)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, own_files_main, a));
	CHECK(!pthread_join(thread, NULL));
}

static void thread_with_its_own_files_is_reached(void)
{
	struct helper helper = { .gives_files = true, .gives_memory = true };
	int pidfd = bf_pidfd_open_thread(getpid());
	struct stage s;

	if (pidfd < 0) {
		stage_skip("this kernel has no descriptors for threads");
		return;
	}
	close(pidfd);
	start_reached(&s, &helper, program_has_a_thread_apart);
	stage_until(&s, 't');
	CHECK_EQUAL(card_used_bytes(&s.card), MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Every call fails, and all of them return. */
static void program_is_not_reached(struct actor *a)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };
	int control = actor_open(a, SOFT_FILE_CONTROL);

	CHECK(control >= 0);
	for (int i = 0; i < 5; i++)
		CHECK(actor_call(control, RM_ESC_ALLOC, &arg, sizeof(arg)) < 0);
	CHECK_EQUAL(arg.object, 0);
	actor_say(a, 'n');
}

static void helper_that_gives_no_memory_makes_calls_fail(void)
{
	struct helper helpers[] = { { .gives_files = false }, { .gives_files = true } };

	for (unsigned i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++) {
		struct stage s;

		start_reached(&s, &helpers[i], program_is_not_reached);
		stage_until(&s, 'n');
		warden_audit(s.warden);
		stage_go_on(&s);
		stage_end_well(&s);
	}
}

/* Only what belongs to the program's own file of the GPU needs that file. */
static void program_has_no_files_of_the_gpu(struct actor *a)
{
	int gpu = actor_open(a, SOFT_FILE_GPU_0);

	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, MIB), 0);
	CHECK_EQUAL(actor_call(gpu, RM_ESC_REGISTER_FD, &a->control, 4), -EPERM);
	CHECK_EQUAL(actor_alloc(a, STAGE_SUBDEVICE, STAGE_BELL, 0xc661, NULL, 0), 0);
	CHECK(actor_map_doorbell(a, STAGE_BELL, gpu) != MAP_FAILED);
	actor_say(a, 'n');
}

static void helper_that_gives_no_files_makes_calls_on_the_gpus_file_fail(void)
{
	struct helper helper = { .gives_memory = true };
	struct stage s;

	start_reached(&s, &helper, program_has_no_files_of_the_gpu);
	stage_until(&s, 'n');
	warden_audit(s.warden);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Fails from some point on, with clients and channels there: the warden has all it needs to stop them. */
static void vgpu_is_stopped_without_the_helper(void)
{
	struct helper helper = { .gives_files = true, .gives_memory = true };
	struct card_channel channel;
	struct bf_error err = { 0 };
	struct stage s;

	start_reached(&s, &helper, program_rings_on);
	stage_until(&s, 'r');
	stage_until_done(&s, 0, 1);
	helper.gives_files = helper.gives_memory = false;
	warden_audit(s.warden);
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	CHECK(!gate_is_open(warden_gate(s.warden)));
	CHECK(card_channel(&s.card, STAGE_CHANNEL, &channel) && channel.is_disabled);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	for (int i = 0; i < 2; i++) {
		stage_go_on(&s);
		stage_until(&s, 'r');
	}
	stage_until_done(&s, 0, 3);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What a vGPU has had of the GPU. */
static void program_uses_the_gpu(struct actor *a)
{
	uint8_t group[20] = { 0 };

	actor_context(a);
	for (int i = 0; i < 200; i++)
		actor_ring(a);
	actor_say(a, 'u');
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_GROUP), 0);
	actor_say(a, 'f');
	CHECK_EQUAL(actor_alloc(a, STAGE_DEVICE, STAGE_GROUP, 0xa06c, group, sizeof(group)), 0);
	actor_add_channel(a, 0);
	actor_ring(a);
	actor_say(a, 'v');
}

static uint64_t gpu_time(struct stage *s)
{
	uint64_t gpu_ns = UINT64_MAX;

	CHECK_EQUAL(warden_gpu_time(s->warden, &gpu_ns), 0);
	return gpu_ns;
}

static void gpu_time_is_kept_when_groups_go(void)
{
	uint64_t used_ns, freed_ns, again_ns;
	struct stage s;

	stage_start(&s, 8 * MIB, program_uses_the_gpu, 0);
	CHECK_EQUAL(gpu_time(&s), 0);
	stage_until(&s, 'u');
	stage_until_done(&s, 0, 200);
	used_ns = gpu_time(&s);
	CHECK(used_ns > 0);
	stage_go_on(&s);
	stage_until(&s, 'f');
	freed_ns = gpu_time(&s);
	CHECK(freed_ns >= used_ns);
	CHECK_EQUAL(gpu_time(&s), freed_ns);
	stage_go_on(&s);
	stage_until(&s, 'v');
	stage_until_done(&s, 0, 201);
	again_ns = gpu_time(&s);
	CHECK(again_ns >= freed_ns);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	CHECK(gpu_time(&s) >= again_ns);
	stage_end_well(&s);
}

static struct device_ops changed_ops;
static int (*real_call)(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size);

static void forget_time(struct card *card)
{
	changed_ops = *card->device->ops;
	changed_ops.time_of = NULL;
	card->device->ops = &changed_ops;
}

static void device_that_cannot_tell_time_says_so(void)
{
	struct stage_setup setup = { .options = { .interleave = -1 }, .change = forget_time };
	uint64_t gpu_ns;
	struct stage s;

	stage_start_as(&s, &setup, program_takes_memory, MIB);
	stage_until(&s, 'm');
	CHECK_EQUAL(warden_gpu_time(s.warden, &gpu_ns), -ENOTSUP);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What root must not do for others. */
static uint32_t last_channel_flags;

static int note_flags(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	const struct rm_arg_alloc *alloc = arg;

	if (nr == RM_ESC_ALLOC && size == sizeof(*alloc) && alloc->class_id == 0xc86f)
		memcpy(&last_channel_flags,
		       (const uint8_t *)(uintptr_t)alloc->params + device->layout->channel_flags,
		       sizeof(last_channel_flags));
	return real_call(device, fd, nr, arg, size);
}

static void watch_flags(struct card *card)
{
	changed_ops = *card->device->ops;
	real_call = changed_ops.call;
	changed_ops.call = note_flags;
	card->device->ops = &changed_ops;
}

static void program_makes_channels_as_another_user(struct actor *a)
{
	actor_context(a);
	actor_say(a, 'r');
	CHECK(!seteuid(65534));
	actor_add_channel(a, 1);
	actor_say(a, 'u');
}

static void channel_of_an_ordinary_user_has_no_privilege(void)
{
	struct stage_setup setup = { .options = { .interleave = -1 }, .change = watch_flags };
	const uint32_t deny = RM_CHANNEL_DENY_PHYSICAL_CE | RM_CHANNEL_DENY_AUTH_PRIV;
	struct stage s;

	if (geteuid()) {
		stage_skip("needs to be root, and to become another user");
		return;
	}
	stage_start_as(&s, &setup, program_makes_channels_as_another_user, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(last_channel_flags & deny, 0);
	stage_go_on(&s);
	stage_until(&s, 'u');
	CHECK_EQUAL(last_channel_flags & deny, deny);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "after-exec"))
		return after_exec(argv);
	STAGE_TEST(runs_share_one_limit);
	STAGE_TEST(run_that_is_ended_leaves_the_other_alone);
	STAGE_TEST(run_that_ends_leaves_the_other_alone);
	STAGE_TEST(number_that_is_taken_is_refused);
	STAGE_TEST(calls_that_wait_are_answered_on_their_own_listener);
	STAGE_TEST(call_that_waits_goes_with_its_run);
	STAGE_TEST(warden_is_used_by_several_threads);
	STAGE_TEST(wardens_share_a_card_and_nothing_else);
	STAGE_TEST(run_can_be_ended_by_another_thread);
	STAGE_TEST(program_whose_memory_does_not_answer_is_ended_and_holds_up_no_stop);
	STAGE_TEST(run_whose_memory_does_not_answer_can_be_ended);
	STAGE_TEST(program_is_reached_by_a_helper);
	STAGE_TEST(memory_after_exec_is_the_new_one);
	STAGE_TEST(thread_with_its_own_files_is_reached);
	STAGE_TEST(helper_that_gives_no_memory_makes_calls_fail);
	STAGE_TEST(helper_that_gives_no_files_makes_calls_on_the_gpus_file_fail);
	STAGE_TEST(vgpu_is_stopped_without_the_helper);
	STAGE_TEST(gpu_time_is_kept_when_groups_go);
	STAGE_TEST(device_that_cannot_tell_time_says_so);
	STAGE_TEST(channel_of_an_ordinary_user_has_no_privilege);
	return stage_status();
}
