#include "scribble_objects.h"

const struct kind objects_kinds[KINDS] = {
	{ 0x41, 0, ROLE_OTHER, ROLE_OTHER },
	{ 0x80, 56, ROLE_DEVICE, ROLE_OTHER },
	{ 0x2080, 4, ROLE_SUBDEVICE, ROLE_DEVICE },
	{ 0x90f1, 0, ROLE_SPACE, ROLE_DEVICE },
	{ 0xc661, 0, ROLE_BELL, ROLE_SUBDEVICE },
	{ 0x40, 128, ROLE_MEMORY, ROLE_DEVICE },
	{ 0x3e, 128, ROLE_SYSMEM, ROLE_DEVICE },
	{ 0xa06c, 20, ROLE_GROUP, ROLE_DEVICE },
	{ 0xc86f, 368, ROLE_CHANNEL, ROLE_GROUP },
	{ 0xcbc0, 16, ROLE_ENGINE, ROLE_CHANNEL },
	/* These are not needed by the others. */
	{ 0x79, 24, ROLE_OTHER, ROLE_SUBDEVICE },
	{ 0x9067, 12, ROLE_OTHER, ROLE_GROUP },
	{ 0x50a0, 128, ROLE_OTHER, ROLE_SPACE },
	{ 0x70, 24, ROLE_OTHER, ROLE_DEVICE },
	{ 0x71, 40, ROLE_OTHER, ROLE_DEVICE },
	{ 0xde, 8, ROLE_OTHER, ROLE_SUBDEVICE },
	{ 0x83de, 12, ROLE_OTHER, ROLE_DEVICE },
	{ 0x0, 4, ROLE_OTHER, ROLE_OTHER },
	{ SOFT_CLASS_CODE, sizeof(struct soft_code_params), ROLE_OTHER, ROLE_DEVICE },
	{ 0xe0, 64, ROLE_OTHER, ROLE_DEVICE },
	{ 0xc2, 64, ROLE_OTHER, ROLE_DEVICE },
};

static void put_channel(struct worker *w, uint8_t *params)
{
	const struct rm_layout *l = rm_layout_find(SOFT_DRIVER_VERSION);

	words_put64(params, l->channel_gpfifo_offset, w->address + RING_AT);
	words_put32(params, l->channel_gpfifo_entries, RING_ENTRIES);
	words_put32(params, 28, worker_handle(w, ROLE_SPACE)); /* NV_CHANNEL_ALLOC_PARAMS.hVASpace */
	words_put32(params, l->channel_userd_memory,
		    worker_is_odd(w, 4) ? worker_handle(w, ROLE_MEMORY) : FIRST_OF(ROLE_MEMORY));
	words_put64(params, l->channel_userd_offset, (uint64_t)random_below(&w->random, 4) * 512);
	words_put32(params, l->channel_error_memory, worker_handle(w, ROLE_SYSMEM));
}

static void put_params(struct worker *w, const struct kind *kind, uint8_t *params)
{
	static const uint64_t odd[] = { 0, 1, 1ull << 40, UINT64_MAX, 64 * CARD_MIB };

	words_fill(w, params, kind->bytes, worker_is_odd(w, 20));
	switch (kind->class_id) {
	case 0x80:
		words_put32(params, 0, worker_is_odd(w, 20));
		break;
	case 0x40:
		words_put64(params, 64,
			    worker_is_odd(w, 12)
				    ? odd[random_below(&w->random, 5)]
				    : CARD_ROUND << random_below(&w->random, w->is_plain ? 2 : 6));
		break;
	case 0x3e:
		words_put32(params, 24, 1u << 25);
		words_put64(params, 64, PAGE << random_below(&w->random, 5));
		break;
	case 0xc86f:
		put_channel(w, params);
		break;
	case 0x79:
		words_put32(params, 0, worker_client_handle(w));
		words_put64(params, 16, (uint64_t)random_slot(&w->random));
		break;
	default:
		break;
	}
}

static void note_client(struct worker *w, int fd, uint32_t handle)
{
	unsigned slot = (unsigned)(fd - SLOT_FIRST);
	unsigned at = slot < SLOT_CALM ? slot
				       : random_below(&w->random, SCRIBBLE_CLIENTS - SLOT_CALM) + SLOT_CALM;

	atomic_store_explicit(&w->board->clients[at], (uint64_t)slot << 32 | handle, memory_order_relaxed);
}

