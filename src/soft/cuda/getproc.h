/* The symbol for a base name in a CUDA version. */
#ifndef BELFRY_SOFT_CUDA_GETPROC_H
#define BELFRY_SOFT_CUDA_GETPROC_H

#include <stdbool.h>
#include <stddef.h>

struct proc_version {
	const char *name; /* as exported: cuMemAlloc_v2 */
	int since;	  /* 1000 * major + 10 * minor */
};
extern const struct proc_version proc_versions[]; /* versions.c */
extern const size_t proc_version_count;

/* The newest form of `base` in `version`; NULL: none. *is_known is set if a newer version has one. */
const char *proc_name(const char *base, int version, bool is_per_thread, bool *is_known);

#endif
