/* The front end reads a channel's ring and its commands, each word once. Workers execute the work for
 * engines, and the channel waits for it. */
#include <string.h>

#include "soft/hw/state.h"

static uint32_t *userd_at(const struct hw_channel *ch, uint32_t word)
{
	return (uint32_t *)(void *)(ch->userd->at + ch->userd_offset + word);
}

/* Acquire: the program stores its entries and commands before GP_PUT, so reads after this one see them. */
static uint32_t read_put(const struct hw_channel *ch)
{
	return __atomic_load_n(userd_at(ch, SOFT_USERD_GP_PUT), __ATOMIC_ACQUIRE);
}

static void not_before(struct hw_channel *ch, uint64_t ns)
{
	if (ch->time_ns < ns)
		ch->time_ns = ns;
}

/* A time after work was seen: at an earlier time it may not have existed. */
static uint64_t seen_ns(const struct hw_channel *ch)
{
	return hw_clock_read(&ch->group->gpu->clock);
}

/* Whether all seen work is consumed. */
bool hw_front_is_dry(const struct hw_channel *ch)
{
	const struct hw_fetch *f = &ch->fetch;

	return ch->work == HW_WORK_NONE && f->at == f->count && !f->segment_words && f->get == f->put;
}

/* Whether the ring has entries that were not fetched. New entries came at an unknown time since the last
 * look, also if the host was delayed in between, so none of them executes before now. The ring is not read
 * again before all known entries are fetched; otherwise the first entries would wait for the last. */
static bool see_entries(struct hw_channel *ch)
{
	struct hw_fetch *f = &ch->fetch;

	if (f->get == f->put) {
		if (hw_front_is_dry(ch))
			hw_done_dry(ch);
		f->put = read_put(ch);
		if (f->get != f->put) {
			f->put_ns = seen_ns(ch);
			hw_done_saw(ch);
		}
	}
	return f->get != f->put;
}

/* Takes the next entry of the ring; false if there is none. */
static bool fetch_entry(struct hw_channel *ch)
{
	struct hw_fetch *f = &ch->fetch;
	uint64_t entry;

	if (!see_entries(ch))
		return false;
	if (f->put >= ch->ring_entries)
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, f->put, "GP_PUT is not in the ring");
	not_before(ch, f->put_ns);
	if (!hw_space_read(ch->space, ch->ring_address + 8ull * f->get, &entry, sizeof(entry)))
		return hw_channel_fail(ch, SOFT_ERROR_MMU, ch->ring_address + 8ull * f->get, "the ring");
	f->address = SOFT_ENTRY_ADDRESS(entry);
	f->segment_words = SOFT_ENTRY_WORDS(entry);
	return true;
}

static void entry_done(struct hw_channel *ch)
{
	struct hw_fetch *f = &ch->fetch;

	f->get = (f->get + 1) & (ch->ring_entries - 1);
	__atomic_store_n(userd_at(ch, SOFT_USERD_GP_GET), f->get, __ATOMIC_RELEASE);
}

/* Fills the word buffer; false if there are no words, or the channel has failed. */
static bool fetch_words(struct hw_channel *ch)
{
	struct hw_fetch *f = &ch->fetch;
	uint32_t count;

	if (!f->segment_words && !fetch_entry(ch))
		return false;
	count = f->segment_words < HW_FETCH_WORDS ? f->segment_words : HW_FETCH_WORDS;
	if (!hw_space_read(ch->space, f->address, f->words, 4ull * count))
		return hw_channel_fail(ch, SOFT_ERROR_MMU, f->address, "commands");
	f->at = 0;
	f->count = count;
	f->address += 4ull * count;
	f->segment_words -= count;
	ch->time_ns += (uint64_t)(count + 1) * HW_WORD_NS;
	if (!f->segment_words)
		entry_done(ch);
	return true;
}

static bool begin_command(struct hw_channel *ch, uint32_t word, uint32_t *budget)
{
	struct hw_fetch *f = &ch->fetch;
	uint32_t count = word >> 16 & 0x1fff;

	f->operation = word >> 29;
	f->subchannel = word >> 13 & 7;
	f->method = (word & 0xfff) << 2;
	switch (f->operation) {
	case SOFT_OP_INC:
	case SOFT_OP_NON_INC:
	case SOFT_OP_ONE_INC:
		f->left = count;
		return true;
	case SOFT_OP_IMMEDIATE:
		return hw_method(ch, f->subchannel, f->method, count, budget);
	default:
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, word, "no such operation");
	}
}

static bool command_word(struct hw_channel *ch, uint32_t word, uint32_t *budget)
{
	struct hw_fetch *f = &ch->fetch;
	uint32_t method = f->method;

	if (!f->left)
		return begin_command(ch, word, budget);
	f->left--;
	if (f->operation != SOFT_OP_NON_INC)
		f->method += 4;
	if (f->operation == SOFT_OP_ONE_INC)
		f->operation = SOFT_OP_NON_INC;
	return hw_method(ch, f->subchannel, method, word, budget);
}

/* Whether what the channel waits for is done; its time is then that of the completion. */
static bool work_is_done(struct hw_channel *ch, uint64_t now_ns)
{
	switch (ch->work) {
	case HW_WORK_LAUNCH:
		if (ch->launch->done_count < ch->launch->block_count || ch->launch->end_ns > now_ns)
			return false;
		not_before(ch, ch->launch->end_ns);
		hw_launch_bury(ch->launch);
		ch->launch = NULL;
		break;
	case HW_WORK_COPY:
		if (!ch->copy.is_done || ch->copy.end_ns > now_ns)
			return false;
		not_before(ch, ch->copy.end_ns);
		break;
	case HW_WORK_ACQUIRE:
		if (!hw_acquire_is_met(ch))
			return false;
		not_before(ch, seen_ns(ch));
		break;
	default:
		break;
	}
	ch->work = HW_WORK_NONE;
	ch->group->gpu->has_news = true;
	hw_done_note(ch);
	return true;
}

void hw_front_run(struct hw_channel *ch, uint64_t now_ns, uint32_t *budget)
{
	struct hw_fetch *f = &ch->fetch;

	while (*budget && !ch->group->has_error) {
		if (ch->work != HW_WORK_NONE && !work_is_done(ch, now_ns))
			return;
		if (ch->time_ns > now_ns + HW_SLACK_NS)
			return;
		if (f->at == f->count && !fetch_words(ch))
			return;
		while (*budget && f->at < f->count) {
			if (!command_word(ch, f->words[f->at++], budget))
				break;
		}
		*budget -= *budget ? 1 : 0;
	}
}

static bool can_go_on(struct hw_channel *ch)
{
	if (ch->work == HW_WORK_ACQUIRE)
		return ch->group->has_error || hw_acquire_is_met(ch);
	return !hw_front_is_dry(ch);
}

/* Nothing executes before the time at which it existed and was allowed. */
void hw_front_look(struct hw_channel *ch)
{
	bool was_ready = ch->is_ready && !hw_front_is_dry(ch);

	see_entries(ch);
	ch->is_ready = hw_channel_is_live(ch) && can_go_on(ch);
	if (ch->is_ready && !was_ready)
		not_before(ch, seen_ns(ch));
}

bool hw_channel_is_idle(struct hw_channel *ch)
{
	const struct hw_fetch *f = &ch->fetch;
	bool is_idle;

	hw_lock(ch->group->gpu->cores);
	is_idle = ch->group->has_error || (ch->work == HW_WORK_NONE && f->at == f->count &&
					   !f->segment_words && read_put(ch) == f->get);
	hw_unlock(ch->group->gpu->cores);
	return is_idle;
}
