/* loop: waits for descriptors with epoll and calls a function for each that is ready. One thread uses a loop. A function may
 * add and remove any source, its own included: a source that was removed is not called any more, also if it was ready. */
#ifndef BELFRY_BASE_LOOP_H
#define BELFRY_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/error.h"

struct loop;
struct loop_source;

/* Of the sources that are ready at the same time, those of a lower order are called first. */
enum loop_order { LOOP_FIRST, LOOP_MIDDLE, LOOP_LAST, LOOP_ORDERS };

#define LOOP_FOREVER UINT64_MAX

/* at_once: how many sources loop_wait calls at most. Orders hold among those. */
struct loop *loop_new(unsigned at_once, struct bf_error *err);
void loop_free(struct loop *loop); /* with its sources; closes no descriptor of theirs */

/* `events` are EPOLLIN and so on. NULL: the descriptor cannot be watched, and errno says why. */
struct loop_source *loop_add(struct loop *loop, int fd, uint32_t events, enum loop_order order,
			     void (*ready)(void *context, uint32_t events), void *context);
/* Other events than before; 0: only errors and hang-ups. */
void loop_change(struct loop *loop, struct loop_source *source, uint32_t events);
/* Must be called before the descriptor is closed. NULL is ignored. */
void loop_remove(struct loop *loop, struct loop_source *source);

/* Wait until a source is ready or until this time (bf_now_ns; LOOP_FOREVER), and call the functions of the
 * sources that are ready. Returns how many were called; 0 after the time or a signal; -errno if it cannot wait. */
int loop_wait(struct loop *loop, uint64_t until_ns);

#endif
