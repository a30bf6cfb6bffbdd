#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/own.h"
#include "kube/plugin.h"

enum { HINT_NS = 2000000000 };

/* A call of ListAndWatch. */
struct watch {
	struct grpc_call *call;
	LIST_ENTRY(watch) entry; /* endpoint::watches */
};

static const struct inventory_resource *resource_of(const struct endpoint *endpoint)
{
	return inventory_find(endpoint->plugin->inventory, endpoint->resource);
}

static void send_devices(const struct endpoint *endpoint, struct grpc_call *call)
{
	const struct inventory_resource *resource = resource_of(endpoint);
	struct proto_writer answer = { 0 };

	for (size_t i = 0; resource && i < resource->count; i++)
		api_write_device(&answer, resource->devices[i].id, resource->devices[i].is_healthy);
	grpc_send(call, &answer);
	free(answer.at);
}

static void list_and_watch(struct endpoint *endpoint, struct grpc_call *call)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch) {
		grpc_finish(call, GRPC_EXHAUSTED, "out of memory");
		return;
	}
	watch->call = call;
	LIST_INSERT_HEAD(&endpoint->watches, watch, entry);
	send_devices(endpoint, call);
}

static void gone(void *context, struct grpc_call *call)
{
	struct endpoint *endpoint = context;
	struct watch *watch, *after;

	LIST_FOREACH_SAFE(watch, &endpoint->watches, entry, after)
		if (watch->call == call) {
			LIST_REMOVE(watch, entry);
			free(watch);
		}
}

static const char *hint_of(const struct plugin *plugin, enum inventory_kind kind)
{
	bool is_fresh = plugin->hint[0] && plugin->hint_kind != kind &&
			bf_now_ns() - plugin->hint_ns < HINT_NS;

	return is_fresh ? plugin->hint : NULL;
}

static void note_gpu(struct plugin *plugin, enum inventory_kind kind, const char *gpu)
{
	bool is_second = hint_of(plugin, kind) != NULL;

	plugin->hint[0] = 0;
	if (is_second || kind == INVENTORY_VGPU)
		return;
	snprintf(plugin->hint, sizeof(plugin->hint), "%s", gpu);
	plugin->hint_kind = kind;
	plugin->hint_ns = bf_now_ns();
}

static int allocate_one(struct endpoint *endpoint, const struct api_ids *ids, struct proto_writer *answer,
			struct bf_error *err)
{
	struct plugin *plugin = endpoint->plugin;
	char path[PATH_MAX], mark[128];
	struct api_mount mount = { .from = path };
	const char *gpu = "";
	int rc = inventory_allocate(resource_of(endpoint), &plugin->options.offer, ids, mark, sizeof(mark),
				    &mount.to, &gpu, err);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/%s", plugin->options.marks, mark);
	api_write_mount(answer, &mount);
	note_gpu(plugin, resource_of(endpoint)->kind, gpu);
	bf_log(BF_LOG_INFO, "belfry.dev/%s: %zu for a container: %s", endpoint->resource, ids->count, mark);
	return 0;
}

/* An answer, or the error in the words that the pod's events show. */
static void answer_call(struct grpc_call *call, struct proto_writer *answer, const struct bf_error *err)
{
	if (!err->code)
		grpc_send(call, answer);
	else
		bf_log(BF_LOG_WARN, "%s", err->text);
	grpc_finish(call,
		    !err->code		  ? GRPC_OK
		    : err->code == EINVAL ? GRPC_INVALID
					  : GRPC_FAILED_PRECONDITION,
		    err->text);
	free(answer->at);
}

static void allocate(struct endpoint *endpoint, struct grpc_call *call, struct proto_bytes message)
{
	struct proto_writer answer = { 0 };
	struct api_request request;
	struct bf_error err = { 0 };
	int rc = api_read_allocate(message, &request, &err);

	if (!rc && !resource_of(endpoint))
		rc = bf_fail(&err, ENODEV, "belfry.dev/%s: not offered any more", endpoint->resource);
	for (size_t i = 0; !rc && i < request.count; i++)
		rc = allocate_one(endpoint, &request.containers[i].ids, &answer, &err);
	api_request_free(&request);
	answer_call(call, &answer, &err);
}

