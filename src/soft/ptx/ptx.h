/* ptx: PTX text into code, and thread blocks of that code run on the host. Values in, values out: it opens no
 * file, starts no thread, keeps no global; device memory is reached only through the caller's translate().
 * What it cannot run is refused at load, with the line and the instruction's name, never at run time. */
#ifndef BELFRY_SOFT_PTX_H
#define BELFRY_SOFT_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Generic addresses with one of these high parts are windows on a block's own memory; everything below them is
 * the caller's device memory. A kernel's parameters are read only. */
#define PTX_SHARED_WINDOW 0x0001000000000000ull
#define PTX_LOCAL_WINDOW 0x0001010000000000ull
#define PTX_PARAM_WINDOW 0x0001020000000000ull
/* Addresses of functions: not memory, only calls take them. */
#define PTX_CODE_WINDOW 0x0001030000000000ull
#define PTX_WINDOW_BYTES 0x0000010000000000ull

#define PTX_TEXT_MAX_BYTES (256u << 20)
#define PTX_SHARED_MAX_BYTES (227u << 10)
#define PTX_LOCAL_MAX_BYTES (512u << 10)
/* A thread's stack: local frames of functions that recurse or are called through pointers. A launch may ask for more.
 * Return addresses and saved registers are kept apart, out of the program's reach, in PTX_CONTROL_FACTOR times that. */
#define PTX_STACK_BYTES (16u << 10)
#define PTX_CONTROL_FACTOR 4u
#define PTX_PARAM_MAX_BYTES 32764u
#define PTX_THREADS_MAX 1024u
#define PTX_REGISTERS_MAX 255u	/* a thread, as a compiler tells them */
#define PTX_SM_REGISTERS 65536u /* handed out by warps, in pieces of 256 */

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
	uint32_t shared_bytes;	 /* static, of the functions it calls too */
	uint32_t local_bytes;	 /* a thread */
	uint32_t register_bytes; /* a thread, after allocation */
	uint32_t register_count; /* 32-bit ones, as a compiler would report them */
	uint32_t max_threads;	 /* .maxntid or .reqntid, else PTX_THREADS_MAX */
	uint32_t required[3];	 /* .reqntid, else zeros */
	bool is_bounded;	 /* max_threads was given */
	bool uses_stack;	 /* each thread has ptx_launch.stack_bytes besides */
	uint32_t min_blocks;	 /* .minnctapersm, else 0 */
	uint32_t line;
};

/* At `offset` lie the low `bytes` bytes of (address of variable `variable` + addend) >> shift. */
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
	bool is_managed;     /* the host must see it at the same address */
	const uint8_t *data; /* the first data_bytes of it; the rest is zero */
	uint64_t data_bytes;
	const struct ptx_reloc *relocs;
	uint32_t reloc_count;
};

/* -ENOTSUP: PTX of a version that is not known here; -EINVAL: anything else that is wrong with it. */
int ptx_module_load(const char *text, size_t length, struct ptx_module **module, struct bf_error *err);
void ptx_module_free(struct ptx_module *module);

/* NULL past the last one. Kernels are listed in the order of the text. */
const struct ptx_kernel *ptx_kernel_at(const struct ptx_module *module, uint32_t index);
const struct ptx_kernel *ptx_kernel_find(const struct ptx_module *module, const char *name);
const struct ptx_variable *ptx_variable_at(const struct ptx_module *module, uint32_t index);
const struct ptx_variable *ptx_variable_find(const struct ptx_module *module, const char *name);
uint32_t ptx_variable_count(const struct ptx_module *module);
/* As written in the text: 80 of sm_80; 90 of version 9.0. */
uint32_t ptx_module_target(const struct ptx_module *module);
uint32_t ptx_module_version(const struct ptx_module *module);

/* Tell the code where its variables lie: one address for each, in their order. Once, before anything runs. */
void ptx_module_place(struct ptx_module *module, const uint64_t *addresses);

/* One stretch of device memory that is contiguous on the host. */
struct ptx_span {
	uint64_t base;
	uint64_t bytes;
	uint8_t *host;
	bool is_writable;
};

