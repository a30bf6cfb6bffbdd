/* Lower tensor core instructions. Fragments have more registers than an op has operands, so they use the
 * warp's extra rows: ops before the instruction copy them there, and ops after it copy the results back. */
#include <errno.h>
#include <string.h>

#include "soft/ptx/lowerings.h"

#define FRAGMENT_MAX 8 /* registers */

static int extra_emit(struct ptx_loader *loader, const struct ptx_statement *st, unsigned family,
		      const uint32_t places[], uint32_t count, uint32_t first, uint32_t width)
{
	loader->module->uses_extra = true;
	for (uint32_t done = 0; done < count;) {
		uint32_t n = count - done < PTX_OPERANDS ? count - done : PTX_OPERANDS;
		struct ptx_op *op = ptx_emit(loader, st, family, PTX_TYPE_NONE);

		if (!op)
			return ptx_no_memory(loader);
		op->aux = first + done * (width / 4);
		op->count = (uint8_t)n;
		op->writes = (uint8_t)(family == PTX_TAKE ? n : 0);
		op->width = (uint8_t)width;
		op->is_free = 1;
		memcpy(op->r, places + done, n * sizeof(*places));
		done += n;
	}
	return 0;
}

int ptx_lower_put(struct ptx_loader *loader, const struct ptx_statement *st, const uint32_t places[],
		  uint32_t count, uint32_t first, uint32_t width)
{
	return extra_emit(loader, st, PTX_PUT, places, count, first, width);
}

int ptx_lower_take(struct ptx_loader *loader, const struct ptx_statement *st, const uint32_t places[],
		   uint32_t count, uint32_t first, uint32_t width)
{
	return extra_emit(loader, st, PTX_TAKE, places, count, first, width);
}

static const char *const element_names[PTX_ELEMENTS] = { "f16", "bf16", "tf32", "s8",
							 "u8",	"f32",	"s32",	"f64" };
static const uint8_t element_bytes[PTX_ELEMENTS] = { 2, 2, 4, 1, 1, 4, 4, 8 };

/* The element types in the suffixes, in order. Returns their number. */
static uint32_t elements_named(const struct ptx_statement *st, uint8_t types[4])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < st->suffix_count; i++)
		for (unsigned e = 0; e < PTX_ELEMENTS; e++)
			if (!strcmp(st->suffixes[i], element_names[e])) {
				if (count == 4)
					return 5;
				types[count++] = (uint8_t)e;
			}
	return count;
}

/* mXnYkZ */
static bool shape_named(const struct ptx_statement *st, struct ptx_matrix *x)
{
	static const struct {
		const char *name;
		uint8_t m, n, k;
	} shapes[] = {
		{ "m16n8k4", 16, 8, 4 },     { "m16n8k8", 16, 8, 8 },	{ "m16n8k16", 16, 8, 16 },
		{ "m16n8k32", 16, 8, 32 },   { "m8n8k4", 8, 8, 4 },	{ "m8n8k16", 8, 8, 16 },
		{ "m16n16k16", 16, 16, 16 }, { "m32n8k16", 32, 8, 16 }, { "m8n32k16", 8, 32, 16 },
		{ "m16n16k8", 16, 16, 8 },
	};
	unsigned count = 0;

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if (ptx_has(st, shapes[i].name)) {
			x->m = shapes[i].m;
			x->n = shapes[i].n;
			x->k = shapes[i].k;
			count++;
		}
	return count == 1;
}

static bool is_shape(const struct ptx_matrix *x, uint32_t m, uint32_t n, uint32_t k)
{
	return x->m == m && x->n == n && x->k == k;
}

static bool is_integer(uint8_t element)
{
	return element == PTX_ELEMENT_S8 || element == PTX_ELEMENT_U8;
}

