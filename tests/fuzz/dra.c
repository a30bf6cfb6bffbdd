/* What belfry-dra reads: messages of the kubelet, ResourceClaims of the API server, and quantities. Whatever they are, no crash,
 * no leak, and nothing is accepted that could be a path or a limit out of range. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "dra/dra.h"

static unsigned long accepted;

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "dra: violated: %s\n", what);
	abort();
}

static void read_message(const uint8_t *data, size_t size)
{
	struct proto_writer answer = { 0 };
	struct bf_error err = { 0 };
	struct dra_claims claims;
	char text[32];
	int rc = dra_read_claims((struct proto_bytes){ data, size }, &claims, &err);

	check(!rc || err.text[0], "errors have a text");
	for (size_t i = 0; !rc && i < claims.count; i++) {
		check(!strpbrk(claims.at[i].uid, "/.%") && !strpbrk(claims.at[i].name, "/%"),
		      "names are no paths");
		dra_write_prepared(&answer, &claims.at[i], "no");
		accepted++;
	}
	free(answer.at);
	free(claims.at);
	dra_read_status((struct proto_bytes){ data, size }, text, sizeof(text));
}

static void read_claim(const char *text)
{
	struct dra_claim claim = { .uid = "u", .space = "lab", .name = "a" };
	struct json_object *object = json_tokener_parse(text);
	struct proto_writer answer = { 0 };
	struct bf_error err = { 0 };
	int rc = dra_read_claim(object, &claim, &err);

	check(!rc || err.text[0], "errors have a text");
	for (size_t i = 0; !rc && i < claim.count; i++)
		check(claim.devices[i].mem_bytes <= 1ull << 60 &&
			      claim.devices[i].time_ppm <= SPEC_WHOLE_PPM &&
			      !spec_check_name(claim.devices[i].vgpu, NULL),
		      "amounts are in range");
	if (!rc) {
		dra_write_prepared(&answer, &claim, NULL);
		accepted++;
	}
	free(answer.at);
	json_object_put(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;
	double value = 0;

	if (!size)
		return 0;
	text = strndup((const char *)data + 1, size - 1);
	check(text != NULL, "there is memory");
	if (data[0] % 3 == 0)
		read_message(data + 1, size - 1);
	else if (data[0] % 3 == 1)
		read_claim(text);
	else
		check(!dra_quantity(text, &value) || (value >= 0 && value <= 1e19),
		      "quantities are in range");
	free(text);
	return 0;
}

#ifdef FUZZ_STANDALONE
/* Inputs that are valid, with bytes changed. */
static const char *const inputs[] = {
	"\3\x0a\x0d\x0a\x03lab\x12\x03u-1\x1a\x01"
	"a",
	"\1{\"metadata\":{\"uid\":\"u\"},\"status\":{\"allocation\":{\"devices\":{\"results\":[{\"driver\":\"gpu.belfry.dev\","
	"\"request\":\"r\",\"pool\":\"n\",\"device\":\"gpu-0\",\"consumedCapacity\":{\"memory\":\"8Gi\",\"time\":\"25\"}}]}}}}",
	"\2123.5Gi",
};

int main(void)
{
	char input[512];
	uint32_t seed = 5;

	for (unsigned run = 0; run < 30000; run++) {
		const char *from = inputs[run % 3];
		size_t size = strlen(from);

		memcpy(input, from, size + 1);
		for (unsigned i = 0; i < run / 3 % 4; i++) {
			seed = seed * 1103515245u + 12345u;
			input[1 + (seed >> 8) % (size - 1)] = (char)(seed >> 3);
		}
		LLVMFuzzerTestOneInput((const uint8_t *)input, size);
	}
	check(accepted > 5000, "many inputs are accepted");
	return 0;
}
#endif
