/* SPDX-License-Identifier: MIT */
/* memory_is_never_over_and_never_refused_with_room: many processes allocate and free at random over every
 * API, and share memory with each other. Run it under `belfry run --name X --mem SIZE`, with $BELFRY and
 * BELFRY_VGPU=X, or natively, where only the program's own view is checked. Options: --procs 8 --ops 10000
 * (over all processes) --limit BYTES --seed N */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "json.h"
#include "memory.h"
#include "util.h"

struct run {
	struct memory_shared *shared;
	pid_t pids[MEMORY_PROCS_MAX];
	const char *vgpu;
	uint64_t limit, max_used;
	unsigned samples, over, mismatches, mismatches_shared, told_wrong, counted_twice;
};

static char ls_text[1 << 18];

static _Noreturn void give_up(struct run *r, int status)
{
	for (uint32_t i = 0; i < r->shared->procs; i++)
		if (r->pids[i])
			kill(r->pids[i], SIGKILL);
	exit(status);
}

/* A child that ends before its time ends the test. */
static void watch_children(struct run *r)
{
	int status;
	pid_t pid = waitpid(-1, &status, WNOHANG);

	if (pid <= 0)
		return;
	for (uint32_t i = 0; i < r->shared->procs; i++)
		if (r->pids[i] == pid)
			r->pids[i] = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		give_up(r, 77);
	printf("FAILED: process %d ended early, status %#x\n", (int)pid, (unsigned)status);
	give_up(r, 1);
}

/* This vGPU as `belfry ls --json` shows it now; NULL outside a vGPU. */
static const char *list_vgpu(struct run *r)
{
	const char *args[] = { "ls", "--json", NULL };

	if (!r->vgpu)
		return NULL;
	if (belfry(ls_text, sizeof(ls_text), args)) {
		printf("FAILED: belfry ls --json failed\n");
		give_up(r, 1);
	}
	for (const char *v = json_first(json_member(ls_text, "vgpus")); v; v = json_next(v))
		if (json_is_text(json_member(v, "name"), r->vgpu))
			return v;
	printf("FAILED: belfry ls does not show %s\n", r->vgpu);
	give_up(r, 1);
}

static uint64_t check_used(struct run *r, const char *vgpu)
{
	const char *mem = json_member(vgpu, "mem");
	uint64_t used = json_u64(json_member(mem, "used"), UINT64_MAX);
	uint64_t limit = json_u64(json_member(mem, "limit"), 0);

	r->samples++;
	if (used > r->max_used)
		r->max_used = used;
	r->over += used > limit || limit != r->limit;
	return used;
}

/* The ledger's figure against the driver's own, each name of a block counted once. All stand still meanwhile. */
static unsigned count_mismatches(struct run *r, const char *vgpu)
{
	const char *mem = json_member(vgpu, "mem");
	uint64_t named = json_u64(json_member(mem, "named"), 0);
	uint64_t driver = json_u64(json_member(mem, "driver"), UINT64_MAX);
	unsigned wrong = 0, processes = 0;

	for (const char *p = json_first(json_member(vgpu, "processes")); p; p = json_next(p))
		processes += json_u64(json_member(p, "used"), 0) !=
			     0; /* the parent is there too, and uses nothing */
	if (named != driver && r->mismatches + wrong++ < 5)
		printf("  ledger %llu, driver %llu\n", (unsigned long long)named, (unsigned long long)driver);
	if (processes != r->shared->procs) {
		printf("  %u processes are shown with memory, %u have some\n", processes, r->shared->procs);
		wrong++;
	}
	return wrong;
}

static void check_told(struct run *r, uint64_t used)
{
	uint64_t left = atomic_load(&r->shared->told_free), total = atomic_load(&r->shared->told_total);
	/* the driver tells in KiB */
	bool is_right = total == r->limit && left >> 10 == (r->limit - used) >> 10;

	if (!is_right && r->told_wrong++ < 5)
		printf("  told %llu free of %llu, with %llu used of %llu\n", (unsigned long long)left,
		       (unsigned long long)total, (unsigned long long)used, (unsigned long long)r->limit);
}

/* Wait until all children stand still; meanwhile look in on them now and then. */
static void gather(struct run *r)
{
	uint64_t next = now_ns() + 100000000;

	while (atomic_load(&r->shared->arrived) < r->shared->procs) {
		watch_children(r);
		if (r->vgpu && now_ns() > next) {
			check_used(r, list_vgpu(r));
			next = now_ns() + 100000000;
		}
		sleep_us(500);
	}
	atomic_store(&r->shared->asked, 1);
	while (atomic_load(&r->shared->asked)) {
		watch_children(r);
		sleep_us(100);
	}
}

static void let_go(struct run *r)
{
	atomic_store(&r->shared->arrived, 0);
	atomic_fetch_add(&r->shared->point, 1);
}

