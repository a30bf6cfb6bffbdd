/* Ways around: each is impossible, or found out. docs/security.md says which, and names these tests. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/process.h"
#include "gate/gate.h"
#include "server/program.h"
#include "stage.h"
#include "warden/filter.h"

#define MIB FAKE_MIB
#define NO_MEMORY RM_ERR_NO_MEMORY

static void run_well(stage_program program)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program, 0);
	stage_end_well(&s);
}

/* Through this descriptor the limit holds, so it was recognised for what it is. */
static void check_is_supervised(struct actor *a, int control)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };
	uint8_t device[56] = { 0 };

	CHECK(control >= 0);
	CHECK(!flock(control, LOCK_EX));
	CHECK_EQUAL(actor_call(control, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
	a->control = control;
	a->client = arg.object;
	CHECK_EQUAL(actor_alloc(a, a->client, STAGE_DEVICE, 0x80, device, sizeof(device)), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
	close(control);
}

/* A new device file, closed again, and the path it was opened by. */
static void make_device(struct actor *a, char *path, size_t room)
{
	int fd = fake_open_path(a->fake, DEVICE_FILE_CONTROL, path, room);

	CHECK(fd >= 0);
	close(fd);
}

static void program_takes_other_paths(struct actor *a)
{
	struct open_how how = { .flags = O_RDWR | O_CLOEXEC };
	char path[128], other[160];
	int fd;

	snprintf(other, sizeof(other), "%s/other", a->fake->folder);
	make_device(a, path, sizeof(path));
	CHECK(!link(path, other));
	check_is_supervised(a, open(other, O_RDWR | O_CLOEXEC));
	CHECK(!unlink(other));
	make_device(a, path, sizeof(path));
	CHECK(!symlink(path, other));
	check_is_supervised(a, open(other, O_RDWR | O_CLOEXEC));
	CHECK(!unlink(other));
	make_device(a, path, sizeof(path));
	CHECK(!rename(path, other));
	check_is_supervised(a, open(other, O_RDWR | O_CLOEXEC));
	make_device(a, path, sizeof(path));
	check_is_supervised(a, (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how)));
	make_device(a, path, sizeof(path));
	fd = open(path, O_PATH | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check_is_supervised(a, open(path, O_RDWR | O_CLOEXEC));
	close(fd);
}

static void device_is_the_same_by_every_path(void)
{
	run_well(program_takes_other_paths);
}

static int alloc_as(struct actor *a, unsigned long cmd, unsigned long fd_bits, uint64_t bytes)
{
	uint8_t params[128] = { 0 };
	struct rm_arg_alloc arg = { .client = a->client,
				    .parent = STAGE_DEVICE,
				    .object = STAGE_MEMORY,
				    .class_id = 0x40,
				    .params = (uintptr_t)params,
				    .size = sizeof(params),
				    .status = 0x77 };

	memcpy(params + 64, &bytes, sizeof(bytes));
	if (syscall(SYS_ioctl, (unsigned long)a->control | fd_bits, cmd, &arg) < 0)
		return -errno;
	return (int)arg.status;
}

static void program_writes_other_magics(struct actor *a)
{
	actor_new_device(a);
	for (unsigned magic = 0; magic < 256; magic++)
		for (unsigned direction = 0; direction < 4; direction++)
			CHECK_EQUAL(alloc_as(a, _IOC(direction, magic, RM_ESC_ALLOC, 48), 0, 9 * MIB),
				    NO_MEMORY);
	/* Registers are wider than what the kernel takes from them. */
	CHECK_EQUAL(alloc_as(a, 0xdeadbeef00000000ul | _IOC(3u, 'F', RM_ESC_ALLOC, 48), 0, 9 * MIB),
		    NO_MEMORY);
	CHECK_EQUAL(alloc_as(a, _IOC(3u, 'F', RM_ESC_ALLOC, 48), 0xffffffff00000000ul, 9 * MIB), NO_MEMORY);
	CHECK_EQUAL(alloc_as(a, _IOC(3u, 'F', RM_ESC_ALLOC, 48), 0xffffffff00000000ul, 8 * MIB), 0);
	/* Sizes that the driver does not take do not get there. */
	for (unsigned size = 1; size < 2000; size++)
		if (size != 32 && size != 48)
			CHECK_EQUAL(alloc_as(a, _IOC(3u, 'F', RM_ESC_ALLOC, size), 0, MIB) < 0, 1);
}

static void magic_byte_and_wide_registers_change_nothing(void)
{
	run_well(program_writes_other_magics);
}

static void program_uses_xfer(struct actor *a)
{
	struct rm_arg_alloc inner = { .client = 0, .class_id = 0x40 };
	struct rm_xfer xfer = { .nr = RM_ESC_ALLOC, .size = sizeof(inner), .address = (uintptr_t)&inner };

	actor_new_device(a);
	CHECK_EQUAL(actor_call(a->control, RM_ESC_XFER_CMD, &xfer, sizeof(xfer)), -EINVAL);
}

static void xfer_is_refused(void)
{
	run_well(program_uses_xfer);
}

static void program_tries_old_doors(struct actor *a)
{
	static const uint32_t classes[] = { 0x3f, 0x50, 0x71, 0x76, 0x81, 0x82, 0x83, 0xc2, 0x5080 };
	uint32_t object[5] = { 0 };
	uint8_t params[1024] = { 0 }, heap[184] = { 0 };
	struct rm_arg_alloc_memory memory = { .class_id = 0x40, .limit = 4095, .fd = -1 };
	struct rm_arg_alloc serialized = { .parent = STAGE_DEVICE, .object = STAGE_MEMORY, .class_id = 0x40 };
	uint32_t function = RM_HEAP_ALLOC_SIZE;

	actor_context(a);
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		CHECK_EQUAL(actor_alloc(a, STAGE_SUBDEVICE, STAGE_MEMORY, classes[i], params, 64),
			    RM_ERR_NOT_SUPPORTED);
	object[0] = memory.client = serialized.client = a->client;
	object[1] = memory.parent = STAGE_DEVICE;
	object[2] = memory.object = STAGE_MEMORY;
	object[3] = 0x40;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC_OBJECT, object, sizeof(object)), 0);
	CHECK_EQUAL(object[4], RM_ERR_NOT_SUPPORTED);
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC_MEMORY, &memory, sizeof(memory)), 0);
	CHECK_EQUAL(memory.status, RM_ERR_NOT_SUPPORTED);
	memcpy(heap, &a->client, 4);
	memcpy(heap + 8, &function, 4);
	CHECK_EQUAL(actor_call(a->control, RM_ESC_VID_HEAP_CONTROL, heap, sizeof(heap)), 0);
	memcpy(&function, heap + 20, 4);
	CHECK_EQUAL(function, RM_ERR_NOT_SUPPORTED);
	serialized.params = (uintptr_t)params;
	serialized.size = 128;
	serialized.flags = 1;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC, &serialized, sizeof(serialized)), 0);
	CHECK_EQUAL(serialized.status, RM_ERR_NOT_SUPPORTED);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_DISABLE_CHANNELS, params, 536),
		    RM_ERR_INSUFFICIENT_PERMISSIONS);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FIFO_UPDATE_CHANNEL_INFO, params, 64),
		    RM_ERR_INSUFFICIENT_PERMISSIONS);
	actor_say(a, 'o');
}

