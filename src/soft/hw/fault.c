/* Faults: a group with an error is ended, together with all groups of its domain, like programs that share an
 * MPS server. Other groups are not affected. */
#include <stdio.h>
#include <string.h>

#include "soft/hw/state.h"

static void copy_text(char *to, size_t room, const char *from)
{
	snprintf(to, room, "%s", from ? from : "");
}

/* The program reads the status first, so it is written last. */
static void notify(const struct hw_channel *ch, const struct hw_fault *fault, uint64_t now_ns)
{
	struct soft_notifier *to, note = { .ns = now_ns, .error = fault->error, .address = fault->address };

	if (!ch->notifier)
		return;
	to = (struct soft_notifier *)(void *)ch->notifier->at;
	copy_text(note.text, sizeof(note.text), fault->text);
	if (fault->kernel)
		copy_text(note.kernel, sizeof(note.kernel), fault->kernel->name);
	if (fault->ptx) {
		note.fault = (uint16_t)fault->ptx->kind;
		note.address = fault->ptx->address;
		note.line = fault->ptx->line;
		memcpy(note.block, fault->ptx->block, sizeof(note.block));
		memcpy(note.thread, fault->ptx->thread, sizeof(note.thread));
		if (fault->ptx->text[0])
			copy_text(note.text, sizeof(note.text), fault->ptx->text);
	}
	memcpy(to, &note, sizeof(note));
	__atomic_store_n(&to->status, (uint16_t)SOFT_NOTIFIER_STATUS, __ATOMIC_RELEASE);
}

static void drop_work(struct hw_channel *ch)
{
	if (ch->work == HW_WORK_LAUNCH && ch->launch)
		hw_launch_drop(ch->launch);
	if (ch->work == HW_WORK_COPY && !ch->copy.is_done)
		ch->group->gpu->copy_count--;
	ch->work = HW_WORK_NONE;
}

static void fail_one(struct hw_group *group, const struct hw_fault *fault, uint64_t now_ns)
{
	if (group->has_error)
		return;
	group->has_error = true;
	for (struct hw_channel *ch = group->channels; ch; ch = ch->next) {
		ch->is_ready = false;
		drop_work(ch);
		notify(ch, fault, now_ns);
	}
}

/* The others get the same error without its details: they are another program's. */
static void fail_others(struct hw_group *group, const struct hw_fault *fault, uint64_t now_ns)
{
	struct ptx_fault kind = { .kind = fault->ptx ? fault->ptx->kind : PTX_FAULT_NONE };
	struct hw_fault bare = { .error = fault->error,
				 .ptx = fault->ptx ? &kind : NULL,
				 .text = "a fault of another program of the shared domain" };

	for (struct hw_group *g = group->gpu->groups; g; g = g->next)
		if (g != group && g->domain == group->domain)
			fail_one(g, &bare, now_ns);
}

void hw_group_fail(struct hw_group *group, const struct hw_fault *fault)
{
	uint64_t now = hw_clock_read(&group->gpu->clock);

	fail_one(group, fault, now);
	if (group->domain)
		fail_others(group, fault, now);
	group->gpu->has_news = true;
}

bool hw_channel_fail(struct hw_channel *ch, uint32_t error, uint64_t address, const char *text)
{
	struct hw_fault fault = { .error = error, .address = address, .text = text };

	hw_group_fail(ch->group, &fault);
	return false;
}