struct ptx_print {
	uint32_t block[3];
	uint32_t thread[3];
	const char *format;  /* ends with NUL; a copy that nobody changes */
	const uint8_t *args; /* laid out as C varargs: every value aligned to its size */
	uint64_t args_bytes; /* readable there, not used */
};

/* What a running block needs from outside. All but translate may be NULL. */
struct ptx_host {
	void *ctx;
	/* The span that holds [address, address + bytes), or false: a fault. Called when the block's own small
	 * cache of spans misses; the cache is dropped whenever ptx_block_run starts. */
	bool (*translate)(void *ctx, uint64_t address, uint32_t bytes, bool is_write, struct ptx_span *span);
	int (*print)(void *ctx, const struct ptx_print *print);
	/* %globaltimer. `cost`: what this ptx_block_run has executed so far, on `sm`. */
	uint64_t (*now_ns)(void *ctx, uint32_t sm, uint64_t cost);
};

struct ptx_launch {
	const struct ptx_module *module;
	const struct ptx_kernel *kernel;
	uint32_t grid[3];
	uint32_t threads[3];
	uint32_t dynamic_shared_bytes;
	const void *params; /* kernel->param_bytes of them */
	uint64_t grid_id;
	/* Of a cooperative launch, else 0: the address of 8 zeroed bytes of device memory for the grid's barrier
	 * (cooperative_groups/details/driver_abi.h). All blocks must then be run in turns, not one to its end. */
	uint64_t workspace;
	uint32_t sm_count;
	uint32_t
		stack_bytes; /* of a thread; at least PTX_STACK_BYTES, at most PTX_LOCAL_MAX_BYTES are used */
};

enum ptx_fault_kind {
	PTX_FAULT_NONE = 0,
	PTX_FAULT_ADDRESS, /* nothing there, or not writable */
	PTX_FAULT_MISALIGNED,
	PTX_FAULT_SHARED, /* outside of shared memory */
	PTX_FAULT_LOCAL,  /* outside of the thread's local memory */
	PTX_FAULT_TRAP,
	PTX_FAULT_BREAKPOINT,
	PTX_FAULT_ASSERT,
	PTX_FAULT_BARRIER, /* threads wait at barriers that nobody can complete */
	PTX_FAULT_INDEX,   /* brx.idx past its table */
	PTX_FAULT_STACK,   /* calls nested deeper than the thread's stack has room for */
	PTX_FAULT_CALL,	   /* a call through a pointer that is no function of its kind */
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

/* A block object runs many block indices of one launch, one after the other. The launch's parameters are
 * copied; module and host must outlive it. */
int ptx_block_create(const struct ptx_launch *launch, const struct ptx_host *host, struct ptx_block **block,
		     struct bf_error *err);
void ptx_block_free(struct ptx_block *block);
void ptx_block_start(struct ptx_block *block, const uint32_t index[3], uint32_t sm);
/* Run until done, faulted, *stop is set (NULL: never), or about max_cost thread-instructions more were executed
 * (0: no limit). PTX_STATE_RUNNING means: call again to go on. *cost grows by what was executed. */
enum ptx_state ptx_block_run(struct ptx_block *block, uint64_t max_cost, const uint32_t *stop,
			     uint64_t *cost);
/* Of device memory, by the last ptx_block_run: the width of every load, store and atomic for each of its lanes. */
uint64_t ptx_block_moved_bytes(const struct ptx_block *block);
const struct ptx_fault *ptx_block_fault(const struct ptx_block *block);
const char *ptx_fault_name(enum ptx_fault_kind kind);
/* Bytes that a thread of this launch has for calls, on the stack and apart from it; 0 if its kernel needs none. */
uint64_t ptx_launch_stack_bytes(const struct ptx_launch *launch);

/* The decoder's table, for docs/ptx.md: row `index`, or NULL past the end. */
struct ptx_row_info {
	const char *name;
	const char *types;
	const char *source_types;
	const char *modifiers;
	bool is_refused;
};
bool ptx_row_at(uint32_t index, struct ptx_row_info *info);

#endif