void objects_alloc(struct worker *w, const struct kind *kind, uint64_t client, uint32_t parent,
		   uint32_t object)
{
	uint8_t *params = w->buffers->params;
	struct rm_arg_alloc arg = { .client = (uint32_t)client,
				    .parent = parent,
				    .object = object,
				    .class_id = kind->class_id,
				    .params = (uintptr_t)params,
				    .size = kind->bytes };
	bool is_root = kind->class_id == 0x41 || !kind->class_id;
	int fd = SLOT_FIRST + (int)(client >> 32);

	if (is_root) {
		arg.client = arg.parent = arg.object = 0;
		fd = worker_is_odd(w, 4) ? worker_slot(w, 0, SLOT_CONTROLS)
					 : SLOT_FIRST + (int)(w->number % SCRIBBLE_CALLERS);
	} else if (kind->parent == ROLE_OTHER) {
		arg.parent = arg.client;
	}
	put_params(w, kind, params);
	if (worker_is_odd(w, 16))
		arg.size = random_below(&w->random, 2 * SCRIBBLE_ARG_BYTES);
	if (worker_is_odd(w, 40))
		arg.rights = (uintptr_t)w->buffers->list;
	if (worker_is_odd(w, 60))
		arg.flags = 1;
	if (worker_is_odd(w, 20))
		fd = random_slot(&w->random);
	if (worker_rm_call(w, fd, RM_ESC_ALLOC, &arg, sizeof(arg), &arg.status) && is_root)
		note_client(w, fd, arg.object);
	if (arg.status == RM_ERR_INVALID_CLIENT || arg.status == RM_ERR_INVALID_OBJECT_PARENT)
		w->is_lost |= worker_is_odd(w, 8);
}

void objects_alloc_any(struct worker *w)
{
	struct kind kind =
		objects_kinds[random_below(&w->random, random_one_in(&w->random, 4) ? KINDS : KIND_NEEDED)];

	if (random_one_in(&w->random, 24))
		kind.class_id = random_below(&w->random, 0x10000);
	if (kind.class_id == 0x41 && !random_one_in(&w->random, 8))
		kind = objects_kinds[KIND_MEMORY];
	objects_alloc(w, &kind, worker_client(w), worker_handle(w, kind.parent), worker_handle(w, kind.role));
}

void objects_free_any(struct worker *w)
{
	uint64_t client = worker_client(w);
	struct rm_arg_free arg = { .client = (uint32_t)client, .object = random_handle(&w->random) };

	if (random_one_in(&w->random, 100))
		arg.object = arg.client;
	else if (!random_one_in(&w->random, 8)) /* or there would never be a device with much below it */
		arg.object = random_one_in(&w->random, 6)
				     ? worker_handle(w, ROLE_CHANNEL)
				     : FIRST_OF(ROLE_MEMORY) + random_below(&w->random, 8);
	worker_rm_call(w, SLOT_FIRST + (int)(client >> 32), RM_ESC_FREE, &arg, sizeof(arg), &arg.status);
}

/* Controls. */

void objects_control(struct worker *w, uint64_t client, uint32_t id, uint32_t bytes, uint32_t object)
{
	struct rm_arg_control arg = { .client = (uint32_t)client,
				      .object = object,
				      .cmd = id,
				      .params = (uintptr_t)w->buffers->params,
				      .size = bytes };
	uint32_t token;

	if (worker_is_odd(w, 50))
		arg.flags = 1;
	if (worker_rm_call(w, SLOT_FIRST + (int)(client >> 32), RM_ESC_CONTROL, &arg, sizeof(arg),
			   &arg.status) &&
	    id == RM_CTRL_CHANNEL_GET_TOKEN) {
		words_get(&token, w->buffers->params, sizeof(token));
		atomic_store(&w->board->tokens[random_below(&w->random, SCRIBBLE_TOKENS)], token);
	}
}

static const struct rm_control *any_control(struct worker *w)
{
	static unsigned count;

	while (!__atomic_load_n(&count, __ATOMIC_RELAXED)) {
		unsigned all = 0;

		while (rm_control_at(all))
			all++;
		__atomic_store_n(&count, all, __ATOMIC_RELAXED);
	}
	return rm_control_at(random_below(&w->random, __atomic_load_n(&count, __ATOMIC_RELAXED)));
}

static void put_pointers(struct worker *w, const struct rm_control *known)
{
	for (unsigned i = 0; i < known->pointer_count; i++) {
		const struct rm_pointer *p = &known->pointers[i];

		if (p->at % 4 || p->count_at % 4 || p->at + 8u > SCRIBBLE_ARG_BYTES)
			continue;
		words_put64(w->buffers->params, p->at, (uintptr_t)w->buffers->list);
		words_put32(w->buffers->params, p->count_at,
			    random_one_in(&w->random, 8) ? (uint32_t)random_next(&w->random)
							 : random_below(&w->random, 64));
	}
}

