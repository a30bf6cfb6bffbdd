/* A handle that is in use is allocated again as something else, so that the ledger forgets what it was. The vGPU must
 * still be stoppable, and its memory counted. */
#include "dev.h"

enum { DUPLICATE = RM_ERR_INSERT_DUPLICATE_NAME };

static void refused(const char *what, int status)
{
	if (!status)
		dev_got("%s under a handle that was in use", what);
	if (status != DUPLICATE)
		printf("%s: status 0x%x instead of 0x%x\n", what, (unsigned)status, DUPLICATE);
}

static void stop_works(struct dev *dev)
{
	uint32_t beats;

	if (!dev_beat_for(dev, 300))
		dev_skip("the channel does not run");
	if (dev_ask("stop"))
		dev_got("belfry stop fails now");
	beats = dev_beat_for(dev, 500);
	if (beats)
		dev_got("%u pieces of work in 500 ms while stopped", beats);
	if (dev_ask("resume") || !dev_beat_for(dev, 2000))
		dev_got("the vGPU does not go on after a resume");
}

int main(void)
{
	struct dev dev;

	dev_tries("allocate a doorbell, memory and a group under handles that are in use");
	dev_start(&dev);
	dev_context(&dev);
	refused("a doorbell in place of a group", dev_doorbell(&dev, DEV_GROUP));
	refused("a doorbell in place of a channel", dev_doorbell(&dev, DEV_CHANNEL));
	refused("a doorbell in place of memory", dev_doorbell(&dev, DEV_BLOCK));
	refused("a doorbell in place of the device", dev_doorbell(&dev, DEV_DEVICE));
	refused("a doorbell in place of the client", dev_doorbell(&dev, dev.client));
	refused("memory in place of a group", dev_memory(&dev, DEV_GROUP, MIB));
	refused("memory in place of a doorbell", dev_memory(&dev, DEV_BELL, MIB));
	refused("a group in place of memory", dev_group(&dev, DEV_BLOCK));
	refused("a duplicate in place of a group", dev_dup(&dev, DEV_GROUP, dev.client, DEV_BLOCK));
	dev_look();
	stop_works(&dev);
	dev_held("all refused; stop and resume work");
}
