/* The container process state, one JSON object over a stream. Not every runtime closes its end after it, so the object is
 * complete when its braces are. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "base/json.h"
#include "base/text.h"

struct attach_reader {
	struct json_tokener *tokener;
	size_t bytes;
};

struct attach_reader *attach_reader_new(void)
{
	struct attach_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return NULL;
	reader->tokener = json_tokener_new_ex(ATTACH_DEPTH_MAX);
	if (reader->tokener)
		return reader;
	free(reader);
	return NULL;
}

void attach_reader_free(struct attach_reader *reader)
{
	if (!reader)
		return;
	json_tokener_free(reader->tokener);
	free(reader);
}

/* NULL if it is missing or not a text. */
static const char *text_of(struct json_object *object, const char *key)
{
	struct json_object *value = NULL;

	if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, json_type_string))
		return NULL;
	return json_object_get_string(value);
}

static int take_vgpu(struct json_object *message, struct attach_state *state, struct bf_error *err)
{
	const char *metadata = text_of(message, "metadata");
	size_t length = sizeof(ATTACH_METADATA) - 1;

	if (!metadata || strncmp(metadata, ATTACH_METADATA, length) != 0)
		return bf_fail(err, EINVAL,
			       "its metadata names no vGPU; the profile was not edited by belfry oci");
	if (strlen(metadata + length) >= sizeof(state->vgpu))
		return bf_fail(err, EINVAL, "its metadata has too long a name");
	snprintf(state->vgpu, sizeof(state->vgpu), "%s", metadata + length);
	return spec_check_name(state->vgpu, err);
}

/* The first of these annotations that the container has. containerd and CRI-O write them; for display only. */
static const char *annotation(struct json_object *annotations, const char *const keys[3])
{
	const char *value = NULL;

	for (size_t i = 0; annotations && !value && i < 3 && keys[i]; i++)
		value = text_of(annotations, keys[i]);
	return value;
}

static void copy(char *to, size_t room, const char *value)
{
	snprintf(to, room, "%s", value ? value : "");
	bf_plain(to);
}

const char *attach_pod_of(struct json_object *annotations)
{
	static const char *const keys[3] = { "io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name" };

	return annotation(annotations, keys);
}

static void take_names(struct json_object *annotations, struct attach_state *state)
{
	static const char *const names[3] = { "io.kubernetes.cri.container-name",
					      "io.kubernetes.container.name",
					      "io.kubernetes.cri-o.ContainerName" };
	static const char *const spaces[3] = { "io.kubernetes.cri.sandbox-namespace",
					       "io.kubernetes.pod.namespace" };

	copy(state->name, sizeof(state->name), annotation(annotations, names));
	copy(state->pod, sizeof(state->pod), attach_pod_of(annotations));
	copy(state->space, sizeof(state->space), annotation(annotations, spaces));
}

static int take_identity(struct json_object *message, struct attach_state *state, struct bf_error *err)
{
	struct json_object *inner = NULL, *annotations = NULL, *pid = NULL;
	const char *id;

	if (!json_object_object_get_ex(message, "state", &inner) ||
	    !json_object_is_type(inner, json_type_object))
		return bf_fail(err, EINVAL, "it has no state of a container");
	id = text_of(inner, "id");
	if (!id || !*id || strlen(id) >= sizeof(state->id))
		return bf_fail(err, EINVAL, "it has no ID of 1 to %d bytes", PROTOCOL_ID_MAX);
	snprintf(state->id, sizeof(state->id), "%s", id);
	if (json_object_object_get_ex(inner, "annotations", &annotations) &&
	    json_object_is_type(annotations, json_type_object))
		take_names(annotations, state);
	/* The process that has the filter. Some runtimes send 0 for exec. */
	if (json_object_object_get_ex(message, "pid", &pid) && json_object_is_type(pid, json_type_int))
		state->pid = json_object_get_int(pid);
	return 0;
}

/* The order of the descriptors. */
static int take_place(struct json_object *message, struct attach_state *state, struct bf_error *err)
{
	struct json_object *names = NULL;

	if (!json_object_object_get_ex(message, "fds", &names) ||
	    !json_object_is_type(names, json_type_array))
		return bf_fail(err, EINVAL, "it has no list of descriptors");
	for (size_t i = 0; i < json_object_array_length(names) && i < ATTACH_FDS_MAX; i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(names, i));

		if (name && !strcmp(name, "seccompFd")) {
			state->listener_at = (unsigned)i;
			return 0;
		}
	}
	return bf_fail(err, EINVAL, "it has no seccompFd");
}

static int take(struct json_object *message, struct attach_state *state, struct bf_error *err)
{
	int rc;

	*state = (struct attach_state){ 0 };
	if (!json_object_is_type(message, json_type_object))
		return bf_fail(err, EINVAL, "it is not a JSON object");
	rc = take_place(message, state, err);
	if (!rc)
		rc = take_identity(message, state, err);
	return rc ? rc : take_vgpu(message, state, err);
}

int attach_read(struct attach_reader *reader, const char *bytes, size_t count, struct attach_state *state,
		struct bf_error *err)
{
	struct json_object *message;
	enum json_tokener_error why;
	int rc;

	reader->bytes += count;
	if (reader->bytes > ATTACH_STATE_MAX)
		return bf_fail(err, EFBIG, "it has more than %d bytes", ATTACH_STATE_MAX);
	message = json_tokener_parse_ex(reader->tokener, bytes, (int)count);
	why = json_tokener_get_error(reader->tokener);
	if (why == json_tokener_continue)
		return 0;
	rc = why == json_tokener_success
		     ? take(message, state, err)
		     : bf_fail(err, EINVAL, "it is not JSON: %s", json_tokener_error_desc(why));
	json_object_put(message);
	return rc ? rc : 1;
}
