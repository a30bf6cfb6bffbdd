/* Bytes as the trace of a run: whatever they are, no crash, no hang, no leak. A trace that is accepted is equal to itself, and
 * what differs between it and another one can be said. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a
 * main() that mutates a text: trace [inputs]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "verify/verify.h"

static const char sample[] =
	"belfry-trace 1\nF 0 first\nF 1 second\nL 0 1 1 0 1,1,1 20,1,1 0 0 77\nC 1 1 1 40 99\n"
	"N 1 0 1,1,1 1,1,1 0 0 7\nN 1 1 2,1,1 1,1,1 0 0 -\nG 2 1 2 1\nG 3 2 2 1\nC 4 2 2 40 99\n"
	"L 5 2 1 1 1,1,1 20,1,1 400 abc 77\nB 6 1 4 5 name\nN 2 1 1,1,1 1,1,1 0 0 7\nG 7 1 1 2\n";

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "trace: violated: %s\n", what);
	abort();
}

static bool read_trace(const uint8_t *data, size_t size, struct verify_trace *trace)
{
	struct bf_error err = { 0 };
	char *text = malloc(size + 1);
	int rc;

	check(text, "there is memory");
	memcpy(text, data, size);
	text[size] = 0;
	*trace = (struct verify_trace){ 0 };
	rc = verify_add(trace, text, "f", &err);
	if (rc)
		check(err.code == -rc && err.text[0], "an error has a text");
	return !rc;
}

static void compare(struct verify_trace *one, struct verify_trace *other, bool must_be_equal)
{
	struct verify_difference found;
	char text[700];

	check(!verify_compare(one, other, &found), "there is memory");
	check(!must_be_equal || !found.way, "a trace is equal to itself");
	verify_say(&found, one, other, text, sizeof(text));
	check(text[0] && strlen(text) < sizeof(text), "a difference has a text");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct verify_trace one, same, other;

	if (read_trace(data, size, &one)) {
		check(read_trace(data, size, &same), "what is accepted is accepted again");
		check(read_trace((const uint8_t *)sample, sizeof(sample) - 1, &other),
		      "the sample is a trace");
		compare(&one, &same, true);
		compare(&one, &other, false);
		compare(&other, &one, false);
		verify_loosen(&other, &one);
		verify_free(&same);
		verify_free(&other);
	}
	verify_free(&one);
	return 0;
}

#ifdef FUZZ_STANDALONE
static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

/* A few bytes become others, mostly ones that leave a trace, or the end is missing. */
static size_t mutate(uint8_t *data, size_t size)
{
	static const char bytes[] = "0123456789abcdef0012-, \nLGNCBF\xff";

	for (uint32_t n = draw(4); n; n--)
		data[draw((uint32_t)size)] = (uint8_t)bytes[draw(sizeof(bytes))];
	return draw(4) ? size : draw((uint32_t)size) + 1;
}

int main(int argc, char **argv)
{
	unsigned inputs = argc > 1 ? (unsigned)atoi(argv[1]) : 50000;

	for (unsigned i = 0; i < inputs; i++) {
		size_t size = sizeof(sample) - 1, length = size;
		cleanup_free uint8_t *data = malloc(size);

		check(data, "there is memory");
		memcpy(data, sample, size);
		if (i)
			length = mutate(data, size);
		LLVMFuzzerTestOneInput(data, length);
	}
	printf("%u inputs\n", inputs);
	return 0;
}
#endif
