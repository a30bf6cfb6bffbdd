/* The connection to the GPU server, and the agent thread. */
#include "coro/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/message.h"
#include "base/own.h"
#include "base/sealed.h"
#include "coro/coro.h"
#include "coro/probe_time.h"

enum { ANSWER_S = 5, LEAVE_S = 2, COMPARE_MS = 5000 };

_Atomic bool probes_some;

static struct {
	pthread_once_t begun;
	pthread_mutex_t lock; /* the list, and what the agent is asked to do */
	pthread_cond_t done;
	LIST_HEAD(, carried) list; /* the latest first */
	_Atomic int sock;	   /* -1: no connection */
	int wake;		   /* an eventfd, for the agent */
	CUcontext leaving;
	bool is_ending;
	uint64_t asked, answered; /* copies before a context ends */
} all = { .begun = PTHREAD_ONCE_INIT,
	  .lock = PTHREAD_MUTEX_INITIALIZER,
	  .done = PTHREAD_COND_INITIALIZER,
	  .sock = -1,
	  .wake = -1 };

static _Atomic bool is_watched;

bool probes_are_watched(void)
{
	return is_watched && all.sock >= 0;
}

unsigned probes_now(struct carried *to[PROBE_WIRE_PROBES])
{
	struct carried *c;
	unsigned count = 0;

	pthread_mutex_lock(&all.lock);
	LIST_FOREACH(c, &all.list, next)
		if (!c->is_removed && count < PROBE_WIRE_PROBES)
			to[count++] = c;
	pthread_mutex_unlock(&all.lock);
	return count;
}

void probes_tell(const struct carried *carried, struct probe_note *note, int file)
{
	static _Atomic bool is_stuck;
	int sock = all.sock;

	note->magic = PROBE_WIRE_MAGIC;
	note->version = PROBE_WIRE_VERSION;
	note->number = carried ? carried->number : 0;
	/* A GPU server that does not read is waited for once (SO_SNDTIMEO), not at every note. */
	if (sock >= 0)
		is_stuck = bf_message_send(sock, note, sizeof(*note), file,
					   MSG_NOSIGNAL | (is_stuck ? MSG_DONTWAIT : 0)) != 0;
}

/* The GPU server has sealed the file: its size and content cannot change while it is mapped. */
static struct probe *read_pack(int file)
{
	struct probe *probe = NULL;
	struct stat st;
	void *bytes;

	if (file < 0 || fstat(file, &st) || st.st_size <= 0 || st.st_size > PROBE_WIRE_PACK_BYTES)
		return NULL;
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	if (bytes == MAP_FAILED)
		return NULL;
	probe_unpack(bytes, (size_t)st.st_size, &probe, NULL);
	munmap(bytes, (size_t)st.st_size);
	return probe;
}

/* The latest first. With the lock. */
static void insert(struct carried *carried)
{
	struct carried *at = LIST_FIRST(&all.list);

	if (!at || at->number < carried->number) {
		LIST_INSERT_HEAD(&all.list, carried, next);
		return;
	}
	while (LIST_NEXT(at, next) && LIST_NEXT(at, next)->number > carried->number)
		at = LIST_NEXT(at, next);
	LIST_INSERT_AFTER(at, carried, next);
}

static void add(const struct probe_order *order, int file)
{
	struct carried *carried = calloc(1, sizeof(*carried));

	if (!carried)
		return;
	carried->number = order->number;
	carried->sample = order->sample;
	memcpy(carried->name, order->name, sizeof(carried->name));
	memcpy(carried->kernel, order->kernel, sizeof(carried->kernel));
	carried->name[sizeof(carried->name) - 1] = carried->kernel[sizeof(carried->kernel) - 1] = 0;
	carried->probe = read_pack(file);
	if (!carried->probe) {
		struct probe_note note = { .kind = PROBE_NOTE_MODULE,
					   .outcome = PROBE_REFUSED,
					   .text = "the probe did not arrive in the process" };

		probes_tell(carried, &note, -1);
		free(carried);
		return;
	}
	pthread_mutex_lock(&all.lock);
	insert(carried);
	pthread_mutex_unlock(&all.lock);
	atomic_store(&probes_some, true);
}

