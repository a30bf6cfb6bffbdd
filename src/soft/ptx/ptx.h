/* ptx: translates PTX text to code, and runs thread blocks of that code on the host. It opens no file, starts
 * no thread and has no global state; it accesses device memory only through the caller's translate().
 * Unsupported PTX is refused at load, with the line and the name of the instruction, never at run time. */
#ifndef BELFRY_SOFT_PTX_H
#define BELFRY_SOFT_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Generic addresses with one of these high parts are windows of a block's own memory; all lower addresses are
 * the caller's device memory. The parameters of a kernel are read-only. */
#define PTX_SHARED_WINDOW 0x0001000000000000ull
#define PTX_LOCAL_WINDOW 0x0001010000000000ull
#define PTX_PARAM_WINDOW 0x0001020000000000ull
/* Addresses of functions: not memory, only for calls. */
#define PTX_CODE_WINDOW 0x0001030000000000ull
#define PTX_WINDOW_BYTES 0x0000010000000000ull

#define PTX_TEXT_MAX_BYTES (256u << 20)
#define PTX_SHARED_MAX_BYTES (227u << 10)
#define PTX_LOCAL_MAX_BYTES (512u << 10)
/* The stack of a thread: local frames of functions that are recursive or called through pointers. A launch
 * can request more. Return addresses and saved registers are stored separately, inaccessible to the program,
 * in PTX_CONTROL_FACTOR times that size. */
#define PTX_STACK_BYTES (16u << 10)
#define PTX_CONTROL_FACTOR 4u
#define PTX_PARAM_MAX_BYTES 32764u
#define PTX_THREADS_MAX 1024u
#define PTX_REGISTERS_MAX 255u	/* per thread, as a compiler reports them */
#define PTX_SM_REGISTERS 65536u /* allocated per warp, in units of 256 */

struct ptx_module;
struct ptx_block;

struct ptx_param {
	const char *name;
	uint32_t offset;
	uint32_t bytes;
	uint32_t align;
};

/* An .entry or a .func of the module. */
struct ptx_kernel {
	const char *name;
	bool is_entry;
	const struct ptx_param *params;
	uint32_t param_count;
	uint32_t param_bytes;
	uint32_t shared_bytes;	 /* static, including its callees */
	uint32_t local_bytes;	 /* per thread */
	uint32_t register_bytes; /* per thread, after allocation */
	uint32_t register_count; /* 32-bit registers, as a compiler would report them */
	uint32_t max_threads;	 /* .maxntid or .reqntid, else PTX_THREADS_MAX */
	uint32_t required[3];	 /* .reqntid, else zeros */
	bool is_bounded;	 /* max_threads was given */
	bool uses_stack;	 /* each thread also has ptx_launch.stack_bytes */
	uint32_t min_blocks;	 /* .minnctapersm, else 0 */
	uint32_t line;
};

/* At `offset` are the low `bytes` bytes of (address of variable `variable` + addend) >> shift. */
struct ptx_reloc {
	uint64_t offset;
	uint32_t variable;
	uint16_t bytes;
	uint16_t shift;
	int64_t addend;
};

struct ptx_variable {
	const char *name;
	uint64_t bytes;
	uint32_t align;
	bool is_const;
	bool is_extern;
	bool is_visible;
	bool is_managed;     /* the host must access it at the same address */
	const uint8_t *data; /* the first data_bytes; the rest is zero */
	uint64_t data_bytes;
	const struct ptx_reloc *relocs;
	uint32_t reloc_count;
};

/* Returns -ENOTSUP for an unknown PTX version, -EINVAL for all other errors in the text. */
int ptx_module_load(const char *text, size_t length, struct ptx_module **module, struct bf_error *err);
void ptx_module_free(struct ptx_module *module);

/* NULL after the last one. Kernels are in the order of the text. */
const struct ptx_kernel *ptx_kernel_at(const struct ptx_module *module, uint32_t index);
const struct ptx_kernel *ptx_kernel_find(const struct ptx_module *module, const char *name);
const struct ptx_variable *ptx_variable_at(const struct ptx_module *module, uint32_t index);
const struct ptx_variable *ptx_variable_find(const struct ptx_module *module, const char *name);
uint32_t ptx_variable_count(const struct ptx_module *module);
/* As in the text: 80 for sm_80; 90 for version 9.0. */
uint32_t ptx_module_target(const struct ptx_module *module);
uint32_t ptx_module_version(const struct ptx_module *module);

/* Set the addresses of all variables, in order. Called once, before anything runs. */
void ptx_module_place(struct ptx_module *module, const uint64_t *addresses);