/* Whether the type of the factors has this shape. */
static bool shape_fits(const struct ptx_matrix *x)
{
	bool is_wmma = x->flags & PTX_MATRIX_WMMA;

	switch (x->a) {
	case PTX_ELEMENT_F16:
	case PTX_ELEMENT_BF16:
		return is_wmma ? x->k == 16 : is_shape(x, 16, 8, 8) || is_shape(x, 16, 8, 16);
	case PTX_ELEMENT_TF32:
		return is_wmma ? is_shape(x, 16, 16, 8) : is_shape(x, 16, 8, 4) || is_shape(x, 16, 8, 8);
	case PTX_ELEMENT_S8:
	case PTX_ELEMENT_U8:
		return is_wmma ? x->k == 16
			       : is_shape(x, 16, 8, 16) || is_shape(x, 16, 8, 32) || is_shape(x, 8, 8, 16);
	case PTX_ELEMENT_F64:
		return is_shape(x, 8, 8, 4);
	default:
		return false;
	}
}

/* Whether the type of the factors has these sums. */
static bool sums_fit(const struct ptx_matrix *x)
{
	switch (x->a) {
	case PTX_ELEMENT_F16:
		return x->b == x->a && (x->c == PTX_ELEMENT_F16 || x->c == PTX_ELEMENT_F32) &&
		       (x->d == PTX_ELEMENT_F16 || x->d == PTX_ELEMENT_F32);
	case PTX_ELEMENT_BF16:
	case PTX_ELEMENT_TF32:
		return x->b == x->a && x->c == PTX_ELEMENT_F32 && x->d == x->c;
	case PTX_ELEMENT_F64:
		return x->b == x->a && x->c == x->a && x->d == x->a;
	default:
		return is_integer(x->b) && x->c == PTX_ELEMENT_S32 && x->d == x->c;
	}
}

/* The registers of a fragment of rows x columns elements. wmma holds f16 factors twice. */
static uint32_t registers_of(const struct ptx_matrix *x, uint8_t element, uint32_t rows, uint32_t columns,
			     bool is_factor)
{
	uint32_t bytes = rows * columns * element_bytes[element] / PTX_LANES;

	if (x->flags & PTX_MATRIX_WMMA && element == PTX_ELEMENT_F16 && is_factor)
		return 8;
	return bytes / (element == PTX_ELEMENT_F64 ? 8 : 4);
}

static uint32_t register_bytes(uint8_t element)
{
	return element == PTX_ELEMENT_F64 ? 8 : 4;
}

/* The registers of a fragment, exactly `count`. A single register needs no braces. */
static int fragment_of(struct ptx_loader *loader, const struct ptx_statement *st,
		       const struct ptx_operand *arg, uint32_t count, uint32_t bytes, bool is_target,
		       uint32_t places[FRAGMENT_MAX])
{
	uint32_t given = arg->kind == PTX_OPERAND_VECTOR ? arg->element_count : 1;
	int rc = 0;

	if (given != count || count > FRAGMENT_MAX || arg->second)
		return -EINVAL;
	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct ptx_operand *one = arg->kind == PTX_OPERAND_VECTOR ? &arg->elements[i] : arg;

		if (one->second)
			return -EINVAL;
		rc = is_target ? ptx_target(loader, st, one, bytes, &places[i], NULL)
			       : ptx_source(loader, st, one, bytes, bytes == 8 ? PTX_TYPE_F64 : PTX_TYPE_B32,
					    &places[i], NULL);
	}
	return rc;
}

static int matrix_named(const struct ptx_statement *st, struct ptx_matrix *x)
{
	uint8_t types[4] = { 0 };
	uint32_t count = elements_named(st, types);
	bool is_wmma = !strcmp(st->name, "wmma");

	*x = (struct ptx_matrix){ .flags = (uint8_t)((is_wmma ? PTX_MATRIX_WMMA : 0) |
						     (ptx_has(st, "satfinite") ? PTX_MATRIX_SAT : 0)) };
	if (count == 2 && is_wmma) { /* only the sums are given: the factors are f16 */
		x->d = types[0];
		x->a = x->b = PTX_ELEMENT_F16;
		x->c = types[1];
	} else if (count == 4) {
		x->d = types[0];
		x->a = types[1];
		x->b = types[2];
		x->c = types[3];
	} else {
		return -EINVAL;
	}
	return shape_named(st, x) && shape_fits(x) && sums_fit(x) ? 0 : -EINVAL;
}

