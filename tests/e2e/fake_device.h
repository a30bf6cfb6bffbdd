/* A GPU and its driver in memory, behind the same interface as the real one: enough of RM to answer what the
 * warden and programs ask, and strict where the driver is (clients belong to their control file, handles and
 * parents must be right, sizes are rounded up).
 *
 * Its device files are ordinary files in a folder of their own; what a file stands for is written in its
 * permission bits, so that it is the same by every path. Each control file is a file of its own, locked by
 * whoever opened it: the lock goes with the last descriptor, wherever that was passed, and the client with it. */
#ifndef BELFRY_TESTS_FAKE_DEVICE_H
#define BELFRY_TESTS_FAKE_DEVICE_H

#include <stdatomic.h>

#include "warden/device.h"

#define FAKE_MIB (1ull << 20)
#define FAKE_CARD_BYTES (256 * FAKE_MIB)
#define FAKE_MAPPABLE_BYTES (16 * FAKE_MIB)
#define FAKE_ROUND (2 * FAKE_MIB) /* memory comes in such pieces */
#define FAKE_STRANGER_PID 1	  /* another user of the card */

enum {
	FAKE_OBJECTS = 8192,
	FAKE_CLIENTS = 512,
	FAKE_SLOTS = 64,
	FAKE_SLOT_BYTES = 2 << 20,
	FAKE_PAGES = 256
};

struct fake_page;

struct fake_client {
	uint32_t handle; /* 0: free */
	pid_t pid;
	int path_fd; /* O_PATH: names the control file without keeping it open */
	ino_t inode;
};

struct fake_object {
	uint32_t client, handle, parent, class_id; /* client 0: free */
	uint64_t bytes;
	unsigned block; /* which memory: duplicates have the same; 0: none */
	bool is_owner;	/* of that memory */
	int slot;	/* where in `memory` it lies, once mapped or viewed; -1: nowhere */
	/* Channels. */
	uint32_t token, userd_memory;
	uint64_t userd_offset;
	bool is_disabled;
	/* Groups. */
	uint64_t timeslice_us;
	uint32_t interleave;
	bool is_scheduled;
	struct fake_page
		*page; /* of the warden's: what this is a name for, or where this channel's USERD is */
};

/* A page that the warden gave to the GPU. It lives as long as the warden, a name or a channel holds it. */
struct fake_page {
	_Atomic uint32_t *gpu; /* the GPU's own mapping of it; NULL: free */
	uint32_t handle;
	unsigned holders;
};

struct fake {
	struct device device;
	char folder[64];
	dev_t files_on;
	_Atomic uint32_t *bell_seen; /* the doorbell page as the GPU sees it */
	uint8_t *memory;	     /* shared with programs that are forked: FAKE_SLOTS pieces */
	bool slot_is_used[FAKE_SLOTS];
	struct fake_client clients[FAKE_CLIENTS];
	struct fake_object objects[FAKE_OBJECTS];
	struct fake_page pages[FAKE_PAGES];
	unsigned next_handle, next_client, next_token, next_block;
	uint64_t used_bytes, most_bytes;

	/* What happened. */
	unsigned views, page_count, channels;
	unsigned disable_calls, enable_calls, last_disabled;
	unsigned passed_objects; /* made by calls that nobody checked */
};

struct fake *fake_new(void);
void fake_free(struct fake *fake);

/* In the program: open what stands for /dev/nvidiactl, nvidia0, nvidia1 and nvidia-uvm. */
int fake_open(const struct fake *fake, enum device_file kind);
/* As fake_open, and tells the path. */
int fake_open_path(const struct fake *fake, enum device_file kind, char *path, size_t room);

/* Close clients whose control file is closed; what the driver does by itself. */
void fake_sweep(struct fake *fake);
unsigned fake_clients(struct fake *fake);
unsigned fake_objects(const struct fake *fake);
struct fake_object *fake_find(struct fake *fake, uint32_t client, uint32_t handle);
/* The nth object of a class, over all clients; NULL past the last. */
struct fake_object *fake_nth(struct fake *fake, uint32_t class_id, unsigned n);
/* GP_PUT of a channel, where the GPU reads it. */
uint32_t fake_gp_put(const struct fake_object *channel);
const _Atomic uint32_t *fake_gp_put_word(const struct fake_object *channel);

#endif
