/* Text from outside into the PTX loader, and what it made of it into the interpreter: whatever it is, no crash, no
 * hang, no leak, no access outside of the memory it was given. Build with clang -fsanitize=fuzzer, or with
 * -DFUZZ_STANDALONE for a main() that mutates the PTX of tests/data: ptx_load [inputs]. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "soft/ptx/ptx.h"

#define MEMORY_BYTES 65536u
#define MEMORY_BASE 0x700000000000ull
#define COST_MAX 20000u

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "ptx_load: violated: %s\n", what);
	abort();
}

static bool translate(void *ctx, uint64_t address, uint32_t bytes, bool is_write, struct ptx_span *span)
{
	(void)is_write;
	if (address - MEMORY_BASE >= MEMORY_BYTES || MEMORY_BYTES - (address - MEMORY_BASE) < bytes)
		return false;
	*span = (struct ptx_span){
		.base = MEMORY_BASE, .bytes = MEMORY_BYTES, .host = ctx, .is_writable = true
	};
	return true;
}

static int print(void *ctx, const struct ptx_print *p)
{
	(void)ctx;
	check(p->format[strlen(p->format)] == '\0', "a format ends");
	return 0;
}

/* Parameters that look like sizes or like addresses. */
static void make_params(const struct ptx_kernel *k, uint8_t *params)
{
	for (uint32_t i = 0; i < k->param_count; i++) {
		uint64_t v = k->params[i].bytes == 8 ? MEMORY_BASE + 4096ull * i : 40 + i;

		check(k->params[i].offset + k->params[i].bytes <= k->param_bytes, "a parameter is inside");
		memcpy(params + k->params[i].offset, &v, k->params[i].bytes < 8 ? k->params[i].bytes : 8);
	}
}

static void run_kernel(const struct ptx_module *module, const struct ptx_kernel *k, uint8_t *memory)
{
	struct ptx_host host = { .ctx = memory, .translate = translate, .print = print };
	struct ptx_launch launch = {
		.module = module, .kernel = k, .grid = { 2, 1, 1 }, .threads = { 40, 1, 1 }, .sm_count = 1
	};
	const uint32_t index[3] = { 1, 0, 0 };
	cleanup_free uint8_t *params = calloc(1, k->param_bytes + 8u);
	struct ptx_block *block;
	uint64_t cost = 0;

	if (!params)
		return;
	make_params(k, params);
	launch.params = params;
	if (k->required[0])
		memcpy(launch.threads, k->required, sizeof(launch.threads));
	else if (k->max_threads < 40)
		launch.threads[0] = k->max_threads;
	if (ptx_block_create(&launch, &host, &block, NULL))
		return;
	ptx_block_start(block, index, 0);
	for (unsigned turn = 0; turn < 4 && cost < COST_MAX; turn++)
		if (ptx_block_run(block, COST_MAX / 4, NULL, &cost) != PTX_STATE_RUNNING)
			break;
	ptx_block_free(block);
}

