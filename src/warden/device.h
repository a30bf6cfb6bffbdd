/* The device of the warden: one GPU, and the files through which programs access it. `nv` is the real driver,
 * `soft` the one of the software GPU. The warden uses a GPU through this interface only. Any thread may use
 * an open device; several wardens share one. */
#ifndef BELFRY_WARDEN_DEVICE_H
#define BELFRY_WARDEN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/error.h"
#include "rm/rm.h"

enum device_file {
	DEVICE_FILE_NONE = 0,  /* not a file of the device */
	DEVICE_FILE_CONTROL,   /* nvidiactl */
	DEVICE_FILE_GPU,       /* nvidiaN, the GPU of this vGPU */
	DEVICE_FILE_OTHER_GPU, /* nvidiaN of another GPU, and display devices */
	DEVICE_FILE_MANAGED,   /* nvidia-uvm */
};

/* Memory that the GPU server maps: memory of a program, or its own memory that a channel uses. */
struct device_view {
	void *base;
	uint64_t bytes;
	uint32_t handle; /* of the GPU server's object, which keeps the memory allocated */
};

/* Device memory of one process, the owner of a vGPU, as the driver counts it. */
struct device_use {
	uint64_t own_bytes;	 /* allocated by it, exported or not */
	uint64_t imported_bytes; /* allocated by another process and imported */
};

/* A time during which one context was on the engine. */
struct device_turn {
	pid_t pid;
	uint32_t context; /* the driver's number of the channel at the start */
	/* CLOCK_MONOTONIC. The save of the context is included, the restore of the next context is not. */
	uint64_t start_ns, end_ns;
	bool is_open; /* still on the engine; end_ns is the time of the query */
};

/* All work that the GPU had been given and had seen up to seen_ns was complete at end_ns. Both are CLOCK_MONOTONIC. */
struct device_done {
	uint64_t seen_ns, end_ns;
};

/* How busy the SMs and the memory bus were, for all programs together. */
struct device_load {
	uint32_t sm_ppm, mem_ppm;
	uint64_t over_ns; /* by the device's clock, if that clock may stand still; 0: use the host's clock */
};

/* What its sensors say. */
struct device_sensors {
	bool has_temperature, has_power;
	uint32_t temperature_c, power_mw;
};

struct device;
struct proxy;

