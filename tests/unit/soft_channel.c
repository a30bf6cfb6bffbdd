/* belfry-soft: channels, from the ring that a program writes to the semaphore that the GPU releases. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "soft_client.h"

enum {
	ERR_INVALID_DATA = 0x25,
	ERR_INVALID_LIMIT = 0x2e,
	ERR_INVALID_OFFSET = 0x37,
	ERR_NOT_FOUND = 0x57,
	RING_MEMORY = 1, /* ring at 0, USERD at 0x1000, commands at 0x2000, semaphores at 0x3000 */
	ERROR_MEMORY = 2,
	TEXT_MEMORY = 3,
	RING_BYTES = 0x4000,
	USERD_AT = 0x1000,
	COMMANDS_AT = 0x2000,
	SEMAPHORE_AT = 0x3000,
	ENTRIES = 64,
	LIMIT_S = 10,
};

static struct soft_program program;
static uint8_t *ring;
static volatile uint32_t *bell;
static uint64_t ring_address;
static uint32_t token, put, commands;

static int begin(void **state)
{
	if (soft_folder_new(state))
		return -1;
	soft_start("sms=2,mem=64M,pace=off,cores=1");
	memset(&program, 0, sizeof(program));
	put = commands = 0;
	return program_begin(&program);
}

static int end(void **state)
{
	program_close(&program);
	soft_wait_files(0);
	struct soft_status status = soft_status();
	int leaked = status.client_count || status.channel_count || status.used_bytes[0];

	soft_folder_remove(state);
	return leaked ? -1 : 0;
}

static void make_memory(void)
{
	uint64_t bytes = RING_BYTES, small = 4096;
	int status;

	assert_int_equal(program_memory(&program, RING_MEMORY, false, &bytes), 0);
	assert_int_equal(program_memory(&program, ERROR_MEMORY, false, &small), 0);
	ring_address = 0x10000;
	assert_int_equal(program_dma(&program, RING_MEMORY, bytes, &ring_address, true), 0);
	ring = program_map(&program, RING_MEMORY, false, 0, bytes, &status);
	assert_non_null(ring);
	assert_int_equal(program_alloc(&program, HANDLE_SUBDEVICE, HANDLE_BELL, 0xc661, NULL, 0), 0);
	bell = program_map(&program, HANDLE_BELL, true, 0, SOFT_BELL_BYTES, &status);
	assert_non_null(bell);
}

static int make_channel(uint32_t parent)
{
	uint8_t params[368] = { 0 };
	uint32_t space = HANDLE_SPACE, userd = RING_MEMORY, entries = ENTRIES, error = ERROR_MEMORY;
	uint64_t userd_at = USERD_AT;

	memcpy(params + 0, &error, sizeof(error));
	memcpy(params + 8, &ring_address, sizeof(ring_address));
	memcpy(params + 16, &entries, sizeof(entries));
	memcpy(params + 28, &space, sizeof(space));
	memcpy(params + 32, &userd, sizeof(userd));
	memcpy(params + 64, &userd_at, sizeof(userd_at));
	return program_alloc(&program, parent, HANDLE_CHANNEL, 0xc86f, params, sizeof(params));
}

static void make_group_and_channel(void)
{
	uint8_t yes[3] = { 1 };

	make_memory();
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, HANDLE_GROUP, 0xa06c, NULL, 0), 0);
	assert_int_equal(make_channel(HANDLE_GROUP), 0);
	assert_int_equal(program_alloc(&program, HANDLE_CHANNEL, 0x30, 0xcbc0, NULL, 0), 0);
	assert_int_equal(program_alloc(&program, HANDLE_CHANNEL, 0x31, 0xc8b5, NULL, 0), 0);
	assert_int_equal(program_control(&program, HANDLE_CHANNEL, RM_CTRL_CHANNEL_GET_TOKEN, &token, 4), 0);
	assert_int_equal(program_control(&program, HANDLE_GROUP, RM_CTRL_GROUP_SCHEDULE, yes, sizeof(yes)),
			 0);
}

