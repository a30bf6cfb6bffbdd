/* Fat binaries: the container for PTX and machine code of several GPUs that nvcc writes. Converts bytes to
 * PTX; all lengths in it are untrusted and checked. The layout was measured with nvcc 13.0, see
 * tests/data/fatbin/README.md. */
#ifndef BELFRY_CUDA_FATBIN_H
#define BELFRY_CUDA_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define FATBIN_WRAPPER_MAGIC 0x466243b1u /* the wrapper in a program that points to the container */
#define FATBIN_MAGIC 0xba55ed50u
enum { FATBIN_HEADER_BYTES = 16, FATBIN_ENTRY_BYTES = 64, FATBIN_TEXT_MAX_BYTES = 256 << 20 };
enum { FATBIN_HEADER_VERSION = 1, FATBIN_ENTRY_VERSION = 0x101 };

struct fatbin_wrapper { /* __fatBinC_Wrapper_t of CUDA's fatbinary_section.h */
	uint32_t magic, version;
	const void *data;
	const void *const *parts; /* version 2: fat binaries to be linked, terminated by NULL */
};

/* Whether an image starts with these bytes. With length 0, the image has at least four bytes, unless a NUL comes
 * before. */
bool fatbin_starts_with(const void *image, size_t length, uint32_t magic);

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
/* The PTX of a fat binary, in the order in which a GPU of target `target` (90 for compute capability 9.0) uses it:
 * up to that target, highest first; then for newer targets, lowest first, which may work. */
enum { FATBIN_CHOICES_MAX = 32 };
struct fatbin_choices {
	struct fatbin_entry list[FATBIN_CHOICES_MAX];
	unsigned count;
	uint32_t machine_target; /* of machine code in the image; 0: none */
};
int fatbin_choose(const void *image, size_t length, uint32_t target, struct fatbin_choices *choices,
		  struct bf_error *err);
/* The decompressed text of a PTX entry, with a NUL that `length` does not count. The caller frees it. */
int fatbin_text(const struct fatbin_entry *entry, char **text, size_t *length, struct bf_error *err);

struct fatbin_target {
	uint32_t number; /* 90 of sm_90a */
	char suffix;	 /* 'a', 'f', or 0 */
};
/* "sm_90a", without a NUL. False: it is no target. */
bool fatbin_target_read(const char *name, size_t length, struct fatbin_target *target);
/* Writes a fat binary that has machine code for `target` and the PTX that it was compiled from. -EINVAL: one of them is not
 * what it is said to be; -ENOTSUP: the target is too new. The caller frees the image. */
int fatbin_pack(const void *machine, size_t machine_bytes, struct fatbin_target target, const char *text,
		size_t text_bytes, uint8_t **image, size_t *length, struct bf_error *err);

#endif
