/* Random calls against the whole warden, by a program (scribble.h) that changes arguments and descriptors under it; what
 * must hold is looked at from outside all the time, on the device itself. BELFRY_SEED repeats a run, as far as the order of
 * threads allows; BELFRY_FUZZ_SECONDS makes it longer. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>

#include "base/clock.h"
#include "managed_file.h"
#include "scribble.h"

enum { LIMIT_MIB = 8, SECONDS = 4, ROUND_MS = 2000, PAUSES = 4, CHANNELS_MOST = 64, HOLD_MS = 2 };
#define LIMIT (LIMIT_MIB * CARD_MIB)
/* By when every call must be answered, on a slow machine and under a sanitizer. */
#define ANSWER_NS 20000000000ull

/* A program on a vGPU of its own, which fills it but for one piece, and takes that piece and gives it back. It works only
 * if all of its calls are answered and all of its rings are passed on. */
static void neighbour_lap(struct actor *a)
{
	volatile uint32_t *done = (volatile uint32_t *)(void *)(a->block + STAGE_DONE_AT(0));

	actor_ring(a);
	while (*done != a->rings)
		usleep(20);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, CARD_ROUND), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 2, CARD_ROUND), RM_ERR_NO_MEMORY);
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY + 1), 0);
}

static void program_neighbour(struct actor *a)
{
	struct scribble_board *board = (struct scribble_board *)a->arg;

	actor_context(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, LIMIT - STAGE_BLOCK_BYTES - CARD_ROUND), 0);
	while (!atomic_load(&board->is_over)) {
		uint64_t start_ns, lap_ns;

		while (atomic_load(&board->wants_pause) && !atomic_load(&board->is_over)) {
			atomic_store(&board->is_neighbour_paused, true);
			usleep(500);
		}
		atomic_store(&board->is_neighbour_paused, false);
		start_ns = bf_now_ns();
		neighbour_lap(a);
		lap_ns = bf_now_ns() - start_ns;
		if (lap_ns > atomic_load(&board->longest_lap_ns))
			atomic_store(&board->longest_lap_ns, lap_ns);
		atomic_fetch_add(&board->laps, 1);
	}
}

/* Looks in from outside, and closes and opens the gate meanwhile, as the server's other threads do. */
struct watcher {
	struct stage *stage;
	struct scribble_board *board;
	uint64_t looks, forwards; /* looks at a closed gate; what was passed on while it was open */
	uint64_t laps, laps_ns;
	struct card_progress before[CHANNELS_MOST], after[CHANNELS_MOST];
};

static void check_memory(struct watcher *w)
{
	static struct warden_report report;

	CHECK(card_used_bytes(&w->stage->card) <= 2 * LIMIT);
	warden_report(w->stage->warden, &report);
	CHECK(report.mem_used_bytes - report.mem_managed_bytes <= LIMIT);
	CHECK(report.mem_driver_bytes <= report.mem_named_bytes);
	w->forwards = report.forwards;
}

static void check_neighbour(struct watcher *w)
{
	uint64_t laps = atomic_load(&w->board->laps), now_ns = bf_now_ns();

	if (laps != w->laps || !w->laps_ns) {
		w->laps = laps;
		w->laps_ns = now_ns;
	}
	CHECK(now_ns - w->laps_ns < ANSWER_NS || atomic_load(&w->board->wants_pause));
}

static unsigned progress(const struct watcher *w, struct card_progress *to)
{
	unsigned count = card_progress(&w->stage->card, warden_owner(w->stage->warden), to, CHANNELS_MOST);

	return count < CHANNELS_MOST ? count : CHANNELS_MOST;
}

static const struct card_progress *find(const struct card_progress *in, unsigned count,
					const struct card_progress *same)
{
	for (unsigned i = 0; i < count; i++)
		if (in[i].client == same->client && in[i].handle == same->handle &&
		    in[i].token == same->token)
			return &in[i];
	return NULL;
}

/* The GPU was told of nothing: a channel that was there has what it had, and a new one has nothing. Its name may be that of
 * one that has gone. */
static void check_still(struct watcher *w, unsigned before, bool is_stopped)
{
	unsigned after = progress(w, w->after);

	for (unsigned i = 0; i < after; i++) {
		const struct card_progress *now = &w->after[i], *was = find(w->before, before, now);

		if (now->put && (!was || was->put != now->put))
			fprintf(stderr, "channel %x of %x: put %u, was %u\n", now->handle, now->client,
				now->put, was ? was->put : 0);
		CHECK(!now->put || (was && was->put == now->put));
		if (is_stopped && was && now->put)
			CHECK_EQUAL(now->get, was->get);
	}
	w->looks++;
}

/* Every channel that ever had work is off the GPU, but for those of a client that is just being closed. */
static void until_disabled(struct watcher *w)
{
	uint64_t give_up_ns = bf_now_ns() + ANSWER_NS;
	unsigned running, count;

	do {
		running = 0;
		count = progress(w, w->after);
		for (unsigned i = 0; i < count; i++)
			running += w->after[i].put && !w->after[i].is_disabled;
		CHECK(bf_now_ns() < give_up_ns);
	} while (running);
}

static void *watch(void *arg)
{
	struct watcher *w = arg;
	struct warden *warden = w->stage->warden;
	struct bf_error err = { 0 };
	uint64_t gpu_ns;

	for (unsigned turn = 0; !atomic_load(&w->board->is_over); turn++) {
		unsigned before;

		check_memory(w);
		check_neighbour(w);
		warden_close(warden);
		before = progress(w, w->before);
		usleep(HOLD_MS * 1000);
		check_still(w, before, false);
		warden_open(warden);
		usleep(HOLD_MS * 1000);
		if (turn % 4)
			continue;
		CHECK_EQUAL(warden_stop(warden, &err), 0);
		until_disabled(w);
		before = progress(w, w->before);
		usleep(HOLD_MS * 1000);
		warden_open(warden); /* while it is stopped this opens nothing */
		check_still(w, before, true);
		CHECK_EQUAL(warden_resume(warden, &err), 0);
		warden_progress(warden);
		warden_gpu_time(warden, &gpu_ns);
	}
	return NULL;
}

