/* Iterate over a fat binary, and decompress its entries. */
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/own.h"
#include "cuda/fatbin.h"

/* Header: magic 0 (4), version 4 (2), own size 6 (2), bytes that follow it 8 (8). Entry: kind 0 (2), version
 * 2 (2), own size 4 (4), padded data 8 (8), compressed bytes 16 (4), target 28 (4), flags 40 (8),
 * uncompressed bytes 56 (8). */
enum {
	FLAG_LZ4 = 0x2000,
	FLAG_ZSTD = 0x8000,
};

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t get32(const uint8_t *at)
{
	return get16(at) | (uint32_t)get16(at + 2) << 16;
}

static uint64_t get64(const uint8_t *at)
{
	return get32(at) | (uint64_t)get32(at + 4) << 32;
}

uint64_t fatbin_length(const uint8_t *header)
{
	uint64_t follow = get64(header + 8);
	uint16_t own = get16(header + 6);

	if (get32(header) != FATBIN_MAGIC || own < FATBIN_HEADER_BYTES || follow > UINT64_MAX - own)
		return 0;
	return own + follow;
}

int fatbin_start(const uint8_t *image, size_t length, struct fatbin_walk *walk, struct bf_error *err)
{
	uint64_t bytes;

	if (length < FATBIN_HEADER_BYTES || get32(image) != FATBIN_MAGIC)
		return bf_fail(err, EINVAL, "reading a fat binary: it does not start like one");
	if (get16(image + 4) != FATBIN_HEADER_VERSION)
		return bf_fail(err, EINVAL, "reading a fat binary: version %u, not %u", get16(image + 4),
			       FATBIN_HEADER_VERSION);
	bytes = fatbin_length(image);
	if (!bytes || bytes > length)
		return bf_fail(err, EINVAL, "reading a fat binary: it ends before its header says");
	*walk = (struct fatbin_walk){ image + get16(image + 6), bytes - get16(image + 6) };
	return 0;
}

static int read_entry(const uint8_t *at, size_t room, struct fatbin_entry *entry, struct bf_error *err)
{
	uint64_t flags = get64(at + 40), unpacked = get64(at + 56);
	uint32_t packed = get32(at + 16);

	entry->kind = get16(at);
	entry->target = get32(at + 28);
	entry->packing = flags & FLAG_ZSTD ? FATBIN_ZSTD : flags & FLAG_LZ4 ? FATBIN_LZ4 : FATBIN_PLAIN;
	entry->stored_bytes = entry->packing == FATBIN_PLAIN ? room : packed;
	if (entry->stored_bytes > room)
		return bf_fail(err, EINVAL, "reading a fat binary: an entry of %u bytes has room for %zu",
			       packed, room);
	if (entry->packing != FATBIN_PLAIN && unpacked > FATBIN_TEXT_MAX_BYTES)
		return bf_fail(err, EFBIG, "reading a fat binary: an entry of %llu bytes, at most %u",
			       (unsigned long long)unpacked, FATBIN_TEXT_MAX_BYTES);
	entry->bytes = entry->packing == FATBIN_PLAIN ? room : (size_t)unpacked;
	return 0;
}

int fatbin_next(struct fatbin_walk *walk, struct fatbin_entry *entry, struct bf_error *err)
{
	uint64_t own, room;
	int rc;

	if (!walk->left)
		return 0;
	if (walk->left < FATBIN_ENTRY_BYTES)
		return bf_fail(err, EINVAL, "reading a fat binary: %zu bytes left for an entry", walk->left);
	if (get16(walk->at + 2) != FATBIN_ENTRY_VERSION)
		return bf_fail(err, EINVAL, "reading a fat binary: an entry of version 0x%x, not 0x%x",
			       get16(walk->at + 2), FATBIN_ENTRY_VERSION);
	own = get32(walk->at + 4);
	room = get64(walk->at + 8);
	if (own < FATBIN_ENTRY_BYTES || own > walk->left || room > walk->left - own)
		return bf_fail(err, EINVAL, "reading a fat binary: an entry reaches past the end");
	rc = read_entry(walk->at, room, entry, err);
	if (rc)
		return rc;
	entry->data = walk->at + own;
	walk->at += own + room;
	walk->left -= own + room;
	return 1;
}

static int compare(uint32_t a, uint32_t b, uint32_t target)
{
	if ((a <= target) != (b <= target))
		return a <= target ? -1 : 1;
	return a <= target ? (a < b) - (a > b) : (a > b) - (a < b);
}

/* Inserts in order; equal targets keep the order of the image. */
static void insert(struct fatbin_choices *choices, const struct fatbin_entry *entry, uint32_t target)
{
	unsigned at = choices->count++;

	while (at && compare(choices->list[at - 1].target, entry->target, target) > 0) {
		choices->list[at] = choices->list[at - 1];
		at--;
	}
	choices->list[at] = *entry;
}

int fatbin_choose(const void *image, size_t length, uint32_t target, struct fatbin_choices *choices,
		  struct bf_error *err)
{
	struct fatbin_walk walk = { 0 };
	struct fatbin_entry entry = { 0 };
	int rc = fatbin_start(image, length, &walk, err);

	choices->count = 0;
	choices->machine_target = 0;
	while (!rc && (rc = fatbin_next(&walk, &entry, err)) > 0) {
		rc = 0;
		if (entry.kind == FATBIN_KIND_PTX && choices->count < FATBIN_CHOICES_MAX)
			insert(choices, &entry, target);
		else if (entry.kind == FATBIN_KIND_ELF)
			choices->machine_target = entry.target;
	}
	return rc;
}

bool fatbin_starts_with(const void *image, size_t length, uint32_t magic)
{
	if (length)
		return length >= sizeof(magic) && !memcmp(image, &magic, sizeof(magic));
	return !strncmp(image, (const char *)&magic, sizeof(magic));
}

static bool unpack(const struct fatbin_entry *entry, char *to)
{
	size_t got;

	switch (entry->packing) {
	case FATBIN_LZ4:
		return LZ4_decompress_safe((const char *)entry->data, to, (int)entry->stored_bytes,
					   (int)entry->bytes) == (int)entry->bytes;
	case FATBIN_ZSTD:
		got = ZSTD_decompress(to, entry->bytes, entry->data, entry->stored_bytes);
		return !ZSTD_isError(got) && got == entry->bytes;
	default:
		memcpy(to, entry->data, entry->bytes);
		return true;
	}
}

int fatbin_text(const struct fatbin_entry *entry, char **text, size_t *length, struct bf_error *err)
{
	cleanup_free char *to = NULL;

	if (entry->bytes > FATBIN_TEXT_MAX_BYTES || entry->stored_bytes > FATBIN_TEXT_MAX_BYTES)
		return bf_fail(err, EFBIG, "reading a fat binary: an entry of %zu bytes, at most %u",
			       entry->bytes, FATBIN_TEXT_MAX_BYTES);
	to = malloc(entry->bytes + 1);
	if (!to)
		return bf_fail(err, ENOMEM, "reading a fat binary: out of memory");
	if (!unpack(entry, to))
		return bf_fail(err, EINVAL, "reading a fat binary: its %s data is broken",
			       entry->packing == FATBIN_LZ4 ? "LZ4" : "zstd");
	to[entry->bytes] = '\0';
	*length = strlen(to); /* the stored text is padded with NUL */
	*text = to;
	to = NULL;
	return 0;
}
