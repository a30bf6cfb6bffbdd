/* libbpf reads names and symbols at the offsets that the file gives, without checking all of them. So
 * elf_check validates the file before libbpf opens it. */
#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "policy/inside.h"

enum {
	SECTIONS_MAX = 1024,
	NAME_BYTES = 512, /* with its end; many symbols can share a long name, and it is read for each */
};

struct file {
	const uint8_t *bytes;
	size_t size;
	Elf64_Ehdr head;
};

static int cut_short(struct bf_error *err)
{
	return bf_fail(err, EINVAL,
		       "it is damaged: a section or reference is out of bounds; compile it again");
}

static bool is_within(size_t size, uint64_t offset, uint64_t bytes)
{
	return offset <= size && bytes <= size - offset;
}

static Elf64_Shdr section_at(const struct file *file, size_t i)
{
	Elf64_Shdr section;

	memcpy(&section, file->bytes + file->head.e_shoff + i * sizeof(section), sizeof(section));
	return section;
}

/* clang -target bpfeb */
static bool is_of_other_order(const Elf64_Ehdr *head)
{
	return head->e_ident[EI_DATA] == ELFDATA2MSB && head->e_machine == __builtin_bswap16(EM_BPF);
}

static int read_head(struct file *file, struct bf_error *err)
{
	Elf64_Ehdr *head = &file->head;

	if (file->size < SELFMAG || memcmp(file->bytes, ELFMAG, SELFMAG))
		return bf_fail(
			err, ENOEXEC,
			"it is not an eBPF object: not an ELF file; compile it with clang -target bpf -g -c");
	if (file->size < sizeof(*head))
		return cut_short(err);
	memcpy(head, file->bytes, sizeof(*head));
	if (is_of_other_order(head))
		return bf_fail(err, ENOEXEC,
			       "it has the other byte order; compile it with clang -target bpf");
	if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB ||
	    head->e_type != ET_REL || head->e_machine != EM_BPF)
		return bf_fail(
			err, ENOEXEC,
			"it is an ELF file, but not an eBPF object; compile it with clang -target bpf -g -c");
	if (head->e_shentsize != sizeof(Elf64_Shdr) || !head->e_shnum || head->e_shnum > SECTIONS_MAX ||
	    head->e_shstrndx >= head->e_shnum || head->e_phnum ||
	    !is_within(file->size, head->e_shoff, head->e_shnum * sizeof(Elf64_Shdr)))
		return cut_short(err);
	return 0;
}

static bool are_strings(const struct file *file, size_t i)
{
	Elf64_Shdr section;

	if (i >= file->head.e_shnum)
		return false;
	section = section_at(file, i);
	return section.sh_type == SHT_STRTAB && section.sh_size &&
	       is_within(file->size, section.sh_offset, section.sh_size) &&
	       !file->bytes[section.sh_offset + section.sh_size - 1];
}

/* The name at this offset of a string table that are_strings has checked. NULL: it is not there, or is too long. */
static const char *name_at(const struct file *file, size_t strings, uint32_t at)
{
	Elf64_Shdr section = section_at(file, strings);
	const char *name;

	if (at >= section.sh_size)
		return NULL;
	name = (const char *)file->bytes + section.sh_offset + at;
	return strnlen(name, NAME_BYTES) < NAME_BYTES ? name : NULL;
}

/* Symbol names are printed, so they must be printable. */
static bool is_shown(const struct file *file, const Elf64_Shdr *section, uint32_t at)
{
	const char *name = name_at(file, section->sh_link, at);

	return name && (!*name || says_is_word(name));
}

static bool are_symbols_sane(const struct file *file, const Elf64_Shdr *section)
{
	static const Elf64_Sym none;

	if (section->sh_entsize != sizeof(Elf64_Sym) || section->sh_size % sizeof(Elf64_Sym) ||
	    !are_strings(file, section->sh_link))
		return false;
	/* ELF requires an empty first symbol, but libbpf treats it like any other. */
	if (section->sh_size && memcmp(file->bytes + section->sh_offset, &none, sizeof(none)) != 0)
		return false;
	for (uint64_t at = 0; at < section->sh_size; at += sizeof(Elf64_Sym)) {
		Elf64_Sym symbol;

		memcpy(&symbol, file->bytes + section->sh_offset + at, sizeof(symbol));
		if (symbol.st_shndx == SHN_XINDEX ||
		    (symbol.st_shndx >= file->head.e_shnum && symbol.st_shndx < SHN_LORESERVE) ||
		    !is_shown(file, section, symbol.st_name))
			return false;
	}
	return true;
}

static bool are_relocations_sane(const struct file *file, const Elf64_Shdr *section)
{
	Elf64_Shdr target, symbols;

	if (section->sh_entsize != sizeof(Elf64_Rel) || section->sh_size % sizeof(Elf64_Rel) ||
	    section->sh_link >= file->head.e_shnum || section->sh_info >= file->head.e_shnum)
		return false;
	target = section_at(file, section->sh_info);
	symbols = section_at(file, section->sh_link);
	if (symbols.sh_type != SHT_SYMTAB)
		return false;
	for (uint64_t at = 0; at < section->sh_size; at += sizeof(Elf64_Rel)) {
		Elf64_Rel relocation;

		memcpy(&relocation, file->bytes + section->sh_offset + at, sizeof(relocation));
		if (ELF64_R_SYM(relocation.r_info) >= symbols.sh_size / sizeof(Elf64_Sym) ||
		    relocation.r_offset >= target.sh_size)
			return false;
	}
	return true;
}