static void calls_around_the_ledger_are_refused(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_tries_old_doors, 0);
	stage_until(&s, 'o');
	CHECK_EQUAL(s.fake->used_bytes, 2 * MIB);
	CHECK_EQUAL(s.fake->passed_objects, 0);
	CHECK_EQUAL(s.fake->disable_calls + s.fake->enable_calls, 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* io_uring knows no ioctl; what comes nearest, a command to the file, the files do not take. */
static int uring_command(int fd)
{
	struct io_uring_params params = { 0 };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (ring < 0)
		return -ENOSYS;
	char *rings = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqe =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	CHECK(rings != MAP_FAILED && sqe != MAP_FAILED);
	sqe->opcode = 46; /* IORING_OP_URING_CMD */
	sqe->fd = fd;
	sqe->off = _IOC(3u, 'F', RM_ESC_ALLOC, 48);
	((uint32_t *)(void *)(rings + params.sq_off.array))[0] = 0;
	atomic_store((_Atomic uint32_t *)(void *)(rings + params.sq_off.tail), 1);
	CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
	struct io_uring_cqe *cqe = (struct io_uring_cqe *)(void *)(rings + params.cq_off.cqes);
	int result = cqe->res;
	munmap(rings, 4096);
	munmap(sqe, 4096);
	close(ring);
	return result;
}

static void program_uses_io_uring(struct actor *a)
{
	int result;

	actor_new_device(a);
	result = uring_command(a->control);
	if (result == -ENOSYS)
		puts("  skipped: no io_uring here");
	CHECK(result < 0);
}

static void io_uring_reaches_nothing(void)
{
	run_well(program_uses_io_uring);
}

static long call_32bit(long number, long a, long b, long c)
{
#if defined(__x86_64__)
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(0L), "D"(0L)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
#else
	(void)number, (void)a, (void)b, (void)c;
	return -ENOSYS;
#endif
}

static void program_calls_as_32bit(struct actor *a)
{
	pid_t prober;
	int status;

	actor_new_device(a);
	prober = fork();
	if (!prober) /* a kernel without 32-bit calls answers with a signal */
		_exit(call_32bit(54, a->control, _IOC(3u, 'F', RM_ESC_ALLOC, 48), 0) == -ENOSYS ? 0 : 1);
	CHECK(waitpid(prober, &status, 0) == prober);
	if (WIFSIGNALED(status)) {
		puts("  skipped: this kernel has no 32-bit calls");
		return;
	}
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(call_32bit(192, 0, 4096, PROT_READ), -ENOSYS); /* mmap2 */
	CHECK_EQUAL(call_32bit(20, 0, 0, 0), -ENOSYS);		   /* getpid: none at all */
}

static void calls_of_32bit_programs_do_not_exist(void)
{
	run_well(program_calls_as_32bit);
}

static void program_calls_as_x32(struct actor *a)
{
	static const long bit = 0x40000000;

	actor_new_device(a);
	CHECK(syscall(bit | 514, a->control, _IOC(3u, 'F', RM_ESC_ALLOC, 48), NULL) == -1); /* x32's ioctl */
	CHECK_EQUAL(errno, ENOSYS);
	CHECK(syscall(bit | SYS_ioctl, a->control, _IOC(3u, 'F', RM_ESC_ALLOC, 48), NULL) == -1);
	CHECK_EQUAL(errno, ENOSYS);
	CHECK(syscall(bit | SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, a->control, 0) == -1);
	CHECK_EQUAL(errno, ENOSYS);
}

static void calls_of_x32_programs_do_not_exist(void)
{
	run_well(program_calls_as_x32);
}

static void program_installs_a_second_filter(struct actor *a)
{
	struct bf_error err = { 0 };

	CHECK_EQUAL(filter_install(&err), -EBUSY);
	CHECK(strstr(err.text, "supervised already"));
	CHECK_EQUAL(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	actor_new_device(a); /* and the first one still stands */
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB + 1), NO_MEMORY);
}

