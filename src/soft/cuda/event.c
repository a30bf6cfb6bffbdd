/* Events: the progress of a stream, and its time. The GPU writes the time to 16 bytes of host memory, which
 * the event keeps as long as a write can be pending. */
#include <stdlib.h>

#include "soft/cuda/event.h"
#include "soft/cuda/handle.h"

enum { SLOT_BYTES = 16, SLOTS = SOFT_PAGE_BYTES / SLOT_BYTES };

struct slots { /* one page */
	struct context *context;
	struct low low;
	uint64_t used[SLOTS / 64];
	struct slots *next;
};
static struct slots *all_slots;
static struct event *all_events, *dying; /* dying: destroyed, with a pending write of the time */

/* ---- time slots */

static bool page_take(struct slots *page, struct event *event)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (!(page->used[i / 64] >> i % 64 & 1)) {
			page->used[i / 64] |= 1ull << i % 64;
			event->time_address = page->low.address + (uint64_t)i * SLOT_BYTES;
			event->time = (volatile uint64_t *)(void *)(page->low.at + (size_t)i * SLOT_BYTES);
			return true;
		}
	return false;
}

static CUresult slot_take(struct event *event)
{
	struct slots *page;
	CUresult result;

	for (page = all_slots; page; page = page->next)
		if (page->context == event->context && page_take(page, event))
			return CUDA_SUCCESS;
	page = calloc(1, sizeof(*page));
	if (!page)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = low_new(event->context, SOFT_PAGE_BYTES, &page->low);
	if (result) {
		free(page);
		return result;
	}
	page->context = event->context;
	page->next = all_slots;
	all_slots = page;
	page_take(page, event);
	return CUDA_SUCCESS;
}

static void slot_give_back(const struct event *event)
{
	for (struct slots *page = all_slots; page; page = page->next) {
		uint64_t slot = (event->time_address - page->low.address) / SLOT_BYTES;

		if (event->time && event->time_address >= page->low.address && slot < SLOTS)
			page->used[slot / 64] &= ~(1ull << slot % 64);
	}
}

/* ---- lists */

static void list_add(struct event **list, struct event *event)
{
	event->next = *list;
	event->place = list;
	if (event->next)
		event->next->place = &event->next;
	*list = event;
}

static void list_remove(struct event *event)
{
	*event->place = event->next;
	if (event->next)
		event->next->place = event->place;
}

static void event_free(struct event *event)
{
	list_remove(event);
	slot_give_back(event);
	free(event);
}

/* True if no write of the time is pending. */
static bool is_over(const struct event *event)
{
	const struct channel *channel = event->fence.channel;

	return !channel || fence_is_done(event->fence) || channel->context->error;
}

static void free_dying(void)
{
	for (struct event *event = dying, *next; event; event = next) {
		next = event->next;
		if (is_over(event))
			event_free(event);
	}
}

/* ---- creation and destruction */

CUresult event_new(struct context *context, unsigned flags, struct event **made)
{
	struct event *event = calloc(1, sizeof(*event));
	CUresult result = event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	free_dying();
	if (!result) {
		event->context = context;
		event->flags = flags;
		if (!(flags & CU_EVENT_DISABLE_TIMING))
			result = slot_take(event);
	}
	if (!result && !handle_add(event, HANDLE_EVENT)) {
		slot_give_back(event);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result) {
		free(event);
		return result;
	}
	list_add(&all_events, event);
	*made = event;
	return CUDA_SUCCESS;
}

CUresult event_find(CUevent handle, struct event **event)
{
	if (!handle || handle_kind(handle) != HANDLE_EVENT)
		return CUDA_ERROR_INVALID_HANDLE;
	*event = (struct event *)handle;
	return CUDA_SUCCESS;
}

static void event_end(struct event *event)
{
	list_remove(event);
	list_add(&dying, event);
	free_dying();
}

void event_destroy(struct event *event)
{
	capture_forget_event(event);
	handle_remove(event);
	event->is_destroyed = true;
	if (!event->uses)
		event_end(event);
}

void event_keep(struct event *event)
{
	event->uses++;
}

void event_drop(struct event *event)
{
	if (!--event->uses && event->is_destroyed)
		event_end(event);
}

static void forget_slots(const struct context *context)
{
	for (struct slots **at = &all_slots, *page; (page = *at);) {
		if (page->context == context) {
			*at = page->next;
			low_free(&page->low);
			free(page);
		} else {
			at = &page->next;
		}
	}
}

/* The work of the context is done, so all waits for it are. Events that graphs use stay, without a
 * context. */
static void forget_in(struct event *list, const struct context *context)
{
	for (struct event *event = list, *next; event; event = next) {
		next = event->next;
		if (event->fence.channel && event->fence.channel->context == context)
			event->fence = (struct fence){ 0 };
		if (event->context != context)
			continue;
		event->time = NULL;
		event->time_address = 0;
		event->context = NULL;
		if (!event->is_destroyed)
			event_destroy(event);
	}
}

void events_free(struct context *context)
{
	forget_in(dying, context);
	forget_in(all_events, context);
	free_dying();
	forget_slots(context);
}

/* ---- in streams */

CUresult op_submit_record(struct stream *stream, struct event *event)
{
	CUresult result;

	if (!event->context || event->context->space != stream->context->space)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!event->time) {
		event->fence = stream_fence(stream);
		return context_check(stream->context);
	}
	result = stream_begin(stream, CHANNEL_RELEASE_WORDS, 0);
	if (result)
		return result;
	channel_release(stream->channel, event->time_address, ++event->sequence, true, true);
	event->fence = stream_end(stream);
	return CUDA_SUCCESS;
}

CUresult op_submit_wait(struct stream *stream, struct event *event)
{
	struct fence fence = event->fence;
	CUresult result;

	if (fence_is_done(fence) || fence.channel == stream->channel)
		return CUDA_SUCCESS;
	result = context_check(fence.channel->context); /* after an error the fence is never completed */
	if (!result)
		result = stream_begin(stream, CHANNEL_WAIT_WORDS, 0);
	if (result)
		return result;
	channel_wait_for(stream->channel, fence);
	stream_end(stream);
	return CUDA_SUCCESS;
}
