/* Classes that hand out memory or submission around the ledger and the gate, unknown classes, serialized parameters, the
 * old calls that make objects, and controls that are refused or unknown. */
#include <stddef.h>
#include <string.h>

#include "dev.h"

static void try_class(const struct dev *dev, uint32_t class_id)
{
	const uint32_t parents[] = { dev->client, DEV_DEVICE, DEV_SUBDEVICE };
	uint8_t params[256] = { 0 };
	uint64_t bytes = MIB;

	memcpy(params + dev_layout()->memory_bytes, &bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(parents) / sizeof(parents[0]); i++)
		for (uint32_t size = 0; size <= 128; size += 64)
			if (!dev_alloc(dev, parents[i], DEV_MEMORY + class_id, class_id, params, size))
				dev_got("an object of class %x", class_id);
}

static void try_serialized(const struct dev *dev)
{
	uint8_t params[128] = { 0 };
	struct rm_arg_alloc arg = { .client = dev->client,
				    .parent = DEV_DEVICE,
				    .object = DEV_MEMORY,
				    .class_id = 0x40,
				    .params = (uintptr_t)params,
				    .size = sizeof(params),
				    .flags = 1,
				    .status = 0x77 };

	if (!dev_call(dev->control, RM_ESC_ALLOC, &arg, sizeof(arg)) && !arg.status)
		dev_got("an allocation with serialized parameters");
}

static void try_old_calls(const struct dev *dev)
{
	uint32_t object[5] = { dev->client, DEV_DEVICE, DEV_MEMORY, 0x40, 0x77 };
	struct rm_arg_alloc_memory memory = { .client = dev->client,
					      .parent = DEV_DEVICE,
					      .object = DEV_MEMORY,
					      .class_id = 0x40,
					      .limit = MIB - 1,
					      .status = 0x77,
					      .fd = -1 };
	uint8_t heap[184] = { 0 };
	uint32_t status;

	if (!dev_call(dev->control, RM_ESC_ALLOC_OBJECT, object, sizeof(object)) && !object[4])
		dev_got("an object by ALLOC_OBJECT");
	if (!dev_call(dev->gpu, RM_ESC_ALLOC_MEMORY, &memory, sizeof(memory)) && !memory.status)
		dev_got("memory by ALLOC_MEMORY");
	if (!dev_call(dev->control, RM_ESC_ALLOC_MEMORY, &memory, sizeof(memory)) && !memory.status)
		dev_got("memory by ALLOC_MEMORY");
	memcpy(heap, &dev->client, 4);
	memcpy(heap + 4, &(uint32_t){ DEV_DEVICE }, 4);
	heap[8] = RM_HEAP_ALLOC_SIZE;
	memset(heap + 16, 0x77, 4);
	if (dev_call(dev->control, RM_ESC_VID_HEAP_CONTROL, heap, sizeof(heap)))
		return;
	memcpy(&status, heap + 16, sizeof(status));
	dev_look(); /* whatever it answers: no memory */
}

static void try_controls(const struct dev *dev)
{
	const uint32_t refused[] = { RM_CTRL_DISABLE_CHANNELS,	  RM_CTRL_FIFO_UPDATE_CHANNEL_INFO,
				     RM_CTRL_GROUP_MAKE_REALTIME, RM_CTRL_CHANNEL_SET_INTERLEAVE,
				     RM_CTRL_FIFO_IDLE_CHANNELS,  RM_CTRL_ROOT_IDLE_CHANNELS };
	const uint32_t objects[] = { dev->client, DEV_DEVICE, DEV_SUBDEVICE, DEV_GROUP, DEV_CHANNEL };
	uint8_t params[1024] = { 0 };

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		for (size_t j = 0; j < sizeof(objects) / sizeof(objects[0]); j++)
			for (uint32_t size = 4; size <= 536; size += 4)
				if (!dev_control(dev, objects[j], refused[i], params, size))
					dev_got("control %x", refused[i]);
	for (uint32_t i = 0; i < 64; i++)
		if (!dev_control(dev, DEV_SUBDEVICE, 0x20807f00 + i, params, 8))
			dev_got("unknown control %x", 0x20807f00 + i);
}

int main(void)
{
	const uint32_t classes[] = { 0x3f, 0x50, 0x71, 0x76, 0x81, 0x82, 0x83, 0xc2, 0x5080, 0x7f7f, 0xfff0 };
	struct dev dev;

	dev_tries("allocate refused and unknown classes; make refused and unknown controls");
	dev_start(&dev);
	dev_context(&dev);
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		try_class(&dev, classes[i]);
	try_serialized(&dev);
	try_old_calls(&dev);
	try_controls(&dev);
	dev_look();
	dev_held("all refused");
}
