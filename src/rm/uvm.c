/* Calls of /dev/nvidia-uvm (uvm_ioctl.h, uvm_linux_ioctl.h). Numbers that are declared there but not accepted
 * by the driver are left out, as are those of the driver's own tests. */
#include "rm/controls.h"

struct uvm_entry {
	struct rm_uvm_call call;
	uint8_t series;
};

/* A call with few fields: only the offset of its status is given, all others are absent. */
#define UVM(set, number, way_name, size, status, text) \
	{ \
		.call = { .cmd = (number), \
			  .name = (text), \
			  .way = RM_WAY_##way_name, \
			  .bytes = (size), \
			  .status_at = (status), \
			  .fd_at = -1, \
			  .client_at = -1, \
			  .object_at = -1, \
			  .base_at = -1, \
			  .length_at = -1 }, \
		.series = (set) \
	}
#define PLAIN(number, way_name, size, status, text) UVM(SERIES_ALL, number, way_name, size, status, text)
/* A call that begins with a range: u64 base, u64 length. */
#define RANGE(number, way_name, size, status, text) \
	{ \
		.call = { .cmd = (number), \
			  .name = (text), \
			  .way = RM_WAY_##way_name, \
			  .bytes = (size), \
			  .status_at = (status), \
			  .fd_at = -1, \
			  .client_at = -1, \
			  .object_at = -1, \
			  .base_at = 0, \
			  .length_at = 8 }, \
		.series = SERIES_ALL \
	}
/* A call that names a control file, a client on it and an object of that client. */
#define OBJECT(number, way_name, size, status, file, base, length, text) \
	{ \
		.call = { .cmd = (number), \
			  .name = (text), \
			  .way = RM_WAY_##way_name, \
			  .bytes = (size), \
			  .status_at = (status), \
			  .fd_at = (file), \
			  .client_at = (file) + 4, \
			  .object_at = (file) + 8, \
			  .base_at = (base), \
			  .length_at = (length) }, \
		.series = SERIES_ALL \
	}

