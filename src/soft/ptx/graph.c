/* The call graph: the possible callees of each function, recursion (Tarjan's components), and an order with
 * callees first. The lanes that are deepest in calls then have the lowest pc, and run first. */
#include <string.h>

#include "soft/ptx/load.h"

#define CALL_DEPTH_MAX 1024u
#define EDGES_MAX (1u << 20)

struct walk {
	struct ptx_loader *loader;
	struct ptx_body **order; /* closed functions from the front, open ones from the back */
	uint32_t count;
	uint32_t open;
	uint32_t visits;
	uint32_t components;
};

static bool has_signature(const struct ptx_loader *loader, const struct ptx_body *body,
			  const struct ptx_site *site)
{
	const struct ptx_copy *args = loader->module->copies + site->args;

	if (body->function->kernel.param_count != site->arg_count ||
	    (site->result_bytes && (!body->has_result || body->result.bytes != site->result_bytes)))
		return false;
	for (uint32_t i = 0; i < site->arg_count; i++)
		if (body->params[i].bytes != args[i].bytes)
			return false;
	return true;
}

/* A call through a pointer can reach every function whose address is taken and whose signature matches. */
static int add_targets(struct ptx_loader *loader, struct ptx_body *body, uint32_t call, uint32_t *edges)
{
	for (uint32_t i = 0; i < loader->body_count; i++) {
		struct ptx_body *target = loader->bodies[i];
		struct ptx_call noted = body->calls[call], *added;

		if (!target->function->is_taken ||
		    !has_signature(loader, target, &loader->module->sites[noted.site]))
			continue;
		if (++*edges > EDGES_MAX)
			return ptx_refuse(loader, noted.line, "more than %u calls through pointers",
					  EDGES_MAX);
		noted.callee = target;
		noted.op = ~0u;
		added = ptx_list_add((void **)&body->calls, &body->call_count, &body->call_room,
				     sizeof(*added));
		if (!added)
			return ptx_no_memory(loader);
		*added = noted;
	}
	return 0;
}

static int visit(struct walk *walk, struct ptx_body *body, uint32_t depth);

static int visit_callee(struct walk *walk, struct ptx_body *body, const struct ptx_call *call, uint32_t depth)
{
	struct ptx_body *callee = call->callee;
	int rc = 0;

	if (!callee->is_defined)
		return ptx_refuse(walk->loader, call->line, "call of %s, which is not defined",
				  callee->function->kernel.name);
	if (!callee->visit)
		rc = visit(walk, callee, depth + 1);
	if (!rc && !callee->component && callee->low < body->low)
		body->low = callee->low;
	return rc;
}

/* Close a component: `body` and all functions opened after it. */
static void close_component(struct walk *walk, const struct ptx_body *body, uint32_t bodies)
{
	struct ptx_body *member;

	walk->components++;
	do {
		member = walk->order[bodies - walk->open--];
		member->component = walk->components;
		walk->order[walk->count++] = member;
	} while (member != body);
}

static int visit(struct walk *walk, struct ptx_body *body, uint32_t depth)
{
	uint32_t bodies = walk->loader->body_count;
	int rc = 0;

	if (depth > CALL_DEPTH_MAX)
		return ptx_refuse(walk->loader, body->function->kernel.line, "calls nested deeper than %u",
				  CALL_DEPTH_MAX);
	body->visit = body->low = ++walk->visits;
	walk->order[bodies - ++walk->open] = body;
	for (uint32_t i = 0; i < body->call_count && !rc; i++)
		if (body->calls[i].callee)
			rc = visit_callee(walk, body, &body->calls[i], depth);
	if (!rc && body->low == body->visit)
		close_component(walk, body, bodies);
	return rc;
}

/* A call inside a component can lead back to its caller. */
static void note_circles(struct ptx_loader *loader, struct ptx_body *body)
{
	for (uint32_t i = 0; i < body->call_count; i++) {
		struct ptx_body *callee = body->calls[i].callee;

		if (!callee || callee->component != body->component)
			continue;
		loader->module->sites[body->calls[i].site].saves = true;
		body->function->is_stacked = callee->function->is_stacked = true;
	}
}

static int check_taken(struct ptx_loader *loader, struct ptx_body *body)
{
	if (!body->function->is_taken)
		return 0;
	if (!body->is_defined)
		return ptx_refuse(loader, body->function->kernel.line,
				  "the address of %s, which is not defined", body->function->kernel.name);
	body->function->is_stacked = true;
	return 0;
}

int ptx_graph_order(struct ptx_loader *loader, struct ptx_body **order, uint32_t *count)
{
	struct walk walk = { .loader = loader, .order = order };
	uint32_t edges = 0;
	int rc = 0;

	for (uint32_t i = 0; i < loader->body_count && !rc; i++) {
		struct ptx_body *body = loader->bodies[i];
		uint32_t calls = body->call_count;

		rc = check_taken(loader, body);
		for (uint32_t k = 0; k < calls && !rc; k++)
			if (!body->calls[k].callee)
				rc = add_targets(loader, body, k, &edges);
	}
	for (uint32_t i = 0; i < loader->body_count && !rc; i++)
		if (loader->bodies[i]->is_defined && !loader->bodies[i]->visit)
			rc = visit(&walk, loader->bodies[i], 0);
	for (uint32_t i = 0; i < walk.count && !rc; i++)
		note_circles(loader, order[i]);
	*count = walk.count;
	return rc;
}
