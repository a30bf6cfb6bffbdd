/* Decodes the argument of a driver call. Offsets and sizes of the argument structures are the same in 570 to
 * 595 (nvos.h, nv-ioctl.h, nv-unix-nvos-params-wrappers.h), except MAP_MEMORY_DMA, which grew in 580. */
#include "rm/rm.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bytes.h"

static_assert(sizeof(struct rm_arg_free) == 16, "NVOS00");
static_assert(sizeof(struct rm_arg_control) == 32, "NVOS54");
static_assert(sizeof(struct rm_arg_alloc) == 48, "NVOS64");
static_assert(sizeof(struct rm_arg_dup) == 28, "NVOS55");
static_assert(sizeof(struct rm_arg_share) == 24, "NVOS57");
static_assert(sizeof(struct rm_arg_map) == 56, "NVOS33 and a file");
static_assert(sizeof(struct rm_arg_unmap) == 32, "NVOS34");
static_assert(sizeof(struct rm_arg_idle) == 56, "NVOS30");
static_assert(sizeof(struct rm_arg_alloc_memory) == 56, "NVOS02 and a file");
static_assert(sizeof(struct rm_xfer) == 16, "nv_ioctl_xfer_t");
static_assert(offsetof(struct rm_arg_control, status) == 28, "NVOS54.status");
static_assert(offsetof(struct rm_arg_alloc, status) == 40, "NVOS64.status");
static_assert(offsetof(struct rm_arg_share, status) == 20, "NVOS57.status");
static_assert(offsetof(struct rm_arg_map, status) == 40, "NVOS33.status");
static_assert(offsetof(struct rm_arg_map, fd) == 48, "the file of MAP_MEMORY");
static_assert(offsetof(struct rm_arg_unmap, status) == 24, "NVOS34.status");
static_assert(offsetof(struct rm_arg_idle, status) == 48, "NVOS30.status");
static_assert(offsetof(struct rm_arg_alloc_memory, address) == 24, "NVOS02.pMemory");
static_assert(offsetof(struct rm_arg_alloc_memory, status) == 40, "NVOS02.status");
static_assert(offsetof(struct rm_arg_alloc_memory, fd) == 48, "the file of ALLOC_MEMORY");

#define ALLOC_OLD_SIZE 32 /* NVOS21: as NVOS64 up to params, then size and status */
#define HEAP_SIZE 184	  /* NVOS32 */

/* NVOS32's flags and attributes that choose the class (nvos.h). */
#define HEAP_FLAG_VIRTUAL 0x80000u
#define HEAP_FLAG_HANDLE_PROVIDED 0x4000u
#define HEAP_ATTR_LOCATION 0x06000000u /* 0 is video memory */
#define HEAP_ATTR2_USE_EGM 0x01000000u /* up to 590; 595 does not have this bit and uses the location only */

/* Every number the driver accepts: how Belfry handles it, and the sizes of its argument. */
struct escape {
	uint32_t nr;
	enum rm_way way;
	uint32_t size, other_size; /* sizes the driver accepts */
	bool is_array;		   /* size is that of one entry, and any number of entries is accepted */
	/* For numbers without a verb. */
	int client_at; /* -1: it names no client */
	int status_at; /* -1: it answers only with errno */
};

#define VERB(nr, way, size, other) \
	{ \
		(nr), RM_WAY_##way, (size), (other), false, -1, -1 \
	}
#define PLAIN(nr, way, size, client, status) \
	{ \
		(nr), RM_WAY_##way, (size), (size), false, (client), (status) \
	}
#define ARRAY(nr, way, size) \
	{ \
		(nr), RM_WAY_##way, (size), (size), true, -1, -1 \
	}