static void serve_until(struct stage *s, _Atomic bool *flag, bool value)
{
	uint64_t give_up_ns = bf_now_ns() + ANSWER_NS;

	while (atomic_load(flag) != value) {
		stage_serve(s, 1);
		CHECK(!s->has_ended);		 /* the warden has no reason to end it */
		CHECK(bf_now_ns() < give_up_ns); /* a call was not answered */
	}
}

/* Its children have died, and their files are closed: the warden sees that a little later. */
static void until_settled(struct stage *s, struct warden_report *report)
{
	uint64_t give_up_ns = bf_now_ns() + ANSWER_NS;

	do {
		stage_serve(s, 2);
		warden_report(s->warden, report);
		if (bf_now_ns() > give_up_ns)
			fprintf(stderr,
				"%u processes, %" PRIu64 " bytes are named, %" PRIu64 " by the driver\n",
				report->processes, report->mem_named_bytes, report->mem_driver_bytes);
		CHECK(bf_now_ns() < give_up_ns);
	} while (report->processes > 1 || report->mem_named_bytes != report->mem_driver_bytes);
}

static void check_card(struct stage *s, const struct warden_report *report, bool is_exact)
{
	static struct warden_report neighbours;
	uint64_t known_bytes = report->mem_used_bytes - report->mem_managed_bytes, card_bytes;

	warden_report(s->second.warden, &neighbours);
	known_bytes += neighbours.mem_used_bytes;
	card_bytes = card_used_bytes(&s->card);
	if (is_exact || card_bytes > known_bytes)
		CHECK_EQUAL(card_bytes, known_bytes);
}

/* Nothing is called: the ledger, the driver and the card say the same. False: the program was ended, for the one reason that
 * there can be. An mmap of an ordinary file goes on, and by then another thread can have put the managed-memory file there;
 * the audit finds what was mapped, and acts if it is too much (docs/security.md). */
static bool check_standing_still(struct stage *s, struct scribble_board *board)
{
	static struct warden_report report;

	atomic_store(&board->wants_pause, true);
	serve_until(s, &board->is_paused, true);
	serve_until(s, &board->is_neighbour_paused, true);
	until_settled(s, &report);
	check_card(s, &report, board->is_exact);
	/* Twice: a surplus is acted upon when it is found for the second time. */
	warden_audit(s->warden);
	warden_audit(s->warden);
	warden_report(s->warden, &report);
	if (report.mem_used_bytes > LIMIT) {
		CHECK(report.mem_managed_bytes);
		return false;
	}
	stage_serve(s, 2);
	CHECK(!s->has_ended);
	atomic_store(&board->wants_pause, false);
	serve_until(s, &board->is_paused, false);
	serve_until(s, &board->is_neighbour_paused, false);
	return true;
}

static void play_round(uint64_t seed, bool is_exact, unsigned ms)
{
	struct scribble_board *board = scribble_board_new(seed);
	struct stage_setup setup = { .options = { .mem_bytes = LIMIT, .interleave = -1 },
				     .change = managed_file_add,
				     .second = program_neighbour,
				     .second_arg = (long)board,
				     .has_two_wardens = true };
	struct watcher watcher = { .board = board };
	bool is_alive = true;
	pthread_t thread;
	struct stage s;

	board->is_exact = is_exact;
	watcher.stage = &s;
	stage_start_as(&s, &setup, scribble_program, (long)board);
	CHECK(!pthread_create(&thread, NULL, watch, &watcher));
	for (unsigned i = 0; is_alive && i < PAUSES; i++) {
		stage_serve(&s, ms / PAUSES);
		is_alive = check_standing_still(&s, board);
	}
	atomic_store(&board->is_over, true);
	CHECK(!pthread_join(thread, NULL));
	CHECK_EQUAL(stage_end(&s), is_alive ? 0 : SIGKILL);
	CHECK_EQUAL(s.second.status, 0);
	printf("\t%" PRIu64 " calls, %" PRIu64 " done, %" PRIu64 " maps, %" PRIu64 " rings; %" PRIu64
	       " swaps, %" PRIu64 " writes, %" PRIu64 " children; %" PRIu64
	       " looks at a closed gate, %" PRIu64 " forwards; neighbour: %" PRIu64
	       " laps, the longest %" PRIu64 " ms\n",
	       board->calls, board->done, board->maps, board->rings, board->swaps, board->writes, board->kids,
	       watcher.looks, watcher.forwards, board->laps, board->longest_lap_ns / 1000000);
	CHECK(board->done && board->maps && board->swaps && board->laps && watcher.looks);
	scribble_board_free(board);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void random_calls_break_nothing(void)
{
	uint64_t seed = from_environment("BELFRY_SEED", bf_now_ns() ^ (uint64_t)getpid() << 32);
	uint64_t rounds = from_environment("BELFRY_FUZZ_SECONDS", SECONDS) * 1000 / ROUND_MS;

	for (uint64_t i = 0; i < rounds; i++) {
		printf("\tBELFRY_SEED=%" PRIu64 "%s\n", seed + i, (seed + i) % 2 ? ", exact" : "");
		fflush(stdout);
		play_round(seed + i, (seed + i) % 2, ROUND_MS);
	}
}

int main(void)
{
	STAGE_TEST(random_calls_break_nothing);
	return check_status();
}
