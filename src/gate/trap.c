#include "gate/trap.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/number.h"

enum { ARM_SHARE = 50 }; /* the trapper works at most 1/50 of the time */

/* Of the thread that the signal interrupts: a poller. */
static _Thread_local struct gate_traps *own_traps;
static _Thread_local _Atomic uint32_t *own_rest_word;

/* A signal that comes after the poller's last look and before it sleeps changes the word that it would sleep on, so that the
 * poller does not sleep. */
static void on_trap(int number)
{
	(void)number;
	if (!own_traps)
		return;
	atomic_fetch_add_explicit(&own_traps->wakes, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(own_rest_word, 1, memory_order_release);
}

void gate_traps_signal(struct gate_traps *traps, _Atomic uint32_t *rest_word)
{
	sigset_t set;

	own_rest_word = rest_word;
	own_traps = traps;
	sigemptyset(&set);
	sigaddset(&set, SIGIO);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	/* Pairs with the acquire in add_one: a thread that reads the ID finds the handler's pointers set. */
	atomic_store_explicit(&traps->poller, (pid_t)syscall(SYS_gettid), memory_order_release);
}

static void arm(struct gate_traps *traps, bool is_armed)
{
	uint64_t start_ns = bf_now_ns();
	struct gate_trap *trap;

	pthread_mutex_lock(&traps->lock);
	if (traps->is_armed != is_armed)
		LIST_FOREACH(trap, &traps->all, next)
			ioctl(trap->event, is_armed ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
	traps->is_armed = is_armed;
	pthread_mutex_unlock(&traps->lock);
	atomic_store_explicit(&traps->arm_ns, bf_now_ns() - start_ns, memory_order_relaxed);
}

static void *trapper_main(void *arg)
{
	struct gate_traps *traps = arg;

	prctl(PR_SET_NAME, "belfry-trap");
	while (!atomic_load_explicit(&traps->is_ending, memory_order_acquire)) {
		uint32_t state = atomic_load_explicit(&traps->state, memory_order_acquire), before = state;

		if (state == GATE_TRAPS_WANTED || state == GATE_TRAPS_UNWANTED) {
			arm(traps, state == GATE_TRAPS_WANTED);
			/* If the poller has changed the state since, the loop handles that next. Release: pairs with
			 * gate_traps_are_armed, so that the poller looks once more after the traps were armed. */
			atomic_compare_exchange_strong_explicit(&traps->state, &before,
								state == GATE_TRAPS_WANTED ? GATE_TRAPS_ARMED
											   : GATE_TRAPS_OFF,
								memory_order_release, memory_order_relaxed);
		} else {
			syscall(SYS_futex, &traps->state, FUTEX_WAIT_PRIVATE, state, NULL, NULL, 0);
		}
	}
	return NULL;
}

int gate_traps_start(struct gate_traps *traps)
{
	struct sigaction action = { .sa_handler = on_trap, .sa_flags = SA_RESTART };

	LIST_INIT(&traps->all);
	pthread_mutex_init(&traps->lock, NULL);
	sigaction(SIGIO, &action, NULL);
	return pthread_create(&traps->trapper, NULL, trapper_main, traps);
}

static void wake_trapper(struct gate_traps *traps)
{
	syscall(SYS_futex, &traps->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void gate_traps_end(struct gate_traps *traps)
{
	atomic_store_explicit(&traps->is_ending, true, memory_order_release);
	/* The word changes, so a trapper that is about to wait on it does not wait. */
	atomic_store(&traps->state, GATE_TRAPS_UNWANTED);
	wake_trapper(traps);
	pthread_join(traps->trapper, NULL);
	pthread_mutex_destroy(&traps->lock);
}

static struct gate_trap *add_one(struct gate_traps *traps, int event)
{
	struct f_owner_ex owner = { F_OWNER_TID, atomic_load_explicit(&traps->poller, memory_order_acquire) };
	struct gate_trap *trap = calloc(1, sizeof(*trap));

	if (!trap || fcntl(event, F_SETOWN_EX, &owner) || fcntl(event, F_SETFL, O_ASYNC) ||
	    (traps->is_armed && ioctl(event, PERF_EVENT_IOC_ENABLE, 0))) {
		free(trap);
		return NULL;
	}
	trap->event = event;
	LIST_INSERT_HEAD(&traps->all, trap, next);
	return trap;
}

static void remove_one(struct gate_trap *trap)
{
	LIST_REMOVE(trap, next);
	close(trap->event);
	free(trap);
}

bool gate_traps_add(struct gate_traps *traps, const int *events, size_t count, struct gate_trap **to)
{
	size_t added = 0;

	pthread_mutex_lock(&traps->lock);
	while (added < count && (to[added] = add_one(traps, events[added])))
		added++;
	if (added < count) {
		for (size_t i = added; i < count; i++)
			close(events[i]);
		for (size_t i = 0; i < added; i++)
			remove_one(to[i]);
	}
	pthread_mutex_unlock(&traps->lock);
	return added == count;
}

void gate_traps_remove(struct gate_traps *traps, struct gate_trap **which, size_t count)
{
	pthread_mutex_lock(&traps->lock);
	for (size_t i = 0; i < count; i++)
		remove_one(which[i]);
	pthread_mutex_unlock(&traps->lock);
}

bool gate_traps_are_armed(const struct gate_traps *traps)
{
	return atomic_load_explicit(&traps->state, memory_order_acquire) == GATE_TRAPS_ARMED &&
	       !atomic_load_explicit(&traps->missing, memory_order_relaxed) &&
	       !atomic_load_explicit(&traps->are_forbidden, memory_order_relaxed);
}

/* After a wake-up the traps are disarmed, whatever the program wrote. So a program that writes continuously wakes the poller
 * seldom. */
void gate_traps_want(struct gate_traps *traps, bool is_silent, uint64_t quiet_us, uint64_t trap_us,
		     uint64_t now_ns)
{
	uint32_t state = atomic_load_explicit(&traps->state, memory_order_relaxed);
	uint64_t wakes = atomic_load_explicit(&traps->wakes, memory_order_relaxed);
	bool was_woken = wakes != traps->wakes_seen;
	/* There may be thousands of traps: the trapper works a small part of the time only. */
	uint64_t arm_ns = atomic_load_explicit(&traps->arm_ns, memory_order_relaxed);
	uint64_t pause_ns = bf_max(trap_us * 1000, ARM_SHARE * arm_ns);
	bool are_forbidden = atomic_load_explicit(&traps->are_forbidden, memory_order_relaxed);

	traps->wakes_seen = wakes;
	if (was_woken)
		traps->wake_ns = now_ns;
	if (state == GATE_TRAPS_OFF && is_silent && trap_us && !are_forbidden && quiet_us >= trap_us &&
	    now_ns - traps->wake_ns >= pause_ns &&
	    !atomic_load_explicit(&traps->missing, memory_order_relaxed))
		state = GATE_TRAPS_WANTED;
	else if ((state == GATE_TRAPS_WANTED || state == GATE_TRAPS_ARMED) &&
		 (!is_silent || was_woken || are_forbidden))
		state = GATE_TRAPS_UNWANTED;
	else
		return;
	atomic_store_explicit(&traps->state, state, memory_order_release);
	wake_trapper(traps);
}
