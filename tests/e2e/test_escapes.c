/* Ways around: each is impossible, or found out. docs/security.md says which, and names these tests. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
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
#include "soft/link/link.h"
#include "stage.h"
#include "warden/filter.h"

#define MIB CARD_MIB
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
	CHECK_EQUAL(actor_call(control, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
	a->control = control;
	a->client = arg.object;
	CHECK_EQUAL(actor_alloc(a, a->client, STAGE_DEVICE, 0x80, device, sizeof(device)), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
	close(control);
}

static int open_at(const char *folder)
{
	return link_open(folder, SOFT_FILE_CONTROL);
}

/* The socket at which device files are handed out, by other names; then the file itself. */
static void program_takes_other_paths(struct actor *a)
{
	char path[160], other[128], name[192];
	int fd, socks[2], self = bf_pidfd_open(getpid());

	snprintf(path, sizeof(path), "%s/socket", a->folder);
	snprintf(other, sizeof(other), "%s/other", a->folder);
	snprintf(name, sizeof(name), "%s/socket", other);
	CHECK(!mkdir(other, 0700));
	CHECK(!link(path, name));
	check_is_supervised(a, open_at(other));
	CHECK(!unlink(name));
	CHECK(!symlink(path, name));
	check_is_supervised(a, open_at(other));
	CHECK(!unlink(name));
	CHECK(!rename(path, name));
	check_is_supervised(a, open_at(other));
	CHECK(!rename(name, path));
	fd = open(a->folder, O_PATH | O_CLOEXEC);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	check_is_supervised(a, open_at(name));
	close(fd);
	fd = open_at(a->folder);
	check_is_supervised(a, fcntl(fd, F_DUPFD_CLOEXEC, 200));
	close(fd);
	fd = open_at(a->folder);
	check_is_supervised(a, bf_pidfd_getfd(self, fd));
	close(fd);
	fd = open_at(a->folder);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) && !bf_send_fd(socks[0], fd));
	close(fd);
	check_is_supervised(a, bf_recv_fd(socks[1]));
	close(self);
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

/* Because nothing is known of the control, or because too much is. */
static void check_is_refused(int status)
{
	if (status != RM_ERR_NOT_SUPPORTED)
		CHECK_EQUAL(status, RM_ERR_INSUFFICIENT_PERMISSIONS);
}

static void program_tries_old_doors(struct actor *a)
{
	static const uint32_t classes[] = { 0x3f, 0x50, 0x71, 0x76, 0x81, 0x82, 0x83, 0xc2, 0x5080 };
	const struct rm_layout *l = rm_layout_find(SOFT_DRIVER_VERSION);
	uint32_t object[5] = { 0 }, one = 1, channel = STAGE_CHANNEL;
	uint8_t params[1024] = { 0 }, heap[184] = { 0 };
	struct rm_arg_alloc_memory memory = { .class_id = 0x40, .limit = 4095, .fd = -1 };
	struct rm_arg_alloc serialized = { .parent = STAGE_DEVICE, .object = STAGE_MEMORY, .class_id = 0x40 };
	uint32_t function = RM_HEAP_ALLOC_SIZE;

	actor_context(a);
	actor_say(a, 'c');
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		CHECK_EQUAL(actor_alloc(a, STAGE_SUBDEVICE, STAGE_MEMORY, classes[i], params, 64),
			    RM_ERR_NOT_SUPPORTED);
	object[0] = memory.client = serialized.client = a->client;
	object[1] = memory.parent = STAGE_DEVICE;
	object[2] = memory.object = STAGE_MEMORY;
	object[3] = 0x40;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_ALLOC_OBJECT, object, sizeof(object)), -EINVAL);
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
	params[0] = 1;
	memcpy(params + l->disable_count, &one, 4);
	memcpy(params + l->disable_clients, &a->client, 4);
	memcpy(params + l->disable_channels, &channel, 4);
	check_is_refused(
		actor_control(a, STAGE_SUBDEVICE, RM_CTRL_DISABLE_CHANNELS, params, l->disable_size));
	check_is_refused(actor_control(a, STAGE_SUBDEVICE, RM_CTRL_FIFO_UPDATE_CHANNEL_INFO, params, 64));
	actor_say(a, 'o');
}

