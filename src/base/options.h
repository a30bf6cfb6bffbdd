/* options: the command line of a program or subcommand, described by a table. Parsing, the messages about wrong options and
 * the text of --help come from that table. Never prints by itself, and never exits. */
#ifndef BELFRY_BASE_OPTIONS_H
#define BELFRY_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

/* A row. A table ends with an empty row. Every command has --help and -h without a row. */
struct bf_option {
	const char *name;  /* "output": --output */
	char letter;	   /* 'o': -o; 0: none */
	const char *value; /* "FILE": the name of its value; "[=yes|no]": an optional value; NULL: none */
	const char *help;  /* lines separated by '\n'; NULL: not listed */
	/* Called with the member at offset `at`. `value` is NULL if there is none. */
	int (*take)(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
	size_t at; /* offset of a member in the structure that the command line fills */
	/* Instead of all this but `at`: the rows of another table, which fills the structure at offset `at`. */
	const struct bf_option *also;
};

/* Rows. */
#define BF_OPTION(name, letter, value, help, take, type, member) \
	{ \
		(name), (letter), (value), (help), (take), offsetof(type, member), NULL \
	}
#define BF_OPTIONS_OF(table, type, member) \
	{ \
		.also = (table), .at = offsetof(type, member) \
	}
#define BF_OPTIONS_END \
	{ \
		0 \
	}

struct bf_command {
	const char *name;		 /* "belfry trace", for messages */
	const char *about;		 /* --help before the options: usage and description */
	const struct bf_option *options; /* NULL: none but --help */
	const char *after;		 /* --help after the options; NULL: nothing */
	int least, most;		 /* arguments; most -1: any number */
	const char *wrong_count; /* the error if there are fewer or more; NULL: "it takes no arguments" */
	bool stops_at_argument;	 /* the options end at the first argument */
};

enum { BF_COMMAND_HELP = 0, BF_OPTIONS_MAX = 32 };

/* Fills the structure `to`. Returns the index of the first argument in argv, which is at least 1; BF_COMMAND_HELP if
 * --help was given; or -errno. Options may stand behind arguments, and names may be abbreviated, as with getopt_long(3). */
int bf_command_parse(const struct bf_command *command, int argc, char **argv, void *to, struct bf_error *err);
void bf_command_help(const struct bf_command *command, FILE *to);

/* For bf_option::take. The member is a bool, a const char *, a uint64_t (microseconds), or an int (enum bf_log_level). */
int bf_take_flag(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int bf_take_text(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int bf_take_time(void *member, const struct bf_option *option, const char *value, struct bf_error *err);
int bf_take_log(void *member, const struct bf_option *option, const char *value, struct bf_error *err);

#endif
