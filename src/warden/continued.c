#include "warden/continued.h"

#include <stddef.h>
#include <sys/syscall.h>

#define ON(kind) CONTINUED_ON(DEVICE_FILE_##kind)

/* What a program can have at a descriptor by the time of the call: a pipe of ours, which takes no driver's call and cannot be
 * mapped; a device file that it opened itself, in which there is no client and no prepared map; a file of ours that was
 * put there for a map; any other file. */
static const struct continued_entry entries[] = {
	{ "map of a prepared file", SYS_mmap, ON(CONTROL) | ON(GPU) | ON(MANAGED), CONTINUED_IF_PREPARED,
	  "The file at the descriptor is one that the warden has prepared and charged for. Length, offset and "
	  "protection are in registers. In another file of the device nothing is prepared, and the driver "
	  "refuses the map; a managed mapping that was not charged is found by the audit in the process's maps." },
	{ "map of another file", SYS_mmap, ON(NONE), CONTINUED_ALWAYS,
	  "As above: no file that the program can put there has a map prepared that it does not have already." },
	{ "pages of the program's own", SYS_ioctl, ON(GPU), CONTINUED_ALLOC_MEMORY,
	  "The driver pins the pages of the calling address space, so no other process can make the call. "
	  "Number and size are in a register, and with that number the driver makes host memory or nothing "
	  "for an unprivileged caller, in a client that the vGPU owns (docs/security.md)." },
	{ "ioctl that is not the driver's", SYS_ioctl, ON(NONE) | CONTINUED_ON_UNSEEN, CONTINUED_NOT_DRIVERS,
	  "The command is in a register, and no file of the driver's takes it, whatever is at the descriptor." },
	{ "open", SYS_open, CONTINUED_ON_UNSEEN, CONTINUED_ALWAYS,
	  "Whatever the path has become: a device file that the program opens itself has no client and no "
	  "memory, and is replaced at its first call." },
	{ "openat", SYS_openat, CONTINUED_ON_UNSEEN, CONTINUED_ALWAYS, "As open." },
};

/* Of displays (DRM): private calls of the device's, and making a buffer. They would make device memory. */
static bool is_display_call(uint32_t cmd)
{
	uint32_t nr = cmd & 0xff;

	return (cmd >> 8 & 0xff) == 'd' && ((nr >= 0x40 && nr < 0xa0) || nr == 0xb2);
}

/* The managed-memory device takes bare numbers, others from one series to the next; the kernel's own begin below them
 * (FIBMAP and FIGETBSZ are 1 and 2). */
static bool is_bare_number(uint32_t cmd)
{
	return cmd > 8 && cmd < 128;
}

static bool is_drivers(const struct rm_layout *layout, uint32_t cmd)
{
	return is_display_call(cmd) || is_bare_number(cmd) || rm_uvm_find(layout, cmd) ||
	       rm_is_call(cmd & 0xff, cmd >> 16 & 0x3fff);
}

static bool is_alloc_memory(uint32_t cmd)
{
	return (cmd & 0xff) == RM_ESC_ALLOC_MEMORY &&
	       (cmd >> 16 & 0x3fff) == sizeof(struct rm_arg_alloc_memory);
}

static bool holds(const struct continued_entry *entry, const struct rm_layout *layout,
		  const struct continued_call *call)
{
	uint32_t file = call->is_seen ? CONTINUED_ON(call->kind) : CONTINUED_ON_UNSEEN;

	if (entry->nr != call->nr || !(entry->files & file))
		return false;
	switch (entry->when) {
	case CONTINUED_ALWAYS:
		return true;
	case CONTINUED_IF_PREPARED:
		return call->is_prepared;
	case CONTINUED_NOT_DRIVERS:
		return !is_drivers(layout, call->cmd);
	case CONTINUED_ALLOC_MEMORY:
		return is_alloc_memory(call->cmd);
	}
	return false;
}

const struct continued_entry *continued_at(unsigned index)
{
	return index < sizeof(entries) / sizeof(entries[0]) ? &entries[index] : NULL;
}

const struct continued_entry *continued_find(const struct rm_layout *layout,
					     const struct continued_call *call)
{
	const struct continued_entry *entry;

	for (unsigned i = 0; (entry = continued_at(i)); i++)
		if (holds(entry, layout, call))
			return entry;
	return NULL;
}
