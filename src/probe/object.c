/* Reads an object: its header, code, maps and programs. policy/file.h has checked the file's structure before
 * anything here follows it. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/file.h"
#include "probe/inside.h"

enum { CODE_MAX = 1 << 16 };

Elf64_Shdr elf_header(const struct elf_view *view, size_t section)
{
	Elf64_Shdr header;

	memcpy(&header, view->bytes + view->head.e_shoff + section * sizeof(header), sizeof(header));
	return header;
}

const char *elf_name(const struct elf_view *view, size_t section)
{
	return (const char *)view->bytes + elf_header(view, view->head.e_shstrndx).sh_offset +
	       elf_header(view, section).sh_name;
}

Elf64_Sym elf_symbol(const struct elf_view *view, const Elf64_Shdr *symbols, uint64_t index)
{
	Elf64_Sym symbol;

	memcpy(&symbol, view->bytes + symbols->sh_offset + index * sizeof(symbol), sizeof(symbol));
	return symbol;
}

const char *elf_symbol_name(const struct elf_view *view, const Elf64_Shdr *symbols, const Elf64_Sym *symbol)
{
	return (const char *)view->bytes + elf_header(view, symbols->sh_link).sh_offset + symbol->st_name;
}

enum belfry_probe_event event_of(const char *section)
{
	static const char *const names[BELFRY_PROBE_EVENTS] = {
		[BELFRY_PROBE_KERNEL_ENTER] = "probe/kernel_enter",
		[BELFRY_PROBE_KERNEL_EXIT] = "probe/kernel_exit",
		[BELFRY_PROBE_BLOCK_ENTER] = "probe/block_enter",
		[BELFRY_PROBE_BLOCK_EXIT] = "probe/block_exit",
		[BELFRY_PROBE_MEM_ACCESS] = "probe/mem_access",
		[BELFRY_PROBE_LOOP] = "probe/loop",
		[BELFRY_PROBE_WARP_ENTER] = "probe/warp_enter",
		[BELFRY_PROBE_WARP_EXIT] = "probe/warp_exit",
		[BELFRY_PROBE_SECTION] = "probe/section",
	};
	unsigned event = 0;

	while (event < BELFRY_PROBE_EVENTS && strcmp(section, names[event]) != 0)
		event++;
	return (enum belfry_probe_event)event;
}

static int check_says(const struct elf_view *view, struct bf_error *err)
{
	size_t size = 0;
	const void *section = elf_section(view->bytes, view->size, ".rodata.belfry_probe", &size);
	struct belfry_probe says = { 0 };

	if (!section || size < sizeof(says))
		return bf_fail(err, EINVAL, "it is not a probe; add BELFRY_PROBE() from belfry/probe.h");
	memcpy(&says, section, sizeof(says));
	if (says.magic != BELFRY_PROBE_MAGIC)
		return bf_fail(err, EINVAL, "its probe header is damaged; compile it again");
	if (says.abi != BELFRY_PROBE_ABI || says.ctx_bytes != sizeof(struct belfry_probe_ctx))
		return bf_fail(
			err, EPROTO,
			"it was compiled for probe ABI %u, and this Belfry has %u; compile it with this release's belfry/probe.h",
			says.abi, BELFRY_PROBE_ABI);
	return 0;
}

static bool is_code(const Elf64_Shdr *header)
{
	return header->sh_type == SHT_PROGBITS && header->sh_flags & SHF_EXECINSTR;
}

/* All sections with code, one after the other. */
static int copy_code(struct probe *probe, struct elf_view *view, struct bf_error *err)
{
	uint64_t count = 0;

	view->bases = malloc(view->head.e_shnum * sizeof(*view->bases));
	probe->code.insns = calloc(CODE_MAX, sizeof(*probe->code.insns));
	if (!view->bases || !probe->code.insns)
		return bf_fail(err, ENOMEM, "not enough memory");
	for (size_t i = 0; i < view->head.e_shnum; i++) {
		Elf64_Shdr header = elf_header(view, i);

		view->bases[i] = UINT32_MAX;
		if (!is_code(&header))
			continue;
		if (header.sh_size % sizeof(struct bpf_insn) ||
		    header.sh_size / sizeof(struct bpf_insn) > CODE_MAX - count)
			return bf_fail(err, EFBIG,
				       "section %.64s: its size is invalid, or there is too much code",
				       elf_name(view, i));
		view->bases[i] = (uint32_t)count;
		memcpy(probe->code.insns + count, view->bytes + header.sh_offset, header.sh_size);
		count += header.sh_size / sizeof(struct bpf_insn);
	}
	probe->code.count = count;
	return 0;
}

static int kind_of(const struct bpf_map *map, enum probe_map_kind *kind, struct bf_error *err)
{
	switch (bpf_map__type(map)) {
	case BPF_MAP_TYPE_ARRAY:
		*kind = PROBE_MAP_ARRAY;
		return 0;
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		*kind = PROBE_MAP_SM_ARRAY;
		return 0;
	case BPF_MAP_TYPE_HASH:
		*kind = PROBE_MAP_HASH;
		return 0;
	case BPF_MAP_TYPE_RINGBUF:
		*kind = PROBE_MAP_RING;
		return 0;
	default:
		return bf_fail(
			err, EINVAL,
			"map %.63s: its type is not possible in a probe; use an array, SM array, hash or ring",
			bpf_map__name(map));
	}
}

