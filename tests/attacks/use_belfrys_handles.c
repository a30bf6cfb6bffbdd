/* Belfry keeps objects of its own in a program's client while it makes a channel. Their handles are allocated, freed,
 * mapped, controlled, duplicated and named as a parent. */
#include <stddef.h>

#include "dev.h"

enum { FIRST = 0x5bf00000, LAST = 0x5bffffff };

static void try_handle(const struct dev *dev, uint32_t handle)
{
	uint32_t zero = 0;
	uint64_t ns;

	if (!dev_memory(dev, handle, MIB))
		dev_got("memory as %x", handle);
	if (!dev_doorbell(dev, handle))
		dev_got("a doorbell as %x", handle);
	if (!dev_alloc(dev, DEV_DEVICE, handle, 0x2080, &zero, sizeof(zero)))
		dev_got("a subdevice as %x", handle);
	if (!dev_dup(dev, handle, dev->client, DEV_BLOCK))
		dev_got("a duplicate as %x", handle);
	if (!dev_dup(dev, DEV_MEMORY, dev->client, handle))
		dev_got("a duplicate of %x", handle);
	if (!dev_prepare_map(dev, handle, 4096, dev->gpu))
		dev_got("a map of %x", handle);
	if (!dev_control(dev, handle, RM_CTRL_GET_TIME, &ns, sizeof(ns)))
		dev_got("a control on %x", handle);
	if (!dev_free(dev, DEV_DEVICE, handle))
		dev_got("%x is freed", handle);
	if (!dev_alloc(dev, handle, DEV_MEMORY, 0x40, NULL, 0))
		dev_got("a child of %x", handle);
}

int main(void)
{
	const uint32_t handles[] = { FIRST, FIRST + 1, FIRST + 2, LAST };
	struct dev dev;

	dev_tries("use the handles that Belfry keeps to itself");
	dev_start(&dev);
	dev_context(&dev);
	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
		try_handle(&dev, handles[i]);
	if (!dev_beat_for(&dev, 200))
		dev_skip("the channel does not run");
	if (dev_ask("stop"))
		dev_got("belfry stop fails now");
	if (dev_beat_for(&dev, 300))
		dev_got("work is done while stopped");
	dev_ask("resume");
	dev_look();
	dev_held("all refused; stop works");
}
