#include "client/event.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/json.h"
#include "base/text.h"

static const char *const names[EVENT_KINDS] = {
	[EVENT_VGPU_CREATED] = "vgpu_created",
	[EVENT_VGPU_CHANGED] = "vgpu_changed",
	[EVENT_VGPU_REMOVED] = "vgpu_removed",
	[EVENT_RUN_STARTED] = "run_started",
	[EVENT_RUN_ENDED] = "run_ended",
	[EVENT_MEMORY_REFUSED] = "memory_refused",
	[EVENT_TIME_LIMITED] = "time_limited",
	[EVENT_MPS_ENDED] = "mps_ended",
	[EVENT_FAULT] = "fault",
	[EVENT_POLICY_LOADED] = "policy_loaded",
	[EVENT_POLICY_UNLOADED] = "policy_unloaded",
	[EVENT_SERVER_STARTED] = "server_started",
	[EVENT_SERVER_ADOPTED] = "server_adopted",
	[EVENT_SERVER_DIED] = "server_died",
	[EVENT_SERVER_FAILED] = "server_failed",
	[EVENT_CONFIG_RELOADED] = "config_reloaded",
	[EVENT_CONFIG_REFUSED] = "config_refused",
};

const char *event_name(uint32_t kind)
{
	return kind < EVENT_KINDS ? names[kind] : "unknown";
}

int event_find(const char *name)
{
	for (int i = 0; i < EVENT_KINDS; i++)
		if (!strcmp(name, names[i]))
			return i;
	return -1;
}

struct event event_make(enum event_kind kind)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (struct event){ .kind = kind,
			       .at_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec };
}

void event_say(struct event *event, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(event->text, sizeof(event->text), format, args);
	va_end(args);
}

/* Programs choose their names: a line break would forge a line of what people and commands read. */
static void one_line(char *text)
{
	for (bf_plain(text); *text; text++)
		if (*text == '\n' || *text == '\t')
			*text = ' ';
}

bool event_check(struct event *event)
{
	event->gpu[sizeof(event->gpu) - 1] = 0;
	event->vgpu[sizeof(event->vgpu) - 1] = 0;
	event->subject[sizeof(event->subject) - 1] = 0;
	event->kind_of[sizeof(event->kind_of) - 1] = 0;
	event->id[sizeof(event->id) - 1] = 0;
	event->text[sizeof(event->text) - 1] = 0;
	one_line(event->gpu);
	one_line(event->vgpu);
	one_line(event->subject);
	one_line(event->kind_of);
	one_line(event->id);
	one_line(event->text);
	return event->kind < EVENT_KINDS;
}

bool event_is_for(const struct event *event, uid_t uid, uid_t daemon)
{
	if (uid == 0)
		return true;
	if (event->flags & EVENT_HAS_OWNER)
		return uid == event->owner;
	if (event->kind == EVENT_CONFIG_RELOADED || event->kind == EVENT_CONFIG_REFUSED)
		return uid == daemon;
	return true;
}

const char *event_time(const struct event *event, char *to, size_t room)
{
	time_t seconds = (time_t)(event->at_ns / 1000000000u);
	char day[24] = "";
	struct tm parts;

	if (gmtime_r(&seconds, &parts))
		strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(to, room, "%s.%06uZ", day, (unsigned)(event->at_ns % 1000000000u / 1000));
	return to;
}

static void add_status(struct json_object *to, const struct event *event)
{
	if (!(event->flags & EVENT_HAS_STATUS))
		return;
	if (WIFSIGNALED(event->status))
		json_add_number(to, "signal", (uint64_t)WTERMSIG(event->status));
	else
		json_add_number(to, "exit_status", (uint64_t)WEXITSTATUS(event->status));
}

static bool is_about_a_policy(const struct event *event)
{
	return event->kind == EVENT_POLICY_LOADED || event->kind == EVENT_POLICY_UNLOADED;
}

char *event_json(const struct event *event, size_t *bytes)
{
	struct json_object *to = json_object_new_object();
	char time[32];

	json_add_text(to, "time", event_time(event, time, sizeof(time)));
	json_add_number(to, "number", event->number);
	json_add_text(to, "event", event_name(event->kind));
	json_add_text(to, "gpu", event->gpu[0] ? event->gpu : NULL);
	json_add_text(to, "vgpu", event->vgpu[0] ? event->vgpu : NULL);
	json_add(to, "owner", event->flags & EVENT_HAS_OWNER ? json_object_new_uint64(event->owner) : NULL);
	if (event->pid > 0)
		json_add_number(to, "pid", (uint64_t)event->pid);
	if (event->subject[0])
		json_add_text(to, is_about_a_policy(event) ? "policy" : "program", event->subject);
	if (event->kind_of[0]) {
		json_add_text(to, "kind", event->kind_of);
		json_add_text(to, "id", event->id);
	}
	add_status(to, event);
	json_add_text(to, "text", event->text);
	return json_text(to, bytes);
}