static const struct escape escapes[] = {
	VERB(RM_ESC_ALLOC_MEMORY, OWN, 56, 56),
	VERB(RM_ESC_ALLOC_OBJECT, REFUSED, 20, 20), /* allocates without parameters; nothing uses it */
	VERB(RM_ESC_FREE, OWN, 16, 16),
	VERB(RM_ESC_CONTROL, OWN, 32, 32),
	VERB(RM_ESC_ALLOC, OWN, 48, 32),
	VERB(RM_ESC_DUP_OBJECT, OWN, 28, 28),
	/* Allows other clients to duplicate an object: cudaIpcGetMemHandle does this (measured). */
	PLAIN(RM_ESC_SHARE, OWN, 24, 0, 20),
	PLAIN(RM_ESC_I2C_ACCESS, REFUSED, 32, 0, 24),	 /* an address, and access to the board's buses */
	PLAIN(RM_ESC_IDLE_CHANNELS, REFUSED, 56, 0, 48), /* addresses of lists; waits with the GPU locked */
	VERB(RM_ESC_VID_HEAP_CONTROL, OWN, 184, 184),
	PLAIN(RM_ESC_ACCESS_REGISTRY, REFUSED, 72, 0, 64), /* settings of the driver, through an address */
	VERB(RM_ESC_MAP_MEMORY, OWN, 56, 56),
	VERB(RM_ESC_UNMAP_MEMORY, OWN, 32, 32),
	PLAIN(RM_ESC_GET_EVENT_DATA, OWN, 16, -1, 12),		      /* u64 address of 16 bytes at 0 */
	PLAIN(RM_ESC_ALLOC_CONTEXT_DMA2, REFUSED, 56, 0, 48),	      /* older way to allocate class 0x2 */
	{ RM_ESC_MAP_MEMORY_DMA, RM_WAY_COPY, 64, 56, false, 0, -1 }, /* its status is at size - 8 */
	PLAIN(RM_ESC_UNMAP_MEMORY_DMA, COPY, 48, 0, 40),
	PLAIN(RM_ESC_BIND_CONTEXT_DMA, REFUSED, 16, 0, 12), /* for display channels */
	/* Tells the driver where a mapping of the program moved: two user addresses that it compares and does
	 * not follow. */
	PLAIN(RM_ESC_UPDATE_DEVICE_MAPPING_INFO, OWN, 40, 0, 32),
	PLAIN(RM_ESC_LOCKLESS_DIAGNOSTIC, REFUSED, 15412, -1, -1), /* root only */
	ARRAY(RM_ESC_CARD_INFO, COPY, 72),
	VERB(RM_ESC_REGISTER_FD, OWN, 4, 4),
	PLAIN(RM_ESC_ALLOC_OS_EVENT, OWN, 16, 0, 12), /* a file at 8 */
	PLAIN(RM_ESC_FREE_OS_EVENT, OWN, 16, 0, 12),
	PLAIN(RM_ESC_STATUS_CODE, COPY, 12, -1, 8),
	PLAIN(RM_ESC_CHECK_VERSION_STR, COPY, 72, -1, -1),
	PLAIN(RM_ESC_XFER_CMD, REFUSED, 16, -1, -1), /* a second way to every call; nothing uses it */
	ARRAY(RM_ESC_ATTACH_GPUS_TO_FD, COPY, 4),
	PLAIN(RM_ESC_QUERY_DEVICE_INTR, REFUSED, 8, -1, -1), /* registers; not needed */
	PLAIN(RM_ESC_SYS_PARAMS, COPY, 8, -1, -1),
	PLAIN(RM_ESC_NUMA_INFO, COPY, 560, -1, -1),
	PLAIN(RM_ESC_SET_NUMA_STATUS, REFUSED, 4, -1, -1),	  /* memory of the host */
	PLAIN(RM_ESC_EXPORT_TO_DMABUF_FD, REFUSED, 2608, -1, -1), /* makes a file that keeps memory alive */
	PLAIN(RM_ESC_WAIT_OPEN_COMPLETE, COPY, 8, -1, -1),
};

static uint32_t get32(const void *arg, size_t at)
{
	return bf_get32((const char *)arg + at);
}

static uint64_t get64(const void *arg, size_t at)
{
	return bf_get64((const char *)arg + at);
}

static int get_fd(const void *arg, size_t at)
{
	int32_t fd;

	memcpy(&fd, (const char *)arg + at, sizeof(fd));
	return fd < 0 ? -1 : fd;
}

static int decode_free(const void *arg, struct rm_call *call)
{
	struct rm_arg_free a;

	if (call->size != sizeof(a))
		return -EINVAL;
	memcpy(&a, arg, sizeof(a));
	call->verb = RM_VERB_FREE;
	call->client = a.client;
	call->parent = a.parent;
	call->object = a.object;
	call->status_at = offsetof(struct rm_arg_free, status);
	return 0;
}

