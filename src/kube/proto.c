#include "kube/proto.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT_MAX = 10 };

struct proto_reader proto_read(struct proto_bytes bytes)
{
	return (struct proto_reader){ .at = bytes.at, .end = bytes.at + bytes.count };
}

static uint64_t read_varint(struct proto_reader *reader)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < VARINT_MAX && reader->at < reader->end; i++) {
		uint8_t byte = *reader->at++;

		value |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (!(byte & 0x80))
			return value;
	}
	reader->is_bad = true;
	return 0;
}

static void read_bytes(struct proto_reader *reader, uint64_t count, struct proto_bytes *bytes)
{
	if (count > (uint64_t)(reader->end - reader->at)) {
		reader->is_bad = true;
		return;
	}
	*bytes = (struct proto_bytes){ reader->at, (size_t)count };
	reader->at += count;
}

static void read_fixed(struct proto_reader *reader, size_t count, struct proto_field *field)
{
	struct proto_bytes bytes = { NULL, 0 };

	read_bytes(reader, count, &bytes);
	for (size_t i = bytes.count; i-- > 0;)
		field->value = field->value << 8 | bytes.at[i];
}

bool proto_next(struct proto_reader *reader, struct proto_field *field)
{
	uint64_t key;

	*field = (struct proto_field){ 0 };
	if (reader->is_bad || reader->at == reader->end)
		return false;
	key = read_varint(reader);
	field->number = (uint32_t)(key >> 3);
	field->type = key & 7;
	if (!field->number || key >> 32)
		reader->is_bad = true;
	else if (field->type == PROTO_VARINT)
		field->value = read_varint(reader);
	else if (field->type == PROTO_BYTES)
		read_bytes(reader, read_varint(reader), &field->bytes);
	else if (field->type == PROTO_FIXED64)
		read_fixed(reader, 8, field);
	else if (field->type == PROTO_FIXED32)
		read_fixed(reader, 4, field);
	else
		reader->is_bad = true; /* groups are not used since version 2 of the language */
	return !reader->is_bad;
}

bool proto_text(const struct proto_field *field, char *to, size_t room)
{
	if (field->type != PROTO_BYTES || field->bytes.count >= room ||
	    (field->bytes.count && memchr(field->bytes.at, 0, field->bytes.count)))
		return false;
	if (field->bytes.count)
		memcpy(to, field->bytes.at, field->bytes.count);
	to[field->bytes.count] = 0;
	return true;
}

static void put(struct proto_writer *writer, const void *bytes, size_t count)
{
	if (writer->is_bad || count > PROTO_WRITE_MAX - writer->count) {
		writer->is_bad = true;
		return;
	}
	if (writer->count + count > writer->room) {
		size_t room = 2 * (writer->count + count);
		uint8_t *at = realloc(writer->at, room);

		if (!at) {
			writer->is_bad = true;
			return;
		}
		writer->at = at;
		writer->room = room;
	}
	if (count)
		memcpy(writer->at + writer->count, bytes, count);
	writer->count += count;
}

static void put_varint(struct proto_writer *writer, uint64_t value)
{
	uint8_t bytes[VARINT_MAX];
	size_t count = 0;

	for (; value > 0x7f; value >>= 7)
		bytes[count++] = (uint8_t)(value | 0x80);
	bytes[count++] = (uint8_t)value;
	put(writer, bytes, count);
}

static void put_bytes(struct proto_writer *writer, uint32_t field, const void *bytes, size_t count)
{
	put_varint(writer, (uint64_t)field << 3 | PROTO_BYTES);
	put_varint(writer, count);
	put(writer, bytes, count);
}

void proto_write_number(struct proto_writer *writer, uint32_t field, uint64_t value)
{
	if (!value)
		return;
	put_varint(writer, (uint64_t)field << 3 | PROTO_VARINT);
	put_varint(writer, value);
}

void proto_write_bool(struct proto_writer *writer, uint32_t field, bool value)
{
	proto_write_number(writer, field, value);
}

void proto_write_text(struct proto_writer *writer, uint32_t field, const char *text)
{
	put_bytes(writer, field, text, strlen(text));
}

void proto_write_message(struct proto_writer *writer, uint32_t field, struct proto_writer *inner)
{
	writer->is_bad |= inner->is_bad;
	put_bytes(writer, field, inner->at, inner->count);
	free(inner->at);
	*inner = (struct proto_writer){ 0 };
}
