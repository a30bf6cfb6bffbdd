/* eBPF objects as untrusted files, and what libbpf and the kernel's verifier say about them. The modules that
 * read eBPF objects share this part. */
#ifndef BELFRY_POLICY_FILE_H
#define BELFRY_POLICY_FILE_H

#include <stddef.h>

#include "base/error.h"

/* elf.c: validates an object's ELF structure. Call it before any other function reads the object. */
int elf_check(const void *bytes, size_t size, struct bf_error *err);
/* Finds a section of a validated object by name; NULL: there is none. */
const void *elf_section(const void *bytes, size_t size, const char *name, size_t *section_bytes);
/* Calls visit for each section with code, until one call fails. */
int elf_each_code(const void *bytes, size_t size,
		  int (*visit)(const void *code, size_t code_bytes, struct bf_error *err),
		  struct bf_error *err);

/* The name of the first undefined symbol, which the loader would resolve; NULL: there is none. */
const char *elf_first_extern(const void *bytes, size_t size);

/* types.c: validates an object's BTF before libbpf follows it. */
int types_check(const void *bytes, size_t size, struct bf_error *err);

/* log.c: stores what libbpf prints, for error messages. */
struct log_kept {
	char text[256]; /* the first complaint of libbpf, as one line */
};
void log_keep(struct log_kept *kept); /* for this thread, until log_keep(NULL) */
/* Formats the verifier's log for users: the program's name, then the log with its last lines first. NULL: no
 * memory. */
char *log_readable(const char *program, const char *verifier);
/* Copies the last line of the log that gives a reason. */
void log_reason(const char *verifier, char *to, size_t room);

#endif
