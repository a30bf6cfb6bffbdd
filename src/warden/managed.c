/* Managed memory and mappings of device memory: /dev/nvidia-uvm. The owner proxy makes the calls, because the
 * driver lets only the process that owns a client map the client's memory there. So no other process can keep
 * memory that way.
 * Managed memory is allocated when the GPU accesses it. The limit can only bound how much is mapped. Every
 * mapping counts. The sizes are read from /proc/PID/maps, so the warden need not see how memory is
 * unmapped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/own.h"
#include "warden/state.h"

enum {
	INITIALIZE_FLAGS_AT = 0,
	/* NO_PAGEABLE: memory that was not allocated for the GPU is not moved to it (HMM); no limit could be
	 * kept otherwise. MULTI_PROCESS: calls may come from the owner proxy, which is not the process that
	 * maps. */
	FLAG_NO_PAGEABLE = 1,
	FLAG_MULTI_PROCESS = 2,
	STATUS_NOTHING_TO_DO = 0x10006,
	MAPS_MOST_BYTES = 16 << 20,
	FILES_MOST = 64,
};

static uint64_t get64(const struct site *site, int at)
{
	return at >= 0 ? bf_get64(site->arg.now + at) : 0;
}

static uint32_t get32(const struct site *site, int at)
{
	return at >= 0 ? bf_get32(site->arg.now + at) : 0;
}

int managed_perform(struct site *site)
{
	struct device *device = site->warden->device;
	const struct rm_uvm_call *call = site->managed;
	int none = -1, rc;

	if (!device->ops->managed_call)
		return -EINVAL;
	if (call->fd_at >= 0) /* the driver ignores it */
		memcpy(site->arg.now + call->fd_at, &none, sizeof(none));
	rc = device->ops->managed_call(device, site->warden->owner, site->file->fd, call->cmd, site->arg.now);
	if (call->fd_at >= 0)
		memcpy(site->arg.now + call->fd_at, site->arg.before + call->fd_at, sizeof(none));
	return rc;
}

static struct answer perform(struct site *site)
{
	return RETURN(managed_perform(site));
}

static struct answer initialize(struct site *site)
{
	uint64_t program_flags = get64(site, INITIALIZE_FLAGS_AT),
		 flags = program_flags | FLAG_NO_PAGEABLE | FLAG_MULTI_PROCESS;
	struct answer answer;

	memcpy(site->arg.now + INITIALIZE_FLAGS_AT, &flags, sizeof(flags));
	answer = perform(site);
	memcpy(site->arg.now + INITIALIZE_FLAGS_AT, &program_flags, sizeof(program_flags));
	return answer;
}

/* A mapping keeps the memory allocated, even if the object is freed. It replaces earlier mappings of the
 * range. */
static void record_mapping(struct site *site, const struct kept_block *mapping)
{
	struct ledger *ledger = site->warden->ledger;

	devfile_unmapped(site->file, ledger, mapping->base, mapping->bytes);
	/* If recording fails, the caller's reference is never dropped, and the memory stays charged. */
	if (mapping->block && !devfile_keep(site->file, mapping))
		ledger_drop(ledger, mapping->block);
}

static struct answer map_external(struct site *site)
{
	const struct rm_uvm_call *call = site->managed;
	const struct ledger_object *object =
		ledger_find(site->warden->ledger, get32(site, call->client_at), get32(site, call->object_at));
	struct kept_block mapping = { .block = object ? object->block : NULL,
				      .base = get64(site, call->base_at),
				      .bytes = get64(site, call->length_at) };
	struct answer answer;

	if (!object &&
	    !client_has_own_pages(site->warden, get32(site, call->client_at), get32(site, call->object_at)))
		return site_status(site, RM_ERR_INVALID_OBJECT_HANDLE);
	if (mapping.block)
		ledger_keep(mapping.block);
	answer = perform(site);
	if (!answer.value && !site_status_of(site))
		record_mapping(site, &mapping);
	else if (mapping.block)
		ledger_drop(site->warden->ledger, mapping.block);
	return answer;
}

/* A reserved address range, for later mappings. */
static struct answer create_range(struct site *site)
{
	struct kept_block range = { .base = get64(site, site->managed->base_at),
				    .bytes = get64(site, site->managed->length_at) };
	struct answer answer = perform(site);

