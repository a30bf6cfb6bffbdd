/* An intrusive circular list. Private to the module. */
#ifndef BELFRY_SOFT_DRIVER_LIST_H
#define BELFRY_SOFT_DRIVER_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
	head->next = head->prev = head;
}

static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_add(struct list *head, struct list *link) /* at the end */
{
	link->next = head;
	link->prev = head->prev;
	head->prev->next = link;
	head->prev = link;
}

/* A link that is in no list points to itself, so that removing it twice is harmless. */
static inline void list_remove(struct list *link)
{
	link->next->prev = link->prev;
	link->prev->next = link->next;
	list_init(link);
}

#define list_of(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))
#define list_each(link, head) for (struct list *link = (head)->next; link != (head); link = link->next)
/* The current link may be removed. */
#define list_each_safe(link, after, head) \
	for (struct list *link = (head)->next, *after = link->next; link != (head); \
	     link = after, after = link->next)

#endif
