/* A channel is a ring whose entries point to commands, and the space for these commands. All of it is one
 * block of host memory that the GPU reads. Each submission is one ring entry and ends with a release of the
 * fence. The fence alone shows what the GPU has read; GP_GET is not used. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/channel.h"

enum {
	CLASS_CHANNEL = 0xc86f,
	CLASS_COMPUTE = 0xcbc0,
	CLASS_COPY = 0xc8b5,
	ENGINE_GRAPHICS = 1, /* NV2080_ENGINE_TYPE_GRAPHICS: supports compute and copies */
	PARAMS_ERROR_AT = 0, /* NV_CHANNEL_ALLOC_PARAMS: hObjectError, hVASpace */
	PARAMS_SPACE_AT = 28,
};
#define CTRL_CHANNEL_GET_TOKEN 0xc36f0108u
#define CTRL_CHANNEL_SCHEDULE 0xa06f0103u

static uint32_t align_up(uint32_t value, uint32_t align)
{
	return (value + align - 1) / align * align;
}

/* ---- creation */

static void put32(uint8_t *params, uint32_t at, uint32_t value)
{
	memcpy(params + at, &value, sizeof(value));
}

static CUresult make_channel(struct channel *channel)
{
	const struct rm_layout *layout = rm_layout_find(SOFT_DRIVER_VERSION);
	struct channel_state *state = channel->state;
	struct context *context = channel->context;
	uint64_t ring = state->low.address + RING_AT, userd = USERD_AT;
	uint8_t params[512] = { 0 };

	if (!layout || layout->channel_size > sizeof(params))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	put32(params, PARAMS_ERROR_AT, context->notifier_memory);
	put32(params, PARAMS_SPACE_AT, context->space);
	memcpy(params + layout->channel_gpfifo_offset, &ring, sizeof(ring));
	put32(params, layout->channel_gpfifo_entries, RING_ENTRIES);
	put32(params, layout->channel_userd_memory, state->low.memory);
	memcpy(params + layout->channel_userd_offset, &userd, sizeof(userd));
	put32(params, layout->channel_engine_type, ENGINE_GRAPHICS);
	return port_alloc(context->group, &channel->handle, CLASS_CHANNEL, params, layout->channel_size);
}

static CUresult make_engines(struct channel *channel)
{
	const struct rm_layout *layout = rm_layout_find(SOFT_DRIVER_VERSION);
	uint8_t params[64] = { 0 }, schedule[3] = { 1 };
	uint32_t compute = 0, copy = 0;
	CUresult result;

	result = port_alloc(channel->handle, &compute, CLASS_COMPUTE, params, layout->graphics_size);
	memset(params, 0, sizeof(params));
	if (!result)
		result = port_alloc(channel->handle, &copy, CLASS_COPY, params, layout->copy_size);
	if (!result)
		result = port_control(channel->handle, CTRL_CHANNEL_GET_TOKEN, &channel->token,
				      sizeof(channel->token));
	if (!result)
		result = port_control(channel->handle, CTRL_CHANNEL_SCHEDULE, schedule, sizeof(schedule));
	return result;
}

static CUresult set_objects(struct channel *channel)
{
	CUresult result = channel_begin(channel, 4, 0);

	if (result)
		return result;
	channel_method(channel, SOFT_SUBCHANNEL_COMPUTE, SOFT_METHOD_SET_OBJECT, CLASS_COMPUTE);
	channel_method(channel, SOFT_SUBCHANNEL_COPY, SOFT_METHOD_SET_OBJECT, CLASS_COPY);
	channel_end(channel);
	return CUDA_SUCCESS;
}

static void channel_free(struct channel *channel)
{
	struct channel_state *state = channel->state;

	if (state) {
		channel_hide(channel);
		if (channel->handle)
			port_free(channel->context->group, channel->handle);
		low_free(&state->low);
	}
	free(state);
	free(channel);
}

