#include "warden/hand.h"

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
#include "base/process.h"

enum {
	STACK_BYTES = 32 << 10,
	SPINS = 400, /* some 20 us: most calls return sooner than a sleeper wakes */
	READY_SPINS =
		1500, /* how long the hand stays awake for the next call: a program that starts makes many */
	FEW_CPUS = 2, /* where there is none to spare it does not */
	ALIVE_LOOK_MS = 100, /* how often to look whether it was killed */
};

/* linux/landlock.h, which older systems do not have. */
enum {
	LANDLOCK_CREATE_RULESET = 444,
	LANDLOCK_RESTRICT_SELF = 446,
	LANDLOCK_ASK_VERSION = 1,
	LANDLOCK_KNOWS_IOCTL = 5,
	LANDLOCK_IOCTL_DEV = 1 << 15,
	LANDLOCK_LIMIT_MS = 1000,
};

enum { HAND_IDLE, HAND_ASKED, HAND_BUSY, HAND_DONE };

/* What the two sides share. `state` hands the rest over: we store ASKED after the call (release) and the hand loads it
 * before it reads the call (acquire); the hand stores DONE after the result, and we load it before we read that. BUSY
 * orders nothing: it is read when the hand is dead, and says that the call was begun.
 *
 * The side that is about to sleep sets its `sleeps` word first and then compares `state` once more (FUTEX_WAIT does that).
 * The side that changes `state` reads the other's `sleeps` word afterwards. The two stores and the two loads are sequentially
 * consistent, so at least one side sees the other's store: no wake-up is lost. */
struct cell {
	_Atomic uint32_t state; /* a futex */
	_Atomic uint32_t hand_sleeps, caller_sleeps;
	uint32_t ready_spins;
	char name[16];
	pid_t parent;
	long nr;
	uint64_t args[6];
	long result;
};

struct hand {
	pid_t pid;
	int pidfd;
	void *stack;
	struct cell cell;
};

/* The hand has no thread-local storage of its own: it runs on ours, so errno is not to be touched, and no function of
 * any library is to be called. */
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
hand_main(struct cell *cell)
{
	raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
	raw(SYS_prctl, PR_SET_NAME, (uintptr_t)cell->name, 0, 0, 0, 0);
	if (raw(SYS_getppid, 0, 0, 0, 0, 0, 0) != cell->parent)
		raw(SYS_exit_group, 1, 0, 0, 0, 0, 0);
	for (uint32_t spins = 0;;) {
		uint32_t state = __atomic_load_n((uint32_t *)&cell->state, __ATOMIC_ACQUIRE);

		if (state != HAND_ASKED && spins++ < cell->ready_spins) {
			__builtin_ia32_pause();
			continue;
		}
		if (state != HAND_ASKED) {
			__atomic_store_n((uint32_t *)&cell->hand_sleeps, 1, __ATOMIC_SEQ_CST);
			raw(SYS_futex, (uintptr_t)&cell->state, FUTEX_WAIT, state, 0, 0, 0);
			__atomic_store_n((uint32_t *)&cell->hand_sleeps, 0, __ATOMIC_RELAXED);
			continue;
		}
		__atomic_store_n((uint32_t *)&cell->state, HAND_BUSY, __ATOMIC_RELAXED);
		cell->result = raw(cell->nr, cell->args[0], cell->args[1], cell->args[2], cell->args[3],
				   cell->args[4], cell->args[5]);
		__atomic_store_n((uint32_t *)&cell->state, HAND_DONE, __ATOMIC_SEQ_CST);
		if (__atomic_load_n((uint32_t *)&cell->caller_sleeps, __ATOMIC_SEQ_CST))
			raw(SYS_futex, (uintptr_t)&cell->state, FUTEX_WAKE, 1, 0, 0, 0);
		spins = 0;
	}
}

/* clone without a library's help: glibc's wrapper is known to sanitizers, and they would take the hand for a thread. */
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
			   [main] "r"(hand_main)
			 : "rdi", "rsi", "rdx", "r8", "r9", "r10", "r11", "rcx", "memory", "cc");
	return rc;
}

struct hand *hand_new(const char *name, struct bf_error *err)
{
	struct hand *hand = calloc(1, sizeof(*hand));
	sigset_t all, before;
	long rc;

	if (!hand) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	hand->pidfd = -1;
	hand->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK,
			   -1, 0);
	if (hand->stack == MAP_FAILED) {
		free(hand);
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	hand->cell.parent = getpid();
	snprintf(hand->cell.name, sizeof(hand->cell.name), "%s", name);
	hand->cell.ready_spins = sysconf(_SC_NPROCESSORS_ONLN) > FEW_CPUS ? READY_SPINS : 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* it inherits this: no handler of ours runs in it */
	rc = start(CLONE_VM | CLONE_FILES | CLONE_FS, (char *)hand->stack + STACK_BYTES, &hand->cell);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc > 0) {
		hand->pid = (pid_t)rc;
		hand->pidfd = bf_pidfd_open(hand->pid);
	}
	if (rc <= 0 || hand->pidfd < 0) {
		bf_fail(err, rc < 0 ? (int)-rc : EMFILE, "no process for a vGPU: %s",
			strerror(rc < 0 ? (int)-rc : EMFILE));
		hand_free(hand);
		return NULL;
	}
	return hand;
}

