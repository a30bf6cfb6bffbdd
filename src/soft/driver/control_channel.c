/* Controls on groups, channels and address spaces (ctrla06c.h, ctrla06fgpfifo.h, ctrlc36f.h, and Belfry's
 * own). */
#include "soft/driver/state.h"

enum { INTERLEAVE_MAX = 2, PREEMPT_BYTES = 8 };

/* The caller holds a reference to the channel, which holds one to its group. */
static struct object *group_of(struct control_site *site)
{
	return site->object->kind == OBJECT_GROUP ? site->object : site->object->channel.group;
}

static uint32_t accept(struct control_site *site)
{
	(void)site;
	return RM_OK;
}

/* Schedules the channels that are in the group now. As in the real driver, later channels need another
 * call. */
static void schedule_children(struct object *group, bool is_scheduled)
{
	list_each(link, &group->children)
	{
		struct object *child = list_of(link, struct object, of_parent);

		if (child->kind == OBJECT_CHANNEL)
			hw_channel_set_scheduled(child->channel.hw, is_scheduled);
	}
}

static uint32_t schedule_group(struct control_site *site)
{
	bool is_scheduled = site->params[0];

	pthread_mutex_lock(&site->driver->lock);
	schedule_children(site->object, is_scheduled);
	pthread_mutex_unlock(&site->driver->lock);
	hw_group_set_scheduled(site->object->group.hw, is_scheduled);
	return RM_OK;
}

static uint32_t schedule_channel(struct control_site *site)
{
	bool is_scheduled = site->params[0];

	hw_channel_set_scheduled(site->object->channel.hw, is_scheduled);
	if (site->object->channel.is_alone)
		hw_group_set_scheduled(group_of(site)->group.hw, is_scheduled);
	return RM_OK;
}

static uint32_t set_timeslice(struct control_site *site)
{
	uint64_t us = bf_get64(site->params);

	if (!us || us > UINT32_MAX)
		return RM_ERR_INVALID_ARGUMENT;
	pthread_mutex_lock(&site->driver->lock);
	site->object->group.timeslice_us = us;
	pthread_mutex_unlock(&site->driver->lock);
	hw_group_set_timeslice(site->object->group.hw, us);
	return RM_OK;
}

static uint32_t get_timeslice(struct control_site *site)
{
	pthread_mutex_lock(&site->driver->lock);
	bf_put64(site->params, site->object->group.timeslice_us);
	pthread_mutex_unlock(&site->driver->lock);
	return RM_OK;
}

static uint32_t set_interleave(struct control_site *site)
{
	struct object *group = group_of(site);
	uint32_t level = bf_get32(site->params);

	if (level > INTERLEAVE_MAX || hw_group_set_interleave(group->group.hw, level))
		return RM_ERR_INVALID_ARGUMENT;
	pthread_mutex_lock(&site->driver->lock);
	group->group.interleave = level;
	pthread_mutex_unlock(&site->driver->lock);
	return RM_OK;
}

static uint32_t get_interleave(struct control_site *site)
{
	pthread_mutex_lock(&site->driver->lock);
	bf_put32(site->params, group_of(site)->group.interleave);
	pthread_mutex_unlock(&site->driver->lock);
	return RM_OK;
}

static uint32_t preempt(struct control_site *site)
{
	hw_group_preempt(site->object->group.hw);
	return RM_OK;
}

static uint32_t get_token(struct control_site *site)
{
	bf_put32(site->params, hw_channel_token(site->object->channel.hw));
	return RM_OK;
}

static uint32_t get_group_time(struct control_site *site)
{
	struct soft_time_params time = { 0 };

	hw_group_get_time(site->object->group.hw, &time);
	memcpy(site->params, &time, sizeof(time));
	return RM_OK;
}

static uint32_t get_group_done(struct control_site *site)
{
	struct soft_done_params done = { 0 };

	hw_group_get_done(site->object->group.hw, &done);
	memcpy(site->params, &done, sizeof(done));
	return RM_OK;
}

static uint32_t set_sms(struct control_site *site)
{
	struct soft_sms_params sms;
	bool has_any = false;

	memcpy(&sms, site->params, sizeof(sms));
	for (uint32_t i = 0; i < site->driver->config.sms; i++)
		has_any |= sms.mask[i / 64] >> i % 64 & 1;
	if (!has_any)
		return RM_ERR_INVALID_ARGUMENT;
	hw_channel_set_sms(site->object->channel.hw, sms.mask);
	return RM_OK;
}

static uint32_t set_print(struct control_site *site)
{
	struct soft_print_params print;
	struct hw_memory *memory;
	uint32_t status = RM_OK;

	memcpy(&print, site->params, sizeof(print));
	pthread_mutex_lock(&site->driver->lock);
	memory = site->client->is_dead ? NULL : memory_find(site->client, print.memory);
	pthread_mutex_unlock(&site->driver->lock);
	if (!memory)
		return ERR_NOT_FOUND;
	if (print.offset % 8 || print.bytes < sizeof(struct soft_print) ||
	    print.bytes > hw_memory_bytes(memory) || print.offset > hw_memory_bytes(memory) - print.bytes ||
	    hw_space_set_print(site->object->space.hw, memory, print.offset, print.bytes))
		status = RM_ERR_INVALID_ARGUMENT;
	hw_memory_put(memory);
	return status;
}

enum { EITHER = OBJECT_GROUP | OBJECT_CHANNEL };

const struct control controls_channel[] = {
	{ RM_CTRL_GROUP_SCHEDULE, 3, OBJECT_GROUP, schedule_group },
	{ 0xa06c0102, 4, OBJECT_GROUP, accept }, /* BIND */
	{ RM_CTRL_GROUP_SET_TIMESLICE, 8, OBJECT_GROUP, set_timeslice },
	{ 0xa06c0104, 8, OBJECT_GROUP, get_timeslice },
	{ 0xa06c0105, PREEMPT_BYTES, OBJECT_GROUP, preempt },
	{ RM_CTRL_GROUP_SET_INTERLEAVE, 4, OBJECT_GROUP, set_interleave },
	{ 0xa06c0108, 4, OBJECT_GROUP, get_interleave },
	{ SOFT_CTRL_GROUP_GET_DONE, sizeof(struct soft_done_params), OBJECT_GROUP, get_group_done },
	{ SOFT_CTRL_GROUP_GET_TIME, sizeof(struct soft_time_params), OBJECT_GROUP, get_group_time },
	{ 0xa06f0103, 3, OBJECT_CHANNEL, schedule_channel },
	{ 0xa06f0104, 4, OBJECT_CHANNEL, accept }, /* BIND */
	{ RM_CTRL_CHANNEL_SET_INTERLEAVE, 4, EITHER, set_interleave },
	{ 0xa06f0110, 4, EITHER, get_interleave },
	{ RM_CTRL_CHANNEL_GET_TOKEN, 4, OBJECT_CHANNEL, get_token },
	{ 0xc36f010a, 4, OBJECT_CHANNEL, accept }, /* SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX */
	{ SOFT_CTRL_CHANNEL_SET_SMS, sizeof(struct soft_sms_params), OBJECT_CHANNEL, set_sms },
	{ SOFT_CTRL_SPACE_SET_PRINT, sizeof(struct soft_print_params), OBJECT_SPACE, set_print },
	{ 0 },
};
