/* Write a fat binary, byte for byte as `fatbinary --compress=false` of CUDA 13.0 does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/fatbin.h"
#include "cuda/lex.h"

/* Behind the fields that fatbin.c reads, an entry has: 20 (4) offset of the header's second part, 24 (2) and 26 (2) version of
 * the data, 40 (8) flags. The second part of PTX's is 64 (4), the offset of the compiler's options, which are empty here. */
enum {
	FLAGS_USUAL = 0x11,	/* 64-bit addresses, for Linux */
	FLAG_EXACT = 0x100000,	/* sm_90a */
	FLAG_FAMILY = 0x200000, /* sm_100f */
	TEXT_ENTRY_BYTES = 80,
	TEXT_OPTIONS_AT = 72,
	ELF_ABI_AT = 8,
	/* Entries of machine code for later GPUs have more fields. */
	TARGET_END = 100,
};

static void put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)value;
	at[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *at, uint32_t value)
{
	put16(at, value & 0xffff);
	put16(at + 2, value >> 16);
}

static void put64(uint8_t *at, uint64_t value)
{
	put32(at, (uint32_t)value);
	put32(at + 4, (uint32_t)(value >> 32));
}

bool fatbin_target_read(const char *name, size_t length, struct fatbin_target *target)
{
	char copy[16];
	int used = 0;

	*target = (struct fatbin_target){ 0 };
	if (length >= sizeof(copy))
		return false;
	memcpy(copy, name, length);
	copy[length] = 0;
	if (sscanf(copy, "sm_%3u%n", &target->number, &used) != 1)
		return false;
	if (copy[used] == 'a' || copy[used] == 'f')
		target->suffix = copy[used++];
	return target->number && (size_t)used == length;
}

/* .version 8.4, .target sm_90a: the first directives of a text. */
static int read_header(const char *text, size_t length, unsigned version[2], struct fatbin_target *target,
		       struct bf_error *err)
{
	struct ptx_lexer lex;
	bool has_version = false, has_target = false;

	ptx_lex_start(&lex, text, length);
	while (!(has_version && has_target) && lex.token.kind != PTX_TOKEN_END &&
	       lex.token.kind != PTX_TOKEN_BAD) {
		bool is_version = ptx_token_is(&lex.token, ".version");
		bool is_target = ptx_token_is(&lex.token, ".target");
		char copy[16];

		ptx_lex_next(&lex);
		if (is_target)
			has_target = fatbin_target_read(lex.token.text, lex.token.length, target);
		if (is_version && lex.token.length < sizeof(copy)) {
			snprintf(copy, sizeof(copy), "%.*s", (int)lex.token.length, lex.token.text);
			has_version = sscanf(copy, "%3u.%3u", &version[0], &version[1]) == 2;
		}
		if ((is_target && !has_target) || (is_version && !has_version))
			break;
	}
	return has_version && has_target
		       ? 0
		       : bf_fail(err, EINVAL, "writing a fat binary: the PTX has no version or no target");
}

static uint64_t flags_of(const struct fatbin_target *target)
{
	return FLAGS_USUAL | (target->suffix == 'a' ? FLAG_EXACT : 0) |
	       (target->suffix == 'f' ? FLAG_FAMILY : 0);
}

static uint8_t *put_entry(uint8_t *at, enum fatbin_kind kind, uint32_t own, uint64_t room,
			  const struct fatbin_target *target)
{
	put16(at, kind);
	put16(at + 2, FATBIN_ENTRY_VERSION);
	put32(at + 4, own);
	put64(at + 8, room);
	put32(at + 28, target->number);
	put64(at + 40, flags_of(target));
	return at + own;
}

static size_t padded(size_t bytes)
{
	return (bytes + 7) & ~(size_t)7;
}

int fatbin_pack(const void *machine, size_t machine_bytes, struct fatbin_target target, const char *text,
		size_t text_bytes, uint8_t **image, size_t *length, struct bf_error *err)
{
	size_t machine_room = padded(machine_bytes), text_room = padded(text_bytes + 1);
	size_t follow = FATBIN_ENTRY_BYTES + machine_room + TEXT_ENTRY_BYTES + text_room;
	struct fatbin_target text_target = { 0 };
	unsigned version[2] = { 0 };
	int rc = read_header(text, text_bytes, version, &text_target, err);
	uint8_t *at;

	if (rc)
		return rc;
	if (machine_bytes < FATBIN_ENTRY_BYTES || memcmp(machine, "\177ELF", 4) != 0)
		return bf_fail(err, EINVAL, "writing a fat binary: the machine code is not an ELF file");
	if (target.number >= TARGET_END)
		return bf_fail(err, ENOTSUP,
			       "writing a fat binary: sm_%u; only targets below sm_%d are known",
			       target.number, TARGET_END);
	if (machine_bytes > FATBIN_TEXT_MAX_BYTES || text_bytes > FATBIN_TEXT_MAX_BYTES)
		return bf_fail(err, EFBIG, "writing a fat binary: more than %u bytes", FATBIN_TEXT_MAX_BYTES);
	at = calloc(1, FATBIN_HEADER_BYTES + follow);
	if (!at)
		return bf_fail(err, ENOMEM, "writing a fat binary: out of memory");
	*image = at;
	*length = FATBIN_HEADER_BYTES + follow;
	put32(at, FATBIN_MAGIC);
	put16(at + 4, FATBIN_HEADER_VERSION);
	put16(at + 6, FATBIN_HEADER_BYTES);
	put64(at + 8, follow);
	at += FATBIN_HEADER_BYTES;
	put16(at + 24, ((const uint8_t *)machine)[ELF_ABI_AT]);
	put16(at + 26, 1);
	at = put_entry(at, FATBIN_KIND_ELF, FATBIN_ENTRY_BYTES, machine_room, &target);
	memcpy(at, machine, machine_bytes);
	at += machine_room;
	put32(at + 20, FATBIN_ENTRY_BYTES);
	put16(at + 24, version[1]);
	put16(at + 26, version[0]);
	put32(at + FATBIN_ENTRY_BYTES, TEXT_OPTIONS_AT);
	at = put_entry(at, FATBIN_KIND_PTX, TEXT_ENTRY_BYTES, text_room, &text_target);
	memcpy(at, text, text_bytes);
	return 0;
}