static void run_module(struct ptx_module *module)
{
	static uint8_t memory[MEMORY_BYTES] __attribute__((aligned(64)));
	uint32_t count = ptx_variable_count(module);
	cleanup_free uint64_t *addresses = calloc(count + 1u, sizeof(*addresses));
	const struct ptx_variable *v;
	const struct ptx_kernel *k;

	if (!addresses)
		return;
	for (uint32_t i = 0; (v = ptx_variable_at(module, i)); i++) {
		check(v->data_bytes <= v->bytes, "initial data fits");
		for (uint32_t r = 0; r < v->reloc_count; r++)
			check(v->relocs[r].offset + v->relocs[r].bytes <= v->data_bytes &&
				      v->relocs[r].variable < count,
			      "a relocation is inside");
		addresses[i] = MEMORY_BASE + (i * 512u) % MEMORY_BYTES;
	}
	ptx_module_place(module, addresses);
	for (uint32_t i = 0; (k = ptx_kernel_at(module, i)) && i < 20; i++)
		if (k->is_entry && k->local_bytes < 65536)
			run_kernel(module, k, memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bf_error err = { 0 };
	struct ptx_module *module;
	/* a copy of exactly size bytes, so that a sanitizer sees the first byte past it */
	cleanup_free char *text = malloc(size ? size : 1);
	int rc;

	if (!text)
		return 0;
	memcpy(text, data, size);
	rc = ptx_module_load(text, size, &module, &err);
	check(rc <= 0 && (rc == 0) == (module != NULL), "a module or an error");
	check(rc == 0 || err.text[0], "an error has a text");
	if (module) {
		run_module(module);
		ptx_module_free(module);
	}
	return 0;
}

#ifdef FUZZ_STANDALONE
struct seeds {
	char *text[64];
	size_t length[64];
	unsigned count;
};

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Whole functions only: a kernel of the text, with the head before it, so that most mutants reach the end. */
static void add_functions(struct seeds *s, const char *text)
{
	const char *at = text;
	size_t head =
		(size_t)(strstr(text, ".address_size 64") ? strstr(text, ".address_size 64") + 16 - text : 0);

	while ((at = strstr(at, "\n.visible .entry")) && s->count < 64) {
		const char *end = strstr(at, "\n}");
		size_t body = end ? (size_t)(end + 3 - at) : strlen(at);
		char *copy = malloc(head + body + 1);

		if (!copy)
			return;
		memcpy(copy, text, head);
		memcpy(copy + head, at, body);
		copy[head + body] = '\0';
		s->text[s->count] = copy;
		s->length[s->count++] = head + body;
		at += body;
	}
}

static void read_seeds(struct seeds *s)
{
	DIR *dir = opendir(BELFRY_TEST_DATA "/ptx");
	struct dirent *e;

	while (dir && (e = readdir(dir)) && s->count < 64) {
		char path[512];
		cleanup_free char *text = calloc(1, 1 << 20);
		cleanup_file FILE *file = NULL;

		if (!strstr(e->d_name, ".ptx"))
			continue;
		snprintf(path, sizeof(path), "%s/ptx/%s", BELFRY_TEST_DATA, e->d_name);
		file = fopen(path, "r");
		if (text && file && fread(text, 1, (1 << 20) - 1, file))
			add_functions(s, text);
	}
	if (dir)
		closedir(dir);
}

/* A line of the text, from a random place on. */
static size_t line_at(const char *text, size_t length, uint64_t r, size_t *from)
{
	size_t at = r % length, end;

	while (at > 0 && text[at - 1] != '\n')
		at--;
	for (end = at; end < length && text[end] != '\n';)
		end++;
	*from = at;
	return end < length ? end + 1 - at : length - at;
}

/* One small change: a byte, a digit, a line gone, twice or swapped with another. */
static size_t mutate(uint64_t *state, char *text, size_t length, size_t room)
{
	static const char letters[] = "0123456789.,;:%[]{}()-+!@|_ \nabdefhlnprstuvwxzR\"$\xff";
	size_t from, to, n, m;

	switch (random_next(state) % 7) {
	case 0:
		text[random_next(state) % length] = letters[random_next(state) % (sizeof(letters) - 1)];
		return length;
	case 1:
	case 2: /* another register, another number */
		for (from = random_next(state) % length; from < length; from++)
			if (text[from] >= '0' && text[from] <= '9') {
				text[from] = (char)('0' + random_next(state) % 10);
				break;
			}
		return length;
	case 3:
		n = line_at(text, length, random_next(state), &from);
		memmove(text + from, text + from + n, length - from - n);
		return length - n;
	case 4:
	case 5: /* a line at another place */
		n = line_at(text, length, random_next(state), &from);
		m = line_at(text, length, random_next(state), &to);
		(void)m;
		if (length + n > room || n > 200)
			return length;
		{
			char line[200];

			memcpy(line, text + from, n);
			memmove(text + to + n, text + to, length - to);
			memcpy(text + to, line, n);
		}
		return length + n;
	default:
		return random_next(state) % 50 ? length : 1 + random_next(state) % length;
	}
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 40000;
	uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 0x70747866757a7aull;
	struct seeds seeds = { 0 };
	size_t room = 1 << 20;
	cleanup_free char *text = malloc(room);

	read_seeds(&seeds);
	check(seeds.count > 20 && text, "there are seeds");
	for (unsigned long i = 0; i < count; i++) {
		unsigned which = (unsigned)(random_next(&state) % seeds.count);
		size_t length = seeds.length[which];

		memcpy(text, seeds.text[which], length);
		for (uint64_t n = random_next(&state) % 4; n > 0 && length; n--)
			length = mutate(&state, text, length, room);
		LLVMFuzzerTestOneInput((const uint8_t *)text, length);
	}
	for (unsigned i = 0; i < seeds.count; i++)
		free(seeds.text[i]);
	printf("%lu inputs\n", count);
	return 0;
}
#endif