static int decode_control(const void *arg, struct rm_call *call)
{
	struct rm_arg_control a;

	if (call->size != sizeof(a))
		return -EINVAL;
	memcpy(&a, arg, sizeof(a));
	call->verb = RM_VERB_CONTROL;
	call->client = a.client;
	call->object = a.object;
	call->class_id = a.cmd;
	call->flags = a.flags;
	call->params = a.params;
	call->params_size = a.size;
	call->status_at = offsetof(struct rm_arg_control, status);
	return 0;
}

static int decode_alloc(const void *arg, struct rm_call *call)
{
	if (call->size != ALLOC_OLD_SIZE && call->size != sizeof(struct rm_arg_alloc))
		return -EINVAL;
	call->verb = RM_VERB_ALLOC;
	call->client = get32(arg, offsetof(struct rm_arg_alloc, client));
	call->parent = get32(arg, offsetof(struct rm_arg_alloc, parent));
	call->object = get32(arg, offsetof(struct rm_arg_alloc, object));
	call->class_id = get32(arg, offsetof(struct rm_arg_alloc, class_id));
	call->params = get64(arg, offsetof(struct rm_arg_alloc, params));
	call->object_at = offsetof(struct rm_arg_alloc, object);
	if (call->size == ALLOC_OLD_SIZE) {
		call->params_size = get32(arg, 24);
		call->status_at = 28;
		return 0;
	}
	call->rights = get64(arg, offsetof(struct rm_arg_alloc, rights));
	call->params_size = get32(arg, offsetof(struct rm_arg_alloc, size));
	call->flags = get32(arg, offsetof(struct rm_arg_alloc, flags));
	call->status_at = offsetof(struct rm_arg_alloc, status);
	return 0;
}

/* The oldest allocation call. It has no parameters that Belfry could check, and no known program uses it. */
static int decode_alloc_object(const void *arg, struct rm_call *call)
{
	if (call->size != 20)
		return -EINVAL;
	call->verb = RM_VERB_REFUSED;
	call->client = get32(arg, 0);
	call->parent = get32(arg, 4);
	call->object = get32(arg, 8);
	call->class_id = get32(arg, 12);
	call->status_at = 16;
	call->object_at = 8;
	return 0;
}

/* Of the classes that this call accepts (rmapi_deprecated_allocmemory.c), only host memory, the caller's own
 * pages and a bare address range are harmless. Class 0x40 does not allocate video memory here: for root it is
 * a window on all of it. The rest are BAR0, the console and lists of physical pages. */
static bool alloc_memory_is_harmless(uint32_t class_id)
{
	enum rm_kind kind = rm_class_find(class_id)->kind;

	return kind == RM_KIND_SYSMEM || kind == RM_KIND_OS_MEMORY || class_id == 0x70;
}

static int decode_alloc_memory(const void *arg, struct rm_call *call)
{
	struct rm_arg_alloc_memory a;

	if (call->size != sizeof(a))
		return -EINVAL;
	memcpy(&a, arg, sizeof(a));
	call->verb = alloc_memory_is_harmless(a.class_id) ? RM_VERB_ALLOC_MEMORY : RM_VERB_REFUSED;
	call->client = a.client;
	call->parent = a.parent;
	call->object = a.object;
	call->class_id = a.class_id;
	call->flags = a.flags;
	call->params = a.address;
	/* The field is the offset of the last byte. All ones wraps to 0, which the driver refuses as well. */
	call->bytes = a.limit + 1;
	call->fd = a.fd < 0 ? -1 : a.fd;
	call->status_at = offsetof(struct rm_arg_alloc_memory, status);
	call->object_at = offsetof(struct rm_arg_alloc_memory, object);
	return 0;
}

/* The class that the driver chooses by flags and attributes (rmapi_deprecated_vidheapctrl.c). */
static uint32_t heap_class(uint32_t flags, uint32_t attr, uint32_t attr2)
{
	if (flags & HEAP_FLAG_VIRTUAL)
		return 0x50a0;
	/* On a Grace-like host, 590 and earlier allocate host memory for this; on others they fail. 595
	 * ignores the bit. Video memory stays video memory, so that the ledger rather counts too much. */
	if ((attr2 & HEAP_ATTR2_USE_EGM) && (attr & HEAP_ATTR_LOCATION))
		return 0x42;
	return attr & HEAP_ATTR_LOCATION ? 0x3e : 0x40;
}

/* Offsets in the arguments of the three allocating functions. */
struct heap_fields {
	uint32_t attr_at, attr2_at, bytes_at;
};

