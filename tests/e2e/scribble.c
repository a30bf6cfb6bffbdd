#include "scribble.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "scribble_maps.h"
#include "scribble_objects.h"

enum { KID_CALLS = 200 };

static struct scribble_board *the_board; /* of this process */
static const char *the_folder;

struct scribble_board *scribble_board_new(uint64_t seed)
{
	size_t bytes = (sizeof(struct scribble_board) + PAGE - 1) & ~(size_t)(PAGE - 1);
	struct scribble_board *board =
		mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(board != MAP_FAILED);
	CHECK(!mprotect((uint8_t *)board + bytes, PAGE, PROT_NONE));
	board->seed = seed;
	return board;
}

void scribble_board_free(struct scribble_board *board)
{
	size_t bytes = (sizeof(struct scribble_board) + PAGE - 1) & ~(size_t)(PAGE - 1);

	munmap(board, bytes + PAGE);
}

/* What a library does first: a client with a working channel. It may fail anywhere. */
static void settle(struct worker *w)
{
	unsigned own = w->number % SCRIBBLE_CALLERS;
	uint64_t client = atomic_load_explicit(&w->board->clients[own], memory_order_relaxed);
	struct rm_arg_free old = { .client = (uint32_t)client, .object = (uint32_t)client };

	if (w->is_lost)
		slot_open(w->folder, own, own);
	w->is_lost = false;
	w->is_plain = !random_one_in(&w->random, 4);
	if (w->is_plain)
		w->buffers = &w->board->calm[w->number];
	if (!random_one_in(&w->random, 4))
		worker_rm_call(w, SLOT_FIRST + (int)own, RM_ESC_FREE, &old, sizeof(old), &old.status);
	objects_alloc(w, &objects_kinds[KIND_ROOT], client, 0, 0);
	client = atomic_load_explicit(&w->board->clients[own], memory_order_relaxed);
	for (unsigned i = 1; i < KIND_NEEDED; i++) {
		objects_alloc(w, &objects_kinds[i], client, FIRST_OF(objects_kinds[i].parent),
			      FIRST_OF(objects_kinds[i].role));
		if (objects_kinds[i].role == ROLE_MEMORY)
			maps_for_gpu(w, client);
	}
	maps_map(w, client, FIRST_OF(ROLE_BELL), true);
	maps_map(w, client, FIRST_OF(ROLE_MEMORY), false);
	objects_control(w, client, RM_CTRL_CHANNEL_GET_TOKEN, 4, FIRST_OF(ROLE_CHANNEL));
	words_put32(w->buffers->params, 0, 1);
	objects_control(w, client, RM_CTRL_GROUP_SCHEDULE, 3, FIRST_OF(ROLE_GROUP));
	w->is_plain = false;
}

/* One random thing. */
static void act(struct worker *w)
{
	static void (*const ways[])(struct worker *) = {
		objects_dup_any,  objects_export_any, objects_import_any, maps_register_any,
		maps_event_any,	  maps_escape_any,    maps_escape_any,	  maps_managed_any,
		maps_managed_any, maps_map_managed,   maps_pages_any
	};
	uint32_t what = random_below(&w->random, 100);

	w->buffers = random_one_in(&w->random, 2) ? &w->board->hot[w->number] : &w->board->calm[w->number];
	maps_ring_any(w);
	if (what < 30)
		objects_alloc_any(w);
	else if (what < 42)
		objects_free_any(w);
	else if (what < 54)
		objects_control_any(w);
	else if (what < 57)
		maps_map(w, worker_client(w), worker_handle(w, ROLE_BELL), true);
	else if (what < 60)
		maps_map(w, worker_client(w), worker_handle(w, ROLE_MEMORY), false);
	else if (what < 61 || w->is_lost)
		settle(w);
	else if (what < 64)
		maps_unmap(
			&w->maps[random_one_in(&w->random, 8) ? random_below(&w->random, MAPS) : MAPS - 1]);
	else
		ways[random_below(&w->random, sizeof(ways) / sizeof(ways[0]))](w);
}

/* Wait while the test looks at what there is. */
static void park(struct scribble_board *board)
{
	if (!atomic_load(&board->wants_pause))
		return;
	atomic_fetch_add(&board->parked, 1);
	while (atomic_load(&board->wants_pause))
		usleep(500);
	atomic_fetch_sub(&board->parked, 1);
}

static struct worker worker_of(unsigned number, uint64_t salt)
{
	return (struct worker){ .board = the_board,
				.folder = the_folder,
				.number = number,
				.random = the_board->seed * 1000003 + salt,
				.buffers = &the_board->calm[number] };
}

static void *caller_main(void *number)
{
	struct worker w = worker_of((unsigned)(uintptr_t)number, (uintptr_t)number);

	settle(&w);
	while (!atomic_load(&w.board->is_over)) {
		park(w.board);
		act(&w);
	}
	return NULL;
}

