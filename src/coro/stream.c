/* Streams for calls: where a virtual stream's next work goes. */
#include "coro/coro.h"

/* Chooses the partition of the lease, if the lease has changed. With the context's lock, which is released while a partition is
 * made: then the lease is read again. */
static int lease_at(struct vstream *vstream)
{
	struct context *context = vstream->context;
	uint64_t generation = lease_generation(context), units, tried = 0;

	if (generation == vstream->generation)
		return vstream->at;
	while ((units = lease_units(context)) != tried && partition_is_missing(context, units)) {
		pthread_mutex_unlock(&context->lock);
		partition_make(context, units);
		pthread_mutex_lock(&context->lock);
		generation = lease_generation(context);
		tried = units;
	}
	vstream->at = partition_find(context, units);
	vstream->generation = generation;
	return vstream->at;
}

static void claim(struct vstream *vstream, int at)
{
	struct place *place = vstream_place(vstream, at);
	struct inside inside;

	if (!place->last) {
		inside = go_inside(vstream->context);
		if (real.cuEventCreate(&place->last, CU_EVENT_DISABLE_TIMING))
			place->last = NULL;
		come_out(&inside);
	}
	place->calls++;
	place->is_used = true;
}

/* The lease is read and the place is claimed under one lock. So a fence that takes the lock after the lease has changed finds
 * each call that has read the old one. */
static int claim_next(struct vstream *vstream, enum take how)
{
	struct context *context = vstream->context;
	int at;

	pthread_mutex_lock(&context->lock);
	at = how == TAKE_TAIL ? vstream->tail_at : how == TAKE_BASE ? -1 : lease_at(vstream);
	claim(vstream, at);
	pthread_mutex_unlock(&context->lock);
	return at;
}

static void move_claim(struct vstream *vstream, int from, int to)
{
	pthread_mutex_lock(&vstream->context->lock);
	vstream_place(vstream, from)->calls--;
	claim(vstream, to);
	pthread_mutex_unlock(&vstream->context->lock);
}

/* With the lock of the virtual stream. A failure to go there is one of the context: the call reports it. */
static void go_to(struct taken *taken, int at)
{
	struct vstream *vstream = taken->vstream;

	if (at != vstream->tail_at && !vstream_hop(vstream, at)) {
		move_claim(vstream, at, vstream->tail_at);
		at = vstream->tail_at;
	}
	vstream_order(vstream);
	taken->at = at;
	taken->stream = vstream_place(vstream, at)->stream;
}

struct taken stream_take(CUstream stream, bool is_per_thread, enum take how)
{
	struct vstream *vstream = stream_find(stream, is_per_thread);
	struct taken taken = { .stream = stream_handle(stream), .vstream = vstream, .at = -1 };

	if (!vstream)
		return taken;
	pthread_mutex_lock(&vstream->lock);
	taken.is_captured = vstream_is_capturing(vstream);
	taken.stream = vstream->base;
	if (!taken.is_captured && how == TAKE_PLACE)
		request_begin();
	if (!taken.is_captured)
		go_to(&taken, claim_next(vstream, how));
	pthread_mutex_unlock(&vstream->lock);
	return taken;
}

/* The work counts once it has been placed: another stream that is ordered behind it records its event after that. Another
 * thread may have moved the virtual stream during the call. */
void stream_leave(struct taken *taken)
{
	struct vstream *vstream = taken->vstream;

	if (!vstream || taken->is_captured)
		return;
	pthread_mutex_lock(&vstream->lock);
	if (vstream->tail_at != taken->at)
		vstream_join(vstream, taken->at);
	else if (taken->at < 0 && vstream->is_per_thread)
		place_record(vstream, -1);
	pthread_mutex_lock(&vstream->context->lock);
	vstream_place(vstream, taken->at)->calls--;
	vstream->work++;
	pthread_mutex_unlock(&vstream->context->lock);
	pthread_mutex_unlock(&vstream->lock);
}

void stream_fall_back(struct taken *taken)
{
	struct vstream *vstream = taken->vstream;

	pthread_mutex_lock(&vstream->lock);
	move_claim(vstream, taken->at, -1);
	go_to(taken, -1);
	pthread_mutex_unlock(&vstream->lock);
	if (lease_page())
		atomic_fetch_add_explicit(&lease_page()->fell_back, 1, memory_order_relaxed);
}

CUresult stream_settle(const struct taken *taken, CUdeviceptr filled)
{
	unsigned type = 0;
	int is_managed = 0;

	if (!taken->vstream || taken->is_captured)
		return CUDA_SUCCESS;
	if (real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, filled) ||
	    real.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, filled))
		return CUDA_SUCCESS;
	return type == CU_MEMORYTYPE_HOST || is_managed ? real.cuStreamSynchronize(taken->stream)
							: CUDA_SUCCESS;
}
