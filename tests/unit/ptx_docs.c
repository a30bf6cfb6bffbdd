/* ptx: the table of instructions in docs/ptx.md is the decoder's own. `ptx_docs print` writes it. Its last column says
 * where the tests use such an instruction: in what nvcc made of CUDA C, alone on chosen operands, or measured on a GPU. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "soft/ptx/ptx.h"

#define ROOM ((size_t)256 << 10)
#define TEXTS_ROOM ((size_t)4 << 20)

static size_t add_words(char *to, const char *words)
{
	size_t n = 0;

	for (; *words; words++) /* a '+' marks a suffix that must be there */
		if (*words != '+')
			to[n++] = *words;
	to[n] = '\0';
	return n;
}

/* All files of a pattern, one after the other. */
static char *read_all(const char *pattern)
{
	char *text = calloc(1, TEXTS_ROOM);
	size_t length = 0;
	glob_t found;

	assert_non_null(text);
	assert_int_equal(glob(pattern, GLOB_BRACE, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		cleanup_file FILE *file = fopen(found.gl_pathv[i], "r");

		assert_non_null(file);
		length += fread(text + length, 1, TEXTS_ROOM - 1 - length, file);
	}
	globfree(&found);
	return text;
}

static bool is_in_list(const char *list, const char *word, size_t length)
{
	for (const char *at = list; (at = strstr(at, word)) && at; at += length)
		if ((at == list || at[-1] == ' ' || at[-1] == '+') && (at[length] == ' ' || !at[length]))
			return true;
	return false;
}

/* Whether the suffixes after an instruction's name are all the row's, and one of them is a type of it. */
static bool suffixes_fit(const struct ptx_row_info *row, const char *at)
{
	bool has_type = !*row->types;

	while (*at == '.') {
		size_t length = strcspn(++at, ". \t\n;,");
		char word[32];

		if (!length || length >= sizeof(word))
			return false;
		memcpy(word, at, length);
		word[length] = 0;
		if (is_in_list(row->types, word, length))
			has_type = true;
		else if (!is_in_list(row->modifiers, word, length) &&
			 !is_in_list(row->source_types, word, length))
			return false;
		at += length;
	}
	return has_type;
}

static bool is_used(const struct ptx_row_info *row, const char *text)
{
	size_t length = strlen(row->name);

	for (const char *at = text; (at = strstr(at, row->name)); at += length) {
		bool is_start = at == text || strchr(" \t\n\"{};", at[-1]);

		if (is_start && strchr(". \t\n;", at[length]) && suffixes_fit(row, at + length))
			return true;
	}
	return false;
}

static size_t add_row(char *to, const struct ptx_row_info *row, char *const texts[3])
{
	static const char *const where[3] = { "nvcc", "alone", "H200" };
	size_t n = (size_t)sprintf(to, "| `%s` | ", row->name);

	n += add_words(to + n, row->types);
	if (*row->source_types) {
		n += (size_t)sprintf(to + n, " from ");
		n += add_words(to + n, row->source_types);
	}
	n += (size_t)sprintf(to + n, " | ");
	n += add_words(to + n, row->modifiers);
	n += (size_t)sprintf(to + n, " |");
	for (int i = 0; i < 3; i++)
		if (is_used(row, texts[i]))
			n += (size_t)sprintf(to + n, " %s", where[i]);
	return n + (size_t)sprintf(to + n, " |\n");
}

static void write_tables(char *to)
{
	/* Those of Triton are only woven and assembled. */
	cleanup_free char *compiled = read_all(BELFRY_TEST_DATA "/ptx/{[!t]*,te*}.ptx");
	cleanup_free char *alone = read_all(BELFRY_TEST_DATA "/../unit/ptx_[a-c,e-z]*.c");
	cleanup_free char *measured = read_all(BELFRY_TEST_DATA "/ptx/h200.txt");
	char *const texts[3] = { compiled, alone, measured };
	struct ptx_row_info row;
	size_t n = (size_t)sprintf(
		to, "| instruction | types | suffixes | tested |\n| --- | --- | --- | --- |\n");

	for (uint32_t i = 0; ptx_row_at(i, &row); i++)
		if (!row.is_refused)
			n += add_row(to + n, &row, texts);
	n += (size_t)sprintf(to + n, "\nKnown and refused:");
	for (uint32_t i = 0; ptx_row_at(i, &row); i++)
		if (row.is_refused)
			n += (size_t)sprintf(to + n, " `%s`", row.name);
	sprintf(to + n, "\n");
}

static void the_document_holds_the_decoders_table(void **state)
{
	cleanup_free char *wanted = calloc(1, ROOM), *found = calloc(1, ROOM);
	cleanup_file FILE *file = fopen(BELFRY_TEST_DATA "/../../docs/ptx.md", "r");

	(void)state;
	assert_true(wanted && found && file);
	assert_true(fread(found, 1, ROOM - 1, file) > 0);
	write_tables(wanted);
	if (!strstr(found, wanted))
		fail_msg("docs/ptx.md is not up to date: put the output of `ptx_docs print` there");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(the_document_holds_the_decoders_table) };
	cleanup_free char *text = calloc(1, ROOM);

	if (argc < 2 || strcmp(argv[1], "print") || !text)
		return cmocka_run_group_tests_name("ptx docs", tests, NULL, NULL);
	write_tables(text);
	fputs(text, stdout);
	return 0;
}
