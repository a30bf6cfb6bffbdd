#include "router/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "base/own.h"
#include "client/talk.h"
#include "router/promises.h"
#include "warden/device.h"

struct check {
	const struct check_options *options;
	struct router_room rooms[CONFIG_GPUS_MAX];
};

static int where(void *context, const struct config_vgpu *vgpu, struct spec *spec)
{
	const struct check_options *options = ((const struct check *)context)->options;

	(void)spec;
	if (vgpu->gpu.kind == PROTOCOL_GPU_ANY)
		return options->gpu_count ? PROMISES_ANYWHERE : PROMISES_UNKNOWN;
	for (unsigned i = 0; i < options->gpu_count; i++)
		if (options->gpus[i].kind == vgpu->gpu.kind && options->gpus[i].index == vgpu->gpu.index)
			return (int)i;
	return PROMISES_UNKNOWN;
}

/* The reply of a running belfryd to PROTOCOL_HELLO; NULL: none runs, or it does not answer. */
static struct json_object *ask_daemon(const char *path)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct talk_place place = { .is_private = false };
	struct protocol_reply reply;
	cleanup_free char *body = NULL;
	cleanup_close int sock = -1;

	if (path)
		snprintf(place.path, sizeof(place.path), "%s", path);
	else if (talk_find(&place, NULL))
		return NULL;
	sock = talk_connect(&place, NULL);
	if (sock < 0 || talk_ask(sock, &request, &reply, &body, NULL) || !body)
		return NULL;
	return json_tokener_parse(body);
}

static const char *text_at(struct json_object *object, const char *key)
{
	struct json_object *at = NULL;

	json_object_object_get_ex(object, key, &at);
	return json_object_is_type(at, json_type_string) ? json_object_get_string(at) : "";
}

static uint64_t number_at(struct json_object *object, const char *key)
{
	struct json_object *at = NULL;

	json_object_object_get_ex(object, key, &at);
	return json_object_is_type(at, json_type_int) ? json_object_get_uint64(at) : 0;
}

/* The memory of a GPU according to belfryd; 0: not known. */
static uint64_t told_bytes(struct json_object *hello, const struct protocol_gpu *gpu)
{
	struct json_object *gpus = NULL;

	if (!json_object_is_type(hello, json_type_object) ||
	    !json_object_object_get_ex(hello, "gpus", &gpus) || !json_object_is_type(gpus, json_type_array))
		return 0;
	for (size_t i = 0; i < json_object_array_length(gpus); i++) {
		struct json_object *entry = json_object_array_get_idx(gpus, i);

		if (json_object_is_type(entry, json_type_object) && !strcmp(text_at(entry, "kind"), "nv") &&
		    number_at(entry, "index") == gpu->index)
			return number_at(entry, "mem_total");
	}
	return 0;
}

/* The memory of a GPU according to the driver; 0 and an error: the GPU cannot be opened. */
static uint64_t driver_bytes(const struct check_options *options, const struct protocol_gpu *gpu,
			     struct bf_error *err)
{
	struct device_options which = { .index = gpu->index, .any_driver = options->any_driver };
	struct device *device = device_nv_open(&which, err);
	uint64_t bytes = device ? device->mem_bytes : 0;

	if (device)
		device->ops->close(device);
	return bytes;
}

/* Whether a vGPU with reserved memory is on this GPU, or may be. */
static bool is_promised(const struct config *config, const struct protocol_gpu *gpu)
{
	for (size_t i = 0; i < config->vgpu_count; i++) {
		const struct config_vgpu *vgpu = &config->vgpus[i];

		if (vgpu->spec.mem_bytes && (vgpu->gpu.kind == PROTOCOL_GPU_ANY ||
					     (vgpu->gpu.kind == gpu->kind && vgpu->gpu.index == gpu->index)))
			return true;
	}
	return false;
}

/* The memory of an NVIDIA GPU, or UINT64_MAX and a line in `unchecked`. */
static uint64_t nv_bytes(const struct check_options *options, struct json_object *hello,
			 const struct protocol_gpu *gpu, char *unchecked, size_t room)
{
	struct bf_error err = { 0 };
	uint64_t bytes = told_bytes(hello, gpu);
	size_t used = strlen(unchecked);

	if (!bytes)
		bytes = driver_bytes(options, gpu, &err);
	if (bytes)
		return bytes;
	snprintf(unchecked + used, room - used,
		 "%sGPU %u: its memory is not known, so the sum of reserved memory was not checked: %.200s",
		 used ? "\n" : "", gpu->index, err.text);
	return UINT64_MAX;
}

int check_promises(const struct config *config, const struct check_options *options, char *unchecked,
		   size_t room, struct bf_error *err)
{
	struct check check = { .options = options };
	struct json_object *hello = NULL;
	bool was_asked = false;

	unchecked[0] = 0;
	for (unsigned i = 0; i < options->gpu_count; i++) {
		const struct protocol_gpu *gpu = &options->gpus[i];
		struct router_room *to = &check.rooms[i];
		char name[16];

		snprintf(to->label, sizeof(to->label), "GPU %s", protocol_gpu_name(gpu, name, sizeof(name)));
		to->free_ppm = SPEC_WHOLE_PPM;
		to->mem_bytes = gpu->kind == PROTOCOL_GPU_SOFT ? options->soft_mem_bytes : UINT64_MAX;
		if (gpu->kind == PROTOCOL_GPU_NV && is_promised(config, gpu)) {
			if (!was_asked)
				hello = ask_daemon(options->socket);
			was_asked = true;
			to->mem_bytes = nv_bytes(options, hello, gpu, unchecked, room);
		}
		to->mem_free_bytes = to->mem_bytes;
	}
	json_object_put(hello);
	return promises_check(config, check.rooms, options->gpu_count, where, &check, err);
}
