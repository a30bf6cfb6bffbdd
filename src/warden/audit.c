/* Compares the ledger with the memory that the driver counts. The warden makes every call that allocates
 * memory, so the two agree. A surplus in the driver means that memory was allocated without the warden. */
#include <stdio.h>

#include "warden/state.h"

/* Required in several audits in a row: a driver call may be in progress between the two counts. */
enum { SURPLUS_AUDITS = 2 };

static void end_all(struct warden *warden, uint64_t found, uint64_t known)
{
	char why[256];

	snprintf(why, sizeof(why),
		 "the vGPU uses %llu bytes of device memory, but only %llu are in the ledger",
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
	else if (++warden->surplus_seen >= SURPLUS_AUDITS)
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
