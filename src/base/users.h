/* Names of users, for what people read. A lookup may ask a name service and take long: not for belfryd while it serves. */
#ifndef BELFRY_BASE_USERS_H
#define BELFRY_BASE_USERS_H

#include <stddef.h>
#include <sys/types.h>

enum { BF_USER_ROOM = 64 };

/* The user's name; NULL: the number has none. The answer is valid until the next call. */
const char *bf_user_name(uid_t uid);
/* The name, or the number where there is none. */
const char *bf_user_text(uid_t uid, char *to, size_t room);
/* Messages of belfryd name a user as "user 1000". Here it becomes "user alice", where there is such a name. */
const char *bf_name_users(const char *text, char *to, size_t room);

#endif
