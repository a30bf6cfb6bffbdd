#include "stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "soft/link/link.h"
#include "warden/filter.h"

#define PATIENCE_NS 60000000000ull

/* How often calls were continued in this test, by the entry of the list that allowed it. */
enum { CONTINUED_ENTRIES = 32 };
static _Atomic unsigned continued[CONTINUED_ENTRIES];

/* Of every test: a call that the warden would let the kernel make, and that is not on the list, fails it. */
static void note_continued(void *context, const struct continued_call *call,
			   const struct continued_entry *entry)
{
	(void)context;
	if (!entry)
		fprintf(stderr, "system call %d (0x%x) on a file of kind %d is not to be continued\n",
			call->nr, call->cmd, call->kind);
	CHECK(entry);
	CHECK(entry - continued_at(0) < CONTINUED_ENTRIES);
	continued[entry - continued_at(0)]++;
}

static void list_continued(void)
{
	const struct continued_entry *entry;

	for (unsigned i = 0; (entry = continued_at(i)); i++)
		if (continued[i])
			printf("\tcontinued: %s, %u times\n", entry->name, atomic_exchange(&continued[i], 0));
}

static unsigned count_descriptors(void)
{
	DIR *files = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(files))
		count++;
	closedir(files);
	return count;
}

static void __attribute__((noreturn))
program_main(const struct card *card, stage_program program, long arg, int sock, int say, int hear)
{
	struct actor actor = {
		.folder = card->folder, .say = say, .hear = hear, .arg = arg, .control = -1, .gpu = -1
	};
	struct bf_error err = { 0 };
	char heard;
	int listener;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	listener = filter_install(&err);
	if (listener < 0)
		fprintf(stderr, "%s\n", err.text);
	CHECK(listener >= 0);
	CHECK(bf_send_fd(sock, listener) == 0);
	close(listener);
	close(sock);
	CHECK(read(hear, &heard, 1) == 1); /* the software GPU is there */
	program(&actor);
	_exit(0);
}

/* Before there are threads, which would not be there in the program: those of the software GPU and of the gate. */
static int start_program(const struct card *card, stage_program program, long arg,
			 struct stage_second *started)
{
	int socks[2], to[2], from[2], listener;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	CHECK(!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fflush(NULL);
	started->pid = fork();
	CHECK(started->pid >= 0);
	if (!started->pid) {
		close(socks[0]);
		close(to[1]);
		close(from[0]);
		program_main(card, program, arg, socks[1], from[1], to[0]);
	}
	close(socks[1]);
	close(to[0]);
	close(from[1]);
	started->say = to[1];
	started->hear = from[0];
	started->pidfd = bf_pidfd_open(started->pid);
	CHECK(started->pidfd >= 0);
	listener = bf_recv_fd(socks[0]);
	CHECK(listener >= 0);
	close(socks[0]);
	return listener;
}

static void *serve_second(void *arg)
{
	struct warden *warden = arg;
	struct pollfd poll_for = { warden_fd(warden), POLLIN, 0 };
	struct warden_report report = { .processes = 1 };
	bool is_over = false;

	while (!is_over || report.processes || report.channels) {
		poll(&poll_for, 1, 10);
		is_over = !warden_work(warden);
		if (is_over)
			warden_report(warden, &report);
	}
	return NULL;
}

static struct warden_options options_of(const struct stage_setup *setup)
{
	struct warden_options options = setup->options;

