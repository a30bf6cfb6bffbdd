/* Source lines, from .BTF.ext (Documentation/bpf/btf.rst in Linux). They are for messages only: a damaged
 * table gives messages without lines. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "policy/file.h"
#include "probe/inside.h"

enum {
	LINES_MAX = 1 << 16,
	NAME_BYTES = 80,
	PATH_BYTES = 4096,
	RECORD_BYTES = 16,
	HEADER_BYTES = 24,
	SECTION_BYTES = 8
};

struct reader {
	struct probe *probe;
	const struct elf_view *view;
	const struct btf *btf;
	const uint8_t *at;
	size_t left;
};

static const uint8_t *take(struct reader *reader, size_t bytes)
{
	const uint8_t *at = reader->at;

	if (bytes > reader->left)
		return NULL;
	reader->at += bytes;
	reader->left -= bytes;
	return at;
}

static uint32_t base_of(const struct reader *reader, const char *section)
{
	for (size_t i = 1; section && i < reader->view->head.e_shnum; i++)
		if (reader->view->bases[i] != UINT32_MAX && !strcmp(elf_name(reader->view, i), section))
			return reader->view->bases[i];
	return UINT32_MAX;
}

/* The name without its folders. Every line has a copy, so it is short: an object of 1 MiB can have 65536 lines with names
 * of 100 KB. NULL: not enough memory. */
static char *copy_name(const char *file)
{
	const char *slash = memrchr(file, '/', strnlen(file, PATH_BYTES));

	return strndup(slash ? slash + 1 : file, NAME_BYTES);
}

static void keep_line(struct reader *reader, uint32_t base, const uint8_t *record)
{
	struct code *code = &reader->probe->code;
	const char *file = btf__str_by_offset(reader->btf, bf_get32(record + 4));
	char *copy;

	if (!file || base == UINT32_MAX || code->line_count == LINES_MAX)
		return;
	copy = copy_name(file);
	if (!copy)
		return;
	for (char *c = copy; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	code->lines[code->line_count++] = (struct code_line){
		.insn = base + bf_get32(record) / (uint32_t)sizeof(struct bpf_insn),
		.number = bf_get32(record + 12) >> 10,
		.file = copy,
	};
}

/* Each part of the table is for one section of the object. A table with more parts, or with a part without records, is
 * damaged: the search for its sections would take long. */
static void read_sections(struct reader *reader)
{
	const uint8_t *head = take(reader, 4), *section;
	uint32_t bytes = head ? bf_get32(head) : 0;
	unsigned left = reader->view->head.e_shnum;

	while (bytes >= RECORD_BYTES && left-- && (section = take(reader, SECTION_BYTES))) {
		uint32_t count = bf_get32(section + 4), base;

		if (!count)
			return;
		base = base_of(reader, btf__str_by_offset(reader->btf, bf_get32(section)));
		for (uint32_t i = count; i; i--) {
			const uint8_t *record = take(reader, bytes);

			if (!record)
				return;
			keep_line(reader, base, record);
		}
	}
}

static int compare(const void *a, const void *b)
{
	const struct code_line *x = a, *y = b;

	return x->insn < y->insn ? -1 : x->insn > y->insn;
}

int lines_read(struct probe *probe, const struct elf_view *view, struct bf_error *err)
{
	size_t size = 0, types_size = 0;
	const uint8_t *section = elf_section(view->bytes, view->size, ".BTF.ext", &size);
	const void *types = elf_section(view->bytes, view->size, ".BTF", &types_size);
	struct reader reader = { .probe = probe, .view = view };
	uint64_t start;
	struct btf *btf;

	if (!section || !types || size < HEADER_BYTES)
		return 0;
	start = (uint64_t)bf_get32(section + 4) + bf_get32(section + 16);
	if (start > size || bf_get32(section + 20) > size - start)
		return 0;
	probe->code.lines = calloc(LINES_MAX, sizeof(*probe->code.lines));
	btf = btf__new(types, (__u32)types_size);
	if (!probe->code.lines || !btf) {
		btf__free(btf);
		return bf_fail(err, ENOMEM, "not enough memory");
	}
	reader.btf = btf;
	reader.at = section + start;
	reader.left = bf_get32(section + 20);
	read_sections(&reader);
	qsort(probe->code.lines, probe->code.line_count, sizeof(*probe->code.lines), compare);
	btf__free(btf);
	return 0;
}
