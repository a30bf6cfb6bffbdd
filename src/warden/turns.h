/* Who has been on the GPU's graphics engine, from when to when: the driver's own record of context switches. It tells
 * residence, not work: a context that has nothing to do stays on until another one comes, and one that is alone makes
 * no records at all. */
#ifndef BELFRY_WARDEN_TURNS_H
#define BELFRY_WARDEN_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "warden/device.h"

struct turns;

/* Of the whole GPU, whoever's the programs are. NULL: the driver keeps no such record for us, and err says why
 * (ENOTSUP); everything else goes on without. The device outlives it. */
struct turns *turns_open(struct device *device, struct bf_error *err);
void turns_close(struct turns *turns);

/* How many turns: those that ended since the last call, in order and without overlap, and the one that is on now. As
 * many as `room` means that there may be more. -EIO: the driver does not answer. Its flush alone takes 100 us
 * (measured, docs/driver.md). */
int turns_read(struct turns *turns, struct device_turn *to, size_t room);

/* How many of the driver's records never reached us. The turns of that time are missing. */
uint64_t turns_lost(const struct turns *turns);
/* How wrong a turn's times can be by the clocks. */
uint64_t turns_error_ns(const struct turns *turns);

#endif