	if (answer.value || site_status_of(site))
		return answer;
	return devfile_keep(site->file, &range) ? RETURN(-ENOMEM) : answer;
}

/* A range is freed as a whole, whatever length the program passes: its recorded length counts. */
static uint64_t length_of(const struct site *site, uint64_t base)
{
	if (site->managed->cmd != RM_UVM_FREE)
		return get64(site, site->managed->length_at);
	for (const struct kept_block *k = LIST_FIRST(&site->file->kept); k; k = LIST_NEXT(k, next))
		if (!k->block && k->base == base)
			return k->bytes;
	return 0;
}

static struct answer unmap(struct site *site)
{
	uint64_t base = get64(site, site->managed->base_at), bytes = length_of(site, base);
	struct answer answer = perform(site);

	if (answer.value || site_status_of(site))
		return answer;
	if (site->managed->cmd == RM_UVM_FREE)
		devfile_drop(site->file, site->warden->ledger, base, bytes);
	else
		devfile_unmapped(site->file, site->warden->ledger, base, bytes);
	return answer;
}

static struct answer own_call(struct site *site)
{
	switch (site->managed->cmd) {
	case RM_UVM_INITIALIZE:
		return initialize(site);
	case RM_UVM_MM_INITIALIZE: /* as the driver answers if there is nothing to bind to an address space */
		return site_status(site, STATUS_NOTHING_TO_DO);
	case RM_UVM_MAP_EXTERNAL_ALLOCATION:
		return map_external(site);
	case RM_UVM_CREATE_EXTERNAL_RANGE:
		return create_range(site);
	case RM_UVM_UNMAP_EXTERNAL:
	case RM_UVM_FREE:
		return unmap(site);
	default:
		return perform(site);
	}
}

/* A GPU that is not registered cannot be used in any other call. */
static bool is_own_gpu(const struct site *site)
{
	const struct device *device = site->warden->device;

	return !device->has_uuid || !memcmp(site->arg.now, device->uuid, sizeof(device->uuid));
}

struct answer site_managed_call(struct site *site)
{
	const struct rm_uvm_call *call = site->managed;

	if (call->way == RM_WAY_REFUSED)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, call->name);
	if (call->way == RM_WAY_ANSWERED)
		return site_status(site, RM_OK);
	if (!site_names_known_client(site, &site->arg, call->client_at))
		return site_refuse(site, RM_ERR_INVALID_CLIENT, "a client of another vGPU or user");
	if (call->cmd == RM_UVM_REGISTER_GPU && !is_own_gpu(site))
		return site_refuse(site, RM_ERR_INVALID_DEVICE, "another GPU than this vGPU's");
	return call->way == RM_WAY_COPY && call->cmd != RM_UVM_CREATE_EXTERNAL_RANGE ? MAKE : own_call(site);
}

/* The names that mappings of the warden's managed-memory files have in /proc/PID/maps. */
struct names {
	char name[FILES_MOST][128];
	unsigned count;
};

static void find_names(struct warden *warden, struct names *names)
{
	char path[32];

	names->count = 0;
	pthread_mutex_lock(&warden->lock);
	for (const struct devfile *f = LIST_FIRST(&warden->files); f && names->count < FILES_MOST;
	     f = LIST_NEXT(f, next)) {
		char *name = names->name[names->count];
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
		length = f->is_shown && f->kind == DEVICE_FILE_MANAGED
				 ? readlink(path, name, sizeof(names->name[0]) - 1)
				 : -1;
		if (length <= 0)
			continue;
		name[length] = 0;
		/* Most files have the same name; one entry is enough. */
		if (!names->count || strcmp(names->name[names->count - 1], name) != 0)
			names->count++;
	}
	pthread_mutex_unlock(&warden->lock);
}

static uint64_t mapped_bytes(const struct names *names, const char *line)
{
	unsigned long from, to;
	int name_at = 0;

	if (sscanf(line, "%lx-%lx %*s %*x %*x:%*x %*u %n", &from, &to, &name_at) < 2 || !name_at)
		return 0;
	for (unsigned i = 0; i < names->count; i++)
		if (!strcmp(line + name_at, names->name[i]))
			return to - from;
	return 0;
}

