/* Text and images from outside into the weaver: whatever they are, no crash, no hang, no leak. A text that the
 * software GPU loads is refused, or it is woven into a text that the software GPU loads too. Build with clang
 * -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main() that mutates tests/data: weave [inputs]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "probe/weave.h"
#include "soft/ptx/ptx.h"

static const char *const names[] = { "kernelstat", "memtrace", "divergence" };
enum { PROBES = sizeof(names) / sizeof(names[0]) };
static struct probe *probes[PROBES];
static unsigned woven_count; /* valid texts that were woven */

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "weave: violated: %s\n", what);
	abort();
}

static uint8_t *read_file(const char *path, size_t room, size_t *size)
{
	uint8_t *data = calloc(1, room);
	cleanup_file FILE *file = fopen(path, "re");

	if (!file || !data) {
		fprintf(stderr, "weave: %s cannot be read\n", path);
		abort();
	}
	*size = fread(data, 1, room - 1, file);
	return data;
}

static void open_probes(void)
{
	for (unsigned i = 0; i < PROBES && !probes[i]; i++) {
		struct bf_error err = { 0 };
		char path[512];
		size_t size;
		cleanup_free uint8_t *data = NULL;

		snprintf(path, sizeof(path), "%s/probes/%s.bpf.o", BELFRY_BUILD_DIR, names[i]);
		data = read_file(path, 1 << 20, &size);
		check(!probe_open(data, size, NULL, &probes[i], &err), "the shipped probes are accepted");
	}
}

static bool loads(const char *text, size_t length, struct bf_error *err)
{
	struct ptx_module *module;

	if (ptx_module_load(text, length, &module, err))
		return false;
	ptx_module_free(module);
	return true;
}

static void check_result(const char *text, size_t length, const struct weave_result *result)
{
	struct bf_error err = { 0 };

	for (size_t i = 0; i < result->kernel_count; i++)
		check(result->kernels[i].name && (result->kernels[i].probes || result->kernels[i].reason[0]),
		      "a function without probes has a reason");
	if (!result->text)
		return;
	check(strlen(result->text) == result->length && result->length > length, "text is added");
	/* The software GPU has a limit for the size of kernels. */
	if (!loads(text, length, NULL))
		return;
	woven_count++;
	if (!loads(result->text, result->length, &err) && !strstr(err.text, "too many")) {
		fprintf(stderr, "%s in\n%.20000s", err.text, result->text);
		check(false, "a valid text is woven into a valid text");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weave_probe list = { .area = 0x700000000000 };
	struct weave_result result = { 0 };
	struct bf_error err = { 0 };
	bool is_image = size > 4 && !memcmp(data, "\x50\xed\x55\xba", 4);
	int rc;

	open_probes();
	if (!size)
		return 0;
	list.probe = probes[size % PROBES];
	list.period = 1 + size % 2;
	rc = weave_image(data, size, 90, &list, 1, &result, &err);
	if (rc) {
		check(err.code == -rc && err.text[0] && !strchr(err.text, '\n'), "an error has one line");
		check(!result.text && !result.kernels, "a refusal leaves nothing");
	} else if (!is_image) {
		check_result((const char *)data, strnlen((const char *)data, size), &result);
	}
	weave_result_free(&result);
	return 0;
}

#ifdef FUZZ_STANDALONE
static const char *const files[] = { "ptx/vector.ptx",		"ptx/language.ptx",
				     "fatbin/mixed.fatbin",	"ptx/tensor.ptx",
				     "fatbin/ptx-speed.fatbin", "ptx/matrix.ptx",
				     "fatbin/ptx-size.fatbin",	"ptx/calls.ptx",
				     "fatbin/ptx-none.fatbin" };
enum { FILES = sizeof(files) / sizeof(files[0]) };
static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

static size_t line_at(const uint8_t *data, size_t size, size_t *length)
{
	size_t from = draw((uint32_t)size), to;

	while (from && data[from - 1] != '\n')
		from--;
	for (to = from; to < size && data[to] != '\n';)
		to++;
	*length = to - from;
	return from;
}

/* Another line, if it is short enough, takes the place of a line; so the text often stays valid. */
static void mutate_line(uint8_t *data, size_t size)
{
	size_t length, other_length;
	size_t at = line_at(data, size, &length), from = line_at(data, size, &other_length);

	if (draw(3) == 0)
		other_length = 0;
	if (other_length > length)
		return;
	memmove(data + at, data + from, other_length);
	memset(data + at + other_length, ' ', length - other_length);
}

static void mutate(uint8_t *data, size_t size)
{
	static const char marks[] = "{}[](),;:@!%.+-/*\"\n 0123";

	for (uint32_t n = 1 + draw(2); n; n--) {
		size_t at = draw((uint32_t)size - 64), from = draw((uint32_t)size - 64);

		if (draw(2))
			mutate_line(data, size);
		else if (draw(2))
			data[at] = (uint8_t)marks[draw(sizeof(marks) - 1)];
		else if (draw(2))
			memmove(data + at, data + from, 1 + draw(60));
		else
			data[at] = (uint8_t)draw(256);
	}
}

int main(int argc, char **argv)
{
	unsigned inputs = argc > 1 ? (unsigned)atoi(argv[1]) : 600;

	for (unsigned i = 0; i < inputs; i++) {
		char path[512];
		size_t size, length;
		cleanup_free uint8_t *data = NULL;

		snprintf(path, sizeof(path), "%s/%s", BELFRY_TEST_DATA, files[i % FILES]);
		data = read_file(path, 1 << 17, &size);
		if (i >= FILES)
			mutate(data, size);
		length = draw(8) ? size : draw((uint32_t)size) + 1;
		data = realloc(data, length);
		LLVMFuzzerTestOneInput(data, length);
	}
	for (unsigned i = 0; i < PROBES; i++)
		probe_free(probes[i]);
	printf("%u inputs, %u woven\n", inputs, woven_count);
	check(inputs < 100 || woven_count > inputs / 20, "many inputs are woven");
	return 0;
}
#endif