static CUresult channel_new(struct context *context, struct channel **made)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!channel)
		return result;
	channel->context = context;
	channel->state = calloc(1, sizeof(*channel->state));
	if (channel->state)
		result = low_new(context, CHANNEL_BYTES, &channel->state->low);
	if (!result) {
		channel->done = (volatile uint64_t *)(channel->state->low.at + FENCE_AT);
		result = make_channel(channel);
	}
	if (!result)
		result = make_engines(channel);
	if (!result)
		result = set_objects(channel);
	if (result) {
		channel_free(channel);
		return result;
	}
	channel->next = context->channels;
	context->channels = channel;
	*made = channel;
	return CUDA_SUCCESS;
}

static CUresult set_sms(struct channel *channel, const uint64_t *sms)
{
	struct soft_sms_params params;
	CUresult result;

	if (!sms && !channel->state->has_mask)
		return CUDA_SUCCESS;
	if (sms)
		memcpy(params.mask, sms, sizeof(params.mask));
	else
		memset(params.mask, 0xff, sizeof(params.mask));
	result = port_control(channel->handle, SOFT_CTRL_CHANNEL_SET_SMS, &params, sizeof(params));
	channel->state->has_mask = sms != NULL;
	return result;
}

/* Only an idle channel is reused: after the unfinished work of another stream, a stream could wait
 * forever. */
CUresult channel_take(struct context *context, const uint64_t *sms, struct channel **channel)
{
	struct channel *found = context->channels;
	CUresult result = CUDA_SUCCESS;

	while (found && !(found->state->is_free &&
			  fence_is_done((struct fence){ .channel = found, .value = found->submitted })))
		found = found->next;
	if (!found)
		result = channel_new(context, &found);
	if (!result)
		result = set_sms(found, sms);
	if (result) {
		if (found)
			found->state->is_free = true;
		return result;
	}
	found->state->is_free = false;
	*channel = found;
	return CUDA_SUCCESS;
}

void channel_give_back(struct channel *channel)
{
	channel->state->is_free = true;
}

void channels_free(struct context *context)
{
	for (struct channel *channel = context->channels, *next; channel; channel = next) {
		next = channel->next;
		channel_free(channel);
	}
	context->channels = NULL;
}

/* The GPU writes no more fences for this context, so the CPU does: streams of other contexts can wait for
 * them. */
void channels_finish(struct context *context)
{
	for (struct channel *channel = context->channels; channel; channel = channel->next)
		__atomic_store_n(channel->done, channel->submitted, __ATOMIC_RELEASE);
}

/* ---- space for submissions */

static void forget_done(struct channel_state *state, uint64_t done)
{
	while (state->pending_first != state->pending_last) {
		struct pending *oldest = &state->pending[state->pending_first % RING_ENTRIES];

		if (oldest->value > done)
			return;
		state->space_tail = oldest->space_end;
		state->pending_first++;
	}
	state->space_head = state->space_tail = 0; /* all free: start at the beginning */
}

/* The offset of `bytes` contiguous free bytes, or SPACE_BYTES. head == tail means that all is free, so a full
 * space never reaches that. */
static uint32_t find_space(const struct channel_state *state, uint32_t bytes)
{
	if (state->space_head >= state->space_tail) {
		if (SPACE_BYTES - state->space_head >= bytes)
			return state->space_head;
		return state->space_tail > bytes ? 0 : SPACE_BYTES;
	}
	return state->space_tail - state->space_head > bytes ? state->space_head : SPACE_BYTES;
}

CUresult channel_begin(struct channel *channel, uint32_t words, uint32_t bytes)
{
	struct channel_state *state = channel->state;
	uint32_t commands = align_up((words + CHANNEL_RELEASE_WORDS) * 4, SOFT_LAUNCH_ALIGN), room, start;
	CUresult result;

	if (words > CHANNEL_ROOM_BYTES / 8 || bytes > CHANNEL_ROOM_BYTES) /* both fit into an empty space */
		return CUDA_ERROR_INVALID_VALUE;
	room = commands + align_up(bytes, SOFT_LAUNCH_ALIGN);
	for (;;) {
		result = context_check(channel->context);
		if (result)
			return result;
		forget_done(state, __atomic_load_n(channel->done, __ATOMIC_ACQUIRE));
		start = find_space(state, room);
		if (start < SPACE_BYTES && state->pending_last - state->pending_first < RING_ENTRIES - 1)
			break;
		result = fence_wait(
			(struct fence){ channel, state->pending[state->pending_first % RING_ENTRIES].value });
		if (result)
			return result;
	}
	state->start = state->at = start;
	state->commands_end = start + commands;
	state->data_at = start + commands;
	state->end = start + room;
	return CUDA_SUCCESS;
}

