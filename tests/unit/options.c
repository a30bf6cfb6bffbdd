/* options: command lines that are parsed by a table, the messages about wrong ones, and the text of --help. */
#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct place {
	const char *city;
	bool is_far;
};

struct trip {
	const char *output;
	uint64_t for_us;
	bool is_verbose;
	unsigned stops;
	char public[8];
	struct place place;
};

static int take_stop(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	unsigned *stops = member;

	assert_string_equal(option->name, "stop");
	if (!strcmp(value, "nowhere"))
		return bf_fail(err, 2, "--stop %s: there is no such place", value);
	(*stops)++;
	return 0;
}

static int take_public(void *member, const struct bf_option *option, const char *value, struct bf_error *err)
{
	(void)option, (void)err;
	snprintf(member, 8, "%s", value ? value : "plain");
	return 0;
}

static const struct bf_option place_options[] = {
	BF_OPTION("city", 0, "NAME", "where to go", bf_take_text, struct place, city),
	BF_OPTION("far", 0, NULL, "whether it is far", bf_take_flag, struct place, is_far),
	BF_OPTIONS_END,
};
static const struct bf_option options[] = {
	BF_OPTION("output", 'o', "FILE", "where to write\n(standard output)", bf_take_text, struct trip,
		  output),
	BF_OPTIONS_OF(place_options, struct trip, place),
	BF_OPTION("for", 0, "TIME", "how long", bf_take_time, struct trip, for_us),
	BF_OPTION("stop", 0, "NAME", "again for more", take_stop, struct trip, stops),
	BF_OPTION("public", 0, "[=yes|no]", "whether others may", take_public, struct trip, public),
	BF_OPTION("verbose", 'v', NULL, "say more", bf_take_flag, struct trip, is_verbose),
	BF_OPTION("internal", 0, NULL, NULL, bf_take_flag, struct trip, is_verbose),
	BF_OPTIONS_END,
};
static const struct bf_command command = { .name = "trip",
					   .about = "usage: trip [OPTION...] [ARG...]\n",
					   .options = options,
					   .after = "The end.\n",
					   .most = 2,
					   .wrong_count = "give at most two" };

static struct bf_error why;

/* Parses words separated by spaces. argv is as long as it needs to be. */
static int parse_as(const struct bf_command *as, const char *line, struct trip *trip, char **argv)
{
	static char copy[256];
	int argc = 0;

	*trip = (struct trip){ 0 };
	why = (struct bf_error){ 0 };
	snprintf(copy, sizeof(copy), "trip %s", line);
	for (char *rest = copy, *word; (word = strtok_r(rest, " ", &rest));)
		argv[argc++] = word;
	argv[argc] = NULL;
	return bf_command_parse(as, argc, argv, trip, &why);
}

static int parse(const char *line, struct trip *trip)
{
	char *argv[32];

	return parse_as(&command, line, trip, argv);
}

static void assert_refused(const char *line, const char *text)
{
	struct trip trip;

	assert_true(parse(line, &trip) < 0);
	assert_string_equal(why.text, text);
}

static void options_fill_their_members(void **state)
{
	struct trip trip;

	(void)state;
	assert_int_equal(parse("--output a.txt --for 2ms -v --stop x --stop=y --city Rome --far", &trip), 12);
	assert_string_equal(trip.output, "a.txt");
	assert_int_equal(trip.for_us, 2000);
	assert_true(trip.is_verbose);
	assert_int_equal(trip.stops, 2);
	assert_string_equal(trip.place.city, "Rome");
	assert_true(trip.place.is_far);
	assert_int_equal(parse("-vob.txt", &trip), 2);
	assert_true(trip.is_verbose);
	assert_string_equal(trip.output, "b.txt");
	assert_int_equal(parse("--internal", &trip), 2);
	assert_true(trip.is_verbose);
}

static void a_value_may_be_optional(void **state)
{
	struct trip trip;

	(void)state;
	assert_int_equal(parse("--public", &trip), 2);
	assert_string_equal(trip.public, "plain");
	assert_int_equal(parse("--public=no", &trip), 2);
	assert_string_equal(trip.public, "no");
	assert_int_equal(parse("--public no", &trip), 2); /* an argument */
	assert_string_equal(trip.public, "plain");
}

static void names_may_be_abbreviated(void **state)
{
	struct trip trip;

	(void)state;
	assert_int_equal(parse("--out x --verb", &trip), 4);
	assert_string_equal(trip.output, "x");
	assert_true(trip.is_verbose);
}

