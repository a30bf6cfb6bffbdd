/* The driver looks at the low byte and the size of an ioctl's number alone. The same calls under other magic bytes, other
 * directions, and inside an XFER_CMD must be counted, or refused. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "dev.h"

static uint64_t taken;

static int raw_memory(const struct dev *dev, uint32_t number, uint32_t handle, uint64_t bytes,
		      bool is_wrapped)
{
	uint8_t params[128] = { 0 };
	struct rm_arg_alloc arg = { .client = dev->client,
				    .parent = DEV_DEVICE,
				    .object = handle,
				    .class_id = 0x40,
				    .params = (uintptr_t)params,
				    .size = sizeof(params),
				    .status = 0x77 };
	struct rm_xfer xfer = { RM_ESC_ALLOC, sizeof(arg), (uintptr_t)&arg };

	memcpy(params + dev_layout()->memory_bytes, &bytes, sizeof(bytes));
	if (ioctl(dev->control, number, is_wrapped ? (void *)&xfer : (void *)&arg) < 0)
		return -errno;
	return (int)arg.status;
}

static void try_number(const struct dev *dev, uint32_t number, uint32_t handle, bool is_wrapped)
{
	if (!raw_memory(dev, number, handle, dev_limit() + MIB, is_wrapped))
		dev_got("more than the limit by ioctl %x", number);
	if (!raw_memory(dev, number, handle, MIB, is_wrapped))
		taken += MIB;
	if (taken > dev_limit())
		dev_got("%llu bytes", (unsigned long long)taken);
}

int main(void)
{
	const unsigned magics[] = { 0, 'F', 'f', 0x46, 0xff, 'T', 'U' };
	struct dev dev;
	uint32_t handle = DEV_MEMORY;

	dev_tries("make calls under other ioctl numbers, and wrapped in XFER_CMD");
	dev_start(&dev);
	for (unsigned round = 0; round < 20; round++)
		for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
			for (unsigned direction = 0; direction < 4; direction++) {
				try_number(
					&dev,
					_IOC(direction, magics[i], RM_ESC_ALLOC, sizeof(struct rm_arg_alloc)),
					handle++, false);
				try_number(
					&dev,
					_IOC(direction, magics[i], RM_ESC_XFER_CMD, sizeof(struct rm_xfer)),
					handle++, true);
			}
	dev_look();
	dev_held("%llu bytes of %llu", (unsigned long long)taken, (unsigned long long)dev_limit());
}
