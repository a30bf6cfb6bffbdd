/* weave: inserts the programs of probes into PTX text. The functions are pure: values in, values out. A text that
 * they do not understand is refused, and the caller loads what it has; no text is ever damaged.
 *
 * Woven code has registers, predicates, local memory and labels of its own, and uses no shared memory and no
 * barrier of the block. It changes no register, memory or control flow of the kernel. It does change the number
 * of registers and the bytes of local memory per thread: see weave_kernel. docs/probes.md has the details. */
#ifndef BELFRY_PROBE_WEAVE_H
#define BELFRY_PROBE_WEAVE_H

#include "probe/probe.h"

enum {
	WEAVE_PROBES_MAX = 32,
	WEAVE_TEXT_MAX_BYTES = 64 << 20, /* of the text that comes in, and of the text that goes out */
	WEAVE_TARGET_MIN = 70,		 /* compute_70: woven code needs independent thread scheduling */
	WEAVE_VERSION_MIN = 62,		 /* PTX ISA 6.2 */
};

struct weave_probe {
	const struct probe *probe;
	/* fnmatch(3) patterns for names of kernels, separated by commas; NULL: all kernels. A pattern is compared
	 * with the mangled name, with the plain name (weave_plain_name), and with the plain name's last part. */
	const char *kernels;
	uint64_t area;	    /* address of the area in device memory; it becomes a constant of the text */
	const char *launch; /* PTX operand of 64 bits for the field launch; NULL: %gridid */
	/* mem_access: each thread runs the program at one of so many accesses; 0 or 1: at all. */
	uint32_t period;
	bool is_per_thread; /* also programs that could run once for each warp; for measurements */
	/* The caller launches timed forms: see weave_kernel::timed. Otherwise submitted_ns is 0. */
	bool has_times;
};

/* In the last parameter of a timed form: what remains is the address of the time, in device memory. */
#define WEAVE_TIME_IS_ADDRESS (1ull << 63)

/* A kernel or a device function of a module. Kernels of a module that was not woven are not listed.
 *
 * A woven kernel can need more registers, so CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK can be smaller than without
 * probes. A caller that loads woven modules compares it with the block of each launch, or with the attribute of
 * the function without probes, and launches the function without probes where the woven one does not fit.
 * .maxntid, .reqntid, .maxnreg and .minnctapersm stay in the text: the assembler then spills registers. */
struct weave_kernel {
	char *name;	 /* as in the text */
	uint64_t id;	 /* weave_kernel_id(name): belfry_probe_ctx::kernel */
	bool is_entry;	 /* otherwise a device function */
	uint32_t probes; /* bit i: probe i was woven in at one place at least */
	/* Places with a program: entries and exits of the kernel, accesses, backward branches, sections. */
	uint32_t enters, exits, accesses, loops, sections;
	uint32_t skipped; /* accesses that the probes ask for, and that cannot be instrumented */
	char reason[96];  /* why there is no probe, or not all of them; empty: as requested */
	/* A kernel with a program that reads submitted_ns also has a timed form in the text: the same kernel with one more
	 * parameter of 8 bytes behind the `params` of the kernel. It is the time of the submission, or WEAVE_TIME_IS_ADDRESS and
	 * the address of the time. The kernel itself has the parameters that the program knows, and no time. NULL: none. */
	char *timed;
	uint32_t params;
};

struct weave_result {
	char *text; /* ends with NUL; NULL: nothing was woven, the original is to be loaded */
	size_t length;
	struct weave_kernel *kernels;
	size_t kernel_count;
	uint32_t target;   /* of the PTX: 80 for compute_80 */
	size_t text_bytes; /* of the PTX that was read */
};
void weave_result_free(struct weave_result *result);

/* Weaves PTX text. Returns 0 also if no kernel matches; then text is NULL. A negative errno: the text was not
 * woven, and err has the reason: -EINVAL (not understood), -ENOTSUP (32-bit addresses, a target or version that is
 * too old), -EFBIG, -ENOMEM. The result is then empty. A caller whose driver refuses the woven text loads the
 * original too. Threads can use the same probes at the same time. */
int weave_text(const char *text, size_t length, const struct weave_probe *probes, size_t probe_count,
	       struct weave_result *result, struct bf_error *err);

/* Weaves the PTX of what cuModuleLoadData, cuModuleLoadFatBinary, cuLibraryLoadData and __cudaRegisterFatBinary
 * receive: PTX text, a fat binary, or the wrapper 0x466243b1 of one. `length` 0: not known; it is read from the
 * image's header, and text ends with NUL. `target`: of the device, 90 for compute capability 9.0. Of several PTX
 * texts it takes the one with the highest target up to that, as the driver does.
 *
 * Returns as weave_text, and -ENOEXEC if the image has machine code and no PTX: it cannot be instrumented. */
int weave_image(const void *image, size_t length, uint32_t target, const struct weave_probe *probes,
		size_t probe_count, struct weave_result *result, struct bf_error *err);

/* The kernel's number in the context: FNV-1a, 64 bits, of the name as it is in the PTX. */
uint64_t weave_kernel_id(const char *name);
/* The name in the source, without template arguments and parameters: "space::attention" for
 * "_ZN5space9attentionILi64EEEvPf". A name that is not understood is copied. */
void weave_plain_name(const char *name, char *to, size_t room);
/* Whether the patterns of weave_probe::kernels match a name. */
bool weave_matches(const char *patterns, const char *name);

#endif
