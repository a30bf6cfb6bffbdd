/* Bytes from outside into rm: whatever they are, no read past the argument, no undefined behaviour, and an
 * answer the warden can act on. Build with clang -fsanitize=fuzzer, or with -DFUZZ_STANDALONE for a main()
 * that feeds it a seeded pseudo-random corpus: rm_decode [inputs]. */
#include "rm/rm.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "rm_decode: violated: %s\n", what);
	abort();
}

static void check_call(int rc, const struct rm_call *call, uint32_t nr, uint32_t size)
{
	check(rc == 0 || rc == -EINVAL, "the answer is 0 or -EINVAL");
	if (rc)
		return;
	check(call->nr == nr && call->size == size, "the call keeps its number and size");
	check(call->verb <= RM_VERB_REFUSED, "the verb is one of enum rm_verb");
	check(call->fd >= -1, "a file is -1 or a number");
	check(call->status_at == -1 || (uint32_t)call->status_at + 4 <= size, "the status is inside");
	check(call->object_at == -1 || (uint32_t)call->object_at + 4 <= size, "the handle is inside");
	check(call->verb == RM_VERB_OTHER || size <= RM_ARG_MAX, "large arguments have no verb");
	check(call->verb == RM_VERB_OTHER || call->verb == RM_VERB_REGISTER_FD || call->status_at >= 0,
	      "every verb but REGISTER_FD can be answered");
}

static void check_class(uint32_t id)
{
	const struct rm_class *class = rm_class_find(id);
	const struct rm_layout *layout;

	check(class && class->name && class->kind <= RM_KIND_REFUSED, "a class has a name and a kind");
	for (unsigned i = 0; (layout = rm_layout_at(i)); i++) {
		int size = rm_class_params_size(layout, id);

		check(size >= -1 && size <= 4096, "parameters are unknown or small");
	}
}

/* arg is a copy of exactly size bytes, so that a sanitizer sees the first byte past it. */
static void decode(uint32_t nr, uint32_t size, const uint8_t *data)
{
	uint8_t *arg = malloc(size ? size : 1);
	struct rm_call call;
	int rc;

	if (!arg)
		return;
	memcpy(arg, data, size);
	rc = rm_decode(nr, size, arg, &call);
	check_call(rc, &call, nr, size);
	if (!rc)
		check_class(call.class_id);
	free(arg);
}

static void decode_xfer(uint32_t size, const uint8_t *data)
{
	uint8_t *arg = malloc(size ? size : 1);
	struct rm_xfer xfer;

	if (!arg)
		return;
	memcpy(arg, data, size);
	if (!rm_decode_xfer(size, arg, &xfer))
		check(xfer.size <= RM_XFER_MAX, "a transfer is bounded");
	free(arg);
}

static void find_layout(const uint8_t *data, size_t size)
{
	char *version = malloc(size + 1);
	const struct rm_layout *layout;

	if (!version)
		return;
	memcpy(version, data, size);
	version[size] = '\0';
	layout = rm_layout_find(version);
	check(!layout || !strncmp(version, layout->series, strlen(layout->series)), "the series fits");
	free(version);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first bytes choose the number; the rest is the argument, the version and the class at once. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t nr, id = 0;

	if (size < 2)
		return 0;
	nr = data[0] | (data[1] & 0x80 ? 0x100u : 0u); /* at times a number past the low byte */
	data += 2;
	size -= 2;
	if (size > 4096)
		size = 4096;
	if (size >= sizeof(id))
		memcpy(&id, data, sizeof(id));
	decode(nr, (uint32_t)size, data);
	decode_xfer((uint32_t)size, data);
	find_layout(data, size);
	check_class(id);
	rm_fb_meaning(id);
	return 0;
}

#ifdef FUZZ_STANDALONE
static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Half of the inputs have a size some call takes; small words are common, since handles and classes are. */
static size_t input_make(uint64_t *state, uint8_t *data)
{
	static const uint8_t nrs[] = {
		0x27, 0x28, 0x29, 0x2a, 0x2b, 0x34, 0x35, 0x41, 0x4a, 0x4e, 0x4f, 0x57, 0xc9, 0xd3,
	};
	static const uint16_t sizes[] = { 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 184, 560 };
	size_t size = random_next(state) % 2 ? sizes[random_next(state) % (sizeof(sizes) / sizeof(sizes[0]))]
					     : random_next(state) % 600;

	data[0] = (uint8_t)random_next(state);
	if (random_next(state) % 4)
		data[0] = nrs[random_next(state) % sizeof(nrs)];
	data[1] = (uint8_t)random_next(state);
	for (size_t i = 2; i < size + 2; i++)
		data[i] = i % 4 > 1 && random_next(state) % 4 ? 0 : (uint8_t)random_next(state);
	return size + 2;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000000;
	uint64_t state = 0x62656c667279u;
	uint8_t data[1024];

	for (unsigned long i = 0; i < count; i++)
		LLVMFuzzerTestOneInput(data, input_make(&state, data));
	printf("%lu inputs\n", count);
	return 0;
}
#endif
