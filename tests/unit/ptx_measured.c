/* ptx: results of single instructions measured on a real GPU (tests/data/ptx/h200.txt) are the interpreter's too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "ptx_run.h"

#define BATCH 64
#define LINE 256

/* Lines of one instruction. */
struct batch {
	char text[LINE], types[8];
	unsigned count, first_line;
	uint64_t a[BATCH], b[BATCH], c[BATCH], measured[BATCH];
};

struct line {
	char text[LINE], types[8];
	unsigned long long a, b, c, measured;
};

static void parse_line(const char *from, unsigned number, struct line *line)
{
	int used = 0;

	if (strlen(from) >= LINE ||
	    sscanf(from, "%255[^|]|%7[^|]|%llx %llx %llx|%llx %n", line->text, line->types, &line->a,
		   &line->b, &line->c, &line->measured, &used) != 6 ||
	    from[used])
		fail_msg("h200.txt:%u: not `instruction|types|a b c|result`", number);
}

static void run_batch(const struct batch *batch)
{
	uint64_t d[BATCH];

	if (!batch->count)
		return;
	rig_op(batch->text, batch->types, batch->count, batch->a, batch->b, batch->c, d);
	for (unsigned i = 0; i < batch->count; i++)
		if (d[i] != batch->measured[i])
			fail_msg("h200.txt, from line %u: %s of %#llx %#llx %#llx: %#llx, measured %#llx",
				 batch->first_line, batch->text, (unsigned long long)batch->a[i],
				 (unsigned long long)batch->b[i], (unsigned long long)batch->c[i],
				 (unsigned long long)d[i], (unsigned long long)batch->measured[i]);
}

static void add_line(struct batch *batch, const struct line *line, unsigned number)
{
	if (batch->count == BATCH || strcmp(batch->text, line->text) != 0 ||
	    strcmp(batch->types, line->types) != 0) {
		run_batch(batch);
		memset(batch, 0, sizeof(*batch));
		memcpy(batch->text, line->text, sizeof(batch->text));
		memcpy(batch->types, line->types, sizeof(batch->types));
		batch->first_line = number;
	}
	batch->a[batch->count] = line->a;
	batch->b[batch->count] = line->b;
	batch->c[batch->count] = line->c;
	batch->measured[batch->count++] = line->measured;
}

static void what_an_h200_computes_is_computed(void **state)
{
	const char *folder = getenv("BELFRY_TEST_DATA");
	char path[512], text[LINE];
	cleanup_file FILE *file = NULL;
	struct batch batch = { 0 };
	unsigned number = 0, count = 0;

	(void)state;
	snprintf(path, sizeof(path), "%s/ptx/h200.txt", folder ? folder : BELFRY_TEST_DATA);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(text, sizeof(text), file)) {
		struct line line = { 0 };

		number++;
		if (text[0] == '#')
			continue;
		parse_line(text, number, &line);
		add_line(&batch, &line, number);
		count++;
	}
	run_batch(&batch);
	assert_true(count > 100); /* the file was there, and whole */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_an_h200_computes_is_computed) };

	return cmocka_run_group_tests_name("ptx as measured", tests, NULL, NULL);
}