static void submit(const uint32_t *words, uint32_t count)
{
	uint64_t at = COMMANDS_AT + 4ull * commands, entry = SOFT_ENTRY(ring_address + at, count);

	memcpy(ring + at, words, 4ull * count);
	commands += count;
	memcpy(ring + 8ull * (put % ENTRIES), &entry, sizeof(entry));
	put++;
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile uint32_t *)(ring + USERD_AT + SOFT_USERD_GP_PUT) = put % ENTRIES;
	atomic_thread_fence(memory_order_seq_cst);
	bell[SOFT_BELL_TOKEN / 4] = token;
	link_rang(bell);
}

static void release(uint64_t address, uint32_t value)
{
	uint32_t words[] = { SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5),
			     (uint32_t)address,
			     (uint32_t)(address >> 32),
			     value,
			     0,
			     SOFT_SEM_RELEASE };

	submit(words, sizeof(words) / sizeof(words[0]));
}

static bool becomes(volatile const uint32_t *word, uint32_t value, double limit_s)
{
	uint64_t until_ns = bf_now_ns() + (uint64_t)(limit_s * 1e9);

	while (*word != value)
		if (bf_now_ns() > until_ns)
			return false;
	return true;
}

static volatile uint32_t *semaphore(void)
{
	return (volatile uint32_t *)(ring + SEMAPHORE_AT);
}

static void ring_is_run_to_its_semaphore(void **state)
{
	(void)state;
	make_group_and_channel();
	for (uint32_t i = 1; i < 40; i++) {
		release(ring_address + SEMAPHORE_AT, i);
		assert_true(becomes(semaphore(), i, LIMIT_S));
	}
	assert_int_equal(soft_status().channel_count, 1);
	assert_int_equal(soft_status().user_count, 1);
	assert_int_equal(soft_status().users[0].pid, getpid());
	assert_int_equal(program_free(&program, HANDLE_CHANNEL), 0);
	assert_int_equal(soft_status().channel_count, 0);
	assert_int_equal(program_free(&program, 0x30), ERR_NOT_FOUND);
}

static void channel_without_a_group_has_its_own(void **state)
{
	uint8_t yes[3] = { 1 };
	uint32_t level = 1;

	(void)state;
	make_memory();
	assert_int_equal(make_channel(HANDLE_DEVICE), 0);
	assert_int_equal(program_control(&program, HANDLE_CHANNEL, RM_CTRL_CHANNEL_GET_TOKEN, &token, 4), 0);
	assert_int_equal(program_control(&program, HANDLE_CHANNEL, RM_CTRL_CHANNEL_SET_INTERLEAVE, &level, 4),
			 0);
	assert_int_equal(program_control(&program, HANDLE_CHANNEL, 0xa06f0103, yes, sizeof(yes)), 0);
	release(ring_address + SEMAPHORE_AT, 7);
	assert_true(becomes(semaphore(), 7, LIMIT_S));
}

static void channel_runs_only_once_it_is_scheduled(void **state)
{
	uint8_t yes[3] = { 1 };

	(void)state;
	make_memory();
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, HANDLE_GROUP, 0xa06c, NULL, 0), 0);
	assert_int_equal(make_channel(HANDLE_GROUP), 0);
	assert_int_equal(program_control(&program, HANDLE_CHANNEL, RM_CTRL_CHANNEL_GET_TOKEN, &token, 4), 0);
	release(ring_address + SEMAPHORE_AT, 7);
	assert_false(becomes(semaphore(), 7, 0.05));
	assert_int_equal(program_control(&program, HANDLE_GROUP, RM_CTRL_GROUP_SCHEDULE, yes, sizeof(yes)),
			 0);
	assert_true(becomes(semaphore(), 7, LIMIT_S));
}

/* As the warden stops a vGPU. */
static int disable(bool is_disabled, uint32_t client, uint32_t channel)
{
	uint8_t params[536] = { is_disabled };
	uint32_t count = 1;

	memcpy(params + 4, &count, sizeof(count));
	memcpy(params + 24, &client, sizeof(client));
	memcpy(params + 280, &channel, sizeof(channel));
	return program_control(&program, HANDLE_SUBDEVICE, RM_CTRL_DISABLE_CHANNELS, params, sizeof(params));
}