/* The member mask of an op in which all lanes take part. */
static int all_lanes(struct ptx_loader *loader, uint32_t *place)
{
	*place = ptx_constant(loader, 0xffffffffu, 4);
	return *place == PTX_NO_OPERAND ? ptx_no_memory(loader) : 0;
}

static int matrix_emit(struct ptx_loader *loader, const struct ptx_statement *st, unsigned family,
		       const struct ptx_matrix *x, uint32_t mask, struct ptx_op **op)
{
	*op = ptx_emit(loader, st, family, PTX_TYPE_NONE);
	if (!*op)
		return ptx_no_memory(loader);
	_Static_assert(sizeof(*x) == sizeof((*op)->offset), "it fits");
	memcpy(&(*op)->offset, x, sizeof(*x));
	(*op)->count = 6;
	(*op)->r[5] = mask;
	return 0;
}

/* mma d, a, b, c; wmma.mma d, a, b, c */
int ptx_lower_mma(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_matrix x;
	uint32_t places[4][FRAGMENT_MAX], counts[4], bytes[4], mask, row = 0;
	struct ptx_op *op;
	int rc = 0;

	if (matrix_named(st, &x) || st->arg_count != 4)
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	counts[0] = registers_of(&x, x.d, x.m, x.n, false);
	counts[1] = registers_of(&x, x.a, x.m, x.k, true);
	counts[2] = registers_of(&x, x.b, x.k, x.n, true);
	counts[3] = registers_of(&x, x.c, x.m, x.n, false);
	for (unsigned i = 0; i < 4; i++) {
		bytes[i] = register_bytes(i == 0 ? x.d : i == 1 ? x.a : i == 2 ? x.b : x.c);
		rc = fragment_of(loader, st, &st->args[i], counts[i], bytes[i], !i, places[i]);
		if (rc)
			return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, i);
	}
	for (unsigned i = 1; i < 4 && !rc; i++) {
		rc = ptx_lower_put(loader, st, places[i], counts[i], row, bytes[i]);
		row += counts[i] * (bytes[i] / 4);
	}
	if (!rc)
		rc = all_lanes(loader, &mask);
	if (!rc)
		rc = matrix_emit(loader, st, PTX_MMA, &x, mask, &op);
	return rc ? rc : ptx_lower_take(loader, st, places[0], counts[0], 0, bytes[0]);
}

/* The fragment of a load or store: x.a is its element, m and k its rows and columns. */
static int wmma_fragment(const struct ptx_statement *st, struct ptx_matrix *x, bool *is_factor)
{
	uint8_t types[4] = { 0 };
	bool is_a = ptx_has(st, "a"), is_b = ptx_has(st, "b"), is_c = ptx_has(st, "c") || ptx_has(st, "d");
	bool is_sum;

	*x = (struct ptx_matrix){ .flags = PTX_MATRIX_WMMA };
	if (elements_named(st, types) != 1 || !shape_named(st, x) || is_a + is_b + is_c != 1 ||
	    ptx_has(st, "row") + ptx_has(st, "col") != 1)
		return -EINVAL;
	*is_factor = !is_c;
	x->a = types[0];
	is_sum = x->a == PTX_ELEMENT_F16 || x->a == PTX_ELEMENT_F32 || x->a == PTX_ELEMENT_S32 ||
		 x->a == PTX_ELEMENT_F64;
	if (is_c ? !is_sum || (x->a == PTX_ELEMENT_F64) != is_shape(x, 8, 8, 4) : !shape_fits(x))
		return -EINVAL;
	if (is_b)
		x->m = x->k;
	if (!is_a)
		x->k = x->n;
	return 0;
}