static struct carried *find(uint32_t number)
{
	struct carried *c;

	pthread_mutex_lock(&all.lock);
	LIST_FOREACH(c, &all.list, next)
		if (c->number == number && !c->is_removed)
			break;
	pthread_mutex_unlock(&all.lock);
	return c;
}

static void send_copy(struct carried *carried, enum probe_note_kind kind, uint64_t ticket, const char *why)
{
	struct probe_note note = { .kind = kind, .ticket = ticket };
	cleanup_close int file = carried->copy ? bf_sealed_file("belfry-probe", carried->copy,
								probe_area_bytes(carried->probe))
					       : -1;

	if (file < 0)
		snprintf(note.text, sizeof(note.text), "%s",
			 carried->copy ? "the process has no memory for a copy" : why);
	probes_tell(carried, &note, file);
}

static void obey(const struct probe_order *order, int file)
{
	struct carried *carried = NULL;

	if (order->kind == PROBE_ORDER_ADD) {
		add(order, file);
		return;
	}
	if (order->kind == PROBE_ORDER_WATCH) {
		is_watched = order->number;
		if (order->number)
			atomic_store(&probes_some, true);
		return;
	}
	carried = find(order->number);
	if (carried && order->kind == PROBE_ORDER_REMOVE)
		carried->is_removed = true;
	else if (carried && order->kind == PROBE_ORDER_DUMP)
		send_copy(carried, PROBE_NOTE_AREA, order->ticket, area_copy(carried));
}

/* Returns the kind of the order; 0: the connection has ended. */
static uint32_t next_order(void)
{
	struct probe_order order;
	int fd = -1;
	ssize_t got;

	do
		got = bf_message_receive(all.sock, &order, sizeof(order), &fd, 0);
	while (got == -EINTR);
	cleanup_close int file = fd;
	if (got != (ssize_t)sizeof(order) || order.magic != PROBE_WIRE_MAGIC ||
	    order.version != PROBE_WIRE_VERSION)
		return 0;
	obey(&order, file);
	return order.kind;
}

/* Copies of the areas of a context that ends; at the end of the process, the last copies of all. */
static void copy_before_end(CUcontext context, bool is_ending)
{
	struct carried *list[PROBE_WIRE_PROBES];
	unsigned count = probes_now(list);

	for (unsigned i = 0; i < count; i++) {
		const char *why = "no kernel carries the probe";

		if (is_ending || area_is_of(list[i], context))
			why = area_copy(list[i]);
		if (is_ending)
			send_copy(list[i], PROBE_NOTE_LAST, 0, why);
	}
}

static void serve_leaving(void)
{
	uint64_t count, asked;
	CUcontext context;
	bool is_ending;

	if (read(all.wake, &count, sizeof(count)) < 0)
		return;
	pthread_mutex_lock(&all.lock);
	asked = all.asked;
	context = all.leaving;
	is_ending = all.is_ending;
	pthread_mutex_unlock(&all.lock);
	copy_before_end(context, is_ending);
	pthread_mutex_lock(&all.lock);
	all.answered = asked;
	pthread_cond_broadcast(&all.done);
	pthread_mutex_unlock(&all.lock);
}

/* One probe is enough. */
static void compare_clocks(void)
{
	struct carried *list[PROBE_WIRE_PROBES];
	unsigned count = probes_now(list);

	for (unsigned i = 0; i < count && times_are_old(); i++)
		area_compare_clocks(list[i]);
}

static void *agent(void *argument)
{
	struct pollfd fds[] = { { all.wake, POLLIN, 0 }, { all.sock, POLLIN, 0 } };
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	(void)argument;
	prctl(PR_SET_NAME, "belfry-probe");
	/* A capture in another thread would forbid its calls. */
	real.cuThreadExchangeStreamCaptureMode(&mode);
	for (;;) {
		if (poll(fds, fds[1].fd < 0 ? 1 : 2, times_are_there() ? COMPARE_MS : -1) < 0 &&
		    errno != EINTR)
			return NULL;
		if (times_are_old())
			compare_clocks();
		if (fds[0].revents)
			serve_leaving();
		if (fds[1].fd >= 0 && fds[1].revents && !next_order())
			fds[1].fd = -1; /* the GPU server has ended */
	}
}

