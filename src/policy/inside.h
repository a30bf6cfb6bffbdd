/* What the files of this room share and nobody else sees. */
#ifndef BELFRY_POLICY_INSIDE_H
#define BELFRY_POLICY_INSIDE_H

#include <bpf/libbpf.h>
#include <pthread.h>
#include <stdatomic.h>

#include "policy/policy.h"

enum {
	POLICY_OBJECT_BYTES_MAX = 16 << 20,
	POLICY_MAPS_MAX = 16,
	POLICY_MAP_BYTES_MAX = 64 << 20, /* all maps of a policy together */
	POLICY_LOG_BYTES = 1 << 20,	 /* of the verifier, for one program */
	POLICY_PATH_SIZE = 256,
};

/* elf.c: an object's sections, before anybody else reads it. */
int elf_check(const void *bytes, size_t size, struct bf_error *err);
/* A section of an object that was checked, by its name; NULL: there is none. */
const void *elf_section(const void *bytes, size_t size, const char *name, size_t *section_bytes);
/* Call visit for each section with code, until one fails. */
int elf_each_code(const void *bytes, size_t size,
		  int (*visit)(const void *code, size_t code_bytes, struct bf_error *err),
		  struct bf_error *err);

/* The first symbol that is not in the object but is to be found by whoever loads it; NULL: there is none. */
const char *elf_first_extern(const void *bytes, size_t size);

/* says.c: what an object says of itself. Reads the file only. */
bool says_is_word(const char *text); /* a name that can be shown to people */
int says_read(const void *bytes, size_t size, struct belfry_policy *says, struct bf_error *err);
/* calls.c: what it calls. Reads the file only. */
int calls_check(const void *bytes, size_t size, struct bf_error *err);

/* types.c: an object's types, before libbpf follows them. */
int types_check(const void *bytes, size_t size, struct bf_error *err);

/* An object that libbpf has opened and that is in order as far as can be told without the kernel. */
struct object {
	void *bytes;
	struct bpf_object *bpf;
	struct belfry_policy says;
	struct bpf_program *programs[BELFRY_HOOKS]; /* NULL: the built-in decides */
	struct bpf_map *table;
	char *logs[BELFRY_HOOKS]; /* what the verifier says, while it is loaded */
};

/* object.c */
int object_open(struct object *object, const void *bytes, size_t size, struct bf_error *err);
int object_load(struct object *object, char **log, struct bf_error *err);
void object_close(struct object *object);

/* maps.c */
int maps_check(struct bpf_object *bpf, struct bpf_map **table, struct bf_error *err);
const char *maps_type_name(enum bpf_map_type type); /* NULL: policies may not have it */

/* tunables.c: `const volatile` numbers in .rodata. */
int tunables_set(struct bpf_object *bpf, const char *const *sets, size_t count, struct bf_error *err);
/* As they are; how many there are, at most `room`. */
size_t tunables_list(struct bpf_object *bpf, struct policy_tunable *to, size_t room);

/* log.c: libbpf prints for people; here it is kept for the reason. */
struct log_kept {
	char text[256]; /* the first thing that libbpf complained about, as one line */
};
void log_keep(struct log_kept *kept); /* on this thread, until log_keep(NULL) */
/* The verifier's text for people: the program's name, then the last lines first. NULL: no memory. */
char *log_readable(const char *program, const char *verifier);
/* Its last line that is a reason. */
void log_reason(const char *verifier, char *to, size_t room);

/* pin.c: pins all maps in folder; 0, or -errno and why not. */
int pin_maps(struct bpf_object *bpf, const char *folder, struct bf_error *err);
void pin_remove(struct bpf_object *bpf, const char *folder);

struct hook_counts {
	_Atomic uint64_t calls, defaults, errors, late, total_ns, most_ns;
};

struct policy {
	atomic_uint users;
	struct object object;
	int programs[BELFRY_HOOKS]; /* descriptors; -1: none. libbpf owns them */
	struct belfry_vgpu *table;
	uint64_t budget_ns;
	bool is_pinned;
	char pinned[POLICY_PATH_SIZE + 256];
	struct policy_tunable tunables[POLICY_TUNABLES_MAX];
	size_t tunable_count;
	struct hook_counts counts[BELFRY_HOOKS];
	_Atomic uint64_t late_calls; /* a bit for each of the last 64 */
	atomic_bool is_out;
	pthread_mutex_t lock; /* for why */
	char why[256];
};

#endif
