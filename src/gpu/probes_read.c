/* Reads the copies of a dump, and writes its answer. This takes as long as processes have filled their areas, so a thread
 * without a lock does it: one at a time, for the oldest dump that has all its copies. While it runs, the main thread does not
 * touch probe_dump::probes, and no probe of the vGPU is detached. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/json.h"
#include "base/own.h"
#include "gpu/probes.h"

/* A copy that is to be read. */
struct probe_answer {
	const struct probe *probe;
	int file;
	struct json_object *process;   /* in probe_dump::probes */
	LIST_ENTRY(probe_answer) next; /* probe_dump::answers */
};

int dump_add(struct probe_dump *dump, const struct attached_probe *attached, struct json_object *process,
	     int fd)
{
	cleanup_close int file = fd;
	struct probe_answer *answer = file < 0 ? NULL : calloc(1, sizeof(*answer));

	if (!answer)
		return -1;
	*answer = (struct probe_answer){ .probe = attached->probe,
					 .file = bf_take_fd(&file),
					 .process = process };
	LIST_INSERT_HEAD(&dump->answers, answer, next);
	return 0;
}

static void drop_first(struct probe_dump *dump)
{
	struct probe_answer *answer = LIST_FIRST(&dump->answers);

	LIST_REMOVE(answer, next);
	bf_close_fd(&answer->file);
	free(answer);
}

static void read_first(struct probe_dump *dump)
{
	const struct probe_answer *answer = LIST_FIRST(&dump->answers);
	uint64_t bytes = probe_area_bytes(answer->probe);
	struct json_object *area = NULL;
	char text[80];
	const char *why = text;

	snprintf(text, sizeof(text), "left out: a dump reads at most %d MiB of copies", PROBE_DUMP_MIB);
	if (bytes <= dump->bytes) {
		dump->bytes -= bytes;
		area = area_json(answer->probe, answer->file, dump, &why);
	}
	json_add(answer->process, "area", area);
	json_add_text(answer->process, "why", area ? NULL : why);
	drop_first(dump);
}

static void *reader_main(void *arg)
{
	struct probe_dump *dump = arg;
	struct json_object *top = json_object_new_object();

	prctl(PR_SET_NAME, "belfry-dump");
	json_add_text(top, "vgpu", dump->vgpu_name);
	while (!LIST_EMPTY(&dump->answers) && !dump->is_dropped)
		read_first(dump);
	json_add(top, "probes", dump->probes);
	dump->probes = NULL;
	if (dump->is_dropped)
		json_object_put(top);
	else
		dump->body = json_text(top, &dump->body_bytes);
	dump->is_read = true;
	gpu_wake(dump->gpu);
	return NULL;
}

int dump_read(struct probe_dump *dump)
{
	int rc = pthread_create(&dump->thread, NULL, reader_main, dump);

	dump->has_thread = !rc;
	return -rc;
}

void dump_end(struct probe_dump *dump)
{
	dump->is_dropped = true;
	if (dump->has_thread)
		pthread_join(dump->thread, NULL);
	while (!LIST_EMPTY(&dump->answers))
		drop_first(dump);
	json_object_put(dump->probes);
	free(dump->body);
	free(dump);
}
