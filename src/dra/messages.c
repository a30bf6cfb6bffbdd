#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/dra.h"

static int take_claim(struct proto_bytes message, struct dra_claim *claim, struct bf_error *err)
{
	struct proto_reader reader = proto_read(message);
	struct proto_field field;
	bool is_good = true;

	while (proto_next(&reader, &field)) {
		if (field.number == 1)
			is_good &= proto_text(&field, claim->space, sizeof(claim->space));
		else if (field.number == 2)
			is_good &= proto_text(&field, claim->uid, sizeof(claim->uid));
		else if (field.number == 3)
			is_good &= proto_text(&field, claim->name, sizeof(claim->name));
	}
	if (reader.is_bad || !is_good)
		return bf_fail(err, EINVAL,
			       "a claim of the request is not a valid message, or a name is too long");
	return dra_check_claim(claim, err);
}

int dra_read_claims(struct proto_bytes message, struct dra_claims *claims, struct bf_error *err)
{
	struct proto_reader reader = proto_read(message);
	struct proto_field field;
	int rc = 0;

	*claims = (struct dra_claims){ calloc(DRA_CLAIMS_MAX, sizeof(*claims->at)), 0 };
	if (!claims->at)
		return bf_fail(err, ENOMEM, "out of memory");
	while (!rc && proto_next(&reader, &field)) {
		if (field.number != 1 || field.type != PROTO_BYTES)
			continue;
		if (claims->count == DRA_CLAIMS_MAX)
			rc = bf_fail(err, E2BIG, "the request has more than %d claims", DRA_CLAIMS_MAX);
		else
			rc = take_claim(field.bytes, &claims->at[claims->count++], err);
	}
	if (!rc && reader.is_bad)
		rc = bf_fail(err, EINVAL, "the request is not a valid message");
	return rc;
}

void dra_write_info(struct proto_writer *answer, const char *endpoint)
{
	proto_write_text(answer, 1, "DRAPlugin");
	proto_write_text(answer, 2, DRA_DRIVER);
	proto_write_text(answer, 3, endpoint);
	proto_write_text(answer, 4, "v1.DRAPlugin");
	proto_write_text(answer, 4, "v1beta1.DRAPlugin");
}

static void write_device(struct proto_writer *answer, const struct dra_device *device)
{
	struct proto_writer message = { 0 };
	char text[sizeof(DRA_KIND) + SPEC_NAME_MAX + 2];

	/* The kubelet knows requests, not the alternatives of a request. */
	snprintf(text, sizeof(text), "%.*s", (int)strcspn(device->request, "/"), device->request);
	proto_write_text(&message, 1, text);
	proto_write_text(&message, 2, device->pool);
	proto_write_text(&message, 3, device->device);
	snprintf(text, sizeof(text), DRA_KIND "=%s", device->vgpu);
	proto_write_text(&message, 4, text);
	proto_write_message(answer, 1, &message);
}

/* An entry of a map: its key and its value. */
static void write_entry(struct proto_writer *answer, const char *uid, struct proto_writer *value)
{
	struct proto_writer entry = { 0 };

	proto_write_text(&entry, 1, uid);
	proto_write_message(&entry, 2, value);
	proto_write_message(answer, 1, &entry);
}

void dra_write_prepared(struct proto_writer *answer, const struct dra_claim *claim, const char *error)
{
	struct proto_writer value = { 0 };

	for (size_t i = 0; !error && i < claim->count; i++)
		write_device(&value, &claim->devices[i]);
	if (error)
		proto_write_text(&value, 2, error);
	write_entry(answer, claim->uid, &value);
}

void dra_write_unprepared(struct proto_writer *answer, const char *uid, const char *error)
{
	struct proto_writer value = { 0 };

	if (error)
		proto_write_text(&value, 1, error);
	write_entry(answer, uid, &value);
}

bool dra_read_status(struct proto_bytes message, char *text, size_t room)
{
	struct proto_reader reader = proto_read(message);
	struct proto_field field;
	bool is_registered = false;

	text[0] = 0;
	while (proto_next(&reader, &field)) {
		if (field.number == 1 && field.type == PROTO_VARINT)
			is_registered = field.value != 0;
		else if (field.number == 2 && !proto_text(&field, text, room))
			snprintf(text, room, "the kubelet does not say why");
	}
	return is_registered && !reader.is_bad;
}
