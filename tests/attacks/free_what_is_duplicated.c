/* Memory is allocated, duplicated into another client, and freed under its first name, again and again: the duplicate
 * keeps it. The duplicates are in another client of the same process, and in a child's. */
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

static uint64_t hoard(const struct dev *from, const struct dev *to, uint64_t piece)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; sum <= 2 * dev_limit(); i++) {
		if (dev_memory(from, DEV_MEMORY, piece))
			break;
		if (dev_dup(to, DEV_MEMORY + 1 + i, from->client, DEV_MEMORY))
			dev_skip("no duplicate can be made");
		if (dev_free(from, DEV_DEVICE, DEV_MEMORY))
			break;
		sum += piece;
	}
	return sum;
}

static void in_another_process(const struct dev *from)
{
	struct dev own;
	uint64_t sum;
	int status;
	pid_t child = fork();

	if (!child) { /* the parent's control file is the child's too */
		if (dev_new_client(&own) || dev_new_device(&own))
			_exit(77);
		sum = hoard(from, &own, dev_limit() / 8);
		dev_look();
		_exit(sum > dev_limit());
	}
	waitpid(child, &status, 0);
	if (status == 77 << 8)
		dev_skip("the child could not try");
	if (status)
		dev_got("a child held more than the limit (status %d)", status);
}

int main(void)
{
	struct dev first, second;
	uint64_t sum;

	dev_tries("free memory that a duplicate keeps, and allocate again");
	dev_start(&first);
	in_another_process(&first);
	dev_start(&second);
	sum = hoard(&first, &second, dev_limit() / 8);
	dev_look();
	if (sum > dev_limit())
		dev_got("%llu bytes in duplicates", (unsigned long long)sum);
	if (sum < dev_limit() / 2)
		dev_skip("the first process's memory did not come back: %llu bytes", (unsigned long long)sum);
	dev_held("%llu bytes of %llu", (unsigned long long)sum, (unsigned long long)dev_limit());
}
