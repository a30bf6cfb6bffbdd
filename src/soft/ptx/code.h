/* The internal representation: made by the loader, run by the handlers. */
#ifndef BELFRY_SOFT_PTX_CODE_H
#define BELFRY_SOFT_PTX_CODE_H

#include "soft/ptx/arena.h"
#include "soft/ptx/ptx.h"

#define PTX_LANES 32u
#define PTX_FUNCTIONS_MAX (1u << 20) /* of a module */
#define PTX_FUNCTION_BYTES 16u	     /* distance between function addresses */

enum ptx_type {
	PTX_TYPE_NONE,
	PTX_TYPE_B8,
	PTX_TYPE_U8,
	PTX_TYPE_S8,
	PTX_TYPE_B16,
	PTX_TYPE_U16,
	PTX_TYPE_S16,
	PTX_TYPE_B32,
	PTX_TYPE_U32,
	PTX_TYPE_S32,
	PTX_TYPE_B64,
	PTX_TYPE_U64,
	PTX_TYPE_S64,
	PTX_TYPE_F16,
	PTX_TYPE_BF16,
	PTX_TYPE_F16X2,
	PTX_TYPE_BF16X2,
	PTX_TYPE_U16X2,
	PTX_TYPE_S16X2,
	PTX_TYPE_F32,
	PTX_TYPE_F64,
	PTX_TYPE_PRED,
	PTX_TYPE_F32Z, /* f32 with .ftz: a separate type, so that plain f32 stays fast */
	PTX_TYPE_COUNT,
};

/* The operation of an op; together with the type it selects a handler. */
enum ptx_family {
	PTX_NOP,
	/* integer */
	PTX_ADD,
	PTX_SUB,
	PTX_ADDSAT,
	PTX_SUBSAT,
	PTX_ADDCC, /* flags: PTX_CC_IN, PTX_CC_OUT */
	PTX_SUBCC,
	PTX_MADCC,
	PTX_MULLO,
	PTX_MULHI,
	PTX_MULWIDE,
	PTX_MADLO,
	PTX_MADHI,
	PTX_MADWIDE,
	PTX_MADSAT,
	PTX_MUL24LO,
	PTX_MUL24HI,
	PTX_MAD24LO,
	PTX_MAD24HI,
	PTX_MAD24SAT,
	PTX_SAD,
	PTX_DIV,
	PTX_REM,
	PTX_ABS,
	PTX_NEG,
	PTX_MIN,
	PTX_MAX,
	PTX_POPC,
	PTX_CLZ,
	PTX_BFIND,
	PTX_FNS,
	PTX_BREV,
	PTX_BFE,
	PTX_BFI,
	PTX_DP4A,
	PTX_DP2A,
	PTX_AND,
	PTX_OR,
	PTX_XOR,
	PTX_NOT,
	PTX_CNOT,
	PTX_SHL,
	PTX_SHR,
	PTX_LOP3,
	PTX_SHF,
	PTX_PRMT,
	PTX_SZEXT,
	PTX_BMSK,
	/* moves and selection */
	PTX_MOV,
	PTX_PACK,
	PTX_UNPACK,
	PTX_SREG,
	PTX_SELP,
	PTX_SLCT,
	PTX_SETP,
	PTX_SET,
	PTX_TESTP,
	/* floating point */
	PTX_FADD,
	PTX_FSUB,
	PTX_FMUL,
	PTX_FMA,
	PTX_FDIV,
	PTX_FRCP,
	PTX_FSQRT,
	PTX_FADDR, /* the same with flags: rounding, ftz, sat */
	PTX_FSUBR,
	PTX_FMULR,
	PTX_FMAR,
	PTX_FDIVR,
	PTX_FRCPR,
	PTX_FSQRTR,
	PTX_FRSQRT,
	PTX_FMIN,
	PTX_FMAX,
	PTX_FABS,
	PTX_FNEG,
	PTX_FCOPYSIGN,
	PTX_EX2,
	PTX_LG2,
	PTX_SIN,
	PTX_COS,
	PTX_TANH,
	/* conversion */
	PTX_CVT,     /* any pair, by canonical values */
	PTX_CVTFAST, /* a common pair; aux is the pair */
	PTX_CVT2,    /* two f32 into a packed pair */
	/* memory */
	PTX_LDPARAM, /* kernel parameter at a known offset */
	PTX_LD,
	PTX_ST,
	PTX_ATOM,
	PTX_CVTA,
	PTX_ISSPACEP,
	PTX_CPASYNC,
	PTX_FENCE,
	PTX_MBARRIER,
	PTX_CPBULK, /* mode 0: device to shared memory; 1: back */
	PTX_PUT,    /* copies operands to the warp's extra rows from `aux` on */
	PTX_TAKE,   /* copies results from there */
	PTX_TEX,    /* mode: geometry; combine: component + 1 of tld4; coordinates in extra rows */
	PTX_SULD,   /* mode: geometry; combine: behaviour outside */
	PTX_SUST,
	/* warp operations */
	PTX_SHFL,
	PTX_VOTE,
	PTX_MATCH,
	PTX_REDUX,
	PTX_ACTIVEMASK,
	PTX_WARPSYNC,
	PTX_ELECT,
	PTX_MMA, /* see struct ptx_matrix; operands and results in extra rows */
	PTX_WMMALD,
	PTX_WMMAST,
	PTX_LDMATRIX, /* mode 1: transposed */
	PTX_STMATRIX,
	PTX_MOVMATRIX,
	PTX_CVTTF32,
	/* control */
	PTX_BRA,
	PTX_BRX,
	PTX_CALL,
	PTX_CALLX, /* of a stacked function: direct, or through a pointer */
	PTX_COPY,  /* copies parameters between frames, in local memory */
	PTX_RET,
	PTX_RETX, /* from a stacked function */
	PTX_EXIT,
	PTX_BAR,
	PTX_TRAP,
	PTX_BRKPT,
	PTX_VPRINTF,
	PTX_ASSERTFAIL,
	PTX_FREE,
	PTX_SET_CONDITION,
	PTX_FAMILY_COUNT,
};

