/* dev: the driver as a hostile program uses it: raw calls on device files, without a library. On the real driver these
 * are /dev/nvidiactl and /dev/nvidia0; on the software GPU (BELFRY_SOFT_DIR is set) its own files. It takes part in no
 * attack: it retries nothing and hides nothing.
 *
 * An attack states what it tries, then ends by dev_held, dev_got or dev_skip. Its lines that begin with @ are orders to
 * run.sh, which answers each with one line. */
#ifndef BELFRY_ATTACKS_DEV_H
#define BELFRY_ATTACKS_DEV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "rm/rm.h"

enum dev_file { DEV_CONTROL, DEV_GPU };

/* Handles. Those from DEV_MEMORY on are free for the attack. */
enum {
	DEV_DEVICE = 0x5c000001,
	DEV_SUBDEVICE = 0x5c000002,
	DEV_SPACE = 0x5c000003,
	DEV_BLOCK = 0x5c000004,
	DEV_VIRTUAL = 0x5c000008,
	DEV_GROUP = 0x5c000005,
	DEV_CHANNEL = 0x5c000006,
	DEV_BELL = 0x5c000007,
	DEV_MEMORY = 0x5c001000,
};

enum { MIB = 1 << 20, ATTEMPTS = 1000 };

struct dev {
	int control, gpu;
	uint32_t client;
	/* With a context: */
	volatile uint32_t *bell;
	uint8_t *block;		/* DEV_BLOCK, mapped, */
	uint64_t block_address; /* and its GPU address */
	uint32_t token, beats;
};

/* What the attack is, and how it ended. */
void dev_tries(const char *what);
void dev_held(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void dev_got(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void dev_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Have run.sh do something. 0: it was done; -1: there is no run.sh, or it says no. */
int dev_ask(const char *order);
uint64_t dev_limit(void); /* of the vGPU, in bytes: ATTACK_LIMIT */

bool dev_is_soft(void);
const struct rm_layout *dev_layout(void);

/* Files and calls: the descriptor or 0, or -errno. */
int dev_open(enum dev_file file);
int dev_call(int fd, uint32_t nr, void *arg, uint32_t size);

/* Of these the result is the driver's status, or -errno. */
int dev_new_client(struct dev *dev);
int dev_new_device(struct dev *dev); /* a device and a subdevice of the client */
int dev_alloc(const struct dev *dev, uint32_t parent, uint32_t handle, uint32_t class_id, void *params,
	      uint32_t size);
int dev_memory(const struct dev *dev, uint32_t handle, uint64_t bytes);
int dev_free(const struct dev *dev, uint32_t parent, uint32_t handle);
int dev_control(const struct dev *dev, uint32_t object, uint32_t cmd, void *params, uint32_t size);
int dev_dup(const struct dev *dev, uint32_t handle, uint32_t source_client, uint32_t source);
/* Into a new control file: the file, or -errno. -ENOTSUP: the driver has no exports. */
int dev_export(const struct dev *dev, uint32_t handle);
int dev_export_into(const struct dev *dev, uint32_t handle, int file);
int dev_import(const struct dev *dev, uint32_t handle, int file);
/* MAP_MEMORY: prepare a mapping on a file. */
int dev_prepare_map(const struct dev *dev, uint32_t handle, uint64_t bytes, int file);

/* A client with a device; ends the program if the vGPU does not even give that. */
void dev_start(struct dev *dev);
/* A doorbell, an address space, memory, a group and a channel. Ends the program (skipped) if it cannot be had. */
void dev_context(struct dev *dev);
int dev_doorbell(const struct dev *dev, uint32_t handle);
int dev_group(const struct dev *dev, uint32_t handle);
/* Submit one piece of work, which writes a number; the number that was written last. */
void dev_beat(struct dev *dev);
uint32_t dev_beats(const struct dev *dev);
bool dev_wait_beat(const struct dev *dev, unsigned ms); /* until the last one is written */
/* Beat for a while; how many were written. */
uint32_t dev_beat_for(struct dev *dev, unsigned ms);

/* Allocate pieces until it is refused, no more than twice the limit: the sum in bytes. */
uint64_t dev_fill(const struct dev *dev, uint32_t first_handle, uint64_t piece_bytes);
/* The limit must hold and the ledger agree with the driver, seen from outside: dev_got if not. */
void dev_look(void);

#endif
