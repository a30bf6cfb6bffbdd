/* The users and groups that a configuration names, and their numbers. A lookup may ask a name service and take long. So
 * belfryd parses a new configuration with a table: names that it does not have are noted, and a helper process looks them
 * up (names_serve). At the start and for --check, without a table, names are looked up at once. */
#ifndef BELFRY_ROUTER_NAMES_H
#define BELFRY_ROUTER_NAMES_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/error.h"

struct names_id {
	uint32_t id;  /* of the user or the group */
	uint32_t gid; /* of a user: the user's group */
};

struct names_entry {
	char *name;
	bool is_group, is_known, exists;
	struct names_id id;
};

struct names {
	struct names_entry *list;
	size_t count;
};

/* 0, -ENOENT if there is no such name, or -ENOMEM. With a table that does not have the name: 0 and the number of nobody,
 * which must not be used. names NULL: look it up now. */
int names_find(struct names *names, bool is_group, const char *name, struct names_id *id);
/* The names that were not found in the table, one a line, for names_serve(); NULL: none, or no memory. To be freed. */
char *names_unknown(const struct names *names);
bool names_are_known(const struct names *names);
/* The answers of names_serve(). -EPROTO: they are not complete. */
int names_take(struct names *names, const char *answers);
void names_free(struct names *names);

/* Look up the names of `in`, and write a line for each to `out`. Returns the exit status. */
int names_serve(FILE *in, FILE *out);

/* Start a process that looks up `names` (names_unknown), with this signal mask. Returns the end of a pipe with its answers,
 * which does not block, or -errno. *pid is the child. */
int names_start(const char *names, const sigset_t *mask, pid_t *pid, struct bf_error *err);

#endif
