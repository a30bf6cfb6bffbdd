#include "warden/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

/* The driver uses only the number (low byte) and the size bits (16 to 29) of an ioctl command, not its magic
 * byte, and does nothing relevant for a call of size 0. So any command with size bits may be a driver call.
 * The common commands of terminals and sockets have none, and are not slowed down. The managed-memory device
 * uses bare numbers: small ones, and two with the high bits set, which have size bits. */
static int add_ioctl(scmp_filter_ctx filter)
{
	int rc = seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(ioctl), 1,
				  SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffff80u, 0));

	for (unsigned bit = 16; bit < 30 && !rc; bit++)
		rc = seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(ioctl), 1,
				      SCMP_A1(SCMP_CMP_MASKED_EQ, 1u << bit, 1u << bit));
	return rc;
}

/* Only shared mappings of files: a private mapping never reaches a device, and libraries are mapped
 * privately. */
static int add_mmap(scmp_filter_ctx filter)
{
	return seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(mmap), 1,
				SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_SHARED | MAP_ANONYMOUS, MAP_SHARED));
}

/* Device files are opened for reading and writing, without O_CREAT; few other files are. The filter can check
 * only the flags of an open. openat2 has them in memory: a file that it opens is found at its first call. */
static int add_open(scmp_filter_ctx filter)
{
	const unsigned mask = O_ACCMODE | O_CREAT | O_DIRECTORY;
	int rc = seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(openat), 1,
				  SCMP_A2(SCMP_CMP_MASKED_EQ, mask, O_RDWR));

	return rc ? rc
		  : seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(open), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, mask, O_RDWR));
}

/* libseccomp 2.5 exports a compiled filter to a descriptor only. */
static int filter_compile(int fd)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int rc;

	if (!filter)
		return -ENOMEM;
	/* The 32-bit and x32 system calls are disabled: they would bypass the filter. */
	rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	if (!rc)
		rc = add_ioctl(filter);
	if (!rc)
		rc = add_mmap(filter);
	if (!rc)
		rc = add_open(filter);
	if (!rc) /* it would change a mapping without an mmap; it is obsolete */
		rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(remap_file_pages), 0);
	if (!rc)
		rc = seccomp_export_bpf(filter, fd);
	seccomp_release(filter);
	return rc;
}

static int install(bool sets_no_new_privs, struct bf_error *err)
{
	cleanup_close int file = memfd_create("belfry-filter", MFD_CLOEXEC);
	static struct sock_filter code[BPF_MAXINSNS];
	struct sock_fprog program = { .filter = code };
	unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
	ssize_t bytes;
	long fd;
	int rc;

	if (file < 0)
		return bf_fail(err, errno, "seccomp filter: %s", strerror(errno));
	rc = filter_compile(file);
	if (rc)
		return bf_fail(err, -rc, "seccomp filter: libseccomp cannot build it: %s", strerror(-rc));
	bytes = pread(file, code, sizeof(code), 0);
	if (bytes <= 0)
		return bf_fail(err, EIO, "seccomp filter: libseccomp exported an empty filter");
	program.len = (unsigned short)((size_t)bytes / sizeof(code[0]));
	if (sets_no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return bf_fail(err, errno, "no_new_privs: %s", strerror(errno));
	/* With WAIT_KILLABLE_RECV (5.19) a signal cannot interrupt a call that the warden is working on. */
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
		     &program);
	if (fd < 0 && errno == EINVAL)
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	if (fd < 0 && errno == EBUSY)
		return bf_fail(err, EBUSY, "this program is supervised already; one belfry run is enough");
	if (fd < 0)
		return bf_fail(err, errno, "seccomp filter: the kernel refused it: %s", strerror(errno));
	return (int)fd;
}

int filter_install(struct bf_error *err)
{
	return install(true, err);
}

int filter_install_as_root(struct bf_error *err)
{
	return install(false, err);
}
