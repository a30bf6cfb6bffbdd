/* A GPU: its doorbell page and the thread that sleeps on it. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "soft/hw/state.h"

#define RATE_MAX 1000000000000ull

enum {
	LOOK_NS = 1000000,	 /* with channels: any program can write the doorbell page */
	LOOK_IDLE_NS = 50000000, /* without channels */
	REST_NS = 20000,	 /* between looks under load: other threads need the lock */
};

static uint32_t *sleeping(const struct hw_gpu *gpu)
{
	return (uint32_t *)(void *)(gpu->bell + SOFT_BELL_SLEEPING);
}

static void rest(long ns)
{
	struct timespec t = { .tv_nsec = ns };

	nanosleep(&t, NULL);
}

/* Whether anything was done, and in *has_more whether there is still work. */
static bool look(struct hw_gpu *gpu, bool *has_more, long *wait_ns)
{
	bool has_changed;

	hw_lock(gpu->cores);
	has_changed = hw_update(gpu);
	*has_more = gpu->has_news;
	*wait_ns = gpu->channel_count ? LOOK_NS : LOOK_IDLE_NS;
	if (gpu->holder || gpu->is_polling)
		hw_kick(gpu->cores);
	hw_unlock(gpu->cores);
	return has_changed;
}

/* SLEEPING is set before the rings are read. A program stores GP_PUT before it rings (reads SLEEPING). If it
 * stores GP_PUT after the rings were read, it finds SLEEPING set and wakes this thread. In the other order, a
 * ring could be missed. */
static void *front(void *at)
{
	struct hw_gpu *gpu = at;

	prctl(PR_SET_NAME, "soft-front");
	prctl(PR_SET_TIMERSLACK, 1000);
	while (!__atomic_load_n(&gpu->front_is_ending, __ATOMIC_ACQUIRE)) {
		struct timespec t = { 0 };
		bool has_changed, has_more;

		__atomic_exchange_n(sleeping(gpu), 1, __ATOMIC_SEQ_CST); /* a full barrier */
		has_changed = look(gpu, &has_more, &t.tv_nsec);
		if (has_more) {
			rest(REST_NS);
			continue;
		}
		if (__atomic_load_n(&gpu->front_is_ending, __ATOMIC_ACQUIRE))
			break;
		if (!has_changed) /* a program that rings without work must not keep the lock busy */
			rest(REST_NS);
		syscall(SYS_futex, sleeping(gpu), FUTEX_WAIT, 1, &t, NULL, 0);
	}
	return NULL;
}

void hw_gpu_rang(struct hw_gpu *gpu)
{
	__atomic_store_n(sleeping(gpu), 0, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, sleeping(gpu), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int check(const struct hw_options *o, struct bf_error *err)
{
	if (!o->sms || o->sms > SOFT_SMS_MAX)
		return bf_fail(err, EINVAL, "GPU with %u SMs: between 1 and %d are possible", o->sms,
			       SOFT_SMS_MAX);
	if (!o->mem_bytes || !o->rate || !o->copy_bytes || o->rate > RATE_MAX || o->copy_bytes > RATE_MAX)
		return bf_fail(err, EINVAL, "GPU: needs memory, and rates of at most 10^12 per second");
	return 0;
}

static void unlink_gpu(struct hw_gpu *gpu)
{
	struct hw_gpu **at = &gpu->cores->gpus;

	hw_lock(gpu->cores);
	while (*at && *at != gpu)
		at = &(*at)->next;
	if (*at)
		*at = gpu->next;
	gpu->cores->next_gpu = NULL;
	hw_unlock(gpu->cores);
}

static void free_parts(struct hw_gpu *gpu)
{
	if (gpu->bell)
		munmap(gpu->bell, SOFT_BELL_BYTES);
	if (gpu->bell_file >= 0)
		close(gpu->bell_file);
	free(gpu->sms);
	free(gpu);
}

struct hw_gpu *hw_gpu_new(struct hw_cores *cores, const struct hw_options *options, struct bf_error *err)
{
	struct hw_gpu *gpu;
	int rc;

	if (check(options, err))
		return NULL;
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu) {
		bf_fail(err, ENOMEM, "GPU: not enough memory");
		return NULL;
	}
	gpu->cores = cores;
	gpu->options = *options;
	gpu->event_ns = gpu->poll_ns = HW_NEVER;
	hw_clock_init(&gpu->clock);
	gpu->sms = calloc(options->sms, sizeof(*gpu->sms));
	gpu->bell_file = hw_file_new("belfry-bell", SOFT_BELL_BYTES, &gpu->bell);
	rc = gpu->bell_file < 0 ? -gpu->bell_file : gpu->sms ? 0 : ENOMEM;
	if (!rc) {
		hw_lock(cores);
		gpu->next = cores->gpus;
		cores->gpus = gpu;
		hw_unlock(cores);
		rc = pthread_create(&gpu->front, NULL, front, gpu);
		if (!rc)
			return gpu;
		unlink_gpu(gpu);
	}
	bf_fail(err, rc, "a GPU: %s", strerror(rc));
	free_parts(gpu);
	return NULL;
}

void hw_gpu_free(struct hw_gpu *gpu)
{
	if (!gpu)
		return;
	__atomic_store_n(&gpu->front_is_ending, 1, __ATOMIC_RELEASE);
	hw_gpu_rang(gpu);
	pthread_join(gpu->front, NULL);
	unlink_gpu(gpu);
	free_parts(gpu);
}

uint64_t hw_gpu_now_ns(struct hw_gpu *gpu)
{
	return hw_clock_read(&gpu->clock);
}

uint64_t hw_gpu_busy_ns(struct hw_gpu *gpu)
{
	uint64_t busy;

	hw_lock(gpu->cores);
	hw_charge_now(gpu);
	busy = gpu->busy_ns;
	hw_unlock(gpu->cores);
	return busy;
}

/* A copy occupies the bus for its duration: the copy rate does not depend on the SMs' rate. */
static uint64_t bus_ns(const struct hw_gpu *gpu)
{
	double bytes_a_ns = (double)gpu->options.rate * gpu->options.sms / HW_BUS_COST / 1e9;

	return gpu->copy_busy_ns + (uint64_t)((double)gpu->kernel_moved_bytes / bytes_a_ns);
}

void hw_gpu_get_counters(struct hw_gpu *gpu, struct soft_counters_params *counters)
{
	hw_lock(gpu->cores);
	*counters =
		(struct soft_counters_params){ .gpu_ns = hw_clock_read(&gpu->clock),
					       .sm_ns = gpu->sm_ns,
					       .bus_ns = bus_ns(gpu),
					       .moved_bytes = gpu->kernel_moved_bytes + gpu->copy_moved_bytes,
					       .sm_count = gpu->options.sms };
	hw_unlock(gpu->cores);
}

uint64_t hw_gpu_used_bytes(struct hw_gpu *gpu)
{
	return __atomic_load_n(&gpu->used_bytes, __ATOMIC_RELAXED);
}

int hw_gpu_bell_file(struct hw_gpu *gpu)
{
	return gpu->bell_file;
}