static void program_waits_under_the_lock(struct actor *a)
{
	struct rm_arg_idle idle = { .count = 1, .flags = RM_IDLE_ASK, .timeout_us = 1000 };
	uint8_t params[64] = { 0 };

	actor_context(a);
	idle.client = a->client;
	idle.device = STAGE_DEVICE;
	idle.channel = STAGE_CHANNEL;
	CHECK_EQUAL(actor_call(a->control, RM_ESC_IDLE_CHANNELS, &idle, sizeof(idle)), -EINVAL);
	check_is_refused(actor_control(a, a->client, RM_CTRL_ROOT_IDLE_CHANNELS, params, 48));
	check_is_refused(actor_control(a, STAGE_DEVICE, RM_CTRL_FIFO_IDLE_CHANNELS, params, sizeof(params)));
}

static void waits_under_the_gpus_lock_are_refused(void)
{
	run_well(program_waits_under_the_lock);
}

/* A driver that notes which preemption mode it is asked for. */
static const struct device_ops *ops_before;
static uint32_t modes[4];
static unsigned mode_count;

static int noting_call(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	const struct rm_arg_control *control = arg;

	if (nr == RM_ESC_CONTROL && control->cmd == RM_CTRL_SET_PREEMPTION && mode_count < 4)
		memcpy(&modes[mode_count++], (const char *)(uintptr_t)control->params + 12, sizeof(uint32_t));
	return ops_before->call(device, fd, nr, arg, size);
}

static void note_modes(struct card *card)
{
	static struct device_ops ops;

	ops_before = card->device->ops;
	ops = *ops_before;
	ops.call = noting_call;
	card->device->ops = &ops;
}

static void program_wants_not_to_be_interrupted(struct actor *a)
{
	uint32_t params[8] = { 1, STAGE_CHANNEL };

	actor_context(a);
	for (uint32_t mode = 0; mode < 2; mode++) {
		params[3] = mode;
		actor_control(a, STAGE_SUBDEVICE, RM_CTRL_SET_PREEMPTION, params, sizeof(params));
		CHECK_EQUAL(params[3], mode); /* it believes to have it */
	}
	actor_say(a, 'm');
}