/* wmma.load d, [p]{, stride}; wmma.store [p], d{, stride} */
int ptx_lower_wmma_memory(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address at = { .space = ptx_lower_space(st) };
	bool is_load = st->row->family == PTX_WMMALD, is_factor = false;
	uint32_t places[FRAGMENT_MAX], stride = PTX_NO_OPERAND, count, bytes, mask;
	struct ptx_matrix x;
	struct ptx_op *op;
	int rc;

	if (wmma_fragment(st, &x, &is_factor) || st->arg_count < 2 || st->arg_count > 3)
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	count = registers_of(&x, x.a, x.m, x.k, is_factor);
	bytes = register_bytes(x.a);
	rc = fragment_of(loader, st, &st->args[is_load ? 0 : 1], count, bytes, is_load, places);
	if (!rc)
		rc = ptx_lower_address(loader, st, &st->args[is_load ? 1 : 0], &at);
	if (!rc && st->arg_count == 3)
		rc = ptx_source(loader, st, &st->args[2], 4, PTX_TYPE_U32, &stride, NULL);
	if (!rc && at.space == PTX_SPACE_PARAM)
		rc = -EINVAL;
	if (rc)
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	rc = is_load ? 0 : ptx_lower_put(loader, st, places, count, 0, bytes);
	if (!rc)
		rc = all_lanes(loader, &mask);
	if (!rc)
		rc = matrix_emit(loader, st, st->row->family, &x, mask, &op);
	if (rc)
		return rc;
	/* the offset is used by the address: the matrix is in fields that other memory ops do not use */
	op->aux = x.m | (uint32_t)x.k << 8 | (uint32_t)x.a << 16 | (uint32_t)count << 24;
	op->mode = ptx_has(st, "col");
	op->r[1] = stride;
	rc = ptx_set_address(loader, op, 0, &at);
	return rc || !is_load ? rc : ptx_lower_take(loader, st, places, count, 0, bytes);
}

static uint32_t matrices_of(const struct ptx_statement *st)
{
	return ptx_has(st, "x4") ? 4 : ptx_has(st, "x2") ? 2 : ptx_has(st, "x1") ? 1 : 0;
}

/* movmatrix d, a */
static int lower_movmatrix(struct ptx_loader *loader, struct ptx_statement *st, uint32_t mask)
{
	uint32_t places[PTX_ARGS_MAX];
	uint8_t negated;
	struct ptx_op *op;
	int rc = ptx_lower_operands(loader, st, "Uu", places, &negated);

	if (rc)
		return rc;
	op = ptx_emit(loader, st, PTX_MOVMATRIX, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	op->writes = 1;
	op->count = 6;
	op->r[0] = places[0];
	op->r[1] = places[1];
	op->r[5] = mask;
	return 0;
}

/* ldmatrix {a, b, c, d}, [p]; stmatrix [p], {a, b, c, d} */
int ptx_lower_ldmatrix(struct ptx_loader *loader, struct ptx_statement *st)
{
	struct ptx_address at = { .space = ptx_lower_space(st) };
	bool is_load = st->row->family == PTX_LDMATRIX;
	uint32_t n = matrices_of(st), places[FRAGMENT_MAX], mask;
	struct ptx_op *op;
	int rc = all_lanes(loader, &mask);

	if (rc)
		return rc;
	if (st->row->family == PTX_MOVMATRIX)
		return lower_movmatrix(loader, st, mask);
	if (!n || st->arg_count != 2)
		return ptx_refuse(loader, st->line, "instruction %s is not supported", st->full);
	rc = fragment_of(loader, st, &st->args[is_load ? 0 : 1], n, 4, is_load, places);
	if (!rc)
		rc = ptx_lower_address(loader, st, &st->args[is_load ? 1 : 0], &at);
	if (rc || (at.space != PTX_SPACE_SHARED && at.space != PTX_SPACE_GENERIC))
		return rc == -ENOMEM ? rc : ptx_bad_operand(loader, st, 0);
	op = ptx_emit(loader, st, st->row->family, PTX_TYPE_NONE);
	if (!op)
		return ptx_no_memory(loader);
	loader->module->uses_extra = true;
	op->mode = ptx_has(st, "trans");
	op->vector = (uint8_t)n;
	op->writes = (uint8_t)(is_load ? n : 0);
	op->count = 6;
	memcpy(op->r, places, n * sizeof(*places));
	op->r[5] = mask;
	return ptx_set_address(loader, op, 4, &at);
}
