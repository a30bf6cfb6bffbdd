/* What others may ask of a running vGPU: its control socket, and those who are connected to it. */
#ifndef BELFRY_SERVER_CONTROL_H
#define BELFRY_SERVER_CONTROL_H

#include <poll.h>

#include "base/error.h"
#include "warden/warden.h"

enum {
	CONTROL_TALKERS_MAX = 16,
	CONTROL_FDS = 2 + CONTROL_TALKERS_MAX, /* the socket, the timer of a hold, the clients */
};

struct control {
	const char *name;
	struct warden *warden;
	int listen_fd, hold_fd;
	int talkers[CONTROL_TALKERS_MAX]; /* -1: free */
	char path[108];
};

/* Listen as `name`. The warden may come later, but before the first control_work. */
int control_open(struct control *control, const char *name, struct bf_error *err);
void control_close(struct control *control);

/* What to poll, and what to do about it. Never waits: a client that does not read is dropped. */
void control_fds(const struct control *control, struct pollfd fds[CONTROL_FDS]);
void control_work(struct control *control, const struct pollfd fds[CONTROL_FDS]);

#endif
