/* Bytes from outside into the reader of fat binaries: whatever they are, no crash, no hang, no leak, and no entry that
 * reaches outside of them. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main() that mutates the
 * files of tests/data/fatbin: fatbin [inputs]. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "cuda/fatbin.h"

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "fatbin: violated: %s\n", what);
	abort();
}

static void read_text(const struct fatbin_entry *entry)
{
	struct bf_error err;
	cleanup_free char *text = NULL;
	size_t length = 0;

	if (entry->bytes > 1 << 24) /* allowed, and slow */
		return;
	if (!fatbin_text(entry, &text, &length, &err))
		check(text && length <= entry->bytes && !text[length], "a text ends");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fatbin_walk walk;
	struct fatbin_entry entry;
	struct bf_error err;
	size_t left;

	if (size >= FATBIN_HEADER_BYTES)
		fatbin_length(data);
	if (fatbin_start(data, size, &walk, &err))
		return 0;
	for (left = size + 1; fatbin_next(&walk, &entry, &err) == 1; left = walk.left) {
		check(walk.left < left, "it comes to an end");
		check(entry.data >= data && entry.data <= data + size &&
			      entry.stored_bytes <= (size_t)(data + size - entry.data),
		      "an entry lies inside");
		read_text(&entry);
	}
	return 0;
}

#ifdef FUZZ_STANDALONE
static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

/* A few bytes become others; now and then the end is missing. */
static size_t mutate(uint8_t *data, size_t size)
{
	static const uint8_t bytes[] = { 0, 1, 0x7f, 0x80, 0xff };

	for (uint32_t n = draw(6); n; n--) {
		uint32_t at = draw(draw(2) ? 160 : (uint32_t)size);

		if (at < size)
			data[at] = draw(2) ? bytes[draw(sizeof(bytes))] : (uint8_t)draw(256);
	}
	return draw(4) ? size : draw((uint32_t)size + 1);
}

static void try_file(const char *path, unsigned inputs)
{
	cleanup_file FILE *file = fopen(path, "rb");
	cleanup_free uint8_t *whole = malloc(1 << 16);
	size_t size;

	check(file && whole, "a file can be read");
	size = fread(whole, 1, 1 << 16, file);
	for (unsigned i = 0; i < inputs && size; i++) {
		cleanup_free uint8_t *data = malloc(size);
		size_t length;

		check(data, "there is memory");
		memcpy(data, whole, size);
		length = i ? mutate(data, size) : size;
		/* As long as it is and no longer: a sanitizer sees the first byte too far. */
		data = realloc(data, length ? length : 1);
		LLVMFuzzerTestOneInput(data, length);
	}
}

int main(int argc, char **argv)
{
	unsigned inputs = argc > 1 ? (unsigned)atoi(argv[1]) : 3000, files = 0;
	DIR *folder = opendir(BELFRY_TEST_DATA "/fatbin");
	struct dirent *entry;
	char path[512];

	check(folder, "tests/data/fatbin is there");
	while ((entry = readdir(folder))) {
		if (!strstr(entry->d_name, ".fatbin"))
			continue;
		snprintf(path, sizeof(path), BELFRY_TEST_DATA "/fatbin/%s", entry->d_name);
		try_file(path, inputs);
		files++;
	}
	closedir(folder);
	check(files, "there are files");
	printf("%u files, %u inputs each\n", files, inputs);
	return 0;
}
#endif
