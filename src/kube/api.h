/* api: the messages of the device plugin API v1beta1 of Kubernetes (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1), as
 * far as Belfry uses them. Field numbers are the API's. Pure. */
#ifndef BELFRY_KUBE_API_H
#define BELFRY_KUBE_API_H

#include "base/error.h"
#include "kube/proto.h"

#define API_VERSION "v1beta1"
#define API_REGISTER "/v1beta1.Registration/Register"
#define API_SERVICE "/v1beta1.DevicePlugin/"

/* The most devices of a container, bytes of an ID, and containers of a request. */
enum { API_IDS_MAX = 8192, API_ID_MAX = 63, API_CONTAINERS_MAX = 64 };

/* The request of the kubelet for one container. */
struct api_ids {
	char (*at)[API_ID_MAX + 1];
	size_t count;
};
struct api_container {
	/* AllocateRequest: the devices; PreferredAllocationRequest: the available devices. */
	struct api_ids ids;
	struct api_ids musts; /* PreferredAllocationRequest: devices that the answer must contain */
	int64_t size;	      /* and how many devices the answer must have */
};
struct api_request {
	struct api_container containers[API_CONTAINERS_MAX];
	size_t count;
};
/* 0 or -errno. The caller frees the request in either case. */
int api_read_allocate(struct proto_bytes message, struct api_request *request, struct bf_error *err);
int api_read_preferred(struct proto_bytes message, struct api_request *request, struct bf_error *err);
void api_request_free(struct api_request *request);

/* A mount of a file of the node in a container. */
struct api_mount {
	const char *from, *to;
};
/* These append to `answer`: a whole message, or one device or one container of it. */
void api_write_register(struct proto_writer *answer, const char *endpoint, const char *resource);
void api_write_options(struct proto_writer *answer); /* of GetDevicePluginOptions */
void api_write_device(struct proto_writer *answer, const char *id, bool is_healthy);
void api_write_mount(struct proto_writer *answer, const struct api_mount *mount);
void api_write_preferred(struct proto_writer *answer, const char *const *ids, size_t count);

#endif
