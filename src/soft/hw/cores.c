/* The worker threads. One lock protects everything. It is held to choose and to account for work, some
 * hundred nanoseconds at a time. Of the idle workers, one sleeps until the next event is due; the others
 * sleep until they are woken. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "soft/hw/state.h"

#define NS 1000000000ull

enum {
	SLEEP_MIN_NS = 20000,
	STEPS_MAX = 64, /* of an unpaced clock, before other threads get the lock */
};

void hw_lock(struct hw_cores *cores)
{
	pthread_mutex_lock(&cores->lock);
}

void hw_unlock(struct hw_cores *cores)
{
	struct hw_launch *dead = cores->dead;

	cores->dead = NULL;
	pthread_mutex_unlock(&cores->lock);
	while (dead) {
		struct hw_launch *next = dead->next;

		hw_launch_free(dead);
		dead = next;
	}
}

void hw_kick(struct hw_cores *cores)
{
	if (cores->idle_count)
		pthread_cond_signal(&cores->work);
}

/* Finds a job of this GPU, or the host time at which there may be one. */
static bool look_at(struct hw_gpu *gpu, struct hw_job *job, uint64_t *host_ns)
{
	uint64_t now, next;
	unsigned steps = 0;

	do {
		now = hw_clock_settle(&gpu->clock);
		if (gpu->has_news || now >= gpu->event_ns || now >= gpu->poll_ns) {
			hw_update(gpu);
			now = hw_clock_settle(&gpu->clock);
		}
		if (hw_job_take(gpu, now, job, &next)) {
			job->taken_ns = now;
			return true;
		}
	} while (hw_advance(gpu) && ++steps < STEPS_MAX);
	next = next < gpu->event_ns ? next : gpu->event_ns;
	if (gpu->has_news)
		next = now;
	next = next < gpu->poll_ns ? next : gpu->poll_ns;
	*host_ns = next == HW_NEVER ? HW_NEVER : hw_clock_host_ns(&gpu->clock, next);
	return false;
}

/* Looks at all GPUs, starting with another one each time. */
static bool find_job(struct hw_cores *cores, struct hw_job *job, uint64_t *host_ns)
{
	struct hw_gpu *first = cores->next_gpu ? cores->next_gpu : cores->gpus, *gpu = first;
	uint64_t ns;

	*host_ns = HW_NEVER;
	if (!gpu)
		return false;
	do {
		struct hw_gpu *next = gpu->next ? gpu->next : cores->gpus;

		if (look_at(gpu, job, &ns)) {
			cores->next_gpu = next;
			return true;
		}
		*host_ns = ns < *host_ns ? ns : *host_ns;
		gpu = next;
	} while (gpu != first);
	return false;
}

/* Sleeps until woken, or until host_ns if no other worker watches the time. */
static void sleep_until(struct hw_cores *cores, uint64_t host_ns)
{
	uint64_t soonest = bf_now_ns() + SLEEP_MIN_NS;
	struct timespec t;

	host_ns = host_ns > soonest ? host_ns : soonest;
	cores->idle_count++;
	if (host_ns >= cores->watched_ns) {
		pthread_cond_wait(&cores->work, &cores->lock);
	} else {
		cores->watched_ns = host_ns;
		t = (struct timespec){ .tv_sec = (time_t)(host_ns / NS), .tv_nsec = (long)(host_ns % NS) };
		pthread_cond_timedwait(&cores->work, &cores->lock, &t);
		if (cores->watched_ns == host_ns)
			cores->watched_ns = HW_NEVER;
	}
	cores->idle_count--;
}

static void *work(void *at)
{
	struct hw_cores *cores = at;
	struct hw_job job;
	uint64_t host_ns;

	prctl(PR_SET_NAME, "soft-sm");
	prctl(PR_SET_TIMERSLACK, 1000);
	hw_lock(cores);
	while (!cores->is_ending) {
		if (!find_job(cores, &job, &host_ns)) {
			sleep_until(cores, host_ns);
			continue;
		}
		if (job.gpu->next || job.gpu != cores->gpus || hw_job_is_waiting(job.gpu, job.taken_ns))
			hw_kick(cores);
		hw_unlock(cores);
		hw_job_run(&job);
	}
	hw_unlock(cores);
	return NULL;
}

static void stop(struct hw_cores *cores)
{
	hw_lock(cores);
	cores->is_ending = true;
	pthread_cond_broadcast(&cores->work);
	hw_unlock(cores);
	for (uint32_t i = 0; i < cores->thread_count; i++)
		pthread_join(cores->threads[i], NULL);
}

void hw_cores_free(struct hw_cores *cores)
{
	if (!cores)
		return;
	stop(cores);
	pthread_cond_destroy(&cores->work);
	pthread_cond_destroy(&cores->quiet);
	pthread_mutex_destroy(&cores->lock);
	free(cores->threads);
	free(cores);
}

struct hw_cores *hw_cores_new(uint32_t count, struct bf_error *err)
{
	struct hw_cores *cores = calloc(1, sizeof(*cores));
	pthread_condattr_t monotonic;
	pthread_mutexattr_t brief;
	int rc = 0;

	if (cores)
		cores->threads = calloc(count, sizeof(*cores->threads));
	if (!cores || !cores->threads || !count) {
		free(cores);
		bf_fail(err, EINVAL, "%u worker threads are not possible", count);
		return NULL;
	}
	cores->watched_ns = HW_NEVER;
	pthread_mutexattr_init(&brief);
	pthread_mutexattr_settype(&brief, PTHREAD_MUTEX_ADAPTIVE_NP); /* it is held very briefly */
	pthread_mutex_init(&cores->lock, &brief);
	pthread_mutexattr_destroy(&brief);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&cores->work, &monotonic);
	pthread_cond_init(&cores->quiet, &monotonic);
	pthread_condattr_destroy(&monotonic);
	for (; cores->thread_count < count && !rc; cores->thread_count += !rc)
		rc = pthread_create(&cores->threads[cores->thread_count], NULL, work, cores);
	if (!rc)
		return cores;
	bf_fail(err, rc, "starting worker thread %u: %s", cores->thread_count, strerror(rc));
	hw_cores_free(cores);
	return NULL;
}
