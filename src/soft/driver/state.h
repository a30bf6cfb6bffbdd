/* Declarations shared by the files of this module. Everything here is under driver::lock unless noted. hw is
 * called without the lock where it may wait: references keep what the call needs, and freed objects are first
 * removed from all tables (struct reap), then released. */
#ifndef BELFRY_SOFT_DRIVER_STATE_H
#define BELFRY_SOFT_DRIVER_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "rm/rm.h"
#include "soft/driver/driver.h"
#include "soft/driver/list.h"
#include "soft/hw/hw.h"

/* Statuses beyond those of rm/rm.h (nvstatuscodes.h). */
enum {
	ERR_NAME_TAKEN = 0x19, /* INSERT_DUPLICATE_NAME */
	ERR_INSUFFICIENT_RESOURCES = 0x1a,
	ERR_INVALID_CLASS = 0x22,
	ERR_INVALID_DATA = 0x25,
	ERR_INVALID_FLAGS = 0x29,
	ERR_INVALID_LIMIT = 0x2e,
	ERR_INVALID_OFFSET = 0x37,
	ERR_INVALID_STATE = 0x40,
	ERR_NOT_FOUND = 0x57, /* OBJECT_NOT_FOUND */
	ERR_STATE_IN_USE = 0x63,
};

enum {
	OBJECTS_MAX = 65536, /* per client */
	MAPS_MAX = 65536,    /* per client, on the GPU */
	SHARES_MAX = 64,     /* per object */
	CLIENTS_MAX = 4096,
	BUCKETS = 1024,
	HOST_FACTOR = 4, /* limit of host memory, as a multiple of the GPUs' memory */
	USERD_BYTES = 512,
};

enum object_kind {
	OBJECT_PLAIN = 1 << 0, /* no state: engines, events, context shares */
	OBJECT_DEVICE = 1 << 1,
	OBJECT_SUBDEVICE = 1 << 2,
	OBJECT_MEMORY = 1 << 3,
	OBJECT_SPACE = 1 << 4,
	OBJECT_VIRTUAL = 1 << 5, /* a range of a space */
	OBJECT_GROUP = 1 << 6,
	OBJECT_CHANNEL = 1 << 7,
	OBJECT_BELL = 1 << 8,
	OBJECT_CODE = 1 << 9,
	OBJECT_CLIENT = 1 << 10, /* no object: stands for the client itself */
};

/* Memory that any number of objects refer to. */
struct block {
	atomic_uint refs; /* objects that still refer to it */
	struct hw_memory *hw;
	uint64_t bytes;
	bool is_vidmem;
	uint32_t gpu;
	struct list holders; /* object::memory.of_block; the first object owns it */
};

/* A map of memory into a space. It is in the lists of both, and is removed with the first of them that
 * goes. */
struct dma_map {
	struct list of_space, of_memory; /* object::space.maps, object::memory.maps; reap::maps */
	struct client *client;
	uint32_t memory; /* handle */
	uint64_t address, bytes;
	struct hw_space *hw; /* reference */
};

struct share {
	uint64_t with; /* client::serial, because handles are reused */
	struct share *next;
};

struct object {
	atomic_uint refs;
	struct driver *driver;
	uint32_t handle, class_id, gpu;
	enum object_kind kind;
	bool is_dead;	       /* removed from all tables */
	struct client *client; /* reference */
	struct object *parent; /* NULL: the client */
	struct list of_parent; /* object::children or client::children; reap::objects */
	struct list children;
	struct object *chain; /* client::buckets */
	struct share *shares;
	union {
		struct {
			struct block *block;
			struct list of_block, maps;
		} memory;
		struct {
			struct hw_space *hw;
			struct list maps, ranges; /* dma_map::of_space, object::range.of_space */
		} space;
		struct {
			struct object *space; /* reference */
			struct list of_space;
			uint64_t base, bytes;
		} range;
		struct {
			struct object *space; /* of a device: the default space, created when first needed */
		} device;
		struct {
			struct hw_group *hw;
			struct hw_space *space; /* of its channels, or NULL */
			struct hw_memory *notifier;
			uint64_t timeslice_us;
			uint32_t interleave;
		} group;
		struct {
			struct hw_channel *hw;
			struct object *group; /* reference; its own if it was created without one */
			bool is_alone;
		} channel;
		struct {
			struct hw_code *hw; /* until is_settled */
			struct hw_space *space;
			bool is_settled; /* registered in the space under its handle */
		} code;
	};
};