	options.hooks.continued = note_continued;
	return options;
}

static void add_second(struct stage *stage, const struct stage_setup *setup, int listener)
{
	struct warden_options options = options_of(setup);
	struct warden *warden = stage->warden;
	struct bf_error err = { 0 };

	if (setup->has_two_wardens) {
		warden = warden_new(stage->card.device, stage->gate, &options, &err);
		CHECK(warden);
	}
	CHECK_EQUAL(warden_add_run(warden, STAGE_SECOND_RUN, listener, setup->reach, &err), 0);
	if (setup->has_two_wardens) {
		stage->second.warden = warden;
		CHECK(!pthread_create(&stage->second.thread, NULL, serve_second, warden));
	}
	stage_second_goes_on(stage);
}

void stage_start_as(struct stage *stage, const struct stage_setup *setup, stage_program program, long arg)
{
	struct warden_options options = options_of(setup);
	struct bf_error err = { 0 };
	struct stage_second first;
	struct device *device;
	int listener, second = -1;

	*stage = (struct stage){ .descriptors_before = count_descriptors() };
	card_make_folder(&stage->card);
	listener = start_program(&stage->card, program, arg, &first);
	if (setup->second)
		second = start_program(&stage->card, setup->second, setup->second_arg, &stage->second);
	stage->pid = first.pid;
	stage->pidfd = first.pidfd;
	stage->say = first.say;
	stage->hear = first.hear;
	card_start(&stage->card);
	device = stage->card.device;
	if (setup->change)
		setup->change(&stage->card);
	stage->gate = gate_new(device->bell, NULL, &err);
	CHECK(stage->gate);
	gate_set_rang(stage->gate, device->rang);
	stage->warden = warden_new(device, stage->gate, &options, &err);
	CHECK(stage->warden);
	CHECK_EQUAL(warden_add_run(stage->warden, STAGE_RUN, listener, setup->reach, &err), 0);
	stage_go_on(stage);
	if (second >= 0)
		add_second(stage, setup, second);
}

void stage_start_changed(struct stage *stage, const struct warden_options *options,
			 void (*change)(struct card *card), stage_program program, long arg)
{
	stage_start_as(stage, &(struct stage_setup){ .options = *options, .change = change }, program, arg);
}

void stage_start_with(struct stage *stage, const struct warden_options *options, stage_program program,
		      long arg)
{
	stage_start_changed(stage, options, NULL, program, arg);
}

void stage_start(struct stage *stage, uint64_t mem_bytes, stage_program program, long arg)
{
	struct warden_options options = { .mem_bytes = mem_bytes, .interleave = -1 };

	stage_start_with(stage, &options, program, arg);
}

static void reap(struct stage *stage)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == stage->pid) {
			stage->has_ended = true;
			stage->status = status;
		} else if (pid == stage->second.pid) {
			stage->second.has_ended = true;
			stage->second.status = status;
		}
}

/* Only what the warden does for the program gives it memory, so after each step is often enough. */
static void note_memory(struct stage *stage)
{
	uint64_t bytes = card_used_bytes(&stage->card);

	if (bytes > stage->most_bytes)
		stage->most_bytes = bytes;
}

static bool has_second(const struct stage *stage)
{
	return stage->second.pid && !stage->second.has_ended;
}

/* One step; true if the program has said something, or the second one if it is meant. */
static bool serve_step(struct stage *stage, int timeout_ms, bool of_second)
{
	/* When no run is left, the ends of its processes and files may still be to be handled. */
	struct pollfd fds[] = { { warden_fd(stage->warden), POLLIN, 0 },
				{ stage->has_ended ? -1 : stage->hear, POLLIN, 0 },
				{ stage->has_ended ? -1 : stage->pidfd, POLLIN, 0 },
				{ has_second(stage) ? stage->second.hear : -1, POLLIN, 0 },
				{ has_second(stage) ? stage->second.pidfd : -1, POLLIN, 0 } };

	if (poll(fds, sizeof(fds) / sizeof(fds[0]), timeout_ms) < 0)
		return false;
	if (fds[0].revents && !warden_work(stage->warden))
		stage->is_over = true;
	note_memory(stage);
	reap(stage);
	return fds[of_second ? 3 : 1].revents & POLLIN;
}

static bool serve_once(struct stage *stage, int timeout_ms)
{
	return serve_step(stage, timeout_ms, false);
}

static void until(struct stage *stage, char letter, bool of_second)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;
	char said = 0;

	while (!serve_step(stage, 100, of_second)) {
		CHECK(of_second ? has_second(stage) : !stage->has_ended); /* it ended instead */
		CHECK(bf_now_ns() < give_up_ns);
	}
	CHECK(read(of_second ? stage->second.hear : stage->hear, &said, 1) == 1);
	CHECK_EQUAL(said, letter);
}