static void disabled_channel_stands_still_until_it_is_enabled(void **state)
{
	struct soft_program other = { 0 };

	(void)state;
	make_group_and_channel();
	assert_int_equal(disable(true, program.client, HANDLE_CHANNEL), 0);
	release(ring_address + SEMAPHORE_AT, 9);
	assert_false(becomes(semaphore(), 9, 0.05));
	assert_int_equal(disable(false, program.client, HANDLE_CHANNEL), 0);
	assert_true(becomes(semaphore(), 9, LIMIT_S));
	assert_int_equal(disable(true, program.client, 0x4711), ERR_NOT_FOUND);
	assert_int_equal(disable(true, program.client, HANDLE_GROUP), ERR_NOT_FOUND);
	assert_int_equal(program_begin(&other), 0);
	assert_int_equal(disable(true, other.client, HANDLE_CHANNEL), RM_ERR_INSUFFICIENT_PERMISSIONS);
	program_close(&other);
}

/* As the warden asks. */
static int ask_idle(const struct soft_program *who, uint32_t client, uint32_t device, uint32_t channel,
		    uint32_t flags)
{
	struct rm_arg_idle arg = { .client = client,
				   .device = device,
				   .channel = channel,
				   .count = 1,
				   .flags = flags,
				   .timeout_us = 1,
				   .status = 0x77 };
	int rc = link_call(who->control, RM_ESC_IDLE_CHANNELS, &arg, sizeof(arg));

	return rc ? rc : (int)arg.status;
}

static bool becomes_idle(double limit_s)
{
	uint64_t until_ns = bf_now_ns() + (uint64_t)(limit_s * 1e9);
	int status;

	while ((status = ask_idle(&program, program.client, HANDLE_DEVICE, HANDLE_CHANNEL, RM_IDLE_ASK))) {
		assert_int_equal(status, RM_ERR_TIMEOUT);
		if (bf_now_ns() > until_ns)
			return false;
	}
	return true;
}

static void channel_is_idle_once_all_it_was_told_is_done(void **state)
{
	enum { WAIT_WORD = 16 };
	uint32_t words[] = { SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5),
			     0, /* the semaphore: known once there is memory */
			     0,
			     1,
			     0,
			     SOFT_SEM_ACQUIRE };

	(void)state;
	make_group_and_channel();
	words[1] = (uint32_t)ring_address + SEMAPHORE_AT + 4 * WAIT_WORD;
	assert_true(becomes_idle(0)); /* never used */
	release(ring_address + SEMAPHORE_AT, 1);
	assert_true(becomes_idle(LIMIT_S));
	assert_int_equal(*semaphore(), 1);
	submit(words, sizeof(words) / sizeof(words[0]));
	assert_true(becomes((volatile uint32_t *)(ring + USERD_AT + SOFT_USERD_GP_GET), put, LIMIT_S));
	assert_false(becomes_idle(0.05)); /* its ring was read; it waits */
	semaphore()[WAIT_WORD] = 1;
	assert_true(becomes_idle(LIMIT_S));
	/* One that may not run has work all the same; one that has failed never will. */
	assert_int_equal(disable(true, program.client, HANDLE_CHANNEL), 0);
	release(ring_address + SEMAPHORE_AT, 2);
	assert_false(becomes_idle(0.01));
	assert_int_equal(disable(false, program.client, HANDLE_CHANNEL), 0);
	assert_true(becomes_idle(LIMIT_S));
	release(0xdead000, 1);
	assert_true(becomes_idle(LIMIT_S));
}

