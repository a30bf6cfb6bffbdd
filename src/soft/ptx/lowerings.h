/* How rows of the table become ops: named in table.c. */
#ifndef BELFRY_SOFT_PTX_LOWERINGS_H
#define BELFRY_SOFT_PTX_LOWERINGS_H

#include "soft/ptx/load.h"

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
