#include "probe/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probe/inside.h"

enum { SLOTS_MAX = 1 << 12 };

struct probe *probe_new(const struct probe_options *options, struct bf_error *err)
{
	struct probe *probe = calloc(1, sizeof(*probe));

	if (!probe) {
		bf_fail(err, ENOMEM, "not enough memory");
		return NULL;
	}
	probe->fuel = options && options->fuel ? options->fuel : PROBE_FUEL;
	probe->is_checked_only = options && options->is_checked_only;
	probe->slots = 1;
	while (options && probe->slots < options->sm_count && probe->slots < SLOTS_MAX)
		probe->slots *= 2;
	return probe;
}

static void free_program(struct program *program)
{
	free(program->ops);
	free(program->states);
	program->ops = NULL;
	program->states = NULL;
}

static int check_all(struct probe *probe, struct bf_error *err)
{
	uint32_t visits = PROBE_VISITS_MAX;
	int rc = maps_place(probe, err);

	for (size_t i = 0; !rc && i < probe->program_count; i++) {
		struct program *program = &probe->programs[i];

		program->info.name = program->name;
		rc = inline_program(&probe->code, program, err);
		if (!rc)
			rc = check_program(&probe->code, program, &visits, err);
		if (probe->is_checked_only)
			free_program(program);
	}
	if (!rc && probe_needs_time(probe)) {
		probe->times = probe->area_bytes;
		probe->area_bytes += PROBE_TIMES * sizeof(uint64_t);
	}
	return rc;
}

int probe_finish(struct probe *made, int rc, struct probe **probe, struct bf_error *err)
{
	if (!rc)
		rc = check_all(made, err);
	if (rc) {
		probe_free(made);
		return rc;
	}
	*probe = made;
	return 0;
}

static int copy_code(struct probe *made, const struct probe_code *code, struct bf_error *err)
{
	if (!code->insn_count || code->insn_count > PROBE_INSNS_MAX || code->map_count > PROBE_MAPS_MAX)
		return bf_fail(err, EINVAL, "it has %zu instructions and %zu maps; the limits are %d and %d",
			       code->insn_count, code->map_count, PROBE_INSNS_MAX, PROBE_MAPS_MAX);
	made->code.insns = calloc(code->insn_count, sizeof(*code->insns));
	if (!made->code.insns)
		return bf_fail(err, ENOMEM, "not enough memory");
	memcpy(made->code.insns, code->insns, code->insn_count * sizeof(*code->insns));
	made->code.count = code->insn_count;
	if (code->map_count)
		memcpy(made->code.maps, code->maps, code->map_count * sizeof(*code->maps));
	made->code.map_count = code->map_count;
	made->program_count = 1;
	made->programs[0].info.event = code->event;
	snprintf(made->programs[0].name, sizeof(made->programs[0].name), "main");
	return 0;
}

int probe_make(const struct probe_code *code, const struct probe_options *options, struct probe **probe,
	       struct bf_error *err)
{
	struct probe *made = probe_new(options, err);

	*probe = NULL;
	if (!made)
		return -ENOMEM;
	return probe_finish(made, copy_code(made, code, err), probe, err);
}

static void free_code(struct code *code)
{
	for (size_t i = 0; i < code->line_count; i++)
		free(code->lines[i].file);
	free(code->lines);
	free(code->insns);
	free(code->starts);
	free(code->bytes);
}

void probe_keep_maps(struct probe *probe)
{
	struct code *code = &probe->code;

	for (size_t i = 0; i < probe->program_count; i++)
		free_program(&probe->programs[i]);
	free_code(code);
	code->lines = NULL;
	code->insns = NULL;
	code->starts = code->bytes = NULL;
	code->line_count = code->count = code->size = 0;
	for (size_t i = 0; i < code->map_count; i++)
		code->maps[i].initial = NULL;
	probe->is_checked_only = true;
}

void probe_free(struct probe *probe)
{
	if (!probe)
		return;
	for (size_t i = 0; i < probe->program_count; i++)
		free_program(&probe->programs[i]);
	free_code(&probe->code);
	free(probe);
}

const struct probe_program *probe_program_at(const struct probe *probe, size_t index)
{
	return index < probe->program_count ? &probe->programs[index].info : NULL;
}

const struct probe_map *probe_map_at(const struct probe *probe, size_t index)
{
	return index < probe->code.map_count ? &probe->code.maps[index] : NULL;
}

const struct probe_map *probe_map_find(const struct probe *probe, const char *name)
{
	for (size_t i = 0; i < probe->code.map_count; i++)
		if (!strcmp(probe->code.maps[i].name, name))
			return &probe->code.maps[i];
	return NULL;
}
