/* User objects: objects of the program that live as long as the graphs that use them. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/graph.h"

struct user_object { /* CUuserObject */
	void *data;
	CUhostFn destroy;
	uint64_t uses;
	struct user_object *next; /* doomed */
};
/* Objects without references. objects_leave calls their destructors without the lock. */
static struct user_object *doomed;

static void object_put(struct user_object *object, unsigned count)
{
	object->uses -= count;
	if (object->uses)
		return;
	handle_remove(object);
	object->next = doomed;
	doomed = object;
}

CUresult objects_leave(CUresult result)
{
	struct user_object *list = doomed;

	doomed = NULL;
	result = api_leave(result);
	while (list) {
		struct user_object *object = list;

		list = object->next;
		object->destroy(object->data);
		free(object);
	}
	return result;
}

void objects_release(struct graph *graph)
{
	for (size_t i = 0; i < graph->object_count; i++)
		object_put(graph->objects[i].object, graph->objects[i].count);
	free(graph->objects);
	graph->objects = NULL;
	graph->object_count = 0;
}

/* A copy of a graph has one reference to each object. */
CUresult objects_copy(const struct graph *from, struct graph *to)
{
	if (!from->object_count)
		return CUDA_SUCCESS;
	to->objects = calloc(from->object_count, sizeof(*to->objects));
	if (!to->objects)
		return CUDA_ERROR_OUT_OF_MEMORY;
	to->object_count = from->object_count;
	for (size_t i = 0; i < from->object_count; i++) {
		to->objects[i] = (struct object_uses){ .object = from->objects[i].object, .count = 1 };
		to->objects[i].object->uses++;
	}
	return CUDA_SUCCESS;
}

static struct object_uses *uses_find(struct graph *graph, const struct user_object *object)
{
	for (size_t i = 0; i < graph->object_count; i++)
		if (graph->objects[i].object == object)
			return &graph->objects[i];
	return NULL;
}

static CUresult uses_add(struct graph *graph, struct user_object *object, unsigned count)
{
	struct object_uses *uses = uses_find(graph, object), *more;

	if (uses) {
		uses->count += count;
		return CUDA_SUCCESS;
	}
	more = realloc(graph->objects, (graph->object_count + 1) * sizeof(*more));
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->objects = more;
	more[graph->object_count++] = (struct object_uses){ .object = object, .count = count };
	return CUDA_SUCCESS;
}

static CUresult object_find(CUuserObject handle, unsigned count, struct user_object **object)
{
	if (!count || count > INT32_MAX || handle_kind(handle) != HANDLE_OBJECT)
		return CUDA_ERROR_INVALID_VALUE;
	*object = (struct user_object *)handle;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
				   unsigned int initialRefcount, unsigned int flags)
{
	struct user_object *object;

	ENTER();
	if (!object_out || !destroy || !initialRefcount || initialRefcount > INT32_MAX ||
	    flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	object = calloc(1, sizeof(*object));
	if (!object || !handle_add(object, HANDLE_OBJECT)) {
		free(object);
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	}
	object->data = ptr;
	object->destroy = destroy;
	object->uses = initialRefcount;
	*object_out = (CUuserObject)object;
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
	struct user_object *object;
	CUresult result;

	ENTER();
	result = object_find(handle, count, &object);
	if (!result)
		object->uses += count;
	LEAVE(result);
}

EXPORT CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
	struct user_object *object;
	CUresult result;

	ENTER();
	result = object_find(handle, count, &object);
	if (!result && count > object->uses)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		object_put(object, count);
	return objects_leave(result);
}

/* MOVE transfers the caller's references to the graph. */
EXPORT CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
					unsigned int flags)
{
	struct user_object *object;
	struct graph *graph;
	CUresult result;

	ENTER();
	result = graph_find(graph_handle, &graph);
	if (!result)
		result = object_find(handle, count, &object);
	if (!result && (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE ||
			((flags & CU_GRAPH_USER_OBJECT_MOVE) && count > object->uses)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = uses_add(graph, object, count);
	if (!result && !(flags & CU_GRAPH_USER_OBJECT_MOVE))
		object->uses += count;
	LEAVE(result);
}

EXPORT CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count)
{
	struct user_object *object;
	struct object_uses *uses;
	struct graph *graph;
	CUresult result;

	ENTER();
	result = graph_find(graph_handle, &graph);
	if (!result)
		result = object_find(handle, count, &object);
	if (result)
		LEAVE(result);
	uses = uses_find(graph, object);
	if (!uses || uses->count < count)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	uses->count -= count;
	if (!uses->count)
		*uses = graph->objects[--graph->object_count];
	object_put(object, count);
	return objects_leave(CUDA_SUCCESS);
}