static void options_may_stand_behind_arguments(void **state)
{
	char *argv[32];
	struct trip trip;
	int first = parse_as(&command, "one -v two", &trip, argv);

	(void)state;
	assert_int_equal(first, 2);
	assert_true(trip.is_verbose);
	assert_string_equal(argv[first], "one");
	assert_string_equal(argv[first + 1], "two");
}

static void options_may_end_at_the_first_argument(void **state)
{
	struct bf_command strict = command;
	char *argv[32];
	struct trip trip;

	(void)state;
	strict.stops_at_argument = true;
	strict.most = -1;
	assert_int_equal(parse_as(&strict, "-v one -o two three", &trip, argv), 2);
	assert_true(trip.is_verbose);
	assert_null(trip.output);
}

static void two_dashes_end_the_options(void **state)
{
	char *argv[32];
	struct trip trip;

	(void)state;
	assert_int_equal(parse_as(&command, "-- -v", &trip, argv), 2);
	assert_false(trip.is_verbose);
	assert_string_equal(argv[2], "-v");
}

static void wrong_options_are_named(void **state)
{
	(void)state;
	assert_refused("--zork", "unknown option '--zork'");
	assert_refused("--zork=value", "unknown option '--zork'");
	assert_refused("-q", "unknown option '-q'");
	assert_refused("-vq", "unknown option '-q'");
	assert_refused("--output", "option '--output' needs a value");
	assert_refused("-o", "option '-o' needs a value");
	assert_refused("--verbose=3", "option '--verbose' takes no value");
	assert_refused("--help=3", "option '--help' takes no value");
	assert_refused("--stop nowhere --zork", "--stop nowhere: there is no such place");
}

static void the_nearest_option_is_named(void **state)
{
	char line[128] = "--";

	(void)state;
	assert_refused("--verbos-", "unknown option '--verbos-' (did you mean '--verbose'?)");
	assert_refused("--ouptut=x", "unknown option '--ouptut' (did you mean '--output'?)");
	assert_refused("--cty", "unknown option '--cty' (did you mean '--city'?)");
	assert_refused("--zork", "unknown option '--zork'");	     /* two of four letters are too many */
	assert_refused("--intern-l", "unknown option '--intern-l'"); /* it is not listed */
	assert_refused("--ab", "unknown option '--ab'");	     /* it has no letter of any name */
	memset(line + 2, 'x', 100);
	assert_refused(line, "unknown option '--xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'");
}

static void arguments_are_counted(void **state)
{
	struct bf_command none = { .name = "none", .about = "" };
	char *argv[32];
	struct trip trip;

	(void)state;
	assert_int_equal(parse("a b", &trip), 1);
	assert_refused("a b c", "give at most two");
	assert_int_equal(parse_as(&none, "", &trip, argv), 1);
	assert_true(parse_as(&none, "a", &trip, argv) < 0);
	assert_string_equal(why.text, "it takes no arguments");
	none.least = 1;
	none.most = -1;
	none.wrong_count = "give one";
	assert_true(parse_as(&none, "", &trip, argv) < 0);
	assert_string_equal(why.text, "give one");
	assert_int_equal(parse_as(&none, "a b c d", &trip, argv), 1);
}

static void help_comes_from_the_table(void **state)
{
	struct trip trip;
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	(void)state;
	assert_int_equal(parse("--help --zork", &trip), BF_COMMAND_HELP);
	assert_int_equal(parse("-h", &trip), BF_COMMAND_HELP);
	assert_non_null(to);
	bf_command_help(&command, to);
	fclose(to);
	assert_string_equal(text, "usage: trip [OPTION...] [ARG...]\n"
				  "\n"
				  "  -o, --output FILE  where to write\n"
				  "                     (standard output)\n"
				  "  --city NAME        where to go\n"
				  "  --far              whether it is far\n"
				  "  --for TIME         how long\n"
				  "  --stop NAME        again for more\n"
				  "  --public[=yes|no]  whether others may\n"
				  "  -v, --verbose      say more\n"
				  "  --help             show this text\n"
				  "\n"
				  "The end.\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_fill_their_members),
		cmocka_unit_test(a_value_may_be_optional),
		cmocka_unit_test(names_may_be_abbreviated),
		cmocka_unit_test(options_may_stand_behind_arguments),
		cmocka_unit_test(options_may_end_at_the_first_argument),
		cmocka_unit_test(two_dashes_end_the_options),
		cmocka_unit_test(wrong_options_are_named),
		cmocka_unit_test(the_nearest_option_is_named),
		cmocka_unit_test(arguments_are_counted),
		cmocka_unit_test(help_comes_from_the_table),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
