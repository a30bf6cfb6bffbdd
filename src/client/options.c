#include "client/options.h"

#include <errno.h>
#include <string.h>

#include "base/units.h"

enum { GPU_INDEX_MAX = 253 };

/* "0", "soft", "soft:1". */
static int read_gpu(struct protocol_request *request, const char *text, struct bf_error *err)
{
	bool is_soft = !strncmp(text, "soft", 4);
	const char *number = text;
	long index = 0;

	if (is_soft)
		number = text[4] == ':' ? text + 5 : text[4] ? text : "0";
	if (bf_parse_number("gpu", number, 0, GPU_INDEX_MAX, &index, NULL))
		return bf_fail(err, EINVAL, "gpu '%.40s': not a number from 0 to %d, soft, or soft:NUMBER",
			       text, GPU_INDEX_MAX);
	request->gpu.kind = is_soft ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV;
	request->gpu.index = (uint32_t)index;
	return 0;
}

static int read_folder(struct protocol_request *request, const char *text, struct bf_error *err)
{
	size_t length = strlen(text);

	if (*text != '/' || length >= sizeof(request->gpu.folder))
		return bf_fail(err, EINVAL,
			       "folder '%.40s': not a path from / on with at most %zu characters", text,
			       sizeof(request->gpu.folder) - 1);
	memcpy(request->gpu.folder, text, length + 1);
	return 0;
}

/* A number only: resolving a name may take longer than the time limit of the request. */
static int read_owner(struct protocol_request *request, const char *text, struct bf_error *err)
{
	long number;
	int rc = bf_parse_number("owner", text, 0, (long)UINT32_MAX - 1, &number, err);

	if (rc)
		return rc;
	request->owner = (uint32_t)number;
	request->flags |= PROTOCOL_OWNER;
	return 0;
}

static int read_any_driver(struct protocol_request *request, const char *text, struct bf_error *err)
{
	if (!strcmp(text, "yes"))
		request->flags |= PROTOCOL_ANY_DRIVER;
	else if (!strcmp(text, "no"))
		request->flags &= ~(uint32_t)PROTOCOL_ANY_DRIVER;
	else
		return bf_fail(err, EINVAL, "any-driver '%.40s': not yes or no", text);
	return 0;
}

/* The keys of PROTOCOL_CREATE only, besides the parts of a spec. */
static const struct {
	const char *key;
	int (*read)(struct protocol_request *request, const char *text, struct bf_error *err);
} placing[] = {
	{ "gpu", read_gpu },
	{ "folder", read_folder },
	{ "owner", read_owner },
	{ "any-driver", read_any_driver },
};

static int read_one(struct protocol_request *request, const char *key, const char *value,
		    struct bf_error *err)
{
	for (size_t i = 0; i < sizeof(placing) / sizeof(placing[0]); i++) {
		if (strcmp(key, placing[i].key) != 0)
			continue;
		if (request->op != PROTOCOL_CREATE)
			return bf_fail(err, EINVAL,
				       "'%s': it cannot be changed; give it when you create the vGPU", key);
		return placing[i].read(request, value, err);
	}
	return spec_parse(&request->spec, &request->parts, key, value, err);
}

static int check_whole(const struct protocol_request *request, struct bf_error *err)
{
	if (request->op != PROTOCOL_CREATE)
		return request->parts ? 0 : bf_fail(err, EINVAL, "nothing to change was given");
	if (request->gpu.folder[0] && request->gpu.kind != PROTOCOL_GPU_SOFT)
		return bf_fail(err, EINVAL,
			       "folder '%.40s': only a software GPU has one; give gpu soft:NUMBER as well",
			       request->gpu.folder);
	return spec_check(&request->spec, err);
}

int options_read(const char *const *options, struct protocol_request *request, struct bf_error *err)
{
	unsigned count = 0;

	for (; options && *options; options += 2) {
		int rc;

		if (++count > OPTIONS_MAX)
			return bf_fail(err, EINVAL,
				       "more than %d options, or a list that does not end with NULL",
				       OPTIONS_MAX);
		if (!options[1])
			return bf_fail(err, EINVAL, "option '%.40s' is without its value", options[0]);
		rc = read_one(request, options[0], options[1], err);
		if (rc)
			return rc;
	}
	return check_whole(request, err);
}
