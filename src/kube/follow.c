#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "client/gather.h"
#include "kube/plugin.h"

enum { EVERY_S = 1, LIMIT_MS = 5000, UNUSED_S = 120, UNUSED_MAX = 256 };

/* vGPUs of containers without a run, and since when. A container is started at once after it was created. One that was
 * killed in between, with its runtime, leaves such a vGPU. */
struct unused {
	char name[SPEC_NAME_MAX + 1];
	uint64_t since_ns;
};
struct follow {
	pthread_t thread;
	int reports, pipe; /* the read end and the write end of one pipe */
	int stop;	   /* an eventfd */
	struct unused unused[UNUSED_MAX];
	size_t count;
};

static bool is_unused(struct json_object *vgpu)
{
	struct json_object *runs = gather_at(vgpu, "runs");

	return attach_is_share_name(gather_text(vgpu, "name", ""), NULL) &&
	       json_object_get_boolean(gather_at(vgpu, "ephemeral")) &&
	       json_object_is_type(runs, json_type_array) && !json_object_array_length(runs);
}

static uint64_t since(const struct unused *unused, size_t count, const char *name, uint64_t now_ns)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(unused[i].name, name))
			return unused[i].since_ns;
	return now_ns;
}

static void remove_vgpu(const char *name)
{
	struct protocol_request request = talk_request(PROTOCOL_REMOVE, name);
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	if (talk_by(&(struct talk_way){ .limit_ms = LIMIT_MS }, &request, &reply, NULL, &err))
		bf_log(BF_LOG_WARN, "%s: %s", name, err.text);
	else
		bf_log(BF_LOG_WARN, "%s: removed: its container was not started within %d s", name, UNUSED_S);
}

static void sweep(struct follow *follow, struct json_object *report)
{
	struct json_object *vgpus = gather_at(report, "vgpus");
	struct unused now[UNUSED_MAX] = { 0 };
	uint64_t now_ns = bf_now_ns();
	size_t count = 0;

	for (size_t i = 0; json_object_is_type(vgpus, json_type_array) && i < json_object_array_length(vgpus);
	     i++) {
		struct json_object *vgpu = json_object_array_get_idx(vgpus, i);
		const char *name = gather_text(vgpu, "name", "");

		if (count == UNUSED_MAX || !is_unused(vgpu))
			continue;
		now[count].since_ns = since(follow->unused, follow->count, name, now_ns);
		snprintf(now[count].name, sizeof(now[count].name), "%s", name);
		if (now_ns - now[count].since_ns > UNUSED_S * 1000000000ull)
			remove_vgpu(name);
		count++;
	}
	memcpy(follow->unused, now, count * sizeof(now[0]));
	follow->count = count;
}

static bool must_stop(const struct follow *self, int wait_ms)
{
	struct pollfd fd = { self->stop, POLLIN, 0 };

	return poll(&fd, 1, wait_ms) > 0;
}

static void *follow(void *context)
{
	struct follow *self = context;

	do {
		struct follow_report report = { NULL };

		gather_report(&(struct talk_way){ .limit_ms = LIMIT_MS }, NULL, &report.object, NULL);
		if (report.object)
			sweep(self, report.object);
		if (write(self->pipe, &report, sizeof(report)) != (ssize_t)sizeof(report))
			json_object_put(report.object);
	} while (!must_stop(self, EVERY_S * 1000));
	return NULL;
}

struct follow *follow_start(int *reports, struct bf_error *err)
{
	struct follow *self = calloc(1, sizeof(*self));
	int ends[2], rc;

	if (!self || pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
		bf_fail(err, errno, "a pipe: %s", strerror(errno));
		free(self);
		return NULL;
	}
	*reports = self->reports = ends[0];
	self->pipe = ends[1];
	self->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = self->stop < 0 ? errno : pthread_create(&self->thread, NULL, follow, self);
	if (!rc)
		return self;
	bf_fail(err, rc, "a thread: %s", strerror(rc));
	close(ends[0]);
	close(ends[1]);
	free(self);
	return NULL;
}

void follow_stop(struct follow *self)
{
	const uint64_t one = 1;
	struct follow_report report;

	if (write(self->stop, &one, sizeof(one)) != (ssize_t)sizeof(one))
		return;
	pthread_join(self->thread, NULL);
	while (read(self->reports, &report, sizeof(report)) == (ssize_t)sizeof(report))
		json_object_put(report.object);
	close(self->reports);
	close(self->pipe);
	close(self->stop);
	free(self);
}