static void decode_heap_alloc(const void *arg, const struct heap_fields *f, struct rm_call *call)
{
	call->object_at = 44;
	call->flags = get32(arg, 52);
	if (call->flags & HEAP_FLAG_HANDLE_PROVIDED)
		call->object = get32(arg, 44);
	call->heap_class = heap_class(call->flags, get32(arg, f->attr_at), get32(arg, f->attr2_at));
	if (f->bytes_at)
		call->bytes = get64(arg, f->bytes_at);
}

static void decode_heap_function(const void *arg, struct rm_call *call)
{
	static const struct heap_fields size = { 56, 144, 88 };
	static const struct heap_fields range = { 56, 136, 80 };
	static const struct heap_fields tiled = { 64, 144, 0 };

	switch (call->class_id) {
	case RM_HEAP_ALLOC_SIZE:
		decode_heap_alloc(arg, &size, call);
		break;
	case RM_HEAP_ALLOC_RANGE:
		decode_heap_alloc(arg, &range, call);
		break;
	case RM_HEAP_ALLOC_TILED:
		decode_heap_alloc(arg, &tiled, call);
		/* The driver ignores the size field and computes height times pitch, with a signed pitch. */
		call->bytes = (uint64_t)get32(arg, 56) * (uint64_t)(int64_t)(int32_t)get32(arg, 60);
		break;
	case RM_HEAP_FREE:
		call->object = get32(arg, 44);
		call->flags = get32(arg, 48);
		break;
	case RM_HEAP_RELEASE_COMPRESSION:
	case RM_HEAP_REACQUIRE_COMPRESSION:
		call->flags = get32(arg, 44);
		call->object = get32(arg, 48);
		break;
	case RM_HEAP_HW_ALLOC:
		call->object_at = 44;
		call->object = get32(arg, 44);
		call->flags = get32(arg, 48);
		call->bytes = get64(arg, 64);
		call->heap_class = 0xb1;
		break;
	case RM_HEAP_HW_FREE:
		call->object = get32(arg, 40);
		call->flags = get32(arg, 44);
		break;
	case RM_HEAP_ALLOC_OS_DESCRIPTOR:
		call->object_at = 40;
		call->flags = get32(arg, 48);
		if (call->flags & HEAP_FLAG_HANDLE_PROVIDED)
			call->object = get32(arg, 40);
		call->params = get64(arg, 64);
		call->bytes = get64(arg, 72) + 1;
		call->heap_class = 0x71;
		break;
	default:
		break;
	}
}

static int decode_vid_heap(const void *arg, struct rm_call *call)
{
	if (call->size != HEAP_SIZE)
		return -EINVAL;
	call->verb = RM_VERB_VID_HEAP;
	call->client = get32(arg, 0);
	call->parent = get32(arg, 4);
	call->class_id = get32(arg, 8);
	call->status_at = 20;
	decode_heap_function(arg, call);
	return 0;
}

static int decode_dup(const void *arg, struct rm_call *call)
{
	struct rm_arg_dup a;

	if (call->size != sizeof(a))
		return -EINVAL;
	memcpy(&a, arg, sizeof(a));
	call->verb = RM_VERB_DUP;
	call->client = a.client;
	call->parent = a.parent;
	call->object = a.object;
	call->source_client = a.source_client;
	call->source_object = a.source_object;
	call->flags = a.flags;
	call->status_at = offsetof(struct rm_arg_dup, status);
	call->object_at = offsetof(struct rm_arg_dup, object);
	return 0;
}

static int decode_map(const void *arg, struct rm_call *call)
{
	struct rm_arg_map a;

	if (call->size != sizeof(a))
		return -EINVAL;
	memcpy(&a, arg, sizeof(a));
	call->verb = RM_VERB_MAP_MEMORY;
	call->client = a.client;
	call->parent = a.device;
	call->object = a.memory;
	call->offset = a.offset;
	call->bytes = a.length;
	call->params = a.address;
	call->flags = a.flags;
	call->fd = a.fd < 0 ? -1 : a.fd;
	call->status_at = offsetof(struct rm_arg_map, status);
	return 0;
}