enum ptx_space {
	PTX_SPACE_GENERIC,
	PTX_SPACE_GLOBAL,
	PTX_SPACE_SHARED,
	PTX_SPACE_LOCAL,
	PTX_SPACE_PARAM, /* of the kernel */
	PTX_SPACE_REG,
	PTX_SPACE_CONST,
};

enum ptx_round { PTX_RN, PTX_RZ, PTX_RM, PTX_RP };

#define PTX_FLAG_FTZ 0x01u
#define PTX_FLAG_SAT 0x02u
#define PTX_FLAG_RELU 0x04u
#define PTX_FLAG_NAN 0x08u
#define PTX_FLAG_XORSIGN 0x10u
#define PTX_FLAG_INTEGRAL 0x20u /* cvt: to an integral value of the same type */
#define PTX_FLAG_ABS 0x40u
#define PTX_FLAG_SATFINITE 0x80u
#define PTX_CC_IN 0x01u
#define PTX_CC_OUT 0x02u
#define PTX_CC_HIGH 0x04u
#define PTX_FLAG_ACQUIRE 0x01u
#define PTX_FLAG_RELEASE 0x02u

/* An operand: the offset of a register in the warp's file or, with the top bit set, an offset in the
 * constants. */
#define PTX_CONST_BIT 0x80000000u
#define PTX_NO_OPERAND 0x7fffffffu
#define PTX_OPERANDS 6
/* Rows of 32 lanes besides the registers of a warp, for instructions with more operands. They are used only
 * between a PTX_PUT and its instruction, and a lane uses only its own column, so that diverged lanes do not
 * interfere. */
#define PTX_EXTRA_ROWS 32u

struct ptx_warp;
struct ptx_op;
typedef void (*ptx_handler)(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask);

struct ptx_op {
	ptx_handler run;
	uint32_t guard;		  /* the predicate, or PTX_NO_OPERAND */
	uint32_t guard_xor;	  /* ~0 for @!p */
	uint32_t r[PTX_OPERANDS]; /* first the written operands, then the read ones */
	int64_t offset;		  /* of an address; a target or a table */
	uint32_t aux;
	uint32_t line;
	uint16_t family;
	uint8_t type;
	uint8_t type2;
	uint8_t writes; /* number of written operands in r */
	uint8_t count;	/* number of operands in r */
	uint8_t flags;
	uint8_t mode; /* comparison, rounding, shuffle mode, ... */
	uint8_t combine;
	uint8_t space;
	uint8_t width;	 /* bytes of a register lane, of memory ops */
	uint8_t vector;	 /* elements, of memory ops */
	uint8_t negated; /* bit i: predicate operand r[i] is inverted */
	uint8_t is_free; /* not counted as an instruction */
	uint8_t address_width;
};

