/* What one instruction does: its access of global memory, and its floating-point operations. */
#include <string.h>

#include "probe/weave_inside.h"

static bool is(const struct view *view, const char *text)
{
	return strlen(text) == view->length && !memcmp(view->text, text, view->length);
}

static uint32_t bytes_of_type(const struct view *suffix)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} types[] = {
		{ "b8", 1 },  { "u8", 1 },  { "s8", 1 },    { "b16", 2 },    { "u16", 2 },
		{ "s16", 2 }, { "f16", 2 }, { "bf16", 2 },  { "b32", 4 },    { "u32", 4 },
		{ "s32", 4 }, { "f32", 4 }, { "f16x2", 4 }, { "bf16x2", 4 }, { "b64", 8 },
		{ "u64", 8 }, { "s64", 8 }, { "f64", 8 },   { "b128", 16 },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (is(suffix, types[i].name))
			return types[i].bytes;
	return 0;
}

/* Bytes that one thread accesses; 0: unknown. */
static uint32_t bytes_of(const struct insn *insn)
{
	uint32_t bytes = 0;

	for (unsigned i = 0; i < insn->suffix_count; i++)
		if (bytes_of_type(&insn->suffixes[i]))
			bytes = bytes_of_type(&insn->suffixes[i]);
	if (insn_has(insn, "v2"))
		return 2 * bytes;
	if (insn_has(insn, "v4"))
		return 4 * bytes;
	return insn_has(insn, "v8") ? 8 * bytes : bytes;
}

enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_OTHER };

static enum space space_of(const struct insn *insn)
{
	static const char *const others[] = { "shared", "local", "param", "const" };

	for (unsigned i = 0; i < insn->suffix_count; i++) {
		const struct view *suffix = &insn->suffixes[i];

		if (is(suffix, "global"))
			return SPACE_GLOBAL;
		for (unsigned k = 0; k < sizeof(others) / sizeof(others[0]); k++) {
			size_t length = strlen(others[k]);

			/* also .shared::cta, .param::entry */
			if (suffix->length >= length && !memcmp(suffix->text, others[k], length) &&
			    (suffix->length == length || suffix->text[length] == ':'))
				return SPACE_OTHER;
		}
	}
	return SPACE_GENERIC;
}

/* Takes the address of an operand. */
static enum access_found take_address(const struct scan *scan, const struct operand *operand, width_of *width,
				      struct point *point)
{
	uint32_t bits = operand->base.length ? width(scan, &operand->base) : 0;

	if (!operand->is_address || operand->base.length > 200)
		return ACCESS_SKIPPED;
	point->base = operand->base;
	point->offset = operand->offset;
	/* A generic address that is not in a register is of a variable in a space that is not known here. */
	point->is_symbol = !bits;
	if (bits ? bits != 64 : point->is_generic || !operand->base.length || operand->base.text[0] == '%')
		return ACCESS_SKIPPED;
	return ACCESS_POINT;
}

/* cp.async.ca.shared.global [to], [from], bytes; cp.async.bulk.global.shared::cta [to], [from], bytes */
static enum access_found find_copy(const struct scan *scan, const struct insn *insn, width_of *width,
				   struct point *point)
{
	bool is_bulk = insn_has(insn, "bulk"), is_write = false;
	const struct operand *size = &insn->operands[2];

	if (!insn_has(insn, "global") || insn_has(insn, "prefetch"))
		return ACCESS_NONE;
	if (insn_has(insn, "tensor") || insn->operand_count < 3 || (!is_bulk && !insn_has(insn, "async")))
		return ACCESS_SKIPPED;
	for (unsigned i = 0; i < insn->suffix_count; i++) {
		const struct view *suffix = &insn->suffixes[i];

		is_write = is(suffix, "global");
		if (is_write || (suffix->length >= 6 && !memcmp(suffix->text, "shared", 6)))
			break;
	}
	point->how = is_write;
	if (size->is_number && size->offset >= 0 && size->offset <= UINT32_MAX)
		point->bytes = (uint32_t)size->offset;
	else if (!size->is_address && size->base.length && size->base.length < 60 &&
		 width(scan, &size->base) == 32)
		point->size = size->base;
	else
		return ACCESS_SKIPPED;
	return take_address(scan, &insn->operands[is_write ? 0 : 1], width, point);
}

enum access_found access_find(const struct scan *scan, const struct insn *insn, width_of *width,
			      struct point *point)
{
	bool is_atomic = insn_is(insn, "atom") || insn_is(insn, "red");
	bool is_store = insn_is(insn, "st");
	enum space space;
	unsigned at = is_store || insn_is(insn, "red") ? 0 : 1;

	*point = (struct point){ .how = is_atomic ? 2 : is_store };
	if (insn_is(insn, "cp"))
		return find_copy(scan, insn, width, point);
	if (!is_atomic && !is_store && !insn_is(insn, "ld") && !insn_is(insn, "ldu")) {
		bool is_matrix = insn_is(insn, "wmma") && (insn_has(insn, "load") || insn_has(insn, "store"));

		return (is_matrix && space_of(insn) != SPACE_OTHER) || insn_is(insn, "multimem")
			       ? ACCESS_SKIPPED
			       : ACCESS_NONE;
	}
	space = space_of(insn);
	/* st.async and red.async write to the shared memory of a cluster. */
	if (space == SPACE_OTHER || insn_has(insn, "async"))
		return ACCESS_NONE;
	point->is_generic = space == SPACE_GENERIC;
	point->bytes = bytes_of(insn);
	if (!point->bytes || at >= insn->operand_count)
		return ACCESS_SKIPPED;
	return take_address(scan, &insn->operands[at], width, point);
}

/* ---- operations */

/* 2 * m * n * k of a suffix such as m16n8k16; 0: it is none. */
static uint64_t matrix_flops(const struct insn *insn)
{
	for (unsigned i = 0; i < insn->suffix_count; i++) {
		unsigned m, n, k;
		char copy[24];

		snprintf(copy, sizeof(copy), "%.*s",
			 (int)(insn->suffixes[i].length < 23 ? insn->suffixes[i].length : 23),
			 insn->suffixes[i].text);
		if (sscanf(copy, "m%3un%3uk%3u", &m, &n, &k) == 3)
			return 2ull * m * n * k;
	}
	return 0;
}

static bool has_float(const struct insn *insn, bool *is_pair)
{
	static const char *const types[] = { "f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2" };

	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (insn_has(insn, types[i])) {
			*is_pair = i >= 4;
			return true;
		}
	return false;
}

uint32_t insn_flops(const struct insn *insn)
{
	static const char *const single[] = { "add",   "sub", "mul", "div", "rcp", "sqrt",
					      "rsqrt", "sin", "cos", "ex2", "lg2", "tanh" };
	bool is_pair = false;

	if (!has_float(insn, &is_pair))
		return 0;
	if (insn_is(insn, "mma") || (insn_is(insn, "wmma") && insn_has(insn, "mma")))
		return (uint32_t)(matrix_flops(insn) / 32);
	if (insn_is(insn, "wgmma"))
		return (uint32_t)(matrix_flops(insn) / 128);
	if (insn_is(insn, "fma") || insn_is(insn, "mad"))
		return is_pair ? 4 : 2;
	for (unsigned i = 0; i < sizeof(single) / sizeof(single[0]); i++)
		if (insn_is(insn, single[i]))
			return is_pair ? 2 : 1;
	return 0;
}
