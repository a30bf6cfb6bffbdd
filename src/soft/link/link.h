/* link: access to the software GPU. It finds or starts the server, opens device files, and makes calls and
 * maps memory through them. Used by libcuda.so.1, by the warden's device and by tests. It keeps no state
 * except the files it returns, prints nothing and never changes the caller's signals. */
#ifndef BELFRY_SOFT_LINK_H
#define BELFRY_SOFT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "soft/abi.h"

/* "gpus=2,sms=16,mem=4G,rate=20M,pace=off,cores=2,linger=10,name=default". Unset fields take their values
 * from link_default. Errors name the invalid field and the valid values. */
struct link_config {
	uint32_t gpus, sms, cores; /* cores 0: all of the host */
	uint64_t mem_bytes, rate;
	bool is_paced;
	uint32_t linger_s; /* how long the server stays without users */
	char name[32];	   /* names one of a user's software GPUs; the same name is the same GPU */
	bool is_given;	   /* a field other than name was set: a running server must match */
};
extern const struct link_config link_default;
int link_config_parse(const char *text, struct link_config *config, struct bf_error *err);
int link_config_format(const struct link_config *config, char *to, size_t room);

/* The directory of the software GPU with this name, for its socket and its log: BELFRY_SOFT_DIR if set, else
 * below the runtime directory. */
int link_folder(const char *name, char *to, size_t room, struct bf_error *err);
/* Finds or starts the server; `server` is the path of belfry-soft. When this returns 0, it answers at its
 * socket. */
int link_start(const char *server, const struct link_config *config, char *folder, size_t room,
	       struct bf_error *err);

/* Opens a device file (SOFT_FILE_*). Returns it or -errno: -ENOENT and -ECONNREFUSED if there is no server,
 * -ENODEV if there is no such GPU. All other functions return -ENODEV if the server, or the supervisor of the
 * process, has ended. */
int link_open(const char *folder, uint32_t file);
/* The same in two steps. A connection stays with its server, whatever happens to the directory. Several
 * threads may open files from one connection. */
int link_connect(const char *folder);
int link_open_from(int connection, uint32_t file);
/* Like ioctl: 0 or -errno; the status is in the argument. Parameters that the argument points to are sent
 * along. In a supervised process this is an ioctl, and the warden answers it. */
int link_call(int fd, uint32_t nr, void *arg, uint32_t size);
/* The same, always as a message; for the process on_behalf if that is not 0. */
int link_call_for(int fd, pid_t on_behalf, uint32_t nr, void *arg, uint32_t size);
/* Like mmap of the file (MAP_SHARED), at `at` if that is not NULL (MAP_FIXED). MAP_FAILED and errno on
 * failure. */
void *link_map(int fd, void *at, size_t bytes, int prot, uint64_t offset);
/* Always a message: returns the memory as a file, or -errno. -EOPNOTSUPP for a map that was prepared with an
 * offset, because offsets of the file would differ from those of the map. */
int link_map_file(int fd, pid_t on_behalf, size_t bytes, uint64_t offset);
int link_what_is(int fd, uint64_t inode); /* SOFT_FILE_*, -ENOENT, or another -errno */
/* As long as the file is open, calls of root's descendants (not of root itself) are accepted only from this
 * process. May be repeated on one file. -EPERM if this process is supervised itself, -EBUSY if root has
 * another supervisor or is below such a root, -EINVAL if this process is below root. */
int link_supervise(int fd, pid_t root);
int link_status(const char *folder, struct soft_status *status, struct bf_error *err);
int link_stop(const char *folder, struct bf_error *err);

/* Call it after a store to the token word of a doorbell: wakes the GPU if it sleeps. */
void link_rang(volatile uint32_t *bell);

#endif