void objects_control_any(struct worker *w)
{
	static const struct {
		uint32_t id, bytes;
		enum role role;
	} usual[] = {
		{ RM_CTRL_GROUP_SCHEDULE, 3, ROLE_GROUP },
		{ RM_CTRL_GROUP_SET_TIMESLICE, 8, ROLE_GROUP },
		{ RM_CTRL_GROUP_SET_INTERLEAVE, 4, ROLE_GROUP },
		{ RM_CTRL_CHANNEL_GET_TOKEN, 4, ROLE_CHANNEL },
		{ RM_CTRL_CHANNEL_GET_TOKEN, 4, ROLE_CHANNEL },
		{ RM_CTRL_CHANNEL_SCHEDULE, 3, ROLE_CHANNEL },
		{ RM_CTRL_DISABLE_CHANNELS, 536, ROLE_SUBDEVICE },
		{ RM_CTRL_FB_GET_INFO_V2, 1028, ROLE_SUBDEVICE },
		{ RM_CTRL_GET_PIDS, 3812, ROLE_SUBDEVICE },
		{ RM_CTRL_ROOT_GET_ADDRESS_SPACE, 12, ROLE_OTHER },
		{ RM_CTRL_SET_PREEMPTION, 32, ROLE_SUBDEVICE },
	};
	const struct rm_control *known = any_control(w);
	unsigned i = random_below(&w->random, sizeof(usual) / sizeof(usual[0]));
	bool is_usual = random_one_in(&w->random, 2);
	uint32_t id = is_usual ? usual[i].id : known->id;
	uint32_t bytes = is_usual ? usual[i].bytes : known->bytes;

	if (bytes > SCRIBBLE_ARG_BYTES || random_one_in(&w->random, 12))
		bytes = random_below(&w->random, SCRIBBLE_ARG_BYTES);
	words_fill(w, w->buffers->params, bytes & ~3u, random_one_in(&w->random, 8));
	words_put32(w->buffers->params, 0, random_one_in(&w->random, 2) ? 1 : random_handle(&w->random));
	if (!is_usual)
		put_pointers(w, known);
	if (random_one_in(&w->random, 16))
		id = (uint32_t)random_next(&w->random);
	if (w->board->is_exact && id == RM_CTRL_EXPORT_OBJECTS_TO_FD)
		return;
	objects_control(w, worker_client(w), id, bytes,
			is_usual ? worker_handle(w, usual[i].role) : random_handle(&w->random));
}

void objects_export_any(struct worker *w)
{
	uint8_t *params = w->buffers->params;
	uint32_t file = (uint32_t)worker_slot(w, 0, SLOT_CONTROLS);
	bool is_many = !w->board->is_exact && random_one_in(&w->random, 3);
	uint64_t client = worker_client(w);

	words_fill(w, params, 2128, false);
	if (is_many) {
		words_put32(params, 0, file);
		words_put32(params, 76, worker_handle(w, ROLE_MEMORY));
		words_put32(params, 76 + 4 * 512, 1); /* one object, index 0 */
		objects_control(w, client, RM_CTRL_EXPORT_OBJECTS_TO_FD, 76 + 4 * 512 + 4, (uint32_t)client);
		return;
	}
	words_put32(params, 0, 1); /* RM_OBJECT */
	words_put32(params, 4, worker_handle(w, ROLE_DEVICE));
	words_put32(params, 8, worker_handle(w, ROLE_DEVICE));
	words_put32(params, 12, worker_handle(w, ROLE_MEMORY));
	words_put32(params, 16, file);
	objects_control(w, client, RM_CTRL_EXPORT_OBJECT_TO_FD, 24, (uint32_t)client);
}

void objects_import_any(struct worker *w)
{
	uint8_t *params = w->buffers->params;
	bool is_many = random_one_in(&w->random, 3);
	uint64_t client = worker_client(w);

	words_fill(w, params, 1024, false);
	words_put32(params, 0, (uint32_t)worker_slot(w, 0, SLOT_CONTROLS));
	if (is_many) {
		words_put32(params, 4, worker_handle(w, ROLE_DEVICE));
		words_put32(params, 8, worker_handle(w, ROLE_MEMORY));
		words_put32(params, 8 + 4 * 128 + 128, 1);
		objects_control(w, client, RM_CTRL_IMPORT_OBJECTS_FROM_FD, 8 + 4 * 128 + 128 + 4,
				(uint32_t)client);
		return;
	}
	words_put32(params, 4, 1);
	words_put32(params, 12, worker_handle(w, ROLE_DEVICE));
	words_put32(params, 16, worker_handle(w, ROLE_MEMORY));
	objects_control(w, client,
			random_one_in(&w->random, 4) ? RM_CTRL_GET_EXPORT_OBJECT_INFO
						     : RM_CTRL_IMPORT_OBJECT_FROM_FD,
			20, (uint32_t)client);
}

void objects_dup_any(struct worker *w)
{
	uint64_t client = worker_client(w);
	struct rm_arg_dup arg = { .client = (uint32_t)client,
				  .parent = worker_handle(w, ROLE_DEVICE),
				  .object = worker_handle(w, ROLE_MEMORY),
				  .source_client = worker_client_handle(w),
				  .source_object = random_one_in(&w->random, 3)
							   ? random_handle(&w->random)
							   : worker_handle(w, ROLE_MEMORY) };

	worker_rm_call(w, SLOT_FIRST + (int)(client >> 32), RM_ESC_DUP_OBJECT, &arg, sizeof(arg),
		       &arg.status);
}
