/* Recent events, kept in a ring and written in a format that Perfetto opens: a track for each vGPU, with its tokens,
 * waits and stops. The text is written by hand: json-c would hold an object for each event. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/policy.h"

int trace_open(struct trace *trace)
{
	size_t bytes = GPU_TRACE_EVENTS * sizeof(*trace->events);

	trace->events = malloc(bytes);
	if (!trace->events)
		return -ENOMEM;
	/* Touch all pages now, so that memory that grows later is a leak. (The compiler turns malloc and memset into
	 * calloc, which touches no pages.) */
	explicit_bzero(trace->events, bytes);
	return 0;
}

void trace_close(struct trace *trace)
{
	free(trace->events);
	free(trace->names);
}

/* Names outlive their vGPUs, because the ring may refer to them. The oldest are dropped. */
void trace_name(struct vgpu *vgpu)
{
	enum { NAMES_MAX = 4096 };
	struct trace *trace = &vgpu->gpu->trace;

	if (trace->name_count == NAMES_MAX) {
		memmove(trace->names, trace->names + NAMES_MAX / 2, NAMES_MAX / 2 * sizeof(*trace->names));
		trace->name_count = NAMES_MAX / 2;
	}
	if (trace->name_count == trace->name_room) {
		size_t room = trace->name_room ? 2 * trace->name_room : 64;
		struct trace_name *names = realloc(trace->names, room * sizeof(*names));

		if (!names)
			return; /* the track has its number only */
		trace->names = names;
		trace->name_room = room;
	}
	trace->names[trace->name_count].track = vgpu->track;
	trace->names[trace->name_count].owner = vgpu->owner;
	memcpy(trace->names[trace->name_count++].name, vgpu->name, sizeof(vgpu->name));
}

void gpu_trace(struct vgpu *vgpu, enum trace_kind kind, uint64_t at_ns, uint64_t value)
{
	struct trace *trace = &vgpu->gpu->trace;

	trace->events[trace->count++ % GPU_TRACE_EVENTS] =
		(struct trace_event){ at_ns, value, vgpu->track, kind };
}

/* The open spans of a vGPU while the ring is read. */
struct track {
	uint32_t number;
	bool is_hidden; /* another user's */
	uint64_t open_ns, wait_ns, stop_ns, run_ns;
};

struct writer {
	FILE *to;
	const struct trace *trace;
	const uid_t *owner; /* the owner of the vGPUs to write; NULL: all vGPUs */
	struct track *tracks;
	size_t count, room;
	bool is_first;
};

static bool is_hidden(const struct writer *writer, uint32_t number)
{
	if (!writer->owner)
		return false;
	for (size_t i = 0; i < writer->trace->name_count; i++)
		if (writer->trace->names[i].track == number)
			return writer->trace->names[i].owner != *writer->owner;
	return true;
}

static struct track *track_of(struct writer *writer, uint32_t number)
{
	for (size_t i = 0; i < writer->count; i++)
		if (writer->tracks[i].number == number)
			return &writer->tracks[i];
	if (writer->count == writer->room) {
		size_t room = writer->room ? 2 * writer->room : 64;
		struct track *tracks = realloc(writer->tracks, room * sizeof(*tracks));

		if (!tracks)
			return NULL;
		writer->tracks = tracks;
		writer->room = room;
	}
	writer->tracks[writer->count] =
		(struct track){ .number = number, .is_hidden = is_hidden(writer, number) };
	return &writer->tracks[writer->count++];
}

static const char *comma(struct writer *writer)
{
	const char *text = writer->is_first ? "" : ",\n";

	writer->is_first = false;
	return text;
}

/* Write a span from `*since` to `until`, if its start is in the ring. Each kind has a line of its own below the vGPU. */
static void span(struct writer *writer, const struct track *track, const char *what, unsigned line,
		 uint64_t *since, uint64_t until)
{
	if (*since && until > *since)
		fprintf(writer->to,
			"%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f}",
			comma(writer), what, track->number, line, (double)*since / 1e3,
			(double)(until - *since) / 1e3);
	*since = 0;
}

