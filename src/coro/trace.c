/* The trace of this process: its file, and the lines in it. */
#include "coro/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/own.h"
#include "coro/trace_format.h"

enum {
	EXECS_MOST = 10000, /* programs that one process runs one after the other */
	FILE_LEAST = 500,   /* out of the way of programs that close the files that they know */
	EXIT_WAIT_S = 10,
	TRACE_FAILED = 123, /* exit status */
};

bool trace_is_on;

static struct {
	pthread_mutex_t lock;
	const char *folder;
	int file; /* -1: not made yet */
	dev_t device;
	ino_t inode; /* of the file: the program may close its descriptor and open another file */
	_Atomic uint64_t events;
	pthread_cond_t later_ended;
	unsigned later;
} trace = { .lock = PTHREAD_MUTEX_INITIALIZER, .file = -1, .later_ended = PTHREAD_COND_INITIALIZER };

/* A process that was forked has a trace of its own. What is under way in its parent is not its own. A child whose parent had
 * initialised CUDA cannot use it, and other threads of the parent may hold locks of the trace. */
static void forked(void)
{
	trace_is_on = !cuda_is_initialised();
	pthread_mutex_init(&trace.lock, NULL);
	if (trace.file >= 0)
		close(trace.file);
	trace.file = -1;
	trace.later = 0;
}

__attribute__((constructor)) static void find_trace(void)
{
	trace.folder = getenv("BELFRY_TRACE");
	trace_is_on = trace.folder && *trace.folder;
	if (trace_is_on)
		pthread_atfork(NULL, NULL, forked);
}

/* Copies whose stream the program did not wait for. */
static void wait_for_later(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += EXIT_WAIT_S;
	pthread_mutex_lock(&trace.lock);
	while (trace.later && pthread_cond_timedwait(&trace.later_ended, &trace.lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&trace.lock);
}

static int make_file(void)
{
	static bool is_registered;
	char path[PATH_MAX];
	struct stat st;
	int file = -1, high;

	for (int i = 0; file < 0 && i < EXECS_MOST; i++) {
		snprintf(path, sizeof(path), "%s/%d-%d" TRACE_SUFFIX, trace.folder, (int)getpid(), i);
		file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
		if (file < 0 && errno != EEXIST)
			return -1;
	}
	if (file >= 0 && !fstat(file, &st)) {
		trace.device = st.st_dev;
		trace.inode = st.st_ino;
	}
	high = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, FILE_LEAST);
	if (high >= 0) {
		close(file);
		file = high;
	}
	if (!is_registered)
		is_registered = !atexit(wait_for_later);
	return file;
}

static bool put(const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t done = write(trace.file, text, bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		text += done;
		bytes -= (size_t)done;
	}
	return true;
}

static bool is_own_file(void)
{
	struct stat st;

	return trace.file >= 0 && !fstat(trace.file, &st) && st.st_dev == trace.device &&
	       st.st_ino == trace.inode;
}

/* A trace that lacks lines would be taken for a program that did less. So the program does not go on. */
static void __attribute__((noreturn)) give_up(void)
{
	fprintf(stderr, "belfry: the trace in %s cannot be written: %s; the process is ended\n", trace.folder,
		strerror(errno));
	if (is_own_file() && ftruncate(trace.file, 0))
		fprintf(stderr, "belfry: and not emptied: %s\n", strerror(errno));
	_exit(TRACE_FAILED);
}

static void put_line(const char *text, size_t bytes)
{
	int before = errno;

	pthread_mutex_lock(&trace.lock);
	if (!is_own_file()) {
		trace.file = make_file();
		if (trace.file < 0 || !put(TRACE_HEAD, sizeof(TRACE_HEAD) - 1))
			give_up();
	}
	if (!put(text, bytes))
		give_up();
	pthread_mutex_unlock(&trace.lock);
	errno = before;
}

void trace_write(const char *format, ...)
{
	cleanup_free char *long_line = NULL;
	char line[512];
	va_list words;
	int length;

	va_start(words, format);
	length = vsnprintf(line, sizeof(line), format, words);
	va_end(words);
	if (length < (int)sizeof(line)) {
		put_line(line, (size_t)length);
		return;
	}
	va_start(words, format);
	length = vasprintf(&long_line, format, words);
	va_end(words);
	if (length < 0) {
		long_line = NULL;
		errno = ENOMEM;
		give_up();
	}
	put_line(long_line, (size_t)length);
}

void trace_begin_later(void)
{
	pthread_mutex_lock(&trace.lock);
	trace.later++;
	pthread_mutex_unlock(&trace.lock);
}

void trace_end_later(void)
{
	pthread_mutex_lock(&trace.lock);
	if (trace.later && !--trace.later)
		pthread_cond_broadcast(&trace.later_ended);
	pthread_mutex_unlock(&trace.lock);
}

static CUstream named_stream(const struct trace_place *place)
{
	return !place->stream && place->is_own_default ? CU_STREAM_PER_THREAD : place->stream;
}

/* An error is that of the default stream beside a capture: a call on it that succeeded was not captured. */
bool trace_is_captured(const struct trace_place *place)
{
	CUstreamCaptureStatus status;

	return !real.cuStreamIsCapturing(named_stream(place), &status) &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The driver numbers streams and never uses a number again. A driver without that function has handles only. */
struct trace_event trace_event(const struct trace_place *place)
{
	unsigned long long stream = (uintptr_t)place->stream;

	real.cuStreamGetId(named_stream(place), &stream);
	return (struct trace_event){ .number = atomic_fetch_add(&trace.events, 1),
				     .stream = stream,
				     .thread = gettid() };
}
