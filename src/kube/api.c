#include "kube/api.h"

#include <errno.h>
#include <stdlib.h>

static int bad(struct bf_error *err)
{
	return bf_fail(err, EINVAL, "the request is not a message of the device plugin API " API_VERSION);
}

static int add_id(struct api_ids *ids, const struct proto_field *field, struct bf_error *err)
{
	if (ids->count >= API_IDS_MAX)
		return bf_fail(err, E2BIG, "a container has more than %d devices", API_IDS_MAX);
	if (!(ids->count & (ids->count - 1))) { /* a power of two: full */
		void *at = realloc(ids->at, (ids->count ? 2 * ids->count : 1) * sizeof(*ids->at));

		if (!at)
			return bf_fail(err, ENOMEM, "out of memory");
		ids->at = at;
	}
	if (!proto_text(field, ids->at[ids->count], sizeof(*ids->at)))
		return bf_fail(err, EINVAL, "the ID of a device is not a text of at most %d bytes",
			       API_ID_MAX);
	ids->count++;
	return 0;
}

/* The fields of a container: AllocateRequest has the devices in 1; PreferredAllocationRequest the available ones in 1,
 * those of the answer in 2, and their number in 3. */
static int read_container(struct proto_bytes message, struct api_container *container, bool is_preferred,
			  struct bf_error *err)
{
	struct proto_reader reader = proto_read(message);
	struct proto_field field;
	int rc = 0;

	while (!rc && proto_next(&reader, &field)) {
		if (field.number == 1)
			rc = add_id(&container->ids, &field, err);
		else if (is_preferred && field.number == 2)
			rc = add_id(&container->musts, &field, err);
		else if (is_preferred && field.number == 3 && field.type == PROTO_VARINT)
			container->size = (int32_t)field.value;
	}
	return !rc && reader.is_bad ? bad(err) : rc;
}

static int read_request(struct proto_bytes message, struct api_request *request, bool is_preferred,
			struct bf_error *err)
{
	struct proto_reader reader = proto_read(message);
	struct proto_field field;
	int rc = 0;

	request->count = 0;
	while (!rc && proto_next(&reader, &field)) {
		if (field.number != 1)
			continue;
		if (field.type != PROTO_BYTES)
			return bad(err);
		if (request->count == API_CONTAINERS_MAX)
			return bf_fail(err, E2BIG, "a request has more than %d containers",
				       API_CONTAINERS_MAX);
		request->containers[request->count] = (struct api_container){ .size = 0 };
		rc = read_container(field.bytes, &request->containers[request->count++], is_preferred, err);
	}
	return !rc && reader.is_bad ? bad(err) : rc;
}

int api_read_allocate(struct proto_bytes message, struct api_request *request, struct bf_error *err)
{
	return read_request(message, request, false, err);
}

int api_read_preferred(struct proto_bytes message, struct api_request *request, struct bf_error *err)
{
	return read_request(message, request, true, err);
}

void api_request_free(struct api_request *request)
{
	for (size_t i = 0; i < request->count; i++) {
		free(request->containers[i].ids.at);
		free(request->containers[i].musts.at);
	}
	request->count = 0;
}

static void write_options(struct proto_writer *writer)
{
	proto_write_bool(writer, 1, false); /* pre_start_required */
	proto_write_bool(writer, 2, true);  /* get_preferred_allocation_available */
}

void api_write_register(struct proto_writer *answer, const char *endpoint, const char *resource)
{
	struct proto_writer options = { 0 };

	proto_write_text(answer, 1, API_VERSION);
	proto_write_text(answer, 2, endpoint);
	proto_write_text(answer, 3, resource);
	write_options(&options);
	proto_write_message(answer, 4, &options);
}

void api_write_options(struct proto_writer *answer)
{
	write_options(answer);
}

void api_write_device(struct proto_writer *answer, const char *id, bool is_healthy)
{
	struct proto_writer device = { 0 };

	proto_write_text(&device, 1, id);
	proto_write_text(&device, 2, is_healthy ? "Healthy" : "Unhealthy");
	proto_write_message(answer, 1, &device);
}

void api_write_mount(struct proto_writer *answer, const struct api_mount *mount)
{
	struct proto_writer container = { 0 }, inner = { 0 };

	proto_write_text(&inner, 1, mount->to);
	proto_write_text(&inner, 2, mount->from);
	proto_write_bool(&inner, 3, true); /* read_only */
	proto_write_message(&container, 2, &inner);
	proto_write_message(answer, 1, &container);
}

void api_write_preferred(struct proto_writer *answer, const char *const *ids, size_t count)
{
	struct proto_writer container = { 0 };

	for (size_t i = 0; i < count; i++)
		proto_write_text(&container, 1, ids[i]);
	proto_write_message(answer, 1, &container);
}
