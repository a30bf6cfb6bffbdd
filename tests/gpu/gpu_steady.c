/* SPDX-License-Identifier: MIT */
/* a_neighbours_fault_disturbs_nobody: rounds of chained launches whose result depends on every one of
 * them. Every round must give the same hash. `--rounds N`, or `--until FILE` (until that file exists,
 * `--secs` at most); `--expect HASH` from a run alone. Prints `hash= rounds= launches= wrong=`. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

enum { WORDS = 1 << 18 };

static unsigned launches; /* a round */

struct chain {
	void *kernel, *stream;
	uint64_t buffer[2];
	uint32_t *host;
};

static void chain_open(struct chain *c)
{
	c->kernel = cu_kernel(kernel_steady, "steady");
	CU_MUST(cu.StreamCreate(&c->stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 2; i++)
		CU_MUST(cu.MemAlloc(&c->buffer[i], WORDS * sizeof(*c->host)));
	c->host = malloc(WORDS * sizeof(*c->host));
	if (!c->host)
		abort();
}

static uint64_t chain_round(struct chain *c)
{
	uint64_t hash = 14695981039346656037ull;
	uint32_t step, mask = WORDS - 1;

	for (uint32_t i = 0; i < WORDS; i++)
		c->host[i] = i * 2654435761u;
	CU_MUST(cu.MemcpyHtoD(c->buffer[0], c->host, WORDS * sizeof(*c->host)));
	/* a copy from pageable memory may return before it has arrived, and this stream does not wait for
	 * it */
	CU_MUST(cu.CtxSynchronize());
	for (step = 0; step < launches; step++) {
		void *args[] = { &c->buffer[step & 1], &c->buffer[~step & 1], &step, &mask };

		CU_MUST(cu_launch(c->kernel, WORDS / 256, 256, c->stream, args));
	}
	CU_MUST(cu.StreamSynchronize(c->stream));
	CU_MUST(cu.MemcpyDtoH(c->host, c->buffer[launches & 1], WORDS * sizeof(*c->host)));
	for (uint32_t i = 0; i < WORDS; i++)
		hash = (hash ^ c->host[i]) * 1099511628211ull;
	return hash;
}

int main(int argc, char **argv)
{
	uint64_t rounds = option_number(argc, argv, "rounds", 20), done = 0, wrong = 0, hash, end;
	const char *until = option_text(argc, argv, "until", NULL);
	const char *expect = option_text(argc, argv, "expect", NULL);
	uint64_t right = expect ? strtoull(expect, NULL, 16) : 0;
	struct chain chain;

	launches = (unsigned)option_number(argc, argv, "launches", 1000);
	cu_open();
	chain_open(&chain);
	end = now_ns() + option_number(argc, argv, "secs", 120) * 1000000000ull;
	while (until ? access(until, F_OK) && now_ns() < end : done < rounds) {
		hash = chain_round(&chain);
		if (!right)
			right = hash;
		wrong += hash != right;
		done++;
	}
	printf("hash=%016llx rounds=%llu launches=%llu wrong=%llu\n", (unsigned long long)right,
	       (unsigned long long)done, (unsigned long long)done * launches, (unsigned long long)wrong);
	return wrong != 0 || !done;
}
