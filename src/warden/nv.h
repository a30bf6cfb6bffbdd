/* Shared by the two transports to an NVIDIA driver: the kernel's device files, and those of the software GPU,
 * which answers the same calls. Private to the module. */
#ifndef BELFRY_WARDEN_NV_H
#define BELFRY_WARDEN_NV_H

#include <stdatomic.h>

#include "warden/device.h"

enum { NV_MINOR_CONTROL = 255, NV_MINOR_MODESET = 254 };

struct nv;

struct nv_transport {
	int (*open)(const struct nv *nv, int minor); /* a descriptor, or -errno */
	int (*open_failed)(const struct nv *nv, int minor, int error, struct bf_error *err); /* fills err */
	int (*call)(int fd, uint32_t nr, void *arg,
		    uint32_t size);			/* 0 or -errno; the status is in the argument */
	void *(*map)(int fd, uint64_t bytes, int prot); /* MAP_FAILED and errno */
};

/* The counters when the load was last read; gpu_ns 0: never. */
struct nv_counted {
	uint64_t gpu_ns, sm_ns, bus_ns;
};

struct nv {
	struct device device;
	const struct nv_transport *transport;
	int control_fd;
	uint32_t client;
	/* Atomic: wardens in several threads use one device. */
	_Atomic uint32_t views_made;
	_Atomic unsigned uvm_major; /* nv_kernel.c; 0: not known yet */
	struct nvml *nvml;	    /* nv_kernel.c; opened when it is first needed */
	bool has_no_nvml;	    /* it could not be opened */
	char folder[108];	    /* nv_soft.c */
	int connection;		    /* nv_soft.c: the source of device files; -errno: there is none */
	struct nv_counted counted;  /* nv_soft.c */
};

static inline struct nv *nv_of(struct device *device)
{
	return (struct nv *)device;
}

/* Handles of the GPU server's own objects. */
#define OWN_DEVICE 0xbe1f0001u
#define OWN_SUBDEVICE 0xbe1f0002u
#define OWN_FAULT_EVENT 0xbe1f0004u

/* Calls for the GPU server's own client: 0, -errno, or the driver's status (positive). */
int own_alloc(struct nv *nv, uint32_t parent, uint32_t handle, uint32_t class_id, void *params,
	      uint32_t size);
int own_control(struct nv *nv, uint32_t object, uint32_t cmd, void *params, uint32_t size);
void own_free(struct nv *nv, uint32_t handle);
uint32_t own_next_handle(struct nv *nv);
/* Allocate and map host memory; nv_unview frees it. is_read_only: user space can only read it; the driver
 * writes. */
int own_host_memory(struct nv *nv, uint64_t bytes, bool is_read_only, struct device_view *memory,
		    struct bf_error *err);

struct nv *nv_new(const struct nv_transport *transport, const struct device_ops *ops, unsigned index,
		  struct bf_error *err);
/* driver_version must be set. Frees nv on failure. */
struct device *nv_open(struct nv *nv, bool any_driver, struct bf_error *err);

/* Functions of struct device_ops that both transports use. */
void nv_close(struct device *device);
int nv_view(struct device *device, int control_fd, uint32_t client, const struct device_view *what,
	    bool is_vidmem, struct device_view *view, struct bf_error *err);
void nv_unview(struct device *device, struct device_view *view);
int nv_page_new(struct device *device, struct device_view *page, struct bf_error *err);
int nv_page_name(struct device *device, int control_fd, uint32_t client, uint32_t parent, uint32_t handle,
		 const struct device_view *page, struct bf_error *err);
int nv_use_of(struct device *device, pid_t pid, struct device_use *use);

#endif
