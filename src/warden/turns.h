/* turns: which context was on the GPU's graphics engine, and when, from the driver's records of context
 * switches. They show residence, not work: an idle context stays on the engine until another one is
 * scheduled, and a context that is alone produces no records. */
#ifndef BELFRY_WARDEN_TURNS_H
#define BELFRY_WARDEN_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "warden/device.h"

struct turns;

/* The records of the whole GPU, of all users. NULL: the driver keeps no such records, and err says why
 * (ENOTSUP); nothing else depends on them. The device outlives it. */
struct turns *turns_open(struct device *device, struct bf_error *err);
void turns_close(struct turns *turns);

/* Returns the turns that ended since the last call, in order and without overlap, and the current one. If it
 * returns `room`, there may be more. -EIO: the driver does not answer. The driver's flush alone takes 100 us
 * (measured, docs/driver.md). */
int turns_read(struct turns *turns, struct device_turn *to, size_t room);

/* The number of records that were lost. The turns of that time are missing. */
uint64_t turns_lost(const struct turns *turns);
/* The maximum error of a turn's times because of the clocks. */
uint64_t turns_error_ns(const struct turns *turns);

#endif
