/* When a group had done all that it was given, by the host's clock: what programs and servers go by. The end of its turn
 * says less. A turn goes on while there is more to do, and the thread that ends it may have lost its processor to the
 * program that it has just woken. */
#include "base/clock.h"
#include "soft/hw/state.h"

/* Its ring has more in it than at the last look. */
void hw_done_saw(struct hw_channel *ch)
{
	struct hw_group *g = ch->group;

	g->busy_channels += !ch->is_counted;
	ch->is_counted = true;
	g->seen_host_ns = bf_now_ns();
}

/* Something is done, and whoever waits for it is told next. */
void hw_done_note(struct hw_channel *ch)
{
	ch->group->done_host_ns = bf_now_ns();
}

/* Nothing is left of what was seen in its ring. */
void hw_done_dry(struct hw_channel *ch)
{
	struct hw_group *g = ch->group;
	struct soft_done *done;

	if (!ch->is_counted)
		return;
	ch->is_counted = false;
	if (--g->busy_channels)
		return;
	done = &g->done.done[g->done.count++ % SOFT_DONE_KEPT];
	done->seen_ns = g->seen_host_ns;
	done->end_ns = g->done_host_ns > g->seen_host_ns ? g->done_host_ns : g->seen_host_ns;
}