void stage_until(struct stage *stage, char letter)
{
	until(stage, letter, false);
}

void stage_until_second(struct stage *stage, char letter)
{
	until(stage, letter, true);
}

void stage_serve(struct stage *stage, unsigned ms)
{
	uint64_t until_ns = bf_now_ns() + ms * 1000000ull;

	while (bf_now_ns() < until_ns)
		serve_once(stage, 1);
}

uint32_t stage_done(const struct stage *stage, unsigned channel)
{
	return atomic_load(card_word(&stage->card, STAGE_USERD, STAGE_DONE_AT(channel)));
}

void stage_until_done(struct stage *stage, unsigned channel, uint32_t value)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (stage_done(stage, channel) != value) {
		serve_once(stage, 0);
		if (bf_now_ns() > give_up_ns)
			CHECK_EQUAL(stage_done(stage, channel), value);
	}
}

void stage_until_put(struct stage *stage, uint32_t handle, uint32_t value)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;
	struct card_channel channel;

	for (;;) {
		CHECK(card_channel(&stage->card, handle, &channel));
		if (channel.gp_put == value)
			return;
		serve_once(stage, 1);
		if (bf_now_ns() > give_up_ns)
			CHECK_EQUAL(channel.gp_put, value);
	}
}

void stage_go_on(struct stage *stage)
{
	CHECK(write(stage->say, "g", 1) == 1);
}

void stage_second_goes_on(struct stage *stage)
{
	CHECK(write(stage->second.say, "g", 1) == 1);
}

static void check_has_nothing(struct warden *warden)
{
	struct warden_report report;

	warden_report(warden, &report);
	CHECK_EQUAL(report.processes, 0);
	CHECK_EQUAL(report.channels, 0);
	CHECK_EQUAL(report.mem_used_bytes, 0);
	CHECK_EQUAL(report.mem_managed_bytes, 0);
	CHECK_EQUAL(report.mem_driver_bytes, 0);
}

/* A file goes with the last copy of it, which may be in other hands than the programs'. */
static void check_nothing_is_left(struct stage *stage)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;

	while (!card_is_clean(&stage->card)) {
		CHECK(bf_now_ns() < give_up_ns);
		serve_once(stage, 1);
		if (stage->second.warden)
			warden_work(stage->second.warden);
	}
	check_has_nothing(stage->warden);
	if (stage->second.warden)
		check_has_nothing(stage->second.warden);
}

int stage_end(struct stage *stage)
{
	uint64_t give_up_ns = bf_now_ns() + PATIENCE_NS;
	struct warden_report report = { .processes = 1 };

	/* The kernel says that no program is left before the last one has closed its files. */
	while (!stage->has_ended || has_second(stage) || !stage->is_over || report.processes ||
	       report.channels) {
		serve_once(stage, 10);
		if (stage->has_ended && !has_second(stage) && stage->is_over)
			warden_report(stage->warden, &report);
		CHECK(bf_now_ns() < give_up_ns);
	}
	if (stage->second.warden)
		CHECK(!pthread_join(stage->second.thread, NULL));
	check_nothing_is_left(stage);
	warden_free(stage->second.warden);
	warden_free(stage->warden);
	gate_free(stage->gate);
	card_stop(&stage->card);
	close(stage->pidfd);
	close(stage->say);
	close(stage->hear);
	if (stage->second.pid) {
		close(stage->second.pidfd);
		close(stage->second.say);
		close(stage->second.hear);
	}
	CHECK_EQUAL(count_descriptors(), stage->descriptors_before);
	return stage->status;
}

void stage_end_well(struct stage *stage)
{
	CHECK_EQUAL(stage_end(stage), 0);
}

struct stage_setup stage_two(uint64_t mem_bytes, stage_program second, long arg)
{
	return (struct stage_setup){ .options = { .mem_bytes = mem_bytes, .interleave = -1 },
				     .second = second,
				     .second_arg = arg };
}

uint64_t stage_calls(struct stage *stage)
{
	struct warden_report report;

	warden_report(stage->warden, &report);
	return report.calls;
}

