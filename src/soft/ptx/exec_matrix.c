/* Tensor cores. Products are exact, summed in a double and rounded once: PTX does not define the order and
 * the precision of the sum ("at least single precision"). Operands and results of mma are in the warp's extra
 * rows. */
#include "soft/ptx/access.h"
#include "soft/ptx/number.h"

#define ELEMENTS_MAX 512 /* of one matrix: 32 x 16 */

static uint32_t *extra_row(const struct ptx_warp *w, uint32_t row)
{
	return w->extra + (size_t)row * PTX_LANES;
}

PTX_HANDLER(put)
{
	for (unsigned k = 0; k < op->count; k++) {
		const uint64_t *wide = ptx_in(w, op->r[k]);
		uint32_t low[PTX_LANES], high[PTX_LANES];

		if (op->width == 4) {
			ptx_merge32(extra_row(w, op->aux + k), ptx_in(w, op->r[k]), mask);
			continue;
		}
		for (unsigned i = 0; i < PTX_LANES; i++) {
			low[i] = (uint32_t)wide[i];
			high[i] = (uint32_t)(wide[i] >> 32);
		}
		ptx_merge32(extra_row(w, op->aux + 2 * k), low, mask);
		ptx_merge32(extra_row(w, op->aux + 2 * k + 1), high, mask);
	}
}

PTX_HANDLER(take)
{
	for (unsigned k = 0; k < op->count; k++) {
		uint64_t wide[PTX_LANES];

		if (op->width == 4) {
			ptx_merge32(ptx_out(w, op->r[k]), extra_row(w, op->aux + k), mask);
			continue;
		}
		for (unsigned i = 0; i < PTX_LANES; i++)
			wide[i] = extra_row(w, op->aux + 2 * k)[i] |
				  (uint64_t)extra_row(w, op->aux + 2 * k + 1)[i] << 32;
		ptx_merge64(ptx_out(w, op->r[k]), wide, mask);
	}
}

/* ---- elements */

static unsigned bytes_of(unsigned element)
{
	static const uint8_t bytes[PTX_ELEMENTS] = { 2, 2, 4, 1, 1, 4, 4, 8 };

	return bytes[element];
}

static double element_value(unsigned element, uint64_t bits)
{
	switch (element) {
	case PTX_ELEMENT_F16:
		return (double)ptx_from_f16((uint16_t)bits);
	case PTX_ELEMENT_BF16:
		return (double)ptx_from_bf16((uint16_t)bits);
	case PTX_ELEMENT_TF32:
		return (double)ptx_f32((uint32_t)bits & 0xffffe000u);
	case PTX_ELEMENT_S8:
		return (int8_t)bits;
	case PTX_ELEMENT_U8:
		return (uint8_t)bits;
	case PTX_ELEMENT_F32:
		return (double)ptx_f32((uint32_t)bits);
	case PTX_ELEMENT_S32:
		return (int32_t)bits;
	default:
		return ptx_f64(bits);
	}
}

/* Convert a sum to an element of the result. */
static uint64_t element_bits(unsigned element, double value, bool is_saturated)
{
	switch (element) {
	case PTX_ELEMENT_F16:
		return ptx_to_f16((float)ptx_round_to(value, 11, -24, 65504, PTX_RN));
	case PTX_ELEMENT_F32:
		return ptx_bits32(ptx_canon((float)value));
	case PTX_ELEMENT_S32:
		if (is_saturated)
			value = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
		return (uint32_t)(int64_t)value;
	default:
		return ptx_bits64(value);
	}
}

/* Element `i` of the fragment of a lane, which starts at row `first`. */
static uint64_t fragment_get(const struct ptx_warp *w, uint32_t first, unsigned lane, unsigned i,
			     unsigned bytes)
{
	uint32_t word;

	if (bytes == 8)
		return extra_row(w, first + 2 * i)[lane] | (uint64_t)extra_row(w, first + 2 * i + 1)[lane]
								   << 32;
	word = extra_row(w, first + i * bytes / 4)[lane];
	return word >> 8 * (i * bytes % 4);
}

static void fragment_put(const struct ptx_warp *w, uint32_t first, unsigned lane, unsigned i, unsigned bytes,
			 uint64_t bits)
{
	uint32_t *word;

	if (bytes == 8) {
		extra_row(w, first + 2 * i)[lane] = (uint32_t)bits;
		extra_row(w, first + 2 * i + 1)[lane] = (uint32_t)(bits >> 32);
		return;
	}
	word = &extra_row(w, first + i * bytes / 4)[lane];
	memcpy((uint8_t *)word + i * bytes % 4, &bits, bytes);
}

