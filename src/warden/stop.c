/* The gate of the vGPU is opened and closed, and its channels are stopped and resumed. The gate keeps the state
 * (gate_state). It is stopped and resumed under warden::lock only, so a thread that has the lock can rely on it. */
#include "gate/gate.h"
#include "warden/state.h"

void warden_close(struct warden *warden)
{
	gate_close(warden->gate_vgpu);
}

void warden_open(struct warden *warden)
{
	gate_open(warden->gate_vgpu);
}

/* The gate is stopped first, and stays so until the channels run again or could not be stopped: a warden_open in between
 * does not open it. */
static int stop(struct warden *warden, struct bf_error *err)
{
	int rc;

	if (gate_is_stopped(warden->gate_vgpu))
		return 0;
	gate_stop(warden->gate_vgpu);
	rc = warden_set_channels(warden, true, err);
	if (rc) {
		warden_set_channels(warden, false, NULL);
		gate_resume(warden->gate_vgpu);
	}
	return rc;
}

int warden_stop(struct warden *warden, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = stop(warden, err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

static int resume(struct warden *warden, struct bf_error *err)
{
	int rc;

	if (!gate_is_stopped(warden->gate_vgpu))
		return 0;
	rc = warden_set_channels(warden, false, err);
	if (rc)
		return rc;
	gate_ring_again(warden->gate_vgpu);
	gate_resume(warden->gate_vgpu);
	warden_wake(warden); /* for the calls that waited */
	return 0;
}

int warden_resume(struct warden *warden, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = resume(warden, err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}