/* Overwrites the arguments of other threads that make calls, with values that are valid in one place or another. */
static void *writer_main(void *unused)
{
	enum { TIMES = 64 };
	struct scribble_board *board = the_board;
	uint64_t random = board->seed * 7919 + 3;

	(void)unused;
	while (!atomic_load(&board->is_over)) {
		struct scribble_buffers *at = &board->hot[random_below(&random, SCRIBBLE_WORKERS)];
		uint32_t *word = (uint32_t *)(void *)(random_one_in(&random, 2) ? at->arg : at->params) +
				 random_below(&random, 24);
		uint32_t was = __atomic_load_n(word, __ATOMIC_RELAXED);
		uint32_t value = random_one_in(&random, 2) ? random_handle(&random)
							   : random_below(&random, 512);

		park(board);
		if (random_one_in(&random, 4))
			value = objects_kinds[random_below(&random, KINDS)].class_id;
		if (random_one_in(&random, 8))
			value = (uint32_t)random_next(&random);
		for (unsigned i = 0; i < TIMES; i++)
			__atomic_store_n(word, i % 2 ? was : value, __ATOMIC_RELAXED);
		atomic_fetch_add_explicit(&board->writes, TIMES, memory_order_relaxed);
		if (random_one_in(&random, 4))
			usleep(20);
	}
	return NULL;
}

static void swap_files(uint64_t *random)
{
	unsigned slot = random_one_in(random, 300) ? random_below(random, SLOT_CALM)
						   : SLOT_CALM + random_below(random, SLOT_COUNT - SLOT_CALM);
	int at = SLOT_FIRST + (int)slot, other = random_slot(random), kept;

	switch (random_below(random, 8)) {
	case 0:
		slot_close(at);
		break;
	case 1:
		slot_dup(other, at);
		break;
	case 2:
		kept = (int)syscall(SYS_dup, at);
		slot_dup(other, at);
		if (other >= SLOT_FIRST + SLOT_CALM)
			slot_dup(kept, other);
		slot_close(kept);
		break;
	case 3:
		slot_open(the_folder, random_below(random, SLOT_COUNT), slot);
		break;
	default:
		slot_open(the_folder, slot, slot);
		break;
	}
}

/* A child has every file of the program's, and dies at any time. */
static void __attribute__((noreturn)) kid_main(unsigned number, uint64_t salt)
{
	struct worker w = worker_of(number, salt);
	uint32_t calls = random_below(&w.random, KID_CALLS);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (random_one_in(&w.random, 3))
		settle(&w);
	for (uint32_t i = 0; i < calls; i++)
		act(&w);
	_exit(0);
}

static void end_kid(pid_t *kid)
{
	if (*kid > 0) {
		kill(*kid, SIGKILL);
		waitpid(*kid, NULL, 0);
	}
	*kid = 0;
}

static void *swapper_main(void *unused)
{
	struct scribble_board *board = the_board;
	uint64_t random = board->seed * 104729 + 5;
	pid_t kids[SCRIBBLE_KIDS] = { 0 };

	(void)unused;
	while (!atomic_load(&board->is_over)) {
		unsigned kid = random_below(&random, SCRIBBLE_KIDS);

		if (atomic_load(&board->wants_pause)) {
			for (unsigned i = 0; i < SCRIBBLE_KIDS; i++)
				end_kid(&kids[i]);
			park(board);
		}
		swap_files(&random);
		if (random_one_in(&random, 40)) {
			end_kid(&kids[kid]);
			kids[kid] = fork();
			if (!kids[kid])
				kid_main(SCRIBBLE_CALLERS + kid, random_next(&random));
			atomic_fetch_add(&board->kids, 1);
		}
		atomic_fetch_add(&board->swaps, 1);
		usleep(random_below(&random, 1500));
	}
	for (unsigned i = 0; i < SCRIBBLE_KIDS; i++)
		end_kid(&kids[i]);
	return NULL;
}

void scribble_program(struct actor *actor)
{
	enum { THREADS = SCRIBBLE_CALLERS + 2 };
	struct scribble_board *board = (struct scribble_board *)actor->arg;
	pthread_t threads[THREADS];
	unsigned count = 0;

	the_board = board;
	the_folder = actor->folder;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		slot_open(the_folder, slot, slot);
	for (uintptr_t i = 0; i < SCRIBBLE_CALLERS; i++)
		CHECK(!pthread_create(&threads[count++], NULL, caller_main, (void *)i));
	CHECK(!pthread_create(&threads[count++], NULL, writer_main, NULL));
	CHECK(!pthread_create(&threads[count++], NULL, swapper_main, NULL));
	while (!atomic_load(&board->is_over)) {
		bool is_paused = atomic_load(&board->wants_pause) && atomic_load(&board->parked) == count;

		atomic_store(&board->is_paused, is_paused);
		usleep(500);
	}
	while (count)
		CHECK(!pthread_join(threads[--count], NULL));
}
