#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"

enum { HELP_KEY = 256, FIRST_KEY, NEAR_LENGTH = 5, NAME_SHOWN = 40, LEFT_ROOM = 64 };

/* The rows of all tables of a command. */
struct row {
	const struct bf_option *option;
	size_t at; /* of the member, from the beginning of the whole structure */
};

struct rows {
	struct row list[BF_OPTIONS_MAX];
	size_t count;
};

int bf_take_flag(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option, (void)value, (void)err;
	*(bool *)member = true;
	return 0;
}

int bf_take_text(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option, (void)err;
	*(const char **)member = value;
	return 0;
}

int bf_take_time(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option;
	return bf_parse_time(value, member, err);
}

int bf_take_log(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	int level = bf_log_level_parse(value);

	if (level < 0)
		return bf_fail(err, EINVAL, "--%s '%.40s': not error, warn, info or debug", option->name,
			       value);
	*(int *)member = level;
	return 0;
}

static void add_rows(struct rows *rows, const struct bf_option *options, size_t at)
{
	for (; options && (options->name || options->also); options++)
		if (options->also)
			add_rows(rows, options->also, at + options->at);
		else if (rows->count < BF_OPTIONS_MAX)
			rows->list[rows->count++] = (struct row){ options, at + options->at };
}

static bool is_optional(const struct bf_option *option)
{
	return option->value && option->value[0] == '[';
}

/* For getopt_long. */
struct words {
	struct option names[BF_OPTIONS_MAX + 2];
	char letters[2 * BF_OPTIONS_MAX + 8];
};

static void fill_words(const struct bf_command *command, const struct rows *rows, struct words *words)
{
	char *letter = words->letters;

	if (command->stops_at_argument)
		*letter++ = '+';
	*letter++ = ':'; /* a missing value is reported as ':' */
	*letter++ = 'h';
	for (size_t i = 0; i < rows->count; i++) {
		const struct bf_option *option = rows->list[i].option;
		int kind = is_optional(option) ? optional_argument
			   : option->value     ? required_argument
					       : no_argument;

		words->names[i] = (struct option){ option->name, kind, NULL, FIRST_KEY + (int)i };
		if (option->letter)
			*letter++ = option->letter;
		if (option->letter && option->value)
			*letter++ = ':';
	}
	words->names[rows->count] = (struct option){ "help", no_argument, NULL, HELP_KEY };
	words->names[rows->count + 1] = (struct option){ NULL, 0, NULL, 0 };
	*letter = 0;
}

/* How many letters must be inserted, removed or replaced to turn one name into the other. `name` is at most
 * NAME_SHOWN long. */
static unsigned distance(const char *name, size_t length, const char *other)
{
	unsigned row[NAME_SHOWN + 1];

	for (unsigned i = 0; i <= length; i++)
		row[i] = i;
	for (unsigned j = 1; *other; other++, j++) {
		unsigned diagonal = row[0];

		row[0] = j;
		for (size_t i = 1; i <= length; i++) {
			unsigned best = diagonal + (name[i - 1] != *other);

			diagonal = row[i];
			best = row[i - 1] + 1 < best ? row[i - 1] + 1 : best;
			row[i] = diagonal + 1 < best ? diagonal + 1 : best;
		}
	}
	return row[length];
}

/* The listed option whose name is most like this one; NULL: none is like it. */
static const char *nearest(const struct rows *rows, const char *name, size_t length)
{
	unsigned least = length < NEAR_LENGTH ? 2 : 3; /* the first distance that is too large */
	const char *found = NULL;

	if (length > NAME_SHOWN)
		return NULL;
	for (size_t i = 0; i < rows->count; i++) {
		const struct bf_option *option = rows->list[i].option;
		unsigned differs = option->help ? distance(name, length, option->name) : least;

		if (differs < least && differs < length) {
			least = differs;
			found = option->name;
		}
	}
	return found;
}

static int fail_unknown(const struct rows *rows, const char *word, struct bf_error *err)
{
	size_t length = strcspn(word, "=");
	int shown = length < NAME_SHOWN ? (int)length : NAME_SHOWN;
	const char *near = nearest(rows, word + 2, length - 2);

	if (near)
		return bf_fail(err, EINVAL, "unknown option '%.*s' (did you mean '--%s'?)", shown, word,
			       near);
	return bf_fail(err, EINVAL, "unknown option '%.*s'", shown, word);
}