struct client {
	atomic_uint refs;
	uint32_t handle;
	uint64_t serial;
	pid_t pid;
	bool is_dead, has_groups;
	struct domain *domain; /* or NULL */
	struct file *file;     /* the file that created it; valid while not dead */
	struct driver *driver;
	struct list of_driver; /* driver::clients */
	struct list of_file;   /* file::clients */
	struct list children;  /* object::of_parent */
	uint32_t object_count, map_count, next_handle;
	struct object *buckets[BUCKETS];
};

/* What the next mmap of a file maps. */
struct prepared {
	bool is_valid;
	uint64_t client; /* client::serial */
	uint32_t object; /* handle: looked up again at mmap, so that this does not keep a freed object */
	uint64_t offset, bytes;
};

struct file {
	atomic_uint refs;
	struct driver *driver;
	uint32_t minor;
	uint64_t inode;
	bool is_closed;
	struct list of_driver; /* driver::files */
	struct list clients;   /* client::of_file */
	struct file *control;  /* REGISTER_FD; reference */
	struct prepared prepared;
};

struct driver {
	pthread_mutex_t lock;
	struct link_config config;
	const struct rm_layout *layout;
	struct hw_cores *cores;
	struct hw_gpu *gpus[SOFT_GPUS_MAX];
	struct list files, clients, domains;
	uint32_t file_count, client_count, channel_count, next_client, next_domain;
	uint64_t next_serial;
	uint64_t host_bytes, host_max_bytes;
	uint64_t loading_bytes;	 /* texts being loaded */
	uint32_t closing_count;	 /* files whose clients are being freed */
	pthread_cond_t is_quiet; /* closing_count is 0 */
};

/* A decoded call. */
struct site {
	struct driver *driver;
	struct call *call;
	struct rm_call rm;
};

/* Objects and maps that were removed from the tables with the lock held, to be released without it. */
struct reap {
	struct list objects, maps;
	bool is_all; /* a whole client: its spaces go, and all their maps */
};

/* object.c */
/* Not in any table; NULL: no memory. */
struct object *object_new(struct driver *driver, uint32_t class_id, enum object_kind kind);
struct object *object_get(struct object *object);
void object_put(struct object *object); /* call without the lock: it may release resources; NULL is allowed */
struct object *object_find(const struct client *client, uint32_t handle, unsigned kinds);
/* Enters the object into the tables. `parent` NULL: the client. Handle 0: one is chosen. Returns a status. */
uint32_t object_attach(struct client *client, struct object *parent, struct object *object, uint32_t handle);
void object_free(struct object *object, struct reap *reap); /* and all objects below it */

/* client.c */
struct client *client_by_handle(const struct driver *driver, uint32_t handle);
/* The client of a call, if the call's file may be used for it; NULL: RM_ERR_INVALID_CLIENT. */
struct client *client_of(const struct site *site, uint32_t handle);
struct client *client_get(struct client *client);
void client_put(struct client *client);
uint32_t client_new(struct site *site, uint32_t *handle);
void client_free(struct client *client, struct reap *reap);

/* reap.c */
void reap_init(struct reap *reap);
void reap_map(struct reap *reap, struct dma_map *map);
void reap_run(struct reap *reap); /* without the lock */

/* alloc.c: one function per kind. Call without the lock. Returns a status. */
uint32_t site_alloc(struct site *site);
uint32_t site_free(struct site *site, uint32_t handle);
/* Attaches a new object if parent and client still exist; otherwise drops it. Writes the handle to
 * *handle. */
uint32_t site_attach(struct site *site, struct object *object, uint32_t *handle);

