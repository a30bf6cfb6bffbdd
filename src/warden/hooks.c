/* The hooks that are called before memory or a channel group is granted (warden_hooks). */
#include <stdlib.h>

#include "warden/state.h"

static struct warden_mem_ask mem_ask(const struct site *site, uint64_t bytes)
{
	const struct warden *warden = site->warden;

	return (struct warden_mem_ask){ .pid = site->process->pid,
					.bytes = bytes,
					.used_bytes = ledger_used(warden->ledger),
					.most_bytes = ledger_most_used(warden->ledger),
					.limit_bytes = ledger_limit(warden->ledger),
					.gpu_bytes = warden->device->mem_bytes };
}

bool site_may_allocate(struct site *site, uint64_t bytes)
{
	const struct warden_hooks *hooks = &site->warden->options.hooks;
	struct warden_mem_ask ask = mem_ask(site, bytes);

	return !hooks->mem_alloc || hooks->mem_alloc(hooks->context, &ask);
}

bool site_waits_for_room(struct site *site, uint64_t bytes)
{
	const struct warden_hooks *hooks = &site->warden->options.hooks;
	struct warden_mem_ask ask = mem_ask(site, bytes);

	if (!hooks->make_room || site->has_asked || !site->warden->options.mem_bytes)
		return false;
	site->has_asked = true;
	return hooks->make_room(hooks->context, &ask) && site_defer(site);
}

static void count_one(void *context, struct ledger_object *object)
{
	(void)object;
	++*(uint32_t *)context;
}

bool site_may_add_group(struct site *site, struct warden_ctx_ask *ask)
{
	struct warden *warden = site->warden;
	const struct warden_hooks *hooks = &warden->options.hooks;

	*ask = (struct warden_ctx_ask){ .pid = site->process->pid, .interleave = -1 };
	if (!hooks->ctx_init)
		return true;
	for (const struct client *c = LIST_FIRST(&warden->clients); c; c = LIST_NEXT(c, next))
		ledger_each(warden->ledger, c->handle, RM_KIND_GROUP, count_one, &ask->contexts);
	return hooks->ctx_init(hooks->context, ask);
}

void site_tell_refused(struct site *site, uint64_t bytes)
{
	const struct warden_hooks *hooks = &site->warden->options.hooks;

	site->warden->refusals++;
	if (hooks->mem_refused)
		hooks->mem_refused(hooks->context, site->process->pid, bytes);
}