static int take_map(struct probe *probe, const struct bpf_map *from, struct bf_error *err)
{
	struct probe_map *map = &probe->code.maps[probe->code.map_count];

	if (probe->code.map_count == PROBE_MAPS_MAX)
		return bf_fail(err, E2BIG, "it has more than %d maps", PROBE_MAPS_MAX);
	if (kind_of(from, &map->kind, err))
		return -EINVAL;
	snprintf(map->name, sizeof(map->name), "%.63s", bpf_map__name(from));
	map->key_bytes = bpf_map__key_size(from);
	map->value_bytes = bpf_map__value_size(from);
	map->max_entries = bpf_map__max_entries(from);
	probe->code.map_count++;
	return 0;
}

static int take_maps(struct probe *probe, const struct elf_view *view, struct bf_error *err)
{
	struct bpf_object_open_opts options = { .sz = sizeof(options), .object_name = "probe" };
	struct log_kept kept;
	struct bpf_object *bpf;
	struct bpf_map *map;
	int rc = 0;

	log_keep(&kept);
	bpf = bpf_object__open_mem(view->bytes, view->size, &options);
	log_keep(NULL);
	if (!bpf)
		return bf_fail(err, EINVAL, "it cannot be read: %s",
			       kept.text[0] ? kept.text : strerror(errno));
	bpf_object__for_each_map(map, bpf)
	{
		if (!rc && !bpf_map__is_internal(map))
			rc = take_map(probe, map, err);
	}
	bpf_object__close(bpf);
	return rc;
}

static int take_program(struct probe *probe, const struct elf_view *view, const char *name, size_t section,
			uint32_t start, struct bf_error *err)
{
	enum belfry_probe_event event = event_of(elf_name(view, section));
	struct program *program = &probe->programs[probe->program_count];

	if (event == BELFRY_PROBE_EVENTS)
		return bf_fail(err, EINVAL,
			       "program %.63s is in section %.63s; see belfry/probe.h for the events", name,
			       elf_name(view, section));
	if (probe->program_count == PROBE_PROGRAMS_MAX)
		return bf_fail(err, E2BIG, "it has more than %d programs", PROBE_PROGRAMS_MAX);
	snprintf(program->name, sizeof(program->name), "%.63s", name);
	program->info.event = event;
	program->start = start;
	probe->program_count++;
	return 0;
}

static int take_function(struct probe *probe, const struct elf_view *view, const Elf64_Shdr *symbols,
			 const Elf64_Sym *symbol, struct bf_error *err)
{
	size_t section = symbol->st_shndx;
	const char *name = elf_symbol_name(view, symbols, symbol);
	uint64_t start;

	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || section >= view->head.e_shnum ||
	    view->bases[section] == UINT32_MAX)
		return 0;
	start = view->bases[section] + symbol->st_value / sizeof(struct bpf_insn);
	if (symbol->st_value % sizeof(struct bpf_insn) ||
	    symbol->st_value >= elf_header(view, section).sh_size)
		return bf_fail(err, EINVAL, "it is damaged: a function is out of bounds; compile it again");
	probe->code.starts[start] = 1;
	if (ELF64_ST_BIND(symbol->st_info) != STB_GLOBAL || !strcmp(elf_name(view, section), ".text"))
		return 0;
	return take_program(probe, view, name, section, (uint32_t)start, err);
}

static int take_functions(struct probe *probe, const struct elf_view *view, struct bf_error *err)
{
	int rc = 0;

	probe->code.starts = calloc(probe->code.count + 1, 1);
	if (!probe->code.starts)
		return bf_fail(err, ENOMEM, "not enough memory");
	for (size_t i = 1; i < view->head.e_shnum; i++) {
		Elf64_Shdr header = elf_header(view, i);

		if (header.sh_type != SHT_SYMTAB)
			continue;
		for (uint64_t at = 1; !rc && at < header.sh_size / sizeof(Elf64_Sym); at++) {
			Elf64_Sym symbol = elf_symbol(view, &header, at);

			rc = take_function(probe, view, &header, &symbol, err);
		}
	}
	if (!rc && !probe->program_count)
		return bf_fail(err, EINVAL,
			       "it has no programs; write BELFRY_PROBE_AT(block_exit) before a function");
	return rc;
}

static int check_file(const void *bytes, size_t size, struct bf_error *err)
{
	int rc = elf_check(bytes, size, err);

	if (!rc && elf_first_extern(bytes, size))
		return bf_fail(err, EPERM, "it refers to '%.64s', which is not in it",
			       elf_first_extern(bytes, size));
	return rc ? rc : types_check(bytes, size, err);
}

int object_read(struct probe *probe, const void *bytes, size_t size, struct bf_error *err)
{
	struct elf_view view = { .size = size };
	int rc = check_file(bytes, size, err);

	if (rc)
		return rc;
	probe->code.bytes = malloc(size);
	if (!probe->code.bytes)
		return bf_fail(err, ENOMEM, "not enough memory");
	memcpy(probe->code.bytes, bytes, size);
	probe->code.size = size;
	view.bytes = probe->code.bytes;
	memcpy(&view.head, bytes, sizeof(view.head));
	rc = check_says(&view, err);
	if (!rc)
		rc = take_maps(probe, &view, err);
	if (!rc)
		rc = copy_code(probe, &view, err);
	if (!rc)
		rc = take_functions(probe, &view, err);
	if (!rc)
		rc = lines_read(probe, &view, err);
	if (!rc)
		rc = relocate_all(probe, &view, err);
	if (!rc)
		rc = print_read(probe, &view, err);
	free(view.bases);
	return rc;
}

int probe_open(const void *object, size_t bytes, const struct probe_options *options, struct probe **probe,
	       struct bf_error *err)
{
	struct probe *made = probe_new(options, err);

	*probe = NULL;
	if (!made)
		return -ENOMEM;
	return probe_finish(made, object_read(made, object, bytes, err), probe, err);
}
