#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "soft/driver/state.h"
#include "soft/hw/state.h"
#include "stage.h"

enum { GPUS = 2, SMS = 4, LINGER_S = 1000 };

void card_make_folder(struct card *card)
{
	*card = (struct card){ .folder = "/tmp/belfry-card-XXXXXX" };
	CHECK(mkdtemp(card->folder));
}

static void *serve(void *server)
{
	server_serve(server);
	return NULL;
}

void card_start(struct card *card)
{
	struct server_options options = { .config = link_default, .folder = card->folder, .ready_fd = -1 };
	struct bf_error err = { 0 };

	options.config.gpus = GPUS;
	options.config.sms = SMS;
	options.config.cores = 1;
	options.config.mem_bytes = CARD_BYTES;
	options.config.linger_s = LINGER_S; /* the test says when it ends */
	if (server_new(&options, &card->server, &err))
		fprintf(stderr, "%s\n", err.text);
	CHECK(card->server);
	card->driver = server_driver(card->server);
	CHECK(!pthread_create(&card->thread, NULL, serve, card->server));
	card->device = device_soft_open(card->folder, &(struct device_options){ .index = 0 }, &err);
	if (!card->device)
		fprintf(stderr, "%s\n", err.text);
	CHECK(card->device);
	if (card->device->ops->supervise(card->device, getpid(), &err))
		fprintf(stderr, "%s\n", err.text);
	CHECK(!err.code);
}

void card_stop(struct card *card)
{
	char command[128];

	card->device->ops->close(card->device);
	server_stop(card->server);
	pthread_join(card->thread, NULL);
	CHECK(server_free(card->server));
	snprintf(command, sizeof(command), "rm -rf '%s'", card->folder);
	CHECK(!system(command));
}

/* Looking in. */

static bool is_programs(const struct client *client)
{
	return client->pid != getpid();
}

typedef bool (*object_fn)(struct object *object, void *context);

/* Call it for every object of programs, or of our own, until it returns true. */
static bool each_object(const struct card *card, bool of_programs, object_fn fn, void *context)
{
	bool is_found = false;

	pthread_mutex_lock(&card->driver->lock);
	list_each(link, &card->driver->clients)
	{
		struct client *client = list_of(link, struct client, of_driver);

		for (size_t i = 0; i < BUCKETS && is_programs(client) == of_programs; i++)
			for (struct object *o = client->buckets[i]; o && !is_found; o = o->chain)
				is_found = fn(o, context);
	}
	pthread_mutex_unlock(&card->driver->lock);
	return is_found;
}

uint64_t card_used_bytes(const struct card *card)
{
	return hw_gpu_used_bytes(card->driver->gpus[0]) + hw_gpu_used_bytes(card->driver->gpus[1]);
}

unsigned card_clients(const struct card *card)
{
	unsigned count = 0;

	pthread_mutex_lock(&card->driver->lock);
	list_each(link, &card->driver->clients) count += is_programs(list_of(link, struct client, of_driver));
	pthread_mutex_unlock(&card->driver->lock);
	return count;
}

struct count {
	uint32_t class_id;
	unsigned found;
};

static bool count_class(struct object *object, void *context)
{
	struct count *count = context;

	count->found += !count->class_id || object->class_id == count->class_id;
	return false;
}

unsigned card_count(const struct card *card, uint32_t class_id)
{
	struct count count = { .class_id = class_id };

	each_object(card, true, count_class, &count);
	return count.found;
}

/* A page of the warden's is memory that the GPU reads a channel's USERD from. */
static bool is_userd(const struct driver *driver, const struct hw_memory *memory)
{
	bool is_found = false;

	hw_lock(driver->cores);
	for (uint32_t i = 0; i < SOFT_CHANNELS_MAX && !is_found; i++)
		is_found = driver->gpus[0]->channels[i] && driver->gpus[0]->channels[i]->userd == memory;
	hw_unlock(driver->cores);
	return is_found;
}

struct own_memory {
	unsigned pages, views;
};

static bool count_own(struct object *object, void *context)
{
	struct own_memory *own = context;

	if (object->kind == OBJECT_MEMORY)
		++*(is_userd(object->driver, object->memory.block->hw) ? &own->pages : &own->views);
	return false;
}

static struct own_memory own_memory(const struct card *card)
{
	struct own_memory own = { 0, 0 };

	each_object(card, false, count_own, &own);
	return own;
}

unsigned card_pages(const struct card *card)
{
	return own_memory(card).pages;
}

unsigned card_views(const struct card *card)
{
	return own_memory(card).views;
}

