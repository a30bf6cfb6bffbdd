/* Classes a client can allocate. The list is that of the driver's own table (rmapi/resource_list.h, the same
 * in 570 to 595 but for what is noted), without its display, vGPU host and test classes, which are "unknown"
 * here and passed on. A class that is not in the driver's table is refused by the driver. */
#include "rm/rm.h"

/* Which parameters a class takes. UNKNOWN is 0, so that leaving it out means it. */
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
};

struct entry {
	struct rm_class class;
	enum params params;
};

#define CLASS(id, kind, params, name) \
	{ \
		{ (id), RM_KIND_##kind, (name) }, PARAMS_##params \
	}

/* In order of id: rm_class_find searches by halves. */
static const struct entry entries[] = {
	/* The driver turns every one of the three roots into 0x41 for callers from user space (escape.c). */
	CLASS(0x0000, ROOT, UNKNOWN, "NV01_ROOT"),
	CLASS(0x0001, ROOT, UNKNOWN, "NV01_ROOT_NON_PRIV"),
	CLASS(0x0002, OTHER, UNKNOWN, "NV01_CONTEXT_DMA"), /* names memory, makes none */
	CLASS(0x0004, OTHER, NONE, "NV01_TIMER"),
	CLASS(0x0005, EVENT, UNKNOWN, "NV01_EVENT"),
	CLASS(0x0020, OTHER, UNKNOWN, "NV0020_GPU_MANAGEMENT"),
	CLASS(0x003e, SYSMEM, MEMORY, "NV01_MEMORY_SYSTEM"),
	/* All of BAR0, doorbells of every channel included. Anyone may make one; whether it maps is checked
	 * later and by privilege, so a root program could ring past the gate. */
	CLASS(0x003f, REFUSED, NONE, "NV01_MEMORY_LOCAL_PRIVILEGED"),
	/* The only class that makes device memory: it insists on the video memory location, and 0x3e insists
	 * on any other (video_mem.c, system_mem.c). */
	CLASS(0x0040, VIDMEM, MEMORY, "NV01_MEMORY_LOCAL_USER"),
	CLASS(0x0041, ROOT, UNKNOWN, "NV01_ROOT_CLIENT"),
	/* Host memory behind a Grace-like host, "not supported" on any other card. Gone in 595. */
	CLASS(0x0042, SYSMEM, MEMORY, "NV_MEMORY_EXTENDED_USER"),
	/* Root only. Has the driver copy and fill memory on a channel of its own, which no gate holds. */
	CLASS(0x0050, REFUSED, UNKNOWN, "NV_CE_UTILS"),
	CLASS(0x0070, OTHER, UNKNOWN, "NV01_MEMORY_VIRTUAL"), /* addresses only */
	CLASS(0x0071, OS_MEMORY, UNKNOWN, "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR"),
	/* The boot console's framebuffer, kernel only. */
	CLASS(0x0076, REFUSED, NONE, "NV01_MEMORY_FRAMEBUFFER_CONSOLE"),
	CLASS(0x0078, EVENT, UNKNOWN, "NV01_EVENT_KERNEL_CALLBACK"),
	CLASS(0x0079, EVENT, UNKNOWN, "NV01_EVENT_OS_EVENT"),
	CLASS(0x007d, ENGINE, NONE, "NV04_SOFTWARE_TEST"),
	CLASS(0x007e, EVENT, UNKNOWN, "NV01_EVENT_KERNEL_CALLBACK_EX"),
	CLASS(0x0080, DEVICE, DEVICE, "NV01_DEVICE_0"),
	/* Root only. Objects over page numbers the caller lists: anyone's memory, counted nowhere. */
	CLASS(0x0081, REFUSED, UNKNOWN, "NV01_MEMORY_LIST_SYSTEM"),
	CLASS(0x0082, REFUSED, UNKNOWN, "NV01_MEMORY_LIST_FBMEM"),
	CLASS(0x0083, REFUSED, UNKNOWN, "NV01_MEMORY_LIST_OBJECT"),
	CLASS(0x0090, OTHER, NONE, "KERNEL_GRAPHICS_CONTEXT"),
	CLASS(0x00b1, OTHER, UNKNOWN, "NV01_MEMORY_HW_RESOURCES"), /* compression tags, no bytes */
	/* Root only. A linear window on the whole framebuffer; allocates nothing, reaches everything. */
	CLASS(0x00c2, REFUSED, UNKNOWN, "NV01_MEMORY_LOCAL_PHYSICAL"),
	CLASS(0x00c3, OTHER, UNKNOWN, "NV01_MEMORY_SYNCPOINT"), /* host hardware, Tegra */
	CLASS(0x00da, OTHER, UNKNOWN, "NV_SEMAPHORE_SURFACE"),	/* on memory named by handle */
	CLASS(0x00db, OTHER, UNKNOWN, "NV40_DEBUG_BUFFER"),
	/* A read-only page of live figures. It shows the card's real total and free memory. */
	CLASS(0x00de, OTHER, UNKNOWN, "RM_USER_SHARED_DATA"),
	/* The export, import, fabric and multicast classes give addresses or names to memory that was made
	 * as 0x40 somewhere and is counted there: the fabric object takes the handle of its memory, a
	 * multicast object has memory attached, an import refers to another's export. */
	CLASS(0x00e0, OTHER, UNKNOWN, "NV_MEMORY_EXPORT"),
	CLASS(0x00f1, OTHER, UNKNOWN, "NV_IMEX_SESSION"),
	CLASS(0x00f3, OTHER, UNKNOWN, "NV01_MEMORY_FLA"), /* gone in 590 */
	CLASS(0x00f8, OTHER, UNKNOWN, "NV_MEMORY_FABRIC"),
	CLASS(0x00f9, OTHER, UNKNOWN, "NV_MEMORY_FABRIC_IMPORT_V2"),
	CLASS(0x00fb, OTHER, UNKNOWN, "NV_MEMORY_FABRIC_IMPORTED_REF"),
	CLASS(0x00fd, OTHER, UNKNOWN, "NV_MEMORY_MULTICAST_FABRIC"),
	CLASS(0x00fe, OTHER, UNKNOWN, "NV_MEMORY_MAPPER"),
	CLASS(0x2080, SUBDEVICE, SUBDEVICE, "NV20_SUBDEVICE_0"),
	CLASS(0x2081, OTHER, UNKNOWN, "NV2081_BINAPI"),
	CLASS(0x2082, OTHER, UNKNOWN, "NV2082_BINAPI_PRIVILEGED"),
	CLASS(0x503b, OTHER, UNKNOWN, "NV50_P2P"),
	CLASS(0x503c, OTHER, UNKNOWN, "NV50_THIRD_PARTY_P2P"),
	/* Issues controls from the command stream, unseen by anyone, among them the one that moves a
	 * channel's USERD (deferred_api.c: 0x20801116). */
	CLASS(0x5080, REFUSED, UNKNOWN, "NV50_DEFERRED_API_CLASS"),
	CLASS(0x50a0, OTHER, MEMORY, "NV50_MEMORY_VIRTUAL"), /* addresses only */
	CLASS(0x83de, OTHER, UNKNOWN, "GT200_DEBUGGER"),
	CLASS(0x844c, OTHER, NONE, "G84_PERFBUFFER"),
	CLASS(0x900e, OTHER, NONE, "MPS_COMPUTE"),
	CLASS(0x902d, ENGINE, GRAPHICS, "FERMI_TWOD_A"),
	CLASS(0x9067, OTHER, CONTEXT_SHARE, "FERMI_CONTEXT_SHARE_A"),
	CLASS(0x906f, CHANNEL, CHANNEL, "GF100_CHANNEL_GPFIFO"),
	CLASS(0x9072, ENGINE, UNKNOWN, "GF100_DISP_SW"),
	CLASS(0x9074, ENGINE, NONE, "GF100_TIMED_SEMAPHORE_SW"),
	CLASS(0x9096, OTHER, NONE, "GF100_ZBC_CLEAR"),
	CLASS(0x90cc, OTHER, NONE, "GF100_PROFILER"),
	CLASS(0x90cd, OTHER, UNKNOWN, "NV_EVENT_BUFFER"),
	CLASS(0x90ce, OTHER, MEMORY, "NV01_MEMORY_DEVICELESS"),
	CLASS(0x90e6, OTHER, NONE, "GF100_SUBDEVICE_MASTER"),
	CLASS(0x90e7, OTHER, NONE, "GF100_SUBDEVICE_INFOROM"),
	CLASS(0x90f1, OTHER, VA_SPACE, "FERMI_VASPACE_A"),
	CLASS(0xa06c, GROUP, GROUP, "KEPLER_CHANNEL_GROUP_A"),
	CLASS(0xa06f, CHANNEL, CHANNEL, "KEPLER_CHANNEL_GPFIFO_A"),
	CLASS(0xa0bc, OTHER, UNKNOWN, "NVENC_SW_SESSION"),
	CLASS(0xa0bd, OTHER, UNKNOWN, "NVFBC_SW_SESSION"),
	CLASS(0xa140, ENGINE, GRAPHICS, "KEPLER_INLINE_TO_MEMORY_B"),
	CLASS(0xa16f, CHANNEL, CHANNEL, "KEPLER_CHANNEL_GPFIFO_B"),
	CLASS(0xb06f, CHANNEL, CHANNEL, "MAXWELL_CHANNEL_GPFIFO_A"),
	CLASS(0xb0b5, ENGINE, COPY, "MAXWELL_DMA_COPY_A"),
	CLASS(0xb1cc, OTHER, UNKNOWN, "MAXWELL_PROFILER_CONTEXT"),
	CLASS(0xb2cc, OTHER, UNKNOWN, "MAXWELL_PROFILER_DEVICE"),
	CLASS(0xb4b7, ENGINE, VIDEO, "NVB4B7_VIDEO_ENCODER"),
	CLASS(0xb8b0, ENGINE, VIDEO, "NVB8B0_VIDEO_DECODER"),
	CLASS(0xb8d1, ENGINE, VIDEO, "NVB8D1_VIDEO_NVJPG"),
	CLASS(0xb8fa, ENGINE, VIDEO, "NVB8FA_VIDEO_OFA"),
	CLASS(0xc06f, CHANNEL, CHANNEL, "PASCAL_CHANNEL_GPFIFO_A"),
	CLASS(0xc076, ENGINE, NONE, "GP100_UVM_SW"),
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
	CLASS(0xc574, OTHER, UNKNOWN, "UVM_CHANNEL_RETAINER"), /* kernel only */
	CLASS(0xc597, ENGINE, GRAPHICS, "TURING_A"),
	CLASS(0xc5b5, ENGINE, COPY, "TURING_DMA_COPY_A"),
	CLASS(0xc5c0, ENGINE, GRAPHICS, "TURING_COMPUTE_A"),
	CLASS(0xc637, OTHER, UNKNOWN, "AMPERE_SMC_PARTITION_REF"),
	CLASS(0xc638, OTHER, UNKNOWN, "AMPERE_SMC_EXEC_PARTITION_REF"),
	CLASS(0xc639, OTHER, UNKNOWN, "AMPERE_SMC_CONFIG_SESSION"),
	CLASS(0xc640, OTHER, UNKNOWN, "AMPERE_SMC_MONITOR_SESSION"),
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
	CLASS(0xcb33, OTHER, UNKNOWN, "NV_CONFIDENTIAL_COMPUTE"),
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

static const struct entry unknown = CLASS(0, OTHER, UNKNOWN, "unknown");

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
	switch (entry_find(class_id)->params) {
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
	}
	return -1;
}
