/* Maps of probes in maps of policies. Once in MIRROR_MS the processes that carry a probe are asked for copies of its area. Their
 * entries are added up, and at the end of the round replace the vGPU's entries in the maps of the policies that want them.
 * Reading copies takes time, so a thread without a lock does it: one at a time, for the oldest round that has all its copies.
 * While it runs, the main thread does not touch the files and the tables of the round, and the probe stays.
 *
 * The program writes the area, and its process sends the copy: keys and values are data of that vGPU, and their number is
 * limited. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/bytes.h"
#include "base/own.h"
#include "gpu/policy.h"
#include "gpu/probes.h"

/* Calls visit for each binding of the policies of a vGPU to the probe's name, with the policy. */
typedef void visit_binding(struct policy *policy, size_t index, const struct policy_binding *binding,
			   struct attached_probe *attached);

static unsigned each_binding(struct attached_probe *attached, visit_binding *visit)
{
	struct vgpu *vgpu = attached->vgpu;
	struct seat *seats[] = { vgpu->gpu->seat, vgpu->seat };
	unsigned found = 0;

	for (unsigned s = 0; s < 2; s++) {
		const struct policy_binding *bindings;
		size_t count;

		if (!seats[s] || !seats[s]->policy)
			continue;
		bindings = policy_bindings(seats[s]->policy, &count);
		for (size_t i = 0; i < count; i++)
			if (!strcmp(bindings[i].probe, attached->name)) {
				found++;
				if (visit)
					visit(seats[s]->policy, i, &bindings[i], attached);
			}
	}
	return found;
}

/* Of several probes of one name, the latest counts. */
static bool is_latest(const struct attached_probe *attached)
{
	const struct attached_probe *a;

	LIST_FOREACH(a, &attached->vgpu->probing->attached, next)
		if (!strcmp(a->name, attached->name))
			break;
	return a == attached;
}

static bool is_wanted(struct attached_probe *attached)
{
	return probe_area_bytes(attached->probe) <= MIRROR_BYTES && each_binding(attached, NULL) &&
	       is_latest(attached);
}

/* ---- the sums */

static struct mirror_table *table_of(struct mirror *mirror, const char *name)
{
	for (unsigned i = 0; i < mirror->table_count; i++)
		if (!strcmp(mirror->tables[i].map->name, name))
			return &mirror->tables[i];
	return NULL;
}

static bool fits(const struct policy_binding *binding, const struct probe_map *map)
{
	uint32_t key_bytes = map->kind == PROBE_MAP_HASH ? map->key_bytes : sizeof(uint64_t);

	return map->kind != PROBE_MAP_RING && binding->key_bytes == key_bytes &&
	       binding->value_bytes == map->value_bytes;
}

static void add_table(struct policy *policy, size_t index, const struct policy_binding *binding,
		      struct attached_probe *attached)
{
	const struct probe_map *map = probe_map_find(attached->probe, binding->probe_map);
	struct mirror *mirror = attached->mirror;
	struct mirror_table table = { .map = map, .key_bytes = binding->key_bytes };

	(void)policy;
	(void)index;
	if (!map || !fits(binding, map) || table_of(mirror, map->name) ||
	    mirror->table_count == PROBE_MAPS_MAX)
		return;
	table.stride = binding->key_bytes + binding->value_bytes;
	table.entries = calloc(MIRROR_ENTRIES, table.stride);
	if (table.entries)
		mirror->tables[mirror->table_count++] = table;
}

static void add_entry(struct mirror_table *table, const void *key, const uint8_t *value)
{
	unsigned low = 0, high = table->count;
	uint8_t *at;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (memcmp(key, table->entries + (size_t)middle * table->stride, table->key_bytes) > 0)
			low = middle + 1;
		else
			high = middle;
	}
	at = table->entries + (size_t)low * table->stride;
	if (low == table->count || memcmp(at, key, table->key_bytes)) {
		if (table->count == MIRROR_ENTRIES)
			return;
		memmove(at + table->stride, at, (size_t)(table->count - low) * table->stride);
		memset(at, 0, table->stride);
		memcpy(at, key, table->key_bytes);
		table->count++;
	}
	at += table->key_bytes;
	for (uint32_t i = 0; i + sizeof(uint64_t) <= table->map->value_bytes; i += sizeof(uint64_t)) {
		uint64_t sum = bf_get64(at + i) + bf_get64(value + i);

		memcpy(at + i, &sum, sizeof(sum));
	}
}

