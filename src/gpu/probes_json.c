/* Areas and probes as JSON. A copy of an area comes from a process and can contain anything: src/probe checks what it reads
 * there. Entries of arrays whose value is zero are left out. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/own.h"
#include "gpu/probes.h"

static const char *const kinds[] = { "array", "sm_array", "hash", "ring", "data" };

static struct json_object *hex(const void *bytes, size_t count)
{
	static const char digits[] = "0123456789abcdef";
	char text[2 * PROBE_VALUE_BYTES_MAX];
	const uint8_t *from = bytes;

	if (count > PROBE_VALUE_BYTES_MAX)
		count = PROBE_VALUE_BYTES_MAX;
	for (size_t i = 0; i < count; i++) {
		text[2 * i] = digits[from[i] >> 4];
		text[2 * i + 1] = digits[from[i] & 15];
	}
	return json_object_new_string_len(text, (int)(2 * count));
}

static bool is_zero(const void *bytes, size_t count)
{
	const uint8_t *at = bytes;

	return !count || (!at[0] && !memcmp(at, at + 1, count - 1));
}

static struct json_object *entry_json(const struct probe_map *map, const struct probe_entry *entry)
{
	struct json_object *to = json_object_new_object();

	if (entry->key)
		json_add(to, "key", hex(entry->key, map->key_bytes));
	else
		json_add_number(to, "index", entry->index);
	if (map->kind == PROBE_MAP_SM_ARRAY)
		json_add_number(to, "sm", entry->slot);
	json_add(to, "value", hex(entry->value, map->value_bytes));
	return to;
}

static void put_entries(struct json_object *to, const struct probe_map *map, void *area,
			struct probe_dump *dump)
{
	struct json_object *list = json_object_new_array();
	struct probe_entry entry;
	uint64_t cursor = 0, left_out = 0;
	unsigned cost = 1 + map->value_bytes / 64; /* large values count more */

	while (!dump->is_dropped && probe_next(map, area, &cursor, &entry)) {
		if (!entry.key && is_zero(entry.value, map->value_bytes))
			continue;
		if (dump->entries < cost) {
			left_out++;
			continue;
		}
		dump->entries -= cost;
		json_object_array_add(list, entry_json(map, &entry));
	}
	json_add(to, "entries", list);
	json_add_number(to, "left_out", left_out);
}

static void put_records(struct json_object *to, const struct probe_map *map, void *area,
			struct probe_dump *dump)
{
	const struct probe_ring *ring = (const struct probe_ring *)((char *)area + map->states);
	struct json_object *list = json_object_new_array();
	uint64_t dropped, left_out = 0;
	uint8_t record[PROBE_RECORD_BYTES_MAX];
	int got = 0;

	memcpy(&dropped, &ring->dropped, sizeof(dropped));
	while (!dump->is_dropped && (got = probe_ring_take(map, area, record, sizeof(record))) >= 0) {
		if (!dump->records) {
			left_out++;
			continue;
		}
		dump->records--;
		json_object_array_add(list, hex(record, (size_t)got));
	}
	json_add(to, "records", list);
	json_add_number(to, "left_out", left_out);
	json_add_number(to, "dropped", dropped);
	json_add_bool(to, "damaged", got == -EPROTO);
}

static struct json_object *map_json(const struct probe_map *map, void *area, struct probe_dump *dump)
{
	struct json_object *to = json_object_new_object();

	json_add_text(to, "map", map->name);
	json_add_text(to, "kind", kinds[map->kind]);
	json_add_number(to, "max_entries", map->max_entries);
	if (map->kind == PROBE_MAP_RING)
		put_records(to, map, area, dump);
	else
		put_entries(to, map, area, dump);
	return to;
}

bool area_is_copy(const struct probe *probe, int file)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	int seals = fcntl(file, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & needed) == needed && !fstat(file, &st) && st.st_size >= 0 &&
	       (uint64_t)st.st_size == probe_area_bytes(probe);
}

