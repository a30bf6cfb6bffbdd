/* Dumps: copies of areas from all processes of a vGPU, and the last copies of those that have ended. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "gpu/policy.h"
#include "gpu/probes.h"

void copy_free(struct attached_probe *attached, struct probe_copy *copy)
{
	TAILQ_REMOVE(&attached->copies, copy, next);
	attached->copy_count--;
	bf_close_fd(&copy->file);
	free(copy);
}

void copy_keep(struct attached_probe *attached, const struct probed *probed, const char *text, int fd)
{
	cleanup_close int file = fd;
	struct probe_copy *copy;

	TAILQ_FOREACH(copy, &attached->copies, next)
		if (copy->pid == probed->pid) /* a process can connect again, and change its name */
			break;
	if (copy)
		copy_free(attached, copy);
	if (attached->copy_count == PROBE_COPIES) {
		copy_free(attached, TAILQ_FIRST(&attached->copies));
		attached->copies_lost++;
	}
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return;
	*copy = (struct probe_copy){ .pid = probed->pid,
				     .file = bf_take_fd(&file),
				     .at_s = (int64_t)time(NULL) };
	memcpy(copy->program, probed->program, sizeof(copy->program));
	snprintf(copy->text, sizeof(copy->text), "%.255s", text);
	bf_plain(copy->text);
	TAILQ_INSERT_TAIL(&attached->copies, copy, next);
	attached->copy_count++;
}

/* A process in the answer. is_live: it has not ended. */
static struct json_object *process_json(pid_t pid, const char *program, bool is_live)
{
	struct json_object *to = json_object_new_object();

	json_add_number(to, "pid", (uint64_t)pid);
	json_add_text(to, "program", program);
	json_add_bool(to, "ended", !is_live);
	return to;
}

/* Takes the file, which is read later. why: what to say if that is -1. */
static void add_later(struct probe_dump *dump, const struct attached_probe *attached,
		      struct json_object *process, int file, const char *why)
{
	if (file >= 0 && !dump_add(dump, attached, process, file))
		return;
	json_add(process, "area", NULL);
	json_add_text(process, "why", file < 0 ? why : "belfryd is out of memory");
}

/* The copy's own file may be closed meanwhile. */
static int again(const struct probe_copy *copy)
{
	return copy->file < 0 ? -1 : fcntl(copy->file, F_DUPFD_CLOEXEC, 0);
}

static void add_copy(struct json_object *processes, const struct attached_probe *attached,
		     const struct probe_copy *copy, struct probe_dump *dump)
{
	struct json_object *to = process_json(copy->pid, copy->program, false);

	json_add_number(to, "at", (uint64_t)copy->at_s);
	json_object_array_add(processes, to);
	add_later(dump, attached, to, again(copy),
		  copy->file < 0 ? copy->text : "belfryd is out of descriptors");
}

static struct json_object *processes_of(const struct probe_dump *dump, uint32_t number)
{
	for (size_t i = 0; i < json_object_array_length(dump->probes); i++) {
		struct json_object *one = json_object_array_get_idx(dump->probes, i), *value;

		if (json_object_object_get_ex(one, "number", &value) &&
		    (uint32_t)json_object_get_int64(value) == number &&
		    json_object_object_get_ex(one, "processes", &value))
			return value;
	}
	return NULL;
}

static void free_dump(struct vgpu_probes *probes)
{
	struct probe_dump *dump = probes->dump;

	probes->dump = NULL;
	if (dump->talker)
		dump->talker->dump = NULL;
	dump_end(dump);
}

void dump_drop(struct vgpu_probes *probes)
{
	if (probes->dump)
		free_dump(probes);
}

void dump_fail(struct vgpu_probes *probes, const char *why)
{
	struct gpu *gpu = probes->vgpu->gpu;
	struct bf_error err = { 0 };
	struct talker *talker;
	uint64_t start_ns;

	if (!probes->dump)
		return;
	talker = probes->dump->talker;
	start_ns = probes->dump->start_ns;
	bf_fail(&err, ENOENT, "%s: %s", probes->vgpu->name, why);
	free_dump(probes);
	gpu_unlock(gpu);
	talker_dumped(gpu, talker, &err, NULL, 0, start_ns);
	gpu_lock(gpu);
}