static void add_area(struct mirror *mirror, void *area)
{
	for (unsigned i = 0; i < mirror->table_count; i++) {
		struct probe_entry entry;
		uint64_t cursor = 0;

		while (probe_next(mirror->tables[i].map, area, &cursor, &entry)) {
			uint64_t index = entry.index;

			add_entry(&mirror->tables[i], entry.key ? entry.key : (const void *)&index,
				  entry.value);
		}
	}
}

/* ---- the reader */

static void *reader_main(void *arg)
{
	struct mirror *mirror = arg;

	prctl(PR_SET_NAME, "belfry-mirror");
	for (unsigned i = 0; i < mirror->file_count && !mirror->is_dropped; i++) {
		const char *why;
		cleanup_free void *area = area_read(mirror->probe, mirror->files[i], &why);

		if (area)
			add_area(mirror, area);
	}
	mirror->is_read = true;
	gpu_wake(mirror->gpu);
	return NULL;
}

static void start_reader(struct mirror *mirror)
{
	mirror->has_thread = !pthread_create(&mirror->thread, NULL, reader_main, mirror);
}

static void end_reader(struct mirror *mirror)
{
	mirror->is_dropped = true;
	if (mirror->has_thread)
		pthread_join(mirror->thread, NULL);
	mirror->has_thread = false;
}

/* ---- rounds */

static void free_mirror(struct attached_probe *attached)
{
	struct mirror *mirror = attached->mirror;

	attached->mirror = NULL;
	if (!mirror)
		return;
	end_reader(mirror);
	for (unsigned i = 0; i < mirror->file_count; i++)
		bf_close_fd(&mirror->files[i]);
	for (unsigned i = 0; i < mirror->table_count; i++)
		free(mirror->tables[i].entries);
	free(mirror);
}

static void give(struct policy *policy, size_t index, const struct policy_binding *binding,
		 struct attached_probe *attached)
{
	const struct mirror_table *table = attached->mirror ? table_of(attached->mirror, binding->probe_map)
							    : NULL;

	if (table && (table->key_bytes != binding->key_bytes ||
		      table->stride != binding->key_bytes + binding->value_bytes))
		table = NULL;
	policy_bound_set(policy, index, attached->vgpu->id, table ? table->entries : NULL,
			 table ? table->count : 0);
}

/* Processes that have not answered are not in the sums of this round. */
static void close_round(struct attached_probe *attached)
{
	struct probed *p;

	LIST_FOREACH(p, &attached->vgpu->probing->processes, next)
		p->mirroring &= ~attached->bit;
	attached->mirror->due = 0;
}

/* The copies have been read. */
static void finish(struct attached_probe *attached)
{
	end_reader(attached->mirror);
	each_binding(attached, give);
	attached->is_mirrored = attached->mirror->asked;
	free_mirror(attached);
}

void mirror_drop(struct attached_probe *attached)
{
	if (attached->mirror)
		close_round(attached);
	free_mirror(attached);
	if (attached->is_mirrored)
		each_binding(attached, give);
	attached->is_mirrored = false;
}

static void begin(struct attached_probe *attached)
{
	struct mirror *mirror = calloc(1, sizeof(*mirror));
	struct probed *p;

	attached->mirror = mirror;
	if (!mirror)
		return;
	mirror->gpu = attached->vgpu->gpu;
	mirror->probe = attached->probe;
	mirror->ticket = ++mirror->gpu->next_dump;
	each_binding(attached, add_table);
	LIST_FOREACH(p, &attached->vgpu->probing->processes, next) {
		if (!probed_is_meant(p, attached) || mirror->asked == MIRROR_PROCESSES ||
		    probed_send(p, PROBE_ORDER_DUMP, attached, mirror->ticket))
			continue;
		p->mirroring |= attached->bit;
		mirror->due++;
		mirror->asked++;
	}
	mirror->gpu->has_dump_done |= !mirror->due;
}

