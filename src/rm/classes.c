/* Classes a client can allocate, from the driver's table (rmapi/resource_list.h, the same in 570 to 595
 * except where noted). Display, vGPU host and test classes are not listed, and so refused. The parameters of
 * the classes that are not refused hold no address that the driver follows, except 0x71, whose address is
 * that of the caller's pages. */
#include "rm/rm.h"

/* Which parameters a class takes. UNKNOWN is 0, so that it is the default. */
enum params {
	PARAMS_UNKNOWN = 0,
	PARAMS_NONE,
	PARAMS_DEVICE,
	PARAMS_SUBDEVICE,
	PARAMS_MEMORY,
	PARAMS_GROUP,
	PARAMS_CHANNEL,
	PARAMS_DOORBELL,
	PARAMS_GRAPHICS,
	PARAMS_COPY,
	PARAMS_VIDEO,
	PARAMS_CONTEXT_SHARE,
	PARAMS_VA_SPACE,
	PARAMS_P2P,
	PARAMS_FIXED, /* the same in every series */
};

struct entry {
	struct rm_class class;
	enum params params;
	uint16_t bytes; /* PARAMS_FIXED */
};

#define CLASS(id, kind, params, name) \
	{ \
		{ (id), RM_KIND_##kind, (name), { -1, -1 } }, PARAMS_##params, 0 \
	}
#define FIXED(id, kind, bytes, name) \
	{ \
		{ (id), RM_KIND_##kind, (name), { -1, -1 } }, PARAMS_FIXED, (bytes) \
	}
/* A class whose parameters name a client. */
#define CLIENT_AT(id, kind, params, bytes, name, first, second) \
	{ \
		{ (id), RM_KIND_##kind, (name), { (first), (second) } }, PARAMS_##params, (bytes) \
	}
#define REFUSED(id, name) CLASS(id, REFUSED, UNKNOWN, name)

/* Sorted by id: rm_class_find uses a binary search. */
static const struct entry entries[] = {
	/* For callers from user space the driver turns all three root classes into 0x41 (escape.c). */
	FIXED(0x0000, ROOT, 4, "NV01_ROOT"),
	FIXED(0x0001, ROOT, 4, "NV01_ROOT_NON_PRIV"),
	FIXED(0x0002, OTHER, 32, "NV01_CONTEXT_DMA"), /* refers to memory and ends with it; allocates none */
	CLASS(0x0004, OTHER, NONE, "NV01_TIMER"),
	/* Its parameters choose the class of the event: 0x79, which is listed, or a callback in the
	 * kernel. */
	REFUSED(0x0005, "NV01_EVENT"),
	/* Manages every GPU, also detached ones. Not needed. */
	REFUSED(0x0020, "NV0020_GPU_MANAGEMENT"),
	CLASS(0x003e, SYSMEM, MEMORY, "NV01_MEMORY_SYSTEM"),
	/* All of BAR0, including the doorbells of every channel. Any client may allocate it. The driver
	 * checks the privilege only when it is mapped, so a program of root could ring without the gate. */
	REFUSED(0x003f, "NV01_MEMORY_LOCAL_PRIVILEGED"),
	/* The only class that allocates device memory: it requires the video memory location, and 0x3e
	 * requires any other (video_mem.c, system_mem.c). */
	CLASS(0x0040, VIDMEM, MEMORY, "NV01_MEMORY_LOCAL_USER"),
	FIXED(0x0041, ROOT, 4, "NV01_ROOT_CLIENT"),
	/* Host memory behind a Grace-like host, "not supported" on any other card. Removed in 595. */
	CLASS(0x0042, SYSMEM, MEMORY, "NV_MEMORY_EXTENDED_USER"),
	/* Root only. The driver copies and fills memory on a channel of its own, which no gate controls. */
	REFUSED(0x0050, "NV_CE_UTILS"),
	FIXED(0x0070, OTHER, 24, "NV01_MEMORY_VIRTUAL"),		  /* reserves addresses only */
	FIXED(0x0071, OS_MEMORY, 40, "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR"), /* u64 address at 16 */
	/* The framebuffer of the boot console, kernel only. */
	REFUSED(0x0076, "NV01_MEMORY_FRAMEBUFFER_CONSOLE"),
	/* Calls an address in the kernel. */
	REFUSED(0x0078, "NV01_EVENT_KERNEL_CALLBACK"),
	CLIENT_AT(0x0079, EVENT, FIXED, 24, "NV01_EVENT_OS_EVENT", 0, -1), /* u64 file at 16 */
	/* A test class. */
	REFUSED(0x007d, "NV04_SOFTWARE_TEST"),
	/* Calls an address in the kernel. */
	REFUSED(0x007e, "NV01_EVENT_KERNEL_CALLBACK_EX"),
	/* It may share another client's address space and refer to another client's device. */
	CLIENT_AT(0x0080, DEVICE, DEVICE, 0, "NV01_DEVICE_0", 4, 8),
	/* Root only. Creates objects over physical pages that the caller lists: any memory, and not in the
	 * ledger. */
	REFUSED(0x0081, "NV01_MEMORY_LIST_SYSTEM"),
	REFUSED(0x0082, "NV01_MEMORY_LIST_FBMEM"),
	REFUSED(0x0083, "NV01_MEMORY_LIST_OBJECT"),
	/* Internal to the driver. */
	REFUSED(0x0090, "KERNEL_GRAPHICS_CONTEXT"),
	/* Compression tags of the GPU, shared by all programs. Not needed. */
	REFUSED(0x00b1, "NV01_MEMORY_HW_RESOURCES"),
	/* Root only. A linear window on the whole framebuffer: allocates nothing, gives access to
	 * everything. */
	REFUSED(0x00c2, "NV01_MEMORY_LOCAL_PHYSICAL"),
	/* Host hardware of Tegra. */
	REFUSED(0x00c3, "NV01_MEMORY_SYNCPOINT"),
	/* Keeps references to memory. Graphics with timeline semaphores would use it. */
	REFUSED(0x00da, "NV_SEMAPHORE_SURFACE"),
	/* Memory of the driver, not in the ledger. */
	REFUSED(0x00db, "NV40_DEBUG_BUFFER"),
	/* A read-only page of live figures, with the GPU's real total and free memory. */
	FIXED(0x00de, OTHER, 8, "RM_USER_SHARED_DATA"),
	/* The export, import, fabric and multicast classes give names and addresses to memory of class 0x40
	 * and keep it allocated after the object is freed, outside of the ledger. Some of them carry files or
	 * events. */
	REFUSED(0x00e0, "NV_MEMORY_EXPORT"),
	REFUSED(0x00f1, "NV_IMEX_SESSION"),
	REFUSED(0x00f3, "NV01_MEMORY_FLA"),
	REFUSED(0x00f8, "NV_MEMORY_FABRIC"),
	REFUSED(0x00f9, "NV_MEMORY_FABRIC_IMPORT_V2"),
	REFUSED(0x00fb, "NV_MEMORY_FABRIC_IMPORTED_REF"),
	REFUSED(0x00fd, "NV_MEMORY_MULTICAST_FABRIC"),
	/* Maps memory from a queue of the driver's own, which no gate controls. */
	REFUSED(0x00fe, "NV_MEMORY_MAPPER"),
	CLASS(0x2080, SUBDEVICE, SUBDEVICE, "NV20_SUBDEVICE_0"),
	FIXED(0x2081, OTHER, 4, "NV2081_BINAPI"),
	/* Root only. */
	REFUSED(0x2082, "NV2082_BINAPI_PRIVILEGED"),
	CLASS(0x208f, OTHER, NONE, "NV20_SUBDEVICE_DIAG"), /* one of its controls is known */
	CLASS(0x503b, OTHER, P2P, "NV50_P2P"),
	/* Gives memory to other devices (RDMA) and keeps references to it. libcuda allocates one and works
	 * without it (measured). */
	REFUSED(0x503c, "NV50_THIRD_PARTY_P2P"),
	/* Issues controls from the command stream, which Belfry cannot see, including the one that moves a
	 * channel's USERD (deferred_api.c: 0x20801116). */
	REFUSED(0x5080, "NV50_DEFERRED_API_CLASS"),
	CLASS(0x50a0, OTHER, MEMORY, "NV50_MEMORY_VIRTUAL"), /* reserves addresses only */
	CLIENT_AT(0x83de, OTHER, FIXED, 12, "GT200_DEBUGGER", 0, 4),
	/* Performance counters of every program. */
	REFUSED(0x844c, "G84_PERFBUFFER"),
	CLASS(0x900e, OTHER, NONE, "MPS_COMPUTE"),
	CLASS(0x902d, ENGINE, GRAPHICS, "FERMI_TWOD_A"),
	CLASS(0x9067, OTHER, CONTEXT_SHARE, "FERMI_CONTEXT_SHARE_A"),
	CLASS(0x906f, CHANNEL, CHANNEL, "GF100_CHANNEL_GPFIFO"),
	/* Display. */
	REFUSED(0x9072, "GF100_DISP_SW"),
	/* Releases semaphores from the driver. Not needed. */
	REFUSED(0x9074, "GF100_TIMED_SEMAPHORE_SW"),
	CLASS(0x9096, OTHER, NONE, "GF100_ZBC_CLEAR"),
	/* Profilers: counters of every program, and registers of the GPU. */
	REFUSED(0x90cc, "GF100_PROFILER"),
	/* Keeps references to memory, and reports the context switches of every program. */
	REFUSED(0x90cd, "NV_EVENT_BUFFER"),
	/* Host memory without a device, not in the ledger. Not needed. */
	REFUSED(0x90ce, "NV01_MEMORY_DEVICELESS"),
	CLASS(0x90e6, OTHER, NONE, "GF100_SUBDEVICE_MASTER"),
	CLASS(0x90e7, OTHER, NONE, "GF100_SUBDEVICE_INFOROM"),
	CLASS(0x90f1, OTHER, VA_SPACE, "FERMI_VASPACE_A"),
	CLASS(0xa06c, GROUP, GROUP, "KEPLER_CHANNEL_GROUP_A"),
	CLASS(0xa06f, CHANNEL, CHANNEL, "KEPLER_CHANNEL_GPFIFO_A"),
	FIXED(0xa0bc, OTHER, 20, "NVENC_SW_SESSION"),
	/* Display capture. */
	REFUSED(0xa0bd, "NVFBC_SW_SESSION"),
	CLASS(0xa140, ENGINE, GRAPHICS, "KEPLER_INLINE_TO_MEMORY_B"),
	CLASS(0xa16f, CHANNEL, CHANNEL, "KEPLER_CHANNEL_GPFIFO_B"),
	CLASS(0xb06f, CHANNEL, CHANNEL, "MAXWELL_CHANNEL_GPFIFO_A"),
	CLASS(0xb0b5, ENGINE, COPY, "MAXWELL_DMA_COPY_A"),
	/* Profilers, like 0x90cc. */
	REFUSED(0xb1cc, "MAXWELL_PROFILER_CONTEXT"),
	REFUSED(0xb2cc, "MAXWELL_PROFILER_DEVICE"),
	CLASS(0xb4b7, ENGINE, VIDEO, "NVB4B7_VIDEO_ENCODER"),
	CLASS(0xb8b0, ENGINE, VIDEO, "NVB8B0_VIDEO_DECODER"),
	CLASS(0xb8d1, ENGINE, VIDEO, "NVB8D1_VIDEO_NVJPG"),
	CLASS(0xb8fa, ENGINE, VIDEO, "NVB8FA_VIDEO_OFA"),
	CLASS(0xc06f, CHANNEL, CHANNEL, "PASCAL_CHANNEL_GPFIFO_A"),
	/* Only for the kernel's UVM module. */
	REFUSED(0xc076, "GP100_UVM_SW"),
	CLASS(0xc0b5, ENGINE, COPY, "PASCAL_DMA_COPY_A"),
	CLASS(0xc361, DOORBELL, NONE, "VOLTA_USERMODE_A"),
	CLASS(0xc36f, CHANNEL, CHANNEL, "VOLTA_CHANNEL_GPFIFO_A"),
	CLASS(0xc461, DOORBELL, NONE, "TURING_USERMODE_A"),
	CLASS(0xc46f, CHANNEL, CHANNEL, "TURING_CHANNEL_GPFIFO_A"),
	CLASS(0xc4b0, ENGINE, VIDEO, "NVC4B0_VIDEO_DECODER"),
	CLASS(0xc4b7, ENGINE, VIDEO, "NVC4B7_VIDEO_ENCODER"),
	CLASS(0xc4d1, ENGINE, VIDEO, "NVC4D1_VIDEO_NVJPG"),
	CLASS(0xc561, DOORBELL, NONE, "AMPERE_USERMODE_A"),
	CLASS(0xc56f, CHANNEL, CHANNEL, "AMPERE_CHANNEL_GPFIFO_A"),
	/* Only for the kernel; keeps references to channels. */
	REFUSED(0xc574, "UVM_CHANNEL_RETAINER"),
	CLASS(0xc597, ENGINE, GRAPHICS, "TURING_A"),
	CLASS(0xc5b5, ENGINE, COPY, "TURING_DMA_COPY_A"),
	CLASS(0xc5c0, ENGINE, GRAPHICS, "TURING_COMPUTE_A"),
	/* MIG: parts of the GPU, each referred to by a file. */
	REFUSED(0xc637, "AMPERE_SMC_PARTITION_REF"),
	REFUSED(0xc638, "AMPERE_SMC_EXEC_PARTITION_REF"),
	REFUSED(0xc639, "AMPERE_SMC_CONFIG_SESSION"),
	REFUSED(0xc640, "AMPERE_SMC_MONITOR_SESSION"),
	CLASS(0xc661, DOORBELL, DOORBELL, "HOPPER_USERMODE_A"),
	CLASS(0xc697, ENGINE, GRAPHICS, "AMPERE_A"),
	CLASS(0xc6b0, ENGINE, VIDEO, "NVC6B0_VIDEO_DECODER"),
	CLASS(0xc6b5, ENGINE, COPY, "AMPERE_DMA_COPY_A"),
	CLASS(0xc6c0, ENGINE, GRAPHICS, "AMPERE_COMPUTE_A"),
	CLASS(0xc6fa, ENGINE, VIDEO, "NVC6FA_VIDEO_OFA"),
	CLASS(0xc761, DOORBELL, DOORBELL, "BLACKWELL_USERMODE_A"),
	CLASS(0xc797, ENGINE, GRAPHICS, "AMPERE_B"),
	CLASS(0xc7b0, ENGINE, VIDEO, "NVC7B0_VIDEO_DECODER"),
	CLASS(0xc7b5, ENGINE, COPY, "AMPERE_DMA_COPY_B"),
	CLASS(0xc7b7, ENGINE, VIDEO, "NVC7B7_VIDEO_ENCODER"),
	CLASS(0xc7c0, ENGINE, GRAPHICS, "AMPERE_COMPUTE_B"),
	CLASS(0xc7fa, ENGINE, VIDEO, "NVC7FA_VIDEO_OFA"),
	CLASS(0xc86f, CHANNEL, CHANNEL, "HOPPER_CHANNEL_GPFIFO_A"),
	CLASS(0xc8b5, ENGINE, COPY, "HOPPER_DMA_COPY_A"),
	CLASS(0xc96f, CHANNEL, CHANNEL, "BLACKWELL_CHANNEL_GPFIFO_A"),
	CLASS(0xc997, ENGINE, GRAPHICS, "ADA_A"),
	CLASS(0xc9b0, ENGINE, VIDEO, "NVC9B0_VIDEO_DECODER"),
	CLASS(0xc9b5, ENGINE, COPY, "BLACKWELL_DMA_COPY_A"),
	CLASS(0xc9b7, ENGINE, VIDEO, "NVC9B7_VIDEO_ENCODER"),
	CLASS(0xc9c0, ENGINE, GRAPHICS, "ADA_COMPUTE_A"),
	CLASS(0xc9d1, ENGINE, VIDEO, "NVC9D1_VIDEO_NVJPG"),
	CLASS(0xc9fa, ENGINE, VIDEO, "NVC9FA_VIDEO_OFA"),
	CLASS(0xca6f, CHANNEL, CHANNEL, "BLACKWELL_CHANNEL_GPFIFO_B"),
	CLASS(0xcab5, ENGINE, COPY, "BLACKWELL_DMA_COPY_B"),
	CLIENT_AT(0xcb33, OTHER, FIXED, 4, "NV_CONFIDENTIAL_COMPUTE", 0, -1),
	CLASS(0xcb97, ENGINE, GRAPHICS, "HOPPER_A"),
	CLASS(0xcba2, ENGINE, NONE, "HOPPER_SEC2_WORK_LAUNCH_A"),
	CLASS(0xcbc0, ENGINE, GRAPHICS, "HOPPER_COMPUTE_A"),
	CLASS(0xcbca, OTHER, NONE, "NV_COUNTER_COLLECTION_UNIT"),
	CLASS(0xcd40, ENGINE, GRAPHICS, "BLACKWELL_INLINE_TO_MEMORY_A"),
	CLASS(0xcd97, ENGINE, GRAPHICS, "BLACKWELL_A"),
	CLASS(0xcdb0, ENGINE, VIDEO, "NVCDB0_VIDEO_DECODER"),
	CLASS(0xcdc0, ENGINE, GRAPHICS, "BLACKWELL_COMPUTE_A"),
	CLASS(0xcdd1, ENGINE, VIDEO, "NVCDD1_VIDEO_NVJPG"),
	CLASS(0xcdfa, ENGINE, VIDEO, "NVCDFA_VIDEO_OFA"),
	CLASS(0xce97, ENGINE, GRAPHICS, "BLACKWELL_B"),
	CLASS(0xceb0, ENGINE, VIDEO, "NVCEB0_VIDEO_DECODER"),
	CLASS(0xceb7, ENGINE, VIDEO, "NVCEB7_VIDEO_ENCODER"),
	CLASS(0xcec0, ENGINE, GRAPHICS, "BLACKWELL_COMPUTE_B"),
	CLASS(0xced0, ENGINE, VIDEO, "NVCED0_VIDEO_NVJPG"),
	CLASS(0xcefa, ENGINE, VIDEO, "NVCEFA_VIDEO_OFA"),
	CLASS(0xcfb0, ENGINE, VIDEO, "NVCFB0_VIDEO_DECODER"),
	CLASS(0xcfb7, ENGINE, VIDEO, "NVCFB7_VIDEO_ENCODER"),
	CLASS(0xcfd1, ENGINE, VIDEO, "NVCFD1_VIDEO_NVJPG"),
	CLASS(0xcffa, ENGINE, VIDEO, "NVCFFA_VIDEO_OFA"),
	CLASS(0xd1b0, ENGINE, VIDEO, "NVD1B0_VIDEO_DECODER"),
	CLASS(0xd1b7, ENGINE, VIDEO, "NVD1B7_VIDEO_ENCODER"),
	CLASS(0xd1fa, ENGINE, VIDEO, "NVD1FA_VIDEO_OFA"),
};

static const struct entry unknown = REFUSED(0, "unknown");

static const struct entry *entry_find(uint32_t id)
{
	size_t low = 0, high = sizeof(entries) / sizeof(entries[0]);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (entries[middle].class.id == id)
			return &entries[middle];
		if (entries[middle].class.id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return &unknown;
}

const struct rm_class *rm_class_find(uint32_t id)
{
	return &entry_find(id)->class;
}

int rm_class_params_size(const struct rm_layout *layout, uint32_t class_id)
{
	const struct entry *entry = entry_find(class_id);

	switch (entry->params) {
	case PARAMS_UNKNOWN:
		return -1;
	case PARAMS_NONE:
		return 0;
	case PARAMS_DEVICE:
		return (int)layout->device_size;
	case PARAMS_SUBDEVICE:
		return (int)layout->subdevice_size;
	case PARAMS_MEMORY:
		return (int)layout->memory_size;
	case PARAMS_GROUP:
		return (int)layout->group_size;
	case PARAMS_CHANNEL:
		return (int)layout->channel_size;
	case PARAMS_DOORBELL:
		return (int)layout->doorbell_size;
	case PARAMS_GRAPHICS:
		return (int)layout->graphics_size;
	case PARAMS_COPY:
		return (int)layout->copy_size;
	case PARAMS_VIDEO:
		return (int)layout->video_size;
	case PARAMS_CONTEXT_SHARE:
		return (int)layout->context_share_size;
	case PARAMS_VA_SPACE:
		return (int)layout->va_space_size;
	case PARAMS_P2P:
		return (int)layout->p2p_size;
	case PARAMS_FIXED:
		return entry->bytes;
	}
	return -1;
}
