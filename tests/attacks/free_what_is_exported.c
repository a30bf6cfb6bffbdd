/* Memory is allocated, exported into a file, and freed: the file keeps it. Then the same with an import in another
 * process, whose file is closed as well. */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

static uint64_t keep_files(const struct dev *dev, uint64_t piece)
{
	uint64_t sum = 0;

	while (sum <= 2 * dev_limit()) {
		int file;

		if (dev_memory(dev, DEV_MEMORY, piece))
			break;
		file = dev_export(dev, DEV_MEMORY);
		if (file == -ENOTSUP || (file < 0 && !sum))
			dev_skip("the driver exports nothing (%d)", file);
		dev_free(dev, DEV_DEVICE, DEV_MEMORY);
		if (file < 0)
			break;
		sum += piece; /* the file stays open */
	}
	return sum;
}

static uint64_t import_all(const struct dev *from, uint64_t piece)
{
	uint64_t sum = 0;
	struct dev own;

	if (dev_new_client(&own) || dev_new_device(&own))
		return 0;
	for (uint32_t i = 0; sum <= 2 * dev_limit(); i++) {
		int file, rc;

		if (dev_memory(from, DEV_MEMORY, piece))
			break;
		file = dev_export(from, DEV_MEMORY);
		rc = file < 0 ? file : dev_import(&own, DEV_MEMORY + 1 + i, file);
		dev_free(from, DEV_DEVICE, DEV_MEMORY);
		if (file >= 0)
			close(file);
		if (rc)
			break;
		sum += piece;
	}
	return sum;
}

int main(void)
{
	struct dev dev;
	uint64_t piece = dev_limit() / 8, sum;
	int status;

	dev_tries("free memory that an exported file, or an import of it, keeps");
	dev_start(&dev);
	if (!fork()) {
		sum = keep_files(&dev, piece);
		dev_look();
		printf("%llu bytes in files\n", (unsigned long long)sum);
		_exit(sum > dev_limit());
	}
	wait(&status);
	if (status == 77 << 8)
		exit(77);
	if (status)
		dev_got("files kept more than the limit (status %d)", status);
	sum = import_all(&dev, piece);
	dev_look();
	if (sum > dev_limit() || !sum)
		dev_got("%llu bytes in imports", (unsigned long long)sum);
	dev_held("%llu bytes in imports", (unsigned long long)sum);
}
