#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "client/gather.h"
#include "dra/dra.h"

/* Names of Kubernetes: parts of a path that need no escapes. */
static bool is_name(const char *text, const char *more)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	size_t length = 0;

	while (text[length] && (strchr(letters, text[length]) || strchr(more, text[length])))
		length++;
	return length && !text[length] && text[0] != '.' && text[0] != '-';
}

int dra_check_claim(const struct dra_claim *claim, struct bf_error *err)
{
	if (!is_name(claim->uid, "") || !is_name(claim->space, "") || !is_name(claim->name, "."))
		return bf_fail(err, EINVAL,
			       "the kubelet has sent a claim without a valid name, namespace or UID");
	return 0;
}

void dra_name_vgpu(struct dra_claim *claim, size_t index)
{
	char uid[sizeof(claim->uid)];

	memcpy(uid, claim->uid, sizeof(uid));
	snprintf(claim->devices[index].vgpu, sizeof(claim->devices[index].vgpu), "claim-%s-%zu", uid,
		 index % DRA_DEVICES_MAX);
}

static int take_text(struct json_object *from, const char *key, char *to, size_t room, struct bf_error *err)
{
	const char *text = gather_text(from, key, "");

	if (!text[0] || strlen(text) >= room)
		return bf_fail(err, EPROTO, "the claim has a device without %s", key);
	snprintf(to, room, "%s", text);
	return 0;
}

/* A capacity of the driver's own may be written with the name of the driver. False: it is not there. */
static bool find_amount(struct json_object *amounts, const char *name, const char **text)
{
	char full[64];
	struct json_object *value = NULL;

	snprintf(full, sizeof(full), DRA_DRIVER "/%s", name);
	if (!json_object_object_get_ex(amounts, name, &value) &&
	    !json_object_object_get_ex(amounts, full, &value))
		return false;
	*text = json_object_get_string(value);
	return *text != NULL;
}

static int take_amounts(struct json_object *amounts, struct dra_device *device, struct bf_error *err)
{
	const char *text = "";
	double memory = 0, time = 0;

	if (!json_object_is_type(amounts, json_type_object))
		return 0;
	if (!find_amount(amounts, "memory", &text) || !dra_quantity(text, &memory) || memory < 1 ||
	    memory > 0x1p60)
		return bf_fail(err, EINVAL, "%s: memory '%.40s' of the claim: not an amount of memory",
			       device->device, text);
	if (find_amount(amounts, "time", &text) && (!dra_quantity(text, &time) || time > 100))
		return bf_fail(err, EINVAL, "%s: time '%.40s' of the claim: not a number from 0 to 100",
			       device->device, text);
	device->mem_bytes = (uint64_t)ceil(memory);
	device->time_ppm = (uint32_t)lround(time * SPEC_WHOLE_PPM / 100);
	return 0;
}

static int take_device(struct json_object *result, struct dra_claim *claim, struct bf_error *err)
{
	struct dra_device *device = &claim->devices[claim->count];
	int rc;

	if (claim->count == DRA_DEVICES_MAX)
		return bf_fail(err, E2BIG, "the claim has more than %d devices", DRA_DEVICES_MAX);
	*device = (struct dra_device){ .mem_bytes = 0 };
	rc = take_text(result, "request", device->request, sizeof(device->request), err);
	if (!rc)
		rc = take_text(result, "pool", device->pool, sizeof(device->pool), err);
	if (!rc)
		rc = take_text(result, "device", device->device, sizeof(device->device), err);
	if (!rc)
		rc = take_amounts(gather_at(result, "consumedCapacity"), device, err);
	if (rc)
		return rc;
	dra_name_vgpu(claim, claim->count++);
	return 0;
}

int dra_read_claim(struct json_object *object, struct dra_claim *claim, struct bf_error *err)
{
	struct json_object *results = gather_at(object, "status.allocation.devices.results");
	int rc = 0;

	claim->count = 0;
	/* A claim of the same name may have been made again since. */
	if (strcmp(gather_text(object, "metadata.uid", ""), claim->uid) != 0)
		return bf_fail(err, ESTALE, "the claim %s/%s has another UID than %s", claim->space,
			       claim->name, claim->uid);
	if (!json_object_is_type(results, json_type_array))
		return bf_fail(err, ENODEV, "the claim %s/%s is not allocated", claim->space, claim->name);
	for (size_t i = 0; !rc && i < json_object_array_length(results); i++) {
		struct json_object *result = json_object_array_get_idx(results, i);

		if (!strcmp(gather_text(result, "driver", ""), DRA_DRIVER))
			rc = take_device(result, claim, err);
	}
	if (!rc && !claim->count)
		rc = bf_fail(err, ENODEV, "the claim %s/%s has no device of " DRA_DRIVER, claim->space,
			     claim->name);
	return rc;
}
