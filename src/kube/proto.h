/* proto: the encoding of protocol buffers, as far as the device plugin API needs it. Reads without copying and within the
 * bytes that it is given; writes to a buffer that grows up to a limit. Pure. */
#ifndef BELFRY_KUBE_PROTO_H
#define BELFRY_KUBE_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum proto_type { PROTO_VARINT = 0, PROTO_FIXED64 = 1, PROTO_BYTES = 2, PROTO_FIXED32 = 5 };

struct proto_bytes {
	const uint8_t *at;
	size_t count;
};

struct proto_reader {
	const uint8_t *at, *end;
	bool is_bad; /* the bytes are not a message */
};

struct proto_field {
	uint32_t number;
	enum proto_type type;
	uint64_t value;		  /* of PROTO_VARINT, PROTO_FIXED32 and PROTO_FIXED64 */
	struct proto_bytes bytes; /* of PROTO_BYTES */
};

struct proto_reader proto_read(struct proto_bytes bytes);
/* The next field. False: there is none, or the bytes are not a message (proto_reader::is_bad). */
bool proto_next(struct proto_reader *reader, struct proto_field *field);
/* The field's bytes as a text. False: it has another type, a zero byte, or does not fit. */
bool proto_text(const struct proto_field *field, char *to, size_t room);

/* A message that is being written. If memory is missing or the limit is exceeded, is_bad is set and the rest is ignored. */
enum { PROTO_WRITE_MAX = 4 << 20 };
struct proto_writer {
	uint8_t *at; /* to be freed */
	size_t count, room;
	bool is_bad;
};
void proto_write_number(struct proto_writer *writer, uint32_t field,
			uint64_t value); /* 0 is the default: left out */
void proto_write_bool(struct proto_writer *writer, uint32_t field, bool value);
void proto_write_text(struct proto_writer *writer, uint32_t field, const char *text);
/* The bytes of `inner` as a message within this one. Frees them. */
void proto_write_message(struct proto_writer *writer, uint32_t field, struct proto_writer *inner);

#endif