static void second_supervisor_is_refused(void)
{
	run_well(program_installs_a_second_filter);
}

static void program_makes_a_second_client(struct actor *a)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };

	actor_new_device(a);
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, RM_ERR_NOT_SUPPORTED);
	/* Another's client is not to be had through this file. */
	struct actor other = *a;
	actor_new_device(&other);
	other.control = a->control;
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), RM_ERR_INVALID_CLIENT);
}

static void one_control_file_is_one_client(void)
{
	run_well(program_makes_a_second_client);
}

/* Races. One thread changes what another has just asked for, as fast as it can. */

struct flipper {
	uint8_t *at;
	uint64_t one, two;
	size_t bytes;
	_Atomic bool is_over;
};

static void *flip(void *arg)
{
	struct flipper *f = arg;

	while (!atomic_load_explicit(&f->is_over, memory_order_relaxed))
		for (int i = 0; i < 100; i++)
			if (f->bytes == 8)
				__atomic_store_n((uint64_t *)(void *)f->at, i % 2 ? f->one : f->two,
						 __ATOMIC_RELAXED);
			else
				__atomic_store_n((uint32_t *)(void *)f->at,
						 (uint32_t)(i % 2 ? f->one : f->two), __ATOMIC_RELAXED);
	return NULL;
}

