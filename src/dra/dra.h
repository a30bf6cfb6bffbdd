/* dra: belfry-dra, the driver for Dynamic Resource Allocation of Kubernetes. It publishes the GPUs of a node as devices whose
 * memory and time are consumed by claims, and makes a vGPU for each device of a claim that the kubelet prepares. It never
 * touches a GPU. One thread does everything: requests to the API server and to belfryd have time limits. */
#ifndef BELFRY_DRA_H
#define BELFRY_DRA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "client/spec.h"
#include "kube/proto.h"

struct json_object;

#define DRA_DRIVER "gpu.belfry.dev"
#define DRA_KIND "belfry.dev/claim" /* of the CDI devices */

enum { DRA_UID_MAX = 47, DRA_NAME_MAX = 253, DRA_LABEL_MAX = 63, DRA_DEVICES_MAX = 16, DRA_CLAIMS_MAX = 256 };

/* quantity.c: a quantity of Kubernetes, such as "8Gi", "500m" or "1e3". False: it is none. Pure. */
bool dra_quantity(const char *text, double *value);

/* claim.c: a device of a claim, as the scheduler has allocated it. */
struct dra_device {
	char request[2 * DRA_LABEL_MAX + 2]; /* "main", "main/small" */
	char pool[DRA_NAME_MAX + 1];
	char device[DRA_LABEL_MAX + 1]; /* "gpu-0" */
	char gpu[24];			/* "0" */
	char vgpu[SPEC_NAME_MAX + 1];
	uint64_t mem_bytes; /* 0: the scheduler has allocated the whole device, without amounts */
	uint32_t time_ppm;
};
struct dra_claim {
	char uid[DRA_UID_MAX + 1];
	char space[DRA_LABEL_MAX + 1]; /* its namespace */
	char name[DRA_NAME_MAX + 1];
	struct dra_device devices[DRA_DEVICES_MAX];
	size_t count;
	LIST_ENTRY(dra_claim) entry; /* dra::claims */
};
/* Whether the texts of the kubelet can be parts of paths. */
int dra_check_claim(const struct dra_claim *claim, struct bf_error *err);
/* Set dra_device::vgpu of a device, "claim-UID-INDEX". */
void dra_name_vgpu(struct dra_claim *claim, size_t index);
/* Read the devices of this driver from a ResourceClaim. dra_device::gpu is left empty. */
int dra_read_claim(struct json_object *object, struct dra_claim *claim, struct bf_error *err);

/* slice.c: the name of a GPU as a device, "soft:0": "soft-0"; and the GPU of a device in a report. Pure. */
void dra_device_name(const char *gpu, char to[DRA_LABEL_MAX + 1]);
int dra_find_gpu(struct json_object *report, struct dra_device *device, struct bf_error *err);
/* The devices of a ResourceSlice: the GPUs of a report of belfryd, without what vGPUs have that belong to no claim. */
struct json_object *dra_slice_devices(struct json_object *report);
/* A ResourceSlice with these devices, which it takes. `node_uid` may be empty. */
struct json_object *dra_slice(const char *node, const char *node_uid, uint64_t generation,
			      struct json_object *devices);
/* The annotation by which a slice that was published before is compared. */
#define DRA_HASH_KEY DRA_DRIVER "/devices"
void dra_slice_hash(struct json_object *devices, char to[17]);

/* messages.c: the messages of the kubelet (pluginregistration v1, dra v1 and v1beta1). Field numbers are the API's. Pure. */
#define DRA_REGISTRATION "/pluginregistration.Registration/"
#define DRA_SERVICE_V1 "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define DRA_SERVICE_V1BETA1 "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"
struct dra_claims {
	struct dra_claim *at; /* to be freed; only uid, space and name are set */
	size_t count;
};
int dra_read_claims(struct proto_bytes message, struct dra_claims *claims, struct bf_error *err);
void dra_write_info(struct proto_writer *answer, const char *endpoint);
/* One claim of the answer to NodePrepareResources: its devices, or the error. */
void dra_write_prepared(struct proto_writer *answer, const struct dra_claim *claim, const char *error);
void dra_write_unprepared(struct proto_writer *answer, const char *uid, const char *error);
/* The result of the registration. True: the kubelet has accepted it; otherwise `text` says why not. */
bool dra_read_status(struct proto_bytes message, char *text, size_t room);

/* server.c: the API server. */
struct dra_server {
	const char *url;   /* "https://10.0.0.1:443" */
	const char *token; /* a file, which is read for each request: tokens are renewed; NULL: none */
	const char *ca;	   /* a file with certificates; NULL: those of the system */
};
int dra_server_start(struct bf_error *err);
/* One request. 0: *status is the status of HTTP, and *answer the object, which may be NULL and which the caller puts. */
int dra_server_ask(const struct dra_server *server, const char *method, const char *path,
		   struct json_object *body, long *status, struct json_object **answer, struct bf_error *err);
/* Fails unless the status is 2xx, with the message of the API server. */
int dra_server_check(const char *what, long status, struct json_object *answer, struct bf_error *err);

struct dra_options {
	const char *node;
	const char *registry;	 /* the kubelet's folder for sockets of registrations */
	const char *folder;	 /* for the driver's own socket and the claims that are prepared */
	const char *marks, *cdi; /* folders */
	bool has_time_limit;	 /* the time of a claim is also its limit */
	struct dra_server server;
};

/* What belfry-dra knows. */
struct dra {
	struct dra_options options;
	LIST_HEAD(, dra_claim) claims; /* prepared */
	/* Of publish.c: */
	char hash[17], node_uid[64];
	uint64_t seen_ns, published_ns, report_ns;
	bool is_published, is_failing;
};

/* state.c: the claims that are prepared are files, so that they survive a restart of belfry-dra and of belfryd. */
int dra_state_load(struct dra *dra, struct bf_error *err);
int dra_state_save(const struct dra *dra, const struct dra_claim *claim, struct bf_error *err);
void dra_state_remove(const struct dra *dra, const char *uid);
struct dra_claim *dra_state_find(const struct dra *dra, const char *uid);
/* A file that replaces the old one at once. */
int dra_write_file(const char *path, struct json_object *object, struct bf_error *err);

/* prepare.c: NodePrepareResources and NodeUnprepareResources for one claim. Both may be repeated. */
int dra_prepare(struct dra *dra, const struct dra_claim *asked, const struct dra_claim **prepared,
		struct bf_error *err);
int dra_unprepare(struct dra *dra, const char *uid, struct bf_error *err);
/* Make the vGPUs of prepared claims again that a new belfryd does not have. */
void dra_restore(struct dra *dra, struct json_object *report);

/* publish.c: the ResourceSlice. `report` may be NULL: belfryd does not answer. */
void dra_publish(struct dra *dra, struct json_object *report, uint64_t now_ns);

#endif