bool card_is_clean(const struct card *card)
{
	enum { WARDENS_FILES = 2 };
	struct own_memory own = own_memory(card);
	unsigned files, channels;

	pthread_mutex_lock(&card->driver->lock);
	files = card->driver->file_count;
	channels = card->driver->channel_count;
	pthread_mutex_unlock(&card->driver->lock);
	return !card_clients(card) && files == WARDENS_FILES && !channels && !own.pages && !own.views &&
	       !card_used_bytes(card);
}

struct wanted {
	uint32_t handle;
	enum object_kind kind;
	void *to;
};

static bool is_wanted(const struct object *object, const struct wanted *wanted)
{
	return object->handle == wanted->handle && object->kind == wanted->kind;
}

static bool has_name(const struct client *client, const struct hw_memory *memory)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct object *o = client->buckets[i]; o; o = o->chain)
			if (o->kind == OBJECT_MEMORY && o->memory.block->hw == memory)
				return true;
	return false;
}

static bool tell_channel(struct object *object, void *context)
{
	const struct wanted *wanted = context;
	struct card_channel *to = wanted->to;
	const struct hw_channel *hw;

	if (!is_wanted(object, wanted))
		return false;
	hw = object->channel.hw;
	hw_lock(object->driver->cores);
	*to = (struct card_channel){ .token = hw->token,
				     .is_disabled = hw->is_disabled,
				     .is_nameable = has_name(object->client, hw->userd) };
	to->gp_put = __atomic_load_n(
		(uint32_t *)(void *)(hw->userd->at + hw->userd_offset + SOFT_USERD_GP_PUT), __ATOMIC_ACQUIRE);
	hw_unlock(object->driver->cores);
	return true;
}

bool card_channel(const struct card *card, uint32_t handle, struct card_channel *channel)
{
	struct wanted wanted = { handle, OBJECT_CHANNEL, channel };

	return each_object(card, true, tell_channel, &wanted);
}

struct progress {
	pid_t pid;
	struct card_progress *to;
	unsigned count, room;
};

static bool tell_progress(struct object *object, void *context)
{
	struct progress *all = context;
	const struct hw_channel *hw;
	uint8_t *userd;

	if (object->kind != OBJECT_CHANNEL || object->client->pid != all->pid || all->count++ >= all->room)
		return false;
	hw = object->channel.hw;
	userd = hw->userd->at + hw->userd_offset;
	hw_lock(object->driver->cores);
	all->to[all->count - 1] = (struct card_progress){
		.client = object->client->handle,
		.handle = object->handle,
		.token = hw->token,
		.domain = hw->group->domain,
		.is_disabled = hw->is_disabled,
		.put = __atomic_load_n((uint32_t *)(void *)(userd + SOFT_USERD_GP_PUT), __ATOMIC_ACQUIRE),
		.get = __atomic_load_n((uint32_t *)(void *)(userd + SOFT_USERD_GP_GET), __ATOMIC_ACQUIRE)
	};
	hw_unlock(object->driver->cores);
	return false;
}

unsigned card_progress(const struct card *card, pid_t pid, struct card_progress *to, unsigned room)
{
	struct progress all = { .pid = pid, .to = to, .room = room };

	each_object(card, true, tell_progress, &all);
	return all.count;
}

static bool tell_group(struct object *object, void *context)
{
	const struct wanted *wanted = context;
	struct card_group *to = wanted->to;

	if (!is_wanted(object, wanted))
		return false;
	hw_lock(object->driver->cores);
	*to = (struct card_group){ .timeslice_us = object->group.hw->timeslice_us,
				   .interleave = object->group.hw->interleave,
				   .is_scheduled = object->group.hw->is_scheduled };
	hw_unlock(object->driver->cores);
	return true;
}

bool card_group(const struct card *card, uint32_t handle, struct card_group *group)
{
	struct wanted wanted = { handle, OBJECT_GROUP, group };

	return each_object(card, true, tell_group, &wanted);
}

static bool tell_memory(struct object *object, void *context)
{
	const struct wanted *wanted = context;

	if (is_wanted(object, wanted))
		*(uint8_t **)wanted->to = object->memory.block->hw->at;
	return is_wanted(object, wanted);
}

const _Atomic uint32_t *card_word(const struct card *card, uint32_t memory, uint64_t offset)
{
	uint8_t *at = NULL;
	struct wanted wanted = { memory, OBJECT_MEMORY, &at };

	CHECK(each_object(card, true, tell_memory, &wanted));
	return (const _Atomic uint32_t *)(const void *)(at + offset);
}
