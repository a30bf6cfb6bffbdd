/* rm: the NVIDIA kernel driver's ABI as data: call numbers, classes, controls, and the offsets of the fields
 * that Belfry uses in each driver series. Pure functions: the module opens nothing, calls nothing and keeps
 * no state. Facts come from the public open-gpu-kernel-modules headers, or are measured. */
#ifndef BELFRY_RM_H
#define BELFRY_RM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rm/tables.h"

/* Calls of nvidiactl and nvidiaN: the low byte of the ioctl command. The driver checks only that byte and the
 * size bits. The magic 'F' and the direction are a convention, not a check, in every series known here
 * (nvidia_ioctl in kernel-open/nvidia/nv.c). */
enum rm_escape {
	RM_ESC_ALLOC_MEMORY = 0x27,
	RM_ESC_ALLOC_OBJECT = 0x28,
	RM_ESC_FREE = 0x29,
	RM_ESC_CONTROL = 0x2a,
	RM_ESC_ALLOC = 0x2b,
	RM_ESC_DUP_OBJECT = 0x34,
	RM_ESC_SHARE = 0x35,
	RM_ESC_I2C_ACCESS = 0x39,
	RM_ESC_IDLE_CHANNELS = 0x41,
	RM_ESC_VID_HEAP_CONTROL = 0x4a,
	RM_ESC_ACCESS_REGISTRY = 0x4d,
	RM_ESC_MAP_MEMORY = 0x4e,
	RM_ESC_UNMAP_MEMORY = 0x4f,
	RM_ESC_GET_EVENT_DATA = 0x52,
	RM_ESC_ALLOC_CONTEXT_DMA2 = 0x54,
	RM_ESC_MAP_MEMORY_DMA = 0x57,
	RM_ESC_UNMAP_MEMORY_DMA = 0x58,
	RM_ESC_BIND_CONTEXT_DMA = 0x59,
	RM_ESC_UPDATE_DEVICE_MAPPING_INFO = 0x5e,
	RM_ESC_LOCKLESS_DIAGNOSTIC = 0x5f,
	RM_ESC_CARD_INFO = 0xc8,
	RM_ESC_REGISTER_FD = 0xc9,
	RM_ESC_ALLOC_OS_EVENT = 0xce,
	RM_ESC_FREE_OS_EVENT = 0xcf,
	RM_ESC_STATUS_CODE = 0xd1,
	RM_ESC_CHECK_VERSION_STR = 0xd2,
	RM_ESC_XFER_CMD = 0xd3, /* an indirect call: the argument describes the real one, which may be any */
	RM_ESC_ATTACH_GPUS_TO_FD = 0xd4,
	RM_ESC_QUERY_DEVICE_INTR = 0xd5,
	RM_ESC_SYS_PARAMS = 0xd6,
	RM_ESC_NUMA_INFO = 0xd7,
	RM_ESC_SET_NUMA_STATUS = 0xd8,
	RM_ESC_EXPORT_TO_DMABUF_FD = 0xd9,
	RM_ESC_WAIT_OPEN_COMPLETE = 0xda,
};

/* Statuses that Belfry returns or checks for (nvstatuscodes.h). */
enum rm_status {
	RM_OK = 0x00,
	RM_ERR_INSERT_DUPLICATE_NAME = 0x19,
	RM_ERR_INSUFFICIENT_RESOURCES = 0x1a,
	RM_ERR_INSUFFICIENT_PERMISSIONS = 0x1b,
	RM_ERR_INVALID_ARGUMENT = 0x1f,
	RM_ERR_INVALID_CLIENT = 0x23,
	RM_ERR_INVALID_DEVICE = 0x26,
	RM_ERR_INVALID_OBJECT_HANDLE = 0x33,
	RM_ERR_INVALID_OBJECT_PARENT = 0x36,
	RM_ERR_INVALID_PARAM_STRUCT = 0x3a,
	RM_ERR_NO_MEMORY = 0x51,
	RM_ERR_NOT_SUPPORTED = 0x56,
	RM_ERR_STATE_IN_USE = 0x63,
	RM_ERR_TIMEOUT = 0x65,
};

