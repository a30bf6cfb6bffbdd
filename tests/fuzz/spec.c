/* Bytes as a spec that somebody sends, and as words that somebody writes: what is accepted makes sense, what is not has
 * a reason. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main() that makes inputs: spec
 * [inputs]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/spec.h"

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "spec: violated: %s\n", what);
	abort();
}

static void check_accepted(const struct spec *spec)
{
	char text[64];

	check(spec->request_ppm <= spec->limit_ppm && spec->limit_ppm <= SPEC_WHOLE_PPM && spec->limit_ppm,
	      "a request up to a limit up to all");
	check(spec->class <= SPEC_LATENCY && spec->interleave >= -1 && spec->interleave <= 2,
	      "numbers in range");
	check(memchr(spec->domain, 0, sizeof(spec->domain)), "text ends");
	check(strlen(spec_format_time(spec, text, sizeof(text))) < sizeof(text), "it can be told");
	check(strlen(spec_format_objective(spec, text, sizeof(text))) < sizeof(text), "so can its objective");
}

static void check_sent(const uint8_t *data, size_t size)
{
	struct bf_error err = { 0 };
	struct spec spec = spec_default;
	int rc;

	memcpy(&spec, data, size < sizeof(spec) ? size : sizeof(spec));
	rc = spec_check(&spec, &err);
	if (rc)
		check(err.code == -rc && err.text[0], "an error has a text");
	else
		check_accepted(&spec);
}

static void check_written(const uint8_t *data, size_t size)
{
	static const char *const keys[] = { "mem",    "time",	   "class",	 "objective",
					    "domain", "timeslice", "interleave", "public" };
	struct bf_error err = { 0 };
	struct spec spec = spec_default, before = spec_default;
	uint32_t parts = 0;
	char value[128];

	if (!size)
		return;
	snprintf(value, sizeof(value), "%.*s", (int)(size - 1 < 127 ? size - 1 : 127),
		 (const char *)data + 1);
	if (spec_parse(&spec, &parts, keys[data[0] % 8], value, &err)) {
		check(err.code > 0 && err.text[0], "an error has a text");
		check(!memcmp(&spec, &before, sizeof(spec)) && !parts, "what was refused changed nothing");
		return;
	}
	check(parts, "something was said");
	spec_merge(&before, &spec, parts);
	check(!memcmp(&spec, &before, sizeof(spec)), "only what was said changed");
	if (!spec_check(&spec, NULL))
		check_accepted(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_sent(data, size);
	check_written(data, size);
	return 0;
}

#ifdef FUZZ_STANDALONE
int main(int argc, char **argv)
{
	static const char *const seeds[] = { "1"
					     "40:100",
					     "1"
					     "33.3333:66.6667",
					     "0"
					     "8G",
					     "3"
					     "p99=2ms",
					     "5"
					     "200us",
					     "6"
					     "high",
					     "4"
					     "lab",
					     "2"
					     "latency" };
	long inputs = argc > 1 ? strtol(argv[1], NULL, 10) : 20000;
	uint8_t data[160];

	srand(1);
	for (long i = 0; i < inputs; i++) {
		size_t size = (size_t)(rand() % (int)sizeof(data));

		for (size_t k = 0; k < size; k++)
			data[k] = (uint8_t)(i % 3 ? rand() : "0123456789.:%pmsunG= "[rand() % 21]);
		if (i % 4 == 0) {
			const char *seed = seeds[rand() % 8];

			size = strlen(seed);
			memcpy(data, seed, size);
			data[rand() % (int)size] ^= (uint8_t)(1 << rand() % 8);
		}
		LLVMFuzzerTestOneInput(data, size);
	}
	return 0;
}
#endif
