/* Bytes into the reader of the configuration: whatever they are, no crash, no hang, no leak, and what is accepted makes
 * sense. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main() that mutates a text: config
 * [inputs]. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "router/config.h"

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "config: violated: %s\n", what);
	abort();
}

static void check_accepted(const struct config *config)
{
	const struct settings *sharing = &config->sharing;

	check(sharing->slice_min_us <= sharing->round_us && sharing->round_us <= sharing->window_us,
	      "times fit into each other");
	check(config->gpu_count <= CONFIG_GPUS_MAX && config->vgpu_count <= CONFIG_VGPUS_MAX,
	      "there are limits");
	check(config->is_all || config->gpu_count, "there is a GPU");
	for (size_t i = 0; i < config->vgpu_count; i++) {
		check(!spec_check_name(config->vgpus[i].name, NULL), "names are names");
		check(!spec_check(&config->vgpus[i].spec, NULL), "specs make sense");
		check(config_find(config, config->vgpus[i].name) == &config->vgpus[i],
		      "names are given once");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bf_error err = { 0 };
	struct config config;
	int rc;

	for (int is_state = 0; is_state < 2; is_state++) {
		config_init(&config);
		rc = config_parse(&config, "f", (const char *)data, size, is_state, &err);
		if (!rc)
			rc = config_check(&config, &err);
		if (rc)
			check(err.code == -rc && err.text[0], "an error has a text");
		else
			check_accepted(&config);
		config_free(&config);
	}
	return 0;
}

#ifdef FUZZ_STANDALONE
static const char text[] =
	"# a text\n[server]\ngpus = 0 1 soft:1\naccess = group 7\non_daemon_death = carry\n"
	"metrics = 127.0.0.1:9835 public\nlog = debug\nlinger = 2s\n[sharing]\nwindow = 2s\nround = 50ms\n"
	"slice_min = 1ms\ngrace = 0\nidle = 10us\nhow = turns\n[vgpu infer]\nmem = 40G\ntime = 40:100\n"
	"class = latency\nobjective = p99=2ms\ngpu = soft:1 /run/x\nowner = 1000\npublic = yes\n"
	"domain = d\ntimeslice = 200us\ninterleave = high\n[vgpu train]\ntime = 33.3333\nfrom = configuration\n";
static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

/* A few bytes become others, a piece comes twice, or the end is missing. */
static size_t mutate(uint8_t *data, size_t size)
{
	static const char bytes[] = "\n\n=[] :.#0159%\t\x7f\xff";

	for (uint32_t n = draw(5); n; n--)
		data[draw((uint32_t)size)] = draw(4) ? (uint8_t)bytes[draw(sizeof(bytes))]
						     : (uint8_t)draw(256);
	if (!draw(4)) {
		uint32_t from = draw((uint32_t)size), to = draw((uint32_t)size), most = from > to ? from : to;
		uint32_t bytes_left = (uint32_t)size - most;

		memmove(data + to, data + from, draw(bytes_left) + 1);
	}
	return draw(4) ? size : draw((uint32_t)size) + 1;
}

int main(int argc, char **argv)
{
	unsigned inputs = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;

	for (unsigned i = 0; i < inputs; i++) {
		size_t size = sizeof(text) - 1, length = size;
		cleanup_free uint8_t *data = malloc(size);

		check(data, "there is memory");
		memcpy(data, text, size);
		if (i)
			length = mutate(data, size);
		/* As long as it is and no longer: a sanitizer sees the first byte too far. */
		data = realloc(data, length);
		LLVMFuzzerTestOneInput(data, length);
	}
	printf("%u inputs\n", inputs);
	return 0;
}
#endif