void channel_put(struct channel *channel, uint32_t word)
{
	struct channel_state *state = channel->state;

	assert(state->at + 4 <= state->commands_end);
	memcpy(state->low.at + SPACE_AT + state->at, &word, sizeof(word));
	state->at += 4;
}

void channel_method(struct channel *channel, uint32_t subchannel, uint32_t method, uint32_t value)
{
	channel_put(channel, SOFT_COMMAND(SOFT_OP_INC, subchannel, method, 1));
	channel_put(channel, value);
}

void *channel_data(struct channel *channel, uint32_t bytes, uint64_t *address)
{
	struct channel_state *state = channel->state;
	uint32_t at = state->data_at;

	assert(bytes <= state->end - at);
	*address = state->low.address + SPACE_AT + at;
	state->data_at = at + align_up(bytes, SOFT_LAUNCH_ALIGN);
	return state->low.at + SPACE_AT + at;
}

static void store_word(struct channel_state *state, uint32_t at, uint32_t value)
{
	__atomic_store_n((uint32_t *)(void *)(state->low.at + USERD_AT + at), value, __ATOMIC_RELEASE);
}

void channel_ring(struct channel *channel)
{
	volatile uint32_t *bell = channel->context->gpu->bell;

	__atomic_store_n(bell + SOFT_BELL_TOKEN / 4, channel->token, __ATOMIC_RELEASE);
	link_rang(bell);
}

struct fence channel_end(struct channel *channel)
{
	struct channel_state *state = channel->state;
	struct pending *pending = &state->pending[state->pending_last % RING_ENTRIES];
	uint64_t value = ++channel->submitted, entry;

	channel_release(channel, state->low.address + FENCE_AT, value, true, false);
	entry = SOFT_ENTRY(state->low.address + SPACE_AT + state->start, (state->at - state->start) / 4);
	memcpy(state->low.at + RING_AT + state->pending_last % RING_ENTRIES * 8, &entry, sizeof(entry));
	*pending = (struct pending){ value, state->end };
	state->space_head = state->end;
	state->pending_last++;
	/* GP_PUT is stored with release: a reader of GP_PUT sees the entry and the commands. The doorbell is
	 * written afterwards, also with release: a reader woken by it sees GP_PUT. */
	store_word(state, SOFT_USERD_GP_PUT, state->pending_last % RING_ENTRIES);
	channel_ring(channel);
	return (struct fence){ channel, value };
}

/* ---- parts of submissions */

static void semaphore(struct channel *channel, uint64_t address, uint64_t payload, uint32_t execute)
{
	channel_put(channel, SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5));
	channel_put(channel, (uint32_t)address);
	channel_put(channel, (uint32_t)(address >> 32));
	channel_put(channel, (uint32_t)payload);
	channel_put(channel, (uint32_t)(payload >> 32));
	channel_put(channel, execute);
}

void channel_release(struct channel *channel, uint64_t address, uint64_t payload, bool is_64bit,
		     bool has_timestamp)
{
	semaphore(channel, address, payload,
		  SOFT_SEM_RELEASE | SOFT_SEM_RELEASE_WFI | (is_64bit ? SOFT_SEM_64BIT : 0) |
			  (has_timestamp ? SOFT_SEM_TIMESTAMP : 0));
}

void channel_acquire(struct channel *channel, uint64_t address, uint64_t payload, uint32_t operation,
		     bool is_64bit)
{
	semaphore(channel, address, payload,
		  operation | SOFT_SEM_SWITCH_TSG | (is_64bit ? SOFT_SEM_64BIT : 0));
}

void channel_wait_for(struct channel *channel, struct fence fence)
{
	CUresult result;

	if (!fence.channel || fence.channel == channel || fence_is_done(fence))
		return;
	result = channel_show(fence.channel, channel->context);
	if (result) {
		context_set_error(channel->context, result); /* an error is better than work out of order */
		return;
	}
	channel_acquire(channel, fence.channel->state->low.address + FENCE_AT, fence.value,
			SOFT_SEM_ACQUIRE_GEQ, true);
}
