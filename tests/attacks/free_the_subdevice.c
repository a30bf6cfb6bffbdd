/* The objects through which a vGPU could be stopped are freed: the program's own subdevice; a second device of the client
 * with a subdevice of its own; the whole device. Hold and stop must still work. */
#include "dev.h"

/* The ledger may take the last subdevice for the one that counts. */
static void free_a_second_device(struct dev *dev)
{
	uint8_t device[64] = { 0 };
	uint32_t subdevice = 0;

	if (dev_alloc(dev, dev->client, DEV_MEMORY, 0x80, device, dev_layout()->device_size))
		return; /* refused */
	dev_alloc(dev, DEV_MEMORY, DEV_MEMORY + 1, 0x2080, &subdevice, sizeof(subdevice));
	dev_free(dev, dev->client, DEV_MEMORY);
}

int main(void)
{
	struct dev dev;
	uint32_t beats;

	dev_tries("free the subdevice and see whether the vGPU can still be held and stopped");
	dev_start(&dev);
	dev_context(&dev);
	if (!dev_beat_for(&dev, 200))
		dev_skip("the channel does not run");
	dev_free(&dev, DEV_DEVICE, DEV_SUBDEVICE);
	free_a_second_device(&dev);
	if (dev_ask("stop"))
		dev_got("belfry stop fails now");
	beats = dev_beat_for(&dev, 400);
	if (beats)
		dev_got("%u pieces of work while stopped", beats);
	if (dev_ask("resume") || !dev_beat_for(&dev, 1000))
		dev_got("it does not go on after a resume");
	if (dev_ask("hold"))
		dev_got("belfry hold fails now");
	dev_beat_for(&dev, 100); /* what was under way */
	beats = dev_beat_for(&dev, 400);
	if (beats)
		dev_got("%u pieces of work while held", beats);
	if (dev_ask("open"))
		dev_got("belfry open fails now");
	dev_free(&dev, dev.client, DEV_DEVICE);
	dev_look();
	if (dev_ask("stop") || dev_ask("resume"))
		dev_got("belfry stop fails without a device");
	dev_held("stop and hold work without the program's subdevice");
}
