/* Relocations: calls between sections, maps, and variables in data sections. */
#include <errno.h>
#include <string.h>

#include "probe/inside.h"

enum { WIDE = 1 /* R_BPF_64_64 */, CALL = 10 /* R_BPF_64_32 */ };

static bool is_data(const char *name)
{
	return !strncmp(name, ".rodata", 7) || !strncmp(name, ".data", 5) || !strncmp(name, ".bss", 4);
}

/* Whether all that the section has is in the object, or is zeros. */
static bool has_data(const struct elf_view *view, const Elf64_Shdr *header)
{
	return header->sh_type == SHT_NOBITS ||
	       (header->sh_type == SHT_PROGBITS && header->sh_offset <= view->size &&
		header->sh_size <= view->size - header->sh_offset);
}

/* The map of a data section. The first reference makes it. */
static int data_map(struct probe *probe, const struct elf_view *view, size_t section, struct bf_error *err)
{
	Elf64_Shdr header = elf_header(view, section);
	const char *name = elf_name(view, section);
	struct probe_map *map;

	for (size_t i = 0; i < probe->code.map_count; i++)
		if (probe->code.maps[i].kind == PROBE_MAP_DATA &&
		    !strncmp(probe->code.maps[i].name, name, 63))
			return (int)i;
	if (probe->code.map_count == PROBE_MAPS_MAX)
		return bf_fail(err, E2BIG, "it has more than %d maps and sections of variables",
			       PROBE_MAPS_MAX);
	if (!header.sh_size || header.sh_size > 1u << 20)
		return bf_fail(err, EFBIG, "section %.63s: it is empty, or its variables are too large",
			       name);
	if (!has_data(view, &header))
		return bf_fail(err, EINVAL, "section %.63s: it has no data; compile it again", name);
	map = &probe->code.maps[probe->code.map_count];
	*map = (struct probe_map){ .kind = PROBE_MAP_DATA,
				   .key_bytes = 4,
				   .value_bytes = (uint32_t)header.sh_size,
				   .max_entries = 1,
				   .is_read_only = !strncmp(name, ".rodata", 7) };
	snprintf(map->name, sizeof(map->name), "%.63s", name);
	if (header.sh_type != SHT_NOBITS)
		map->initial = view->bytes + header.sh_offset;
	return (int)probe->code.map_count++;
}

static int find_map(const struct probe *probe, const char *name)
{
	const struct probe_map *map = probe_map_find(probe, name);

	return map && map->kind != PROBE_MAP_DATA ? (int)(map - probe->code.maps) : -1;
}

/* Whether the symbol is in a section. Section 0 is none. */
static bool is_somewhere(const struct elf_view *view, const Elf64_Sym *symbol)
{
	return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx < SHN_LORESERVE &&
	       symbol->st_shndx < view->head.e_shnum;
}

static int relocate_wide(struct probe *probe, const struct elf_view *view, const struct op *op,
			 const Elf64_Shdr *symbols, const Elf64_Sym *symbol, struct bf_error *err)
{
	struct bpf_insn *insn = &probe->code.insns[op->origin];
	const char *section = is_somewhere(view, symbol) ? elf_name(view, symbol->st_shndx) : "";
	int map;

	if (insn->code != (BPF_LD | BPF_IMM | BPF_DW) || op->origin + 1 >= probe->code.count)
		return code_refuse(&probe->code, op, err,
				   "a relocation of another instruction; compile it again");
	if (!strcmp(section, ".maps")) {
		map = find_map(probe, elf_symbol_name(view, symbols, symbol));
		if (map < 0)
			return code_refuse(&probe->code, op, err, "it refers to a map that does not exist");
		insn->src_reg = BPF_PSEUDO_MAP_IDX;
		insn->imm = map;
		return 0;
	}
	if (!is_data(section))
		return code_refuse(&probe->code, op, err,
				   "it takes the address of something that is neither a map nor a variable");
	map = data_map(probe, view, symbol->st_shndx, err);
	if (map < 0)
		return map;
	insn[1].imm = (int32_t)(uint32_t)(symbol->st_value + (uint32_t)insn->imm);
	insn->src_reg = BPF_PSEUDO_MAP_IDX_VALUE;
	insn->imm = map;
	return 0;
}

static int relocate_call(struct probe *probe, const struct elf_view *view, const struct op *op,
			 const Elf64_Sym *symbol, struct bf_error *err)
{
	struct bpf_insn *insn = &probe->code.insns[op->origin];
	int64_t target;

	if (insn->code != (BPF_JMP | BPF_CALL) || insn->src_reg != BPF_PSEUDO_CALL ||
	    !is_somewhere(view, symbol) || view->bases[symbol->st_shndx] == UINT32_MAX ||
	    symbol->st_value > UINT32_MAX)
		return code_refuse(&probe->code, op, err, "a call of something that is not a function");
	target = (int64_t)view->bases[symbol->st_shndx] +
		 (int64_t)(symbol->st_value / sizeof(struct bpf_insn)) + insn->imm + 1;
	if (target < 0 || (uint64_t)target >= probe->code.count)
		return code_refuse(&probe->code, op, err, "a call leaves the program");
	insn->imm = (int32_t)(target - op->origin - 1);
	return 0;
}

static int relocate_one(struct probe *probe, const struct elf_view *view, const Elf64_Shdr *header,
			const Elf64_Rel *relocation, struct bf_error *err)
{
	Elf64_Shdr symbols = elf_header(view, header->sh_link);
	Elf64_Sym symbol = elf_symbol(view, &symbols, ELF64_R_SYM(relocation->r_info));
	struct op op = { .origin = view->bases[header->sh_info] +
				   (uint32_t)(relocation->r_offset / sizeof(struct bpf_insn)) };

	if (relocation->r_offset % sizeof(struct bpf_insn))
		return code_refuse(&probe->code, &op, err,
				   "a relocation inside an instruction; compile it again");
	if (!ELF64_R_SYM(relocation->r_info))
		return code_refuse(&probe->code, &op, err, "a relocation without a symbol; compile it again");
	switch (ELF64_R_TYPE(relocation->r_info)) {
	case WIDE:
		return relocate_wide(probe, view, &op, &symbols, &symbol, err);
	case CALL:
		return relocate_call(probe, view, &op, &symbol, err);
	default:
		return code_refuse(&probe->code, &op, err,
				   "an unknown relocation; compile it with clang -target bpf");
	}
}

/* Before relocation, an immediate that refers to a map is a descriptor of the loading process. */
static int check_numbers(const struct probe *probe, struct bf_error *err)
{
	for (uint32_t i = 0; i < probe->code.count; i++) {
		struct op op = { .origin = i };

		if (probe->code.insns[i].code == (BPF_LD | BPF_IMM | BPF_DW) && probe->code.insns[i].src_reg)
			return code_refuse(&probe->code, &op, err,
					   "it refers to a map by number, or to a function");
	}
	return 0;
}

int relocate_all(struct probe *probe, const struct elf_view *view, struct bf_error *err)
{
	int rc = check_numbers(probe, err);

	for (size_t i = 1; i < view->head.e_shnum; i++) {
		Elf64_Shdr header = elf_header(view, i);

		if (header.sh_type != SHT_REL || view->bases[header.sh_info] == UINT32_MAX)
			continue;
		for (uint64_t at = 0; !rc && at < header.sh_size; at += sizeof(Elf64_Rel)) {
			Elf64_Rel relocation;

			memcpy(&relocation, view->bytes + header.sh_offset + at, sizeof(relocation));
			rc = relocate_one(probe, view, &header, &relocation, err);
		}
	}
	return rc;
}
