/* Host functions of streams. One thread calls them all, in the order in which they become ready. The stream's
 * channel waits for a word that the thread writes when the function has returned. The thread is started on
 * first use and never ends. */
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "soft/cuda/channel.h"

struct host_call {
	struct context *context;
	uint64_t context_id;
	struct fence arrival;		      /* the stream has reached the call, or the next step is due */
	struct channel *channel;	      /* of the stream */
	uint64_t word;			      /* value that releases the stream */
	bool (*step)(void *, struct fence *); /* instead of a function */
	void (*end)(void *);
	void (*function)(void *);
	CUstreamCallback callback;
	CUstream handle; /* argument of the callback */
	void *argument;
	struct host_call *next;
};

/* Protects the queue only. Lock order: the api lock first. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_grew = PTHREAD_COND_INITIALIZER;
static struct host_call *queue;
static bool has_thread;

enum { LOOK_AGAIN_NS = 500000 };

static bool is_ready(const struct host_call *call)
{
	return fence_is_done(call->arrival) || call->context->notifier->status ||
	       __atomic_load_n(&call->context->error, __ATOMIC_RELAXED);
}

/* The first call that is ready: calls of different streams can become ready in another order than they were
 * queued. */
static struct host_call *take_ready(void)
{
	for (struct host_call **at = &queue, *call; (call = *at); at = &call->next)
		if (is_ready(call)) {
			*at = call->next;
			return call;
		}
	return NULL;
}

static struct host_call *wait_ready(void)
{
	struct timespec time = { .tv_nsec = LOOK_AGAIN_NS };
	struct host_call *call;

	pthread_mutex_lock(&queue_lock);
	while (!(call = take_ready())) {
		volatile uint64_t *done;
		uint32_t seen;

		if (!queue) {
			pthread_cond_wait(&queue_grew, &queue_lock);
			continue;
		}
		done = queue->arrival.channel->done;
		seen = (uint32_t)__atomic_load_n(done, __ATOMIC_ACQUIRE);
		if (is_ready(queue))
			continue;
		pthread_mutex_unlock(&queue_lock);
		/* If the memory is unmapped meanwhile, the call fails. */
		syscall(SYS_futex, (uint32_t *)(uintptr_t)done, FUTEX_WAIT, seen, &time, NULL, 0);
		pthread_mutex_lock(&queue_lock);
	}
	pthread_mutex_unlock(&queue_lock);
	return call;
}

static void let_go_on(const struct host_call *call)
{
	struct channel *channel = call->channel;

	/* The front end reads the word after the doorbell. The release makes writes of the function visible
	 * before it. */
	__atomic_store_n((uint64_t *)(void *)(channel->state->low.at + HOST_WORD_AT), call->word,
			 __ATOMIC_RELEASE);
	channel_ring(channel);
}

static void enqueue(struct host_call *call)
{
	struct host_call **at = &queue;

	pthread_mutex_lock(&queue_lock);
	while (*at)
		at = &(*at)->next;
	*at = call;
	pthread_cond_signal(&queue_grew);
	pthread_mutex_unlock(&queue_lock);
}

static void end_call(struct host_call *call)
{
	if (call->end)
		call->end(call->argument);
	free(call);
}

/* With the lock, so that the context is not destroyed before the call is in the queue again. */
static void run_step(struct host_call *call)
{
	bool is_there;

	api_lock();
	is_there = context_has_id(call->context, call->context_id);
	call->next = NULL;
	if (is_there && !context_check(call->context) && !call->step(call->argument, &call->arrival)) {
		enqueue(call);
	} else {
		if (is_there)
			let_go_on(call);
		end_call(call);
	}
	api_unlock();
}

static void run(struct host_call *call)
{
	CUresult status;
	bool is_there;

	api_lock();
	is_there = context_has_id(call->context, call->context_id);
	status = is_there ? context_check(call->context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	api_unlock();
	if (is_there && call->callback)
		call->callback(call->handle, status, call->argument);
	else if (is_there && !status)
		call->function(call->argument);
	api_lock();
	if (context_has_id(call->context, call->context_id))
		let_go_on(call);
	api_unlock();
	free(call);
}

static void *host_thread(void *unused)
{
	(void)unused;
	for (;;) {
		struct host_call *call = wait_ready();

		if (call->step)
			run_step(call);
		else
			run(call);
	}
	return NULL;
}

/* All signals are blocked in the thread: the program's handlers run on its own threads. */
static CUresult start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;
	int rc;

	if (has_thread)
		return CUDA_SUCCESS;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&thread, NULL, host_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_detach(thread);
	has_thread = true;
	return CUDA_SUCCESS;
}

/* Begin the wait such that no work is submitted between `arrival` and the wait. */
static CUresult begin_wait(struct stream *stream, struct fence *arrival)
{
	CUresult result;

	do {
		*arrival = stream_fence(stream);
		result = stream_begin(stream, CHANNEL_WAIT_WORDS, 0);
	} while (!result && stream->channel->submitted != arrival->value);
	return result;
}

static CUresult stream_call(struct stream *stream, const struct host_call *like)
{
	struct channel_state *state = stream->channel->state;
	struct host_call *call = malloc(sizeof(*call));
	CUresult result = call ? start_thread() : CUDA_ERROR_OUT_OF_MEMORY;

	if (!result) {
		*call = *like;
		call->context = stream->context;
		call->context_id = stream->context->id;
		result = begin_wait(stream, &call->arrival);
	}
	if (result) {
		free(call);
		return result;
	}
	call->channel = stream->channel;
	call->word = ++state->host_count;
	channel_acquire(stream->channel, state->low.address + HOST_WORD_AT, call->word, SOFT_SEM_ACQUIRE_GEQ,
			true);
	stream_end(stream);
	enqueue(call);
	return CUDA_SUCCESS;
}

CUresult stream_host(struct stream *stream, void (*function)(void *), void *argument)
{
	return stream_call(stream, &(struct host_call){ .function = function, .argument = argument });
}

CUresult stream_steps(struct stream *stream, bool (*step)(void *argument, struct fence *next),
		      void (*end)(void *argument), void *argument)
{
	return stream_call(stream, &(struct host_call){ .step = step, .end = end, .argument = argument });
}

CUresult stream_call_back(struct stream *stream, CUstreamCallback function, void *argument)
{
	CUstream handle = stream->is_null	  ? NULL
			  : stream->is_per_thread ? CU_STREAM_PER_THREAD
						  : (CUstream)stream;

	return stream_call(
		stream, &(struct host_call){ .callback = function, .handle = handle, .argument = argument });
}

void host_functions_forget(struct context *context)
{
	pthread_mutex_lock(&queue_lock);
	for (struct host_call **at = &queue, *call; (call = *at);) {
		if (call->context == context) {
			*at = call->next;
			end_call(call);
		} else {
			at = &call->next;
		}
	}
	pthread_mutex_unlock(&queue_lock);
}
