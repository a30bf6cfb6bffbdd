/* probe: eBPF programs inside GPU kernels. Reads eBPF objects, checks the rules for programs on a GPU,
 * translates them to PTX text, lays out their maps in device memory (the area), and inserts them into the PTX
 * of kernels (weave.h). It calls no CUDA function; only probe_verify() makes system calls. It never emits an
 * access that is not proven or checked to be within the probe's stack or one of its maps.
 *
 * The program in which a probe runs can write to the memory of the maps. So translated code contains all
 * sizes as constants, and the functions on an area take every word in it as a hostile value. */
#ifndef BELFRY_PROBE_PROBE_H
#define BELFRY_PROBE_PROBE_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "belfry/probe.h"

enum {
	PROBE_INSNS_MAX = 4096, /* of a program, with the functions that it calls */
	PROBE_STACK_BYTES = 512,
	PROBE_DEPTH_MAX = 8, /* functions that call each other */
	PROBE_MAPS_MAX = 16,
	PROBE_PROGRAMS_MAX = 16,
	PROBE_KEY_BYTES_MAX = 64,
	PROBE_VALUE_BYTES_MAX = 4096,
	PROBE_RECORD_BYTES_MAX = 512,
	PROBE_FUEL = 4096, /* the default */
	/* Instructions that are visited in the check of all programs of an object, with repetitions: about 1 s. An object
	 * of 65536 instructions without loops needs one visit for each. */
	PROBE_VISITS_MAX = 1 << 18,
};
#define PROBE_AREA_BYTES_MAX (256ull << 20)
#define PROBE_ATTACHED_BYTES_MAX (16ull << 20) /* of an area, for a probe that is attached to a vGPU */

enum probe_map_kind { PROBE_MAP_ARRAY, PROBE_MAP_SM_ARRAY, PROBE_MAP_HASH, PROBE_MAP_RING, PROBE_MAP_DATA };

/* A map, and its place in the area: the device memory of all maps of a probe. Offsets are from the area's
 * start and multiples of 8. Numbers are little-endian.
 *
 * array, data	values[max_entries], `stride` bytes apart
 * SM array	values[slots][max_entries]; SM n uses slot n & (slots - 1). Slots are `slot_stride` bytes apart: no two SMs
 *		write to one cache line
 * hash		states[slots] (4 bytes), keys[slots] (key_bytes rounded up to 8), values[slots]. A state is the high
 *		30 bits of the key's hash and, in its low 2 bits, enum probe_slot. A slot that was used once
 *		keeps its key.
 * ring		struct probe_ring at `states`, then max_entries bytes of records at `values`. A record is a
 *		word PROBE_RECORD_DONE | length, then the data, rounded up to 8 bytes; words wrap around. The
 *		reader zeroes what it has read, and then advances the tail. */
struct probe_map {
	char name[64];
	enum probe_map_kind kind;
	uint32_t key_bytes, value_bytes;
	uint32_t max_entries;
	bool is_read_only;
	const void *initial; /* value_bytes bytes, for data; NULL: zeros */
	uint32_t slots;
	uint32_t stride;
	uint64_t slot_stride; /* of SM arrays */
	uint64_t states, keys, values;
	uint64_t value_area_bytes;
};

enum probe_slot { PROBE_SLOT_EMPTY, PROBE_SLOT_BUSY, PROBE_SLOT_FULL, PROBE_SLOT_DELETED };
#define PROBE_RECORD_DONE (1ull << 63)

struct probe_ring {
	uint64_t head; /* next byte to reserve; the GPU advances it */
	uint64_t tail; /* next byte to read; the reader advances it */
	uint64_t dropped;
	uint64_t reserved[5];
};

/* The start of an area. */
struct probe_area {
	uint32_t magic, abi;
	uint64_t out_of_fuel;	/* runs that ended because a loop was too long */
	uint64_t out_of_bounds; /* runs that ended because an access failed its check */
	uint64_t busy;		/* updates that gave up: another thread was inserting the same key */
	/* Ends of blocks or grids that no program saw: a grid that was killed, or other work, kept the slot in which
	 * their threads are counted. */
	uint64_t missed_ends;
	uint64_t
		timer_ns; /* the host's: a kernel of the library stores %globaltimer here, to compare the clocks */
	uint64_t reserved[2];
};

struct probe_program {
	const char *name;
	enum belfry_probe_event event;
	bool is_per_thread;   /* otherwise once for each warp */
	bool has_loops;	      /* uses fuel */
	uint32_t insn_count;  /* with the functions that it calls */
	uint32_t stack_bytes; /* likewise */
	uint64_t fields;      /* one bit for each field that it reads; see probe_field_at */
};

struct probe_options {
	uint32_t sm_count; /* 0: 1 */
	uint32_t fuel;	   /* backward jumps of one run; 0: PROBE_FUEL */
	/* The programs are checked one after the other, and freed: the probe can be packed, and no text of it can be
	 * written. A large object needs about 10 MB instead of 120 MB. */
	bool is_checked_only;
};

struct probe;

/* Reads and checks an object, whose bytes are copied. A refusal names the source line. */
int probe_open(const void *object, size_t bytes, const struct probe_options *options, struct probe **probe,
	       struct bf_error *err);
