/* When the kubelet starts, it removes all sockets of its folder and knows no plugin. So every resource is registered again
 * when kubelet.sock is another file. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "kube/plugin.h"

enum { NS = 1000000000 };
#define LIMIT_NS (10ull * NS)
#define AGAIN_NS (1ull * NS)

static void answered(void *context, enum grpc_status status, const char *text)
{
	struct endpoint *endpoint = context;

	endpoint->is_answered = true;
	endpoint->is_registered = status == GRPC_OK;
	if (status == GRPC_OK)
		bf_log(BF_LOG_INFO, "belfry.dev/%s: registered with the kubelet", endpoint->resource);
	else
		bf_log(BF_LOG_WARN, "belfry.dev/%s: the kubelet refused it: %s (status %d)",
		       endpoint->resource, text, status);
}

static void drop_client(struct endpoint *endpoint, uint64_t now_ns)
{
	wire_drop(endpoint->client);
	endpoint->client = NULL;
	endpoint->is_answered = false;
	endpoint->again_ns = now_ns + AGAIN_NS;
}

static void start_client(struct endpoint *endpoint, const char *kubelet, uint64_t now_ns)
{
	const struct grpc_events events = { .context = endpoint, .answered = answered };
	struct proto_writer message = { 0 };
	struct bf_error err = { 0 };
	char name[INVENTORY_NAME_MAX + 32], resource[INVENTORY_NAME_MAX + 32];

	snprintf(name, sizeof(name), "belfry-%s.sock", endpoint->resource);
	snprintf(resource, sizeof(resource), "belfry.dev/%s", endpoint->resource);
	api_write_register(&message, name, resource);
	endpoint->is_answered = false;
	endpoint->until_ns = now_ns + LIMIT_NS;
	endpoint->client = wire_call(endpoint->plugin->loop, kubelet, &events, API_REGISTER,
				     (struct proto_bytes){ message.at, message.count }, &err);
	if (!endpoint->client) {
		bf_log(BF_LOG_DEBUG, "the kubelet cannot be reached: %s", err.text);
		endpoint->again_ns = now_ns + AGAIN_NS;
	}
	free(message.at);
}

/* Whether there is a kubelet. If it is another one, nothing is registered any more. */
static bool find_kubelet(struct plugin *plugin, const char *path)
{
	struct endpoint *endpoint;
	struct stat st;
	uint64_t ctime_ns;

	if (stat(path, &st))
		return false;
	ctime_ns = (uint64_t)st.st_ctim.tv_sec * NS + (uint64_t)st.st_ctim.tv_nsec;
	if (st.st_ino == plugin->kubelet_inode && ctime_ns == plugin->kubelet_ctime_ns)
		return true;
	plugin->kubelet_inode = st.st_ino;
	plugin->kubelet_ctime_ns = ctime_ns;
	LIST_FOREACH(endpoint, &plugin->endpoints, entry) {
		endpoint->is_registered = false;
		endpoint->again_ns = 0;
		if (endpoint->client)
			drop_client(endpoint, 0);
	}
	return true;
}

static void settle(struct endpoint *endpoint, const char *kubelet, uint64_t now_ns)
{
	struct bf_error err = { 0 };

	if (endpoint->client && (endpoint->is_answered || now_ns >= endpoint->until_ns))
		drop_client(endpoint, now_ns);
	if (endpoint_listen(endpoint, &err)) {
		bf_log(BF_LOG_WARN, "belfry.dev/%s: %s", endpoint->resource, err.text);
		return;
	}
	if (kubelet && !endpoint->is_registered && !endpoint->client && now_ns >= endpoint->again_ns)
		start_client(endpoint, kubelet, now_ns);
}

void plugin_settle(struct plugin *plugin, uint64_t now_ns)
{
	struct endpoint *endpoint;
	char path[PATH_MAX];
	bool is_there;

	snprintf(path, sizeof(path), "%s/kubelet.sock", plugin->options.folder);
	is_there = find_kubelet(plugin, path);
	LIST_FOREACH(endpoint, &plugin->endpoints, entry)
		settle(endpoint, is_there ? path : NULL, now_ns);
}
