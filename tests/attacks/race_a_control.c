/* One thread makes a harmless control again and again; another changes its command, its object and where its parameters
 * are, so that what is checked is not what is done. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "dev.h"

#define GET_TIMESLICE 0xa06c0104u
#define UNKNOWN_CONTROL 0xa06c7f01u
enum { SLICE_US = 1234, DISABLE_BYTES = 536 };

static struct rm_arg_control arg;
static uint64_t harmless[128], hostile[128];
static uint32_t hostile_cmd, hostile_object;
static atomic_bool is_over;

static void *flip(void *context)
{
	volatile struct rm_arg_control *shared = &arg;
	uint32_t cmd = shared->cmd, object = shared->object;

	(void)context;
	while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
		shared->params = (uintptr_t)hostile;
		shared->object = hostile_object;
		shared->cmd = hostile_cmd;
		shared->cmd = cmd;
		shared->object = object;
		shared->params = (uintptr_t)harmless;
	}
	return NULL;
}

static uint64_t timeslice(const struct dev *dev)
{
	uint64_t us = 0;

	return dev_control(dev, DEV_GROUP, GET_TIMESLICE, &us, sizeof(us)) ? 0 : us;
}

/* What an answer was for cannot be told, since the command changes all the time: what counts is what came of it. */
static void race(const struct dev *dev, uint32_t cmd, uint32_t object, uint32_t size)
{
	struct rm_arg_control calm = { .client = dev->client,
				       .object = DEV_GROUP,
				       .cmd = GET_TIMESLICE,
				       .params = (uintptr_t)harmless,
				       .size = size };
	pthread_t thread;

	hostile_cmd = cmd;
	hostile_object = object;
	arg = calm;
	atomic_store(&is_over, false);
	pthread_create(&thread, NULL, flip, NULL);
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		*(volatile uint32_t *)&arg.status = 0x77;
		dev_call(dev->control, RM_ESC_CONTROL, &arg, sizeof(arg));
	}
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
}

static void *race_to_enable(void *dev)
{
	race(dev, RM_CTRL_DISABLE_CHANNELS, DEV_SUBDEVICE, DISABLE_BYTES);
	return NULL;
}

/* The vGPU is stopped in the middle of such calls: one that enables the channels again would let it go on. */
static void race_against_a_stop(struct dev *dev)
{
	pthread_t thread;
	uint32_t beats;

	pthread_create(&thread, NULL, race_to_enable, dev);
	if (dev_ask("stop"))
		dev_got("belfry stop fails");
	beats = dev_beat_for(dev, 400);
	if (beats)
		dev_got("%u pieces of work while stopped", beats);
	if (dev_ask("resume"))
		dev_got("belfry resume fails");
	pthread_join(thread, NULL);
}

int main(void)
{
	struct dev dev;
	uint64_t before;
	uint32_t one = 1;

	dev_tries("change a control's command, object and parameters after they were checked");
	dev_start(&dev);
	dev_context(&dev);
	before = timeslice(&dev);
	printf("timeslice before: %llu us\n", (unsigned long long)before);

	hostile[0] = SLICE_US;
	race(&dev, RM_CTRL_GROUP_MAKE_REALTIME, DEV_GROUP, 8);
	race(&dev, UNKNOWN_CONTROL, DEV_GROUP, 8);
	/* A program may set its own timeslice unless the vGPU has one: run.sh gives it one. */
	race(&dev, RM_CTRL_GROUP_SET_TIMESLICE, DEV_GROUP, 8);
	if (before && timeslice(&dev) != before)
		dev_got("the timeslice is %llu us", (unsigned long long)timeslice(&dev));

	memset(hostile, 0, sizeof(hostile)); /* enable: lists of clients and channels */
	memcpy((uint8_t *)hostile + dev_layout()->disable_count, &one, sizeof(one));
	memcpy((uint8_t *)hostile + dev_layout()->disable_clients, &dev.client, sizeof(dev.client));
	memcpy((uint8_t *)hostile + dev_layout()->disable_channels, &(uint32_t){ DEV_CHANNEL },
	       sizeof(uint32_t));
	if (!dev_control(&dev, DEV_SUBDEVICE, RM_CTRL_DISABLE_CHANNELS, hostile, DISABLE_BYTES))
		dev_got("DISABLE_CHANNELS succeeds");
	race_against_a_stop(&dev);
	if (!dev_beat_for(&dev, 300))
		dev_skip("the channel does not run");
	dev_look();
	dev_held("%d attempts each; the timeslice is %llu us", ATTEMPTS, (unsigned long long)timeslice(&dev));
}
