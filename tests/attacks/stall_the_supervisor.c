/* Calls whose argument, whose parameters or whose results lie on a page that never comes (userfaultfd, and nobody fills
 * it), by several processes at once. Another vGPU must not notice. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

enum { PAGE = 4096, THREADS = 4 };
enum { ARGUMENT, PARAMETERS, RESULTS, STALLERS }; /* what lies on the page */

/* A page that cannot be read; or one that can be read and cannot be written. */
static uint8_t *silent_page(bool is_readable)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = is_readable ? UFFD_FEATURE_PAGEFAULT_FLAG_WP : 0 };
	struct uffdio_register range = { .mode = is_readable ? UFFDIO_REGISTER_MODE_WP
							     : UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_writeprotect protect = { .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		return NULL;
	if (is_readable)
		page[0] = 1; /* it is there */
	range.range.start = protect.range.start = (uintptr_t)page;
	range.range.len = protect.range.len = PAGE;
	if (ioctl(fd, UFFDIO_REGISTER, &range) || (is_readable && ioctl(fd, UFFDIO_WRITEPROTECT, &protect)))
		return NULL;
	return page;
}

static struct dev dev;
static int what;

static void *stall(void *context)
{
	uint8_t *page = silent_page(what == RESULTS);
	struct rm_arg_control arg = {
		.client = dev.client, .object = DEV_SUBDEVICE, .cmd = RM_CTRL_GET_TIME, .size = 8
	};

	(void)context;
	if (!page)
		return NULL;
	arg.params = (uintptr_t)page;
	dev_call(dev.control, RM_ESC_CONTROL, what == ARGUMENT ? (void *)page : &arg, sizeof(arg));
	return NULL;
}

static void staller(int kind)
{
	pthread_t threads[THREADS];

	what = kind;
	if (dev_new_client(&dev) || dev_new_device(&dev))
		_exit(0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, stall, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

int main(void)
{
	int rc, status;

	dev_tries("keep the supervisor waiting for pages that never come");
	if (!silent_page(false))
		dev_skip("no userfaultfd (%s): root, or vm.unprivileged_userfaultfd", strerror(errno));
	dev_start(&dev);
	for (int i = 0; i < STALLERS; i++)
		if (!fork())
			staller(i);
	rc = dev_ask("neighbour");
	for (int i = 0; i < STALLERS; i++) {
		wait(&status);
		printf("a staller ended: %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	if (rc)
		dev_got("a neighbour, or belfry ls, was kept waiting");
	if (dev_memory(&dev, DEV_MEMORY, MIB))
		dev_got("the vGPU's own supervisor no longer answers");
	dev_held("neighbours and requests were served");
}