/* ALLOC with everything in memory that the flipper can reach. Read and written like the kernel does. */
static int alloc_raced(struct actor *a, struct rm_arg_alloc *arg, const struct rm_arg_alloc *from)
{
	for (size_t i = 0; i < sizeof(*arg) / 4; i++)
		if (i != offsetof(struct rm_arg_alloc, class_id) / 4)
			__atomic_store_n((uint32_t *)(void *)arg + i,
					 ((const uint32_t *)(const void *)from)[i], __ATOMIC_RELAXED);
	if (ioctl(a->control, _IOC(3u, 'F', RM_ESC_ALLOC, sizeof(*arg)), arg) < 0)
		return -errno;
	return (int)__atomic_load_n(&arg->status, __ATOMIC_RELAXED);
}

enum { RACES = 5000 };

static void program_races_the_size(struct actor *a)
{
	static _Alignas(8) uint8_t params[128];
	struct rm_arg_alloc arg = { 0 }, from = { .parent = STAGE_DEVICE,
						  .object = STAGE_MEMORY,
						  .class_id = 0x40,
						  .params = (uintptr_t)params,
						  .size = sizeof(params) };
	struct flipper f = { .at = params + 64, .one = 2 * MIB, .two = 64 * MIB, .bytes = 8 };
	unsigned refused = 0, given = 0;
	pthread_t thread;

	actor_new_device(a);
	memcpy(params + 64, &f.one, sizeof(f.one));
	from.client = a->client;
	arg.class_id = 0x40;
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES; i++) {
		int status = alloc_raced(a, &arg, &from);

		if (status != NO_MEMORY)
			CHECK_EQUAL(status, 0);
		refused += status != 0;
		given += status == 0;
		if (!status)
			CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY), 0);
	}
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	CHECK(refused && given); /* there was a race */
	actor_say(a, 'r');
}

static void racing_the_size_gives_no_byte_more(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_the_size, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.fake->most_bytes, 2 * MIB);
	CHECK_EQUAL(s.fake->used_bytes, 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The class flips between one that is performed and one that passes, on a file that has a client. */
static void program_races_the_class(struct actor *a)
{
	static _Alignas(8) uint8_t params[128];
	static struct rm_arg_alloc arg;
	struct rm_arg_alloc from = { .parent = STAGE_DEVICE,
				     .object = STAGE_MEMORY,
				     .params = (uintptr_t)params,
				     .size = sizeof(params) };
	struct flipper f = { .at = (uint8_t *)&arg.class_id, .one = 0x41, .two = 0x40, .bytes = 4 };
	uint64_t bytes = 64 * MIB;
	unsigned seen[2] = { 0 };
	pthread_t thread;

	actor_new_device(a);
	from.client = a->client;
	memcpy(params + 64, &bytes, sizeof(bytes));
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES; i++) {
		int status = alloc_raced(a, &arg, &from);

		CHECK(status == NO_MEMORY || status == RM_ERR_NOT_SUPPORTED);
		seen[status == NO_MEMORY]++;
	}
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	CHECK(seen[0] && seen[1]);
	actor_say(a, 'r');
}

