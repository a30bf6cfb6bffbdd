#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/own.h"

#define SUFFIX ".pod-"

enum { GIB_MAX = 1 << 20, POD_SHOWN = 40, DIGITS = 12 };

const char *attach_memory_mark(const char *gpu, unsigned gib, char *to, size_t room)
{
	snprintf(to, room, "memory@%s@%u", gpu, gib);
	return to;
}

const char *attach_time_mark(unsigned percent, bool is_limit, char *to, size_t room)
{
	snprintf(to, room, "time@%u:%u", percent, is_limit ? percent : 100);
	return to;
}

int attach_write_shares(const char *folder, const char *gpu, unsigned gib, struct bf_error *err)
{
	cleanup_close int fd = -1;
	char name[SPEC_NAME_MAX + 1];
	int rc = attach_make_folder(folder, err);

	if (rc)
		return rc;
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return bf_fail(err, errno, "%s: %s", folder, strerror(errno));
	for (unsigned i = 1; !rc && i <= gib && i <= GIB_MAX; i++)
		rc = attach_write_mark(fd, attach_memory_mark(gpu, i, name, sizeof(name)), err);
	for (unsigned i = 1; !rc && i <= 100; i++) {
		rc = attach_write_mark(fd, attach_time_mark(i, false, name, sizeof(name)), err);
		if (!rc)
			rc = attach_write_mark(fd, attach_time_mark(i, true, name, sizeof(name)), err);
	}
	return rc;
}

static int take_memory(const char *mark, struct attach_share *share, struct bf_error *err)
{
	const char *gpu = strchr(mark, '@'), *gib = gpu ? strchr(gpu + 1, '@') : NULL;
	unsigned long count = 0;

	if (gib && isdigit((unsigned char)gib[1]))
		count = strtoul(gib + 1, NULL, 10);
	if (strncmp(mark, "memory@", 7) != 0 || !count || count > GIB_MAX || gib == gpu + 1 ||
	    (size_t)(gib - gpu) > sizeof(share->gpu))
		return bf_fail(err, EINVAL, "%s: not a part of the memory of a GPU", mark);
	snprintf(share->gpu, sizeof(share->gpu), "%.*s", (int)(gib - gpu - 1), gpu + 1);
	share->spec.mem_bytes = (uint64_t)count << 30;
	share->parts |= SPEC_MEM;
	return 0;
}

int attach_find_share(struct json_object *config, const char *folder, struct attach_share *share,
		      struct bf_error *err)
{
	char memory[SPEC_NAME_MAX + 1], time[SPEC_NAME_MAX + 1];
	int rc = attach_find_mark(config, ATTACH_MEMORY, folder, memory, err);

	*share = (struct attach_share){ .spec = spec_default };
	if (!rc)
		rc = attach_find_mark(config, ATTACH_TIME, folder, time, err);
	if (rc || (!memory[0] && !time[0]))
		return rc;
	if (!memory[0])
		return bf_fail(
			err, EINVAL,
			"the container has belfry.dev/time-percent without belfry.dev/memory-gib; ask for both");
	rc = take_memory(memory, share, err);
	if (rc || !time[0])
		return rc;
	if (strncmp(time, "time@", 5) != 0)
		return bf_fail(err, EINVAL, "%s: not a part of the time of a GPU", time);
	return spec_parse(&share->spec, &share->parts, "time", time + 5, err);
}

static void suffix_of(const char *id, char to[sizeof(SUFFIX) + DIGITS])
{
	uint64_t hash = bf_hash_bytes(0, id, strlen(id));

	snprintf(to, sizeof(SUFFIX) + DIGITS, SUFFIX "%0*llx", DIGITS,
		 (unsigned long long)(hash & ((1ull << 4 * DIGITS) - 1)));
}

void attach_share_name(struct json_object *config, const char *id, char name[SPEC_NAME_MAX + 1])
{
	struct json_object *annotations = NULL;
	char suffix[sizeof(SUFFIX) + DIGITS], shown[POD_SHOWN + 1];
	const char *pod = NULL;

	if (json_object_object_get_ex(config, "annotations", &annotations) &&
	    json_object_is_type(annotations, json_type_object))
		pod = attach_pod_of(annotations);
	snprintf(shown, sizeof(shown), "%s", pod && *pod ? pod : "container");
	suffix_of(id, suffix);
	snprintf(name, SPEC_NAME_MAX + 1, "%s%s", shown, suffix);
	if (spec_check_name(name, NULL)) /* no pod of Kubernetes has such a name */
		snprintf(name, SPEC_NAME_MAX + 1, "container%s", suffix);
}

bool attach_is_share_name(const char *name, const char *id)
{
	char suffix[sizeof(SUFFIX) + DIGITS];
	const char *at = strlen(name) >= sizeof(suffix) ? name + strlen(name) - (sizeof(suffix) - 1) : NULL;

	if (!at || strncmp(at, SUFFIX, sizeof(SUFFIX) - 1) != 0)
		return false;
	if (!id)
		return strspn(at + sizeof(SUFFIX) - 1, "0123456789abcdef") == DIGITS;
	suffix_of(id, suffix);
	return !strcmp(at, suffix);
}

bool attach_is_claim_name(const char *name)
{
	const char *number = strrchr(name, '-');

	return !strncmp(name, "claim-", 6) && number && number - name > 12 &&
	       isdigit((unsigned char)number[1]);
}
