/* Reports memory: how much there is, and which processes use it. */
#include "soft/driver/state.h"

enum {
	FB_BUS_WIDTH = 0x0b,
	BUS_WIDTH = 5120,
	/* GET_PIDS */
	PIDS_TYPE_AT = 0,
	PIDS_CLASS_AT = 4,
	/* an entry of GET_PID_INFO */
	INFO_INDEX_AT = 4,
	INFO_RESULT_AT = 8,
};

uint32_t told_fb_info(struct control_site *site)
{
	const struct rm_layout *layout = site->driver->layout;
	uint64_t total = site->driver->config.mem_bytes;
	uint64_t used = hw_gpu_used_bytes(site->driver->gpus[site->object->gpu]);
	uint32_t count;

	if (site->bytes != layout->fb_info_size || bf_get32(site->params) > layout->fb_info_max)
		return RM_ERR_INVALID_ARGUMENT;
	count = bf_get32(site->params);
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *entry = site->params + layout->fb_info_list + 8 * (size_t)i;
		enum rm_fb_meaning meaning = rm_fb_meaning(bf_get32(entry));
		uint64_t bytes = meaning == RM_FB_TOTAL ? total : meaning == RM_FB_FREE ? total - used : 0;

		bf_put32(entry + 4, bf_get32(entry) == FB_BUS_WIDTH ? BUS_WIDTH : (uint32_t)(bytes >> 10));
	}
	return RM_OK;
}

static bool has_kind(const struct client *client, uint32_t gpu, unsigned kinds)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct object *object = client->buckets[i]; object; object = object->chain)
			if ((object->kind & kinds) && object->gpu == gpu)
				return true;
	return false;
}

static bool is_listed(const uint8_t *table, uint32_t count, uint32_t pid)
{
	for (uint32_t i = 0; i < count; i++)
		if (bf_get32(table + 4 * (size_t)i) == pid)
			return true;
	return false;
}

/* The processes with a subdevice of this GPU or, for any other class, with a channel on it
 * (subdevice_ctrl_gpu_kernel.c). */
uint32_t told_pids(struct control_site *site)
{
	const struct rm_layout *layout = site->driver->layout;
	uint8_t *table = site->params + layout->pids_table;
	uint32_t count = 0;
	unsigned kinds;

	if (site->bytes != layout->pids_size || bf_get32(site->params + PIDS_TYPE_AT))
		return RM_ERR_INVALID_ARGUMENT;
	kinds = bf_get32(site->params + PIDS_CLASS_AT) == 0x2080 ? OBJECT_SUBDEVICE : OBJECT_CHANNEL;
	pthread_mutex_lock(&site->driver->lock);
	list_each(link, &site->driver->clients)
	{
		struct client *client = list_of(link, struct client, of_driver);

		if (count < layout->pids_max && !is_listed(table, count, (uint32_t)client->pid) &&
		    has_kind(client, site->object->gpu, kinds))
			bf_put32(table + 4 * (size_t)count++, (uint32_t)client->pid);
	}
	pthread_mutex_unlock(&site->driver->lock);
	memset(table + 4 * (size_t)count, 0, 4 * (size_t)(layout->pids_max - count));
	bf_put32(site->params + layout->pids_count, count);
	return RM_OK;
}

struct use {
	uint64_t private_bytes, owned_bytes, duped_bytes;
};

/* Counts as the driver does (gpu_rmapi.c): memory with one handle is private. Of several handles, the first
 * owns the memory and the others duplicate it; when the owner is freed, the next one owns it. */
static void add_object(const struct object *object, struct use *use)
{
	const struct list *holders = &object->memory.block->holders;
	uint64_t bytes = object->memory.block->bytes;
	bool is_first = holders->next == &object->memory.of_block;

	if (is_first && holders->prev == holders->next)
		use->private_bytes += bytes;
	else if (is_first)
		use->owned_bytes += bytes;
	else
		use->duped_bytes += bytes;
}

static void add_client(const struct client *client, uint32_t gpu, struct use *use)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct object *object = client->buckets[i]; object; object = object->chain)
			if (object->kind == OBJECT_MEMORY && object->memory.block->is_vidmem &&
			    object->gpu == gpu)
				add_object(object, use);
}

static struct use use_of(struct driver *driver, uint32_t pid, uint32_t gpu)
{
	struct use use = { 0 };

	pthread_mutex_lock(&driver->lock); /* released between entries, so that other calls can proceed */
	list_each(link, &driver->clients)
	{
		struct client *client = list_of(link, struct client, of_driver);

		if ((uint32_t)client->pid == pid)
			add_client(client, gpu, &use);
	}
	pthread_mutex_unlock(&driver->lock);
	return use;
}

uint32_t told_pid_info(struct control_site *site)
{
	const struct rm_layout *layout = site->driver->layout;
	uint32_t count;

	if (site->bytes != layout->pid_info_size || bf_get32(site->params) > layout->pid_info_max)
		return RM_ERR_INVALID_ARGUMENT;
	count = bf_get32(site->params);
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *entry = site->params + layout->pid_info_list + (size_t)i * layout->pid_info_stride;
		struct use use = use_of(site->driver, bf_get32(entry), site->object->gpu);

		bf_put32(entry + INFO_RESULT_AT,
			 bf_get32(entry + INFO_INDEX_AT) ? RM_ERR_NOT_SUPPORTED : RM_OK);
		bf_put64(entry + layout->pid_info_private, use.private_bytes);
		bf_put64(entry + layout->pid_info_owned, use.owned_bytes);
		bf_put64(entry + layout->pid_info_duped, use.duped_bytes);
	}
	return RM_OK;
}

static struct soft_user *user_of(struct soft_status *status, pid_t pid, uint32_t gpu)
{
	for (uint32_t i = 0; i < status->user_count; i++)
		if (status->users[i].pid == pid && status->users[i].gpu == gpu)
			return &status->users[i];
	if (status->user_count == SOFT_USERS_MAX)
		return NULL;
	status->users[status->user_count] = (struct soft_user){ .pid = pid, .gpu = gpu };
	return &status->users[status->user_count++];
}

static void add_group(struct soft_status *status, const struct client *client, const struct object *group)
{
	struct soft_user *user = user_of(status, client->pid, group->gpu);
	struct soft_time_params time = { 0 };

	if (!user)
		return;
	hw_group_get_time(group->group.hw, &time);
	user->held_ns += time.held_ns;
	user->thread_instructions += time.thread_instructions;
	user->has_turn |= hw_group_has_turn(group->group.hw);
}

static void add_groups(struct soft_status *status, const struct client *client)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct object *object = client->buckets[i]; object; object = object->chain)
			if (object->kind == OBJECT_GROUP)
				add_group(status, client, object);
			else if (object->kind == OBJECT_CHANNEL && object->channel.is_alone)
				add_group(status, client, object->channel.group);
}

/* Call with the lock held. Reports the processes with channels, their GPU time, and the memory they have on
 * the GPU. */
void told_users(struct driver *driver, struct soft_status *status)
{
	list_each(link, &driver->clients) add_groups(status, list_of(link, struct client, of_driver));
	list_each(link, &driver->clients)
	{
		const struct client *client = list_of(link, struct client, of_driver);

		for (uint32_t i = 0; i < status->user_count; i++) {
			struct soft_user *user = &status->users[i];
			struct use use = { 0 };

			if (user->pid != client->pid)
				continue;
			add_client(client, user->gpu, &use);
			user->mem_bytes += use.private_bytes + use.owned_bytes + use.duped_bytes;
		}
	}
}
