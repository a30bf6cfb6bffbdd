#include "fake_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "gate/gate.h"

enum {
	PAGE_BYTES = 4096,
	ERR_NAME_TAKEN = 0x19,
	FIRST_TOKEN = 0x10000,
};

static struct fake *fake_of(struct device *device)
{
	return (struct fake *)device;
}

static uint32_t get32(const void *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint64_t get64(const void *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void put32(void *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

static void put64(void *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

/* Files. */

int fake_open_path(const struct fake *fake, enum device_file kind, char *path, size_t room)
{
	static _Atomic unsigned count;
	int fd;

	snprintf(path, room, "%s/%d.%d.%u", fake->folder, (int)kind, getpid(), atomic_fetch_add(&count, 1));
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || fchmod(fd, 0600 | (mode_t)kind) || ftruncate(fd, 4 << 20) || flock(fd, LOCK_EX)) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

int fake_open(const struct fake *fake, enum device_file kind)
{
	char path[128];
	int fd = fake_open_path(fake, kind, path, sizeof(path));

	if (fd >= 0 && kind != DEVICE_FILE_MANAGED) /* that one is looked up by its name in /proc/PID/maps */
		unlink(path);
	return fd;
}

static enum device_file classify(struct device *device, const struct stat *st)
{
	mode_t kind = st->st_mode & 07;

	if (!S_ISREG(st->st_mode) || st->st_dev != fake_of(device)->files_on ||
	    (st->st_mode & 0770) != 0600 || kind > DEVICE_FILE_MANAGED)
		return DEVICE_FILE_NONE;
	return (enum device_file)kind;
}

/* Clients and objects. */

static struct fake_client *client_find(struct fake *fake, uint32_t handle)
{
	for (int i = 0; handle && i < FAKE_CLIENTS; i++)
		if (fake->clients[i].handle == handle)
			return &fake->clients[i];
	return NULL;
}

struct fake_object *fake_find(struct fake *fake, uint32_t client, uint32_t handle)
{
	for (int i = 0; client && i < FAKE_OBJECTS; i++)
		if (fake->objects[i].client == client && fake->objects[i].handle == handle)
			return &fake->objects[i];
	return NULL;
}

struct fake_object *fake_nth(struct fake *fake, uint32_t class_id, unsigned n)
{
	for (int i = 0; i < FAKE_OBJECTS; i++)
		if (fake->objects[i].client && fake->objects[i].class_id == class_id && n-- == 0)
			return &fake->objects[i];
	return NULL;
}

unsigned fake_objects(const struct fake *fake)
{
	unsigned count = 0;

	for (int i = 0; i < FAKE_OBJECTS; i++)
		count += fake->objects[i].client != 0;
	return count;
}

static bool block_has_holder(const struct fake *fake, unsigned block)
{
	for (int i = 0; i < FAKE_OBJECTS; i++)
		if (fake->objects[i].client && fake->objects[i].block == block)
			return true;
	return false;
}

static void page_drop(struct fake *fake, struct fake_page *page)
{
	if (!page || --page->holders)
		return;
	munmap(page->gpu, PAGE_BYTES);
	memset(page, 0, sizeof(*page));
	fake->page_count--;
}

static void object_drop(struct fake *fake, struct fake_object *object)
{
	struct fake_object gone = *object;

	page_drop(fake, gone.page);
	fake->channels -= gone.token != 0;
	memset(object, 0, sizeof(*object));
	if (gone.slot >= 0)
		fake->slot_is_used[gone.slot] = false;
	if (gone.block && !block_has_holder(fake, gone.block))
		fake->used_bytes -= gone.bytes;
}

static void object_free(struct fake *fake, uint32_t client, uint32_t handle)
{
	struct fake_object *object = fake_find(fake, client, handle);

	for (int i = 0; i < FAKE_OBJECTS; i++)
		if (fake->objects[i].client == client && fake->objects[i].parent == handle &&
		    fake->objects[i].handle != handle)
			object_free(fake, client, fake->objects[i].handle);
	if (object)
		object_drop(fake, object);
}

static void client_drop(struct fake *fake, struct fake_client *client)
{
	for (int i = 0; i < FAKE_OBJECTS; i++)
		if (fake->objects[i].client == client->handle)
			object_drop(fake, &fake->objects[i]);
	close(client->path_fd);
	memset(client, 0, sizeof(*client));
}

/* Whether nobody has the client's control file open: then its lock is free. */
static bool is_closed(const struct fake_client *client)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", client->path_fd);
	cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void fake_sweep(struct fake *fake)
{
	for (int i = 0; i < FAKE_CLIENTS; i++)
		if (fake->clients[i].handle && is_closed(&fake->clients[i]))
			client_drop(fake, &fake->clients[i]);
}

unsigned fake_clients(struct fake *fake)
{
	unsigned count = 0;

	fake_sweep(fake);
	for (int i = 0; i < FAKE_CLIENTS; i++)
		count += fake->clients[i].handle != 0;
	return count;
}

/* A call for a client comes through that client's own control file. Files of the GPU are not asked: the driver
 * ties them to a control file, which nothing here depends on. */
static uint32_t check_client(struct fake *fake, const struct stat *st, uint32_t handle)
{
	struct fake_client *client = client_find(fake, handle);

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	if ((st->st_mode & 07) == DEVICE_FILE_CONTROL && client->inode != st->st_ino)
		return RM_ERR_INVALID_CLIENT;
	return RM_OK;
}

static struct fake_object *object_new(struct fake *fake, uint32_t client, uint32_t parent, uint32_t *handle,
				      uint32_t class_id, uint32_t *status)
{
	*status = RM_OK;
	if (!*handle)
		*handle = 0xcaf00000u + fake->next_handle++;
	if (*handle == client || fake_find(fake, client, *handle))
		*status = ERR_NAME_TAKEN;
	else if (parent != client && !fake_find(fake, client, parent))
		*status = RM_ERR_INVALID_OBJECT_PARENT;
	for (int i = 0; !*status && i < FAKE_OBJECTS; i++)
		if (!fake->objects[i].client) {
			fake->objects[i] = (struct fake_object){ .client = client,
								 .handle = *handle,
								 .parent = parent,
								 .class_id = class_id,
								 .slot = -1 };
			return &fake->objects[i];
		}
	if (!*status)
		*status = RM_ERR_NO_MEMORY;
	return NULL;
}

static void memory_made(struct fake *fake, struct fake_object *object, uint64_t bytes)
{
	object->bytes = bytes;
	object->block = ++fake->next_block;
	object->is_owner = true;
	fake->used_bytes += bytes;
	if (fake->used_bytes > fake->most_bytes)
		fake->most_bytes = fake->used_bytes;
}

/* ALLOC of everything but a client. `params` are at hand, `size` bytes of them. */
static uint32_t alloc(struct fake *fake, struct rm_arg_alloc *arg, uint8_t *params, uint32_t size)
{
	const struct rm_layout *l = fake->device.layout;
	enum rm_kind kind = rm_class_find(arg->class_id)->kind;
	uint64_t bytes = 0;
	uint32_t status;

	if (kind == RM_KIND_VIDMEM || kind == RM_KIND_SYSMEM) {
		if (size < l->memory_bytes + 8)
			return RM_ERR_INVALID_ARGUMENT;
		bytes = get64(params + l->memory_bytes);
		if (!bytes || bytes > 1ull << 50)
			return RM_ERR_INVALID_ARGUMENT;
		if (kind == RM_KIND_VIDMEM)
			bytes = (bytes + FAKE_ROUND - 1) / FAKE_ROUND * FAKE_ROUND;
		if (kind == RM_KIND_VIDMEM && fake->used_bytes + bytes > FAKE_CARD_BYTES)
			return RM_ERR_NO_MEMORY;
	}
	if (kind == RM_KIND_CHANNEL &&
	    (size < l->channel_userd_offset + 8 ||
	     !fake_find(fake, arg->client, get32(params + l->channel_userd_memory))))
		return RM_ERR_INVALID_ARGUMENT;
	struct fake_object *object =
		object_new(fake, arg->client, arg->parent, &arg->object, arg->class_id, &status);
	if (!object)
		return status;
	if (kind == RM_KIND_VIDMEM)
		memory_made(fake, object, bytes);
	if (kind == RM_KIND_SYSMEM)
		object->bytes = bytes;
	if (bytes)
		put64(params + l->memory_bytes, bytes);
	if (kind == RM_KIND_CHANNEL) {
		object->token = FIRST_TOKEN + fake->next_token++;
		object->userd_memory = get32(params + l->channel_userd_memory);
		object->userd_offset = get64(params + l->channel_userd_offset);
		object->page = fake_find(fake, arg->client, object->userd_memory)->page;
		if (object->page)
			object->page->holders++;
		fake->channels++;
	}
	return RM_OK;
}

static uint32_t dup_object(struct fake *fake, struct rm_arg_dup *arg)
{
	struct fake_object *source = fake_find(fake, arg->source_client, arg->source_object), *object;
	uint32_t status;

	if (!source)
		return RM_ERR_INVALID_OBJECT_HANDLE;
	unsigned block = source->block;
	uint32_t class_id = source->class_id;
	uint64_t bytes = source->bytes;
	object = object_new(fake, arg->client, arg->parent, &arg->object, class_id, &status);
	if (!object)
		return status;
	object->block = block;
	object->bytes = bytes;
	return RM_OK;
}

/* Controls. */

static void tell_fb(struct fake *fake, uint8_t *list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++, list += 8) {
		uint64_t bytes = rm_fb_meaning(get32(list)) == RM_FB_TOTAL ? FAKE_CARD_BYTES
				 : rm_fb_meaning(get32(list)) == RM_FB_FREE
					 ? FAKE_CARD_BYTES - fake->used_bytes
					 : 0;

		if (get32(list) == 0x0a)
			bytes = FAKE_MAPPABLE_BYTES;
		put32(list + 4, get32(list) == 0x0b ? 5120 : (uint32_t)(bytes >> 10));
	}
}

static void tell_pids(struct fake *fake, uint8_t *params)
{
	const struct rm_layout *l = fake->device.layout;
	uint32_t count = 0;

	put32(params + l->pids_table + 4 * (size_t)count++, FAKE_STRANGER_PID);
	for (int i = 0; i < FAKE_CLIENTS && count < l->pids_max; i++)
		if (fake->clients[i].handle)
			put32(params + l->pids_table + 4 * (size_t)count++, (uint32_t)fake->clients[i].pid);
	put32(params + l->pids_count, count);
}

static void sum_of(struct fake *fake, pid_t pid, struct device_use *use)
{
	*use = (struct device_use){ 0, 0 };
	for (int i = 0; i < FAKE_OBJECTS; i++) {
		const struct fake_object *o = &fake->objects[i];
		struct fake_client *client = o->client && o->block ? client_find(fake, o->client) : NULL;

		if (client && client->pid == pid)
			*(o->is_owner ? &use->paid_bytes : &use->borrowed_bytes) += o->bytes;
	}
	if (pid == FAKE_STRANGER_PID)
		use->paid_bytes = 12345678;
}

static void tell_pid_info(struct fake *fake, uint8_t *params)
{
	const struct rm_layout *l = fake->device.layout;

	for (uint32_t i = 0; i < get32(params) && i < l->pid_info_max; i++) {
		uint8_t *entry = params + l->pid_info_list + (size_t)i * l->pid_info_stride;
		struct device_use use;

		sum_of(fake, (pid_t)get32(entry), &use);
		put64(entry + l->pid_info_private, use.paid_bytes);
		put64(entry + l->pid_info_owned, 0);
		put64(entry + l->pid_info_duped, use.borrowed_bytes);
	}
}

static uint32_t disable_channels(struct fake *fake, const uint8_t *params)
{
	const struct rm_layout *l = fake->device.layout;
	uint32_t count = get32(params + l->disable_count);

	if (count > l->disable_max)
		return RM_ERR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < count; i++) {
		struct fake_object *channel = fake_find(fake,
							get32(params + l->disable_clients + 4 * (size_t)i),
							get32(params + l->disable_channels + 4 * (size_t)i));

		if (!channel || !channel->token)
			return RM_ERR_INVALID_OBJECT_HANDLE;
		channel->is_disabled = params[0];
	}
	if (params[0]) {
		fake->disable_calls++;
		fake->last_disabled = count;
	} else {
		fake->enable_calls++;
	}
	return RM_OK;
}

static uint32_t control(struct fake *fake, const struct rm_arg_control *arg, uint8_t *params)
{
	const struct rm_layout *l = fake->device.layout;
	struct fake_object *object = fake_find(fake, arg->client, arg->object);

	if (arg->object != arg->client && !object)
		return RM_ERR_INVALID_OBJECT_HANDLE;
	switch (arg->cmd) {
	case RM_CTRL_FB_GET_INFO_V2:
		tell_fb(fake, params + l->fb_info_list, get32(params));
		return RM_OK;
	case RM_CTRL_FB_GET_INFO:
		tell_fb(fake, (uint8_t *)(uintptr_t)get64(params + 8), get32(params));
		return RM_OK;
	case RM_CTRL_GET_PIDS:
		tell_pids(fake, params);
		return RM_OK;
	case RM_CTRL_GET_PID_INFO:
		tell_pid_info(fake, params);
		return RM_OK;
	case RM_CTRL_DISABLE_CHANNELS:
		return disable_channels(fake, params);
	case RM_CTRL_CHANNEL_GET_TOKEN:
		if (!object || !object->token)
			return RM_ERR_INVALID_OBJECT_HANDLE;
		put32(params, object->token);
		return RM_OK;
	case RM_CTRL_GROUP_SCHEDULE:
		if (object)
			object->is_scheduled = params[0];
		return RM_OK;
	case RM_CTRL_GROUP_SET_TIMESLICE:
		if (object)
			object->timeslice_us = get64(params);
		return RM_OK;
	case RM_CTRL_GROUP_SET_INTERLEAVE:
		if (object)
			object->interleave = get32(params);
		return RM_OK;
	default:
		return RM_OK;
	}
}

/* The device's operations. */

static int call(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	struct fake *fake = fake_of(device);
	struct stat st;

	if (fstat(fd, &st) || classify(device, &st) == DEVICE_FILE_NONE)
		return -ENOTTY;
	fake_sweep(fake);
	switch (nr) {
	case RM_ESC_ALLOC: {
		struct rm_arg_alloc a = { 0 };

		if (size != sizeof(a) && size != 32)
			return -EINVAL;
		memcpy(&a, arg, size);
		uint32_t params_size = size == 32 ? get32((uint8_t *)arg + 24) : a.size;
		if (!params_size && rm_class_params_size(device->layout, a.class_id) > 0)
			params_size = (uint32_t)rm_class_params_size(device->layout, a.class_id);
		uint32_t status = check_client(fake, &st, a.client);
		if (!status)
			status = alloc(fake, &a, (uint8_t *)(uintptr_t)a.params, a.params ? params_size : 0);
		put32((uint8_t *)arg + 8, a.object);
		put32((uint8_t *)arg + (size == 32 ? 28 : 40), status);
		return 0;
	}
	case RM_ESC_FREE: {
		struct rm_arg_free *a = arg;

		if (size != sizeof(*a))
			return -EINVAL;
		a->status = check_client(fake, &st, a->client);
		if (!a->status && a->object == a->client)
			client_drop(fake, client_find(fake, a->client));
		else if (!a->status && !fake_find(fake, a->client, a->object))
			a->status = RM_ERR_INVALID_OBJECT_HANDLE;
		else if (!a->status)
			object_free(fake, a->client, a->object);
		return 0;
	}
	case RM_ESC_CONTROL: {
		struct rm_arg_control *a = arg;

		if (size != sizeof(*a))
			return -EINVAL;
		a->status = check_client(fake, &st, a->client);
		if (!a->status)
			a->status = control(fake, a, (uint8_t *)(uintptr_t)a->params);
		return 0;
	}
	case RM_ESC_DUP_OBJECT: {
		struct rm_arg_dup *a = arg;

		if (size != sizeof(*a))
			return -EINVAL;
		a->status = check_client(fake, &st, a->client);
		if (!a->status)
			a->status = dup_object(fake, a);
		return 0;
	}
	default:
		return 0;
	}
}

/* Where the memory lies in `memory`. */
static int slot_of(struct fake *fake, struct fake_object *object)
{
	for (int i = 0; object->slot < 0 && i < FAKE_SLOTS; i++)
		if (!fake->slot_is_used[i]) {
			fake->slot_is_used[i] = true;
			object->slot = i;
			memset(fake->memory + (size_t)i * FAKE_SLOT_BYTES, 0, 64 << 10);
		}
	return object->slot;
}

/* A call that was let through: as the kernel would, take everything from the program as it is *now*. */
static void answer_alloc(struct fake *fake, pid_t pid, const struct stat *st, int fd, uint8_t *arg,
			 uint32_t size)
{
	struct rm_arg_alloc a = { 0 };
	uint8_t params[4096];
	char path[48];
	uint32_t status = RM_ERR_NO_MEMORY;

	memcpy(&a, arg, size);
	if (rm_class_find(a.class_id)->kind != RM_KIND_ROOT) {
		uint32_t params_size = size == 32 ? get32(arg + 24) : a.size;

		status = check_client(fake, st, a.client);
		if (!status && (params_size > sizeof(params) || bf_peek(pid, a.params, params, params_size)))
			status = RM_ERR_INVALID_ARGUMENT;
		if (!status)
			status = alloc(fake, &a, params, params_size);
		fake->passed_objects += !status;
	} else {
		for (int i = 0; i < FAKE_CLIENTS; i++) {
			struct fake_client *client = &fake->clients[i];

			if (client->handle)
				continue;
			snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
			client->path_fd = open(path, O_PATH | O_CLOEXEC);
			client->handle = 0xc1d00000u + ++fake->next_client;
			client->pid = bf_tgid_of(pid);
			client->inode = st->st_ino;
			a.object = client->handle;
			status = RM_OK;
			break;
		}
	}
	put32(arg + 8, a.object);
	put32(arg + (size == 32 ? 28 : 40), status);
}

static void answer_map(struct fake *fake, const struct stat *st, struct rm_arg_map *a)
{
	struct fake_object *object = fake_find(fake, a->client, a->memory);

	a->status = check_client(fake, st, a->client);
	if (a->status)
		return;
	if (!object)
		a->status = RM_ERR_INVALID_OBJECT_HANDLE;
	else if (a->length <= FAKE_SLOT_BYTES && slot_of(fake, object) >= 0)
		a->address = (uintptr_t)fake->memory + (uint64_t)object->slot * FAKE_SLOT_BYTES;
}

/* Memory through the old doors: what a race could turn a call that passes into. */
static void answer_memory(struct fake *fake, const struct stat *st, uint32_t nr, uint8_t *arg)
{
	bool is_heap = nr == RM_ESC_VID_HEAP_CONTROL;
	uint32_t handle = get32(arg + (is_heap ? 44 : 8)), status = check_client(fake, st, get32(arg));
	struct fake_object *object;

	if (is_heap && get32(arg + 8) == RM_HEAP_ALLOC_OS_DESCRIPTOR)
		handle = get32(arg + 40);
	if (!status) {
		object = object_new(fake, get32(arg), get32(arg + 4), &handle, 0x71, &status);
		if (object && is_heap && get32(arg + 8) == RM_HEAP_ALLOC_SIZE) {
			object->class_id = 0x40;
			memory_made(fake, object, get64(arg + 88));
			fake->passed_objects++;
		}
	}
	put32(arg + (is_heap ? 20 : 40), status);
}

static long answer(struct device *device, pid_t pid, int fd, uint32_t nr, uint32_t size, uint64_t at)
{
	struct fake *fake = fake_of(device);
	uint8_t arg[4096], before[4096];
	struct stat st;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	if (stat(path, &st))
		return -EBADF;
	if (classify(device, &st) == DEVICE_FILE_MANAGED)
		return 0;
	if (!size)
		return -EINVAL;
	if (size > sizeof(arg) || bf_peek(pid, at, arg, size))
		return -EFAULT;
	memcpy(before, arg, size);
	fake_sweep(fake);
	switch (nr) {
	case RM_ESC_ALLOC:
		if (size != 48 && size != 32)
			return -EINVAL;
		answer_alloc(fake, pid, &st, fd, arg, size);
		break;
	case RM_ESC_MAP_MEMORY:
		if (size != sizeof(struct rm_arg_map))
			return -EINVAL;
		answer_map(fake, &st, (struct rm_arg_map *)(void *)arg);
		break;
	case RM_ESC_CONTROL: {
		struct rm_arg_control *a = (struct rm_arg_control *)(void *)arg;

		if (size != sizeof(*a))
			return -EINVAL;
		a->status = check_client(fake, &st, a->client);
		break;
	}
	case RM_ESC_ALLOC_MEMORY:
	case RM_ESC_VID_HEAP_CONTROL:
		if (size != (nr == RM_ESC_ALLOC_MEMORY ? 56 : 184))
			return -EINVAL;
		answer_memory(fake, &st, nr, arg);
		break;
	default:
		break;
	}
	if (memcmp(before, arg, size) && bf_poke(pid, at, arg, size))
		return -EFAULT;
	return 0;
}

static int view(struct device *device, int control_fd, uint32_t client, const struct device_view *what,
		bool is_vidmem, struct device_view *view, struct bf_error *err)
{
	struct fake *fake = fake_of(device);
	struct fake_object *object = fake_find(fake, client, what->handle);
	struct stat st;

	(void)is_vidmem;
	if (fstat(control_fd, &st) || check_client(fake, &st, client) || !object || slot_of(fake, object) < 0)
		return bf_fail(err, EIO, "memory %x of client %x cannot be seen", what->handle, client);
	/* A mapping of our own, which outlives the object. The old size 0 asks for a second one of the same pages. */
	view->base = mremap(fake->memory + (size_t)object->slot * FAKE_SLOT_BYTES, 0, FAKE_SLOT_BYTES,
			    MREMAP_MAYMOVE);
	if (view->base == MAP_FAILED)
		return bf_fail(err, errno, "no view");
	view->bytes = FAKE_SLOT_BYTES;
	view->handle = ++fake->next_block;
	fake->views++;
	return 0;
}

static void unview(struct device *device, struct device_view *view)
{
	struct fake *fake = fake_of(device);

	munmap(view->base, view->bytes);
	for (int i = 0; i < FAKE_PAGES; i++)
		if (fake->pages[i].gpu && fake->pages[i].handle == view->handle) {
			page_drop(fake, &fake->pages[i]);
			return;
		}
	fake->views--;
}

static int page_new(struct device *device, struct device_view *page, struct bf_error *err)
{
	struct fake *fake = fake_of(device);
	void *base = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; base != MAP_FAILED && i < FAKE_PAGES; i++)
		if (!fake->pages[i].gpu) {
			*page = (struct device_view){ base, PAGE_BYTES, ++fake->next_block };
			fake->pages[i].gpu = mremap(base, 0, PAGE_BYTES, MREMAP_MAYMOVE);
			fake->pages[i].handle = page->handle;
			fake->pages[i].holders = 1;
			fake->page_count++;
			return 0;
		}
	return bf_fail(err, ENOMEM, "no page");
}

static int page_name(struct device *device, int control_fd, uint32_t client, uint32_t parent, uint32_t handle,
		     const struct device_view *page, struct bf_error *err)
{
	struct fake *fake = fake_of(device);
	struct fake_object *object;
	uint32_t status;
	struct stat st;

	if (fstat(control_fd, &st) || check_client(fake, &st, client))
		return bf_fail(err, EIO, "client %x: not its control file", client);
	object = object_new(fake, client, parent, &handle, 0x3e, &status);
	if (!object)
		return bf_fail(err, EIO, "client %x: page not taken (0x%x)", client, status);
	for (int i = 0; i < FAKE_PAGES; i++)
		if (fake->pages[i].gpu && fake->pages[i].handle == page->handle)
			object->page = &fake->pages[i];
	object->page->holders++;
	return 0;
}

static int use_of(struct device *device, pid_t pid, struct device_use *use)
{
	fake_sweep(fake_of(device));
	sum_of(fake_of(device), pid, use);
	return 0;
}

uint32_t fake_gp_put(const struct fake_object *channel)
{
	return atomic_load(fake_gp_put_word(channel));
}

const _Atomic uint32_t *fake_gp_put_word(const struct fake_object *channel)
{
	static const _Atomic uint32_t none;

	return channel->page ? &channel->page->gpu[channel->userd_offset / 4 + GATE_GP_PUT_WORD] : &none;
}

static void fake_close(struct device *device)
{
	fake_free(fake_of(device));
}

static const struct device_ops fake_ops = {
	.name = "fake",
	.close = fake_close,
	.classify = classify,
	.call = call,
	.answer = answer,
	.view = view,
	.unview = unview,
	.page_new = page_new,
	.page_name = page_name,
	.use_of = use_of,
};

struct fake *fake_new(void)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	void *bell = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct stat st;

	if (!fake || bell == MAP_FAILED)
		abort();
	fake->device.ops = &fake_ops;
	fake->device.layout = rm_layout_find("580.159.04");
	fake->device.bell = bell;
	fake->device.mem_bytes = FAKE_CARD_BYTES;
	snprintf(fake->device.driver_version, sizeof(fake->device.driver_version), "580.159.04");
	fake->bell_seen = mremap(bell, 0, PAGE_BYTES, MREMAP_MAYMOVE);
	fake->memory = mmap(NULL, (size_t)FAKE_SLOTS * FAKE_SLOT_BYTES, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	snprintf(fake->folder, sizeof(fake->folder), "/tmp/belfry-fake-XXXXXX");
	if (fake->bell_seen == MAP_FAILED || fake->memory == MAP_FAILED || !mkdtemp(fake->folder) ||
	    stat(fake->folder, &st))
		abort();
	fake->files_on = st.st_dev;
	return fake;
}

void fake_free(struct fake *fake)
{
	char command[128];

	for (int i = 0; i < FAKE_CLIENTS; i++)
		if (fake->clients[i].handle)
			client_drop(fake, &fake->clients[i]);
	munmap((void *)(uintptr_t)fake->device.bell, 64 << 10);
	munmap(fake->bell_seen, PAGE_BYTES);
	munmap(fake->memory, (size_t)FAKE_SLOTS * FAKE_SLOT_BYTES);
	snprintf(command, sizeof(command), "rm -rf '%s'", fake->folder);
	if (system(command))
		fprintf(stderr, "%s: not removed\n", fake->folder);
	free(fake);
}
