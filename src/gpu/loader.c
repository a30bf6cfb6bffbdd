/* Loads policy objects and probes one after another. The kernel's verifier can take seconds, so it runs in a thread of its
 * own. Everything else here is done by the main thread, which serves other requests meanwhile. Objects of root come first.
 * Each other user has at most one object here: users cannot delay each other by more than that. */
#include <errno.h>
#include <sys/prctl.h>

#include "gpu/policy.h"

static void *loader_main(void *arg)
{
	struct load *load = arg;

	prctl(PR_SET_NAME, "belfry-loader");
	load_verify(load);
	load->is_done = true;
	gpu_wake(load->gpu);
	return NULL;
}

/* If no thread can be created, the main thread verifies, and other requests wait. */
static void begin(struct load *load)
{
	load->has_thread = !load->is_dropped && !pthread_create(&load->thread, NULL, loader_main, load);
	if (load->has_thread)
		return;
	if (!load->is_dropped)
		load_verify(load);
	load->is_done = true;
	gpu_wake(load->gpu);
}

/* The next object is verified while this one is installed. */
static void settle_first(struct gpu *gpu)
{
	struct load *load = gpu->loads;

	if (load->has_thread)
		pthread_join(load->thread, NULL);
	gpu->loads = load->next;
	if (gpu->loads)
		begin(gpu->loads);
	load_settle(load);
}

/* The first load stays: it is being verified. */
static bool is_behind(const struct load *load, const struct load *other, const struct load *first)
{
	return other == first || other->is_admins || !load->is_admins;
}

int loader_add(struct gpu *gpu, struct load *load, struct bf_error *err)
{
	struct load **at = &gpu->loads;

	for (const struct load *other = gpu->loads; other && !load->is_admins; other = other->next)
		if (!other->is_admins && other->uid == load->uid)
			return bf_fail(
				err, EBUSY,
				"%.120s: another policy or probe of yours is being verified; try again",
				load->file);
	while (*at && is_behind(load, *at, gpu->loads))
		at = &(*at)->next;
	load->next = *at;
	*at = load;
	if (load == gpu->loads)
		begin(load);
	return 0;
}

void loader_reap(struct gpu *gpu)
{
	while (gpu->loads && gpu->loads->is_done)
		settle_first(gpu);
}

void loader_wait(struct gpu *gpu)
{
	while (gpu->loads)
		settle_first(gpu);
}

/* The first load is being verified, and ends by itself. The others are freed. */
void loader_drop(struct gpu *gpu, const struct talker *talker)
{
	struct load **at = &gpu->loads;

	while (*at) {
		struct load *load = *at;

		if (load->talker == talker) {
			load->talker = NULL;
			load->is_dropped = true;
		}
		if (!load->is_dropped || load == gpu->loads) {
			at = &load->next;
			continue;
		}
		*at = load->next;
		load_settle(load);
	}
}

void loader_end(struct gpu *gpu)
{
	for (struct load *load = gpu->loads; load; load = load->next)
		load->is_dropped = true;
	loader_wait(gpu);
}
