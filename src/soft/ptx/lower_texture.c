/* Lower texture and surface instructions. Coordinates use the warp's extra rows. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/lowerings.h"

static const struct {
	const char *name;
	uint8_t geometry;
	uint8_t coordinates; /* the last one of four may be padding */
} geometries[] = {
	{ "1d", PTX_GEOMETRY_1D, 1 },	    { "2d", PTX_GEOMETRY_2D, 2 },   { "3d", PTX_GEOMETRY_3D, 3 },
	{ "a1d", PTX_GEOMETRY_A1D, 2 },	    { "a2d", PTX_GEOMETRY_A2D, 3 }, { "cube", PTX_GEOMETRY_CUBE, 3 },
	{ "acube", PTX_GEOMETRY_ACUBE, 4 },
};

/* The geometry in the suffixes; -1 if there is none or more than one. */
static int geometry_of(const struct ptx_statement *st, uint32_t *coordinates)
{
	int found = -1;

	for (size_t i = 0; i < sizeof(geometries) / sizeof(geometries[0]); i++) {
		if (!ptx_has(st, geometries[i].name))
			continue;
		if (found >= 0)
			return -1;
		found = geometries[i].geometry;
		*coordinates = geometries[i].coordinates;
	}
	return found;
}

/* The register of the handle, and the coordinates as sources. */
static int lower_place(struct ptx_loader *loader, const struct ptx_statement *st,
		       const struct ptx_operand *arg, uint32_t wanted, enum ptx_type type, uint32_t *handle,
		       uint32_t places[4])
{
	const struct ptx_operand *from = arg->place;
	uint32_t count;
	int rc = 0;

	if (arg->kind != PTX_OPERAND_MEMORY || !from || arg->offset || arg->elements->kind != PTX_OPERAND_REG)
		return -EINVAL;
	rc = ptx_source(loader, st, arg->elements, 8, PTX_TYPE_U64, handle, NULL);
	count = from->kind == PTX_OPERAND_VECTOR ? from->element_count : 1;
	if (rc || (count != wanted && !(wanted == 3 && count == 4)))
		return -EINVAL;
	for (uint32_t i = 0; i < wanted && !rc; i++) {
		const struct ptx_operand *one = from->kind == PTX_OPERAND_VECTOR ? &from->elements[i] : from;

		rc = one->second ? -EINVAL : ptx_source(loader, st, one, 4, type, &places[i], NULL);
	}
	return rc;
}

static int component_of(const struct ptx_statement *st)
{
	static const char *const names[] = { "r", "g", "b", "a" };
	int found = 0;

	for (int i = 0; i < 4; i++)
		if (ptx_has(st, names[i]))
			found = found ? -1 : i + 1;
	return found;
}

static int lower_results(struct ptx_loader *loader, const struct ptx_statement *st, uint32_t results[4])
{
	const struct ptx_operand *to = &st->args[0];
	int rc = to->kind == PTX_OPERAND_VECTOR && to->element_count == 4 && !to->second ? 0 : -EINVAL;

	for (unsigned i = 0; i < 4 && !rc; i++)
		rc = to->elements[i].second ? -EINVAL
					    : ptx_target(loader, st, &to->elements[i], 4, &results[i], NULL);
	return rc;
}

/* tex {r, g, b, a}, [texture, {x, y}]; there are no mipmaps, so a level or gradients have no effect. */
int ptx_lower_tex(struct ptx_loader *loader, struct ptx_statement *st)
{
	bool is_gather = !strcmp(st->name, "tld4");
	uint32_t results[4], places[4], handle = 0, coordinates = 0;
	uint32_t most = ptx_has(st, "grad") ? 4 : ptx_has(st, "level") ? 3 : 2;
	int geometry = geometry_of(st, &coordinates), component = is_gather ? component_of(st) : 0, rc;
	struct ptx_op *op;

	if (geometry < 0 || component < 0 || (is_gather && !component) || st->arg_count != most)
		return ptx_refuse(loader, st->line, "instruction %s with these operands is not supported",
				  st->full);
	rc = lower_results(loader, st, results);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	rc = lower_place(loader, st, &st->args[1], coordinates, st->types[1], &handle, places);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 1);
	rc = ptx_lower_put(loader, st, places, coordinates, 0, 4);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_TEX, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->mode = (uint8_t)geometry;
	op->combine = (uint8_t)component;
	op->type2 = (uint8_t)st->types[1];
	op->writes = 4;
	op->count = 5;
	memcpy(op->r, results, sizeof(results));
	op->r[4] = handle;
	return 0;
}

/* A vector of one element is treated as that element. */
static const struct ptx_operand *lone(const struct ptx_operand *arg)
{
	return arg->kind == PTX_OPERAND_VECTOR && arg->element_count == 1 && !arg->second ? arg->elements
											  : arg;
}

/* suld {a, b}, [surface, {x, y}]; sust [surface, {x, y}], {a, b}. The first coordinate is in bytes. */
int ptx_lower_surface(struct ptx_loader *loader, struct ptx_statement *st)
{
	bool is_load = st->row->family == PTX_SULD;
	uint32_t elements[PTX_ELEMENTS_MAX], places[4], handle = 0, width = 0, coordinates = 0;
	uint32_t n = ptx_has(st, "v2") ? 2 : ptx_has(st, "v4") ? 4 : 1;
	int geometry = geometry_of(st, &coordinates), rc;
	struct ptx_op *op;

	if (geometry < 0 || st->arg_count != 2 || n * ptx_type_bytes(st->types[0]) > 16 ||
	    ptx_has(st, "trap") + ptx_has(st, "clamp") + ptx_has(st, "zero") > 1)
		return ptx_refuse(loader, st->line, "instruction %s with these operands is not supported",
				  st->full);
	rc = ptx_lower_elements(loader, st, lone(&st->args[is_load ? 0 : 1]), is_load, elements, &width);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, is_load ? 0 : 1);
	rc = lower_place(loader, st, &st->args[is_load ? 1 : 0], coordinates, PTX_TYPE_S32, &handle, places);
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, is_load ? 1 : 0);
	rc = ptx_lower_put(loader, st, places, coordinates, 0, 4);
	if (rc)
		return rc;
	op = ptx_emit(loader, st, st->row->family, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->mode = (uint8_t)geometry;
	op->combine = ptx_has(st, "clamp")  ? PTX_OUTSIDE_CLAMP
		      : ptx_has(st, "zero") ? PTX_OUTSIDE_ZERO
					    : PTX_OUTSIDE_TRAP;
	op->type2 = (uint8_t)st->types[0];
	op->width = (uint8_t)width;
	op->vector = (uint8_t)n;
	op->writes = (uint8_t)(is_load ? n : 0);
	op->count = (uint8_t)(n + 1);
	memcpy(op->r, elements, n * sizeof(*elements));
	op->r[n] = handle;
	return 0;
}
