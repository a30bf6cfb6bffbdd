/* Calls a hook and enforces its budget. The budget is wall-clock time, which is cheap to read. A preempted
 * thread looks slow although its policy is not, so a few late calls are allowed, and after a late call the
 * CPU time of the next calls is measured too. One call that certainly used more than CPU_MOST_NS of CPU time
 * ends the policy. */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "policy/inside.h"

enum {
	LATE_MOST = 8, /* of the last 64 calls */
	CPU_MOST_NS = 20000000,
	CPU_MARK_NS = 5000000,
};

/* Reading a thread's CPU clock is a system call, so it is read only when the last reading is older than
 * CPU_MARK_NS. A thread cannot use more CPU time than wall-clock time, so its CPU time at the start of a call
 * is known to within CPU_MARK_NS. */
static _Thread_local struct {
	uint64_t at_ns, cpu_ns;
} mark;

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct begun {
	uint64_t at_ns;
	bool is_watched; /* the mark was taken at at_ns */
};

static struct begun begin_call(const struct policy *policy)
{
	struct begun begun = { .at_ns = bf_now_ns(),
			       .is_watched =
				       atomic_load_explicit(&policy->late_calls, memory_order_relaxed) };

	if (begun.is_watched || !mark.at_ns || begun.at_ns - mark.at_ns > CPU_MARK_NS) {
		mark.at_ns = begun.at_ns;
		mark.cpu_ns = thread_cpu_ns();
	}
	return begun;
}

/* A lower bound of the CPU time used since `begin`. */
static uint64_t cpu_used_ns(uint64_t begin)
{
	uint64_t used = thread_cpu_ns() - mark.cpu_ns, before_most = begin - mark.at_ns;

	return used > before_most ? used - before_most : 0;
}

static void put_out(struct policy *policy, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put_out(struct policy *policy, const char *fmt, ...)
{
	va_list args;

	pthread_mutex_lock(&policy->lock);
	if (!atomic_load_explicit(&policy->is_out, memory_order_relaxed)) {
		va_start(args, fmt);
		vsnprintf(policy->why, sizeof(policy->why), fmt, args);
		va_end(args);
		atomic_store_explicit(&policy->is_out, true, memory_order_release);
	}
	pthread_mutex_unlock(&policy->lock);
}

void policy_fail(struct policy *policy, const char *why)
{
	put_out(policy, "%s", why);
}

static void add(_Atomic uint64_t *to, uint64_t amount)
{
	atomic_fetch_add_explicit(to, amount, memory_order_relaxed);
}

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
	uint64_t old = atomic_load_explicit(most, memory_order_relaxed);

	while (old < value && !atomic_compare_exchange_weak_explicit(most, &old, value, memory_order_relaxed,
								     memory_order_relaxed))
		;
}

/* Records whether this call was late, and returns how many of the last 64 calls were. */
static int count_late(struct policy *policy, bool is_late)
{
	uint64_t old = atomic_load_explicit(&policy->late_calls, memory_order_relaxed), now;

	do
		now = old << 1 | is_late;
	while (!atomic_compare_exchange_weak_explicit(&policy->late_calls, &old, now, memory_order_relaxed,
						      memory_order_relaxed));
	return __builtin_popcountll(now);
}

/* Returns 0, or -ETIME if the policy has been disabled. */
static int check_time(struct policy *policy, enum belfry_hook hook, struct begun begun)
{
	struct hook_counts *counts = &policy->counts[hook];
	uint64_t took = bf_now_ns() - begun.at_ns, cpu, cpu_most = CPU_MOST_NS;
	bool is_late = took > policy->budget_ns &&
		       (!begun.is_watched || cpu_used_ns(begun.at_ns) > policy->budget_ns);

	add(&counts->calls, 1);
	add(&counts->late, is_late);
	add(&counts->total_ns, took);
	raise_to(&counts->most_ns, took);
	if (count_late(policy, is_late) >= LATE_MOST && is_late) {
		put_out(policy, "its hook %s took longer than %llu us, as %d of its last 64 calls did",
			policy_hook_name(hook), (unsigned long long)policy->budget_ns / 1000, LATE_MOST);
		return -ETIME;
	}
	if (cpu_most < policy->budget_ns)
		cpu_most = policy->budget_ns;
	if (took <= cpu_most)
		return 0;
	cpu = cpu_used_ns(begun.at_ns);
	if (cpu <= cpu_most)
		return 0;
	put_out(policy, "its hook %s used %llu ms of CPU time in one call", policy_hook_name(hook),
		(unsigned long long)cpu / 1000000);
	return -ETIME;
}

static int run(struct policy *policy, enum belfry_hook hook, void *ctx, size_t size)
{
	/* No ctx_out: the kernel writes the context of a BPF_PROG_TYPE_SYSCALL program back into ctx_in. */
	struct bpf_test_run_opts options = { .sz = sizeof(options),
					     .ctx_in = ctx,
					     .ctx_size_in = (__u32)size };
	int rc = bpf_prog_test_run_opts(policy->programs[hook], &options);

	if (rc == -EINVAL) {
		put_out(policy,
			"its hook %s could not be called: it accesses more than its context of %zu bytes",
			policy_hook_name(hook), size);
		return rc;
	}
	if (rc) {
		put_out(policy, "its hook %s could not be called: %s", policy_hook_name(hook), strerror(-rc));
		return rc;
	}
	if (options.retval != BELFRY_PROPOSE && options.retval != BELFRY_DEFAULT) {
		put_out(policy, "its hook %s returned %d, which is neither BELFRY_PROPOSE nor BELFRY_DEFAULT",
			policy_hook_name(hook), (int)options.retval);
		return -EPROTO;
	}
	return (int)options.retval;
}

int policy_call(struct policy *policy, enum belfry_hook hook, void *ctx, size_t size)
{
	struct begun begun;
	int rc, late;

	if (!policy_has(policy, hook) || atomic_load_explicit(&policy->is_out, memory_order_acquire))
		return -ENOENT;
	if (size != policy_ctx_size(hook))
		return -EMSGSIZE;
	begun = begin_call(policy);
	rc = run(policy, hook, ctx, size);
	late = check_time(policy, hook, begun);
	if (rc >= 0 && late)
		rc = late;
	if (rc < 0)
		add(&policy->counts[hook].errors, 1);
	else if (rc == BELFRY_DEFAULT)
		add(&policy->counts[hook].defaults, 1);
	return rc;
}

static uint64_t load(const _Atomic uint64_t *from)
{
	return atomic_load_explicit(from, memory_order_relaxed);
}

void policy_info(const struct policy *policy, struct policy_info *info)
{
	/* The lock is not part of what const promises. */
	pthread_mutex_t *lock = (pthread_mutex_t *)&policy->lock;

	*info = (struct policy_info){ 0 };
	pthread_mutex_lock(lock);
	info->is_out = atomic_load_explicit(&policy->is_out, memory_order_relaxed);
	snprintf(info->why, sizeof(info->why), "%s", policy->why);
	pthread_mutex_unlock(lock);
	for (int hook = 0; hook < BELFRY_HOOKS; hook++) {
		const struct hook_counts *counts = &policy->counts[hook];

		info->hooks[hook] = (struct policy_hook_info){
			.calls = load(&counts->calls),
			.defaults = load(&counts->defaults),
			.errors = load(&counts->errors),
			.late = load(&counts->late),
			.total_ns = load(&counts->total_ns),
			.most_ns = load(&counts->most_ns),
		};
	}
}
