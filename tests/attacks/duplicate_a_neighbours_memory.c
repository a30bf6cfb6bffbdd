/* Memory of another vGPU: its client and handle are told (run.sh starts the neighbour), and every client handle near it
 * is tried too. By a duplicate, a map, a control, a free, a share. */
#include <stdlib.h>

#include "dev.h"

enum { NEAR = 64 };

static void try_client(const struct dev *dev, uint32_t client, uint32_t handle)
{
	const struct dev as = { .control = dev->control, .client = client };
	struct rm_arg_free gone = { client, client, client, 0x77 };
	struct rm_arg_share share = { .client = client,
				      .object = handle,
				      .target = dev->client,
				      .access_mask = 1,
				      .type = 3,
				      .action = 4,
				      .status = 0x77 };
	uint64_t ns;

	if (!dev_dup(dev, DEV_MEMORY, client, handle))
		dev_got("a duplicate of memory of client %x", client);
	if (!dev_memory(&as, DEV_MEMORY + 1, MIB))
		dev_got("memory in client %x", client);
	if (!dev_control(&as, DEV_SUBDEVICE, RM_CTRL_GET_TIME, &ns, sizeof(ns)))
		dev_got("a control in client %x", client);
	if (!dev_prepare_map(&as, handle, MIB, dev->gpu))
		dev_got("a map of memory of client %x", client);
	if (!dev_call(dev->control, RM_ESC_SHARE, &share, sizeof(share)) && !share.status)
		dev_got("memory of client %x is shared", client);
	if (!dev_call(dev->control, RM_ESC_FREE, &gone, sizeof(gone)) && !gone.status)
		dev_got("client %x is freed", client);
}

int main(void)
{
	struct dev dev;
	uint32_t client, handle;
	const char *path = getenv("ATTACK_VICTIM");
	FILE *file;

	dev_tries("reach memory of another vGPU by the handles of its client");
	dev_start(&dev);
	if (!path || dev_ask("victim"))
		dev_skip("there is no neighbour");
	file = fopen(path, "re");
	if (!file || fscanf(file, "%u %u", &client, &handle) != 2)
		dev_skip("the neighbour does not say what it has");
	for (uint32_t i = 0; i <= 2 * NEAR; i++)
		if (client - NEAR + i != dev.client)
			try_client(&dev, client - NEAR + i, handle);
	if (dev_ask("victim-goes-on"))
		dev_got("the neighbour has not ended well");
	dev_held("client %x of the neighbour and %d near it are out of reach", client, 2 * NEAR);
}
