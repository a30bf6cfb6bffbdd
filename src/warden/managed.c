/* Managed memory: it comes from the device as the GPU touches it, so what can be bounded is how much of it is
 * mapped. Every mapping of the managed-memory device counts, and is read back from the process's own maps, so
 * that nothing needs to be seen of how it is unmapped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/own.h"
#include "warden/state.h"

/* Whether a line of /proc/PID/maps is a mapping of the managed-memory device. The name in it is the path the
 * file was opened by, which a program may choose freely, so the file itself is asked where we may. */
static bool is_managed_map(const struct process *process, char *line, uint64_t *bytes)
{
	struct device *device = process->warden->device;
	unsigned long from, to;
	char perms[8], link[96];
	int name_at = 0;
	struct stat st;

	if (sscanf(line, "%lx-%lx %7s %*x %*x:%*x %*u %n", &from, &to, perms, &name_at) < 3 ||
	    perms[3] != 's' || !name_at || line[name_at] != '/')
		return false;
	line[strcspn(line, "\n")] = 0;
	snprintf(link, sizeof(link), "/proc/%d/map_files/%lx-%lx", process->pid, from, to);
	if (file_look(AT_FDCWD, link, &st) && file_look(AT_FDCWD, line + name_at, &st))
		return false;
	*bytes = to - from;
	return device->ops->classify(device, &st) == DEVICE_FILE_MANAGED;
}

static uint64_t managed_bytes_of(const struct process *process)
{
	char path[32], line[512];
	cleanup_file FILE *maps = NULL;
	uint64_t total = 0, bytes;

	snprintf(path, sizeof(path), "/proc/%d/maps", process->pid);
	maps = fopen(path, "re");
	if (!maps && process_hides(process)) /* then it has what it was let have */
		return process->managed_bytes;
	while (maps && fgets(line, sizeof(line), maps))
		if (is_managed_map(process, line, &bytes))
			total += bytes;
	return total;
}

static void set_managed(struct warden *warden)
{
	uint64_t bytes = 0;

	for (struct process *p = warden->processes; p; p = p->next)
		bytes += p->managed_bytes;
	ledger_set_managed(warden->ledger, bytes);
}

void warden_refresh_managed(struct warden *warden)
{
	for (struct process *p = warden->processes; p; p = p->next)
		if (p->managed_bytes)
			p->managed_bytes = managed_bytes_of(p);
	set_managed(warden);
}

/* Of everybody, also of those who are not known to have any: whoever came by a mapping around us is seen here. */
void warden_audit_managed(struct warden *warden)
{
	struct process *most = NULL;

	for (struct process *p = warden->processes; p; p = p->next) {
		p->managed_bytes = managed_bytes_of(p);
		if (!most || p->managed_bytes > most->managed_bytes)
			most = p;
	}
	set_managed(warden);
	if (ledger_limit(warden->ledger) && ledger_managed(warden->ledger) > ledger_limit(warden->ledger))
		process_end(most, "more managed memory is mapped than the vGPU has");
}

/* libcuda reports a refused mapping as CUDA_ERROR_UNKNOWN whatever the reason given (measured, see
 * docs/driver.md); the context stays good. */
struct answer site_mmap_managed(struct site *site, uint64_t bytes)
{
	struct warden *warden = site->warden;

	site->process->managed_bytes = managed_bytes_of(site->process);
	warden_refresh_managed(warden);
	if (bytes > ledger_room(warden->ledger))
		warden_reconcile(warden);
	if (bytes > ledger_room(warden->ledger) || !site_may_have(site, bytes)) {
		warden->refusals++;
		bf_log(BF_LOG_INFO, "process %d: %llu bytes of managed memory refused", site->process->pid,
		       (unsigned long long)bytes);
		return RETURN(-ENOMEM);
	}
	site->process->managed_bytes += bytes;
	ledger_set_managed(warden->ledger, ledger_managed(warden->ledger) + bytes);
	return PASS;
}