static void kernels_can_be_interrupted_whatever_the_program_wants(void)
{
	const struct warden_options options = { .mem_bytes = 64 * MIB, .interleave = -1 };
	struct stage s;

	mode_count = 0;
	stage_start_changed(&s, &options, note_modes, program_wants_not_to_be_interrupted, 0);
	stage_until(&s, 'm');
	CHECK_EQUAL(mode_count, 2);
	CHECK(modes[0] == 2 && modes[1] == 2);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void calls_around_the_ledger_are_refused(void)
{
	struct card_channel channel;
	unsigned of_a_context;
	struct stage s;

	stage_start(&s, 8 * MIB, program_tries_old_doors, 0);
	stage_until(&s, 'c');
	of_a_context = card_count(&s.card, 0);
	stage_go_on(&s);
	stage_until(&s, 'o');
	CHECK_EQUAL(card_used_bytes(&s.card), 2 * MIB);
	CHECK_EQUAL(card_count(&s.card, 0), of_a_context);
	CHECK(card_channel(&s.card, STAGE_CHANNEL, &channel) && !channel.is_disabled);
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
		check_skip("no io_uring here");
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
		check_skip("this kernel has no 32-bit calls");
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

static uint32_t new_client(int control)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };

	CHECK_EQUAL(actor_call(control, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
	return arg.object;
}

static void program_makes_a_second_client(struct actor *a)
{
	struct actor second = *a, other = *a;

	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	second.control = a->control;
	second.client = new_client(a->control);
	CHECK(second.client != a->client);
	actor_use_client(&second);
	CHECK_EQUAL(actor_memory(&second, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(&second, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	/* A client of another file is not to be had through this one. */
	actor_new_device(&other);
	other.control = a->control;
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), RM_ERR_INVALID_CLIENT);
	CHECK_EQUAL(actor_free(&other, other.client, other.client), RM_ERR_INVALID_CLIENT);
	actor_say(a, 's');
	close(a->control);
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
}

static void clients_of_one_control_file_share_the_limit_and_go_with_it(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_makes_a_second_client, 0);
	stage_until(&s, 's');
	CHECK_EQUAL(card_clients(&s.card), 3);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_uses_a_handle_twice(struct actor *a)
{
	uint8_t group[20] = { 0 };

	actor_context(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, MIB), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, MIB), RM_ERR_INSERT_DUPLICATE_NAME);
	CHECK_EQUAL(actor_alloc(a, STAGE_DEVICE, STAGE_MEMORY, 0xa06c, group, sizeof(group)),
		    RM_ERR_INSERT_DUPLICATE_NAME);
	CHECK_EQUAL(actor_alloc(a, STAGE_SUBDEVICE, STAGE_MEMORY, 0xc661, NULL, 0),
		    RM_ERR_INSERT_DUPLICATE_NAME);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY, a->client, STAGE_USERD), RM_ERR_INSERT_DUPLICATE_NAME);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY + 1, a->client, STAGE_MEMORY), 0);
	actor_say(a, 'h');
}

static void handle_in_use_is_not_given_again(void)
{
	static struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_uses_a_handle_twice, 0);
	stage_until(&s, 'h');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 3 * MIB);
	CHECK_EQUAL(card_used_bytes(&s.card), 3 * MIB);
	CHECK_EQUAL(card_count(&s.card, 0xa06c), 1);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What is at the program's descriptor after its first call is a pipe. A copy from before is a file without a client. */
static void program_copies_its_file(struct actor *a)
{
	int raw = actor_open(a, SOFT_FILE_CONTROL), early = dup(raw), late;
	struct actor other = *a;
	struct stat st;

	CHECK(raw >= 0 && early >= 0);
	a->control = raw;
	a->client = new_client(raw);
	actor_use_client(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	CHECK(!fstat(raw, &st) && S_ISFIFO(st.st_mode));
	CHECK(!fstat(early, &st) && S_ISSOCK(st.st_mode));
	other.control = early;
	other.client = a->client;
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY + 1, MIB), RM_ERR_INVALID_CLIENT);
	other.client = new_client(early);
	actor_use_client(&other);
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	close(early);
	late = dup(raw); /* a copy from now on is the same file */
	close(raw);
	a->control = late;
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB), 0);
}

