/* Belfry's filter in the words of the OCI runtime specification. It notifies of the same calls as warden/filter.c. A
 * profile allows or denies by default, and libseccomp gives an unconditional rule of a system call precedence over a
 * conditional one. So for these calls the unconditional "allow" of the profile is replaced by conditional rules that do
 * not overlap: the calls that are notified, and where the default is to deny, the calls that are allowed. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "attach/attach.h"
#include "base/json.h"

#if defined(__x86_64__)
#define NATIVE "SCMP_ARCH_X86_64"
#elif defined(__aarch64__)
#define NATIVE "SCMP_ARCH_AARCH64"
#else
#error "which architecture of libseccomp is this?"
#endif

#define ALLOW "SCMP_ACT_ALLOW"
#define NOTIFY "SCMP_ACT_NOTIFY"

enum { OPEN_MASK = O_ACCMODE | O_CREAT | O_DIRECTORY, IOCTL_SIZE_BITS = 0x3fff0000 };

static void add(struct json_object *list, struct json_object *value)
{
	if (list)
		json_object_array_add(list, value);
	else
		json_object_put(value);
}

static const char *text_of(struct json_object *object, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(object, key, &value) ? json_object_get_string(value) : NULL;
}

static struct json_object *list_of(struct json_object *object, const char *key)
{
	struct json_object *value = NULL;

	if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, json_type_array))
		return NULL;
	return value;
}

static size_t length_of(struct json_object *list)
{
	return list ? json_object_array_length(list) : 0;
}

/* A rule for one system call: if argument `index`, masked, has this value. */
static void add_rule(struct json_object *rules, const char *name, const char *action, unsigned index,
		     uint64_t mask, uint64_t value)
{
	struct json_object *rule = json_object_new_object(), *names = json_object_new_array(),
			   *args = json_object_new_array(), *arg = json_object_new_object();

	add(names, json_object_new_string(name));
	json_add_number(arg, "index", index);
	json_add_number(arg, "value", mask);
	json_add_number(arg, "valueTwo", value);
	json_add_text(arg, "op", "SCMP_CMP_MASKED_EQ");
	add(args, arg);
	json_add(rule, "names", names);
	json_add_text(rule, "action", action);
	json_add(rule, "args", args);
	add(rules, rule);
}

/* Notified: small numbers, and numbers with size bits. Allowed: no size bits, and one of the other high bits. */
static void add_ioctl(struct json_object *rules, const char *name, bool adds_allowed)
{
	add_rule(rules, name, NOTIFY, 1, 0xffffff80u, 0);
	for (unsigned bit = 16; bit < 30; bit++)
		add_rule(rules, name, NOTIFY, 1, 1u << bit, 1u << bit);
	for (unsigned bit = 7; adds_allowed && bit < 32; bit++)
		if (bit < 16 || bit >= 30)
			add_rule(rules, name, ALLOW, 1, IOCTL_SIZE_BITS | 1u << bit, 1u << bit);
}

static void add_mmap(struct json_object *rules, const char *name, bool adds_allowed)
{
	const unsigned mask = MAP_SHARED | MAP_ANONYMOUS;

	add_rule(rules, name, NOTIFY, 3, mask, MAP_SHARED);
	if (!adds_allowed)
		return;
	add_rule(rules, name, ALLOW, 3, mask, 0);
	add_rule(rules, name, ALLOW, 3, mask, MAP_ANONYMOUS);
	add_rule(rules, name, ALLOW, 3, mask, mask);
}

static void add_open_flags(struct json_object *rules, const char *name, unsigned index, bool adds_allowed)
{
	add_rule(rules, name, NOTIFY, index, OPEN_MASK, O_RDWR);
	for (unsigned flags = 0; adds_allowed && flags <= OPEN_MASK; flags++)
		if ((flags & OPEN_MASK) == flags && flags != O_RDWR)
			add_rule(rules, name, ALLOW, index, OPEN_MASK, flags);
}

static void add_openat(struct json_object *rules, const char *name, bool adds_allowed)
{
	add_open_flags(rules, name, 2, adds_allowed);
}

static void add_open(struct json_object *rules, const char *name, bool adds_allowed)
{
	add_open_flags(rules, name, 1, adds_allowed);
}