pid_t hand_pid(const struct hand *hand)
{
	return hand->pid;
}

void hand_stop(struct hand *hand)
{
	bf_pidfd_kill(hand->pidfd, SIGKILL);
}

void hand_free(struct hand *hand)
{
	if (!hand)
		return;
	if (hand->pid > 0) {
		if (hand->pidfd >= 0)
			hand_stop(hand);
		else
			kill(hand->pid, SIGKILL);
		/* It may be deep in a call that only its death ends; its stack is ours to free only then. */
		while (waitpid(hand->pid, NULL, __WALL) < 0 && errno == EINTR)
			;
	}
	if (hand->pidfd >= 0)
		close(hand->pidfd);
	munmap(hand->stack, STACK_BYTES);
	free(hand);
}

static bool has_died(const struct hand *hand)
{
	struct pollfd poll_for = { .fd = hand->pidfd, .events = POLLIN };

	return poll(&poll_for, 1, 0) == 1;
}

static uint32_t state_of(const struct hand *hand)
{
	return atomic_load_explicit(&hand->cell.state, memory_order_acquire);
}

static bool is_done(const struct hand *hand)
{
	return state_of(hand) == HAND_DONE;
}

/* ASKED becomes BUSY without a wake-up, which only means that we sleep on. */
static void wait_a_while(struct hand *hand, uint64_t ns)
{
	struct timespec limit = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	uint32_t state;

	atomic_store(&hand->cell.caller_sleeps, 1);
	state = atomic_load(&hand->cell.state);
	if (state != HAND_DONE)
		syscall(SYS_futex, &hand->cell.state, FUTEX_WAIT, state, &limit, NULL, 0);
	atomic_store_explicit(&hand->cell.caller_sleeps, 0, memory_order_relaxed);
}

/* It is dead, so that the state does not change any more. */
static long result_of_dead(const struct hand *hand)
{
	if (is_done(hand))
		return hand->cell.result;
	return state_of(hand) == HAND_ASKED ? -ECANCELED : -EOWNERDEAD;
}

long hand_call(struct hand *hand, unsigned limit_ms, long nr, const uint64_t args[6])
{
	struct cell *cell = &hand->cell;
	uint64_t until_ns = bf_now_ns() + limit_ms * 1000000ull, now_ns;

	cell->nr = nr;
	memcpy(cell->args, args, sizeof(cell->args));
	atomic_store(&cell->state, HAND_ASKED);
	if (atomic_load(&cell->hand_sleeps))
		syscall(SYS_futex, &cell->state, FUTEX_WAKE, 1, NULL, NULL, 0);
	for (unsigned i = 0; i < SPINS && !is_done(hand); i++)
		__builtin_ia32_pause();
	while (!is_done(hand)) {
		uint64_t look_ns = ALIVE_LOOK_MS * 1000000ull;

		if (has_died(hand))
			return result_of_dead(hand);
		now_ns = bf_now_ns();
		if (now_ns >= until_ns) {
			hand_stop(hand);
			return -ETIMEDOUT;
		}
		wait_a_while(hand, until_ns - now_ns < look_ns ? until_ns - now_ns : look_ns);
	}
	atomic_store_explicit(&cell->state, HAND_IDLE, memory_order_relaxed);
	return cell->result;
}

bool hand_forbid_ioctls(struct hand *hand)
{
	struct { /* landlock_ruleset_attr, its first member */
		uint64_t handled_access_fs;
	} attr = { LANDLOCK_IOCTL_DEV };
	uint64_t make[6] = { (uintptr_t)&attr, sizeof(attr) }, version[6] = { 0, 0, LANDLOCK_ASK_VERSION };
	uint64_t privs[6] = { PR_SET_NO_NEW_PRIVS, 1 };
	long ruleset;
	bool is_done_so;

	if (hand_call(hand, LANDLOCK_LIMIT_MS, LANDLOCK_CREATE_RULESET, version) < LANDLOCK_KNOWS_IOCTL)
		return false;
	ruleset = hand_call(hand, LANDLOCK_LIMIT_MS, LANDLOCK_CREATE_RULESET, make);
	if (ruleset < 0)
		return false;
	uint64_t restrict_self[6] = { (uint64_t)ruleset, 0 };
	is_done_so = !hand_call(hand, LANDLOCK_LIMIT_MS, SYS_prctl, privs) &&
		     !hand_call(hand, LANDLOCK_LIMIT_MS, LANDLOCK_RESTRICT_SELF, restrict_self);
	close((int)ruleset);
	return is_done_so;
}