void *area_read(const struct probe *probe, int file, const char **why)
{
	uint64_t bytes = probe_area_bytes(probe);
	uint8_t *area;

	*why = PROBE_NO_COPY;
	if (!area_is_copy(probe, file))
		return NULL;
	area = aligned_alloc(64, bytes);
	if (!area) {
		*why = "belfryd is out of memory";
		return NULL;
	}
	for (uint64_t done = 0; done < bytes;) {
		ssize_t got = pread(file, area + done, bytes - done, (off_t)done);

		if (got <= 0) {
			free(area);
			return NULL;
		}
		done += (uint64_t)got;
	}
	return area;
}

struct json_object *area_json(const struct probe *probe, int file, struct probe_dump *dump, const char **why)
{
	cleanup_free void *area = area_read(probe, file, why);
	struct json_object *to, *maps;
	struct probe_area head;

	if (!area)
		return NULL;
	to = json_object_new_object();
	maps = json_object_new_array();
	memcpy(&head, area, sizeof(head));
	json_add_bool(to, "damaged", head.magic != BELFRY_PROBE_MAGIC || head.abi != BELFRY_PROBE_ABI);
	json_add_number(to, "out_of_fuel", head.out_of_fuel);
	json_add_number(to, "out_of_bounds", head.out_of_bounds);
	json_add_number(to, "busy", head.busy);
	json_add_number(to, "missed_ends", head.missed_ends);
	for (size_t i = 0; probe_map_at(probe, i); i++)
		if (!probe_map_at(probe, i)->is_read_only)
			json_object_array_add(maps, map_json(probe_map_at(probe, i), area, dump));
	json_add(to, "maps", maps);
	return to;
}

static struct json_object *columns_json(const struct probe *probe)
{
	struct json_object *list = json_object_new_array();
	const struct belfry_print *print;

	for (size_t i = 0; (print = probe_print_at(probe, i)); i++) {
		struct json_object *to = json_object_new_object();

		json_add_text(to, "map", print->map);
		json_add_text(to, "title", print->title);
		json_add_number(to, "from", print->from);
		json_add_number(to, "unit", print->unit);
		json_add_number(to, "flags", print->flags);
		json_add_number(to, "offset", print->offset);
		json_add_number(to, "bytes", print->bytes);
		json_add_number(to, "per_offset", print->per_offset);
		json_add_number(to, "per_bytes", print->per_bytes);
		json_add_number(to, "shift", print->shift);
		json_object_array_add(list, to);
	}
	return list;
}

static struct json_object *kernels_json(const struct attached_probe *attached)
{
	struct json_object *list = json_object_new_array();
	struct probe_kernel *k;

	LIST_FOREACH(k, &attached->kernels, next) {
		struct json_object *to = json_object_new_object();

		json_add_number(to, "id", k->id);
		json_add_text(to, "name", k->name);
		json_add_number(to, "pid", (uint64_t)k->pid);
		json_object_array_add(list, to);
	}
	return list;
}

static struct json_object *reasons_json(const struct attached_probe *attached)
{
	static const char *const words[PROBE_OUTCOMES] = { [PROBE_NO_MATCH] = "no_match",
							   [PROBE_NO_TEXT] = "machine_code_only",
							   [PROBE_REFUSED] = "refused" };
	struct json_object *list = json_object_new_array();
	struct probe_reason *r;

	LIST_FOREACH(r, &attached->reasons, next) {
		struct json_object *to = json_object_new_object();

		json_add_number(to, "pid", (uint64_t)r->pid);
		json_add_text(to, "why", words[r->outcome]);
		json_add_text(to, "text", r->text[0] ? r->text : NULL);
		json_add_text(to, "kernels", r->kernel[0] ? r->kernel : NULL);
		json_add_number(to, "modules", r->times);
		json_object_array_add(list, to);
	}
	return list;
}

struct json_object *attached_json(const struct attached_probe *attached)
{
	struct json_object *to = json_object_new_object();

