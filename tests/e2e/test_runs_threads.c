/* Several threads use one warden, or one card with two wardens. Neither a run that is ended nor memory that does not answer
 * holds up another thread. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "stage.h"

#define MIB CARD_MIB

/* Has a call under way while the vGPU is stopped. */
static void program_calls_when_told(struct actor *a)
{
	actor_new_device(a);
	actor_say(a, 'c');
	actor_tell(a, 't');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 'd');
}

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
	struct stage_setup setup = stage_two(16 * MIB, program_is_busy, 0);
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
	struct stage_setup setup = stage_two(8 * MIB, program_is_busy_in_its_limit, 0);
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
	struct stage_setup setup = stage_two(16 * MIB, program_is_busy, 0);

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
	struct stage_setup setup = stage_two(8 * MIB, program_calls_when_told, 0);
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
		check_skip("needs userfaultfd for the kernel's own accesses");
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
		check_skip("needs userfaultfd for the kernel's own accesses");
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

int main(void)
{
	STAGE_TEST(warden_is_used_by_several_threads);
	STAGE_TEST(wardens_share_a_card_and_nothing_else);
	STAGE_TEST(run_can_be_ended_by_another_thread);
	STAGE_TEST(program_whose_memory_does_not_answer_is_ended_and_holds_up_no_stop);
	STAGE_TEST(run_whose_memory_does_not_answer_can_be_ended);
	return check_status();
}
