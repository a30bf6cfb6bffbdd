/* driver: the kernel driver of the software GPU: files, clients, objects and their access rights; soft/hw is
 * the GPU behind it. Calls and answers are those of the real driver (rm/rm.h, series 580). All input from
 * programs is untrusted: an invalid call harms at most the program's own objects.
 *
 * driver_* do not use sockets, so that tests and fuzzers can call them; server_* provide them at a socket. */
#ifndef BELFRY_SOFT_DRIVER_H
#define BELFRY_SOFT_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "soft/abi.h"
#include "soft/link/link.h"

struct driver;
struct file;

struct driver *driver_new(const struct link_config *config, struct bf_error *err);
void driver_free(struct driver *driver); /* after all files are closed and put */
void driver_status(struct driver *driver, struct soft_status *status);

/* An open device file. `minor` is SOFT_FILE_*; `inode` identifies it to other processes. NULL: no such GPU,
 * or no memory. */
struct file *file_new(struct driver *driver, uint32_t minor, uint64_t inode, int *rc);
struct file *file_find(struct driver *driver, uint64_t inode); /* one reference, or NULL */
struct file *file_get(struct file *file);
void file_put(struct file *file);
void file_close(struct file *file); /* frees its clients, as in the kernel; the reference remains */
uint32_t file_minor(const struct file *file);

struct call {
	struct file *file;
	pid_t pid;	    /* the calling process, or the process that a supervisor makes the call for */
	uid_t uid;	    /* the user of the sender: a supervisor's own */
	bool is_on_behalf;  /* a supervisor makes the call for that process */
	struct file *named; /* the file that the argument refers to, or NULL */
	uint32_t nr;
	uint8_t *arg, *params; /* overwritten by the answer */
	uint32_t arg_bytes, params_bytes;
};
/* Like ioctl: 0 or -errno; the driver's status is in the argument. */
int driver_call(struct driver *driver, struct call *call);
/* Like mmap: returns the memory as a descriptor, which the caller closes, and the offset of the map in it; or
 * -errno. */
int driver_map(struct driver *driver, struct file *file, uint64_t bytes, uint64_t offset, uint64_t *base);

struct server_options {
	struct link_config config;
	const char *folder;
	int ready_fd; /* receives one byte when the server answers; -1: none */
};
struct server;
/* When it returns 0, the server accepts requests; 1: another server has this directory. */
int server_new(const struct server_options *options, struct server **server, struct bf_error *err);
void server_serve(struct server *server); /* until it ends by itself, or after SOFT_REQUEST_STOP */
void server_stop(struct server *server);  /* ends server_serve; from any thread */
/* Call it after server_serve. False: a call is still running, and only the end of the process releases its
 * resources. */
bool server_free(struct server *server);
struct driver *server_driver(const struct server *server);

/* Runs a server as the only task of the process; signals end it too. 0 also if another server has the
 * directory. */
int server_run(const struct server_options *options, struct bf_error *err);

#endif
