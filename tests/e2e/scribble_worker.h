/* What every worker of the hostile program (scribble.h) needs: random numbers, handles and descriptors out of a few, and the
 * call itself, with its arguments in memory that others write to. */
#ifndef BELFRY_TESTS_SCRIBBLE_WORKER_H
#define BELFRY_TESTS_SCRIBBLE_WORKER_H

#include "scribble.h"

enum {
	/* Descriptors with fixed numbers. The first of them are replaced seldom, so that what is made in them gets
	 * somewhere. */
	SLOT_FIRST = 200,
	SLOT_COUNT = 16,
	SLOT_CALM = SCRIBBLE_CALLERS,
	SLOT_CONTROLS = 6, /* where there is mostly a control file */
	SLOT_GPUS = 10,	   /* likewise a GPU's, up to here */
	SLOT_MANAGED = 12,
	MAPS = 8,
	PAGE = 4096,
	/* In the memory that USERD and rings of channels are in: all in its first page, which is there whatever was mapped. */
	RING_AT = 2048,
	RING_ENTRIES = 64,
	COMMANDS_AT = 3072,
	RELEASE_AT = 3584,
};

enum role {
	ROLE_DEVICE,
	ROLE_SUBDEVICE,
	ROLE_SPACE,
	ROLE_BELL,
	ROLE_GROUP,
	ROLE_CHANNEL,
	ROLE_MEMORY,
	ROLE_SYSMEM,
	ROLE_ENGINE,
	ROLE_OTHER,
	ROLES,
};
#define FIRST_OF(role) (0x5c000000u + ((uint32_t)(role) << 8))

struct map {
	uint8_t *at;
	size_t bytes;
	bool is_bell;
};

/* One thread or child that makes calls. */
struct worker {
	struct scribble_board *board;
	const char *folder;
	unsigned number;
	uint64_t random;
	struct scribble_buffers *buffers; /* of this call */
	struct map maps[MAPS];
	uint64_t address; /* of memory, for the GPU */
	bool is_lost;	  /* its client is not there any more */
	bool is_plain;	  /* nothing odd for a while, so that it gets somewhere */
};

uint64_t random_next(uint64_t *random);
uint32_t random_below(uint64_t *random, uint32_t limit);
bool random_one_in(uint64_t *random, uint32_t many);
uint32_t random_handle(uint64_t *random);
int random_slot(uint64_t *random); /* a descriptor */

bool worker_is_odd(struct worker *w, uint32_t many); /* once in so many times */
/* Mostly one of its role; sometimes another, which may be in use for something else, or one that no worker may use. */
uint32_t worker_handle(struct worker *w, enum role role);
/* Mostly the worker's own: slot << 32 | handle; or the handle alone. */
uint64_t worker_client(struct worker *w);
uint32_t worker_client_handle(struct worker *w);
int worker_slot(struct worker *w, unsigned from, unsigned to);
/* 0 or -errno; and a call of the driver's: true if it did as asked. */
int worker_call(struct worker *w, int fd, uint32_t cmd, void *arg, uint32_t bytes);
bool worker_rm_call(struct worker *w, int fd, uint32_t nr, void *arg, uint32_t bytes, const uint32_t *status);

/* Buffers are shared with threads that write to them at the same time, as a program's memory is. */
void words_put(void *to, const void *from, size_t bytes);
void words_get(void *to, const void *from, size_t bytes);
void words_fill(struct worker *w, void *to, size_t bytes, bool is_noise);
void words_put32(uint8_t *params, size_t at, uint32_t value);
void words_put64(uint8_t *params, size_t at, uint64_t value);

/* Put a file that belongs at `from` at `slot`; what is at one descriptor at another; close one. Not by functions of the
 * library: sanitizers know those, and take what is done here for a mistake. */
void slot_open(const char *folder, unsigned from, unsigned slot);
void slot_dup(int from, int to);
void slot_close(int fd);

#endif