/* ---- layout of fragments */

enum role { ROLE_A, ROLE_B, ROLE_C };
struct fragment {
	enum role role;
	bool is_wmma;
	unsigned rows, columns, bytes;
};

/* The index of element `i` of a lane in the matrix, row by row. For mma: PTX ISA, "Matrix Fragments for mma";
 * a register holds a few adjacent elements of a row of A or a column of B. For wmma, PTX does not define it:
 * here in sequence. */
static unsigned fragment_index(const struct fragment *f, unsigned lane, unsigned i)
{
	unsigned group = lane / 4, in_group = lane % 4, per_lane = f->rows * f->columns / PTX_LANES;
	unsigned each = f->bytes < 4 ? 4 / f->bytes : 1, reg = i / each, along;
	bool is_tall = f->rows == 16;

	if (f->is_wmma)
		return lane * per_lane + i % per_lane;
	if (f->role == ROLE_C)
		return (group + (is_tall ? 8 * (i / 2) : 0)) * f->columns + in_group * 2 + i % 2;
	if (f->role == ROLE_B)
		return (reg * 4 * each + in_group * each + i % each) * f->columns + group;
	along = (is_tall ? reg / 2 : reg) * 4 * each + in_group * each + i % each;
	return (group + (is_tall ? 8 * (reg % 2) : 0)) * f->columns + along;
}

static void matrix_read(const struct ptx_warp *w, const struct fragment *f, uint32_t first, unsigned element,
			double *to)
{
	unsigned per_lane = f->rows * f->columns / PTX_LANES;

	for (unsigned lane = 0; lane < PTX_LANES; lane++)
		for (unsigned i = 0; i < per_lane; i++)
			to[fragment_index(f, lane, i)] =
				element_value(element, fragment_get(w, first, lane, i, f->bytes));
}

static double sum_of(const struct ptx_matrix *x, const double *a, const double *b, double c, unsigned row,
		     unsigned column)
{
	bool is_double = x->a == PTX_ELEMENT_F64;
	double sum = is_double ? c : 0;

	for (unsigned k = 0; k < x->k; k++) {
		double left = a[row * x->k + k], right = b[k * x->n + column];

		sum = is_double ? fma(left, right, sum) : left * right + sum;
	}
	return is_double ? sum : sum + c;
}

/* wmma has eight registers for f16 factors; smaller factors fill a half or a quarter of them. */
static uint32_t factor_rows(const struct ptx_matrix *x, const struct fragment *f, unsigned element)
{
	return x->flags & PTX_MATRIX_WMMA && element == PTX_ELEMENT_F16
		       ? 8
		       : f->rows * f->columns * f->bytes / PTX_LANES / 4;
}

PTX_HANDLER(mma)
{
	double a[ELEMENTS_MAX], b[ELEMENTS_MAX], c[ELEMENTS_MAX];
	struct ptx_matrix x;
	struct fragment fa, fb, fc, fd;
	bool is_wmma;

	if (!PTX_BUILT(ptx_gather)(w, mask, op->r[5]))
		return;
	memcpy(&x, &op->offset, sizeof(x));
	is_wmma = x.flags & PTX_MATRIX_WMMA;
	fa = (struct fragment){ ROLE_A, is_wmma, x.m, x.k, bytes_of(x.a) };
	fb = (struct fragment){ ROLE_B, is_wmma, x.k, x.n, bytes_of(x.b) };
	fc = (struct fragment){ ROLE_C, is_wmma, x.m, x.n, bytes_of(x.c) };
	fd = (struct fragment){ ROLE_C, is_wmma, x.m, x.n, bytes_of(x.d) };
	matrix_read(w, &fa, 0, x.a, a);
	matrix_read(w, &fb, factor_rows(&x, &fa, x.a), x.b, b);
	matrix_read(w, &fc, factor_rows(&x, &fa, x.a) + factor_rows(&x, &fb, x.b), x.c, c);
	for (unsigned lane = 0; lane < PTX_LANES; lane++)
		for (unsigned i = 0; i < (unsigned)x.m * x.n / PTX_LANES; i++) {
			unsigned at = fragment_index(&fd, lane, i);
			double sum = sum_of(&x, a, b, c[at], at / x.n, at % x.n);

			fragment_put(w, 0, lane, i, fd.bytes,
				     element_bits(x.d, sum, x.flags & PTX_MATRIX_SAT));
		}
}