enum ptx_compare {
	PTX_CMP_EQ,
	PTX_CMP_NE,
	PTX_CMP_LT,
	PTX_CMP_LE,
	PTX_CMP_GT,
	PTX_CMP_GE,
	PTX_CMP_EQU,
	PTX_CMP_NEU,
	PTX_CMP_LTU,
	PTX_CMP_LEU,
	PTX_CMP_GTU,
	PTX_CMP_GEU,
	PTX_CMP_NUM,
	PTX_CMP_NAN,
};

enum ptx_combine { PTX_COMBINE_NONE, PTX_COMBINE_AND, PTX_COMBINE_OR, PTX_COMBINE_XOR };

enum ptx_sreg {
	PTX_SREG_TID_X,
	PTX_SREG_TID_Y,
	PTX_SREG_TID_Z,
	PTX_SREG_NTID_X,
	PTX_SREG_NTID_Y,
	PTX_SREG_NTID_Z,
	PTX_SREG_CTAID_X,
	PTX_SREG_CTAID_Y,
	PTX_SREG_CTAID_Z,
	PTX_SREG_NCTAID_X,
	PTX_SREG_NCTAID_Y,
	PTX_SREG_NCTAID_Z,
	PTX_SREG_LANEID,
	PTX_SREG_WARPID,
	PTX_SREG_NWARPID,
	PTX_SREG_SMID,
	PTX_SREG_NSMID,
	PTX_SREG_GRIDID,
	PTX_SREG_CLOCK,
	PTX_SREG_CLOCK_HI,
	PTX_SREG_CLOCK64,
	PTX_SREG_TIMER,
	PTX_SREG_TIMER_LO,
	PTX_SREG_TIMER_HI,
	PTX_SREG_MASK_EQ,
	PTX_SREG_MASK_LT,
	PTX_SREG_MASK_LE,
	PTX_SREG_MASK_GT,
	PTX_SREG_MASK_GE,
	PTX_SREG_DYNAMIC_BYTES,
	PTX_SREG_TOTAL_BYTES,
	PTX_SREG_WORKSPACE_LO, /* %envreg2 */
	PTX_SREG_WORKSPACE_HI, /* %envreg1 */
	PTX_SREG_RESERVED,     /* first byte of reserved shared memory */
	PTX_SREG_RESERVED_END,
	PTX_SREG_RESERVED_CAP,
	PTX_SREG_ZERO,	       /* constant parts: %tid.w, %envreg0 */
	PTX_SREG_ONE,	       /* %ntid.w */
	PTX_SREG_DYNAMIC_BASE, /* internal: the start of extern shared memory */
};

enum ptx_geometry {
	PTX_GEOMETRY_1D,
	PTX_GEOMETRY_2D,
	PTX_GEOMETRY_3D,
	PTX_GEOMETRY_A1D, /* layered: the first coordinate is the layer */
	PTX_GEOMETRY_A2D,
	PTX_GEOMETRY_CUBE,
	PTX_GEOMETRY_ACUBE,
};
/* Elements of matrices. */
enum ptx_element {
	PTX_ELEMENT_F16,
	PTX_ELEMENT_BF16,
	PTX_ELEMENT_TF32,
	PTX_ELEMENT_S8,
	PTX_ELEMENT_U8,
	PTX_ELEMENT_F32,
	PTX_ELEMENT_S32,
	PTX_ELEMENT_F64,
	PTX_ELEMENTS,
};
/* The matrices of PTX_MMA and of wmma loads and stores, in ptx_op::offset or, for memory ops, ptx_op::aux. */
struct ptx_matrix {
	uint8_t m, n, k;
	uint8_t a, b, c, d; /* enum ptx_element; memory ops use only a */
	uint8_t flags;
};
#define PTX_MATRIX_WMMA 0x01u /* wmma fragments, whose layout PTX does not define */
#define PTX_MATRIX_SAT 0x02u
enum ptx_outside { PTX_OUTSIDE_TRAP, PTX_OUTSIDE_CLAMP, PTX_OUTSIDE_ZERO };
enum ptx_mbarrier_mode {
	PTX_MBARRIER_INIT,
	PTX_MBARRIER_INVAL,
	PTX_MBARRIER_ARRIVE,
	PTX_MBARRIER_DROP,
	PTX_MBARRIER_EXPECT,	    /* bytes that copies will write */
	PTX_MBARRIER_ARRIVE_EXPECT, /* both */
	PTX_MBARRIER_COMPLETE,	    /* bytes that copies have written */
	PTX_MBARRIER_WAIT,
	PTX_MBARRIER_WAIT_PARITY,
	PTX_MBARRIER_PENDING,
};
enum ptx_bar_mode { PTX_BAR_SYNC, PTX_BAR_ARRIVE, PTX_BAR_POPC, PTX_BAR_AND, PTX_BAR_OR };
enum ptx_shfl_mode { PTX_SHFL_UP, PTX_SHFL_DOWN, PTX_SHFL_BFLY, PTX_SHFL_IDX };
enum ptx_vote_mode { PTX_VOTE_ALL, PTX_VOTE_ANY, PTX_VOTE_UNI, PTX_VOTE_BALLOT };
enum ptx_atom_mode {
	PTX_ATOM_ADD,
	PTX_ATOM_MIN,
	PTX_ATOM_MAX,
	PTX_ATOM_AND,
	PTX_ATOM_OR,
	PTX_ATOM_XOR,
	PTX_ATOM_INC,
	PTX_ATOM_DEC,
	PTX_ATOM_EXCH,
	PTX_ATOM_CAS,
};