static void prefer(struct endpoint *endpoint, struct grpc_call *call, struct proto_bytes message)
{
	const struct inventory_resource *resource = resource_of(endpoint);
	const char *hint = resource ? hint_of(endpoint->plugin, resource->kind) : NULL;
	struct proto_writer answer = { 0 };
	struct api_request request;
	struct bf_error err = { 0 };
	int rc = api_read_preferred(message, &request, &err);

	for (size_t i = 0; !rc && i < request.count; i++) {
		const struct api_container *container = &request.containers[i];
		size_t room = container->ids.count + container->musts.count;
		cleanup_free const char **ids = calloc(room + 1, sizeof(*ids));

		if (!ids)
			rc = bf_fail(&err, ENOMEM, "out of memory");
		else
			api_write_preferred(&answer, ids, inventory_prefer(container, hint, ids, room));
	}
	api_request_free(&request);
	answer_call(call, &answer, &err);
}

static void called(void *context, struct grpc_call *call, const char *path, struct proto_bytes message)
{
	struct endpoint *endpoint = context;
	struct proto_writer answer = { 0 };
	const char *method =
		strncmp(path, API_SERVICE, strlen(API_SERVICE)) != 0 ? "" : path + strlen(API_SERVICE);

	if (!strcmp(method, "ListAndWatch")) {
		list_and_watch(endpoint, call);
	} else if (!strcmp(method, "Allocate")) {
		allocate(endpoint, call, message);
	} else if (!strcmp(method, "GetPreferredAllocation")) {
		prefer(endpoint, call, message);
	} else if (!strcmp(method, "GetDevicePluginOptions")) {
		api_write_options(&answer);
		answer_call(call, &answer, &(struct bf_error){ 0 });
	} else if (!strcmp(method, "PreStartContainer")) {
		answer_call(call, &answer, &(struct bf_error){ 0 }); /* nothing to do: belfry-oci does it */
	} else {
		grpc_finish(call, GRPC_UNIMPLEMENTED, "no such method");
	}
}

struct endpoint *endpoint_new(struct plugin *plugin, const char *resource)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));

	if (!endpoint)
		return NULL;
	endpoint->plugin = plugin;
	snprintf(endpoint->resource, sizeof(endpoint->resource), "%s", resource);
	LIST_INIT(&endpoint->watches);
	LIST_INSERT_HEAD(&plugin->endpoints, endpoint, entry);
	return endpoint;
}

void endpoint_free(struct endpoint *endpoint)
{
	if (endpoint->client)
		wire_drop(endpoint->client);
	if (endpoint->server)
		wire_close(endpoint->server);
	LIST_REMOVE(endpoint, entry);
	free(endpoint);
}

int endpoint_listen(struct endpoint *endpoint, struct bf_error *err)
{
	const struct grpc_events events = { .context = endpoint, .called = called, .gone = gone };
	char path[PATH_MAX];

	if (endpoint->server && wire_is_there(endpoint->server))
		return 0;
	if (endpoint->server)
		wire_close(endpoint->server);
	endpoint->is_registered = false;
	snprintf(path, sizeof(path), "%s/belfry-%s.sock", endpoint->plugin->options.folder,
		 endpoint->resource);
	endpoint->server = wire_listen(endpoint->plugin->loop, path, &events, err);
	return endpoint->server ? 0 : -err->code;
}

void endpoint_changed(struct endpoint *endpoint)
{
	struct watch *watch;

	LIST_FOREACH(watch, &endpoint->watches, entry)
		send_devices(endpoint, watch->call);
	if (endpoint->server)
		wire_flush(endpoint->server);
}
