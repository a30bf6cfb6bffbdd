/* The order of basic blocks: strongly connected components in the order of control flow, and inside each its
 * head, then the rest, again as components. */
#include <stdlib.h>
#include <string.h>

#include "soft/ptx/flow.h"

#define NESTING_MAX 100u

struct visit {
	uint32_t block;
	uint32_t next; /* next successor */
};

struct sorter {
	struct ptx_loader *loader;
	const struct ptx_body *body;
	const struct ptx_flow *flow;
	uint32_t *group; /* of a block: the current group; 0: unreachable, or done */
	uint32_t group_count;
	uint32_t *number; /* Tarjan's algorithm */
	uint32_t *low;
	uint8_t *is_open;
	uint32_t *open;
	struct visit *visits;
	uint32_t *order;
	uint32_t *count;
};

/* The components of one group, in reverse order of flow. */
struct pieces {
	uint32_t *members;
	uint32_t *sizes;
	uint32_t member_count;
	uint32_t count;
};

static void close_piece(struct sorter *s, struct pieces *out, uint32_t root, uint32_t *open_count)
{
	uint32_t size = 0, block;

	do {
		block = s->open[--*open_count];
		s->is_open[block] = 0;
		out->members[out->member_count++] = block;
		size++;
	} while (block != root);
	out->sizes[out->count++] = size;
}

/* Tarjan's algorithm from one block, without recursion; blocks of other groups are ignored. */
static void find_pieces(struct sorter *s, uint32_t root, uint32_t group, uint32_t *clock, struct pieces *out)
{
	uint32_t depth = 0, open_count = 0;

	s->visits[depth++] = (struct visit){ .block = root };
	s->number[root] = s->low[root] = ++*clock;
	s->open[open_count++] = root;
	s->is_open[root] = 1;
	while (depth) {
		struct visit *v = &s->visits[depth - 1];
		uint32_t block = v->block;
		uint32_t next = ptx_flow_next(s->loader, s->body, s->flow, block, v->next++);

		if (next == ~0u) {
			if (s->low[block] == s->number[block])
				close_piece(s, out, block, &open_count);
			depth--;
			if (depth && s->low[block] < s->low[s->visits[depth - 1].block])
				s->low[s->visits[depth - 1].block] = s->low[block];
		} else if (s->group[next] != group) {
			continue;
		} else if (!s->number[next]) {
			s->visits[depth++] = (struct visit){ .block = next };
			s->number[next] = s->low[next] = ++*clock;
			s->open[open_count++] = next;
			s->is_open[next] = 1;
		} else if (s->is_open[next] && s->number[next] < s->low[block]) {
			s->low[block] = s->number[next];
		}
	}
}

static int sort_group(struct sorter *s, const uint32_t *members, uint32_t count, uint32_t head,
		      unsigned depth);

/* A loop: its head first. The head is the block by which the search entered the component; it is the last
 * member. */
static int sort_piece(struct sorter *s, uint32_t *members, uint32_t size, unsigned depth)
{
	uint32_t head = members[size - 1];

	s->order[(*s->count)++] = head;
	s->group[head] = 0;
	return size == 1 ? 0 : sort_group(s, members, size - 1, ~0u, depth + 1);
}

static int compare_blocks(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Nested too deeply: keep the order of the text. Every order is correct, but may be slower. */
static void keep_order(struct sorter *s, uint32_t *members, uint32_t count)
{
	qsort(members, count, sizeof(*members), compare_blocks);
	for (uint32_t i = 0; i < count; i++) {
		s->group[members[i]] = 0;
		s->order[(*s->count)++] = members[i];
	}
}

static int sort_group(struct sorter *s, const uint32_t *members, uint32_t count, uint32_t head,
		      unsigned depth)
{
	struct pieces out = { .members = malloc(count * sizeof(uint32_t)),
			      .sizes = malloc(count * sizeof(uint32_t)) };
	uint32_t group = ++s->group_count, clock = 0;
	int rc = 0;

	if (!out.members || !out.sizes) {
		free(out.members);
		free(out.sizes);
		return ptx_no_memory(s->loader);
	}
	for (uint32_t i = 0; i < count; i++) {
		s->group[members[i]] = group;
		s->number[members[i]] = 0;
	}
	if (head != ~0u)
		find_pieces(s, head, group, &clock, &out);
	/* roots from the end of the text: the components of the last search come first */
	for (uint32_t i = count; head == ~0u && i-- > 0;)
		if (!s->number[members[i]])
			find_pieces(s, members[i], group, &clock, &out);
	for (uint32_t i = 0; i < out.member_count; i++)
		s->group[out.members[i]] = ~0u;
	for (uint32_t end = out.member_count; out.count-- > 0 && !rc; end -= out.sizes[out.count]) {
		uint32_t *piece = out.members + end - out.sizes[out.count];

		if (depth >= NESTING_MAX)
			keep_order(s, piece, out.sizes[out.count]);
		else
			rc = sort_piece(s, piece, out.sizes[out.count], depth);
	}
	free(out.members);
	free(out.sizes);
	return rc;
}

int ptx_flow_sort(struct ptx_loader *loader, const struct ptx_body *body, const struct ptx_flow *flow,
		  uint32_t *order, uint32_t *count)
{
	struct sorter s = { .loader = loader, .body = body, .flow = flow, .order = order, .count = count };
	uint32_t *all = malloc(flow->count * sizeof(*all));
	int rc;

	s.group = calloc(flow->count, sizeof(*s.group));
	s.number = calloc(flow->count, sizeof(*s.number));
	s.low = calloc(flow->count, sizeof(*s.low));
	s.open = calloc(flow->count, sizeof(*s.open));
	s.is_open = calloc(flow->count, 1);
	s.visits = calloc(flow->count, sizeof(*s.visits));
	for (uint32_t i = 0; all && i < flow->count; i++)
		all[i] = i;
	*count = 0;
	if (!all || !s.group || !s.number || !s.low || !s.open || !s.is_open || !s.visits)
		rc = ptx_no_memory(loader);
	else
		rc = sort_group(&s, all, flow->count, 0, 0);
	free(all);
	free(s.group);
	free(s.number);
	free(s.low);
	free(s.open);
	free(s.is_open);
	free(s.visits);
	return rc;
}
