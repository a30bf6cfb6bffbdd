#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/inside.h"

static int copy_bytes(struct object *object, const void *bytes, size_t size, struct bf_error *err)
{
	object->bytes = malloc(size ? size : 1);
	if (!object->bytes)
		return bf_fail(err, ENOMEM, "not enough memory");
	memcpy(object->bytes, bytes, size);
	return 0;
}

static int open_bpf(struct object *object, size_t size, struct bf_error *err)
{
	struct bpf_object_open_opts options = { .sz = sizeof(options), .object_name = object->says.name };
	struct log_kept kept;
	int code;

	log_keep(&kept);
	object->bpf = bpf_object__open_mem(object->bytes, size, &options);
	code = errno;
	log_keep(NULL);
	if (object->bpf)
		return 0;
	return bf_fail(err, code ? code : EINVAL, "it cannot be read: %s",
		       kept.text[0] ? kept.text : strerror(code));
}

/* The hook that a section name refers to, or -1. */
static int hook_of(const char *section)
{
	static const char prefix[] = "belfry/";

	if (strncmp(section, prefix, sizeof(prefix) - 1))
		return -1;
	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (!strcmp(section + sizeof(prefix) - 1, policy_hook_name((enum belfry_hook)hook)))
			return hook;
	return -1;
}

static int take_program(struct object *object, struct bpf_program *program, struct bf_error *err)
{
	const char *name = bpf_program__name(program), *section = bpf_program__section_name(program);
	int hook = hook_of(section);

	if (hook < 0 && strncmp(section, "belfry/", strlen("belfry/")))
		return bf_fail(
			err, EINVAL,
			"program %.64s is in section %.64s; declare it as a hook, for example BELFRY_HOOK(pick)",
			name, section);
	if (hook < 0)
		return bf_fail(err, EINVAL, "program %.64s: there is no hook '%.64s'; see belfry/policy.h",
			       name, section + strlen("belfry/"));
	if (object->programs[hook])
		return bf_fail(err, EINVAL, "programs %.64s and %.64s are both for the hook %s",
			       bpf_program__name(object->programs[hook]), name,
			       policy_hook_name((enum belfry_hook)hook));
	/* The only program type that user space can call with a context of its own. The kernel requires it to
	 * be sleepable. */
	if (bpf_program__set_type(program, BPF_PROG_TYPE_SYSCALL) ||
	    bpf_program__set_flags(program, BPF_F_SLEEPABLE))
		return bf_fail(err, EINVAL, "program %.64s cannot be used as a hook", name);
	object->programs[hook] = program;
	return 0;
}

static int take_programs(struct object *object, struct bf_error *err)
{
	struct bpf_program *program;
	unsigned count = 0;

	bpf_object__for_each_program(program, object->bpf)
	{
		int rc = take_program(object, program, err);

		if (rc)
			return rc;
		count++;
	}
	return count ? 0 : bf_fail(err, EINVAL, "it has no hooks; write BELFRY_HOOK(pick) before a function");
}

int object_open(struct object *object, const void *bytes, size_t size, struct bf_error *err)
{
	int rc = elf_check(bytes, size, err);

	*object = (struct object){ 0 };
	if (!rc)
		rc = says_read(bytes, size, &object->says, err);
	if (!rc)
		rc = calls_check(bytes, size, err);
	if (!rc)
		rc = types_check(bytes, size, err);
	if (!rc)
		rc = copy_bytes(object, bytes, size, err);
	if (!rc)
		rc = open_bpf(object, size, err);
	if (!rc)
		rc = take_programs(object, err);
	if (!rc)
		rc = maps_check(object->bpf, &object->table, err);
	if (!rc)
		rc = bindings_read(object, bytes, size, err);
	if (rc)
		object_close(object);
	return rc;
}

/* calloc: pages of a log that stays empty are never touched. */
static int give_logs(struct object *object, struct bf_error *err)
{
	for (int hook = 0; hook < BELFRY_HOOKS; hook++) {
		if (!object->programs[hook])
			continue;
		object->logs[hook] = calloc(1, POLICY_LOG_BYTES);
		if (!object->logs[hook] ||
		    bpf_program__set_log_buf(object->programs[hook], object->logs[hook], POLICY_LOG_BYTES))
			return bf_fail(err, ENOMEM, "not enough memory for the verifier's log");
	}
	return 0;
}

static void take_logs(struct object *object)
{
	for (int hook = 0; hook < BELFRY_HOOKS; hook++) {
		if (object->programs[hook])
			bpf_program__set_log_buf(object->programs[hook], NULL, 0);
		free(object->logs[hook]);
		object->logs[hook] = NULL;
	}
}

/* Errors that do not depend on the program. */
static bool is_lack(int code)
{
	return code == EMFILE || code == ENFILE || code == ENOMEM || code == EPERM;
}

static int refused(const struct object *object, int code, const char *complaint, char **log,
		   struct bf_error *err)
{
	char reason[192];

	for (int hook = 0; hook < BELFRY_HOOKS; hook++) {
		if (!object->logs[hook] || !object->logs[hook][0])
			continue;
		log_reason(object->logs[hook], reason, sizeof(reason));
		if (!reason[0] && is_lack(code))
			continue;
		if (log)
			*log = log_readable(bpf_program__name(object->programs[hook]), object->logs[hook]);
		return bf_fail(err, code, "the kernel's verifier refuses program %.64s: %s",
			       bpf_program__name(object->programs[hook]),
			       reason[0] ? reason : strerror(code));
	}
	if (code == EPERM && policy_is_possible(err))
		return -EPERM;
	return bf_fail(err, code, "it cannot be loaded: %s", complaint[0] ? complaint : strerror(code));
}

int object_load(struct object *object, char **log, struct bf_error *err)
{
	struct log_kept kept;
	int rc = give_logs(object, err);

	if (!rc) {
		log_keep(&kept);
		rc = bpf_object__load(object->bpf);
		log_keep(NULL);
		if (rc)
			rc = refused(object, -rc, kept.text, log, err);
	}
	take_logs(object);
	free(object->bytes);
	object->bytes = NULL;
	return rc;
}

void object_close(struct object *object)
{
	take_logs(object);
	bpf_object__close(object->bpf);
	free(object->bytes);
	*object = (struct object){ 0 };
}

static void describe_maps(struct bpf_object *bpf, struct policy_description *description)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, bpf)
	{
		if (description->map_count == POLICY_MAPS_MAX)
			break;
		snprintf(description->maps[description->map_count++], sizeof(description->maps[0]),
			 "%.30s: %s of %u", bpf_map__name(map), maps_type_name(bpf_map__type(map)),
			 bpf_map__max_entries(map));
	}
}

int policy_describe(const void *object, size_t bytes, const char *const *sets, size_t set_count,
		    struct policy_description *description, struct bf_error *err)
{
	struct object opened;
	int rc = object_open(&opened, object, bytes, err);

	*description = (struct policy_description){ 0 };
	if (rc)
		return rc;
	description->policy = opened.says;
	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		if (opened.programs[hook])
			description->hooks |= 1u << hook;
	rc = tunables_set(opened.bpf, sets, set_count, err);
	description->tunable_count = tunables_list(opened.bpf, description->tunables, POLICY_TUNABLES_MAX);
	describe_maps(opened.bpf, description);
	object_close(&opened);
	return rc;
}