/* With the lock, which is released meanwhile. */
static void finish(struct vgpu_probes *probes)
{
	struct gpu *gpu = probes->vgpu->gpu;
	struct probe_dump *dump = probes->dump;
	struct talker *talker = dump->talker;
	cleanup_free char *body = dump->body;
	struct bf_error err = { 0 };
	uint64_t start_ns = dump->start_ns;
	size_t bytes = dump->body_bytes;

	dump->body = NULL;
	free_dump(probes);
	if (!body)
		bf_fail(&err, ENOMEM, "out of memory");
	gpu_unlock(gpu);
	talker_dumped(gpu, talker, &err, body, bytes, start_ns);
	gpu_lock(gpu);
}

/* The entry of a process that was asked for a copy and has not answered. NULL: there is none. */
static struct json_object *asked(const struct probe_dump *dump, uint32_t number, pid_t pid)
{
	struct json_object *processes = processes_of(dump, number);

	for (size_t i = 0; processes && i < json_object_array_length(processes); i++) {
		struct json_object *one = json_object_array_get_idx(processes, i), *value;

		if (json_object_object_get_ex(one, "pid", &value) && json_object_get_int64(value) == pid &&
		    json_object_object_get_ex(one, "due", &value))
			return one;
	}
	return NULL;
}

/* Takes the file. why: what to say if that is -1. */
static void settle(struct probe_dump *dump, const struct attached_probe *attached,
		   struct json_object *process, int file, const char *why)
{
	json_object_object_del(process, "due");
	add_later(dump, attached, process, file, why);
	dump->due--;
}

void dump_came(struct probed *probed, const struct probe_note *note, int fd)
{
	cleanup_close int file = fd;
	struct probe_dump *dump = probed->of->dump;
	const struct attached_probe *attached = probes_find(probed->of, note->number);
	struct json_object *process;
	char text[sizeof(note->text)];

	if (!dump || !dump->due || !attached || note->ticket != dump->ticket)
		return;
	process = asked(dump, note->number, probed->pid);
	if (!process)
		return;
	memcpy(text, note->text, sizeof(text));
	text[sizeof(text) - 1] = 0;
	bf_plain(text);
	if (file >= 0 && !area_is_copy(attached->probe, file))
		settle(dump, attached, process, -1, PROBE_NO_COPY);
	else
		settle(dump, attached, process, bf_take_fd(&file), text);
	probed->of->vgpu->gpu->has_dump_done |= !dump->due;
}

/* The last copy of the process, if there is one, is its answer. */
void dump_gone(struct probed *probed)
{
	struct probe_dump *dump = probed->of->dump;
	struct attached_probe *a;

	if (!dump || !dump->due)
		return;
	LIST_FOREACH(a, &probed->of->attached, next) {
		struct json_object *process = asked(dump, a->number, probed->pid);
		const char *why = "it ended meanwhile";
		struct probe_copy *copy;
		int file = -1;

		if (!process)
			continue;
		TAILQ_FOREACH(copy, &a->copies, next)
			if (copy->pid == probed->pid) {
				why = copy->text[0] ? copy->text : why;
				file = again(copy);
			}
		json_add_bool(process, "ended", true);
		settle(dump, a, process, file, why);
	}
	probed->of->vgpu->gpu->has_dump_done |= !dump->due;
}

static void ask(struct vgpu_probes *probes, const struct attached_probe *attached, struct json_object *to)
{
	struct probe_dump *dump = probes->dump;
	struct probed *p;

	LIST_FOREACH(p, &probes->processes, next) {
		struct json_object *process;
		int rc;

		/* A process in its exit handlers: its last copy is in the answer already. */
		if (!probed_is_meant(p, attached) || p->last & attached->bit)
			continue;
		process = process_json(p->pid, p->program, true);
		json_object_array_add(to, process);
		json_add_bool(process, "due", true);
		dump->due++;
		rc = probed_send(p, PROBE_ORDER_DUMP, attached, dump->ticket);
		if (rc)
			settle(dump, attached, process, -1, "it does not read its orders");
	}
}

static void add_probe(struct vgpu_probes *probes, const struct attached_probe *attached)
{
	struct json_object *to = attached_json(attached), *processes = json_object_new_array();
	struct probe_copy *copy;

	json_add(to, "processes", processes);
	json_object_array_add(probes->dump->probes, to);
	TAILQ_FOREACH(copy, &attached->copies, next)
		add_copy(processes, attached, copy, probes->dump);
	ask(probes, attached, processes);
}

