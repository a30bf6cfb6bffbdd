#include "hw_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/own.h"

const char *const app_work_text = ".version 8.0\n.target sm_90\n.address_size 64\n"
				  ".visible .entry work(.param .u64 out, .param .u32 rounds)\n{\n"
				  ".reg .b64 %p, %q;\n.reg .b32 %n, %i, %s, %t, %b, %d;\n.reg .pred %c;\n"
				  "ld.param.u64 %p, [out];\nld.param.u32 %n, [rounds];\n"
				  "mov.u32 %i, 0;\nmov.u32 %s, 0;\n"
				  "LOOP:\n"
				  "add.u32 %s, %s, %i;\n"
				  "add.u32 %i, %i, 1;\n"
				  "setp.lt.u32 %c, %i, %n;\n"
				  "@%c bra LOOP;\n"
				  "mov.u32 %t, %tid.x;\nmov.u32 %b, %ctaid.x;\nmov.u32 %d, %ntid.x;\n"
				  "mad.lo.u32 %t, %b, %d, %t;\n"
				  "mad.wide.u32 %q, %t, 4, %p;\n"
				  "red.global.add.u32 [%q], %s;\n"
				  "ret;\n}\n";

uint64_t app_work_cost(uint32_t rounds, uint64_t threads)
{
	return (4ull * rounds + 11) * threads;
}

uint32_t app_work_result(uint32_t rounds, uint32_t launches)
{
	return (uint32_t)((uint64_t)rounds * (rounds - 1) / 2) * launches;
}

void gpu_open(struct gpu_rig *rig, const struct hw_options *change, bool is_paced)
{
	struct bf_error err = { 0 };
	struct hw_options o = { .sms = 4,
				.mem_bytes = 256 << 20,
				.rate = 500000000,
				.copy_bytes = 1000000000,
				.cores = 2,
				.is_paced = is_paced };

	if (change) {
		o.sms = change->sms ? change->sms : o.sms;
		o.mem_bytes = change->mem_bytes ? change->mem_bytes : o.mem_bytes;
		o.rate = change->rate ? change->rate : o.rate;
		o.copy_bytes = change->copy_bytes ? change->copy_bytes : o.copy_bytes;
		o.cores = change->cores ? change->cores : o.cores;
	}
	rig->options = o;
	rig->cores = hw_cores_new(o.cores, &err);
	if (!rig->cores)
		fail_msg("%s", err.text);
	rig->gpu = hw_gpu_new(rig->cores, &o, &err);
	if (!rig->gpu)
		fail_msg("%s", err.text);
}

void gpu_close(struct gpu_rig *rig)
{
	hw_gpu_free(rig->gpu);
	hw_cores_free(rig->cores);
}

static struct hw_memory *host_memory(uint64_t bytes)
{
	struct bf_error err = { 0 };
	struct hw_memory *memory;

	if (hw_memory_new(NULL, bytes, false, &memory, &err))
		fail_msg("%s", err.text);
	return memory;
}

uint64_t app_alloc(struct app *app, size_t bytes, const void *data)
{
	struct bf_error err = { 0 };
	struct hw_memory *memory;
	uint64_t at;

	if (hw_memory_new(app->gpu, bytes, true, &memory, &err))
		fail_msg("%s", err.text);
	at = hw_space_find(app->space, APP_DATA_AT, hw_memory_bytes(memory), 1 << 16);
	assert_true(at >= APP_DATA_AT);
	assert_int_equal(hw_space_map(app->space, at, memory, 0, hw_memory_bytes(memory), true), 0);
	if (data)
		memcpy(hw_memory_at(memory), data, bytes);
	hw_memory_put(memory); /* the map keeps it */
	assert_true(app->data_count < 64);
	app->data_at[app->data_count] = at;
	app->data[app->data_count++] = memory;
	return at;
}

void *app_host(struct app *app, uint64_t address)
{
	for (uint32_t i = 0; i < app->data_count; i++)
		if (address - app->data_at[i] < hw_memory_bytes(app->data[i]))
			return hw_memory_at(app->data[i]) + (address - app->data_at[i]);
	fail_msg("%#llx is not an address of the app", (unsigned long long)address);
	return NULL;
}

