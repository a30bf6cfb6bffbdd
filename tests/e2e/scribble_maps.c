#include "scribble_maps.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

void maps_for_gpu(struct worker *w, uint64_t client)
{
	struct { /* NVOS46 */
		uint32_t client, device, space, memory;
		uint64_t offset, bytes;
		uint32_t flags, flags2, kind, pad;
		uint64_t address;
		uint32_t status, pad2;
	} arg = { .client = (uint32_t)client,
		  .device = FIRST_OF(ROLE_DEVICE),
		  .space = FIRST_OF(ROLE_SPACE),
		  .memory = FIRST_OF(ROLE_MEMORY),
		  .bytes = CARD_ROUND };

	if (worker_rm_call(w, SLOT_FIRST + (int)(client >> 32), RM_ESC_MAP_MEMORY_DMA, &arg, sizeof(arg),
			   &arg.status))
		w->address = arg.address;
}

void maps_unmap(struct map *map)
{
	if (map->at)
		munmap(map->at, map->bytes);
	map->at = NULL;
}

static void map_file(struct worker *w, int fd, size_t bytes, uint64_t offset, bool is_bell)
{
	/* The first two stay, unless there is another of the kind: a bell, and memory with rings. */
	unsigned first = random_one_in(&w->random, 4) ? is_bell ? 0 : 1
						      : 2 + random_below(&w->random, MAPS - 2);
	struct map *map = &w->maps[!w->maps[is_bell ? 0 : 1].at ? is_bell ? 0 : 1 : first];
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	if (at == MAP_FAILED)
		return;
	/* What a child inherits of managed memory is dead there, with the driver itself; but it is counted. */
	madvise(at, bytes, MADV_DONTFORK);
	maps_unmap(map);
	*map = (struct map){ at, bytes, is_bell };
	atomic_fetch_add_explicit(&w->board->maps, 1, memory_order_relaxed);
}

void maps_map(struct worker *w, uint64_t client, uint32_t memory, bool is_bell)
{
	struct rm_arg_map arg = { .client = (uint32_t)client,
				  .device = FIRST_OF(is_bell ? ROLE_SUBDEVICE : ROLE_DEVICE),
				  .memory = memory,
				  .length = 0x10000,
				  .flags = 0xc0000,
				  .fd = worker_slot(w, SLOT_CONTROLS, SLOT_GPUS) };
	bool is_done;

	if (worker_is_odd(w, 10))
		arg.length = random_next(&w->random) >> random_below(&w->random, 64);
	if (worker_is_odd(w, 10))
		arg.offset = (uint64_t)random_below(&w->random, 64) * PAGE;
	is_done = worker_rm_call(w, SLOT_FIRST + (int)(client >> 32), RM_ESC_MAP_MEMORY, &arg, sizeof(arg),
				 &arg.status);
	if (is_done || worker_is_odd(w, 8))
		map_file(w, arg.fd, worker_is_odd(w, 10) ? PAGE : 0x10000, 0, is_bell);
	if (worker_is_odd(w, 4)) {
		struct rm_arg_unmap back = { .client = arg.client,
					     .device = arg.device,
					     .memory = arg.memory,
					     .address = arg.address };
		worker_rm_call(w, SLOT_FIRST + (int)(client >> 32), RM_ESC_UNMAP_MEMORY, &back, sizeof(back),
			       &back.status);
	}
}

/* Submissions that mean something, but for some that do not, in every slot of the ring. */
static void fill_ring(struct worker *w, uint8_t *page)
{
	uint64_t semaphore = w->address + RELEASE_AT;
	const uint32_t words[] = { SOFT_COMMAND(SOFT_OP_INC, 0, SOFT_METHOD_SEM_ADDR_LO, 5),
				   (uint32_t)semaphore,
				   (uint32_t)(semaphore >> 32),
				   random_below(&w->random, 100),
				   0,
				   random_one_in(&w->random, 50) ? SOFT_SEM_ACQUIRE : SOFT_SEM_RELEASE };
	uint64_t entry = SOFT_ENTRY(w->address + COMMANDS_AT, sizeof(words) / sizeof(words[0]));

	words_put(page + COMMANDS_AT, words, sizeof(words));
	for (unsigned i = 0; i < RING_ENTRIES; i++)
		words_put64(page, RING_AT + 8 * i,
			    random_one_in(&w->random, 100 * RING_ENTRIES) ? random_next(&w->random) : entry);
}

/* In every page that was mapped; then the bell. */
void maps_ring_any(struct worker *w)
{
	uint32_t put = random_one_in(&w->random, 100) ? (uint32_t)random_next(&w->random)
						      : random_below(&w->random, RING_ENTRIES);

	for (unsigned i = 0; i < MAPS; i++) {
		uint8_t *page = w->maps[i].at;

		if (!page || w->maps[i].is_bell)
			continue;
		fill_ring(w, page);
		for (unsigned channel = 0; channel < 4; channel++)
			words_put32(page, channel * 512 + 4 * GATE_GP_PUT_WORD, put);
	}
	for (unsigned i = 0; i < MAPS; i++) {
		uint32_t token =
			random_one_in(&w->random, 2)
				? random_below(&w->random, 16)
				: atomic_load(&w->board->tokens[random_below(&w->random, SCRIBBLE_TOKENS)]);

		if (!w->maps[i].at || !w->maps[i].is_bell)
			continue;
		words_put32(w->maps[i].at, sizeof(uint32_t) * GATE_BELL_WORD,
			    random_one_in(&w->random, 8) ? (uint32_t)random_next(&w->random) : token);
		atomic_fetch_add_explicit(&w->board->rings, 1, memory_order_relaxed);
	}
}

