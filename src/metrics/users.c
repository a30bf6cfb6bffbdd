/* Names of users, cached: they may come from a directory over the network. */
#include <pwd.h>
#include <stdio.h>

#include "base/clock.h"
#include "metrics/metrics.h"

enum { KEPT = 256, LOOK_UP_BYTES = 16384 };
static const uint64_t kept_ns = 300000000000ull;

static struct known {
	uint32_t uid;
	uint64_t until_ns; /* 0: the entry is empty */
	char name[64];
} known[KEPT];

const char *metrics_user(uint32_t uid)
{
	struct known *entry = &known[uid % KEPT];
	char room[LOOK_UP_BYTES];
	struct passwd user, *found = NULL;

	if (entry->until_ns > bf_now_ns() && entry->uid == uid)
		return entry->name;
	if (getpwuid_r(uid, &user, room, sizeof(room), &found) || !found)
		snprintf(entry->name, sizeof(entry->name), "%u", uid);
	else
		snprintf(entry->name, sizeof(entry->name), "%s", user.pw_name);
	entry->uid = uid;
	entry->until_ns = bf_now_ns() + kept_ns;
	return entry->name;
}