static void only_a_channel_of_ones_own_is_asked_about(void **state)
{
	struct soft_program other = { 0 };
	uint32_t client = program.client;

	(void)state;
	make_group_and_channel();
	assert_int_equal(ask_idle(&program, client, HANDLE_SUBDEVICE, HANDLE_CHANNEL, RM_IDLE_ASK), 0);
	assert_int_equal(ask_idle(&program, client, HANDLE_GROUP, HANDLE_CHANNEL, RM_IDLE_ASK),
			 ERR_NOT_FOUND);
	assert_int_equal(ask_idle(&program, client, HANDLE_DEVICE, HANDLE_GROUP, RM_IDLE_ASK), ERR_NOT_FOUND);
	assert_int_equal(ask_idle(&program, client, HANDLE_DEVICE, 0x4711, RM_IDLE_ASK), ERR_NOT_FOUND);
	assert_int_equal(ask_idle(&program, client, HANDLE_DEVICE, HANDLE_CHANNEL, 0x703),
			 RM_ERR_INVALID_ARGUMENT); /* a list */
	assert_int_equal(program_begin(&other), 0);
	assert_int_equal(ask_idle(&other, client, HANDLE_DEVICE, HANDLE_CHANNEL, RM_IDLE_ASK),
			 RM_ERR_INVALID_CLIENT);
	assert_int_equal(ask_idle(&other, other.client, HANDLE_DEVICE, HANDLE_CHANNEL, RM_IDLE_ASK),
			 ERR_NOT_FOUND);
	program_close(&other);
}

static void bad_address_ends_the_channel_and_is_told(void **state)
{
	struct soft_notifier *error;
	int status;

	(void)state;
	make_group_and_channel();
	error = program_map(&program, ERROR_MEMORY, false, 0, 4096, &status);
	assert_non_null(error);
	release(0xdead000, 1);
	for (uint64_t until_ns = bf_now_ns() + LIMIT_S * 1000000000ull;
	     *(volatile uint16_t *)&error->status != SOFT_NOTIFIER_STATUS;)
		assert_true(bf_now_ns() < until_ns);
	assert_int_equal(error->error, SOFT_ERROR_MMU);
	munmap(error, 4096);
}

static void memory_under_a_channel_stays_while_it_runs(void **state)
{
	(void)state;
	make_group_and_channel();
	assert_int_equal(program_free(&program, ERROR_MEMORY), 0);
	release(ring_address + SEMAPHORE_AT, 3);
	assert_true(becomes(semaphore(), 3, LIMIT_S));
	/* Its ring is gone from the space then; the channel fails and hurts nobody. */
	assert_int_equal(program_free(&program, RING_MEMORY), 0);
	release(ring_address + SEMAPHORE_AT, 4);
	assert_false(becomes(semaphore(), 4, 0.05));
	assert_int_equal(program_free(&program, HANDLE_GROUP), 0);
}

static void wrong_channels_are_refused(void **state)
{
	(void)state;
	make_memory();
	assert_int_equal(program_channel(&program, HANDLE_DEVICE, 0x99, ring_address, ENTRIES, 0),
			 ERR_NOT_FOUND);
	assert_int_equal(program_channel(&program, HANDLE_DEVICE, RING_MEMORY, ring_address, ENTRIES, 0x99),
			 ERR_NOT_FOUND);
	assert_int_equal(program_channel(&program, HANDLE_DEVICE, RING_MEMORY, ring_address, 63, 0),
			 RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_channel(&program, HANDLE_DEVICE, RING_MEMORY, ring_address, 1 << 21, 0),
			 RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_channel(&program, HANDLE_SUBDEVICE, RING_MEMORY, ring_address, 64, 0),
			 RM_ERR_INVALID_OBJECT_PARENT);
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, HANDLE_CHANNEL, 0xc86f, NULL, 0),
			 RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_alloc(&program, HANDLE_DEVICE, 0x30, 0xcbc0, NULL, 0),
			 RM_ERR_INVALID_OBJECT_PARENT);
}