static void load_code(struct app *app, const char *text)
{
	uint64_t addresses[64] = { 0 };
	struct bf_error err = { 0 };
	cleanup_file FILE *file = NULL;
	cleanup_free char *copy = calloc(1, 1 << 20);
	const struct ptx_variable *v;
	char path[256];

	assert_non_null(copy);
	if (strchr(text, '\n')) {
		strcpy(copy, text);
	} else {
		snprintf(path, sizeof(path), "%s/ptx/%s.ptx", BELFRY_TEST_DATA, text);
		file = fopen(path, "r");
		assert_non_null(file);
		assert_true(fread(copy, 1, (1 << 20) - 1, file) > 0);
	}
	if (ptx_module_load(copy, strlen(copy), &app->module, &err))
		fail_msg("%s", err.text);
	for (uint32_t i = 0; (v = ptx_variable_at(app->module, i)); i++)
		addresses[i] = app_alloc(app, v->bytes ? v->bytes : 1, NULL);
	for (uint32_t i = 0; (v = ptx_variable_at(app->module, i)); i++) {
		uint8_t *at = app_host(app, addresses[i]);

		if (v->data_bytes)
			memcpy(at, v->data, v->data_bytes);
		for (uint32_t k = 0; k < v->reloc_count; k++) {
			const struct ptx_reloc *r = &v->relocs[k];
			uint64_t value = (addresses[r->variable] + (uint64_t)r->addend) >> r->shift;

			memcpy(at + r->offset, &value, r->bytes);
		}
	}
	if (hw_code_new(copy, strlen(copy), addresses, ptx_variable_count(app->module), &app->code, &err))
		fail_msg("%s", err.text);
	assert_int_equal(hw_space_add_code(app->space, APP_CODE, app->code), 0);
}

/* A channel with memory of its own at these addresses. */
static void open_channel(struct app *app, uint64_t offset)
{
	struct bf_error err = { 0 };
	struct hw_channel_options o = { .group = app->group,
					.space = app->space,
					.ring_address = APP_RING_AT + offset,
					.ring_entries = APP_RING };

	app->offset = offset;
	app->ring = host_memory(APP_RING * 8ull);
	app->commands = host_memory(APP_COMMAND_BYTES);
	app->userd = host_memory(4096);
	app->notifier = host_memory(4096);
	hw_space_map(app->space, APP_RING_AT + offset, app->ring, 0, 4096, true);
	hw_space_map(app->space, APP_COMMANDS_AT + offset, app->commands, 0, APP_COMMAND_BYTES, true);
	o.userd = app->userd;
	o.notifier = app->notifier;
	if (hw_channel_new(&o, &app->channel, &err))
		fail_msg("%s", err.text);
	app_method(app, SOFT_SUBCHANNEL_COMPUTE, SOFT_METHOD_SET_OBJECT, 0xcbc0);
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_METHOD_SET_OBJECT, 0xc8b5);
	hw_channel_set_scheduled(app->channel, true);
}

void app_open(struct app *app, struct hw_gpu *gpu, const char *text)
{
	memset(app, 0, sizeof(*app));
	app->gpu = gpu;
	assert_int_equal(hw_space_new(gpu, &app->space), 0);
	assert_int_equal(hw_group_new(gpu, &app->group), 0);
	app->semaphores = host_memory(4096);
	hw_space_map(app->space, APP_SEMAPHORES_AT, app->semaphores, 0, 4096, true);
	hw_group_set_scheduled(app->group, true);
	open_channel(app, 0);
	if (text)
		load_code(app, text);
}

void app_join(struct app *app, struct app *other)
{
	memset(app, 0, sizeof(*app));
	app->gpu = other->gpu;
	app->space = hw_space_get(other->space);
	app->group = other->group;
	app->module = other->module;
	app->semaphores = hw_memory_get(other->semaphores);
	open_channel(app, 0x1000000);
}

void app_close(struct app *app)
{
	bool is_joined = app->module && !app->code;

	hw_channel_put(app->channel);
	if (!is_joined)
		hw_group_put(app->group);
	hw_code_put(app->code);
	if (!is_joined)
		ptx_module_free(app->module);
	hw_space_put(app->space);
	hw_memory_put(app->ring);
	hw_memory_put(app->commands);
	hw_memory_put(app->semaphores);
	hw_memory_put(app->userd);
	hw_memory_put(app->notifier);
}

void app_push(struct app *app, uint32_t word)
{
	__atomic_store_n((uint32_t *)(void *)(hw_memory_at(app->commands) + app->at), word, __ATOMIC_RELAXED);
	app->at += 4;
	assert_true(app->at < APP_COMMAND_BYTES);
}

void app_method(struct app *app, uint32_t subchannel, uint32_t method, uint32_t value)
{
	app_push(app, SOFT_COMMAND(SOFT_OP_INC, subchannel, method, 1));
	app_push(app, value);
}

/* The bell as a program rings it: after GP_PUT was stored. */
static void ring(struct app *app)
{
	hw_gpu_rang(app->gpu);
}

