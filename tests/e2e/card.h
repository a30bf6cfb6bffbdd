/* The software GPU of a test: driver and hardware run in threads of the test's own process, so that the test can look
 * into them; programs reach them as always, through the socket in a folder.
 *
 * "Programs" here are all clients but those of the test's own process, which are the warden's and the test's. */
#ifndef BELFRY_TESTS_CARD_H
#define BELFRY_TESTS_CARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "warden/device.h"

#define CARD_MIB (1ull << 20)
#define CARD_BYTES (256 * CARD_MIB)
#define CARD_ROUND (64ull << 10) /* device memory comes in such pieces */

struct card {
	char folder[64];
	struct server *server;
	struct driver *driver;
	pthread_t thread;
	struct device *device; /* the warden's way to it */
};

/* Only the folder: programs that are forked must know it before there are threads. */
void card_make_folder(struct card *card);
/* Serve it, and become the supervisor of our descendants there. */
void card_start(struct card *card);
void card_stop(struct card *card); /* and remove the folder */

uint64_t card_used_bytes(const struct card *card);
/* What programs have; class 0: of any. */
unsigned card_clients(const struct card *card);
unsigned card_count(const struct card *card, uint32_t class_id);
/* Memory of the warden's own: pages that channels read GP_PUT from, and everything else it holds on to. */
unsigned card_pages(const struct card *card);
unsigned card_views(const struct card *card);
/* Whether nothing is left of programs, and nothing of what was held for them. A file that is closed is noticed a
 * little later. */
bool card_is_clean(const struct card *card);

/* By handle, in any program. False: no program has it. */
struct card_channel {
	uint32_t token, gp_put; /* where the GPU reads it */
	bool is_disabled;
	bool is_nameable; /* the program has a name for the page that the GPU reads */
};
bool card_channel(const struct card *card, uint32_t handle, struct card_channel *channel);
/* All channels of the clients of one process, in no order: how many there are, of which `room` are told. */
struct card_progress {
	uint32_t client, handle, token;
	uint32_t put, get; /* where the GPU reads and writes them */
	uint32_t domain;   /* the number of its group's shared domain; 0: none */
	bool is_disabled;
};
unsigned card_progress(const struct card *card, pid_t pid, struct card_progress *to, unsigned room);
struct card_group {
	uint64_t timeslice_us;
	uint32_t interleave;
	bool is_scheduled;
};
bool card_group(const struct card *card, uint32_t handle, struct card_group *group);
/* A word of a program's memory, valid as long as the memory is. */
const _Atomic uint32_t *card_word(const struct card *card, uint32_t memory, uint64_t offset);

#endif
