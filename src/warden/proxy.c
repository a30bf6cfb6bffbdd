#include "warden/proxy.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/landlock.h"
#include "base/process.h"

enum {
	STACK_BYTES = 32 << 10,
	SPINS = 400, /* about 20 us: most calls return before a sleeping thread would wake */
	READY_SPINS =
		1500, /* how long the proxy waits for the next call before it sleeps: a starting program makes many */
	FEW_CPUS = 2,	     /* with so few CPUs the proxy sleeps at once */
	ALIVE_LOOK_MS = 100, /* how often the caller checks whether the proxy is alive */
};

enum { LANDLOCK_LIMIT_MS = 1000 };

enum { PROXY_IDLE, PROXY_ASKED, PROXY_BUSY, PROXY_DONE };

/* Shared by the caller and the proxy. `state` orders the other members: the caller stores ASKED after it has written the
 * call (release), and the proxy loads it before it reads the call (acquire). The proxy stores DONE after it has written
 * the result, and the caller loads it before it reads the result. BUSY orders nothing: the caller reads it when the proxy
 * is dead, to know whether the call was begun.
 *
 * The side that is about to sleep sets its `sleeps` word first and then compares `state` once more (FUTEX_WAIT does that).
 * The side that changes `state` reads the other's `sleeps` word afterwards. The two stores and the two loads are sequentially
 * consistent, so at least one side sees the other's store: no wake-up is lost. */
struct cell {
	_Atomic uint32_t state; /* a futex */
	_Atomic uint32_t proxy_sleeps, caller_sleeps;
	uint32_t ready_spins;
	char name[16];
	pid_t parent;
	long nr;
	uint64_t args[6];
	long result;
};

struct proxy {
	pid_t pid;
	int pidfd;
	void *stack;
	struct cell cell;
};

/* The proxy has no thread-local storage of its own. It would use the calling thread's, so it must not change errno and must
 * not call library functions. */
static inline __attribute__((always_inline)) long raw(long nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
						      uint64_t e, uint64_t f)
{
	register uint64_t r10 __asm__("r10") = d;
	register uint64_t r8 __asm__("r8") = e;
	register uint64_t r9 __asm__("r9") = f;
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return rc;
}

__attribute__((noreturn, used, no_stack_protector, no_sanitize("address", "thread", "undefined"))) static void
proxy_main(struct cell *cell)
{
	raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
	raw(SYS_prctl, PR_SET_NAME, (uintptr_t)cell->name, 0, 0, 0, 0);
	if (raw(SYS_getppid, 0, 0, 0, 0, 0, 0) != cell->parent)
		raw(SYS_exit_group, 1, 0, 0, 0, 0, 0);
	for (uint32_t spins = 0;;) {
		uint32_t state = __atomic_load_n((uint32_t *)&cell->state, __ATOMIC_ACQUIRE);

		if (state != PROXY_ASKED && spins++ < cell->ready_spins) {
			__builtin_ia32_pause();
			continue;
		}
		if (state != PROXY_ASKED) {
			__atomic_store_n((uint32_t *)&cell->proxy_sleeps, 1, __ATOMIC_SEQ_CST);
			raw(SYS_futex, (uintptr_t)&cell->state, FUTEX_WAIT, state, 0, 0, 0);
			__atomic_store_n((uint32_t *)&cell->proxy_sleeps, 0, __ATOMIC_RELAXED);
			continue;
		}
		__atomic_store_n((uint32_t *)&cell->state, PROXY_BUSY, __ATOMIC_RELAXED);
		cell->result = raw(cell->nr, cell->args[0], cell->args[1], cell->args[2], cell->args[3],
				   cell->args[4], cell->args[5]);
		__atomic_store_n((uint32_t *)&cell->state, PROXY_DONE, __ATOMIC_SEQ_CST);
		if (__atomic_load_n((uint32_t *)&cell->caller_sleeps, __ATOMIC_SEQ_CST))
			raw(SYS_futex, (uintptr_t)&cell->state, FUTEX_WAKE, 1, 0, 0, 0);
		spins = 0;
	}
}

/* A raw clone: sanitizers intercept glibc's wrapper and would treat the proxy as a thread. */
static long start(uint64_t flags, void *stack_end, struct cell *cell)
{
	long rc;

	__asm__ volatile("mov %[cell], %%r9\n\t"
			 "mov %[flags], %%rdi\n\t"
			 "mov %[stack], %%rsi\n\t"
			 "xor %%edx, %%edx\n\t"
			 "xor %%r10d, %%r10d\n\t"
			 "xor %%r8d, %%r8d\n\t"
			 "mov %[nr], %%eax\n\t"
			 "syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "mov %[main], %%rax\n\t" /* before rbp is cleared, which may hold it */
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r9, %%rdi\n\t"
			 "call *%%rax\n\t"
			 "1:\n\t"
			 : "=&a"(rc)
			 : [cell] "r"(cell), [flags] "r"(flags), [stack] "r"(stack_end), [nr] "i"(SYS_clone),
			   [main] "r"(proxy_main)
			 : "rdi", "rsi", "rdx", "r8", "r9", "r10", "r11", "rcx", "memory", "cc");
	return rc;
}

struct proxy *proxy_new(const char *name, struct bf_error *err)
{
	struct proxy *proxy = calloc(1, sizeof(*proxy));
	sigset_t all, before;
	long rc;