/* The bytes that the process has mapped. If they cannot be read, the last value. Without the lock. */
static uint64_t managed_bytes_of(struct process *process, const struct names *names)
{
	char *text = process_read(process, "maps", MAPS_MOST_BYTES), *rest = text;
	size_t length = text ? strlen(text) : 0;
	uint64_t total = 0;

	for (char *line; length && (line = strsep(&rest, "\n"));)
		total += mapped_bytes(names, line);
	free(text);
	/* The text is empty if the main thread has ended, and may be incomplete. Neither proves that less is
	 * mapped. */
	if (!length || length >= MAPS_MOST_BYTES)
		return total > process->managed_bytes ? total : process->managed_bytes;
	return total;
}

static void set_managed(struct process *process, uint64_t bytes)
{
	struct ledger *ledger = process->warden->ledger;

	ledger_set_managed(ledger, ledger_managed(ledger) - process->managed_bytes + bytes);
	process->managed_bytes = bytes;
}

/* Without the lock: only this thread changes the list of processes. */
static void refresh(struct warden *warden)
{
	struct names names;

	find_names(warden, &names);
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next)) {
		uint64_t bytes;

		if (!p->managed_serial)
			continue;
		bytes = managed_bytes_of(p, &names);
		pthread_mutex_lock(&warden->lock);
		set_managed(p, bytes);
		pthread_mutex_unlock(&warden->lock);
	}
}

/* Without the lock: only this thread changes the list. */
static bool has_managed(const struct warden *warden)
{
	for (const struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		if (p->managed_serial)
			return true;
	return false;
}

static struct process *largest_process(const struct warden *warden)
{
	struct process *most = NULL;

	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		if (!most || p->managed_bytes > most->managed_bytes)
			most = p;
	return most;
}

/* Finds mappings that were made without the warden. */
void warden_audit_managed(struct warden *warden)
{
	if (!has_managed(warden))
		return;
	refresh(warden);
	pthread_mutex_lock(&warden->lock);
	if (ledger_is_over(warden->ledger) && ledger_managed(warden->ledger))
		process_end(largest_process(warden),
			    "it has mapped more managed memory than the vGPU has room for");
	pthread_mutex_unlock(&warden->lock);
}

void site_refresh_managed(struct site *site, uint64_t bytes)
{
	bool is_short;

	pthread_mutex_lock(&site->warden->lock);
	is_short = bytes > ledger_room(site->warden->ledger);
	pthread_mutex_unlock(&site->warden->lock);
	if (is_short && has_managed(site->warden))
		refresh(site->warden);
}

/* Another process may share the address space of the process that has ended, and still has the mappings: they
 * count until the file is closed. */
void managed_left(struct process *process)
{
	struct devfile *file =
		process->managed_serial ? devfile_by_serial(process->warden, process->managed_serial) : NULL;
	uint64_t bytes = process->managed_bytes;

	if (file)
		file->left_bytes += bytes;
	else
		set_managed(process, 0);
}

/* libcuda reports a refused mapping as CUDA_ERROR_UNKNOWN whatever the error is (measured, docs/driver.md);
 * the context stays usable. */
struct answer site_mmap_managed(struct site *site, uint64_t bytes)
{
	struct warden *warden = site->warden;

	if (site->process->managed_serial && site->process->managed_serial != site->file->serial)
		return RETURN(-EINVAL); /* a library has one file, and mappings are counted by process */
	if (!ledger_claim(warden->ledger, bytes) || !site_may_allocate(site, bytes)) {
		ledger_unclaim(warden->ledger);
		site_tell_refused(site, bytes);
		bf_log(BF_LOG_INFO, "process %d: %llu bytes of managed memory refused", site->process->pid,
		       (unsigned long long)bytes);
		return RETURN(-ENOMEM);
	}
	if (!site->is_in_place) {
		site->put_fd = fcntl(site->file->fd, F_DUPFD_CLOEXEC, 0);
		if (site->put_fd < 0) {
			ledger_unclaim(warden->ledger);
			return RETURN(-EMFILE);
		}
		site->file->is_shown = true;
	}
	site->process->managed_serial = site->file->serial;
	set_managed(site->process, site->process->managed_bytes + bytes);
	return CONTINUE;
}
