/* Fat binaries: the container for PTX and machine code of several GPUs that nvcc writes. Converts bytes to
 * PTX; all lengths in it are untrusted and checked. The layout was measured with nvcc 13.0, see
 * tests/data/fatbin/README.md. */
#ifndef BELFRY_SOFT_CUDA_FATBIN_H
#define BELFRY_SOFT_CUDA_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define FATBIN_WRAPPER_MAGIC 0x466243b1u /* the wrapper in a program that points to the container */
#define FATBIN_MAGIC 0xba55ed50u
enum { FATBIN_HEADER_BYTES = 16, FATBIN_ENTRY_BYTES = 64, FATBIN_TEXT_MAX_BYTES = 256 << 20 };

enum fatbin_kind { FATBIN_KIND_PTX = 1, FATBIN_KIND_ELF = 2 };
enum fatbin_packing { FATBIN_PLAIN, FATBIN_LZ4, FATBIN_ZSTD };

struct fatbin_entry {
	uint16_t kind;	 /* enum fatbin_kind, or an unknown kind */
	uint32_t target; /* 80: compute_80 or sm_80 */
	enum fatbin_packing packing;
	const uint8_t *data; /* as stored */
	size_t stored_bytes, bytes;
};
struct fatbin_walk {
	const uint8_t *at;
	size_t left;
};

/* The length of the container with its header, from its first FATBIN_HEADER_BYTES; 0: not a fat binary. */
uint64_t fatbin_length(const uint8_t *header);
int fatbin_start(const uint8_t *image, size_t length, struct fatbin_walk *walk, struct bf_error *err);
/* Returns 1 and the next entry, 0 at the end, or a negative errno. */
int fatbin_next(struct fatbin_walk *walk, struct fatbin_entry *entry, struct bf_error *err);
/* The decompressed text of a PTX entry, with a NUL that `length` does not count. The caller frees it. */
int fatbin_text(const struct fatbin_entry *entry, char **text, size_t *length, struct bf_error *err);

#endif