/* How Belfry treats a class. */
enum rm_kind {
	RM_KIND_OTHER = 0, /* performed on a copy of its parameters */
	RM_KIND_ROOT,	   /* an RM client; belongs to the calling process */
	RM_KIND_DEVICE,
	RM_KIND_SUBDEVICE,
	RM_KIND_VIDMEM,	   /* device memory: counted */
	RM_KIND_SYSMEM,	   /* host memory allocated by the driver */
	RM_KIND_OS_MEMORY, /* the caller's own pages, pinned */
	RM_KIND_GROUP,	   /* channel group (TSG) */
	RM_KIND_CHANNEL,   /* GPFIFO channel */
	RM_KIND_ENGINE,	   /* compute, copy and other engines; child of a channel */
	RM_KIND_DOORBELL,  /* usermode region */
	RM_KIND_EVENT,	   /* refers to a file of the calling process */
	RM_KIND_REFUSED,   /* unknown, not needed, or a way around the ledger or the gate */
};

struct rm_class {
	uint32_t id;
	enum rm_kind kind;
	const char *name;
	/* Offsets of client handles in the allocation parameters, which must be the caller's own or 0; -1:
	 * none. The driver checks them with the rights of the calling process, which is Belfry. */
	int16_t client_at[2];
};

/* Never NULL: an unknown class has RM_KIND_REFUSED and the name "unknown". */
const struct rm_class *rm_class_find(uint32_t id);

/* Controls that Belfry's code refers to; rm/tables.h has all known controls. Macros, because ISO C limits
 * enumerators to int. */
#define RM_CTRL_ROOT_GET_ATTACHED_IDS 0x00000201u
#define RM_CTRL_ROOT_GET_ID_INFO_V2 0x00000205u
#define RM_CTRL_ROOT_ATTACH_IDS 0x00000215u
#define RM_CTRL_ROOT_GET_ADDRESS_SPACE 0x00000d01u
#define RM_CTRL_ROOT_GET_HANDLE_INFO 0x00000d02u
#define RM_CTRL_EXPORT_OBJECT_TO_FD 0x00003d05u
#define RM_CTRL_IMPORT_OBJECT_FROM_FD 0x00003d06u
#define RM_CTRL_GET_EXPORT_OBJECT_INFO 0x00003d08u
#define RM_CTRL_EXPORT_OBJECTS_TO_FD 0x00003d0bu
#define RM_CTRL_IMPORT_OBJECTS_FROM_FD 0x00003d0cu
#define RM_CTRL_GET_NAME_STRING 0x20800110u
#define RM_CTRL_GET_GID_INFO 0x2080014au
#define RM_CTRL_GET_PIDS 0x2080018du
#define RM_CTRL_GET_PID_INFO 0x2080018eu
/* Any client may issue this control on its own channels, so a program could undo Belfry's stop. */
#define RM_CTRL_DISABLE_CHANNELS 0x2080110bu
/* Moves a channel's USERD and ring to other memory. With CAP_SYS_ADMIN it is a way around the gate. */
#define RM_CTRL_FIFO_UPDATE_CHANNEL_INFO 0x20801116u
#define RM_CTRL_SET_PREEMPTION 0x20801210u
#define RM_CTRL_ROOT_IDLE_CHANNELS 0x00000283u
#define RM_CTRL_FIFO_IDLE_CHANNELS 0x00801714u
#define RM_CTRL_SET_NOTIFICATION 0x20800301u /* NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION */
#define RM_CTRL_GET_TIME 0x20800403u	     /* {u64 ns} of the GPU's PTIMER */
/* Makes the driver write context switches of the graphics engine to an event buffer, and the controls of such
 * a buffer. */
#define RM_CTRL_BIND_TURNS 0x20801238u
#define RM_CTRL_EVENT_BUFFER_ENABLE 0x90cd0101u
#define RM_CTRL_EVENT_BUFFER_UPDATE_GET 0x90cd0102u
#define RM_CTRL_EVENT_BUFFER_FLUSH 0x90cd0104u
#define RM_CTRL_FB_GET_INFO 0x20801301u
#define RM_CTRL_FB_GET_INFO_V2 0x20801303u
#define RM_CTRL_GROUP_SCHEDULE 0xa06c0101u
#define RM_CTRL_GROUP_SET_TIMESLICE 0xa06c0103u
#define RM_CTRL_GROUP_SET_INTERLEAVE 0xa06c0107u
#define RM_CTRL_GROUP_MAKE_REALTIME 0xa06c0110u
#define RM_CTRL_CHANNEL_SET_INTERLEAVE 0xa06f0109u
#define RM_CTRL_CHANNEL_SCHEDULE 0xa06f0103u
#define RM_CTRL_CHANNEL_GET_TOKEN 0xc36f0108u
#define RM_CTRL_CHANNEL_SET_TOKEN_INDEX 0xc36f010au /* the driver writes the token to the error notifier */