	json_add_number(to, "number", attached->number);
	json_add_text(to, "probe", attached->name);
	json_add_text(to, "file", attached->file);
	json_add_text(to, "kernel", attached->kernel[0] ? attached->kernel : NULL);
	json_add(to, "pid", attached->pid ? json_object_new_int(attached->pid) : NULL);
	json_add_number(to, "sample", attached->sample);
	json_add_number(to, "since", (uint64_t)attached->since_s);
	json_add_bool(to, "verified", attached->is_verified);
	json_add_text(to, "not_verified", attached->is_verified ? NULL : attached->why_not);
	json_add_number(to, "area_bytes", probe_area_bytes(attached->probe));
	json_add_number(to, "woven_modules", attached->outcomes[PROBE_WOVEN]);
	json_add_number(to, "unmatched_modules", attached->outcomes[PROBE_NO_MATCH]);
	json_add_number(to, "machine_code_modules", attached->outcomes[PROBE_NO_TEXT]);
	json_add_number(to, "refused_modules", attached->outcomes[PROBE_REFUSED]);
	json_add(to, "columns", columns_json(attached->probe));
	json_add(to, "kernels", kernels_json(attached));
	json_add_number(to, "kernels_lost", attached->kernels_lost);
	json_add(to, "not_woven", reasons_json(attached));
	json_add_number(to, "not_woven_lost", attached->reasons_lost);
	json_add_number(to, "copies_lost", attached->copies_lost);
	return to;
}

static struct probed *find_probed(struct vgpu_probes *probes, pid_t pid)
{
	struct probed *p;

	if (probes)
		LIST_FOREACH(p, &probes->processes, next)
			if (p->pid == pid)
				return p;
	return NULL;
}

/* The library connects when CUDA is initialized. */
static const char *why_not_reachable(const struct vgpu *vgpu, uint32_t number)
{
	for (const struct run *r = vgpu->runs; r; r = r->next)
		if (r->number == number)
			return r->has_probes ? "not reachable: its library has not connected"
			       : r->attached ? "not reachable: Belfry has not started it"
					     : "not reachable: started without --probes";
	return "not reachable: its run has ended";
}

/* The processes of a vGPU, and the run of each. */
struct reach {
	struct warden_report report;
	uint32_t runs[WARDEN_REPORT_PROCESSES];
};

/* The warden is asked without the lock, because this may wait for a driver call. Only the main thread changes the lists, and
 * this is the main thread. */
static void ask_warden(struct vgpu *vgpu, struct reach *reach)
{
	gpu_unlock(vgpu->gpu);
	warden_report(vgpu->warden, &reach->report);
	for (uint32_t i = 0; i < reach->report.processes && i < WARDEN_REPORT_PROCESSES; i++)
		reach->runs[i] = warden_run_of(vgpu->warden, reach->report.process[i].pid);
	gpu_lock(vgpu->gpu);
}

static struct json_object *reach_json(struct vgpu_probes *probes, struct vgpu *vgpu)
{
	struct json_object *list = json_object_new_array();
	cleanup_free struct reach *reach = malloc(sizeof(*reach));
	const struct warden_report *report = reach ? &reach->report : NULL;

	if (!reach || !vgpu->warden || !vgpu->runs)
		return list;
	ask_warden(vgpu, reach);
	for (uint32_t i = 0; i < report->processes && i < WARDEN_REPORT_PROCESSES; i++) {
		pid_t pid = report->process[i].pid;
		const struct probed *probed = find_probed(probes, pid);
		struct json_object *to = json_object_new_object();

		json_add_number(to, "pid", (uint64_t)pid);
		json_add_text(to, "program", probed ? probed->program : NULL);
		json_add_bool(to, "reachable", probed);
		json_add_text(to, "why", probed ? NULL : why_not_reachable(vgpu, reach->runs[i]));
		json_object_array_add(list, to);
	}
	return list;
}

struct json_object *probes_json(struct vgpu_probes *probes, struct vgpu *vgpu)
{
	struct json_object *to = json_object_new_object(), *list = json_object_new_array();
	struct attached_probe *a;

	json_add_text(to, "vgpu", vgpu->name);
	if (probes)
		LIST_FOREACH(a, &probes->attached, next)
			json_object_array_add(list, attached_json(a));
	json_add(to, "probes", list);
	json_add(to, "processes", reach_json(probes, vgpu));
	return to;
}