/* ---- wmma loads and stores */

struct moved {
	struct fragment fragment;
	uint64_t address, stride;
	unsigned lane; /* the lane for faults: all lanes have the same address */
	bool is_column;
};

static struct moved moved_of(const struct ptx_warp *w, const struct ptx_op *op, uint32_t mask)
{
	unsigned lane = (unsigned)__builtin_ctz(mask);
	struct moved m = { .lane = lane, .is_column = op->mode };

	m.fragment = (struct fragment){ ROLE_C, true, op->aux & 0xff, op->aux >> 8 & 0xff,
					bytes_of(op->aux >> 16 & 0xff) };
	m.address = op->address_width == 4 ? ((const uint32_t *)ptx_in(w, op->r[0]))[lane]
					   : ((const uint64_t *)ptx_in(w, op->r[0]))[lane];
	m.address += (uint64_t)op->offset;
	m.stride = op->r[1] != PTX_NO_OPERAND ? ((const uint32_t *)ptx_in(w, op->r[1]))[lane]
		   : m.is_column	      ? m.fragment.rows
					      : m.fragment.columns;
	return m;
}

static uint8_t *element_place(struct ptx_warp *w, const struct ptx_op *op, const struct moved *m,
			      unsigned lane, unsigned i, bool is_write)
{
	unsigned at = fragment_index(&m->fragment, lane, i);
	uint64_t row = at / m->fragment.columns, column = at % m->fragment.columns;
	uint64_t index = m->is_column ? column * m->stride + row : row * m->stride + column;

	return PTX_BUILT(ptx_resolve_one)(w, op, m->lane, m->address + index * m->fragment.bytes,
					  m->fragment.bytes, is_write);
}

static uint64_t load_element(const uint8_t *at, unsigned bytes)
{
	switch (bytes) {
	case 1:
		return __atomic_load_n(at, __ATOMIC_RELAXED);
	case 2:
		return __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_RELAXED);
	case 4:
		return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
	default:
		return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
	}
}

static void store_element(uint8_t *at, unsigned bytes, uint64_t bits)
{
	switch (bytes) {
	case 1:
		__atomic_store_n(at, (uint8_t)bits, __ATOMIC_RELAXED);
		break;
	case 2:
		__atomic_store_n((uint16_t *)(void *)at, (uint16_t)bits, __ATOMIC_RELAXED);
		break;
	case 4:
		__atomic_store_n((uint32_t *)(void *)at, (uint32_t)bits, __ATOMIC_RELAXED);
		break;
	default:
		__atomic_store_n((uint64_t *)(void *)at, bits, __ATOMIC_RELAXED);
		break;
	}
}

PTX_HANDLER(wmma_load)
{
	uint32_t here = PTX_BUILT(ptx_gather)(w, mask, op->r[5]);
	unsigned slots;
	struct moved m;

	if (!here)
		return;
	m = moved_of(w, op, here);
	slots = (op->aux >> 24) * (m.fragment.bytes == 8 ? 8 : 4) / m.fragment.bytes;
	for (unsigned lane = 0; lane < PTX_LANES; lane++)
		for (unsigned i = 0; i < slots; i++) {
			const uint8_t *at = element_place(w, op, &m, lane, i, false);

			if (!at)
				return;
			fragment_put(w, 0, lane, i, m.fragment.bytes, load_element(at, m.fragment.bytes));
		}
}

PTX_HANDLER(wmma_store)
{
	uint32_t here = PTX_BUILT(ptx_gather)(w, mask, op->r[5]);
	struct moved m;

	if (!here)
		return;
	m = moved_of(w, op, here);
	for (unsigned lane = 0; lane < PTX_LANES; lane++)
		for (unsigned i = 0; i < m.fragment.rows * m.fragment.columns / PTX_LANES; i++) {
			uint8_t *at = element_place(w, op, &m, lane, i, true);

			if (!at)
				return;
			store_element(at, m.fragment.bytes, fragment_get(w, 0, lane, i, m.fragment.bytes));
		}
}

/* ---- 8 x 8 matrices of 16-bit elements: rows of 16 bytes in shared memory, two elements of a row per
 * register */

static uint64_t row_address(const struct ptx_warp *w, const struct ptx_op *op, unsigned lane)
{
	uint64_t address = op->address_width == 4 ? ((const uint32_t *)ptx_in(w, op->r[4]))[lane]
						  : ((const uint64_t *)ptx_in(w, op->r[4]))[lane];

	return address + (uint64_t)op->offset;
}

