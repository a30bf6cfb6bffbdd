/* list: the lists of sys/queue.h, and the loop that glibc's version lacks. */
#ifndef BELFRY_BASE_LIST_H
#define BELFRY_BASE_LIST_H

#include <sys/queue.h>

/* The body may remove and free `var`, and no other element. */
#ifndef LIST_FOREACH_SAFE
#define LIST_FOREACH_SAFE(var, head, field, after) \
	for ((var) = LIST_FIRST((head)); (var) && ((after) = LIST_NEXT((var), field), 1); (var) = (after))
#endif
#ifndef STAILQ_FOREACH_SAFE
#define STAILQ_FOREACH_SAFE(var, head, field, after) \
	for ((var) = STAILQ_FIRST((head)); (var) && ((after) = STAILQ_NEXT((var), field), 1); (var) = (after))
#endif

#endif