static void instant(struct writer *writer, const struct trace_event *event, const char *what)
{
	fprintf(writer->to,
		"%s{\"name\":\"%s\",\"ph\":\"i\",\"s\":\"t\",\"pid\":%u,\"tid\":1,\"ts\":%.3f,\"args\":{\"value\":%llu}}",
		comma(writer), what, event->track, (double)event->at_ns / 1e3,
		(unsigned long long)event->value);
}

enum { LINE_TOKEN = 1, LINE_WORK, LINE_WAIT, LINE_STOP };

static void end_spans(struct writer *writer, struct track *track, uint64_t at_ns)
{
	span(writer, track, "token", LINE_TOKEN, &track->open_ns, at_ns);
	span(writer, track, "work", LINE_WORK, &track->run_ns, at_ns);
	span(writer, track, "waits", LINE_WAIT, &track->wait_ns, at_ns);
	span(writer, track, "stopped", LINE_STOP, &track->stop_ns, at_ns);
}

static void write_event(struct writer *writer, struct track *track, const struct trace_event *event)
{
	switch (event->kind) {
	case TRACE_OPEN:
		track->open_ns = event->at_ns;
		span(writer, track, "waits", LINE_WAIT, &track->wait_ns, event->at_ns);
		span(writer, track, "stopped", LINE_STOP, &track->stop_ns, event->at_ns);
		break;
	case TRACE_CLOSE:
		span(writer, track, "token", LINE_TOKEN, &track->open_ns, event->at_ns);
		break;
	case TRACE_STOP:
		track->stop_ns = event->at_ns;
		break;
	case TRACE_RESUME:
		span(writer, track, "stopped", LINE_STOP, &track->stop_ns, event->at_ns);
		break;
	case TRACE_WAIT:
		track->wait_ns = event->at_ns;
		break;
	case TRACE_RUN:
		track->run_ns = event->at_ns;
		break;
	case TRACE_DONE:
		span(writer, track, "work", LINE_WORK, &track->run_ns, event->at_ns);
		break;
	case TRACE_SLICE:
		instant(writer, event, "timeslice (us)");
		break;
	case TRACE_SET:
		instant(writer, event, "set (request, ppm)");
		break;
	case TRACE_HERE:
		instant(writer, event, "created");
		break;
	case TRACE_FAULT:
		instant(writer, event, "fault (Xid)");
		break;
	case TRACE_GONE:
		end_spans(writer, track, event->at_ns);
		instant(writer, event, "removed");
		break;
	}
}

static void write_names(struct writer *writer)
{
	static const char *const lines[] = { NULL, "token", "work", "waits", "stopped" };

	for (size_t i = 0; i < writer->trace->name_count; i++) {
		const struct trace_name *name = &writer->trace->names[i];

		if (writer->owner && name->owner != *writer->owner)
			continue;
		fprintf(writer->to,
			"%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":\"%s\"}}",
			comma(writer), name->track, name->name);
		for (unsigned line = LINE_TOKEN; line <= LINE_STOP; line++)
			fprintf(writer->to,
				"%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s\"}}",
				comma(writer), name->track, line, lines[line]);
	}
}

char *gpu_trace_text(struct gpu *gpu, const uid_t *owner, size_t *bytes)
{
	const struct trace *trace = &gpu->trace;
	uint64_t now_ns = bf_now_ns(),
		 first = trace->count > GPU_TRACE_EVENTS ? trace->count - GPU_TRACE_EVENTS : 0;
	struct writer writer = { .trace = trace, .owner = owner, .is_first = true };
	char *text = NULL;

	writer.to = open_memstream(&text, bytes);
	if (!writer.to)
		return NULL;
	fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", writer.to);
	write_names(&writer);
	for (uint64_t n = first; n < trace->count; n++) {
		const struct trace_event *event = &trace->events[n % GPU_TRACE_EVENTS];
		struct track *track = track_of(&writer, event->track);

		if (track && !track->is_hidden)
			write_event(&writer, track, event);
	}
	for (size_t i = 0; i < writer.count; i++) /* open spans end now */
		end_spans(&writer, &writer.tracks[i], now_ns);
	if (!owner)
		decisions_write(writer.to, gpu, writer.is_first);
	fprintf(writer.to, "\n],\"otherData\":{\"events_ever\":%llu}}\n", (unsigned long long)trace->count);
	free(writer.tracks);
	if (fclose(writer.to)) {
		free(text);
		return NULL;
	}
	return text;
}
