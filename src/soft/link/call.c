/* Driver calls. Under a warden they are ioctls, as on a real GPU, and the warden answers them. Without one
 * they are messages. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/own.h"
#include "rm/rm.h"
#include "soft/link/alone.h"
#include "soft/link/ask.h"
#include "soft/link/link.h"

_Atomic bool link_is_alone;

enum { FB_INFO_OLD_BYTES = 16, FB_INFO_ENTRY = 8 }; /* {u32 count, u64 list}; {u32 index, u32 value} */

static const struct rm_layout *layout(void)
{
	return rm_layout_find(SOFT_DRIVER_VERSION);
}

/* Size of the parameters that the argument points to. In an allocation, 0 means the default of the class. */
static uint32_t params_bytes(const struct rm_call *call)
{
	int usual;

	if ((call->verb != RM_VERB_ALLOC && call->verb != RM_VERB_CONTROL) || !call->params)
		return 0;
	if (call->params_size || call->verb == RM_VERB_CONTROL)
		return call->params_size;
	if (call->class_id == SOFT_CLASS_CODE)
		return sizeof(struct soft_code_params);
	usual = rm_class_params_size(layout(), call->class_id);
	return usual > 0 ? (uint32_t)usual : 0;
}

static int send_call(int fd, pid_t on_behalf, const struct rm_call *call, void *arg)
{
	struct ask a = { .request = { .kind = SOFT_REQUEST_CALL,
				      .nr = call->nr,
				      .on_behalf = on_behalf,
				      .arg_bytes = call->size,
				      .params_bytes = params_bytes(call) },
			 .arg = arg,
			 .params = (void *)(uintptr_t)call->params };
	int rc;

	if (a.request.arg_bytes > SOFT_ARG_MAX || a.request.params_bytes > SOFT_PARAMS_MAX)
		return -EINVAL;
	/* An invalid descriptor is left out; the driver then reports the error. */
	if (call->fd >= 0 && fcntl(call->fd, F_GETFD) >= 0)
		a.files[a.file_count++] = call->fd;
	rc = ask(fd, &a);
	if (a.reply_file >= 0)
		close(a.reply_file);
	return rc;
}

/* The older of two controls has its list behind a second pointer, which a message cannot carry. The newer one
 * contains the list and means the same. */
static int call_fb_info(int fd, pid_t on_behalf, struct rm_arg_control *arg)
{
	const struct rm_layout *l = layout();
	cleanup_free uint8_t *whole = calloc(1, l->fb_info_size);
	struct rm_arg_control newer = *arg;
	struct rm_call call;
	uint32_t count;
	uint64_t list;
	int rc;

	if (!whole)
		return -ENOMEM;
	memcpy(&count, (const void *)(uintptr_t)arg->params, sizeof(count));
	memcpy(&list, (const char *)(uintptr_t)arg->params + 8, sizeof(list));
	if (count > l->fb_info_max || (count && !list)) {
		arg->status = RM_ERR_INVALID_ARGUMENT;
		return 0;
	}
	memcpy(whole, &count, sizeof(count));
	if (count)
		memcpy(whole + l->fb_info_list, (const void *)(uintptr_t)list, FB_INFO_ENTRY * (size_t)count);
	newer.cmd = RM_CTRL_FB_GET_INFO_V2;
	newer.params = (uintptr_t)whole;
	newer.size = l->fb_info_size;
	rc = rm_decode(RM_ESC_CONTROL, sizeof(newer), &newer, &call);
	if (!rc)
		rc = send_call(fd, on_behalf, &call, &newer);
	if (rc)
		return rc;
	arg->status = newer.status;
	if (count && !newer.status)
		memcpy((void *)(uintptr_t)list, whole + l->fb_info_list, FB_INFO_ENTRY * (size_t)count);
	return 0;
}

int link_call_for(int fd, pid_t on_behalf, uint32_t nr, void *arg, uint32_t size)
{
	struct rm_call call;
	struct rm_xfer xfer;

	if (nr == RM_ESC_XFER_CMD) {
		if (rm_decode_xfer(size, arg, &xfer))
			return -EINVAL;
		nr = xfer.nr;
		size = xfer.size;
		arg = (void *)(uintptr_t)xfer.address;
	}
	if (rm_decode(nr, size, arg, &call))
		return -EINVAL;
	if (call.verb == RM_VERB_CONTROL && call.class_id == RM_CTRL_FB_GET_INFO && call.params &&
	    call.params_size == FB_INFO_OLD_BYTES)
		return call_fb_info(fd, on_behalf, arg);
	return send_call(fd, on_behalf, &call, arg);
}

int link_call(int fd, uint32_t nr, void *arg, uint32_t size)
{
	int rc;

	if (!link_is_alone) {
		do
			rc = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg);
		while (rc < 0 && (errno == EINTR || errno == EAGAIN));
		if (rc >= 0)
			return 0;
		if (errno == ENOSYS) /* a filter whose supervisor has died */
			return -ENODEV;
		if (errno != ENOTTY)
			return -errno;
		link_is_alone = true;
	}
	return link_call_for(fd, 0, nr, arg, size);
}
