/* probe: objects that no compiler makes. */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/json.h"
#include "cli/probe.h"
#include "policy_rig.h"
#include "probe_rig.h"

enum { ROOM = 1 << 20 }; /* probe_bytes allocates as much */

static struct bytes read_probe(const char *name)
{
	struct bytes bytes = { 0 };

	bytes.at = probe_bytes(name, &bytes.size);
	return bytes;
}

static Elf64_Shdr *section_at(struct bytes bytes, size_t i)
{
	return (Elf64_Shdr *)(bytes.at + ((Elf64_Ehdr *)bytes.at)->e_shoff) + i;
}

static Elf64_Shdr *find_section(struct bytes bytes, const char *name)
{
	const Elf64_Ehdr *head = (Elf64_Ehdr *)bytes.at;
	const char *names = (char *)bytes.at + section_at(bytes, head->e_shstrndx)->sh_offset;

	for (size_t i = 1; i < head->e_shnum; i++)
		if (!strcmp(names + section_at(bytes, i)->sh_name, name))
			return section_at(bytes, i);
	fail_msg("there is no section %s", name);
	return NULL;
}

static Elf64_Shdr *find_symbols(struct bytes bytes)
{
	return find_section(bytes, ".symtab");
}

/* Gives the section a copy of its bytes at the end of the file, with room for `more` bytes. Returns the copy. */
static uint8_t *move_section(struct bytes *bytes, Elf64_Shdr *section, size_t more)
{
	size_t at = (bytes->size + 7) & ~7ull;

	assert_true(at + section->sh_size + more <= ROOM);
	memset(bytes->at + bytes->size, 0, at - bytes->size);
	memcpy(bytes->at + at, bytes->at + section->sh_offset, section->sh_size);
	memset(bytes->at + at + section->sh_size, 0, more);
	section->sh_offset = at;
	section->sh_size += more;
	bytes->size = at + section->sh_size;
	return bytes->at + at;
}

static void assert_is_refused(struct bytes bytes, const char *words)
{
	struct probe *probe = NULL;
	struct bf_error err;

	assert_int_equal(probe_open(bytes.at, bytes.size, NULL, &probe, &err), -EINVAL);
	assert_null(probe);
	assert_text_has(err.text, words);
}

static void assert_is_taken(struct bytes bytes)
{
	struct probe *probe = NULL;
	struct bf_error err;

	if (probe_open(bytes.at, bytes.size, NULL, &probe, &err))
		fail_msg("%s", err.text);
	probe_free(probe);
}

/* libbpf does not follow the relocations of a section with this name. */
static Elf64_Rel *hide_relocations(struct bytes bytes, const char *name)
{
	Elf64_Shdr *section = find_section(bytes, name);

	section->sh_name = find_section(bytes, ".rel.debug_info")->sh_name;
	return (Elf64_Rel *)(bytes.at + section->sh_offset);
}

static void first_section_is_empty(void **state)
{
	struct bytes bytes = read_probe("count");
	Elf64_Shdr *none = section_at(bytes, 0);

	(void)state;
	none->sh_name = find_section(bytes, ".bss")->sh_name;
	assert_is_refused(bytes, "it is damaged");
	none->sh_name = 0;
	none->sh_size = 16;
	assert_is_refused(bytes, "it is damaged");
	none->sh_size = 0;
	assert_is_taken(bytes);
	free(bytes.at);
}

static void section_without_a_type_is_in_the_file(void **state)
{
	struct bytes bytes = read_probe("count");
	Elf64_Shdr *unused = find_section(bytes, ".debug_abbrev");

	(void)state;
	unused->sh_type = SHT_NULL;
	assert_is_taken(bytes);
	unused->sh_offset = 0x700000000000;
	assert_is_refused(bytes, "it is damaged");
	free(bytes.at);
}

static void relocation_has_a_symbol(void **state)
{
	struct bytes bytes = read_probe("count");
	Elf64_Rel *relocation = hide_relocations(bytes, ".relprobe/kernel_exit");

	(void)state;
	assert_is_taken(bytes);
	relocation->r_info = ELF64_R_INFO(0, ELF64_R_TYPE(relocation->r_info));
	assert_is_refused(bytes, "a relocation without a symbol");
	free(bytes.at);
}

static void variables_are_in_a_section_with_data(void **state)
{
	static const uint32_t types[] = { SHT_NULL, SHT_NOTE, SHT_STRTAB };
	struct bytes bytes = read_probe("count");
	Elf64_Shdr *variables = find_section(bytes, ".bss");

	(void)state;
	hide_relocations(bytes, ".relprobe/kernel_enter");
	hide_relocations(bytes, ".relprobe/kernel_exit");
	assert_is_taken(bytes);
	variables->sh_offset = section_at(bytes, 1)->sh_offset; /* strings, with a zero at their end */
	variables->sh_size = section_at(bytes, 1)->sh_size;
	for (unsigned i = 0; i < COUNT(types); i++) {
		variables->sh_type = types[i];
		assert_is_refused(bytes, "section .bss: it has no data");
	}
	free(bytes.at);
}