static bool is_section_sane(const struct file *file, const Elf64_Shdr *section)
{
	if (!name_at(file, file->head.e_shstrndx, section->sh_name) || section->sh_flags & SHF_COMPRESSED ||
	    section->sh_addralign > 4096)
		return false;
	if (section->sh_type == SHT_NOBITS)
		return true;
	if (!is_within(file->size, section->sh_offset, section->sh_size))
		return false;
	switch (section->sh_type) {
	case SHT_STRTAB:
		return !section->sh_size || !file->bytes[section->sh_offset + section->sh_size - 1];
	case SHT_SYMTAB:
		return are_symbols_sane(file, section);
	case SHT_REL:
		return are_relocations_sane(file, section);
	case SHT_RELA:
	case SHT_SYMTAB_SHNDX:
		return false; /* clang emits neither */
	default:
		return true;
	}
}

/* Symbols that are nowhere have section 0, so nothing may be there. */
static bool is_first_section_empty(const struct file *file)
{
	static const Elf64_Shdr none;

	return !memcmp(file->bytes + file->head.e_shoff, &none, sizeof(none));
}

int elf_check(const void *bytes, size_t size, struct bf_error *err)
{
	struct file file = { .bytes = bytes, .size = size };
	unsigned symbol_tables = 0;
	int rc;

	if (size > POLICY_OBJECT_BYTES_MAX)
		return bf_fail(err, EFBIG, "it is too large: %zu bytes; the maximum is %d", size,
			       POLICY_OBJECT_BYTES_MAX);
	rc = read_head(&file, err);
	if (rc)
		return rc;
	if (!are_strings(&file, file.head.e_shstrndx) || !is_first_section_empty(&file))
		return cut_short(err);
	for (size_t i = 0; i < file.head.e_shnum; i++) {
		Elf64_Shdr section = section_at(&file, i);

		if (!is_section_sane(&file, &section))
			return cut_short(err);
		/* A SHT_NOBITS section takes no bytes of the file, but libbpf allocates all of it. */
		if (section.sh_type == SHT_NOBITS && section.sh_size > POLICY_MAP_BYTES_MAX)
			return bf_fail(
				err, EFBIG,
				"its global variables are too large: the maximum for all maps is %d MiB",
				POLICY_MAP_BYTES_MAX >> 20);
		symbol_tables += section.sh_type == SHT_SYMTAB;
	}
	return symbol_tables == 1 ? 0 : cut_short(err);
}

static struct file checked(const void *bytes, size_t size)
{
	struct file file = { .bytes = bytes, .size = size };

	memcpy(&file.head, bytes, sizeof(file.head));
	return file;
}

const void *elf_section(const void *bytes, size_t size, const char *name, size_t *section_bytes)
{
	struct file file = checked(bytes, size);
	Elf64_Shdr names = section_at(&file, file.head.e_shstrndx);

	for (size_t i = 1; i < file.head.e_shnum; i++) {
		Elf64_Shdr section = section_at(&file, i);

		if (section.sh_type != SHT_PROGBITS ||
		    strcmp((const char *)file.bytes + names.sh_offset + section.sh_name, name))
			continue;
		*section_bytes = section.sh_size;
		return file.bytes + section.sh_offset;
	}
	return NULL;
}

int elf_each_code(const void *bytes, size_t size,
		  int (*visit)(const void *code, size_t code_bytes, struct bf_error *err),
		  struct bf_error *err)
{
	struct file file = checked(bytes, size);
	int rc = 0;

	for (size_t i = 1; i < file.head.e_shnum && !rc; i++) {
		Elf64_Shdr section = section_at(&file, i);

		if (section.sh_type == SHT_PROGBITS && section.sh_flags & SHF_EXECINSTR)
			rc = visit(file.bytes + section.sh_offset, section.sh_size, err);
	}
	return rc;
}

static const char *extern_of(const struct file *file, const Elf64_Shdr *section)
{
	Elf64_Shdr names = section_at(file, section->sh_link);

	for (uint64_t at = sizeof(Elf64_Sym); at < section->sh_size; at += sizeof(Elf64_Sym)) {
		Elf64_Sym symbol;

		memcpy(&symbol, file->bytes + section->sh_offset + at, sizeof(symbol));
		if (symbol.st_shndx == SHN_UNDEF)
			return (const char *)file->bytes + names.sh_offset + symbol.st_name;
	}
	return NULL;
}

const char *elf_first_extern(const void *bytes, size_t size)
{
	struct file file = checked(bytes, size);

	for (size_t i = 1; i < file.head.e_shnum; i++) {
		Elf64_Shdr section = section_at(&file, i);

		if (section.sh_type == SHT_SYMTAB)
			return extern_of(&file, &section);
	}
	return NULL;
}