static void racing_the_class_makes_nothing(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_the_class, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.fake->most_bytes, 0);
	CHECK_EQUAL(s.fake->passed_objects, 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* USERD flips between the program's memory and an object that is none: the GPU reads our page in every case. */
static void program_races_userd(struct actor *a)
{
	const struct rm_layout *l = rm_layout_find("580.159.04");
	static _Alignas(8) uint8_t params[368];
	struct rm_arg_alloc arg = { 0 }, from = { .parent = STAGE_GROUP,
						  .object = STAGE_CHANNEL + 1,
						  .class_id = 0xc86f,
						  .params = (uintptr_t)params,
						  .size = sizeof(params) };
	struct flipper f = { .one = STAGE_USERD, .two = STAGE_DEVICE, .bytes = 4 };
	unsigned seen[2] = { 0 };
	pthread_t thread;

	actor_context(a);
	from.client = a->client;
	arg.class_id = 0xc86f;
	f.at = params + l->channel_userd_memory;
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES / 5; i++) {
		int status = alloc_raced(a, &arg, &from);

		seen[status == 0]++;
		if (!status) {
			if (seen[1] == 1)
				actor_say(a, 'c');
			CHECK_EQUAL(actor_free(a, STAGE_GROUP, STAGE_CHANNEL + 1), 0);
		}
	}
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	CHECK(seen[0] && seen[1]);
	actor_say(a, 'r');
}

static void racing_userd_leaves_the_gpu_at_our_page(void)
{
	struct fake_object *channel;
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_userd, 0);
	stage_until(&s, 'c');
	channel = fake_nth(s.fake, 0xc86f, 1);
	CHECK(channel && channel->page);
	stage_go_on(&s);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.fake->channels, 1);
	CHECK_EQUAL(s.fake->page_count, 1);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The old heap call names its function in memory too. */
static void program_races_the_heap(struct actor *a)
{
	static _Alignas(8) uint8_t arg[184];
	struct flipper f = {
		.at = arg + 8, .one = RM_HEAP_ALLOC_OS_DESCRIPTOR, .two = RM_HEAP_ALLOC_SIZE, .bytes = 4
	};
	uint32_t device = STAGE_DEVICE;
	uint64_t bytes = 64 * MIB;
	pthread_t thread;

	actor_new_device(a);
	memcpy(arg, &a->client, 4);
	memcpy(arg + 4, &device, 4);
	memcpy(arg + 88, &bytes, 8);
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES; i++)
		CHECK_EQUAL(actor_call(a->control, RM_ESC_VID_HEAP_CONTROL, arg, sizeof(arg)), 0);
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	actor_say(a, 'r');
}