static void add_entry(struct app *app, uint64_t entry)
{
	__atomic_store_n((uint64_t *)(void *)(hw_memory_at(app->ring) + (size_t)app->put * 8), entry,
			 __ATOMIC_RELAXED);
	app->put = (app->put + 1) % APP_RING;
}

void app_entry(struct app *app, uint64_t entry)
{
	add_entry(app, entry);
	__atomic_store_n((uint32_t *)(void *)(hw_memory_at(app->userd) + SOFT_USERD_GP_PUT), app->put,
			 __ATOMIC_RELEASE);
	ring(app);
}

static uint64_t take_entry(struct app *app)
{
	uint64_t entry = SOFT_ENTRY(APP_COMMANDS_AT + app->offset + app->begin, (app->at - app->begin) / 4);

	app->begin = app->at;
	return entry;
}

void app_submit(struct app *app)
{
	app_entry(app, take_entry(app));
}

/* All commands so far were fetched: their memory can be used again. */
static void reuse_commands(struct app *app)
{
	if (app->at > APP_COMMAND_BYTES / 2)
		app->at = app->begin = 0;
}

static uint64_t slot_address(uint32_t slot)
{
	return APP_SEMAPHORES_AT + 16ull * slot;
}

static void semaphore(struct app *app, uint32_t slot, uint64_t payload, uint32_t execute)
{
	app_push(app, SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5));
	app_push(app, (uint32_t)slot_address(slot));
	app_push(app, (uint32_t)(slot_address(slot) >> 32));
	app_push(app, (uint32_t)payload);
	app_push(app, (uint32_t)(payload >> 32));
	app_push(app, execute);
}

void app_release(struct app *app, uint32_t slot, uint64_t payload, uint32_t flags)
{
	semaphore(app, slot, payload, SOFT_SEM_RELEASE | SOFT_SEM_RELEASE_WFI | flags);
}

void app_acquire(struct app *app, uint32_t slot, uint64_t payload, uint32_t operation)
{
	semaphore(app, slot, payload, operation);
}

static uint64_t *slot_at(struct app *app, uint32_t slot)
{
	return (uint64_t *)(void *)(hw_memory_at(app->semaphores) + (size_t)16 * slot);
}

uint64_t app_slot(struct app *app, uint32_t slot)
{
	return __atomic_load_n(slot_at(app, slot), __ATOMIC_ACQUIRE);
}

uint64_t app_slot_time(struct app *app, uint32_t slot)
{
	return __atomic_load_n(slot_at(app, slot) + 1, __ATOMIC_RELAXED);
}

void app_set_slot(struct app *app, uint32_t slot, uint64_t payload)
{
	__atomic_store_n(slot_at(app, slot), payload, __ATOMIC_RELEASE);
}

void rig_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

bool app_wait_ms(struct app *app, uint32_t slot, uint64_t payload, uint32_t ms)
{
	uint64_t end = bf_now_ns() + ms * 1000000ull;

	while (app_slot(app, slot) != payload) {
		if (bf_now_ns() > end || hw_channel_has_error(app->channel))
			return app_slot(app, slot) == payload;
		rig_nap();
	}
	return true;
}

static const struct soft_notifier *notifier_of(const struct app *app)
{
	return (const struct soft_notifier *)(const void *)hw_memory_at(app->notifier);
}

void app_wait(struct app *app, uint32_t slot, uint64_t payload)
{
	if (!app_wait_ms(app, slot, payload, 60000))
		fail_msg("slot %u is %llu, not %llu; error %u: %s", slot,
			 (unsigned long long)app_slot(app, slot), (unsigned long long)payload,
			 notifier_of(app)->error, notifier_of(app)->text);
}

const struct soft_notifier *app_wait_error(struct app *app)
{
	const struct soft_notifier *n = notifier_of(app);
	uint64_t end = bf_now_ns() + 20000000000ull;

	while (__atomic_load_n(&n->status, __ATOMIC_ACQUIRE) != SOFT_NOTIFIER_STATUS) {
		assert_true(bf_now_ns() < end);
		rig_nap();
	}
	assert_true(hw_channel_has_error(app->channel));
	return n;
}

void app_fence(struct app *app)
{
	uint32_t slot = app->module && !app->code ? 254 : 255; /* a channel that joined has its own */

	app_release(app, slot, ++app->fence, 0);
	app_submit(app);
	app_wait(app, slot, app->fence);
	reuse_commands(app);
}

static uint32_t kernel_index(const struct app *app, const char *name)
{
	const struct ptx_kernel *k;
	uint32_t i = 0;

	for (; (k = ptx_kernel_at(app->module, i)); i++)
		if (!strcmp(k->name, name))
			return i;
	fail_msg("no kernel %s", name);
	return 0;
}

