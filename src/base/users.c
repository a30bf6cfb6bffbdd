#include "base/users.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One uid is asked about once: a list of many vGPUs has few owners. */
enum { CACHED = 64 };
static struct {
	uid_t uid;
	bool is_used, has_name;
	char name[BF_USER_ROOM];
} cache[CACHED];

const char *bf_user_name(uid_t uid)
{
	unsigned at = uid % CACHED;
	const struct passwd *user;

	if (!cache[at].is_used || cache[at].uid != uid) {
		user = getpwuid(uid);
		cache[at].uid = uid;
		cache[at].is_used = true;
		cache[at].has_name = user && user->pw_name[0];
		snprintf(cache[at].name, sizeof(cache[at].name), "%s", user ? user->pw_name : "");
	}
	return cache[at].has_name ? cache[at].name : NULL;
}

const char *bf_user_text(uid_t uid, char *to, size_t room)
{
	const char *name = bf_user_name(uid);

	if (name)
		snprintf(to, room, "%s", name);
	else
		snprintf(to, room, "%u", uid);
	return to;
}

/* The length of a uid in decimal digits that is a word of its own; 0: there is none. */
static size_t uid_length(const char *text, uid_t *uid)
{
	size_t length = strspn(text, "0123456789");
	unsigned long long value;

	if (!length || length > 10 || isalnum((unsigned char)text[length]) || text[length] == '_')
		return 0;
	errno = 0;
	value = strtoull(text, NULL, 10);
	*uid = (uid_t)value;
	return value < (uid_t)-1 ? length : 0;
}

const char *bf_name_users(const char *text, char *to, size_t room)
{
	static const char word[] = "user ";
	size_t used = 0;

	while (*text && used + 1 < room) {
		bool is_word = !strncmp(text, word, sizeof(word) - 1);
		uid_t uid = 0;
		size_t length = is_word ? uid_length(text + sizeof(word) - 1, &uid) : 0;
		const char *name = length ? bf_user_name(uid) : NULL;
		int wrote;

		if (!name) {
			to[used++] = *text++;
			continue;
		}
		wrote = snprintf(to + used, room - used, "%s%s", word, name);
		used = (size_t)wrote < room - used ? used + (size_t)wrote : room - 1;
		text += sizeof(word) - 1 + length;
	}
	to[used] = 0;
	return to;
}