/* FB_GET_INFO indexes whose value is the size or the use of the GPU's memory, in KiB (ctrl2080fb.h). A value
 * may be lowered but never raised: MAPPABLE_HEAP_SIZE is what the CPU can map, and may be small already. */
enum rm_fb_meaning { RM_FB_UNRELATED = 0, RM_FB_TOTAL, RM_FB_FREE };
enum rm_fb_meaning rm_fb_meaning(uint32_t index);

/* One driver series. Offsets are in bytes from the start of the named structure. */
struct rm_layout {
	const char *series; /* "580": the major version */
	uint8_t series_bit; /* bit of the series in tables that differ by series (controls.h) */
	bool is_measured;   /* tested with the real driver; false: only from its public source */

	uint32_t channel_size; /* NV_CHANNEL_ALLOC_PARAMS */
	uint32_t channel_error_memory;
	uint32_t channel_gpfifo_offset, channel_gpfifo_entries, channel_flags;
	uint32_t channel_userd_memory, channel_userd_offset, channel_engine_type;

	uint32_t memory_size; /* NV_MEMORY_ALLOCATION_PARAMS */
	uint32_t memory_flags, memory_attr, memory_bytes;

	uint32_t device_size, device_instance; /* NV0080_ALLOC_PARAMETERS */
	uint32_t subdevice_size;	       /* NV2080_ALLOC_PARAMETERS */
	uint32_t group_size;		       /* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
	uint32_t group_schedule_size;	       /* NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS */
	uint32_t doorbell_size;		       /* NV_HOPPER_USERMODE_A_PARAMS; older classes: none */
	uint32_t graphics_size;		       /* NV_GR_ALLOCATION_PARAMETERS: compute, 3D, 2D, inline */
	uint32_t copy_size;		       /* NVB0B5_ALLOCATION_PARAMETERS */
	uint32_t video_size;		       /* NVENC, NVDEC, NVJPG and OFA: one size for all */
	uint32_t context_share_size;	       /* NV_CTXSHARE_ALLOCATION_PARAMETERS */
	uint32_t va_space_size;		       /* NV_VASPACE_ALLOCATION_PARAMETERS */
	uint32_t p2p_size;		       /* NV503B_ALLOC_PARAMETERS */

	uint32_t pids_size, pids_count, pids_table, pids_max;	   /* GET_PIDS */
	uint32_t pid_info_size, pid_info_max;			   /* GET_PID_INFO: list of entries */
	uint32_t pid_info_list, pid_info_stride;		   /* entry: pid 0, index 4, result 8 */
	uint32_t pid_info_private, pid_info_owned, pid_info_duped; /* bytes, within an entry */

	uint32_t fb_info_size, fb_info_list, fb_info_max; /* FB_GET_INFO_V2: count, {index, value}[] */
	uint32_t disable_size, disable_count, disable_clients, disable_channels, disable_max;
	uint32_t id_info_v2_size, id_info_v2_gpu_id;
	uint32_t id_info_v2_device_instance, id_info_v2_subdevice_instance;
};

/* The layout for a driver version such as "580.159.04", or NULL. */
const struct rm_layout *rm_layout_find(const char *version);
/* Known layouts in order; NULL past the end. */
const struct rm_layout *rm_layout_at(unsigned index);

/* Bits of channel_flags. RM derives a channel's privilege from the calling process. If that has
 * CAP_SYS_ADMIN, also when it acts for another process, the channel is privileged and its copy engine may use
 * physical addresses. These two bits deny that for any caller (alloc_channel.h). */
#define RM_CHANNEL_DENY_PHYSICAL_CE (1u << 7)
#define RM_CHANNEL_DENY_AUTH_PRIV (1u << 22)

/* NvNotification, at the start of the memory that a channel's parameters name for errors: `u64` time, `u32`
 * reason (an Xid), `u16` details, `u16` status, which is written last. Every channel of a group gets one
 * (kernel_rc_notification.c). */
