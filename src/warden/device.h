/* The device behind the warden: one GPU, and the files through which programs reach it. `nv` is the real driver,
 * `soft` that of the software GPU. Everything the warden needs of a GPU goes through this interface. Any thread may use
 * a device once it is open: several wardens share one. */
#ifndef BELFRY_WARDEN_DEVICE_H
#define BELFRY_WARDEN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/error.h"
#include "rm/rm.h"

enum device_file {
	DEVICE_FILE_NONE = 0,  /* not the device's at all */
	DEVICE_FILE_CONTROL,   /* nvidiactl */
	DEVICE_FILE_GPU,       /* nvidiaN, the GPU of this vGPU */
	DEVICE_FILE_OTHER_GPU, /* nvidiaN, another one; and what has to do with displays */
	DEVICE_FILE_MANAGED,   /* nvidia-uvm */
};

/* Memory that is mapped here: a program's, seen; or our own, which a channel uses. */
struct device_view {
	void *base;
	uint64_t bytes;
	uint32_t handle; /* our own name for the memory, which keeps it alive */
};

/* Device memory of one process, the owner of a vGPU, as the device itself counts it. */
struct device_use {
	uint64_t own_bytes;	 /* its own, shared or not */
	uint64_t imported_bytes; /* another's, imported here */
};

/* How busy its SMs and its memory bus were, all programs together. */
struct device_turn {
	pid_t pid;
	uint32_t context;	   /* the driver's number for the channel with which it began */
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC. Its save is in it, the next one's restore in none. */
	bool is_open;		   /* on the engine now; end_ns is the time of the question */
};

struct device_load {
	uint32_t sm_ppm, mem_ppm;
	uint64_t over_ns; /* by the device's own clock, where that may stand still; 0: the host's goes */
};

struct device;
struct proxy;

struct device_ops {
	const char *name;
	void (*close)(struct device *device);
	enum device_file (*classify)(struct device *device, const struct stat *st);
	/* Which of the device's files programs know by this path: CONTROL, GPU, MANAGED or NONE. NULL: by none. */
	enum device_file (*file_at)(const struct device *device, const char *path);
	/* A device file of our own: CONTROL, GPU or MANAGED; -errno. */
	int (*open)(struct device *device, enum device_file kind);
	/* The same, for a mapping to be prepared on it: it is going to be seen by a program. Where the kernel can say so
	 * (Landlock, device-ioctl right), nobody can make a driver's call on it, whoever has it. */
	int (*open_for_map)(struct device *device, struct proxy *owner, enum device_file kind);
	/* Make a call through a file of ours, or one of a program's that we hold. 0 or -errno of the ioctl; the driver's
	 * own status is in the argument. */
	int (*call)(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size);
	/* The same as the process that owns a vGPU's clients: making them, and what the driver takes from their owner
	 * only. */
	int (*call_as)(struct device *device, struct proxy *owner, int fd, uint32_t nr, void *arg,
		       uint32_t size);
	/* A call of the managed-memory device's, likewise. NULL: there is none. */
	int (*managed_call)(struct device *device, struct proxy *owner, int fd, uint32_t cmd, void *arg);
	/* What a program is to map where a mapping was prepared on `file`. NULL: that file. */
	int (*map_file)(struct device *device, struct proxy *owner, int file, uint64_t bytes,
			uint64_t offset);
	/* A vGPU has this owner from now on. NULL: nothing need be known of it. */
	int (*adopt)(struct device *device, struct proxy *owner, struct bf_error *err);
	/* Classes and controls of the device's own, which a program may use. NULL: none. */
	bool (*permits)(uint32_t class_or_control);
	/* See a program's memory object. `control_fd` is its client's control file. */
	int (*view)(struct device *device, int control_fd, uint32_t client, const struct device_view *what,
		    bool is_vidmem, struct device_view *view, struct bf_error *err);
	void (*unview)(struct device *device, struct device_view *view); /* of a page, too */
	/* A page of host memory that the GPU can read, owned by us; and a name for it in a program's client, which
	 * the caller frees as soon as a channel holds on to the page, so that the program never has one. */
	int (*page_new)(struct device *device, struct device_view *page, struct bf_error *err);
	int (*page_name)(struct device *device, int control_fd, uint32_t client, uint32_t parent,
			 uint32_t handle, const struct device_view *page, struct bf_error *err);
	int (*use_of)(struct device *device, pid_t owner, struct device_use *use);
	/* From now on calls of root's descendants (not of root itself) are taken from us only; root goes by itself when it
	 * ends. NULL: there is no need, the kernel's device files cannot be used around the filter. */
	int (*supervise)(struct device *device, pid_t root, struct bf_error *err);
	/* How long a channel group has had the GPU, through its client's control file. NULL: the device cannot tell. */
	int (*time_of)(struct device *device, int control_fd, uint32_t client, uint32_t group,
		       uint64_t *gpu_ns);
	/* The last turns of a channel group, likewise: those from number *seen on, in order; *seen becomes the number of the
	 * next. How many, or -errno. */
	int (*turns_of)(struct device *device, int control_fd, uint32_t client, uint32_t group,
			uint64_t *seen, struct device_turn *to, unsigned room);
	/* How busy it was since this was last asked; one caller. -EAGAIN: it is not known yet. NULL: the device cannot tell. */
	int (*load)(struct device *device, struct device_load *load);
	/* Take what has made fault_fd ready. */
	void (*hear_fault)(struct device *device);
};

struct device {
	const struct device_ops *ops;
	const struct rm_layout *layout;
	volatile uint32_t *bell;	       /* the GPU's doorbell page */
	void (*rang)(volatile uint32_t *bell); /* to be called after ringing; NULL: hardware hears it */
	uint64_t mem_bytes;		       /* of the card */
	uint32_t instance; /* what programs call it when they allocate the device object */
	uint32_t client;   /* our own with the driver: nothing of it is a program's */
	char driver_version[32];
	uint8_t uuid[16]; /* as the managed-memory device has it; has_uuid: it is known */
	bool has_uuid;
	unsigned index; /* N of nvidiaN */
	int gpu_fd;	/* a file of the GPU's, for calls that say nothing of the file they are made on */
	int end_fd;	/* hangs up when the device is gone; -1: it stays */
	int fault_fd; /* ready when a program, whoever's, has come to grief: device_ops::hear_fault; -1: it is not told */
};

struct device_options {
	unsigned index;
	bool any_driver;
};

/* The real driver. Fails with a reason a person can act on: no driver, no GPU, no permission, unknown series. */
struct device *device_nv_open(const struct device_options *options, struct bf_error *err);
/* The software GPU whose folder this is (soft/link/link.h). */
struct device *device_soft_open(const char *folder, const struct device_options *options,
				struct bf_error *err);
/* "580.159.04", or -ENOENT if the driver is not loaded. */
int device_nv_version(char *to, size_t room);

#endif
