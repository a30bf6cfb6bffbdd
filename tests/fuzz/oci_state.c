/* Bytes into the reader of container process states, in pieces: whatever they are, no crash, no hang, no leak, and what is
 * accepted makes sense. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "oci_state: violated: %s\n", what);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct attach_reader *reader = attach_reader_new();
	size_t step = size ? 1 + data[0] % 64 : 1;
	struct attach_state state;
	struct bf_error err = { 0 };
	int rc = 0;

	for (size_t at = 1; reader && !rc && at < size; at += step)
		rc = attach_read(reader, (const char *)data + at, size - at < step ? size - at : step, &state,
				 &err);
	if (rc == 1) {
		check(!spec_check_name(state.vgpu, NULL), "names are names");
		check(state.id[0] && memchr(state.id, 0, sizeof(state.id)), "there is an ID");
		check(state.listener_at < ATTACH_FDS_MAX, "descriptors have a limit");
	}
	check(rc >= 0 || err.text[0], "errors have a text");
	attach_reader_free(reader);
	return 0;
}