static const struct {
	const char *name;
	void (*add)(struct json_object *rules, const char *name, bool adds_allowed);
} calls[] = {
	{ "ioctl", add_ioctl },
	{ "mmap", add_mmap },
	{ "openat", add_openat },
	{ "open", add_open },
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static bool is_allowing(const char *action)
{
	return action && (!strcmp(action, ALLOW) || !strcmp(action, "SCMP_ACT_LOG"));
}

static int find_name(struct json_object *names, const char *name)
{
	for (size_t i = 0; i < length_of(names); i++) {
		const char *one = json_object_get_string(json_object_array_get_idx(names, i));

		if (one && !strcmp(one, name))
			return (int)i;
	}
	return -1;
}

/* What the profile says of a call without conditions, removed from it if it allows. *is_allowed stays as it is if the
 * profile does not name the call. */
static int take_call(struct json_object *rules, const char *name, bool *is_allowed, struct bf_error *err)
{
	for (size_t i = 0; i < length_of(rules); i++) {
		struct json_object *rule = json_object_array_get_idx(rules, i),
				   *names = list_of(rule, "names");
		int at = find_name(names, name);

		if (at < 0)
			continue;
		if (length_of(list_of(rule, "args")))
			return bf_fail(
				err, ENOTSUP,
				"the seccomp profile has conditions for %s, which Belfry's filter needs; use a "
				"profile without them",
				name);
		*is_allowed = is_allowing(text_of(rule, "action"));
		for (; *is_allowed && at >= 0; at = find_name(names, name))
			json_object_array_del_idx(names, (size_t)at, 1);
	}
	return 0;
}

/* runc and crun refuse rules without names. */
static void drop_empty(struct json_object *rules)
{
	for (size_t i = length_of(rules); i-- > 0;)
		if (!length_of(list_of(json_object_array_get_idx(rules, i), "names")))
			json_object_array_del_idx(rules, i, 1);
}

/* It would change a mapping without an mmap; it is obsolete. */
static int deny_remap(struct json_object *rules, bool is_default_allowing, struct bf_error *err)
{
	struct json_object *rule, *names;
	bool is_allowed = is_default_allowing;
	int rc = take_call(rules, "remap_file_pages", &is_allowed, err);

	if (rc || !is_default_allowing || !is_allowed)
		return rc;
	rule = json_object_new_object();
	names = json_object_new_array();
	add(names, json_object_new_string("remap_file_pages"));
	json_add(rule, "names", names);
	json_add_text(rule, "action", "SCMP_ACT_ERRNO");
	json_add_number(rule, "errnoRet", ENOSYS);
	add(rules, rule);
	return 0;
}

static int edit_rules(struct json_object *rules, bool is_default_allowing, struct bf_error *err)
{
	for (unsigned i = 0; i < CALLS; i++) {
		bool is_allowed = is_default_allowing;
		int rc = take_call(rules, calls[i].name, &is_allowed, err);

		if (rc)
			return rc;
		if (is_allowed)
			calls[i].add(rules, calls[i].name, !is_default_allowing);
	}
	return deny_remap(rules, is_default_allowing, err);
}

/* A filter can have one listener, and a tracer could change calls after they were checked. */
static int check_actions(struct json_object *profile, struct bf_error *err)
{
	struct json_object *rules = list_of(profile, "syscalls");
	const char *action = text_of(profile, "defaultAction"), *path = text_of(profile, "listenerPath");
	size_t i = 0;

	if (path && *path)
		return bf_fail(err, EBUSY, "the seccomp profile has a listener already: %s", path);
	do {
		if (action && (!strcmp(action, NOTIFY) || !strcmp(action, "SCMP_ACT_TRACE")))
			return bf_fail(
				err, EBUSY,
				"the seccomp profile has the action %s; a container on a vGPU cannot have "
				"another supervisor",
				action);
		action = i < length_of(rules) ? text_of(json_object_array_get_idx(rules, i), "action") : NULL;
	} while (i++ < length_of(rules));
	return 0;
}

/* Calls of other architectures would bypass the filter: libseccomp kills those of architectures that are not listed. */
static void set_native(struct json_object *profile)
{
	struct json_object *architectures = json_object_new_array();

	add(architectures, json_object_new_string(NATIVE));
	json_add(profile, "architectures", architectures);
}

static void add_flag(struct json_object *profile, const char *flag)
{
	struct json_object *flags = list_of(profile, "flags");

	if (!flags) {
		flags = json_object_new_array();
		json_add(profile, "flags", flags);
	}
	if (find_name(flags, flag) < 0)
		add(flags, json_object_new_string(flag));
}

int attach_edit_profile(struct json_object **profile, const struct attach_listener *listener,
			struct bf_error *err)
{
	struct json_object *rules;
	int rc;

	if (!*profile) {
		*profile = json_object_new_object();
		json_add_text(*profile, "defaultAction", ALLOW);
	}
	if (!json_object_is_type(*profile, json_type_object) || !text_of(*profile, "defaultAction"))
		return bf_fail(err, EINVAL, "the seccomp profile has no defaultAction");
	rc = check_actions(*profile, err);
	if (rc)
		return rc;
	rules = list_of(*profile, "syscalls");
	if (!rules) {
		rules = json_object_new_array();
		json_add(*profile, "syscalls", rules);
	}
	rc = edit_rules(rules, is_allowing(text_of(*profile, "defaultAction")), err);
	if (rc)
		return rc;
	drop_empty(rules);
	set_native(*profile);
	if (listener->waits_killable)
		add_flag(*profile, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV");
	json_add_text(*profile, "listenerPath", listener->path);
	json_add_text(*profile, "listenerMetadata", listener->metadata);
	return 0;
}
