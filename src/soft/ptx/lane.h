/* Handlers: one loop over the lanes each, which the compiler vectorizes. Each file is built twice on x86-64:
 * for any processor, and for processors with AVX2 and FMA. PTX_BUILD is the suffix of the build. */
#ifndef BELFRY_SOFT_PTX_LANE_H
#define BELFRY_SOFT_PTX_LANE_H

#include "soft/ptx/block.h"

#ifndef PTX_BUILD
#define PTX_BUILD any
#endif
#define PTX_JOIN2(a, b) a##_##b
#define PTX_JOIN(a, b) PTX_JOIN2(a, b)
#define PTX_BUILT(name) PTX_JOIN(name, PTX_BUILD)

/* Rows never overlap partially. A result can be one of the sources: then it is written lane by lane. */
#if defined(__clang__)
#define PTX_EACH_LANE for (unsigned i = 0; i < PTX_LANES; i++)
#else
#define PTX_EACH_LANE _Pragma("GCC ivdep") for (unsigned i = 0; i < PTX_LANES; i++)
#endif

#define PTX_UNUSED __attribute__((unused))

static inline void ptx_merge16(uint16_t *d, const uint16_t *t, uint32_t mask)
{
	for (unsigned i = 0; i < PTX_LANES; i++)
		d[i] = mask >> i & 1 ? t[i] : d[i];
}

static inline void ptx_merge32(uint32_t *d, const uint32_t *t, uint32_t mask)
{
	for (unsigned i = 0; i < PTX_LANES; i++)
		d[i] = mask >> i & 1 ? t[i] : d[i];
}

static inline void ptx_merge64(uint64_t *d, const uint64_t *t, uint32_t mask)
{
	for (unsigned i = 0; i < PTX_LANES; i++)
		d[i] = mask >> i & 1 ? t[i] : d[i];
}

/* Copy the lanes of `mask` from t to d. */
static inline void ptx_merge(void *d, const void *t, size_t size, uint32_t mask)
{
	if (size == 2)
		ptx_merge16(d, t, mask);
	else if (size == 4)
		ptx_merge32(d, t, mask);
	else
		ptx_merge64(d, t, mask);
}

#define PTX_HANDLER(name) \
	static void name(struct ptx_warp *w, PTX_UNUSED const struct ptx_op *op, PTX_UNUSED uint32_t mask)

/* d = expr for the active lanes; `in` declares and reads the sources of lane i. */
#define PTX_LANE_OP(name, D, rows, in, expr) \
	PTX_HANDLER(name) \
	{ \
		D *d = ptx_out(w, op->r[0]); \
		rows if (mask == ~0u) \
		{ \
			PTX_EACH_LANE \
			{ \
				in d[i] = (D)(expr); \
			} \
		} \
		else \
		{ \
			D t[PTX_LANES]; \
			PTX_EACH_LANE \
			{ \
				in t[i] = (D)(expr); \
			} \
			ptx_merge(d, t, sizeof(D), mask); \
		} \
	}

#define PTX_OP1(name, D, A, expr) \
	PTX_LANE_OP(name, D, const A *pa = ptx_in(w, op->r[1]);, PTX_UNUSED A a = pa[i];, expr)
#define PTX_OP2(name, D, A, B, expr) \
	PTX_LANE_OP(name, D, const A *pa = ptx_in(w, op->r[1]); const B *pb = ptx_in(w, op->r[2]); \
		    , PTX_UNUSED A a = pa[i]; PTX_UNUSED B b = pb[i];, expr)
#define PTX_OP3(name, D, A, B, C, expr) \
	PTX_LANE_OP(name, D, const A *pa = ptx_in(w, op->r[1]); const B *pb = ptx_in(w, op->r[2]); \
		    const C *pc = ptx_in(w, op->r[3]);, PTX_UNUSED A a = pa[i]; PTX_UNUSED B b = pb[i]; \
		    PTX_UNUSED C c = pc[i];, expr)
#define PTX_OP4(name, D, A, B, C, E, expr) \
	PTX_LANE_OP(name, D, const A *pa = ptx_in(w, op->r[1]); const B *pb = ptx_in(w, op->r[2]); \
		    const C *pc = ptx_in(w, op->r[3]); const E *pe = ptx_in(w, op->r[4]); \
		    , PTX_UNUSED A a = pa[i]; PTX_UNUSED B b = pb[i]; PTX_UNUSED C c = pc[i]; \
		    PTX_UNUSED E e = pe[i];, expr)

/* The handlers of each file by family and type; NULL: none. */
ptx_handler PTX_BUILT(ptx_find_integer)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_bits)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_choose)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_float)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_rounded)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_half)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_convert)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_memory)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_atomic)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_warp)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_control)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_async)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_call)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_texture)(unsigned family, unsigned type);
ptx_handler PTX_BUILT(ptx_find_matrix)(unsigned family, unsigned type);
/* exec_warp.c: the lanes of `mask` that execute a .sync op now; `place` holds their member masks. */
uint32_t PTX_BUILT(ptx_gather)(struct ptx_warp *w, uint32_t mask, uint32_t place);
/* Run the selected fragment of the warp until it must stop, at most `limit` ops. Returns the number of
 * ops. */
uint32_t PTX_BUILT(ptx_fragment_run)(struct ptx_warp *warp, uint32_t limit);

#endif
