/* A warden that reaches the files and the memory of its programs through a helper. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"
#include "stage.h"

#define MIB CARD_MIB

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
	execl("/proc/self/exe", "test_reach", "after-exec", a->folder, say, hear, NULL);
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
		check_skip("this kernel has no descriptors for threads");
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

static void program_rings_on(struct actor *a)
{
	actor_context(a);
	for (int i = 0; i < 3; i++) {
		actor_ring(a);
		actor_say(a, 'r');
	}
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

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "after-exec"))
		return after_exec(argv);
	STAGE_TEST(program_is_reached_by_a_helper);
	STAGE_TEST(memory_after_exec_is_the_new_one);
	STAGE_TEST(thread_with_its_own_files_is_reached);
	STAGE_TEST(helper_that_gives_no_memory_makes_calls_fail);
	STAGE_TEST(helper_that_gives_no_files_makes_calls_on_the_gpus_file_fail);
	STAGE_TEST(vgpu_is_stopped_without_the_helper);
	return check_status();
}