void app_launch(struct app *app, const char *kernel, struct app_shape shape, const void *params, size_t bytes)
{
	struct soft_launch d = { .magic = SOFT_LAUNCH_MAGIC,
				 .flags = shape.flags,
				 .code = APP_CODE,
				 .kernel = kernel_index(app, kernel),
				 .dynamic_shared_bytes = shape.dynamic_bytes,
				 .param_bytes = (uint32_t)bytes,
				 .workspace = shape.workspace };
	uint32_t at = (app->at + 8 + SOFT_LAUNCH_ALIGN - 1) & ~(SOFT_LAUNCH_ALIGN - 1u);
	uint64_t base = APP_COMMANDS_AT + app->offset;

	for (unsigned i = 0; i < 3; i++) {
		d.grid[i] = shape.grid[i] ? shape.grid[i] : 1;
		d.threads[i] = shape.threads[i] ? shape.threads[i] : 1;
	}
	/* The commands so far are one entry, the descriptor lies behind them. All are submitted together: between a
	 * timestamp and a launch nobody is to wait for this thread. */
	if (app->at > app->begin)
		add_entry(app, take_entry(app));
	memcpy(hw_memory_at(app->commands) + at, &d, sizeof(d));
	memcpy(hw_memory_at(app->commands) + at + sizeof(d), params, bytes);
	app->at = app->begin = (uint32_t)((at + sizeof(d) + bytes + 3) & ~(size_t)3);
	app_method(app, SOFT_SUBCHANNEL_COMPUTE, SOFT_COMPUTE_SEND_A, (uint32_t)((base + at) >> 8));
	app_method(app, SOFT_SUBCHANNEL_COMPUTE, SOFT_COMPUTE_SEND_B, 1);
}

void app_copy(struct app *app, uint64_t to, uint64_t from, uint32_t bytes)
{
	app_push(app, SOFT_COMMAND(SOFT_OP_INC, SOFT_SUBCHANNEL_COPY, SOFT_COPY_IN_UPPER, 4));
	app_push(app, (uint32_t)(from >> 32));
	app_push(app, (uint32_t)from);
	app_push(app, (uint32_t)(to >> 32));
	app_push(app, (uint32_t)to);
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LINE_LENGTH, bytes);
	app_method(app, SOFT_SUBCHANNEL_COPY, SOFT_COPY_LAUNCH,
		   1 | SOFT_COPY_SRC_PITCH | SOFT_COPY_DST_PITCH);
}

void app_time_work(struct app *app, uint64_t out, uint32_t blocks, uint32_t rounds)
{
	struct app_work_params params = { .out = out, .rounds = rounds };

	app_release(app, 0, 1, SOFT_SEM_TIMESTAMP);
	app_launch(app, "work", (struct app_shape){ .grid = { blocks }, .threads = { 32 } }, &params,
		   sizeof(params));
	app_release(app, 1, ++app->fence, SOFT_SEM_TIMESTAMP);
}

void app_start_work(struct app *app, struct hw_gpu *gpu, uint32_t blocks, uint32_t rounds)
{
	app_open(app, gpu, app_work_text);
	app_time_work(app, app_alloc(app, (size_t)blocks * 32 * 4, NULL), blocks, rounds);
	app_submit(app);
}

void app_assert_result(struct app *app, uint32_t blocks, uint32_t rounds)
{
	const uint32_t *out = app_host(app, app->data_at[0]);

	app_wait(app, 1, app->fence);
	for (uint32_t i = 0; i < blocks * 32; i++)
		assert_int_equal(out[i], app_work_result(rounds, 1));
}

struct soft_time_params app_time(struct app *app)
{
	struct soft_time_params time;

	hw_group_get_time(app->group, &time);
	return time;
}

void app_wait_running(struct app *app)
{
	uint64_t before = app_time(app).thread_instructions;

	while (app_time(app).thread_instructions == before)
		rig_nap();
}

void app_assert_stands_still(struct app *app)
{
	uint64_t before = app_time(app).thread_instructions;

	gpu_wait_ms(app->gpu, 20);
	assert_int_equal(app_time(app).thread_instructions, before);
}

void gpu_wait_ms(struct hw_gpu *gpu, uint64_t ms)
{
	uint64_t end = hw_gpu_now_ns(gpu) + ms * 1000000;

	while (hw_gpu_now_ns(gpu) < end)
		rig_nap();
}

void rig_assert_near(uint64_t got, uint64_t want, unsigned percent)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	percent *= 4;
#endif
	if (got * 100 < want * (100 - percent) || got * 100 > want * (100 + percent))
		fail_msg("%llu is not within %u%% of %llu", (unsigned long long)got, percent,
			 (unsigned long long)want);
}
