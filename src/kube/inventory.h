/* inventory: what a node offers to Kubernetes, from a report of belfryd: resources, their devices and their health; and
 * which devices a container gets. Pure. */
#ifndef BELFRY_KUBE_INVENTORY_H
#define BELFRY_KUBE_INVENTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "kube/api.h"

struct json_object;

enum inventory_kind { INVENTORY_MEMORY, INVENTORY_TIME, INVENTORY_VGPU };
enum { INVENTORY_NAME_MAX = 63, INVENTORY_SLOTS_MAX = 1000 };

struct inventory_device {
	char id[API_ID_MAX + 1]; /* "GPU/NUMBER" */
	char gpu[24];		 /* "0", "soft:0" */
	bool is_healthy;
};
struct inventory_resource {
	enum inventory_kind kind;
	char name[INVENTORY_NAME_MAX + 1]; /* "memory-gib", "vgpu-infer" */
	char vgpu[INVENTORY_NAME_MAX + 1]; /* of INVENTORY_VGPU */
	struct inventory_device *devices;
	size_t count;
};
struct inventory {
	struct inventory_resource *resources;
	size_t count;
};

struct inventory_options {
	unsigned slots;	     /* containers on a vGPU at a time */
	bool has_time_limit; /* a share of time is also the limit */
	unsigned owner;	     /* only vGPUs of this user are offered */
};

/* `report` is that of gather_report(); NULL: belfryd does not answer. Devices that `before` had and that are not reported
 * any more are unhealthy. A vGPU that was removed has no devices, and is left out if it had none in `before`. NULL: out of
 * memory. */
struct inventory *inventory_new(struct json_object *report, const struct inventory *before,
				const struct inventory_options *options);
void inventory_free(struct inventory *inventory);
bool inventory_is_same(const struct inventory_resource *a, const struct inventory_resource *b);
const struct inventory_resource *inventory_find(const struct inventory *inventory, const char *name);
/* How many GiB of a GPU are offered. */
size_t inventory_gib(const struct inventory *inventory, const char *gpu);

/* The mark that a container with these devices gets, and where it is mounted. *gpu: their GPU, or "". */
int inventory_allocate(const struct inventory_resource *resource, const struct inventory_options *options,
		       const struct api_ids *ids, char *mark, size_t room, const char **at, const char **gpu,
		       struct bf_error *err);
/* Which of the available devices a container should get: of the GPU `hint` if it has enough, otherwise of one GPU that has
 * enough, otherwise of several. `ids` has room for `room` pointers. Returns how many it has written. */
size_t inventory_prefer(const struct api_container *container, const char *hint, const char **ids,
			size_t room);

#endif