bool mirror_came(struct probed *probed, struct attached_probe *attached, const struct probe_note *note,
		 int fd)
{
	struct mirror *mirror = attached->mirror;

	if (!mirror || note->ticket != mirror->ticket)
		return false;
	cleanup_close int file = fd;
	if (!(probed->mirroring & attached->bit))
		return true; /* a second answer, or a late one */
	probed->mirroring &= ~attached->bit;
	if (file >= 0 && mirror->file_count < MIRROR_PROCESSES && area_is_copy(attached->probe, file))
		mirror->files[mirror->file_count++] = bf_take_fd(&file);
	mirror->gpu->has_dump_done |= !--mirror->due;
	return true;
}

void mirror_gone(struct probed *probed)
{
	struct attached_probe *a;

	LIST_FOREACH(a, &probed->of->attached, next)
		if (a->mirror && probed->mirroring & a->bit)
			a->mirror->gpu->has_dump_done |= !--a->mirror->due;
}

/* In the main thread, which alone changes the lists and the seats. */
static bool is_any_wanted(const struct gpu *gpu)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct attached_probe *a;

		if (v->probing)
			LIST_FOREACH(a, &v->probing->attached, next)
				if ((v->probing->process_count || a->is_mirrored) && is_wanted(a))
					return true;
	}
	return false;
}

uint64_t mirror_due_ns(const struct gpu *gpu)
{
	if (!is_any_wanted(gpu))
		return 0;
	return gpu->mirror_at_ns ? gpu->mirror_at_ns : 1; /* at once */
}

static void look_at(struct attached_probe *attached)
{
	struct mirror *mirror = attached->mirror;

	if (!is_wanted(attached)) {
		mirror_drop(attached);
	} else if (!mirror) {
		begin(attached);
	} else {
		mirror->is_late = true;
		close_round(attached);
		mirror->gpu->has_dump_done = true;
	}
}

void mirror_look(struct gpu *gpu, uint64_t now_ns)
{
	if (now_ns < gpu->mirror_at_ns)
		return;
	gpu->mirror_at_ns = now_ns + MIRROR_MS * 1000000ull;
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct attached_probe *a;

		if (v->probing)
			LIST_FOREACH(a, &v->probing->attached, next)
				look_at(a);
	}
}

/* Calls visit for each probe of which a round is under way. */
static void each_round(const struct gpu *gpu, void (*visit)(struct attached_probe *attached, void *context),
		       void *context)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct attached_probe *a;

		if (v->probing)
			LIST_FOREACH(a, &v->probing->attached, next)
				if (a->mirror)
					visit(a, context);
	}
}

static void count_round(struct attached_probe *attached, void *context)
{
	(void)attached;
	++*(unsigned *)context;
}

bool mirrors_are_under_way(const struct gpu *gpu)
{
	unsigned count = 0;

	each_round(gpu, count_round, &count);
	return count;
}

/* Ends a round whose copies have been read, or of which there are none. A round that took too long is followed by the next. */
static void settle_round(struct attached_probe *attached, void *context)
{
	const struct mirror *mirror = attached->mirror;
	bool is_late = mirror->is_late;

	(void)context;
	if (mirror->due || (mirror->file_count && !mirror->is_read))
		return;
	finish(attached);
	if (is_late && is_wanted(attached))
		begin(attached);
}

struct next_reader {
	struct mirror *mirror;
	bool is_busy;
};

static void find_oldest(struct attached_probe *attached, void *context)
{
	struct mirror *mirror = attached->mirror;
	struct next_reader *next = context;

	next->is_busy |= mirror->has_thread;
	if (!mirror->due && !mirror->has_thread && mirror->file_count &&
	    (!next->mirror || mirror->ticket < next->mirror->ticket))
		next->mirror = mirror;
}

void mirror_settle(struct gpu *gpu)
{
	struct next_reader next = { 0 };

	each_round(gpu, settle_round, NULL);
	each_round(gpu, find_oldest, &next);
	if (next.mirror && !next.is_busy)
		start_reader(next.mirror); /* without a thread, it is tried again at the next look */
}
