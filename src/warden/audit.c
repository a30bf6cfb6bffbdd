/* The ledger against the driver's own figure. Every call that makes memory is made by us, so that the two agree; if they
 * ever do not, something got past us. */
#include <stdio.h>

#include "warden/state.h"

/* More than one look: a call of the program's may be under way between the driver's count and ours. */
enum { SURPLUS_LOOKS = 2 };

static void end_all(struct warden *warden, uint64_t found, uint64_t known)
{
	char why[256];

	snprintf(why, sizeof(why), "the vGPU holds %llu bytes of device memory but was given %llu",
		 (unsigned long long)found, (unsigned long long)known);
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		process_end(p, why);
}

static void audit(struct warden *warden)
{
	uint64_t known, found;

	if (LIST_EMPTY(&warden->clients))
		return;
	warden_look_for_faults(warden);
	known = warden_named_bytes(warden);
	found = warden_driver_bytes(warden);
	if (found <= known)
		warden->surplus_seen = 0;
	else if (++warden->surplus_seen >= SURPLUS_LOOKS)
		end_all(warden, found, known);
}

void warden_audit(struct warden *warden)
{
	warden_audit_managed(warden);
	warden_set_traps(warden);
	pthread_mutex_lock(&warden->lock);
	audit(warden);
	pthread_mutex_unlock(&warden->lock);
}