static void racing_the_old_heap_makes_nothing(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_the_heap, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.fake->most_bytes, 0);
	CHECK_EQUAL(s.fake->passed_objects, 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The one allocation that passes is the client itself, and a race at it can be won: between the look and the
 * call another thread puts a file in its place whose client is known, and changes the class. What was made so is
 * in no ledger; the driver's own figure shows it, and the program is ended. */
struct swapper {
	int files[2], as;
	struct rm_arg_alloc *arg;
};

static void *swap(void *arg)
{
	struct swapper *s = arg;

	for (int i = 0;; i++) {
		dup2(s->files[i % 2], s->as);
		__atomic_store_n(&s->arg->class_id, i % 2 ? 0x40 : 0x41, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void program_races_its_client(struct actor *a)
{
	static uint8_t params[128];
	static struct rm_arg_alloc arg;
	struct rm_arg_alloc from = { .parent = STAGE_DEVICE,
				     .params = (uintptr_t)params,
				     .size = sizeof(params) };
	struct swapper s = { .arg = &arg };
	struct actor raced = *a;
	uint64_t bytes = 2 * MIB;
	pthread_t thread;

	actor_new_device(a);
	memcpy(params + 64, &bytes, sizeof(bytes));
	from.client = a->client;
	s.files[0] = fake_open(a->fake, DEVICE_FILE_CONTROL);
	s.files[1] = a->control;
	s.as = raced.control = dup(s.files[0]);
	CHECK(!pthread_create(&thread, NULL, swap, &s));
	for (uint32_t i = 0;; i++) {
		from.object = STAGE_MEMORY + i;
		alloc_raced(&raced, &arg, &from);
	}
}

static void memory_won_in_a_race_ends_the_program(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_its_client, 0);
	while (!s.fake->passed_objects) {
		CHECK(!s.has_ended);
		stage_serve(&s, 1);
	}
	warden_audit(s.warden);
	warden_audit(s.warden);
	CHECK_EQUAL(stage_end(&s), SIGKILL);
}

/* Between our look and the kernel's another thread can put a device file where there was none. So calls that the
 * driver would take do not go on, whatever the file was. */
static void program_calls_other_files(struct actor *a)
{
	struct rm_arg_alloc arg = { .parent = STAGE_DEVICE, .object = STAGE_MEMORY, .class_id = 0x40 };
	struct rm_arg_control control = { .cmd = RM_CTRL_DISABLE_CHANNELS };
	struct rm_xfer xfer = { .nr = RM_ESC_ALLOC, .size = sizeof(arg), .address = (uintptr_t)&arg };
	int pair[2], other = open("/dev/null", O_RDWR | O_CLOEXEC),
		     uvm = fake_open(a->fake, DEVICE_FILE_MANAGED);

	CHECK(other >= 0 && uvm >= 0 && !pipe2(pair, O_CLOEXEC));
	actor_new_device(a);
	CHECK_EQUAL(actor_call(other, RM_ESC_ALLOC, &arg, sizeof(arg)), -ENOTTY);
	CHECK_EQUAL(actor_call(pair[0], RM_ESC_CONTROL, &control, sizeof(control)), -ENOTTY);
	CHECK_EQUAL(actor_call(other, RM_ESC_XFER_CMD, &xfer, sizeof(xfer)), -ENOTTY);
	CHECK_EQUAL(actor_call(uvm, RM_ESC_ALLOC, &arg, sizeof(arg)), -ENOTTY);
	CHECK_EQUAL(actor_call(1234, RM_ESC_ALLOC, &arg, sizeof(arg)), -ENOTTY); /* not even a file, yet */
	actor_say(a, 'o');
}

static void driver_calls_on_other_files_do_not_go_on(void)
{
	static struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_calls_other_files, 0);
	stage_until(&s, 'o');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.refusals, 5);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What a raced root allocation looks like from outside: let through, and no client ever comes of it. */
static void program_makes_no_clients(struct actor *a)
{
	struct actor other = *a;

	actor_new_device(a);
	for (long i = 0; i < a->arg; i++)
		actor_new_client(&other);
	actor_say(a, 'r');
}

static void roots_that_give_no_clients_end_the_program(void)
{
	struct stage s;

	/* One may be of a program that stands still. */
	stage_start(&s, 8 * MIB, program_makes_no_clients, 1);
	stage_until(&s, 'r');
	stage_serve(&s, 1100);
	warden_audit(s.warden);
	stage_go_on(&s);
	stage_end_well(&s);

	stage_start(&s, 8 * MIB, program_makes_no_clients, 2);
	stage_until(&s, 'r');
	warden_audit(s.warden); /* too soon to tell */
	CHECK(!s.has_ended);
	stage_serve(&s, 1100);
	warden_audit(s.warden);
	CHECK_EQUAL(stage_end(&s), SIGKILL);
}

/* A control file on its way through a socket is open nowhere, and its client's memory still there. */
static void program_hides_its_file(struct actor *a)
{
	struct actor other = *a;
	int socks[2], back;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	CHECK(!bf_send_fd(socks[0], a->control));
	close(a->control);
	actor_new_device(&other);
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 4 * MIB), NO_MEMORY);
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	back = bf_recv_fd(socks[1]);
	CHECK(back >= 0);
	a->control = back;
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 1), NO_MEMORY);
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 6 * MIB), 0);
	actor_say(a, 'h');
}

