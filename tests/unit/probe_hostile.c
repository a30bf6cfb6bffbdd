/* probe: objects that no compiler makes. */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy_rig.h"
#include "probe_rig.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_section_is_empty),
		cmocka_unit_test(section_without_a_type_is_in_the_file),
		cmocka_unit_test(relocation_has_a_symbol),
		cmocka_unit_test(variables_are_in_a_section_with_data),
	};

	return cmocka_run_group_tests_name("probe_hostile", tests, NULL, NULL);
}