static void ask_agent(CUcontext context, bool is_ending)
{
	struct timespec until;
	uint64_t one = 1, ticket;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LEAVE_S;
	pthread_mutex_lock(&all.lock);
	all.leaving = context;
	all.is_ending |= is_ending;
	ticket = ++all.asked;
	if (write(all.wake, &one, sizeof(one)) == (ssize_t)sizeof(one))
		while (all.answered < ticket && !pthread_cond_timedwait(&all.done, &all.lock, &until))
			;
	pthread_mutex_unlock(&all.lock);
}

static bool has_area(CUcontext context)
{
	struct carried *list[PROBE_WIRE_PROBES];
	unsigned count = probes_now(list);
	bool has = false;

	for (unsigned i = 0; i < count; i++)
		has |= area_is_of(list[i], context);
	return has;
}

void probes_leaving(CUcontext context)
{
	struct carried *list[PROBE_WIRE_PROBES];
	int error = errno;
	unsigned count;

	if (all.sock >= 0 && has_area(context)) {
		ask_agent(context, false);
		count = probes_now(list);
		for (unsigned i = 0; i < count; i++)
			if (area_is_of(list[i], context))
				area_leave(list[i]);
	}
	errno = error;
}

/* Whether this release is the last one is not known. In both cases the areas lose their context: dumps get the copy that is
 * made here, until another module is loaded. */
void probes_primary_leaving(CUdevice device)
{
	CUcontext context = NULL;
	unsigned flags;
	int is_active = 0;

	if (real.cuDevicePrimaryCtxGetState(device, &flags, &is_active) || !is_active ||
	    real.cuDevicePrimaryCtxRetain(&context, device))
		return;
	probes_leaving(context);
	real.cuDevicePrimaryCtxRelease_v2(device);
}

static void at_exit(void)
{
	if (all.sock >= 0 && probes_are_there())
		ask_agent(NULL, true);
}

/* In the child of a fork, which cannot use CUDA. The connection is the parent's. No lock is taken: a thread that the child
 * does not have may hold it. */
static void leave_to_parent(void)
{
	int error = errno, sock = all.sock;

	if (sock < 0)
		return;
	all.sock = -1;
	atomic_store(&probes_some, false);
	close(sock);
	close(all.wake);
	errno = error;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = ANSWER_S };
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int failed;

	if (sock < 0 || strlen(path) >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, path, strlen(path));
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	do
		failed = connect(sock, (struct sockaddr *)&address, sizeof(address));
	while (failed && errno == EINTR);
	return failed ? -1 : bf_take_fd(&sock);
}

static bool receive_first(void)
{
	uint32_t kind;

	do
		kind = next_order();
	while (kind && kind != PROBE_ORDER_READY);
	return kind == PROBE_ORDER_READY;
}

/* The agent blocks all signals: the program's own threads receive them. */
static bool start_agent(void)
{
	struct timeval forever = { 0 };
	sigset_t every, before;
	pthread_t thread;
	bool is_started;

	setsockopt(all.sock, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	is_started = !pthread_create(&thread, NULL, agent, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (is_started)
		pthread_detach(thread);
	return is_started;
}

static void begin(void)
{
	const char *path = getenv("BELFRY_PROBES");

	if (!path || !*path)
		return;
	all.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	all.sock = all.wake < 0 ? -1 : connect_to(path);
	if (all.sock >= 0 && receive_first() && start_agent()) {
		pthread_atfork(NULL, NULL, leave_to_parent);
		/* After the driver's library was initialized, so that this is called before its own end. */
		atexit(at_exit);
		return;
	}
	atomic_store(&probes_some, false);
	if (all.sock >= 0)
		close(all.sock);
	if (all.wake >= 0)
		close(all.wake);
	all.sock = all.wake = -1;
	fprintf(stderr,
		"belfry: the GPU server does not answer about probes; the program runs without them\n");
}

void probes_begin(void)
{
	int error = errno;

	pthread_once(&all.begun, begin);
	errno = error;
}
