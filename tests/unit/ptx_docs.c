/* ptx: the table of instructions in docs/ptx.md is the decoder's own. `ptx_docs print` writes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "soft/ptx/ptx.h"

#define ROOM ((size_t)256 << 10)

static size_t add_words(char *to, const char *words)
{
	size_t n = 0;

	for (; *words; words++) /* a '+' marks a suffix that must be there */
		if (*words != '+')
			to[n++] = *words;
	to[n] = '\0';
	return n;
}

static size_t add_row(char *to, const struct ptx_row_info *row)
{
	size_t n = (size_t)sprintf(to, "| `%s` | ", row->name);

	n += add_words(to + n, row->types);
	if (*row->source_types) {
		n += (size_t)sprintf(to + n, " from ");
		n += add_words(to + n, row->source_types);
	}
	n += (size_t)sprintf(to + n, " | ");
	n += add_words(to + n, row->modifiers);
	return n + (size_t)sprintf(to + n, " |\n");
}

static void write_tables(char *to)
{
	struct ptx_row_info row;
	size_t n = (size_t)sprintf(to, "| instruction | types | suffixes |\n| --- | --- | --- |\n");

	for (uint32_t i = 0; ptx_row_at(i, &row); i++)
		if (!row.is_refused)
			n += add_row(to + n, &row);
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
