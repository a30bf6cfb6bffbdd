/* The lowerings in the rows of table.c. */
#ifndef BELFRY_SOFT_PTX_LOWERINGS_H
#define BELFRY_SOFT_PTX_LOWERINGS_H

#include "soft/ptx/load.h"

/* lower_memory.c: an address operand. */
struct ptx_address {
	enum ptx_space space;
	uint32_t place;
	uint32_t width;
	int64_t offset;
	bool has_ref;
	bool is_known; /* a kernel parameter at a fixed offset */
	struct ptx_frame_ref ref;
};

enum ptx_space ptx_lower_space(const struct ptx_statement *st); /* from the suffixes */
/* a->space is the space from the suffixes on entry, and the exact one on return. */
int ptx_lower_address(struct ptx_loader *loader, const struct ptx_statement *st,
		      const struct ptx_operand *operand, struct ptx_address *a);
/* Store the address in operand `slot` of the op just emitted. */
int ptx_set_address(struct ptx_loader *loader, struct ptx_op *op, unsigned slot, const struct ptx_address *a);

int ptx_lower_carry(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_moded(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_lop3(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_float(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_setp(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_set(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_mov(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_cvt(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_cvt2(struct ptx_loader *loader, struct ptx_statement *st);

int ptx_lower_load(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_store(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_atom(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_cvta(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_isspacep(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_mbarrier(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_cp_arrive(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_cp_bulk(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_cp_async(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_ignored(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_fence(struct ptx_loader *loader, struct ptx_statement *st);
/* The registers of a load or store, as many as the suffixes v2 and v4 require, all of one width. */
int ptx_lower_elements(struct ptx_loader *loader, struct ptx_statement *st, const struct ptx_operand *arg,
		       bool is_load, uint32_t places[], uint32_t *width);
int ptx_lower_tex(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_surface(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_mma(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_wmma_memory(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_ldmatrix(struct ptx_loader *loader, struct ptx_statement *st);
/* lower_matrix.c: copy sources to the warp's extra rows from `first` on, or extra rows to targets: any
 * number, each of `width` bytes, in rows of 4. */
int ptx_lower_put(struct ptx_loader *loader, const struct ptx_statement *st, const uint32_t places[],
		  uint32_t count, uint32_t first, uint32_t width);
int ptx_lower_take(struct ptx_loader *loader, const struct ptx_statement *st, const uint32_t places[],
		   uint32_t count, uint32_t first, uint32_t width);

int ptx_lower_shfl(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_vote(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_match(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_redux(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_elect(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_bar(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_brx(struct ptx_loader *loader, struct ptx_statement *st);
int ptx_lower_ret(struct ptx_loader *loader, struct ptx_statement *st);

enum ptx_cvt_pair {
	PTX_CVT_U32_U64,
	PTX_CVT_S32_S64,
	PTX_CVT_64_32,
	PTX_CVT_S32_F32,
	PTX_CVT_U32_F32,
	PTX_CVT_F32_S32_RZ,
	PTX_CVT_F32_F64,
	PTX_CVT_F64_F32,
	PTX_CVT_S32_F64,
	PTX_CVT_F16_F32,
	PTX_CVT_F32_F16,
	PTX_CVT_PAIRS,
};

#endif