/* memory.c */
struct memory_wish {
	uint64_t bytes; /* in and out */
	bool is_vidmem;
};
uint32_t memory_make(struct driver *driver, uint32_t gpu, uint32_t class_id, struct memory_wish *wish,
		     struct object **object);
void memory_join(struct block *block, struct object *object); /* adds a handle */
uint32_t memory_alloc(struct site *site, uint32_t gpu, struct object **object);
void memory_leave(struct object *object); /* the last one frees the memory */
uint32_t site_vid_heap(struct site *site);
uint32_t site_alloc_memory(struct site *site);
/* The memory with that handle, with a reference, or NULL. Call with the lock held. */
struct hw_memory *memory_find(const struct client *client, uint32_t handle);

/* space.c. Call with the lock held. */
uint32_t space_alloc(struct site *site, uint32_t gpu, struct object **object); /* except for this one */
/* The space that a handle refers to: itself, that of a range, or a device's default; NULL. No reference. */
struct object *space_find(const struct client *client, uint32_t handle);
struct object *space_default(struct object *device);
/* The lowest free and unreserved addresses at or above `from`; 0: none. */
uint64_t space_pick(struct object *space, uint64_t from, uint64_t bytes, uint64_t align);
bool space_is_reserved(struct object *space, uint64_t base, uint64_t bytes, uint64_t *end);
void space_free_maps(struct object *object, struct reap *reap); /* of a space or of a range */

/* range.c: addresses without memory */
struct range_wish {
	uint32_t space;		     /* handle; 0: the device's default */
	uint64_t base, bytes, align; /* base and bytes also out */
	bool is_fixed;
};
uint32_t range_make(struct site *site, uint32_t class_id, struct range_wish *wish, struct object **object);
uint32_t range_alloc(struct site *site, uint32_t gpu, struct object **object);

/* dma.c */
uint32_t site_map_dma(struct site *site);
uint32_t site_unmap_dma(struct site *site);
void memory_free_maps(struct object *object, struct reap *reap);

/* channel.c */
uint32_t group_alloc(struct site *site, uint32_t gpu, struct object **object);
uint32_t channel_alloc(struct site *site, uint32_t gpu, struct object **object);

/* domain.c */
struct control_site;
uint32_t domain_join(struct control_site *site);
void domain_leave(struct client *client); /* with the lock */
/* The number of the domain for a new group of the call's client; 0: none. After this the client cannot join one.
 * Without the lock. */
uint32_t domain_of_group(struct site *site);

/* code.c */
uint32_t code_alloc(struct site *site, uint32_t gpu, struct object **object);
uint32_t code_settle(struct object *object); /* after it received its handle */

/* share.c */
uint32_t site_dup(struct site *site);
uint32_t site_share(struct site *site);

/* idle.c */
uint32_t site_idle(struct site *site);

/* map.c */
uint32_t site_map(struct site *site);
uint32_t site_unmap(struct site *site);
uint32_t map_prepare(struct site *site, struct client *client, struct object *object, uint64_t offset,
		     uint64_t bytes);

/* plain.c: calls that refer to no object. 0 or -errno. */
int site_plain(struct site *site);

/* control.c and its tables */
struct control_site {
	struct site *site;
	struct driver *driver;
	struct client *client; /* reference, as is the object; NULL object: the client itself */
	struct object *object;
	uint8_t *params;
	uint32_t bytes;
};
struct control {
	uint32_t cmd, bytes; /* bytes: the exact size, as the driver requires; 0: from the layout */
	unsigned kinds;	     /* kinds of objects it applies to */
	uint32_t (*answer)(struct control_site *site); /* called without the lock */
};
uint32_t site_control(struct site *site);
extern const struct control controls_root[], controls_gpu[], controls_channel[]; /* each ends with cmd 0 */

/* account.c: reports of memory */
uint32_t told_fb_info(struct control_site *site);
uint32_t told_pids(struct control_site *site);
uint32_t told_pid_info(struct control_site *site);
void told_users(struct driver *driver, struct soft_status *status);

#endif
