/* Declarations private to this module. */
#ifndef BELFRY_POLICY_INSIDE_H
#define BELFRY_POLICY_INSIDE_H

#include <bpf/libbpf.h>
#include <pthread.h>
#include <stdatomic.h>

#include "policy/file.h"
#include "policy/policy.h"

enum {
	POLICY_OBJECT_BYTES_MAX = 16 << 20,
	POLICY_MAPS_MAX = 16,
	POLICY_MAP_BYTES_MAX = 64 << 20, /* for all maps of a policy */
	POLICY_LOG_BYTES = 1 << 20,	 /* the verifier's log of one program */
	POLICY_PATH_SIZE = 256,
};

/* says.c: the name and description in an object. Reads only the file. */
bool says_is_word(const char *text); /* a printable name */
int says_read(const void *bytes, size_t size, struct belfry_policy *says, struct bf_error *err);
/* calls.c: checks which helpers an object calls. Reads only the file. */
int calls_check(const void *bytes, size_t size, struct bf_error *err);

/* An object that libbpf has opened and that passed all checks that do not need the kernel. */
struct object {
	void *bytes;
	struct bpf_object *bpf;
	struct belfry_policy says;
	struct bpf_program *programs[BELFRY_HOOKS]; /* NULL: the built-in policy decides */
	struct bpf_map *table;
	struct policy_binding bindings[POLICY_BINDINGS_MAX];
	struct bpf_map *bound[POLICY_BINDINGS_MAX];
	size_t binding_count;
	char *logs[BELFRY_HOOKS]; /* the verifier's output, during loading */
};

/* object.c */
int object_open(struct object *object, const void *bytes, size_t size, struct bf_error *err);
int object_load(struct object *object, char **log, struct bf_error *err);
void object_close(struct object *object);

/* maps.c */
int maps_check(struct bpf_object *bpf, struct bpf_map **table, struct bf_error *err);
const char *maps_type_name(enum bpf_map_type type); /* NULL: not allowed in a policy */

/* bindings.c: maps that have what probes have counted. */
struct object;
int bindings_read(struct object *object, const void *bytes, size_t size, struct bf_error *err);

/* tunables.c: `const volatile` integers in .rodata. */
int tunables_set(struct bpf_object *bpf, const char *const *sets, size_t count, struct bf_error *err);
/* Fills `to` with the current values and returns their number, at most `room`. */
size_t tunables_list(struct bpf_object *bpf, struct policy_tunable *to, size_t room);

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