/* Sorted by number. */
static const struct uvm_entry entries[] = {
	PLAIN(23, COPY, 16, 8, "CREATE_RANGE_GROUP"),
	PLAIN(24, COPY, 16, 8, "DESTROY_RANGE_GROUP"),
	OBJECT(25, OWN, 32, 28, 16, -1, -1, "REGISTER_GPU_VASPACE"),
	PLAIN(26, COPY, 20, 16, "UNREGISTER_GPU_VASPACE"),
	OBJECT(27, OWN, 56, 48, 16, 32, 40, "REGISTER_CHANNEL"),
	/* Names a client without its file: the channel must be registered by this process. */
	{ { 28, "UNREGISTER_CHANNEL", RM_WAY_COPY, 28, 24, -1, 16, 20, -1, -1 }, SERIES_TO_580 },
	{ { 28, "UNREGISTER_CHANNEL", RM_WAY_COPY, 12, 8, -1, 0, 4, -1, -1 }, SERIES_590_ON },
	PLAIN(29, COPY, 36, 32, "ENABLE_PEER_ACCESS"),
	PLAIN(30, COPY, 36, 32, "DISABLE_PEER_ACCESS"),
	{ { 31, "SET_RANGE_GROUP", RM_WAY_COPY, 32, 24, -1, -1, -1, 8, 16 }, SERIES_ALL },
	OBJECT(33, OWN, 9264, 9260, 9248, 0, 8, "MAP_EXTERNAL_ALLOCATION"),
	{ { 34, "FREE", RM_WAY_OWN, 24, 16, -1, -1, -1, 0, 8 }, SERIES_TO_580 },
	{ { 34, "FREE", RM_WAY_OWN, 16, 8, -1, -1, -1, 0, -1 }, SERIES_590_ON },
	OBJECT(37, COPY, 40, 36, 24, -1, -1, "REGISTER_GPU"),
	PLAIN(38, COPY, 20, 16, "UNREGISTER_GPU"),
	PLAIN(39, COPY, 8, 4, "PAGEABLE_MEM_ACCESS"),
	PLAIN(40, COPY, 272, 264, "PREVENT_MIGRATION_RANGE_GROUPS"),
	PLAIN(41, COPY, 272, 264, "ALLOW_MIGRATION_RANGE_GROUPS"),
	RANGE(42, COPY, 40, 36, "SET_PREFERRED_LOCATION"),
	RANGE(43, COPY, 24, 16, "UNSET_PREFERRED_LOCATION"),
	RANGE(44, COPY, 24, 16, "ENABLE_READ_DUPLICATION"),
	RANGE(45, COPY, 24, 16, "DISABLE_READ_DUPLICATION"),
	RANGE(46, COPY, 40, 32, "SET_ACCESSED_BY"),
	RANGE(47, COPY, 40, 32, "UNSET_ACCESSED_BY"),
	/* Its semaphore address is a GPU address, and must be in a semaphore pool of this file. */
	RANGE(51, COPY, 80, 72, "MIGRATE"),
	PLAIN(53, COPY, 32, 24, "MIGRATE_RANGE_GROUP"),
	UVM(SERIES_TO_590, 54, COPY, 20, 16, "ENABLE_SYSTEM_WIDE_ATOMICS"),
	UVM(SERIES_TO_590, 55, COPY, 20, 16, "DISABLE_SYSTEM_WIDE_ATOMICS"),
	/* Calls of tools: they watch another process, and keep user addresses that the driver writes to. */
	PLAIN(56, REFUSED, 56, 48, "TOOLS_INIT_EVENT_TRACKER"),
	PLAIN(57, REFUSED, 8, 4, "TOOLS_SET_NOTIFICATION_THRESHOLD"),
	PLAIN(58, REFUSED, 16, 8, "TOOLS_EVENT_QUEUE_ENABLE_EVENTS"),
	PLAIN(59, REFUSED, 16, 8, "TOOLS_EVENT_QUEUE_DISABLE_EVENTS"),
	PLAIN(60, REFUSED, 16, 8, "TOOLS_ENABLE_COUNTERS"),
	PLAIN(61, REFUSED, 16, 8, "TOOLS_DISABLE_COUNTERS"),
	PLAIN(62, REFUSED, 40, 32, "TOOLS_READ_PROCESS_MEMORY"),
	PLAIN(63, REFUSED, 40, 32, "TOOLS_WRITE_PROCESS_MEMORY"),
	PLAIN(64, REFUSED, 16, 8,
	      "TOOLS_GET_PROCESSOR_UUID_TABLE"), /* an address that the driver writes to */
	RANGE(65, COPY, 40, 32, "MAP_DYNAMIC_PARALLELISM_REGION"),
	RANGE(66, OWN, 40, 32, "UNMAP_EXTERNAL"),
	PLAIN(67, REFUSED, 4, 0, "TOOLS_FLUSH_EVENTS"),
	RANGE(68, COPY, 9248, 9240, "ALLOC_SEMAPHORE_POOL"),
	/* Acts on the remains of other processes. */
	PLAIN(69, REFUSED, 4, 0, "CLEAN_UP_ZOMBIE_RESOURCES"),
	PLAIN(70, COPY, 24, 20, "PAGEABLE_MEM_ACCESS_ON_GPU"),
	/* Faults in pages of the calling process. */
	RANGE(71, REFUSED, 24, 20, "POPULATE_PAGEABLE"),
	RANGE(72, COPY, 24, 16, "VALIDATE_VA_RANGE"),
	RANGE(73, COPY, 24, 16, "CREATE_EXTERNAL_RANGE"),
	RANGE(74, COPY, 40, 32, "MAP_EXTERNAL_SPARSE"),
	{ { 75, "MM_INITIALIZE", RM_WAY_OWN, 8, 4, 0, -1, -1, -1, -1 }, SERIES_ALL },
	PLAIN(76, REFUSED, 56, 48, "TOOLS_INIT_EVENT_TRACKER_V2"),
	PLAIN(77, REFUSED, 24, 16, "TOOLS_GET_PROCESSOR_UUID_TABLE_V2"),
	/* Maps GPU memory into the process, bypassing the ledger. */
	OBJECT(78, REFUSED, 56, 52, 40, 0, 8, "ALLOC_DEVICE_P2P"),
	PLAIN(79, REFUSED, 4, 0, "CLEAR_ALL_ACCESS_COUNTERS"), /* of every process */
	{ { 80, "DISCARD", RM_WAY_COPY, 32, 24, -1, -1, -1, 0, 8 }, SERIES_580_ON },
	PLAIN(RM_UVM_INITIALIZE, OWN, 16, 8, "INITIALIZE"),
	PLAIN(RM_UVM_DEINITIALIZE, COPY, 0, -1, "DEINITIALIZE"),
};

#define ENTRY_COUNT (sizeof(entries) / sizeof(entries[0]))

const struct rm_uvm_call *rm_uvm_find(const struct rm_layout *layout, uint32_t cmd)
{
	for (size_t i = 0; i < ENTRY_COUNT; i++)
		if (entries[i].call.cmd == cmd && (entries[i].series & layout->series_bit))
			return &entries[i].call;
	return NULL;
}

const struct rm_uvm_call *rm_uvm_at(unsigned index)
{
	return index < ENTRY_COUNT ? &entries[index].call : NULL;
}