	if (!proxy) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	proxy->pidfd = -1;
	proxy->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (proxy->stack == MAP_FAILED) {
		free(proxy);
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	proxy->cell.parent = getpid();
	snprintf(proxy->cell.name, sizeof(proxy->cell.name), "%s", name);
	proxy->cell.ready_spins = sysconf(_SC_NPROCESSORS_ONLN) > FEW_CPUS ? READY_SPINS : 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all,
			&before); /* inherited: none of the server's signal handlers runs in the proxy */
	rc = start(CLONE_VM | CLONE_FILES | CLONE_FS, (char *)proxy->stack + STACK_BYTES, &proxy->cell);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc > 0) {
		proxy->pid = (pid_t)rc;
		proxy->pidfd = bf_pidfd_open(proxy->pid);
	}
	if (rc <= 0 || proxy->pidfd < 0) {
		bf_fail(err, rc < 0 ? (int)-rc : EMFILE, "cannot start a process for a vGPU: %s",
			strerror(rc < 0 ? (int)-rc : EMFILE));
		proxy_free(proxy);
		return NULL;
	}
	return proxy;
}

pid_t proxy_pid(const struct proxy *proxy)
{
	return proxy->pid;
}

void proxy_stop(struct proxy *proxy)
{
	bf_pidfd_kill(proxy->pidfd, SIGKILL);
}

void proxy_free(struct proxy *proxy)
{
	if (!proxy)
		return;
	if (proxy->pid > 0) {
		if (proxy->pidfd >= 0)
			proxy_stop(proxy);
		else
			kill(proxy->pid, SIGKILL);
		/* The proxy uses its stack until it has died, and may be in a call that only its death ends. */
		while (waitpid(proxy->pid, NULL, __WALL) < 0 && errno == EINTR)
			;
	}
	if (proxy->pidfd >= 0)
		close(proxy->pidfd);
	munmap(proxy->stack, STACK_BYTES);
	free(proxy);
}

static bool has_died(const struct proxy *proxy)
{
	struct pollfd poll_for = { .fd = proxy->pidfd, .events = POLLIN };

	return poll(&poll_for, 1, 0) == 1;
}

static uint32_t state_of(const struct proxy *proxy)
{
	return atomic_load_explicit(&proxy->cell.state, memory_order_acquire);
}

static bool is_done(const struct proxy *proxy)
{
	return state_of(proxy) == PROXY_DONE;
}

/* The change from ASKED to BUSY wakes no one: the caller sleeps on, which is correct. */
static void wait_a_while(struct proxy *proxy, uint64_t ns)
{
	struct timespec limit = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	uint32_t state;

	atomic_store(&proxy->cell.caller_sleeps, 1);
	state = atomic_load(&proxy->cell.state);
	if (state != PROXY_DONE)
		syscall(SYS_futex, &proxy->cell.state, FUTEX_WAIT, state, &limit, NULL, 0);
	atomic_store_explicit(&proxy->cell.caller_sleeps, 0, memory_order_relaxed);
}

/* The proxy is dead, so its state no longer changes. */
static long result_of_dead(const struct proxy *proxy)
{
	if (is_done(proxy))
		return proxy->cell.result;
	return state_of(proxy) == PROXY_ASKED ? -ECANCELED : -EOWNERDEAD;
}

long proxy_call(struct proxy *proxy, unsigned limit_ms, long nr, const uint64_t args[6])
{
	struct cell *cell = &proxy->cell;
	uint64_t until_ns = bf_now_ns() + limit_ms * 1000000ull, now_ns;

	cell->nr = nr;
	memcpy(cell->args, args, sizeof(cell->args));
	atomic_store(&cell->state, PROXY_ASKED);
	if (atomic_load(&cell->proxy_sleeps))
		syscall(SYS_futex, &cell->state, FUTEX_WAKE, 1, NULL, NULL, 0);
	for (unsigned i = 0; i < SPINS && !is_done(proxy); i++)
		__builtin_ia32_pause();
	while (!is_done(proxy)) {
		uint64_t look_ns = ALIVE_LOOK_MS * 1000000ull;

		if (has_died(proxy))
			return result_of_dead(proxy);
		now_ns = bf_now_ns();
		if (now_ns >= until_ns) {
			proxy_stop(proxy);
			return -ETIMEDOUT;
		}
		wait_a_while(proxy, until_ns - now_ns < look_ns ? until_ns - now_ns : look_ns);
	}
	atomic_store_explicit(&cell->state, PROXY_IDLE, memory_order_relaxed);
	return cell->result;
}

bool proxy_forbid_ioctls(struct proxy *proxy)
{
	struct bf_landlock_ruleset attr = { .handled_access_fs = BF_LANDLOCK_ACCESS_FS_IOCTL_DEV };
	uint64_t make[6] = { (uintptr_t)&attr, sizeof(attr.handled_access_fs) };
	uint64_t version[6] = { 0, 0, BF_LANDLOCK_CREATE_RULESET_VERSION };
	uint64_t privs[6] = { PR_SET_NO_NEW_PRIVS, 1 };
	long ruleset;
	bool is_restricted;

	if (proxy_call(proxy, LANDLOCK_LIMIT_MS, BF_LANDLOCK_SYS_CREATE_RULESET, version) <
	    BF_LANDLOCK_ABI_IOCTL_DEV)
		return false;
	ruleset = proxy_call(proxy, LANDLOCK_LIMIT_MS, BF_LANDLOCK_SYS_CREATE_RULESET, make);
	if (ruleset < 0)
		return false;
	uint64_t restrict_self[6] = { (uint64_t)ruleset, 0 };
	is_restricted = !proxy_call(proxy, LANDLOCK_LIMIT_MS, SYS_prctl, privs) &&
			!proxy_call(proxy, LANDLOCK_LIMIT_MS, BF_LANDLOCK_SYS_RESTRICT_SELF, restrict_self);
	close((int)ruleset);
	return is_restricted;
}
