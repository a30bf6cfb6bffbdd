/* A channel has the privileges of the user whose program makes it. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stage.h"

/* Belfry runs as root, and must not pass privileges of root on to a channel of another user. */
static struct device_ops changed_ops;
static int (*real_call)(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size);
static uint32_t last_channel_flags;

static int note_flags(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	const struct rm_arg_alloc *alloc = arg;

	if (nr == RM_ESC_ALLOC && size == sizeof(*alloc) && alloc->class_id == 0xc86f)
		memcpy(&last_channel_flags,
		       (const uint8_t *)(uintptr_t)alloc->params + device->layout->channel_flags,
		       sizeof(last_channel_flags));
	return real_call(device, fd, nr, arg, size);
}

static void watch_flags(struct card *card)
{
	changed_ops = *card->device->ops;
	real_call = changed_ops.call;
	changed_ops.call = note_flags;
	card->device->ops = &changed_ops;
}

static void program_makes_channels_as_another_user(struct actor *a)
{
	actor_context(a);
	actor_say(a, 'r');
	CHECK(!seteuid(65534));
	actor_add_channel(a, 1);
	actor_say(a, 'u');
}

static void channel_of_an_ordinary_user_has_no_privilege(void)
{
	struct stage_setup setup = { .options = { .interleave = -1 }, .change = watch_flags };
	const uint32_t deny = RM_CHANNEL_DENY_PHYSICAL_CE | RM_CHANNEL_DENY_AUTH_PRIV;
	struct stage s;

	if (geteuid()) {
		check_skip("needs to be root, and to become another user");
		return;
	}
	stage_start_as(&s, &setup, program_makes_channels_as_another_user, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(last_channel_flags & deny, 0);
	stage_go_on(&s);
	stage_until(&s, 'u');
	CHECK_EQUAL(last_channel_flags & deny, deny);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The file of the software GPU is opened by the program itself. */
static void let_everybody_open(struct card *card)
{
	char path[sizeof(card->folder) + sizeof("/socket")];

	snprintf(path, sizeof(path), "%s/socket", card->folder);
	CHECK(!chmod(card->folder, 0711) && !chmod(path, 0666));
	watch_flags(card);
}

/* As a program does that executes a setuid program while its call is handled. */
static void program_becomes_root_later(struct actor *a)
{
	CHECK(!seteuid(65534));
	actor_context(a);
	actor_say(a, 'u');
	CHECK(!seteuid(0));
	actor_add_channel(a, 1);
	actor_say(a, 'r');
}

static void process_that_becomes_root_later_gets_no_privilege(void)
{
	struct stage_setup setup = { .options = { .interleave = -1 }, .change = let_everybody_open };
	const uint32_t deny = RM_CHANNEL_DENY_PHYSICAL_CE | RM_CHANNEL_DENY_AUTH_PRIV;
	struct stage s;

	if (geteuid()) {
		check_skip("needs to be root, and to become another user");
		return;
	}
	stage_start_as(&s, &setup, program_becomes_root_later, 0);
	stage_until(&s, 'u');
	CHECK_EQUAL(last_channel_flags & deny, deny);
	last_channel_flags = 0;
	stage_go_on(&s);
	stage_until(&s, 'r');
	CHECK_EQUAL(last_channel_flags & deny, deny);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(channel_of_an_ordinary_user_has_no_privilege);
	STAGE_TEST(process_that_becomes_root_later_gets_no_privilege);
	return check_status();
}