void probe_free(struct probe *probe); /* NULL is allowed */
/* Frees all but the names of programs, the maps without their initial data, and the columns: what a reader of areas needs. */
void probe_keep_maps(struct probe *probe);

/* A probe of one program without an object. References to maps are 64-bit immediates of kind
 * BPF_PSEUDO_MAP_IDX or BPF_PSEUDO_MAP_IDX_VALUE. Name, kind and sizes of the maps must be set. */
struct probe_code {
	const struct bpf_insn *insns;
	size_t insn_count;
	const struct probe_map *maps;
	size_t map_count;
	enum belfry_probe_event event;
};
int probe_make(const struct probe_code *code, const struct probe_options *options, struct probe **probe,
	       struct bf_error *err);

/* A probe as one block of bytes, without the object: for a process that has no reader of objects. What is unpacked is
 * checked again; messages about it have no source lines. The caller frees *bytes. */
int probe_pack(const struct probe *probe, void **bytes, size_t *size, struct bf_error *err);
int probe_unpack(const void *bytes, size_t size, struct probe **probe, struct bf_error *err);

/* Lets the kernel's verifier check an object. Needs CAP_BPF. If the verifier refuses it, *log (unless log is
 * NULL) receives its log, last lines first, which the caller frees. */
int probe_verify(const void *object, size_t bytes, char **log, struct bf_error *err);

/* NULL after the last one. */
const struct probe_program *probe_program_at(const struct probe *probe, size_t index);
const struct probe_map *probe_map_at(const struct probe *probe, size_t index);
const struct probe_map *probe_map_find(const struct probe *probe, const char *name);

/* A field of struct belfry_probe_ctx; an array has one field for each element. NULL after the last one. */
struct probe_field {
	const char *name;
	uint32_t offset;
	uint32_t bytes; /* 4 or 8 */
	bool is_per_thread;
	const char *operand; /* PTX: the special register; NULL: computed, or given by the caller */
};
enum { PROBE_FIELDS_MAX = 40 };
const struct probe_field *probe_field_at(size_t index);

/* Where a program is inserted. Operands are PTX: a register of the surrounding code, a special register or a
 * number. */
struct probe_site {
	const char *prefix; /* of all names; unique in the kernel, a letter first */
	/* The prefix of registers that probe_write_registers has declared, which all bodies of a function can share;
	 * NULL: the body declares its own. */
	const char *registers;
	const char *area;			/* operand: the device address of the area */
	const char *operands[PROBE_FIELDS_MAX]; /* for fields; NULL: the special register, or 0 */
	const char *result;			/* a 64-bit register for the program's result; NULL: none */
	/* The name of a .local array, aligned to 8, with the program's stack_bytes; NULL: the body declares one. The
	 * bodies of a kernel can share it. */
	const char *stack;
	bool is_per_thread; /* also a program that could run once for each warp */
};

/* Declares the registers of bodies. */
void probe_write_registers(FILE *file, const char *prefix);
/* The program as statements in braces, for the body of a kernel. The caller frees *text. */
int probe_write_body(const struct probe *probe, size_t program, const struct probe_site *site, char **text,
		     struct bf_error *err);
/* A module with the kernel probe(area, contexts, results, count), in which thread i runs the program on
 * context i and stores the result in results[i] (8 bytes), if the program ran on that thread. Timers, and in
 * a program that runs once for each warp `lanes`, are the hardware's; all other fields come from the
 * contexts. With is_per_thread every field comes from the contexts, and every thread runs the program. */
int probe_write_module(const struct probe *probe, size_t program, bool is_per_thread, char **text,
		       struct bf_error *err);

/* A column of a table for dumps: see struct belfry_print. It is checked: its strings end with NUL, its map exists, and
 * its offsets are within the key or the value. NULL after the last one. */
const struct belfry_print *probe_print_at(const struct probe *probe, size_t index);

/* Whether a program reads the field submitted_ns. */
bool probe_needs_time(const struct probe *probe);

/* Size and initial content of the area. It also has the counters of the woven code, and if a program reads submitted_ns
 * PROBE_TIMES times of graphs, at probe_area_times() from its start. */
enum { PROBE_TIMES = 512 };
uint64_t probe_area_times(const struct probe *probe);
uint64_t probe_area_bytes(const struct probe *probe);
void probe_area_init(const struct probe *probe, void *area);

/* Reads of an area, or of a copy of one. `slot`: of an SM array, otherwise 0. NULL: no such entry. */
void *probe_value(const struct probe_map *map, void *area, const void *key, uint32_t slot);
/* The entries of a map, in no order. Start with *cursor 0; false after the last one. */
struct probe_entry {
	const void *key; /* of an array: NULL */
	void *value;
	uint32_t index, slot; /* of an array */
};
bool probe_next(const struct probe_map *map, void *area, uint64_t *cursor, struct probe_entry *entry);
/* Takes one record of a ring, at most `room` bytes of it, and returns its length. -EAGAIN: there is none.
 * -EPROTO: the ring is damaged; it is emptied. */
int probe_ring_take(const struct probe_map *map, void *area, void *to, size_t room);

#endif