static void turns_are_set_and_told(void **state)
{
	uint64_t us = 0;
	uint32_t level = 9;
	uint8_t preempt[8] = { 1 };
	struct soft_time_params time;
	struct soft_sms_params sms = { { 0 } };

	(void)state;
	make_group_and_channel();
	assert_int_equal(program_control(&program, HANDLE_GROUP, 0xa06c0104, &us, 8), 0);
	assert_int_equal(us, 2000);
	us = 777;
	assert_int_equal(program_control(&program, HANDLE_GROUP, RM_CTRL_GROUP_SET_TIMESLICE, &us, 8), 0);
	us = 0;
	assert_int_equal(program_control(&program, HANDLE_GROUP, RM_CTRL_GROUP_SET_TIMESLICE, &us, 8),
			 RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(program_control(&program, HANDLE_GROUP, 0xa06c0104, &us, 8), 0);
	assert_int_equal(us, 777);
	assert_int_equal(program_control(&program, HANDLE_GROUP, RM_CTRL_GROUP_SET_INTERLEAVE, &level, 4),
			 RM_ERR_INVALID_ARGUMENT);
	level = 2;
	assert_int_equal(program_control(&program, HANDLE_GROUP, RM_CTRL_GROUP_SET_INTERLEAVE, &level, 4), 0);
	level = 0;
	assert_int_equal(program_control(&program, HANDLE_GROUP, 0xa06c0108, &level, 4), 0);
	assert_int_equal(level, 2);
	assert_int_equal(program_control(&program, HANDLE_GROUP, 0xa06c0105, preempt, sizeof(preempt)), 0);
	assert_int_equal(
		program_control(&program, HANDLE_GROUP, SOFT_CTRL_GROUP_GET_TIME, &time, sizeof(time)), 0);
	assert_int_equal(
		program_control(&program, HANDLE_CHANNEL, SOFT_CTRL_CHANNEL_SET_SMS, &sms, sizeof(sms)),
		RM_ERR_INVALID_ARGUMENT);
	sms.mask[0] = 2;
	assert_int_equal(
		program_control(&program, HANDLE_CHANNEL, SOFT_CTRL_CHANNEL_SET_SMS, &sms, sizeof(sms)), 0);
	assert_int_equal(program_control(&program, HANDLE_CHANNEL, RM_CTRL_GROUP_SET_TIMESLICE, &us, 8),
			 RM_ERR_NOT_SUPPORTED);
}

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
			  ".visible .global .align 4 .u32 counter;\n"
			  ".visible .entry store(.param .u64 to, .param .u32 value)\n"
			  "{\n"
			  "	.reg .b32 %r<2>;\n"
			  "	.reg .b64 %rd<2>;\n"
			  "	ld.param.u64 %rd1, [to];\n"
			  "	ld.param.u32 %r1, [value];\n"
			  "	st.global.u32 [%rd1], %r1;\n"
			  "	ret;\n"
			  "}\n";

static int load(uint32_t handle, struct soft_code_params *params)
{
	return program_alloc(&program, HANDLE_DEVICE, handle, SOFT_CLASS_CODE, params, 0);
}

static uint8_t *make_text(struct soft_code_params *params)
{
	uint64_t bytes = 8192, counter = ring_address + SEMAPHORE_AT + 64;
	uint8_t *text;
	int status;

	assert_int_equal(program_memory(&program, TEXT_MEMORY, false, &bytes), 0);
	text = program_map(&program, TEXT_MEMORY, false, 0, bytes, &status);
	assert_non_null(text);
	memcpy(text, ptx, sizeof(ptx) - 1);
	memcpy(text + 4096, &counter, sizeof(counter));
	*params = (struct soft_code_params){ .space = HANDLE_SPACE,
					     .memory = TEXT_MEMORY,
					     .text_bytes = sizeof(ptx) - 1,
					     .variables_offset = 4096,
					     .variable_count = 1 };
	return text;
}

static void code_is_loaded_and_launched(void **state)
{
	struct soft_launch launch = { .magic = SOFT_LAUNCH_MAGIC,
				      .code = 0x40,
				      .grid = { 1, 1, 1 },
				      .threads = { 1, 1, 1 },
				      .param_bytes = 12 };
	uint64_t launch_at = 0x3800, to;
	struct soft_code_params params;
	uint32_t value = 0xbe1f;
	uint8_t *text;

	(void)state;
	make_group_and_channel();
	text = make_text(&params);
	assert_int_equal(load(0x40, &params), 0);
	assert_int_equal(program_free(&program, TEXT_MEMORY), 0); /* it was copied */
	to = ring_address + SEMAPHORE_AT + 128;
	memcpy(ring + launch_at, &launch, sizeof(launch));
	memcpy(ring + launch_at + sizeof(launch), &to, sizeof(to));
	memcpy(ring + launch_at + sizeof(launch) + 8, &value, sizeof(value));
	uint32_t words[] = { SOFT_COMMAND(SOFT_OP_INC, 1, SOFT_METHOD_SET_OBJECT, 1),
			     0xcbc0,
			     SOFT_COMMAND(SOFT_OP_INC, 1, SOFT_COMPUTE_SEND_A, 1),
			     (uint32_t)((ring_address + launch_at) >> 8),
			     SOFT_COMMAND(SOFT_OP_INC, 1, SOFT_COMPUTE_SEND_B, 1),
			     1 };
	submit(words, sizeof(words) / sizeof(words[0]));
	assert_true(becomes((volatile uint32_t *)(ring + SEMAPHORE_AT + 128), value, LIMIT_S));
	assert_int_equal(program_free(&program, 0x40), 0);
	munmap(text, 8192);
}

static void wrong_code_is_refused(void **state)
{
	struct soft_code_params params, wrong;
	uint8_t *text;

	(void)state;
	ring_address = 0x10000;
	text = make_text(&params);
	wrong = params;
	wrong.text_bytes = 9000;
	assert_int_equal(load(0x40, &wrong), ERR_INVALID_OFFSET);
	wrong.text_bytes = 0;
	assert_int_equal(load(0x40, &wrong), ERR_INVALID_LIMIT);
	wrong.text_bytes = 1ull << 40;
	assert_int_equal(load(0x40, &wrong), ERR_INVALID_LIMIT);
	wrong = params;
	wrong.text_offset = UINT64_MAX - 4;
	assert_int_equal(load(0x40, &wrong), ERR_INVALID_OFFSET);
	wrong = params;
	wrong.variable_count = 4096;
	assert_int_equal(load(0x40, &wrong), ERR_INVALID_OFFSET);
	wrong.variable_count = 2;
	assert_int_equal(load(0x40, &wrong), ERR_INVALID_DATA);
	wrong = params;
	wrong.memory = 0x99;
	assert_int_equal(load(0x40, &wrong), ERR_NOT_FOUND);
	wrong = params;
	wrong.space = 0x99;
	assert_int_equal(load(0x40, &wrong), ERR_NOT_FOUND);
	text[100] = '@';
	assert_int_equal(load(0x40, &params), ERR_INVALID_DATA);
	memcpy(text, ptx, sizeof(ptx) - 1);
	assert_int_equal(load(0x40, &params), 0);
	assert_int_equal(load(0x40, &params), 0x19);
	assert_int_equal(load(0x41, &params), 0);
	assert_int_equal(program_free(&program, 0x40), 0);
	assert_int_equal(load(0x40, &params), 0);
	munmap(text, 8192);
}

/* So large a text that reading it takes a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LARGE_FUNCTIONS = 4000, LARGE_BYTES = 2 << 20 };
#else
enum { LARGE_FUNCTIONS = 40000, LARGE_BYTES = 16 << 20 };
#endif

static _Atomic bool is_loaded;

static void *load_large(void *context)
{
	struct soft_code_params *params = context;
	int status = load(0x40, params);

	is_loaded = true;
	return status ? "not loaded" : NULL;
}

static void reading_a_large_program_holds_up_nobody(void **state)
{
	uint64_t bytes = LARGE_BYTES, since_ns, worst_ns = 0;
	struct soft_code_params params = { .space = HANDLE_SPACE, .memory = TEXT_MEMORY };
	struct soft_program other = { 0 };
	unsigned calls = 0;
	pthread_t thread;
	void *result;
	char *text;
	int status;

	(void)state;
	assert_int_equal(program_memory(&program, TEXT_MEMORY, false, &bytes), 0);
	text = program_map(&program, TEXT_MEMORY, false, 0, bytes, &status);
	assert_non_null(text);
	params.text_bytes = (uint64_t)sprintf(text, ".version 8.0\n.target sm_80\n.address_size 64\n");
	for (int i = 0; i < LARGE_FUNCTIONS; i++)
		params.text_bytes += (uint64_t)sprintf(
			text + params.text_bytes,
			".visible .entry k%d()\n{\n.reg .b32 %%r<3>;\nmov.u32 %%r1, %d;\nadd.u32 %%r2, %%r1, 1;\nret;\n}\n",
			i, i);
	assert_true(params.text_bytes < bytes);
	assert_int_equal(program_begin(&other), 0);
	is_loaded = false;
	assert_int_equal(pthread_create(&thread, NULL, load_large, &params), 0);
	/* Others, and also others on the same file: the warden speaks through that. */
	while (!is_loaded) {
		since_ns = bf_now_ns();
		assert_int_equal(program_alloc(&other, HANDLE_DEVICE, 0x50, 0x90f1, NULL, 0), 0);
		assert_int_equal(program_free(&other, 0x50), 0);
		assert_int_equal(program_alloc(&program, HANDLE_DEVICE, 0x50, 0x90f1, NULL, 0), 0);
		assert_int_equal(program_free(&program, 0x50), 0);
		since_ns = bf_now_ns() - since_ns;
		worst_ns = since_ns > worst_ns ? since_ns : worst_ns;
		calls++;
	}
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
	print_message("%u times four calls, the slowest took %u us\n", calls, (unsigned)(worst_ns / 1000));
	assert_true(calls > 3); /* it would have been one, and as long as the reading */
	program_close(&other);
	munmap(text, bytes);
}

