/* A channel has the privileges of the user whose program makes it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "stage.h"

/* Belfry runs as root, and must not pass privileges of root on to a channel of another user. */
static struct device_ops changed_ops;
static int (*real_call)(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size);
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
		check_skip("needs to be root, and to become another user");
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

/* The file of the software GPU is opened by the program itself. */
static void let_everybody_open(struct card *card)
{
	char path[sizeof(card->folder) + sizeof("/socket")];

	snprintf(path, sizeof(path), "%s/socket", card->folder);
	CHECK(!chmod(card->folder, 0711) && !chmod(path, 0666));
	watch_flags(card);
}

/* As a program does that executes a setuid program while its call is handled. */
static void program_becomes_root_later(struct actor *a)
{
	CHECK(!seteuid(65534));
	actor_context(a);
	actor_say(a, 'u');
	CHECK(!seteuid(0));
	actor_add_channel(a, 1);
	actor_say(a, 'r');
}

static void process_that_becomes_root_later_gets_no_privilege(void)
{
	struct stage_setup setup = { .options = { .interleave = -1 }, .change = let_everybody_open };
	const uint32_t deny = RM_CHANNEL_DENY_PHYSICAL_CE | RM_CHANNEL_DENY_AUTH_PRIV;
	struct stage s;

	if (geteuid()) {
		check_skip("needs to be root, and to become another user");
		return;
	}
	stage_start_as(&s, &setup, program_becomes_root_later, 0);
	stage_until(&s, 'u');
	CHECK_EQUAL(last_channel_flags & deny, deny);
	last_channel_flags = 0;
	stage_go_on(&s);
	stage_until(&s, 'r');
	CHECK_EQUAL(last_channel_flags & deny, deny);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* A process of root whose effective user is another one when the GPU server reads its call, and root again when the call is
 * made: as with a setuid program that is executed in between. The first thread of the process changes users, and a second one
 * makes the call. A thread of the test holds the warden's lock from the reading of the call until the process is root again. */
struct change {
	_Atomic bool wants_user, is_user, wants_root, is_root;
	_Atomic pid_t child;
};
struct race {
	struct stage stage;
	struct change *change; /* shared with the program */
	pid_t server;	       /* the thread that serves the warden */
	_Atomic bool is_held;
};
static struct race race;
static _Thread_local bool is_holder; /* of the lock */

static void wait_for(const _Atomic bool *what)
{
	while (!atomic_load(what))
		usleep(1000);
}

static void *makes_a_channel(void *actor)
{
	actor_add_channel(actor, 1);
	return NULL;
}

/* By the system call: the library would change the users of all threads, and one of them waits for its call. */
static void change_user(uid_t user)
{
	CHECK(!syscall(SYS_setresuid, -1, user, -1));
}

static void child_changes_users(struct actor *a, struct change *change)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, makes_a_channel, a));
	wait_for(&change->wants_user);
	change_user(65534);
	atomic_store(&change->is_user, true);
	wait_for(&change->wants_root);
	change_user(0);
	atomic_store(&change->is_root, true);
	pthread_join(thread, NULL);
	_exit(0);
}

/* The warden opens the memory of each process once: that of the child when it has received the child's call. */
static void program_has_a_child_that_changes_users(struct actor *a)
{
	struct change *change = (struct change *)a->arg;
	int status = -1;
	pid_t pid;

	actor_context(a);
	actor_say(a, 'r');
	pid = fork();
	if (!pid) {
		atomic_store(&change->child, getpid());
		child_changes_users(a, change);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	actor_say(a, 'c');
}

/* Whether the thread waits for a mutex: for a futex of this process alone. */
static bool waits_for_lock(pid_t thread)
{
	char path[64], text[128] = "";
	unsigned long nr = 0, at = 0, op = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
	file = fopen(path, "re");
	if (file && fgets(text, sizeof(text), file))
		(void)sscanf(text, "%lu %lx %lx", &nr, &at, &op);
	if (file)
		fclose(file);
	return nr == SYS_futex && op == 0x80; /* FUTEX_WAIT_PRIVATE */
}

static int hold_lock(struct device *device, int fd, uint32_t client, uint32_t group, uint64_t *gpu_ns)
{
	(void)device;
	(void)fd;
	(void)client;
	(void)group;
	*gpu_ns = 0;
	if (!is_holder || atomic_exchange(&race.is_held, true))
		return 0;
	while (!waits_for_lock(race.server))
		usleep(1000);
	atomic_store(&race.change->wants_root, true);
	wait_for(&race.change->is_root);
	return 0;
}

static void *holds_lock(void *context)
{
	uint64_t gpu_ns;

	(void)context;
	is_holder = true;
	CHECK_EQUAL(warden_gpu_time(race.stage.warden, &gpu_ns), 0);
	return NULL;
}

static int get_fd(void *context, pid_t pid, int fd)
{
	int pidfd = bf_tgid_of(pid) == pid ? bf_pidfd_open(pid) : bf_pidfd_open_thread(pid), found;

	(void)context;
	if (pidfd < 0)
		return pidfd;
	found = bf_pidfd_getfd(pidfd, fd);
	close(pidfd);
	return found;
}

static int open_memory(void *context, pid_t pid)
{
	pthread_t *thread = context;
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (pid != atomic_load(&race.change->child) || atomic_load(&race.change->is_user))
		return fd < 0 ? -errno : fd;
	race.server = (pid_t)syscall(SYS_gettid);
	atomic_store(&race.change->wants_user, true);
	wait_for(&race.change->is_user);
	CHECK(!pthread_create(thread, NULL, holds_lock, NULL));
	wait_for(&race.is_held);
	return fd < 0 ? -errno : fd;
}

static void watch_flags_and_time(struct card *card)
{
	watch_flags(card);
	changed_ops.time_of = hold_lock;
}

static void process_that_becomes_root_during_its_call_gets_no_privilege(void)
{
	const uint32_t deny = RM_CHANNEL_DENY_PHYSICAL_CE | RM_CHANNEL_DENY_AUTH_PRIV;
	pthread_t holder;
	const struct warden_reach reach = { get_fd, open_memory, &holder };
	struct stage_setup setup = { .options = { .interleave = -1 },
				     .change = watch_flags_and_time,
				     .reach = &reach };

	if (geteuid()) {
		check_skip("needs to be root, and to become another user");
		return;
	}
	race.change =
		mmap(NULL, sizeof(*race.change), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(race.change != MAP_FAILED);
	stage_start_as(&race.stage, &setup, program_has_a_child_that_changes_users, (long)race.change);
	stage_until(&race.stage, 'r');
	CHECK_EQUAL(last_channel_flags & deny, 0);
	stage_go_on(&race.stage);
	stage_until(&race.stage, 'c');
	CHECK(atomic_load(&race.change->is_root));
	pthread_join(holder, NULL);
	CHECK_EQUAL(last_channel_flags & deny, deny);
	stage_go_on(&race.stage);
	stage_end_well(&race.stage);
	munmap(race.change, sizeof(*race.change));
}

int main(void)
{
	STAGE_TEST(channel_of_an_ordinary_user_has_no_privilege);
	STAGE_TEST(process_that_becomes_root_later_gets_no_privilege);
	STAGE_TEST(process_that_becomes_root_during_its_call_gets_no_privilege);
	return check_status();
}
