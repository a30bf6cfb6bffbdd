/* Loads policy objects one after another. The kernel's verifier can take seconds, so it runs in a thread of its own.
 * Everything else here is done by the main thread, which serves other requests meanwhile. */
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

void loader_add(struct gpu *gpu, struct load *load)
{
	struct load **at = &gpu->loads;

	while (*at)
		at = &(*at)->next;
	*at = load;
	if (load == gpu->loads)
		begin(load);
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

void loader_drop(struct gpu *gpu, const struct talker *talker)
{
	for (struct load *load = gpu->loads; load; load = load->next)
		if (load->talker == talker) {
			load->talker = NULL;
			load->is_dropped = true;
		}
}

void loader_end(struct gpu *gpu)
{
	for (struct load *load = gpu->loads; load; load = load->next)
		load->is_dropped = true;
	loader_wait(gpu);
}