void stage_test(const char *name, void (*test)(void))
{
	bf_log_setup("warden", getenv("STAGE_DEBUG") ? BF_LOG_DEBUG : BF_LOG_ERROR);
	printf("- %s\n", name);
	fflush(stdout);
	test();
	list_continued();
}

/* The program's side. */

void actor_tell(struct actor *actor, char letter)
{
	CHECK(write(actor->say, &letter, 1) == 1);
}

void actor_say(struct actor *actor, char letter)
{
	char heard;

	actor_tell(actor, letter);
	CHECK(read(actor->hear, &heard, 1) == 1);
}

int actor_call(int fd, uint32_t nr, void *arg, uint32_t size)
{
	return ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg) < 0 ? -errno : 0;
}

int actor_open(const struct actor *actor, uint32_t file)
{
	return link_open(actor->folder, file);
}

void actor_new_client(struct actor *actor)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };

	actor->control = actor_open(actor, SOFT_FILE_CONTROL);
	CHECK(actor->control >= 0);
	CHECK_EQUAL(actor_call(actor->control, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
	actor->client = arg.object;
}

int actor_alloc(struct actor *actor, uint32_t parent, uint32_t handle, uint32_t class_id, void *params,
		uint32_t size)
{
	struct rm_arg_alloc arg = { .client = actor->client,
				    .parent = parent,
				    .object = handle,
				    .class_id = class_id,
				    .params = (uintptr_t)params,
				    .size = size,
				    .status = 0x77 };
	int rc = actor_call(actor->control, RM_ESC_ALLOC, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

void actor_use_client(struct actor *actor)
{
	uint8_t device[56] = { 0 };
	uint32_t subdevice = 0;

	CHECK_EQUAL(actor_alloc(actor, actor->client, STAGE_DEVICE, 0x80, device, sizeof(device)), 0);
	CHECK_EQUAL(actor_alloc(actor, STAGE_DEVICE, STAGE_SUBDEVICE, 0x2080, &subdevice, sizeof(subdevice)),
		    0);
}

void actor_new_device(struct actor *actor)
{
	actor_new_client(actor);
	actor_use_client(actor);
}

int actor_memory(struct actor *actor, uint32_t parent, uint32_t handle, uint64_t bytes)
{
	uint8_t params[128] = { 0 };

	memcpy(params + 64, &bytes, sizeof(bytes));
	return actor_alloc(actor, parent, handle, 0x40, params, sizeof(params));
}

int actor_free(struct actor *actor, uint32_t parent, uint32_t handle)
{
	struct rm_arg_free arg = {
		.client = actor->client, .parent = parent, .object = handle, .status = 0x77
	};
	int rc = actor_call(actor->control, RM_ESC_FREE, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int actor_control(struct actor *actor, uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	struct rm_arg_control arg = { .client = actor->client,
				      .object = object,
				      .cmd = cmd,
				      .params = (uintptr_t)params,
				      .size = size,
				      .status = 0x77 };
	int rc = actor_call(actor->control, RM_ESC_CONTROL, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

int actor_dup(struct actor *actor, uint32_t handle, uint32_t source_client, uint32_t source)
{
	struct rm_arg_dup arg = { .client = actor->client,
				  .parent = STAGE_DEVICE,
				  .object = handle,
				  .source_client = source_client,
				  .source_object = source,
				  .status = 0x77 };
	int rc = actor_call(actor->control, RM_ESC_DUP_OBJECT, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

void actor_channel_params(const struct actor *actor, uint32_t handle, uint32_t memory, uint64_t offset,
			  uint8_t *params)
{
	enum { CHANNEL_SPACE_AT = 28 }; /* NV_CHANNEL_ALLOC_PARAMS.hVASpace */
	const struct rm_layout *l = rm_layout_find(SOFT_DRIVER_VERSION);
	uint64_t ring = actor->block_address + STAGE_RING_AT((handle - STAGE_CHANNEL) % STAGE_CHANNELS);
	uint32_t entries = STAGE_RING_ENTRIES, space = STAGE_SPACE;

	memcpy(params + l->channel_gpfifo_offset, &ring, sizeof(ring));
	memcpy(params + l->channel_gpfifo_entries, &entries, sizeof(entries));
	memcpy(params + CHANNEL_SPACE_AT, &space, sizeof(space));
	memcpy(params + l->channel_userd_memory, &memory, sizeof(memory));
	memcpy(params + l->channel_userd_offset, &offset, sizeof(offset));
}

int actor_channel(struct actor *actor, uint32_t group, uint32_t handle, uint32_t memory, uint64_t offset)
{
	const struct rm_layout *l = rm_layout_find(SOFT_DRIVER_VERSION);
	uint8_t params[368] = { 0 };

	CHECK(l->channel_size == sizeof(params));
	actor_channel_params(actor, handle, memory, offset, params);
	int status = actor_alloc(actor, group, handle, 0xc86f, params, sizeof(params));
	/* The program finds its own values where it left them. */
	CHECK(!memcmp(params + l->channel_userd_memory, &memory, sizeof(memory)) || status);
	return status;
}

void *actor_map_doorbell(struct actor *actor, uint32_t handle, int gpu)
{
	struct rm_arg_map map = { .client = actor->client,
				  .device = STAGE_SUBDEVICE,
				  .memory = handle,
				  .length = 0x10000,
				  .flags = 0x80002,
				  .fd = gpu,
				  .status = 0x77 };
	uint32_t space[3] = { handle, 0, 0xff };

	CHECK_EQUAL(actor_control(actor, actor->client, RM_CTRL_ROOT_GET_ADDRESS_SPACE, space, sizeof(space)),
		    0);
	CHECK_EQUAL(space[2], 3);
	CHECK_EQUAL(actor_call(actor->control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	CHECK_EQUAL(map.status, 0);
	return mmap(NULL, 0x10000, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, 0);
}

void *actor_map_memory(struct actor *actor, uint32_t handle, uint64_t bytes)
{
	struct rm_arg_map map = { .client = actor->client,
				  .device = STAGE_SUBDEVICE,
				  .memory = handle,
				  .length = bytes,
				  .flags = 0xc0000,
				  .fd = actor_open(actor, SOFT_FILE_GPU_0),
				  .status = 0x77 };
	void *at;

	CHECK_EQUAL(actor_call(actor->control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	CHECK_EQUAL(map.status, 0);
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, (off_t)map.address);
	CHECK(at != MAP_FAILED);
	close(map.fd);
	return at;
}

/* NVOS46: the memory somewhere in the address space. */
static uint64_t map_for_gpu(struct actor *actor, uint32_t memory, uint64_t bytes)
{
	struct {
		uint32_t client, device, space, memory;
		uint64_t offset, bytes;
		uint32_t flags, flags2, kind, pad;
		uint64_t address;
		uint32_t status, pad2;
	} arg = { .client = actor->client,
		  .device = STAGE_DEVICE,
		  .space = STAGE_SPACE,
		  .memory = memory,
		  .bytes = bytes,
		  .status = 0x77 };

	CHECK_EQUAL(actor_call(actor->control, RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
	return arg.address;
}

void actor_add_channel(struct actor *actor, unsigned channel)
{
	uint8_t engine[16] = { 0 }, schedule[3] = { 1 };
	uint32_t handle = STAGE_CHANNEL + channel;

	CHECK_EQUAL(actor_channel(actor, STAGE_GROUP, handle, STAGE_USERD, STAGE_USERD_AT(channel)), 0);
	CHECK_EQUAL(actor_alloc(actor, handle, handle + 0x100, 0xcbc0, engine, sizeof(engine)), 0);
	CHECK_EQUAL(actor_control(actor, handle, RM_CTRL_CHANNEL_GET_TOKEN, &actor->tokens[channel], 4), 0);
	CHECK_EQUAL(actor_control(actor, STAGE_GROUP, RM_CTRL_GROUP_SCHEDULE, schedule, sizeof(schedule)), 0);
	actor->puts[channel] = 0;
}

static void make_doorbell(struct actor *actor)
{
	void *page;

	actor->gpu = actor_open(actor, SOFT_FILE_GPU_0);
	CHECK(actor->gpu >= 0);
	CHECK_EQUAL(actor_call(actor->gpu, RM_ESC_REGISTER_FD, &actor->control, 4), 0);
	CHECK_EQUAL(actor_alloc(actor, STAGE_SUBDEVICE, STAGE_BELL, 0xc661, NULL, 0), 0);
	page = actor_map_doorbell(actor, STAGE_BELL, actor->gpu);
	CHECK(page != MAP_FAILED);
	actor->bell = page;
	close(actor->gpu);
	actor->gpu = actor_open(actor, SOFT_FILE_GPU_0);
	CHECK(actor->gpu >= 0);
}

void actor_context(struct actor *actor)
{
	actor_new_device(actor);
	actor_use_device(actor);
}

void actor_use_device(struct actor *actor)
{
	uint8_t group[20] = { 0 };
	uint64_t slice = 2048;

	make_doorbell(actor);
	CHECK_EQUAL(actor_alloc(actor, STAGE_DEVICE, STAGE_SPACE, 0x90f1, NULL, 0), 0);
	CHECK_EQUAL(actor_memory(actor, STAGE_DEVICE, STAGE_USERD, STAGE_BLOCK_BYTES), 0);
	actor->block = actor_map_memory(actor, STAGE_USERD, STAGE_BLOCK_BYTES);
	actor->block_address = map_for_gpu(actor, STAGE_USERD, STAGE_BLOCK_BYTES);
	CHECK_EQUAL(actor_alloc(actor, STAGE_DEVICE, STAGE_GROUP, 0xa06c, group, sizeof(group)), 0);
	CHECK_EQUAL(actor_control(actor, STAGE_GROUP, RM_CTRL_GROUP_SET_TIMESLICE, &slice, sizeof(slice)), 0);
	actor_add_channel(actor, 0);
}

/* Two bells at once may hide one another until the poller sweeps; a program with one thread need not risk it. */
static void ring_bell(struct actor *actor, uint32_t token)
{
	while (actor->last_rung != token && actor->bell[GATE_BELL_WORD] != GATE_NO_TOKEN)
		;
	__atomic_store_n(&actor->bell[GATE_BELL_WORD], token, __ATOMIC_SEQ_CST);
	actor->last_rung = token;
}

static void submit(struct actor *actor, unsigned channel, uint32_t offset, uint32_t value, uint32_t operation)
{
	uint64_t semaphore = actor->block_address + offset;
	uint32_t slot = actor->puts[channel] % STAGE_RING_ENTRIES;
	uint32_t commands = STAGE_COMMANDS_AT(channel) + 32 * slot;
	const uint32_t words[] = { SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5),
				   (uint32_t)semaphore,
				   (uint32_t)(semaphore >> 32),
				   value,
				   0,
				   operation };
	const uint64_t entry = SOFT_ENTRY(actor->block_address + commands, sizeof(words) / sizeof(words[0]));
	volatile uint32_t *userd = (volatile uint32_t *)(void *)(actor->block + STAGE_USERD_AT(channel));

	memcpy(actor->block + commands, words, sizeof(words));
	memcpy(actor->block + STAGE_RING_AT(channel) + 8 * (size_t)slot, &entry, sizeof(entry));
	/* In this order: the ring, how far it is filled, the bell. */
	__atomic_store_n(&userd[GATE_GP_PUT_WORD], ++actor->puts[channel] % STAGE_RING_ENTRIES,
			 __ATOMIC_SEQ_CST);
	ring_bell(actor, actor->tokens[channel]);
}

void actor_release(struct actor *actor, unsigned channel, uint32_t value)
{
	submit(actor, channel, STAGE_DONE_AT(channel), value, SOFT_SEM_RELEASE);
}

void actor_acquire(struct actor *actor, unsigned channel, uint32_t value)
{
	submit(actor, channel, STAGE_WAIT_AT(channel), value, SOFT_SEM_ACQUIRE);
}

void actor_ring(struct actor *actor)
{
	actor_release(actor, 0, ++actor->rings);
}