static void quiet_point(struct run *r, bool is_shared)
{
	const char *vgpu;

	gather(r);
	vgpu = list_vgpu(r);
	if (vgpu) {
		check_told(r, check_used(r, vgpu));
		*(is_shared ? &r->mismatches_shared : &r->mismatches) += count_mismatches(r, vgpu);
	}
	let_go(r);
}

/* Imports must not be charged again. Mapping them may cost a little of its own, so: less than half as
 * much. */
static void exchange(struct run *r)
{
	uint64_t exported = 0, before, after;

	quiet_point(r, false);
	quiet_point(r, false);
	before = atomic_load(&r->shared->told_free);
	for (uint32_t i = 0; i < r->shared->procs / 2; i++)
		exported += r->shared->offers[i].ipc_bytes + r->shared->offers[i].vmm_bytes;
	quiet_point(r, true);
	after = atomic_load(&r->shared->told_free);
	if (r->vgpu && exported && before > after && before - after > exported / 2)
		r->counted_twice++;
	quiet_point(r, false);
}

static void start(struct run *r)
{
	for (uint32_t i = 0; i < r->shared->procs / 2; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, r->shared->sockets[i]))
			fail("socketpair: %s", strerror(errno));
	for (uint32_t i = 0; i < r->shared->procs; i++) {
		r->pids[i] = fork();
		if (r->pids[i] < 0)
			fail("fork: %s", strerror(errno));
		if (r->pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memory_child(r->shared, i);
	}
}

static void finish(struct run *r)
{
	for (uint32_t i = 0; i < r->shared->procs; i++) {
		int status = wait_for(r->pids[i], 20000);

		r->pids[i] = 0;
		if (status) {
			printf("FAILED: process %u ended with %d\n", i, status);
			give_up(r, 1);
		}
	}
}

static int report(struct run *r)
{
	struct memory_shared *s = r->shared;
	uint64_t given = 0, refused = 0, with_room = atomic_load(&s->refused_with_room);
	uint64_t damaged = atomic_load(&s->damaged), imported = atomic_load(&s->imported);
	bool bad = r->over || r->mismatches || r->told_wrong || r->counted_twice || with_room || damaged ||
		   (s->procs > 1 && !imported);

	printf("%-24s %10s %10s\n", "api", "given", "refused");
	for (int i = 0; i < MEMORY_KINDS; i++) {
		printf("%-24s %10llu %10llu\n", memory_kind_names[i], (unsigned long long)s->given[i],
		       (unsigned long long)s->refused[i]);
		given += s->given[i];
		refused += s->refused[i];
	}
	printf("%-24s %10llu %10llu\n", "all", (unsigned long long)given, (unsigned long long)refused);
	printf("processes %u, operations %llu, imports %llu, looks %u\n", s->procs,
	       (unsigned long long)s->ops, (unsigned long long)imported, r->samples);
	printf("limit, MiB               %10llu\n", (unsigned long long)(r->limit / MIB));
	printf("most used, MiB           %10llu\n", (unsigned long long)(r->max_used / MIB));
	printf("over the limit           %10u\n", r->over);
	printf("refused with room left   %10llu\n", (unsigned long long)with_room);
	printf("ledger differs           %10u\n", r->mismatches);
	printf("  while sharing (shown)  %10u\n", r->mismatches_shared);
	printf("told wrongly             %10u\n", r->told_wrong);
	printf("imports counted twice    %10u\n", r->counted_twice);
	printf("damaged contents         %10llu\n", (unsigned long long)damaged);
	printf("%s%s\n", bad ? "FAILED" : "ok", r->vgpu ? "" : " (native: the ledger was not looked at)");
	return bad;
}

static struct memory_shared *share(void)
{
	struct memory_shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_rwlockattr_t attr;

	if (shared == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	/* a refused child waits for the rest to pause, so it must not wait behind every new reader */
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&shared->lock, &attr);
	return shared;
}

int main(int argc, char **argv)
{
	struct run r = { .shared = share(), .vgpu = getenv("BELFRY_VGPU") };
	uint64_t ops = option_number(argc, argv, "ops", 10000), procs = option_number(argc, argv, "procs", 8);

	if (!procs || procs > MEMORY_PROCS_MAX)
		fail("--procs must be between 1 and %d", MEMORY_PROCS_MAX);
	r.limit = option_number(argc, argv, "limit", 0);
	if (r.vgpu && !r.limit)
		fail("--limit BYTES is missing");
	r.shared->procs = (uint32_t)procs;
	r.shared->seed = option_number(argc, argv, "seed", 1);
	r.shared->ops_per_round = (ops + procs * MEMORY_ROUNDS - 1) / (procs * MEMORY_ROUNDS);
	start(&r);
	quiet_point(&r, false);
	for (int round = 0; round < MEMORY_ROUNDS; round++) {
		if (round < MEMORY_EXCHANGES)
			exchange(&r);
		quiet_point(&r, false);
	}
	quiet_point(&r, false);
	finish(&r);
	return report(&r);
}
