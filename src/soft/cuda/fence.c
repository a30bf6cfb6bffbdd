/* Waits for channels: by the GPU in another context, and by the CPU. */
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "soft/cuda/channel.h"

enum { SPIN_NS = 5000, SLEEP_NS = 5000000 };

/* ---- mappings in other address spaces */

CUresult channel_show(struct channel *channel, struct context *to)
{
	struct channel_state *state = channel->state;
	struct shown *shown;
	CUresult result;

	if (channel->context->space == to->space)
		return CUDA_SUCCESS;
	for (shown = state->shown; shown; shown = shown->next)
		if (shown->context->space == to->space)
			return CUDA_SUCCESS;
	shown = malloc(sizeof(*shown));
	if (!shown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = port_map_gpu(to->gpu, to->space, state->low.memory, FENCE_AT, SOFT_PAGE_BYTES,
			      state->low.address + FENCE_AT, false);
	if (result) {
		free(shown);
		return result;
	}
	*shown = (struct shown){ .context = to->parent ? to->parent : to, .next = state->shown };
	state->shown = shown;
	return CUDA_SUCCESS;
}

void channel_hide(struct channel *channel)
{
	struct channel_state *state = channel->state;

	for (struct shown *shown = state->shown, *next; shown; shown = next) {
		next = shown->next;
		port_unmap_gpu(shown->context->gpu, shown->context->space, state->low.memory,
			       state->low.address + FENCE_AT);
		free(shown);
	}
	state->shown = NULL;
}

/* The address space of the context is about to be freed, with all mappings in it. */
void channels_hide_from(struct context *context)
{
	for (struct context *c = all_contexts; c; c = c->next)
		for (struct channel *channel = c->channels; channel; channel = channel->next)
			for (struct shown **at = &channel->state->shown, *found; (found = *at);) {
				if (found->context == context) {
					*at = found->next;
					free(found);
				} else {
					at = &found->next;
				}
			}
}

/* ---- waits by the CPU */

bool fence_is_done(struct fence fence)
{
	return !fence.channel || __atomic_load_n(fence.channel->done, __ATOMIC_ACQUIRE) >= fence.value;
}

static bool is_over(const struct fence *fence)
{
	const struct context *context = fence->channel->context;

	return fence_is_done(*fence) || context->notifier->status ||
	       __atomic_load_n(&context->error, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&context->is_gone, __ATOMIC_RELAXED);
}

/* After each write, the GPU wakes the waiters on the low word. The timeout is needed because an error or the
 * death of the driver wakes no waiter. */
static void sleep_on(const struct fence *fence, uint64_t seen)
{
	struct timespec time = { .tv_nsec = SLEEP_NS };

	syscall(SYS_futex, (uint32_t *)(uintptr_t)fence->channel->done, FUTEX_WAIT, (uint32_t)seen, &time,
		NULL, 0);
}

/* The awaited work may wait for another context that has failed, and whose error no other thread reads. */
static void look_around(void)
{
	api_lock();
	for (struct context *c = all_contexts; c; c = c->next)
		if (c->notifier->status)
			channels_finish(c);
	api_unlock();
}

static void wait_unlocked(const struct fence *fence)
{
	uint64_t start = bf_now_ns();

	while (!is_over(fence) && bf_now_ns() - start < SPIN_NS)
		;
	while (!is_over(fence)) {
		uint64_t seen = __atomic_load_n(fence->channel->done, __ATOMIC_ACQUIRE);

		if (seen >= fence->value)
			return;
		sleep_on(fence, seen);
		look_around();
		if (!is_over(fence) && port_is_dead()) {
			context_set_error(fence->channel->context, CUDA_ERROR_DEVICE_UNAVAILABLE);
			return;
		}
	}
}

CUresult fence_wait(struct fence fence)
{
	struct context *context;
	CUresult result;
	unsigned held;

	if (!fence.channel)
		return CUDA_SUCCESS;
	context = fence.channel->context;
	api_lock();
	if (!is_over(&fence)) {
		context->waiters++; /* context_free waits until this is 0 */
		held = api_pause();
		wait_unlocked(&fence);
		api_resume(held);
		context->waiters--;
	}
	result = context->is_gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context_check(context);
	api_unlock();
	return result;
}