/* Pages of the program's own, with a call that the kernel makes itself. */
void maps_pages_any(struct worker *w)
{
	struct rm_arg_alloc_memory arg = { .client = worker_client_handle(w),
					   .parent = worker_handle(w, ROLE_DEVICE),
					   .object = worker_handle(w, ROLE_SYSMEM),
					   .class_id = random_one_in(&w->random, 4) ? 0x40 : 0x71,
					   .address = (uintptr_t)w->buffers->list,
					   .limit = PAGE - 1,
					   .fd = random_slot(&w->random) };

	worker_rm_call(w, worker_slot(w, SLOT_CONTROLS, SLOT_GPUS), RM_ESC_ALLOC_MEMORY, &arg, sizeof(arg),
		       &arg.status);
}

/* Files and events. */

void maps_register_any(struct worker *w)
{
	int control_fd = worker_slot(w, 0, SLOT_CONTROLS);

	worker_rm_call(w, worker_slot(w, SLOT_CONTROLS, SLOT_GPUS), RM_ESC_REGISTER_FD, &control_fd,
		       sizeof(control_fd), NULL);
}

void maps_event_any(struct worker *w)
{
	static const uint32_t numbers[] = { RM_ESC_ALLOC_OS_EVENT, RM_ESC_FREE_OS_EVENT,
					    RM_ESC_GET_EVENT_DATA };
	uint32_t nr = numbers[random_below(&w->random, 3)];
	int fd = random_one_in(&w->random, 2) ? worker_slot(w, 0, SLOT_CONTROLS)
					      : worker_slot(w, SLOT_CONTROLS, SLOT_GPUS);
	uint32_t arg[4] = { worker_client_handle(w), worker_handle(w, ROLE_DEVICE), (uint32_t)fd, 0 };
	uint64_t to = (uintptr_t)w->buffers->params;

	if (nr == RM_ESC_GET_EVENT_DATA)
		memcpy(arg, &to, sizeof(to));
	worker_rm_call(w, fd, nr, arg, sizeof(arg), &arg[3]);
}

/* Numbers and sizes without sense, those of the driver among them. */
void maps_escape_any(struct worker *w)
{
	uint32_t words[64];
	uint32_t nr = random_one_in(&w->random, 4) ? random_below(&w->random, 256)
						   : 0x27 + random_below(&w->random, 0x38);
	uint32_t bytes = random_one_in(&w->random, 4) ? random_below(&w->random, 1 << 14)
						      : 4 * random_below(&w->random, 64);

	if (random_one_in(&w->random, 3))
		nr = 0xc8 + random_below(&w->random, 0x13);
	for (uint32_t tries = 0; tries < 64 && !rm_is_call(nr, bytes); tries++)
		bytes = 4 * random_below(&w->random, 64);
	for (unsigned i = 0; i < 64; i++)
		words[i] = random_one_in(&w->random, 3)	  ? random_handle(&w->random)
			   : random_one_in(&w->random, 3) ? (uint32_t)random_next(&w->random)
							  : random_below(&w->random, 4);
	words[0] = random_one_in(&w->random, 4) ? words[0] : worker_client_handle(w);
	words_fill(w, w->buffers->arg, SCRIBBLE_ARG_BYTES, false);
	worker_call(w, random_slot(&w->random), _IOC(random_below(&w->random, 4), 'F', nr, bytes), words,
		    bytes < sizeof(words) ? bytes : (uint32_t)sizeof(words));
}

/* Managed memory. */

void maps_managed_any(struct worker *w)
{
	const struct rm_uvm_call *known = rm_uvm_at(random_below(&w->random, 96));
	int fd = worker_slot(w, SLOT_GPUS, SLOT_MANAGED);
	uint32_t words[64] = { 0 };

	if (!known || w->board->is_exact)
		return;
	for (unsigned i = 0; i < 64 && random_one_in(&w->random, 4); i++)
		words[i] = (uint32_t)random_next(&w->random);
	if (known->base_at >= 0 && known->base_at < 200)
		words[known->base_at / 4] = 0x10000000u + (random_below(&w->random, 8) << 21);
	if (known->length_at >= 0 && known->length_at < 200)
		words[known->length_at / 4] = 1u << (16 + random_below(&w->random, 8));
	if (known->client_at >= 0 && known->client_at < 252)
		words[known->client_at / 4] = worker_client_handle(w);
	if (known->object_at >= 0 && known->object_at < 252)
		words[known->object_at / 4] = worker_handle(w, ROLE_MEMORY);
	if (known->status_at >= 0 && known->status_at < 252)
		words[known->status_at / 4] = 0;
	words_fill(w, w->buffers->arg, SCRIBBLE_ARG_BYTES, false);
	worker_call(w, fd, known->cmd, words, sizeof(words));
}

void maps_map_managed(struct worker *w)
{
	map_file(w, worker_slot(w, SLOT_GPUS, SLOT_MANAGED), CARD_ROUND << random_below(&w->random, 6), 0,
		 false);
}