/* A range of device memory that is contiguous on the host. */
struct ptx_span {
	uint64_t base;
	uint64_t bytes;
	uint8_t *host;
	bool is_writable;
};

struct ptx_print {
	uint32_t block[3];
	uint32_t thread[3];
	const char *format;  /* ends with NUL; a private copy */
	const uint8_t *args; /* laid out like C varargs: every value aligned to its size */
	uint64_t args_bytes; /* readable bytes, not used bytes */
};

/* Callbacks of a running block. All but translate may be NULL. */
struct ptx_host {
	void *ctx;
	/* Find the span of [address, address + bytes); false: a fault. Called when the block's small cache of
	 * spans misses; ptx_block_run clears the cache when it starts. */
	bool (*translate)(void *ctx, uint64_t address, uint32_t bytes, bool is_write, struct ptx_span *span);
	int (*print)(void *ctx, const struct ptx_print *print);
	/* %globaltimer. `cost`: the cost of this ptx_block_run so far, on `sm`. */
	uint64_t (*now_ns)(void *ctx, uint32_t sm, uint64_t cost);
};

struct ptx_launch {
	const struct ptx_module *module;
	const struct ptx_kernel *kernel;
	uint32_t grid[3];
	uint32_t threads[3];
	uint32_t dynamic_shared_bytes;
	const void *params; /* kernel->param_bytes bytes */
	uint64_t grid_id;
	/* For a cooperative launch, else 0: the address of 8 zeroed bytes of device memory for the grid's
	 * barrier (cooperative_groups/details/driver_abi.h). The blocks must then run in turns, not one after
	 * the other. */
	uint64_t workspace;
	uint32_t sm_count;
	uint32_t
		/* Per thread; clamped to PTX_STACK_BYTES .. PTX_LOCAL_MAX_BYTES. */
		stack_bytes;
};

enum ptx_fault_kind {
	PTX_FAULT_NONE = 0,
	PTX_FAULT_ADDRESS, /* not mapped, or not writable */
	PTX_FAULT_MISALIGNED,
	PTX_FAULT_SHARED, /* outside shared memory */
	PTX_FAULT_LOCAL,  /* outside the thread's local memory */
	PTX_FAULT_TRAP,
	PTX_FAULT_BREAKPOINT,
	PTX_FAULT_ASSERT,
	PTX_FAULT_BARRIER, /* all threads wait at barriers that cannot complete */
	PTX_FAULT_INDEX,   /* brx.idx outside its table */
	PTX_FAULT_STACK,   /* the calls exceed the thread's stack */
	PTX_FAULT_CALL,	   /* a call through a pointer that is not a function with this signature */
};

struct ptx_fault {
	enum ptx_fault_kind kind;
	uint64_t address;
	uint32_t bytes;
	bool is_write;
	uint32_t line; /* of the PTX text */
	uint32_t thread[3];
	uint32_t block[3];
	char text[256]; /* of an assertion: file, line, function, condition */
};

enum ptx_state { PTX_STATE_RUNNING, PTX_STATE_DONE, PTX_STATE_FAULT };

/* A block object runs many block indices of one launch, one after the other. The parameters of the launch are
 * copied; module and host must outlive it. */
int ptx_block_create(const struct ptx_launch *launch, const struct ptx_host *host, struct ptx_block **block,
		     struct bf_error *err);
void ptx_block_free(struct ptx_block *block);
void ptx_block_start(struct ptx_block *block, const uint32_t index[3], uint32_t sm);
/* Run until done, faulted, *stop is set (NULL: never), or about max_cost thread-instructions were executed
 * (0: no limit). PTX_STATE_RUNNING means: call again to continue. The cost is added to *cost. */
enum ptx_state ptx_block_run(struct ptx_block *block, uint64_t max_cost, const uint32_t *stop,
			     uint64_t *cost);
/* Bytes of device memory moved by the last ptx_block_run: the width of every load, store and atomic for each
 * of its lanes. */
uint64_t ptx_block_moved_bytes(const struct ptx_block *block);
const struct ptx_fault *ptx_block_fault(const struct ptx_block *block);
const char *ptx_fault_name(enum ptx_fault_kind kind);
/* The bytes that a thread of this launch has for calls, on the stack and the control stack; 0 if its kernel
 * needs none. */
uint64_t ptx_launch_stack_bytes(const struct ptx_launch *launch);

/* The instruction table, for docs/ptx.md: row `index`, or NULL after the end. */
struct ptx_row_info {
	const char *name;
	const char *types;
	const char *source_types;
	const char *modifiers;
	bool is_refused;
};
bool ptx_row_at(uint32_t index, struct ptx_row_info *info);

#endif