static int decode_unmap(const void *arg, struct rm_call *call)
{
	struct rm_arg_unmap a;

	if (call->size != sizeof(a))
		return -EINVAL;
	memcpy(&a, arg, sizeof(a));
	call->verb = RM_VERB_UNMAP_MEMORY;
	call->client = a.client;
	call->parent = a.device;
	call->object = a.memory;
	call->params = a.address;
	call->flags = a.flags;
	call->status_at = offsetof(struct rm_arg_unmap, status);
	return 0;
}

static int decode_register_fd(const void *arg, struct rm_call *call)
{
	if (call->size != 4)
		return -EINVAL;
	call->verb = RM_VERB_REGISTER_FD;
	call->fd = get_fd(arg, 0);
	return 0;
}

static const struct escape *escape_find(uint32_t nr)
{
	for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++)
		if (escapes[i].nr == nr)
			return &escapes[i];
	return NULL;
}

static bool escape_takes(const struct escape *escape, uint32_t size)
{
	if (escape->is_array)
		return size && size % escape->size == 0;
	return size == escape->size || size == escape->other_size;
}

static int decode_plain(const void *arg, struct rm_call *call)
{
	const struct escape *escape = escape_find(call->nr);

	if (!escape)
		return 0;
	if (!escape_takes(escape, call->size))
		return -EINVAL;
	if (escape->client_at >= 0)
		call->client = get32(arg, (size_t)escape->client_at);
	call->status_at = escape->status_at;
	switch (call->nr) {
	case RM_ESC_MAP_MEMORY_DMA:
		call->status_at = (int)call->size - 8;
		break;
	case RM_ESC_ALLOC_OS_EVENT:
	case RM_ESC_FREE_OS_EVENT:
		call->parent = get32(arg, 4);
		call->fd = get_fd(arg, 8);
		break;
	default:
		break;
	}
	return 0;
}

int rm_decode(uint32_t nr, uint32_t size, const void *arg, struct rm_call *call)
{
	*call = (struct rm_call){ .nr = nr, .size = size, .fd = -1, .status_at = -1, .object_at = -1 };

	switch (nr) {
	case RM_ESC_ALLOC_MEMORY:
		return decode_alloc_memory(arg, call);
	case RM_ESC_ALLOC_OBJECT:
		return decode_alloc_object(arg, call);
	case RM_ESC_FREE:
		return decode_free(arg, call);
	case RM_ESC_CONTROL:
		return decode_control(arg, call);
	case RM_ESC_ALLOC:
		return decode_alloc(arg, call);
	case RM_ESC_DUP_OBJECT:
		return decode_dup(arg, call);
	case RM_ESC_VID_HEAP_CONTROL:
		return decode_vid_heap(arg, call);
	case RM_ESC_MAP_MEMORY:
		return decode_map(arg, call);
	case RM_ESC_UNMAP_MEMORY:
		return decode_unmap(arg, call);
	case RM_ESC_REGISTER_FD:
		return decode_register_fd(arg, call);
	case RM_ESC_XFER_CMD:
		return -EINVAL;
	default:
		return decode_plain(arg, call);
	}
}

int rm_decode_xfer(uint32_t size, const void *arg, struct rm_xfer *xfer)
{
	if (size != sizeof(*xfer))
		return -EINVAL;
	memcpy(xfer, arg, sizeof(*xfer));
	return xfer->size > RM_XFER_MAX ? -EINVAL : 0;
}

enum rm_fb_meaning rm_fb_meaning(uint32_t index)
{
	switch (index) {
	case 0x07: /* RAM_SIZE */
	case 0x08: /* TOTAL_RAM_SIZE */
	case 0x09: /* HEAP_SIZE */
	case 0x0a: /* MAPPABLE_HEAP_SIZE: at most HEAP_SIZE */
	case 0x20: /* USABLE_RAM_SIZE */
		return RM_FB_TOTAL;
	case 0x12: /* LARGEST_FREE_REGION_SIZE_KB */
	case 0x16: /* HEAP_FREE */
		return RM_FB_FREE;
	default:
		/* Also PROTECTED_MEM_SIZE_*, 0x33 and 0x34, which belong to confidential computing and are 0
		 * without it. */
		return RM_FB_UNRELATED;
	}
}

enum rm_way rm_escape_way(uint32_t nr)
{
	const struct escape *escape = escape_find(nr);

	return escape ? escape->way : RM_WAY_REFUSED;
}

bool rm_is_call(uint32_t nr, uint32_t size)
{
	const struct escape *escape = escape_find(nr);

	return escape && escape_takes(escape, size);
}
