/* How busy SMs and memory are, for policies and reports. Reading the counters takes a while (0.2 ms on an H200), so
 * the main thread reads them, and only while the GPU is used. */
#include <errno.h>

#include "base/log.h"
#include "gpu/gpu.h"

/* Samples of the real counters are up to 100 ms old (docs/driver.md), so shorter intervals would not be accurate. */
static const uint64_t every_ns = 500000000;

void busy_used(struct gpu *gpu)
{
	if (!atomic_exchange(&gpu->was_used, true))
		gpu_wake(gpu);
}

static void ask(struct gpu *gpu)
{
	struct device_load load;
	int rc = gpu->device->ops->load(gpu->device, &load);

	if (rc == -EAGAIN)
		return;
	if (rc) {
		gpu->is_busy_untold = true;
		bf_log(BF_LOG_INFO, "GPU %u does not tell how busy its SMs and memory are", gpu->which.index);
	}
	gpu_lock(gpu);
	gpu->has_busy = !rc;
	if (!rc) {
		gpu->busy = load;
		sched_busy(gpu->sched, load.sm_ppm, load.mem_ppm, load.over_ns, bf_now_ns());
	}
	gpu_unlock(gpu);
}

/* No program has used the GPU since the last look. The counters are not read again before one does. */
static void rest(struct gpu *gpu)
{
	gpu_lock(gpu);
	gpu->busy.sm_ppm = gpu->busy.mem_ppm = 0;
	gpu_unlock(gpu);
}

void busy_look(struct gpu *gpu, uint64_t now_ns)
{
	if (!gpu->device->ops->load || gpu->is_busy_untold)
		return;
	if (!gpu->busy_due_ns && gpu->was_used) { /* the GPU is used again */
		ask(gpu);
		gpu->busy_due_ns = now_ns + every_ns;
	} else if (gpu->busy_due_ns && now_ns >= gpu->busy_due_ns) {
		bool was_used = atomic_exchange(&gpu->was_used, false);

		ask(gpu);
		gpu->busy_due_ns = was_used ? now_ns + every_ns : 0;
		if (!was_used)
			rest(gpu);
	}
}
