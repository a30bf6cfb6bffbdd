/* link: how a process reaches the software GPU: finds or starts it, opens its device files, makes calls and maps
 * memory through them. Used by libcuda.so.1, by the warden's device and by tests. It keeps no state but the files
 * it hands out, prints nothing and never touches the caller's signals. */
#ifndef BELFRY_SOFT_LINK_H
#define BELFRY_SOFT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "soft/abi.h"

/* "gpus=2,sms=16,mem=4G,rate=20M,pace=off,cores=2,linger=10,name=default"; what is left out is as in link_default.
 * Errors name the part that is wrong and what would be right. */
struct link_config {
	uint32_t gpus, sms, cores; /* cores 0: all there are */
	uint64_t mem_bytes, rate;
	bool is_paced;
	uint32_t linger_s; /* how long it stays when nobody uses it */
	char name[32];	   /* which of a user's software GPUs; others of the same name are the same one */
	bool is_given;	   /* anything but name was said: an already running one must be like this */
};
extern const struct link_config link_default;
int link_config_parse(const char *text, struct link_config *config, struct bf_error *err);
int link_config_format(const struct link_config *config, char *to, size_t room);

/* The folder of the software GPU of this name: its socket and its log. From BELFRY_SOFT_DIR if that is set, else
 * below the runtime folder. */
int link_folder(const char *name, char *to, size_t room, struct bf_error *err);
/* Find it, or start it: `server` is the path of belfry-soft. When this returns 0 it answers at its socket. */
int link_start(const char *server, const struct link_config *config, char *folder, size_t room,
	       struct bf_error *err);

/* A device file (SOFT_FILE_*), or -errno: -ENOENT and -ECONNREFUSED if nobody is there, -ENODEV if there is no such
 * GPU. Of every other call here: -ENODEV if the software GPU has ended, or the process's supervisor. */
int link_open(const char *folder, uint32_t file);
/* The same in two steps. A connection stays with the software GPU that it was made to, whatever becomes of the folder.
 * Several threads may open files from one. */
int link_connect(const char *folder);
int link_open_from(int connection, uint32_t file);
/* As ioctl: 0 or -errno; the status is in the argument. Parameters that the argument points to are carried along.
 * In a supervised process the call is really made as an ioctl, and the warden answers it. */
int link_call(int fd, uint32_t nr, void *arg, uint32_t size);
/* The same, always as a message; on behalf of a process if not 0. */
int link_call_for(int fd, pid_t on_behalf, uint32_t nr, void *arg, uint32_t size);
/* As mmap of the file (MAP_SHARED), at `at` if that is not NULL (MAP_FIXED). MAP_FAILED and errno. */
void *link_map(int fd, void *at, size_t bytes, int prot, uint64_t offset);
/* Always as a message: the memory itself, as a file; -errno. -EOPNOTSUPP for a map that was prepared with an offset:
 * offsets of the file would not be those of the map. */
int link_map_file(int fd, pid_t on_behalf, size_t bytes, uint64_t offset);
int link_what_is(int fd, uint64_t inode); /* SOFT_FILE_*, -ENOENT, or another -errno */
/* As long as the file is open, calls of root's descendants (not of root itself) are taken from us only. As often as
 * wanted on one file. -EPERM if we are supervised ourselves, -EBUSY if root is another supervisor's or below one of
 * those, -EINVAL if we are below it. */
int link_supervise(int fd, pid_t root);
int link_status(const char *folder, struct soft_status *status, struct bf_error *err);
int link_stop(const char *folder, struct bf_error *err);

/* After a store to the bell's token word: wake the GPU if it sleeps. */
void link_rang(volatile uint32_t *bell);

#endif