/* Parameters that PTX_COPY copies between frames, of the whole module; bytes 0 ends a list. */
struct ptx_copy {
	uint32_t to;
	uint32_t from;
	uint32_t bytes;
};

/* A call of a stacked function. */
struct ptx_site {
	struct ptx_function *caller;
	struct ptx_function *callee; /* NULL: through a pointer */
	uint32_t args;		     /* index of its first copy, for ptx_copy::from and bytes */
	uint32_t arg_count;
	uint32_t result_to; /* in the caller's frame */
	uint32_t result_bytes;
	bool saves; /* the callee may call the caller again: the caller's registers are saved */
};

/* A constant with the address of a variable, which ptx_module_place fills in. */
struct ptx_patch {
	uint32_t at; /* in the constants */
	uint32_t variable;
	int64_t addend;
	uint32_t bytes; /* of one lane */
};

struct ptx_module {
	struct ptx_arena arena;
	struct ptx_op *code;
	uint32_t code_count;
	uint8_t *constants; /* values, repeated for each lane */
	uint32_t constant_bytes;
	struct ptx_patch *patches;
	uint32_t patch_count;
	uint32_t *targets; /* brx.idx tables */
	struct ptx_copy *copies;
	struct ptx_site *sites;
	uint32_t site_count;
	struct ptx_function **numbered; /* functions by the number in their address; NULL: not defined */
	uint32_t numbered_count;
	uint64_t code_base; /* the address of function 0: differs between texts */
	struct ptx_variable *variables;
	uint32_t variable_count;
	struct ptx_function **functions;
	uint32_t function_count;
	bool uses_reserved; /* shared memory */
	bool uses_extra;    /* rows of operands */
	uint32_t target;
	uint32_t version;
};

/* A function, loaded and laid out. Its registers and shared memory have a fixed place, disjoint from those of
 * all its callers. So has its local memory, unless the function is recursive or called through a pointer:
 * then its local frame is on the thread's stack (is_stacked), and a register row holds its address. */
struct ptx_function {
	struct ptx_kernel kernel; /* the public part; first, so that pointers can be converted */
	uint32_t entry;		  /* index into code */
	uint32_t regs_base;	  /* bytes of a warp's file */
	uint32_t regs_bytes;
	uint32_t regs_total; /* including its callees */
	uint32_t local_base;
	uint32_t local_bytes;
	uint32_t local_total;
	uint32_t shared_base;
	uint32_t shared_bytes;
	uint32_t shared_total;
	uint32_t return_at; /* the row of return addresses */
	bool is_stacked;
	bool is_taken;	   /* its address is taken: it may be called through a pointer */
	bool uses_stack;   /* it or one of its callees is stacked */
	uint32_t frame_at; /* the row of frame addresses, if it is stacked */
	uint32_t rows[4];  /* registers of 8, 4, 2 bytes and predicates, in this order */
	uint32_t saved_bytes;
	uint32_t result_at; /* in its local frame */
	uint32_t result_bytes;
};

/* The handler of a family and type for this processor, or NULL. */
ptx_handler ptx_handler_find(unsigned family, unsigned type);

uint32_t ptx_type_bytes(enum ptx_type type);
const char *ptx_type_name(enum ptx_type type);

#endif