static void copy_from_before_the_first_call_is_a_file_of_its_own(void)
{
	run_well(program_copies_its_file);
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
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The doorbell page is plain memory of the program. The poller reads it. */
static void program_plays_with_its_doorbell(struct actor *a)
{
	volatile uint32_t *second;
	struct stat st;
	int gpu;

	actor_context(a);
	gpu = actor_open(a, SOFT_FILE_GPU_0);
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
	/* What stands there is no device file any more: mapped once more it is the same page, and takes no call. */
	a->bell = mmap(NULL, 0x10000, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, 0);
	CHECK(a->bell != MAP_FAILED);
	CHECK_EQUAL(actor_call(gpu, RM_ESC_REGISTER_FD, &a->control, 4), -ENOTTY);
	CHECK(!munmap((void *)(uintptr_t)second, 0x10000));
	actor_ring(a);
	actor_say(a, '3');
}

static void doorbell_page_is_harmless_in_the_programs_hands(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_plays_with_its_doorbell, 0);
	for (uint32_t step = 1; step <= 3; step++) {
		stage_until(&s, (char)('0' + step));
		stage_until_done(&s, 0, step);
		CHECK_EQUAL(card_count(&s.card, 0xc661), 0);
		stage_go_on(&s);
	}
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

/* What an ordinary user has not, root has not either. */
static void give_up_tracing(void)
{
	struct __user_cap_header_struct who = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3];

	CHECK(!syscall(SYS_capget, &who, rights));
	rights[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	rights[CAP_TO_INDEX(CAP_SYS_PTRACE)].permitted &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	CHECK(!syscall(SYS_capset, &who, rights));
}

static void program_hides_its_files(struct actor *a)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };
	uint8_t idle[56] = { 0 }; /* has the driver wait */
	int control = actor_open(a, SOFT_FILE_CONTROL), none = dup(control);

	close(none);
	CHECK_EQUAL(actor_call(none, RM_ESC_ALLOC, &arg, sizeof(arg)), -EBADF);
	CHECK(!prctl(PR_SET_DUMPABLE, 0));
	CHECK_EQUAL(actor_call(control, RM_ESC_ALLOC, &arg, sizeof(arg)), -EACCES);
	CHECK_EQUAL(actor_call(control, RM_ESC_IDLE_CHANNELS, idle, sizeof(idle)), -EACCES);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, control, 0) == MAP_FAILED);
	CHECK_EQUAL(errno, EACCES);
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
	check_is_supervised(a, control);
}

static void program_that_hides_its_files_has_no_gpu(void)
{
	give_up_tracing();
	run_well(program_hides_its_files);
}

static void program_works_and_hides(struct actor *a)
{
	actor_context(a);
	actor_ring(a);
	actor_say(a, 'w');
	CHECK(!prctl(PR_SET_DUMPABLE, 0));
	actor_say(a, 'h');
}

/* The files are the warden's, so nothing of the program is needed for it. */
static void program_that_hides_its_files_is_stopped_like_any_other(void)
{
	static struct warden_report report;
	struct card_channel channel;
	struct bf_error err;
	struct stage s;

	stage_start(&s, 8 * MIB, program_works_and_hides, 0);
	stage_until(&s, 'w');
	stage_until_done(&s, 0, 1);
	stage_go_on(&s);
	stage_until(&s, 'h');
	warden_audit(s.warden);
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 2 * MIB);
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	CHECK(card_channel(&s.card, STAGE_CHANNEL, &channel) && channel.is_disabled);
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	CHECK(card_channel(&s.card, STAGE_CHANNEL, &channel) && !channel.is_disabled);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(device_is_the_same_by_every_path);
	STAGE_TEST(magic_byte_and_wide_registers_change_nothing);
	STAGE_TEST(xfer_is_refused);
	STAGE_TEST(calls_around_the_ledger_are_refused);
	STAGE_TEST(waits_under_the_gpus_lock_are_refused);
	STAGE_TEST(kernels_can_be_interrupted_whatever_the_program_wants);
	STAGE_TEST(io_uring_reaches_nothing);
	STAGE_TEST(calls_of_32bit_programs_do_not_exist);
	STAGE_TEST(calls_of_x32_programs_do_not_exist);
	STAGE_TEST(second_supervisor_is_refused);
	STAGE_TEST(clients_of_one_control_file_share_the_limit_and_go_with_it);
	STAGE_TEST(handle_in_use_is_not_given_again);
	STAGE_TEST(copy_from_before_the_first_call_is_a_file_of_its_own);
	STAGE_TEST(memory_of_a_hidden_file_is_still_counted);
	STAGE_TEST(doorbell_page_is_harmless_in_the_programs_hands);
	STAGE_TEST(odd_maps_of_doorbells_and_channels_are_refused);
	STAGE_TEST(wild_pointers_hurt_only_the_caller);
	/* The next one gives up a right, so these two are the last. */
	STAGE_TEST(program_that_hides_its_files_has_no_gpu);
	STAGE_TEST(program_that_hides_its_files_is_stopped_like_any_other);
	return check_status();
}
