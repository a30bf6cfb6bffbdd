/* rm/tables: the driver calls that Belfry performs for a program, and what their parameters hold. Data only.
 * A call that is not listed is refused: the driver would perform it with the caller's addresses, files and
 * privileges, and the caller is Belfry. Sizes come from the public headers of each series, uses from
 * recordings (docs/driver-calls.md). */
#ifndef BELFRY_RM_TABLES_H
#define BELFRY_RM_TABLES_H

#include <stdbool.h>
#include <stdint.h>

struct rm_layout;

enum rm_way {
	RM_WAY_REFUSED = 0,
	RM_WAY_COPY,	 /* performed on a copy of its parameters */
	RM_WAY_OWN,	 /* the warden has its own handler: it answers, rewrites or checks */
	RM_WAY_ANSWERED, /* reported as successful without being performed */
};

/* Largest parameters of a control. The largest known is 67,396 bytes (0x2080a0a4, nvidia-smi -q). */
#define RM_CONTROL_BYTES_MAX (128u << 10)

/* An address in the parameters that the driver follows. The buffer has entry_bytes * count^power bytes, and
 * is read, written or both. Address 0: there is no buffer, whatever the count is. */
struct rm_pointer {
	uint16_t at;	      /* offset of the u64 address */
	uint16_t count_at;    /* offset of the u32 count */
	uint16_t entry_bytes; /* size of one entry */
	uint8_t power;	      /* 1, or 2 for a square table */
	uint32_t count_max;   /* a larger count is refused */
};

#define RM_POINTERS_MAX 3

struct rm_control {
	uint32_t id;
	const char *name; /* without NVxxxx_CTRL_CMD_; "UNNAMED" if the public headers have none */
	enum rm_way way;
	uint32_t bytes;	   /* of the parameters; 0: none, or unknown, in which case the driver checks them */
	bool is_sized;	   /* bytes is the size that the driver requires, also if it is 0 */
	int16_t client_at; /* offset of a client that must be the caller's own, or 0; -1: none */
	int16_t fd_at;	   /* offset of a descriptor of the program; -1: none */
	uint8_t pointer_count;
	struct rm_pointer pointers[RM_POINTERS_MAX];
};

/* NULL: unknown in this series, and so refused. */
const struct rm_control *rm_control_find(const struct rm_layout *layout, uint32_t id);
/* Controls of all series, sorted by id, then by series; NULL past the end. */
const struct rm_control *rm_control_at(unsigned index);

/* A call of /dev/nvidia-uvm. Fields that a call does not have are -1. */
struct rm_uvm_call {
	uint32_t cmd;
	const char *name;
	enum rm_way way;
	uint32_t bytes; /* of the parameters */
	int32_t status_at;
	int32_t fd_at;		    /* a control file, or another file of nvidia-uvm */
	int32_t client_at;	    /* the client whose object it refers to */
	int32_t object_at;	    /* memory, address space, channel or partition of that client */
	int32_t base_at, length_at; /* of an address range, u64 each */
};

/* Largest parameters of a UVM call. */
#define RM_UVM_BYTES_MAX 9264u

/* NULL: unknown in this series, and so refused. cmd is compared in full, as the driver does. */
const struct rm_uvm_call *rm_uvm_find(const struct rm_layout *layout, uint32_t cmd);
const struct rm_uvm_call *rm_uvm_at(unsigned index);

/* How Belfry handles a number of nvidiactl and nvidiaN. Unknown numbers are RM_WAY_REFUSED. */
enum rm_way rm_escape_way(uint32_t nr);

#endif