static const struct row *row_of(const struct rows *rows, int key)
{
	for (size_t i = 0; i < rows->count; i++)
		if (key == FIRST_KEY + (int)i || key == rows->list[i].option->letter)
			return &rows->list[i];
	return NULL;
}

/* getopt_long returned '?' or ':'. optopt is 0 for an unknown name, and otherwise a letter or a key. */
static int fail_option(const struct rows *rows, char *const *argv, bool is_missing, struct bf_error *err)
{
	const char *word = argv[optind - 1];
	const struct row *row = row_of(rows, optopt);
	int letter = optopt < HELP_KEY && isprint(optopt) ? optopt : '?';

	if (!optopt)
		return fail_unknown(rows, word, err);
	if (optopt < HELP_KEY && is_missing)
		return bf_fail(err, EINVAL, "option '-%c' needs a value", letter);
	if (optopt < HELP_KEY)
		return bf_fail(err, EINVAL, "unknown option '-%c'", letter);
	return bf_fail(err, EINVAL, "option '--%s' %s", row ? row->option->name : "help",
		       is_missing ? "needs a value" : "takes no value");
}

static int check_count(const struct bf_command *command, int count, struct bf_error *err)
{
	if (count >= command->least && (command->most < 0 || count <= command->most))
		return 0;
	return bf_fail(err, EINVAL, "%s",
		       command->wrong_count ? command->wrong_count : "it takes no arguments");
}

int bf_command_parse(const struct bf_command *command, int argc, char **argv, void *to, struct bf_error *err)
{
	struct rows rows = { .count = 0 };
	struct words words = { .letters = "" };
	int rc;

	add_rows(&rows, command->options, 0);
	fill_words(command, &rows, &words);
	optind = 0; /* glibc: begin with a new argv */
	opterr = 0;
	for (int key; (key = getopt_long(argc, argv, words.letters, words.names, NULL)) != -1;) {
		const struct row *row = row_of(&rows, key);

		if (key == 'h' || key == HELP_KEY)
			return BF_COMMAND_HELP;
		if (!row)
			return fail_option(&rows, argv, key == ':', err);
		rc = row->option->take((char *)to + row->at, row->option, optarg, err);
		if (rc)
			return rc;
	}
	rc = check_count(command, argc - optind, err);
	return rc ? rc : optind;
}

/* "-o, --output FILE" */
static int format_left(const struct bf_option *option, char *to, size_t room)
{
	char letter[8] = "";
	bool is_spaced = option->value && !is_optional(option);

	if (option->letter)
		snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	return snprintf(to, room, "%s--%s%s%s", letter, option->name, is_spaced ? " " : "",
			option->value ? option->value : "");
}

static void write_row(const struct bf_option *option, int width, FILE *to)
{
	const char *line = option->help;
	char left[LEFT_ROOM];

	format_left(option, left, sizeof(left));
	for (const char *end; line; line = *end ? end + 1 : NULL) {
		end = line + strcspn(line, "\n");
		fprintf(to, "  %-*s  %.*s\n", width, line == option->help ? left : "", (int)(end - line),
			line);
	}
}

void bf_command_help(const struct bf_command *command, FILE *to)
{
	static const struct bf_option help = { .name = "help", .help = "show this text" };
	struct rows rows = { .count = 0 };
	char left[LEFT_ROOM];
	int width = format_left(&help, left, sizeof(left));

	add_rows(&rows, command->options, 0);
	for (size_t i = 0; i < rows.count; i++) {
		const struct bf_option *option = rows.list[i].option;
		int length = option->help ? format_left(option, left, sizeof(left)) : 0;

		width = length > width ? length : width;
	}
	fprintf(to, "%s\n", command->about);
	for (size_t i = 0; i < rows.count; i++)
		if (rows.list[i].option->help)
			write_row(rows.list[i].option, width, to);
	write_row(&help, width, to);
	if (command->after)
		fprintf(to, "\n%s", command->after);
}
