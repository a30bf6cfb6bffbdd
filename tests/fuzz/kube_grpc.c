/* Bytes of a peer into a gRPC server of the device plugin, in pieces, with calls that are answered at once, later or never:
 * whatever they are, no crash, no hang, no leak, and a bound on what is kept. Half of the inputs are messages of the device
 * plugin API without HTTP/2, which a fuzzer does not find by itself. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/api.h"
#include "kube/grpc.h"
#include "kube/inventory.h"

enum { CALLS_MAX = 4 * GRPC_STREAMS_MAX };

static struct grpc_call *calls[CALLS_MAX];
static unsigned open_calls;
static unsigned long called_ever;

static void check(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "kube_grpc: violated: %s\n", what);
	abort();
}

static void check_ids(const struct api_ids *ids)
{
	check(ids->count <= API_IDS_MAX, "devices have a limit");
	for (size_t i = 0; i < ids->count; i++)
		check(memchr(ids->at[i], 0, sizeof(ids->at[i])) != NULL, "IDs are texts");
}

static void allocate(const struct api_container *container)
{
	static struct inventory_device devices[] = { { "a/0", "a", true },
						     { "a/1", "a", true },
						     { "b/0", "b", true } };
	const struct inventory_options options = { .slots = 1 };
	struct inventory_resource resource = { .kind = INVENTORY_MEMORY, .devices = devices, .count = 3 };
	const char *at = NULL, *gpu = NULL;
	struct bf_error err = { 0 };
	char mark[128];

	if (!inventory_allocate(&resource, &options, &container->ids, mark, sizeof(mark), &at, &gpu, &err))
		check(at && gpu && gpu[0] && !strncmp(mark, "memory@", 7), "what is allocated is on one GPU");
	else
		check(err.text[0] != 0, "errors have a text");
}

static void prefer(const struct api_container *container)
{
	size_t room = container->ids.count + container->musts.count;
	const char **ids = calloc(room + 1, sizeof(*ids));
	size_t count = ids ? inventory_prefer(container, "a", ids, room) : 0;

	check(count <= room && (container->size > 0 ? count <= (size_t)container->size : !count),
	      "no more devices are preferred than were asked for");
	free(ids);
}

static void read_message(struct proto_bytes message)
{
	struct api_request request;
	struct bf_error err = { 0 };

	for (unsigned i = 0; i < 2; i++) {
		int rc = i ? api_read_preferred(message, &request, &err)
			   : api_read_allocate(message, &request, &err);

		check(!rc || err.text[0], "errors have a text");
		check(request.count <= API_CONTAINERS_MAX, "containers have a limit");
		for (size_t j = 0; j < request.count; j++) {
			check_ids(&request.containers[j].ids);
			check_ids(&request.containers[j].musts);
			if (!rc && i)
				prefer(&request.containers[j]);
			else if (!rc)
				allocate(&request.containers[j]);
		}
		api_request_free(&request);
	}
}

static void called(void *context, struct grpc_call *call, const char *path, struct proto_bytes message)
{
	struct proto_writer answer = { 0 };

	(void)context;
	check(open_calls < CALLS_MAX, "streams have a limit");
	check(message.count <= GRPC_MESSAGE_MAX && strlen(path) <= GRPC_PATH_MAX,
	      "messages and paths have a limit");
	calls[open_calls++] = call;
	called_ever++;
	read_message(message);
	if (message.count % 3 == 0)
		return; /* later */
	api_write_device(&answer, path, true);
	grpc_send(call, &answer);
	if (message.count % 3 == 1)
		grpc_finish(call, GRPC_OK, NULL);
	free(answer.at);
}

static void gone(void *context, struct grpc_call *call)
{
	(void)context;
	for (unsigned i = 0; i < open_calls; i++)
		if (calls[i] == call) {
			calls[i] = calls[--open_calls];
			return;
		}
}

static int pull(struct grpc *grpc)
{
	const uint8_t *out;
	ssize_t count;

	do
		count = grpc_pull(grpc, &out);
	while (count > 0);
	return (int)count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct grpc_events events = { .called = called, .gone = gone };
	size_t step = size ? 1 + data[0] / 2u * 16u : 1;
	struct grpc *grpc;
	int rc = 0;

	if (size && data[0] & 1) {
		read_message((struct proto_bytes){ data + 1, size - 1 });
		return 0;
	}
	grpc = grpc_new_server(&events);
	check(grpc != NULL, "there is memory");
	for (size_t at = 1; !rc && at < size && !grpc_is_over(grpc); at += step) {
		rc = grpc_feed(grpc, data + at, size - at < step ? size - at : step);
		if (!rc)
			rc = pull(grpc);
		if (!rc && open_calls && data[at] & 1)
			grpc_finish(calls[0], GRPC_UNKNOWN, "50 % \n");
	}
	if (!rc)
		pull(grpc);
	grpc_free(grpc);
	check(!open_calls, "every call ends with its connection");
	return 0;
}

#ifdef FUZZ_STANDALONE
/* Connections that begin well, with bytes changed. */
static const uint8_t start[] =
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
	"\0\0\x2d\1\4\0\0\0\1\x83\x86\0\5:path\x1e/v1beta1.DevicePlugin/Allocate\0\2te\0"
	"\0\0\x0e\0\1\0\0\0\1\0\0\0\0\x09\x0a\7\x0a\3a/0\x0a\0";

int main(void)
{
	uint8_t input[1 + 4 * sizeof(start)];
	uint32_t seed = 18;

	for (unsigned run = 0; run < 20000; run++) {
		size_t size = sizeof(start);

		input[0] = (uint8_t)(run * 7);
		memcpy(input + 1, start, sizeof(start) - 1);
		for (unsigned i = 0; i < run % 8; i++) {
			seed = seed * 1103515245u + 12345u;
			if (i == 3 && size + 64 < sizeof(input)) { /* a piece again */
				memmove(input + size, input + size - 40, 40);
				size += 40;
			}
			input[1 + (seed >> 8) % (size - 1)] = (uint8_t)(seed >> 3);
		}
		LLVMFuzzerTestOneInput(input, size);
	}
	check(called_ever > 1000, "many connections get as far as a call");
	return 0;
}
#endif
