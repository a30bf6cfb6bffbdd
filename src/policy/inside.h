/* Declarations private to this module. */
#ifndef BELFRY_POLICY_INSIDE_H
#define BELFRY_POLICY_INSIDE_H

#include <bpf/libbpf.h>
#include <pthread.h>
#include <stdatomic.h>

#include "policy/policy.h"

enum {
	POLICY_OBJECT_BYTES_MAX = 16 << 20,
	POLICY_MAPS_MAX = 16,
	POLICY_MAP_BYTES_MAX = 64 << 20, /* for all maps of a policy */
	POLICY_LOG_BYTES = 1 << 20,	 /* the verifier's log of one program */
	POLICY_PATH_SIZE = 256,
};

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

/* says.c: the name and description in an object. Reads only the file. */
bool says_is_word(const char *text); /* a printable name */
int says_read(const void *bytes, size_t size, struct belfry_policy *says, struct bf_error *err);
/* calls.c: checks which helpers an object calls. Reads only the file. */
int calls_check(const void *bytes, size_t size, struct bf_error *err);

/* types.c: validates an object's BTF before libbpf follows it. */
int types_check(const void *bytes, size_t size, struct bf_error *err);

/* An object that libbpf has opened and that passed all checks that do not need the kernel. */
struct object {
	void *bytes;
	struct bpf_object *bpf;
	struct belfry_policy says;
	struct bpf_program *programs[BELFRY_HOOKS]; /* NULL: the built-in policy decides */
	struct bpf_map *table;
	char *logs[BELFRY_HOOKS]; /* the verifier's output, during loading */
};

/* object.c */
int object_open(struct object *object, const void *bytes, size_t size, struct bf_error *err);
int object_load(struct object *object, char **log, struct bf_error *err);
void object_close(struct object *object);

/* maps.c */
int maps_check(struct bpf_object *bpf, struct bpf_map **table, struct bf_error *err);
const char *maps_type_name(enum bpf_map_type type); /* NULL: not allowed in a policy */

/* tunables.c: `const volatile` integers in .rodata. */
int tunables_set(struct bpf_object *bpf, const char *const *sets, size_t count, struct bf_error *err);
/* Fills `to` with the current values and returns their number, at most `room`. */
size_t tunables_list(struct bpf_object *bpf, struct policy_tunable *to, size_t room);

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

/* pin.c: pins all maps in a directory. Returns 0 or -errno. */
int pin_maps(struct bpf_object *bpf, const char *folder, struct bf_error *err);
void pin_remove(struct bpf_object *bpf, const char *folder);

struct hook_counts {
	_Atomic uint64_t calls, defaults, errors, late, total_ns, most_ns;
};

struct policy {
	atomic_uint users;
	struct object object;
	int programs[BELFRY_HOOKS]; /* descriptors owned by libbpf; -1: none */
	struct belfry_vgpu *table;
	uint64_t budget_ns;
	bool is_pinned;
	char pinned[POLICY_PATH_SIZE + 256];
	struct policy_tunable tunables[POLICY_TUNABLES_MAX];
	size_t tunable_count;
	struct hook_counts counts[BELFRY_HOOKS];
	_Atomic uint64_t late_calls; /* one bit for each of the last 64 calls */
	atomic_bool is_out;
	pthread_mutex_t lock; /* protects why */
	char why[256];
};

#endif
