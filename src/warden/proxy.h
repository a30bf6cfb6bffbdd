/* proxy: a process that makes system calls for the GPU server, one at a time. It shares the server's memory and
 * descriptors and has its own process ID. Two things need that. The driver ties an RM client to the process that makes
 * it: with one proxy for each vGPU, the driver itself separates vGPUs and counts their memory. And a call that accesses a
 * program may never return, because the program's memory can be a file of its own file system: a proxy can be killed, a
 * thread cannot.
 *
 * A proxy belongs to the thread that made it and dies with that thread. Only one thread calls it at a time; any thread may
 * call proxy_stop. */
#ifndef BELFRY_WARDEN_PROXY_H
#define BELFRY_WARDEN_PROXY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct proxy;

/* `name` is the name that ps shows, at most 15 characters. */
struct proxy *proxy_new(const char *name, struct bf_error *err);
void proxy_free(struct proxy *proxy); /* kills it; accepts NULL */
pid_t proxy_pid(const struct proxy *proxy);

/* Returns the system call's result, -errno for a failure. Three errors say that the proxy is dead and must be replaced:
 * -ETIMEDOUT: the call did not return within the limit, and the proxy was killed;
 * -EOWNERDEAD: the proxy was killed during the call, for example by proxy_stop;
 * -ECANCELED: the proxy was dead before it began the call, so another proxy can make it. */
long proxy_call(struct proxy *proxy, unsigned limit_ms, long nr, const uint64_t args[6]);
/* After this, no process can make an ioctl on a device file that the proxy opens (Landlock's device-ioctl right). Returns
 * false if the kernel does not support that right. */
bool proxy_forbid_ioctls(struct proxy *proxy);
/* Kills the proxy, and with it the call that it is making. */
void proxy_stop(struct proxy *proxy);

#endif
