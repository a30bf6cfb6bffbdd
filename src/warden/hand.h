/* hand: a process that makes system calls for us, one at a time. It shares our memory and our descriptors, and has a
 * process number of its own. Two things need that. The driver ties an RM client to the process that makes it: with a
 * hand for each vGPU, the driver itself keeps vGPUs apart and counts their memory. And a call that touches a program may
 * never return (its memory can be a file system of its own): a hand can be killed, a thread cannot.
 *
 * A hand belongs to the thread that made it and dies with it. One caller at a time; hand_stop from any thread. */
#ifndef BELFRY_WARDEN_HAND_H
#define BELFRY_WARDEN_HAND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct hand;

/* `name` is what ps shows, of 15 characters at most. */
struct hand *hand_new(const char *name, struct bf_error *err);
void hand_free(struct hand *hand); /* kills it; NULL is fine */
pid_t hand_pid(const struct hand *hand);

/* What the call returns: as the kernel does, -errno for a failure. -ETIMEDOUT: it did not return within the limit, and
 * the hand was killed; -EOWNERDEAD: it was killed meanwhile, by hand_stop for one; -ECANCELED: before it had begun, so
 * that another hand can make the call. Each time it is of no more use. */
long hand_call(struct hand *hand, unsigned limit_ms, long nr, const uint64_t args[6]);
/* From now on no process can make an ioctl on a device file that the hand opens (Landlock, device-ioctl right). False: the
 * kernel has no such right. */
bool hand_forbid_ioctls(struct hand *hand);
/* End what it does now, whatever that is. */
void hand_stop(struct hand *hand);

#endif