#define RM_NOTIFIER_BYTES 16u
#define RM_NOTIFIER_REASON 8u
#define RM_NOTIFIER_STATUS 14u
#define RM_NOTIFIER_HAPPENED 0xffffu
#define RM_XID_REMOVED 45u /* not a fault: the owner has ended, and the driver cleaned up after it */

/* Size of the allocation parameters of a class if the caller gives 0 (the default). 0: the class takes none.
 * -1 if Belfry does not know it; then it cannot make the call for the caller. */
int rm_class_params_size(const struct rm_layout *layout, uint32_t class_id);

/* A decoded call. */
enum rm_verb {
	RM_VERB_OTHER = 0,
	RM_VERB_ALLOC,	      /* class, params */
	RM_VERB_FREE,	      /* object */
	RM_VERB_CONTROL,      /* object, class = control id, params */
	RM_VERB_ALLOC_MEMORY, /* NVOS02: class, params = address, bytes, fd */
	RM_VERB_VID_HEAP,     /* NVOS32: class = enum rm_heap, heap_class, object, bytes, flags */
	RM_VERB_DUP,	      /* object = new handle; source_client, source_object */
	RM_VERB_MAP_MEMORY,   /* parent = device, object = memory, offset, bytes, fd */
	RM_VERB_UNMAP_MEMORY, /* parent = device, object = memory, params = address */
	RM_VERB_REGISTER_FD,  /* fd = control file */
	RM_VERB_REFUSED,      /* would bypass the ledger: ALLOC_OBJECT, ALLOC_MEMORY except of host memory */
};

/* Functions of RM_ESC_VID_HEAP_CONTROL. FREE frees any object, not only memory. */
enum rm_heap {
	RM_HEAP_ALLOC_SIZE = 2,
	RM_HEAP_FREE = 3,
	RM_HEAP_INFO = 5, /* returns u64 total at 24 and free at 32, in bytes */
	RM_HEAP_ALLOC_TILED = 6,
	RM_HEAP_ALLOC_RANGE = 14,
	RM_HEAP_REACQUIRE_COMPRESSION = 15,
	RM_HEAP_RELEASE_COMPRESSION = 16,
	RM_HEAP_GET_ALIGNMENT = 18,
	RM_HEAP_HW_ALLOC = 19,
	RM_HEAP_HW_FREE = 20,
	RM_HEAP_ALLOC_OS_DESCRIPTOR = 27,
};

struct rm_call {
	enum rm_verb verb;
	uint32_t nr;   /* enum rm_escape or another number */
	uint32_t size; /* of the argument structure */
	uint32_t client, parent, object, class_id;
	uint32_t heap_class; /* RM_VERB_VID_HEAP: the class that RM allocates; 0: none */
	uint32_t source_client, source_object;
	uint64_t params; /* address in the caller */
	uint32_t params_size;
	uint64_t rights; /* address in the caller, or 0 */
	uint32_t flags;
	uint64_t offset, bytes;
	int fd;	       /* in the caller; -1: none */
	int status_at; /* offset of the driver's status in the argument; -1: none */
	int object_at; /* offset of the new handle after the call; -1: it creates no object */
};

/* No argument structure with a verb is larger (the largest is NVOS32: 184). Larger ones are not read. */
#define RM_ARG_MAX 512

/* Decodes a call. nr and size come from the ioctl command (or from an XFER_CMD argument), arg holds size
 * bytes as the caller wrote them. Returns 0, or -EINVAL if the size does not fit the number, as the driver
 * does. Unknown numbers become RM_VERB_OTHER. XFER_CMD itself is -EINVAL: decode it with rm_decode_xfer
 * first. The driver resolves it once, and a nested one fails there too. */
int rm_decode(uint32_t nr, uint32_t size, const void *arg, struct rm_call *call);

/* Whether the driver would act on an ioctl of this number and size on one of its files. It compares both
 * exactly, because the driver ignores the magic. Other ioctls with the same number and size:
 * KVM_XEN_HVM_GET_ATTR (0xc8), KVM_CREATE_GUEST_MEMFD (0xd4), BTRFS_IOC_QGROUP_LIMIT (0x2b), TUNSETDEBUG
 * (0xc9), TUNSETSNDBUF (0xd4) and TUNSETVNETHDRSZ (0xd8). */
