/* driver: the kernel driver of the software GPU: files, clients, objects, who may do what with them; soft/hw is the
 * GPU behind it. The calls are the real driver's (rm/rm.h, series 580), and so are the answers. It trusts nothing
 * that a program sends: at worst the program's own objects suffer.
 *
 * driver_* know nothing of sockets, so that tests and fuzzers can call them; server_* put them behind one. */
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
void driver_free(struct driver *driver); /* after all files were closed and put */
void driver_status(struct driver *driver, struct soft_status *status);

/* An open device file. `minor` is SOFT_FILE_*; `inode` is how others name it. NULL: no such GPU, or no memory. */
struct file *file_new(struct driver *driver, uint32_t minor, uint64_t inode, int *rc);
struct file *file_find(struct driver *driver, uint64_t inode); /* one reference, or NULL */
struct file *file_get(struct file *file);
void file_put(struct file *file);
void file_close(struct file *file); /* its client goes with it, as in the kernel; the reference stays */
uint32_t file_minor(const struct file *file);

struct call {
	struct file *file;
	pid_t pid;	    /* whose call it is */
	bool is_on_behalf;  /* a supervisor makes it for that process */
	struct file *named; /* the file that the argument names, or NULL */
	uint32_t nr;
	uint8_t *arg, *params; /* answered in place */
	uint32_t arg_bytes, params_bytes;
};
/* As ioctl: 0 or -errno; the driver's status is in the argument. */
int driver_call(struct driver *driver, struct call *call);
/* As mmap: the memory as a descriptor, the caller's to close, and where in it the map begins; -errno. */
int driver_map(struct driver *driver, struct file *file, uint64_t bytes, uint64_t offset, uint64_t *base);

struct server_options {
	struct link_config config;
	const char *folder;
	int ready_fd; /* one byte goes there once it answers; -1: none */
};
struct server;
/* When it returns 0 it can be asked; 1: another one serves this folder. */
int server_new(const struct server_options *options, struct server **server, struct bf_error *err);
void server_serve(struct server *server); /* until it ends by itself, or by SOFT_REQUEST_STOP */
void server_stop(struct server *server);  /* end that; from any thread */
/* After that. False: a call is still under way, and only the end of the process gives back what it holds. */
bool server_free(struct server *server);
struct driver *server_driver(const struct server *server);

/* All of this as the one thing that the process does, and signals end it too. 0 also if another one serves. */
int server_run(const struct server_options *options, struct bf_error *err);

#endif