/* Thousands of symbols and sections can share one name, and each of them is read and compared. */
static void names_are_not_long(void **state)
{
	enum { LONGEST = 511 };

	(void)state;
	for (unsigned is_symbol = 0; is_symbol < 2; is_symbol++) {
		struct bytes bytes = read_probe("count");
		const Elf64_Ehdr *head = (Elf64_Ehdr *)bytes.at;
		Elf64_Shdr *symbols = find_symbols(bytes);
		Elf64_Shdr *strings = section_at(bytes, is_symbol ? symbols->sh_link : head->e_shstrndx);
		uint32_t at = (uint32_t)strings->sh_size;
		Elf64_Shdr *unused = find_section(bytes, ".debug_abbrev");
		Elf64_Sym *symbol = (Elf64_Sym *)(bytes.at + symbols->sh_offset) + 1;
		uint8_t *name = move_section(&bytes, strings, LONGEST + 2) + at;

		memset(name, 'a', LONGEST);
		*(is_symbol ? &symbol->st_name : &unused->sh_name) = at;
		assert_is_taken(bytes);
		name[LONGEST] = 'a';
		assert_is_refused(bytes, "it is damaged");
		free(bytes.at);
	}
}

/* Puts `count` parts of `records` records each, of a section that is not there, before the table of lines. */
static void add_parts(struct bytes *bytes, unsigned count, unsigned records)
{
	enum { PART = 8, RECORD = 16 };
	size_t more = (size_t)count * (PART + (size_t)records * RECORD), size, start;
	Elf64_Shdr *section = find_section(*bytes, ".BTF.ext");
	uint8_t *to = move_section(bytes, section, more);

	/* Its header: 4 bytes of the header's size at 4, then offset and size of the lines at 16 and 20. */
	start = bf_get32(to + 4) + bf_get32(to + 16) + 4;
	size = section->sh_size - more;
	memmove(to + start + more, to + start, size - start);
	memset(to + start, 0, more);
	for (unsigned i = 0; i < count; i++)
		bf_put32(to + start + (size_t)i * (PART + (size_t)records * RECORD) + 4, records);
	bf_put32(to + 20, bf_get32(to + 20) + (uint32_t)more);
}

static void assert_line_is_told(unsigned parts, unsigned records, bool is_told)
{
	struct bytes bytes = read_probe("prints");
	struct probe *probe = NULL;
	struct bf_error err;

	if (parts)
		add_parts(&bytes, parts, records);
	assert_int_equal(probe_open(bytes.at, bytes.size, NULL, &probe, &err), -EINVAL);
	assert_text_has(err.text, "it calls bpf_get_prandom_u32");
	assert_int_equal(strstr(err.text, "prints.bpf.c:12: ") != NULL, is_told);
	free(bytes.at);
}

/* For each part of the table of lines, all sections are searched. */
static void table_of_lines_has_no_more_parts_than_sections(void **state)
{
	(void)state;
	assert_line_is_told(0, 0, true);
	assert_line_is_told(3, 1, true);
	assert_line_is_told(1, 0, false);
	assert_line_is_told(1024, 1, false);
}

static void titles_are_printable(void **state)
{
	static const char *const titles[] = { "\033[2J", "a\nb", "\x9b", "\x7f" };
	struct bytes bytes = read_probe("columns");
	struct belfry_print *print =
		(struct belfry_print *)(bytes.at + find_section(bytes, ".rodata.belfry_print")->sh_offset);

	(void)state;
	assert_is_taken(bytes);
	for (unsigned i = 0; i < COUNT(titles); i++) {
		snprintf(print->title, sizeof(print->title), "%s", titles[i]);
		assert_is_refused(bytes, "a map or title of column 0 is not printable ASCII");
	}
	free(bytes.at);
}

/* A server of another release may not refuse them. */
static void titles_are_shown_without_control_characters(void **state)
{
	struct json_object *probe = json_object_new_object(), *columns = json_object_new_array(),
			   *column = json_object_new_object(), *tables, *titles;

	(void)state;
	json_add_text(column, "map", "rows");
	json_add_text(column, "title", "\033[2Jtime");
	json_object_array_add(columns, column);
	json_add(probe, "columns", columns);
	probe_tables(probe, 0);
	assert_true(json_object_object_get_ex(probe, "tables", &tables));
	assert_true(json_object_object_get_ex(json_object_array_get_idx(tables, 0), "columns", &titles));
	assert_string_equal(json_object_get_string(json_object_array_get_idx(titles, 0)), "?[2Jtime");
	json_object_put(probe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_section_is_empty),
		cmocka_unit_test(section_without_a_type_is_in_the_file),
		cmocka_unit_test(relocation_has_a_symbol),
		cmocka_unit_test(variables_are_in_a_section_with_data),
		cmocka_unit_test(names_are_not_long),
		cmocka_unit_test(table_of_lines_has_no_more_parts_than_sections),
		cmocka_unit_test(titles_are_printable),
		cmocka_unit_test(titles_are_shown_without_control_characters),
	};

	return cmocka_run_group_tests_name("probe_hostile", tests, NULL, NULL);
}