bool rm_is_call(uint32_t nr, uint32_t size);

/* The argument of RM_ESC_XFER_CMD: {u32 cmd, u32 size, u64 address}. The driver compares the whole number,
 * not only its low byte. -EINVAL for a size above the driver's limit (nv.h). */
#define RM_XFER_MAX 16384
struct rm_xfer {
	uint32_t nr, size;
	uint64_t address;
};
int rm_decode_xfer(uint32_t size, const void *arg, struct rm_xfer *xfer);

/* Argument structures for Belfry's own calls (nvos.h, nv-ioctl.h). */
struct rm_arg_free {
	uint32_t client, parent, object, status;
};
struct rm_arg_control {
	uint32_t client, object, cmd, flags;
	uint64_t params;
	uint32_t size, status;
};
struct rm_arg_alloc { /* NVOS64 */
	uint32_t client, parent, object, class_id;
	uint64_t params, rights;
	uint32_t size, flags, status, pad;
};
struct rm_arg_dup { /* NVOS55 */
	uint32_t client, parent, object, source_client, source_object, flags, status;
};
enum {
	RM_SHARE_WITH_CLIENT = 3, /* RS_SHARE_TYPE_CLIENT */
	RM_SHARE_DUP = 1,	  /* RS_ACCESS_DUP_OBJECT */
	RM_SHARE_REVOKE = 1,	  /* remove from the policies: rs_access.h */
	RM_SHARE_COMPOSE = 4,	  /* add to the existing policies */
};
struct rm_arg_share { /* NVOS57, including RS_SHARE_POLICY */
	uint32_t client, object;
	uint32_t target, access_mask;
	uint16_t type;
	uint8_t action, pad;
	uint32_t status;
};
struct rm_arg_map { /* NVOS33 and the file */
	uint32_t client, device, memory, pad;
	uint64_t offset, length, address;
	uint32_t status, flags;
	int fd, pad2;
};
struct rm_arg_unmap { /* NVOS34 */
	uint32_t client, device, memory, pad;
	uint64_t address;
	uint32_t status, flags;
};
struct rm_arg_idle { /* NVOS30 */
	uint32_t client, device, channel, count;
	uint64_t clients, devices, channels; /* addresses of lists */
	uint32_t flags, timeout_us, status, pad;
};
/* Flags (nvos.h): which channels, a single one or the lists; and the flags that Belfry sends: a busy check
 * (3) of a single channel, on pushbuffer, cache and graphics (7 << 8). The flag called query (2) always
 * returns 0 (measured, docs/driver.md). */
#define RM_IDLE_CHANNEL 0xf0u
#define RM_IDLE_SINGLE 0x10u
#define RM_IDLE_ASK 0x713u
struct rm_arg_alloc_memory { /* NVOS02 and the file */
	uint32_t client, parent, object, class_id, flags, pad;
	uint64_t address, limit;
	uint32_t status, pad2;
	int fd, pad3;
};

/* /dev/nvidia-uvm: plain numbers, compared exactly (uvm_ioctl.h, uvm_linux_ioctl.h). */
enum rm_uvm {
	RM_UVM_INITIALIZE = 0x30000001,
	RM_UVM_DEINITIALIZE = 0x30000002,
	RM_UVM_CREATE_RANGE_GROUP = 23,
	RM_UVM_REGISTER_GPU_VASPACE = 25,
	RM_UVM_REGISTER_CHANNEL = 27,
	RM_UVM_MAP_EXTERNAL_ALLOCATION = 33,
	RM_UVM_FREE = 34,
	RM_UVM_REGISTER_GPU = 37,
	RM_UVM_PAGEABLE_MEM_ACCESS = 39,
	RM_UVM_MIGRATE = 51,
	RM_UVM_MAP_DYNAMIC_PARALLELISM_REGION = 65,
	RM_UVM_UNMAP_EXTERNAL = 66,
	RM_UVM_ALLOC_SEMAPHORE_POOL = 68,
	RM_UVM_VALIDATE_VA_RANGE = 72,
	RM_UVM_CREATE_EXTERNAL_RANGE = 73,
	RM_UVM_MAP_EXTERNAL_SPARSE = 74,
	RM_UVM_MM_INITIALIZE = 75,
	RM_UVM_ALLOC_DEVICE_P2P = 78,
};

#endif
