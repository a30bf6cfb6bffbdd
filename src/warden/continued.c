#include "warden/continued.h"

#include <stddef.h>
#include <sys/syscall.h>

#define ON(kind) CONTINUED_ON(DEVICE_FILE_##kind)

/* By the time of the call a program can have at a descriptor: a pipe of the warden, which accepts no driver
 * call and cannot be mapped; a device file that it opened itself, without a client and without a prepared
 * mapping; a file that the warden has put there for a mapping; any other file. */
static const struct continued_entry entries[] = {
	{ "mapping of a prepared file", SYS_mmap, ON(CONTROL) | ON(GPU) | ON(MANAGED), CONTINUED_IF_PREPARED,
	  "The file at the descriptor is one that the warden has prepared and charged for. Length, offset "
	  "and protection are in registers. No mapping is prepared on another device file, so the driver "
	  "refuses it. The audit finds a managed mapping that was not charged in the maps of the process." },
	{ "mapping of another file", SYS_mmap, ON(NONE), CONTINUED_ALWAYS,
	  "As above: a file that the program can put there has no prepared mapping, except one that the "
	  "program has already." },
	{ "pages of the program", SYS_ioctl, ON(GPU), CONTINUED_ALLOC_MEMORY,
	  "The driver pins the pages of the calling address space, so no other process can make the call. "
	  "Number and size are in a register, and with that number the driver makes host memory or nothing "
	  "for an unprivileged caller, in a client that the vGPU owns (docs/security.md)." },
	{ "ioctl that no driver file accepts", SYS_ioctl, ON(NONE) | CONTINUED_ON_UNSEEN,
	  CONTINUED_NOT_DRIVERS,
	  "The command is in a register, and no driver file accepts it, whatever is at the descriptor." },
	{ "open", SYS_open, CONTINUED_ON_UNSEEN, CONTINUED_ALWAYS,
	  "The path may have changed. A device file that the program opens itself has no client and no "
	  "memory, and is replaced at its first call." },
	{ "openat", SYS_openat, CONTINUED_ON_UNSEEN, CONTINUED_ALWAYS, "As open." },
};

/* DRM: calls private to the device, and the creation of a buffer. They would allocate device memory. */
static bool is_display_call(uint32_t cmd)
{
	uint32_t nr = cmd & 0xff;

	return (cmd >> 8 & 0xff) == 'd' && ((nr >= 0x40 && nr < 0xa0) || nr == 0xb2);
}

/* The managed-memory device uses bare numbers as commands, and they differ between driver series. The
 * kernel's own commands are below them (FIBMAP and FIGETBSZ are 1 and 2). */
static bool is_bare_number(uint32_t cmd)
{
	return cmd > 8 && cmd < 128;
}

static bool is_driver_call(const struct rm_layout *layout, uint32_t cmd)
{
	return is_display_call(cmd) || is_bare_number(cmd) || rm_uvm_find(layout, cmd) ||
	       rm_is_call(cmd & 0xff, cmd >> 16 & 0x3fff);
}

static bool is_alloc_memory(uint32_t cmd)
{
	return (cmd & 0xff) == RM_ESC_ALLOC_MEMORY &&
	       (cmd >> 16 & 0x3fff) == sizeof(struct rm_arg_alloc_memory);
}

static bool applies(const struct continued_entry *entry, const struct rm_layout *layout,
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
		return !is_driver_call(layout, call->cmd);
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
		if (applies(entry, layout, call))
			return entry;
	return NULL;
}
