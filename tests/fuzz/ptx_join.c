/* Texts from outside into what joins PTX: whatever they are, no crash, no hang, no leak; nor of what
 * comes out. A zero byte stands between two texts. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a
 * main() that mutates texts of its own: ptx_join [inputs]. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "soft/cuda/join.h"

enum { TEXTS_MAX = 8 };

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "ptx_join: violated: %s\n", what);
	abort();
}

static void join_again(const char *text, size_t length)
{
	const struct join_input input = { text, length };
	cleanup_free char *again = NULL;
	struct bf_error err;
	size_t again_length;

	int rc = join_texts(&input, 1, false, &again, &again_length, &err);

	check((rc == 0) == (again != NULL), "a text or an error, again");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct join_input inputs[TEXTS_MAX];
	struct bf_error err = { 0 };
	cleanup_free char *text = NULL;
	const char *at = (const char *)data, *end = at + size;
	unsigned count = 0;
	size_t length = 0;

	while (at < end && count < TEXTS_MAX) {
		const char *stop = memchr(at, 0, (size_t)(end - at));

		inputs[count++] = (struct join_input){ at, (size_t)((stop ? stop : end) - at) };
		at = stop ? stop + 1 : end;
	}
	for (int is_lazy = 0; is_lazy < 2; is_lazy++) {
		int rc = join_texts(inputs, count, is_lazy, &text, &length, &err);

		check((rc == 0) == (text != NULL), "a text or an error");
		check(rc == 0 || err.text[0], "an error has a text");
		if (text) {
			check(!text[length], "a text ends");
			join_again(text, length);
		}
		free(text);
		text = NULL;
	}
	return 0;
}

#ifdef FUZZ_STANDALONE
static const char seed_text[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".extern .func (.param .b32 r) f (.param .b32 x);\n"
	".extern .shared .align 4 .b8 s[];\n"
	".global .align 4 .u32 own[2] = {1, 2}; // comment }\n"
	".visible .entry k(.param .u64 p) { .reg .b32 %r<2>; call (r), f, (x); ret; }\n"
	"\0"
	".version 8.1\n.target sm_86, debug\n.address_size 64\n"
	".file 1 \"a.cu\"\n/* comment { */ .weak .global .u32 own;\n"
	".func own2() { ret; }\n"
	".visible .func (.param .b32 r) f (.param .b32 x) { { ret; } }\n"
	".section .debug { .b8 1 }\n";

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

int main(int argc, char **argv)
{
	static const char signs[] = "{}()[];,.\"/*\n\0 af%$";
	unsigned inputs = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;

	for (unsigned i = 0; i < inputs; i++) {
		size_t size = i ? draw(sizeof(seed_text)) : sizeof(seed_text) - 1;
		cleanup_free uint8_t *data = malloc(size ? size : 1);

		check(data, "there is memory");
		memcpy(data, seed_text, size);
		for (uint32_t n = i && size ? draw(6) : 0; n; n--)
			data[draw((uint32_t)size)] = (uint8_t)signs[draw(sizeof(signs) - 1)];
		LLVMFuzzerTestOneInput(data, size);
	}
	printf("%u inputs\n", inputs);
	return 0;
}
#endif
