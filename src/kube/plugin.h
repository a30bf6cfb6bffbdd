/* kube: belfry-device-plugin, which offers the vGPUs and the GPUs of a node to the kubelet (device plugin API v1beta1). Its
 * answers name marks, from which belfry-oci makes the vGPUs. It never makes a vGPU and never touches a GPU. It removes vGPUs of
 * containers that were never started. */
#ifndef BELFRY_KUBE_PLUGIN_H
#define BELFRY_KUBE_PLUGIN_H

#include <stdint.h>

#include "base/list.h"
#include "base/loop.h"
#include "kube/inventory.h"
#include "kube/wire.h"

struct plugin_options {
	const char *folder; /* of the kubelet's sockets */
	const char *marks;
	struct inventory_options offer;
};

struct plugin;

/* A resource, its socket, and the calls of the kubelet that follow its devices. */
struct endpoint {
	struct plugin *plugin;
	char resource[INVENTORY_NAME_MAX + 1];
	struct wire_server *server; /* NULL: not there */
	struct wire_client *client; /* a registration that has not ended */
	uint64_t until_ns;	    /* when the registration counts as failed */
	bool is_answered;	    /* the registration has ended: client can be dropped */
	bool is_registered;	    /* with the kubelet of plugin::kubelet */
	uint64_t again_ns;	    /* no new registration before this time */
	LIST_HEAD(, watch) watches;
	LIST_ENTRY(endpoint) entry; /* plugin::endpoints */
};

struct plugin {
	struct plugin_options options;
	struct loop *loop;
	struct inventory *inventory; /* NULL: belfryd has not answered yet */
	bool is_absent;		     /* belfryd does not answer */
	bool is_waiting;	     /* for another plugin to end */
	int lock;		     /* the folder of marks, locked; 0: not yet */
	LIST_HEAD(, endpoint) endpoints;
	/* The kubelet's socket. If the file is another one, the kubelet was restarted. */
	uint64_t kubelet_inode, kubelet_ctime_ns;
	/* The kubelet asks for memory and time of a container one after the other, without saying for which container. The
	 * second is placed on the GPU of the first. */
	char hint[24];
	enum inventory_kind hint_kind;
	uint64_t hint_ns;
};

/* endpoint.c: calls of the kubelet. */
struct endpoint *endpoint_new(struct plugin *plugin, const char *resource);
void endpoint_free(struct endpoint *endpoint);
/* Make the socket, if it is not there. */
int endpoint_listen(struct endpoint *endpoint, struct bf_error *err);
/* Send the devices to the calls that follow them. */
void endpoint_changed(struct endpoint *endpoint);

/* register.c: registration with the kubelet. Called after each event of the folder, and once a second. */
void plugin_settle(struct plugin *plugin, uint64_t now_ns);

/* plugin.c: takes the report, which may be NULL. */
void plugin_take(struct plugin *plugin, struct json_object *report);

/* follow.c: a thread that asks belfryd once a second, and removes vGPUs of containers that were never started. Each answer
 * is to be read from the descriptor *reports. */
struct follow;
struct follow_report {
	struct json_object *object; /* the reader frees it; NULL: belfryd does not answer */
};
struct follow *follow_start(int *reports, struct bf_error *err);
void follow_stop(struct follow *follow); /* waits for a request that is under way */

#endif