/* The indices of the two elements of a lane in the matrix. */
static void pair_of(unsigned lane, bool is_transposed, unsigned at[2])
{
	unsigned line = lane / 4, along = lane % 4 * 2;

	for (unsigned h = 0; h < 2; h++)
		at[h] = is_transposed ? (along + h) * 8 + line : line * 8 + along + h;
}

static bool rows_resolve(struct ptx_warp *w, const struct ptx_op *op, unsigned matrix, bool is_write,
			 uint8_t *rows[8])
{
	for (unsigned i = 0; i < 8; i++) {
		unsigned lane = matrix * 8 + i;

		rows[i] = PTX_BUILT(ptx_resolve_one)(w, op, lane, row_address(w, op, lane), 16, is_write);
		if (!rows[i])
			return false;
	}
	return true;
}

PTX_HANDLER(ldmatrix)
{
	uint32_t here = PTX_BUILT(ptx_gather)(w, mask, op->r[5]);

	for (unsigned m = 0; m < op->vector && here; m++) {
		uint32_t *d = extra_row(w, m);
		uint8_t *rows[8];

		if (!rows_resolve(w, op, m, false, rows))
			return;
		for (unsigned lane = 0; lane < PTX_LANES; lane++) {
			unsigned at[2];
			uint16_t pair[2];

			pair_of(lane, op->mode, at);
			for (unsigned h = 0; h < 2; h++)
				memcpy(&pair[h], rows[at[h] / 8] + (size_t)2 * (at[h] % 8), 2);
			memcpy(&d[lane], pair, 4);
		}
	}
	/* a result can overwrite the row of addresses */
	for (unsigned m = 0; m < op->vector && here; m++)
		ptx_merge32(ptx_out(w, op->r[m]), extra_row(w, m), here);
}

PTX_HANDLER(stmatrix)
{
	uint32_t here = PTX_BUILT(ptx_gather)(w, mask, op->r[5]);

	for (unsigned m = 0; m < op->vector && here; m++) {
		const uint32_t *s = ptx_in(w, op->r[m]);
		uint8_t *rows[8];

		if (!rows_resolve(w, op, m, true, rows))
			return;
		for (unsigned lane = 0; lane < PTX_LANES; lane++) {
			unsigned at[2];
			uint16_t pair[2];

			pair_of(lane, op->mode, at);
			memcpy(pair, &s[lane], 4);
			for (unsigned h = 0; h < 2; h++)
				memcpy(rows[at[h] / 8] + (size_t)2 * (at[h] % 8), &pair[h], 2);
		}
	}
}

PTX_HANDLER(movmatrix)
{
	uint32_t here = PTX_BUILT(ptx_gather)(w, mask, op->r[5]), result[PTX_LANES];
	uint16_t matrix[64];

	if (!here)
		return;
	for (unsigned lane = 0; lane < PTX_LANES; lane++)
		memcpy(&matrix[(size_t)2 * lane], (const uint32_t *)ptx_in(w, op->r[1]) + lane, 4);
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		unsigned at[2];
		uint16_t pair[2];

		pair_of(lane, true, at);
		pair[0] = matrix[at[0]];
		pair[1] = matrix[at[1]];
		memcpy(&result[lane], pair, 4);
	}
	ptx_merge32(ptx_out(w, op->r[0]), result, here);
}

/* The nearest value with 10 bits of mantissa; ties away from zero. */
static inline uint32_t tf32_bits(uint32_t bits)
{
	uint32_t magnitude = bits & 0x7fffffff;

	if (magnitude > 0x7f800000)
		return 0x7fffffff;
	return magnitude == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000;
}

PTX_OP1(cvt_tf32, uint32_t, uint32_t, tf32_bits(a))

ptx_handler PTX_BUILT(ptx_find_matrix)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT] = {
		[PTX_PUT] = put,	   [PTX_TAKE] = take,		[PTX_MMA] = mma,
		[PTX_WMMALD] = wmma_load,  [PTX_WMMAST] = wmma_store,	[PTX_LDMATRIX] = ldmatrix,
		[PTX_STMATRIX] = stmatrix, [PTX_MOVMATRIX] = movmatrix,
	};

	if (family == PTX_CVTTF32)
		return type == PTX_TYPE_F32 ? cvt_tf32 : NULL;
	return type == PTX_TYPE_NONE ? handlers[family] : NULL;
}