static void memory_of_a_hidden_file_is_still_counted(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_hides_its_file, 0);
	stage_until(&s, 'h');
	CHECK_EQUAL(s.fake->most_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The doorbell page is memory that the program can do as it likes with, and we watch. */
static void program_plays_with_its_doorbell(struct actor *a)
{
	volatile uint32_t *second;
	struct stat st;
	int gpu;

	actor_context(a);
	gpu = fake_open(a->fake, DEVICE_FILE_GPU);
	CHECK_EQUAL(actor_alloc(a, STAGE_SUBDEVICE, STAGE_BELL + 0x10, 0xc661, NULL, 0), 0);
	second = actor_map_doorbell(a, STAGE_BELL + 0x10, gpu);
	CHECK(second != MAP_FAILED);
	/* What stands at the descriptor now is our memory: sealed. */
	CHECK(!fstat(gpu, &st));
	CHECK_EQUAL(st.st_size, 0x10000);
	CHECK(ftruncate(gpu, 0) == -1 && errno == EPERM);
	CHECK(ftruncate(gpu, 1 << 20) == -1 && errno == EPERM);
	CHECK(fcntl(gpu, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
	CHECK(!fallocate(gpu, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 0x10000)); /* a page of zeros */
	CHECK(!madvise((void *)(uintptr_t)a->bell, 0x10000, MADV_REMOVE));
	/* The second doorbell rings the same channel, and so does another mapping of the first. */
	a->bell = second;
	actor_ring(a);
	actor_say(a, '1');
	a->bell = mremap((void *)(uintptr_t)second, 0, 0x10000, MREMAP_MAYMOVE);
	CHECK(a->bell != MAP_FAILED);
	actor_ring(a);
	actor_say(a, '2');
	/* Mapped once more the descriptor is the program's own file again, not a doorbell. */
	void *third = mmap(NULL, 0x10000, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, 0);
	CHECK(!fstat(gpu, &st));
	CHECK((st.st_mode & 07) == DEVICE_FILE_GPU);
	if (third != MAP_FAILED)
		((volatile uint32_t *)third)[GATE_BELL_WORD] = a->token; /* reaches nobody */
	CHECK(!munmap((void *)(uintptr_t)second, 0x10000));
	actor_say(a, '3');
}

static void doorbell_page_is_harmless_in_the_programs_hands(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_plays_with_its_doorbell, 0);
	for (uint32_t step = 1; step <= 2; step++) {
		stage_until(&s, (char)('0' + step));
		while (fake_gp_put(fake_nth(s.fake, 0xc86f, 0)) != step)
			stage_serve(&s, 1);
		stage_go_on(&s);
	}
	stage_until(&s, '3');
	CHECK(!fake_nth(s.fake, 0xc661, 0));
	stage_go_on(&s);
	stage_end_well(&s);
}

/* A doorbell that was never prepared is not mapped. */
static void program_maps_what_it_may_not(struct actor *a)
{
	struct rm_arg_map map = { .device = STAGE_SUBDEVICE, .memory = STAGE_BELL, .fd = -1, .status = 0x77 };

	actor_context(a);
	map.client = a->client;
	map.length = 0x10000;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	CHECK_EQUAL(map.status, RM_ERR_INVALID_ARGUMENT); /* no file */
	map.fd = a->gpu;
	map.length = 1ull << 40;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	CHECK_EQUAL(map.status, RM_ERR_INVALID_ARGUMENT);
	map.length = 0x10000;
	map.offset = 4096;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	CHECK_EQUAL(map.status, RM_ERR_INVALID_ARGUMENT);
	map.offset = 0;
	map.memory = STAGE_CHANNEL; /* the driver's own page of a channel: USERD by another way */
	CHECK_EQUAL(actor_call(a->control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	CHECK_EQUAL(map.status, RM_ERR_NOT_SUPPORTED);
}

static void odd_maps_of_doorbells_and_channels_are_refused(void)
{
	run_well(program_maps_what_it_may_not);
}

/* Arguments that lead nowhere. */
static void program_points_into_the_void(struct actor *a)
{
	struct rm_arg_alloc arg = {
		.parent = STAGE_DEVICE, .object = STAGE_MEMORY, .class_id = 0x40, .params = 0x10, .size = 128
	};

	actor_new_device(a);
	arg.client = a->client;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC, (void *)0x10, 48), -EFAULT);
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC, &arg, sizeof(arg)), -EFAULT);
	arg.size = 0xffffffff;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC, &arg, sizeof(arg)) < 0, 1);
	CHECK_EQUAL(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_GET_PIDS, (void *)0x10, 0xffffffff) != 0, 1);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0); /* all is well */
}

