/* Bytes into the reader of policy objects: whatever they are, no crash, no hang, no leak, and what is accepted makes sense.
 * Nothing is loaded into the kernel. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main() that mutates
 * the objects of tests/policies: policy_object [inputs]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "policy/policy.h"

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "policy_object: violated: %s\n", what);
	abort();
}

static void check_accepted(const struct policy_description *description)
{
	check(description->policy.abi == BELFRY_POLICY_ABI, "it is of this ABI");
	check(strnlen(description->policy.name, BELFRY_NAME_SIZE) < BELFRY_NAME_SIZE, "a name ends");
	check(description->hooks && description->hooks < 1u << BELFRY_HOOKS, "it has hooks");
	check(description->map_count <= 16 && description->tunable_count <= POLICY_TUNABLES_MAX,
	      "there are limits");
	for (size_t i = 0; i < description->tunable_count; i++)
		check(description->tunables[i].name[0] && description->tunables[i].bytes <= 8,
		      "tunables are numbers");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct policy_description description;
	struct bf_error err = { 0 };
	int rc = policy_describe(data, size, NULL, 0, &description, &err);

	if (rc)
		check(err.code == -rc && err.text[0] && !strchr(err.text, '\n'), "an error has one line");
	else
		check_accepted(&description);
	return 0;
}

#ifdef FUZZ_STANDALONE
static const char *const objects[] = { "least", "slow", "many_maps", "small_table" };
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
		size_t at = draw((uint32_t)size - 8);

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

	snprintf(path, sizeof(path), "%s/tests/policies/%s.bpf.o", BELFRY_BUILD_DIR, name);
	file = fopen(path, "re");
	check(file && data, "the objects are built");
	*size = fread(data, 1, 1 << 20, file);
	check(*size > 64, "they are objects");
	return data;
}

int main(int argc, char **argv)
{
	unsigned inputs = argc > 1 ? (unsigned)atoi(argv[1]) : 5000;

	for (unsigned i = 0; i < inputs; i++) {
		size_t size, length;
		cleanup_free uint8_t *data =
			read_object(objects[i % (sizeof(objects) / sizeof(objects[0]))], &size);

		if (i >= sizeof(objects) / sizeof(objects[0]))
			mutate(data, size);
		length = draw(8) ? size : draw((uint32_t)size) + 1;
		data = realloc(data, length);
		LLVMFuzzerTestOneInput(data, length);
	}
	printf("%u inputs\n", inputs);
	return 0;
}
#endif