static void printing_needs_a_place(void **state)
{
	struct soft_print_params print = { .memory = RING_MEMORY, .offset = 0x3000, .bytes = 0x1000 };
	struct soft_print *place;

	(void)state;
	make_memory();
	place = (struct soft_print *)(void *)(ring + 0x3000);
	place->bytes = 2048;
	assert_int_equal(
		program_control(&program, HANDLE_SPACE, SOFT_CTRL_SPACE_SET_PRINT, &print, sizeof(print)), 0);
	print.bytes = 0x1001;
	assert_int_equal(
		program_control(&program, HANDLE_SPACE, SOFT_CTRL_SPACE_SET_PRINT, &print, sizeof(print)),
		RM_ERR_INVALID_ARGUMENT);
	print.offset = UINT64_MAX - 7;
	assert_int_equal(
		program_control(&program, HANDLE_SPACE, SOFT_CTRL_SPACE_SET_PRINT, &print, sizeof(print)),
		RM_ERR_INVALID_ARGUMENT);
	print.memory = 0x99;
	assert_int_equal(
		program_control(&program, HANDLE_SPACE, SOFT_CTRL_SPACE_SET_PRINT, &print, sizeof(print)),
		ERR_NOT_FOUND);
}

#define WITH_PROGRAM(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PROGRAM(ring_is_run_to_its_semaphore),
		WITH_PROGRAM(channel_without_a_group_has_its_own),
		WITH_PROGRAM(channel_runs_only_once_it_is_scheduled),
		WITH_PROGRAM(disabled_channel_stands_still_until_it_is_enabled),
		WITH_PROGRAM(channel_is_idle_once_all_it_was_told_is_done),
		WITH_PROGRAM(only_a_channel_of_ones_own_is_asked_about),
		WITH_PROGRAM(bad_address_ends_the_channel_and_is_told),
		WITH_PROGRAM(memory_under_a_channel_stays_while_it_runs),
		WITH_PROGRAM(wrong_channels_are_refused),
		WITH_PROGRAM(turns_are_set_and_told),
		WITH_PROGRAM(code_is_loaded_and_launched),
		WITH_PROGRAM(wrong_code_is_refused),
		WITH_PROGRAM(reading_a_large_program_holds_up_nobody),
		WITH_PROGRAM(printing_needs_a_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