int dump_begin(struct vgpu_probes *probes, struct talker *talker, uint32_t number, struct bf_error *err)
{
	struct gpu *gpu = probes->vgpu->gpu;
	struct probe_dump *dump;
	struct attached_probe *a;

	if (probes->dump)
		return bf_fail(err, EBUSY, "%s: another dump is under way; try again", probes->vgpu->name);
	if (!probes->attached_count || (number && !probes_find(probes, number)))
		return bf_fail(err, ENOENT, "%s: it has no %s; belfry probe attach attaches one",
			       probes->vgpu->name, number ? "such probe" : "probes");
	dump = calloc(1, sizeof(*dump));
	if (!dump)
		return bf_fail(err, ENOMEM, "out of memory");
	*dump = (struct probe_dump){ .gpu = gpu,
				     .ticket = ++gpu->next_dump,
				     .start_ns = bf_now_ns(),
				     .until_ns = bf_now_ns() + PROBE_DUMP_MS * 1000000ull,
				     .talker = talker,
				     .number = number,
				     .bytes = (uint64_t)PROBE_DUMP_MIB << 20,
				     .entries = PROBE_ENTRIES,
				     .records = PROBE_RECORDS,
				     .probes = json_object_new_array() };
	snprintf(dump->vgpu_name, sizeof(dump->vgpu_name), "%s", probes->vgpu->name);
	LIST_INIT(&dump->answers);
	probes->dump = dump;
	talker->dump = probes;
	LIST_FOREACH(a, &probes->attached, next)
		if (!number || a->number == number)
			add_probe(probes, a);
	gpu->has_dump_done |= !dump->due;
	return 0;
}

static void give_up(struct probe_dump *dump)
{
	for (size_t i = 0; i < json_object_array_length(dump->probes); i++) {
		struct json_object *probe = json_object_array_get_idx(dump->probes, i), *processes, *due;

		json_object_object_get_ex(probe, "processes", &processes);
		for (size_t k = 0; k < json_object_array_length(processes); k++) {
			struct json_object *one = json_object_array_get_idx(processes, k);

			if (json_object_object_get_ex(one, "due", &due))
				settle(dump, NULL, one, -1, "it has not answered within 3 seconds");
		}
	}
}

void probes_drop_dump(struct talker *talker)
{
	dump_drop(talker->dump);
}

/* One reader at a time, for the oldest dump. */
static void read_next(const struct gpu *gpu)
{
	struct vgpu_probes *next = NULL;

	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		const struct probe_dump *dump = v->probing ? v->probing->dump : NULL;

		if (dump && dump->has_thread)
			return;
		if (dump && !dump->due && (!next || dump->ticket < next->dump->ticket))
			next = v->probing;
	}
	if (next && dump_read(next->dump))
		dump_fail(next, "no thread can be created to read the copies; try again");
}

static bool has_dumps(const struct gpu *gpu)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->probing && v->probing->dump)
			return true;
	return false;
}

void probes_look(struct gpu *gpu, uint64_t now_ns)
{
	uint64_t mirror_ns = mirror_due_ns(gpu);

	probes_look_link(gpu, now_ns);
	if (mirror_ns && mirror_ns <= now_ns) {
		gpu_lock(gpu);
		mirror_look(gpu, now_ns);
		gpu_unlock(gpu);
	}
	gpu->has_dump_done = false;
	if (mirrors_are_under_way(gpu)) {
		gpu_lock(gpu);
		mirror_settle(gpu);
		gpu_unlock(gpu);
	}
	if (!has_dumps(gpu))
		return;
	gpu_lock(gpu);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct probe_dump *dump = v->probing ? v->probing->dump : NULL;

		if (dump && dump->due && dump->until_ns <= now_ns)
			give_up(dump);
		if (dump && dump->is_read)
			finish(v->probing);
	}
	read_next(gpu);
	gpu_unlock(gpu);
}

uint64_t probes_due_ns(const struct gpu *gpu)
{
	uint64_t due = gpu->has_dump_done ? bf_now_ns() : gpu->probes_rest_ns, mirror_ns = mirror_due_ns(gpu);

	if (mirror_ns && (!due || mirror_ns < due))
		due = mirror_ns;
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->probing && v->probing->dump && v->probing->dump->due &&
		    (!due || v->probing->dump->until_ns < due))
			due = v->probing->dump->until_ns;
	return due;
}
