/* Bytes into the reader of probe objects: whatever they are, no crash, no hang, no leak. The text of every accepted
 * program is PTX that the software GPU loads. Nothing is loaded into the kernel. Build with clang -fsanitize=fuzzer, or
 * with -DFUZZ_STANDALONE for a main() that mutates the objects of tests/probes: probe_object [inputs]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "probe/probe.h"
#include "soft/ptx/ptx.h"

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "probe_object: violated: %s\n", what);
	abort();
}

static void check_text(const struct probe *probe, size_t program, bool is_per_thread)
{
	struct bf_error err = { 0 };
	struct ptx_module *module;
	cleanup_free char *text = NULL;

	check(!probe_write_module(probe, program, is_per_thread, &text, &err),
	      "an accepted program is written");
	if (ptx_module_load(text, strlen(text), &module, &err)) {
		fprintf(stderr, "%s in\n%s", err.text, text);
		check(false, "the text is PTX");
	}
	ptx_module_free(module);
}

static void check_accepted(const struct probe *probe)
{
	const struct probe_program *program;
	const struct probe_map *map;

	check(probe_program_at(probe, 0), "it has programs");
	check(probe_area_bytes(probe) <= PROBE_AREA_BYTES_MAX, "there are limits");
	for (size_t i = 0; (map = probe_map_at(probe, i)); i++)
		check(map->values + map->value_area_bytes <= probe_area_bytes(probe), "maps are in the area");
	for (size_t i = 0; (program = probe_program_at(probe, i)); i++) {
		check(program->stack_bytes <= PROBE_STACK_BYTES && program->insn_count <= PROBE_INSNS_MAX,
		      "there are limits for programs");
		check_text(probe, i, true);
		check_text(probe, i, false);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bf_error err = { 0 };
	struct probe *probe;
	int rc = probe_open(data, size, NULL, &probe, &err);

	if (rc) {
		check(err.code == -rc && err.text[0] && !strchr(err.text, '\n'), "an error has one line");
		return 0;
	}
	check_accepted(probe);
	probe_free(probe);
	return 0;
}

#ifdef FUZZ_STANDALONE
static const char *const objects[] = { "blocktime", "count", "pages", "spread" };
enum { OBJECTS = sizeof(objects) / sizeof(objects[0]) };
static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

/* A few bytes become others; numbers that say where something is or how long are the ones that matter. */
static void mutate(uint8_t *data, size_t size)
{
	static const uint32_t numbers[] = { 0,	    1,	    7,	     8,		 0x7f,	    0xff,
					    0x7fff, 0xffff, 0x10000, 0x7fffffff, 0xffffffff };

	for (uint32_t n = 1 + draw(4); n; n--) {
		uint32_t number = numbers[draw(sizeof(numbers) / sizeof(numbers[0]))];
		/* The code is near the start of the file. */
		size_t at = draw(draw(2) && size > 1024 ? 1024 : (uint32_t)size - 8);

		if (draw(3))
			data[at] = (uint8_t)draw(256);
		else
			memcpy(data + (at & ~3ull), &number, sizeof(number));
	}
}

static uint8_t *read_object(const char *name, size_t *size)
{
	uint8_t *data = malloc(1 << 20);
	cleanup_file FILE *file = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/probes/%s.bpf.o", BELFRY_BUILD_DIR, name);
	file = fopen(path, "re");
	check(file && data, "the objects are built");
	*size = fread(data, 1, 1 << 20, file);
	check(*size > 64, "they are objects");
	return data;
}

int main(int argc, char **argv)
{
	unsigned inputs = argc > 1 ? (unsigned)atoi(argv[1]) : 3000;

	for (unsigned i = 0; i < inputs; i++) {
		size_t size, length;
		cleanup_free uint8_t *data = read_object(objects[i % OBJECTS], &size);

		if (i >= OBJECTS)
			mutate(data, size);
		length = draw(8) ? size : draw((uint32_t)size) + 1;
		data = realloc(data, length);
		LLVMFuzzerTestOneInput(data, length);
	}
	printf("%u inputs\n", inputs);
	return 0;
}
#endif
