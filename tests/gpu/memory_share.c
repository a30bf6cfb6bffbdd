/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

enum { IPC_BYTES = 16 << 20, VMM_BYTES = 32 << 20, IPC_TAG = 0x31, VMM_TAG = 0x72 };

struct block {
	uint64_t ptr, handle;
};

static const struct cu_allocation_prop prop = {
	.type = CU_ALLOCATION_PINNED,
	.handle_types = CU_HANDLE_POSIX_FD,
	.location = { CU_LOCATION_DEVICE, 0 },
};

/* One byte always goes; a descriptor with it when there is something to share. */
static void send_fd(int socket, int fd)
{
	char byte = fd >= 0 ? 'f' : '-', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
	struct cmsghdr *header;

	if (fd >= 0) {
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	if (sendmsg(socket, &message, 0) != 1)
		fail("sendmsg: %s", strerror(errno));
}

static int receive_fd(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec data = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *header;
	int fd = -1;

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
		fail("recvmsg: %s", strerror(errno));
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

static void map_block(struct block *b)
{
	const struct cu_access access = { { CU_LOCATION_DEVICE, 0 }, CU_ACCESS_READWRITE };

	CU_MUST(cu.MemAddressReserve(&b->ptr, VMM_BYTES, 0, 0, 0));
	CU_MUST(cu.MemMap(b->ptr, VMM_BYTES, 0, b->handle, 0));
	CU_MUST(cu.MemSetAccess(b->ptr, VMM_BYTES, &access, 1));
}

static void unmap_block(struct block *b)
{
	CU_MUST(cu.MemUnmap(b->ptr, VMM_BYTES));
	CU_MUST(cu.MemAddressFree(b->ptr, VMM_BYTES));
	CU_MUST(cu.MemRelease(b->handle));
}

static void check_tag(struct memory_shared *shared, uint64_t ptr, size_t bytes, uint8_t tag)
{
	uint8_t ends[2];

	CU_MUST(cu.MemcpyDtoH(&ends[0], ptr, 1));
	CU_MUST(cu.MemcpyDtoH(&ends[1], ptr + bytes - 1, 1));
	if (ends[0] != tag || ends[1] != tag)
		atomic_fetch_add(&shared->damaged, 1);
}

/* Out of memory is an answer like any other: then there is nothing to share this time. */
static void export_both(struct memory_offer *offer, int socket, struct block *ipc, struct block *vmm)
{
	int result = cu.MemAlloc(&ipc->ptr, IPC_BYTES), fd = -1;

	*offer = (struct memory_offer){ 0 };
	if (result && result != CU_ERROR_OUT_OF_MEMORY)
		CU_MUST(result);
	if (!result) {
		CU_MUST(cu.MemsetD8(ipc->ptr, IPC_TAG, IPC_BYTES));
		CU_MUST(cu.IpcGetMemHandle(&offer->ipc, ipc->ptr));
		offer->ipc_bytes = IPC_BYTES;
	}
	result = cu.MemCreate(&vmm->handle, VMM_BYTES, &prop, 0);
	if (result && result != CU_ERROR_OUT_OF_MEMORY)
		CU_MUST(result);
	if (!result) {
		map_block(vmm);
		CU_MUST(cu.MemsetD8(vmm->ptr, VMM_TAG, VMM_BYTES));
		CU_MUST(cu.MemExport(&fd, vmm->handle, CU_HANDLE_POSIX_FD, 0));
		offer->vmm_bytes = VMM_BYTES;
	}
	CU_MUST(cu.CtxSynchronize());
	send_fd(socket, fd);
	if (fd >= 0)
		close(fd);
}

static void import_both(struct memory_shared *shared, const struct memory_offer *offer, int socket,
			struct block *ipc, struct block *vmm)
{
	int fd = receive_fd(socket), result = CU_ERROR_OUT_OF_MEMORY;

	if (offer->ipc_bytes)
		result = cu.IpcOpenMemHandle(&ipc->ptr, offer->ipc, CU_IPC_LAZY_PEER);
	if (result && result != CU_ERROR_OUT_OF_MEMORY)
		CU_MUST(result);
	if (!result) {
		check_tag(shared, ipc->ptr, IPC_BYTES, IPC_TAG);
		atomic_fetch_add(&shared->imported, 1);
	}
	if (fd >= 0) {
		CU_MUST(cu.MemImport(&vmm->handle, (void *)(uintptr_t)fd, CU_HANDLE_POSIX_FD));
		close(fd);
		map_block(vmm);
		check_tag(shared, vmm->ptr, VMM_BYTES, VMM_TAG);
		atomic_fetch_add(&shared->imported, 1);
	}
	CU_MUST(cu.CtxSynchronize());
}

/* The quiet points in here must be MEMORY_POINTS_EXCHANGE, as the parent counts them: before, exported,
 * imported, and closed by the importer (so that the exporter does not free under it). */
void memory_exchange(struct memory_shared *shared, uint32_t index)
{
	struct memory_offer *offer = &shared->offers[index / 2];
	bool has_pair = (index ^ 1) < shared->procs, exports = has_pair && !(index & 1);
	bool imports = has_pair && (index & 1);
	struct block ipc = { 0 }, vmm = { 0 };

	memory_wait(shared, index);
	if (exports)
		export_both(offer, shared->sockets[index / 2][0], &ipc, &vmm);
	memory_wait(shared, index);
	if (imports)
		import_both(shared, offer, shared->sockets[index / 2][1], &ipc, &vmm);
	memory_wait(shared, index);
	if (imports && ipc.ptr)
		CU_MUST(cu.IpcCloseMemHandle(ipc.ptr));
	if (imports && vmm.handle)
		unmap_block(&vmm);
	memory_wait(shared, index);
	if (exports && ipc.ptr)
		CU_MUST(cu.MemFree(ipc.ptr));
	if (exports && vmm.handle)
		unmap_block(&vmm);
}