struct device_ops {
	const char *name;
	void (*close)(struct device *device);
	enum device_file (*classify)(struct device *device, const struct stat *st);
	/* The device file that programs open by this path: CONTROL, GPU, MANAGED or NONE. NULL: there are no
	 * paths. */
	enum device_file (*file_at)(const struct device *device, const char *path);
	/* Open a device file: CONTROL, GPU or MANAGED. Returns -errno on failure. */
	int (*open)(struct device *device, enum device_file kind);
	/* Likewise, for a file on which a mapping is prepared and which is then put into a program. If the
	 * kernel supports it (Landlock, device-ioctl right), no process can make a driver call on that
	 * file. */
	int (*open_for_map)(struct device *device, struct proxy *owner, enum device_file kind);
	/* Make a call through a file of the GPU server, or through a program's file that it holds. Returns 0,
	 * or -errno of the ioctl; the driver's status is in the argument. */
	int (*call)(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size);
	/* Likewise, from the process that owns the clients of a vGPU: to make clients, and for calls that the
	 * driver accepts from the owner only. */
	int (*call_as)(struct device *device, struct proxy *owner, int fd, uint32_t nr, void *arg,
		       uint32_t size);
	/* A call to the managed-memory device, from the owner. NULL: there is no such device. */
	int (*managed_call)(struct device *device, struct proxy *owner, int fd, uint32_t cmd, void *arg);
	/* Returns the file that a program maps after a mapping was prepared on `file`. NULL: `file`
	 * itself. */
	int (*map_file)(struct device *device, struct proxy *owner, int file, uint64_t bytes,
			uint64_t offset);
	/* Called when a vGPU gets this owner. NULL: nothing to do. */
	int (*adopt)(struct device *device, struct proxy *owner, struct bf_error *err);
	/* Whether a program may use this class or control, which only this device has. NULL: there are
	 * none. */
	bool (*permits)(uint32_t class_or_control);
	/* The name of the shared domain that a program joins by this control; NULL: the control is another one. The
	 * name ends within the parameters, or is empty. NULL function: the device has no such control. */
	const char *(*domain_joined)(uint32_t control, const void *params, uint32_t bytes);
	/* Map a memory object of a program. `control_fd` is the control file of its client. */
	int (*view)(struct device *device, int control_fd, uint32_t client, const struct device_view *what,
		    bool is_vidmem, struct device_view *view, struct bf_error *err);
	void (*unview)(struct device *device, struct device_view *view); /* also of a page */
	/* Allocate a page of host memory that the GPU can read and that the GPU server owns; and give it a
	 * handle in a program's client. The caller frees the handle as soon as a channel holds the page, so
	 * the program never has it. */
	int (*page_new)(struct device *device, struct device_view *page, struct bf_error *err);
	int (*page_name)(struct device *device, int control_fd, uint32_t client, uint32_t parent,
			 uint32_t handle, const struct device_view *page, struct bf_error *err);
	int (*use_of)(struct device *device, pid_t owner, struct device_use *use);
	/* From now on the device accepts calls of the descendants of `root`, but not of `root` itself, from
	 * the GPU server only. This ends with `root`. NULL: not needed, because the filter cannot be bypassed
	 * on the kernel's device files. */
	int (*supervise)(struct device *device, pid_t root, struct bf_error *err);
	/* The GPU time of a channel group, read through its client's control file. NULL: the device does not
	 * report it. */
	int (*time_of)(struct device *device, int control_fd, uint32_t client, uint32_t group,
		       uint64_t *gpu_ns);
	/* When a channel group had completed all its work: the records from number *taken on, in order, read likewise;
	 * *taken becomes the number of the next. Returns how many, or -errno. NULL: the device does not record it. */
	int (*done_of)(struct device *device, int control_fd, uint32_t client, uint32_t group,
		       uint64_t *taken, struct device_done *to, unsigned room);
	/* The load since the last call; for one caller. -EAGAIN: not known yet. NULL: the device does not
	 * report it. */
	int (*load)(struct device *device, struct device_load *load);
	/* The values of the sensors now; for one caller, the same as that of load. NULL: there are none. */
	void (*sense)(struct device *device, struct device_sensors *sensors);
	/* Take the events that have made fault_fd ready. */
	void (*hear_fault)(struct device *device);
};

struct device {
	const struct device_ops *ops;
	const struct rm_layout *layout;
	volatile uint32_t *bell;	       /* the GPU's doorbell page */
	void (*rang)(volatile uint32_t *bell); /* called after each ring; NULL: not needed for hardware */
	uint64_t mem_bytes;		       /* of the GPU */
	uint32_t sm_count;		       /* 0: not known */
	uint32_t instance; /* the device instance that programs pass when they allocate the device object */
	uint32_t client;   /* the GPU server's own RM client; no object of a program is in it */
	char driver_version[32];
	uint8_t uuid[16]; /* as the managed-memory device uses it; valid if has_uuid */
	bool has_uuid;
	char model[64]; /* as nvidia-smi names it; empty: not known */
	unsigned index; /* N of nvidiaN */
	int gpu_fd;	/* a GPU file for calls that do not depend on their file */
	int end_fd;	/* hangs up when the device ends; -1: it does not end */
	int fault_fd;	/* ready after a fault of any program: device_ops::hear_fault; -1: not reported */
};

struct device_options {
	unsigned index;
	bool any_driver;
};

/* The real driver. The error says what to do: no driver, no GPU, no permission, unknown series. */
struct device *device_nv_open(const struct device_options *options, struct bf_error *err);
/* The software GPU in this folder (soft/link/link.h). */
struct device *device_soft_open(const char *folder, const struct device_options *options,
				struct bf_error *err);
/* "580.159.04", or -ENOENT if the driver is not loaded. */
int device_nv_version(char *to, size_t room);

#endif