static void wild_pointers_hurt_only_the_caller(void)
{
	run_well(program_points_into_the_void);
}

/* Device files that were open before supervision are closed by the time the program runs. */
static void inherited_device_files_are_closed(void)
{
	struct fake *fake = fake_new();
	int device = fake_open(fake, DEVICE_FILE_CONTROL), uvm = fake_open(fake, DEVICE_FILE_MANAGED);
	int plain = open("/dev/null", O_RDWR), status;
	struct bf_error err = { 0 };
	struct program program;
	char script[160];

	CHECK(device >= 0 && uvm >= 0 && plain >= 0);
	fcntl(device, F_SETFD, 0);
	fcntl(uvm, F_SETFD, 0);
	snprintf(script, sizeof(script),
		 "test ! -e /proc/self/fd/%d && test ! -e /proc/self/fd/%d && test -e /proc/self/fd/%d",
		 device, uvm, plain);
	char *argv[] = { "/bin/sh", "-c", script, NULL };
	CHECK_EQUAL(program_prepare(argv, getpgrp(), &fake->device, &program, &err), 0);
	CHECK_EQUAL(program_go(&program), 0);
	CHECK(waitpid(program.pid, &status, 0) == program.pid);
	CHECK_EQUAL(status, 0);
	close(program.listener);
	close(device);
	close(uvm);
	close(plain);
	fake_free(fake);
}

int main(void)
{
	STAGE_TEST(inherited_device_files_are_closed);
	STAGE_TEST(device_is_the_same_by_every_path);
	STAGE_TEST(magic_byte_and_wide_registers_change_nothing);
	STAGE_TEST(xfer_is_refused);
	STAGE_TEST(calls_around_the_ledger_are_refused);
	STAGE_TEST(io_uring_reaches_nothing);
	STAGE_TEST(calls_of_32bit_programs_do_not_exist);
	STAGE_TEST(calls_of_x32_programs_do_not_exist);
	STAGE_TEST(second_supervisor_is_refused);
	STAGE_TEST(one_control_file_is_one_client);
	STAGE_TEST(racing_the_size_gives_no_byte_more);
	STAGE_TEST(racing_the_class_makes_nothing);
	STAGE_TEST(racing_userd_leaves_the_gpu_at_our_page);
	STAGE_TEST(racing_the_old_heap_makes_nothing);
	STAGE_TEST(memory_won_in_a_race_ends_the_program);
	STAGE_TEST(driver_calls_on_other_files_do_not_go_on);
	STAGE_TEST(roots_that_give_no_clients_end_the_program);
	STAGE_TEST(memory_of_a_hidden_file_is_still_counted);
	STAGE_TEST(doorbell_page_is_harmless_in_the_programs_hands);
	STAGE_TEST(odd_maps_of_doorbells_and_channels_are_refused);
	STAGE_TEST(wild_pointers_hurt_only_the_caller);
	return 0;
}
