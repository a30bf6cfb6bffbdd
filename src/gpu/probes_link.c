/* The socket for the libraries in programs, and their connections. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/handed.h"
#include "base/log.h"
#include "base/message.h"
#include "base/own.h"
#include "base/process.h"
#include "base/text.h"
#include "gpu/probes.h"

enum {
	BACKLOG = 1024,
	ACCEPT_AT_ONCE = 16,
	REST_MS = 100,	   /* where there are no descriptors */
	READ_AT_ONCE = 16, /* messages of a process */
};

/* "/run/belfry/belfryd.sock.gpu0" gives "/run/belfry/probe.belfryd.sock.gpu0", as for the folders of MPS. */
static int socket_path(const struct gpu *gpu, char *to, size_t room)
{
	const char *slash = strrchr(gpu->socket, '/');
	int length = slash ? snprintf(to, room, "%.*s/probe.%s", (int)(slash - gpu->socket), gpu->socket,
				      slash + 1)
			   : -1;

	return length < 0 || (size_t)length >= room ? -ENAMETOOLONG : 0;
}

bool probed_is_meant(const struct probed *probed, const struct attached_probe *attached)
{
	return !attached->pid || attached->pid == probed->pid;
}

int probed_send(struct probed *probed, enum probe_order_kind kind, const struct attached_probe *attached,
		uint64_t ticket)
{
	struct probe_order order = {
		.magic = PROBE_WIRE_MAGIC, .version = PROBE_WIRE_VERSION, .kind = kind, .ticket = ticket
	};

	if (attached) {
		order.number = attached->number;
		order.sample = attached->sample;
		memcpy(order.name, attached->name, sizeof(order.name));
		memcpy(order.kernel, attached->kernel, sizeof(order.kernel));
	}
	return bf_message_send(probed->sock, &order, sizeof(order),
			       kind == PROBE_ORDER_ADD ? attached->pack : -1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int probed_watch(struct probed *probed)
{
	struct probe_order order = { .magic = PROBE_WIRE_MAGIC,
				     .version = PROBE_WIRE_VERSION,
				     .kind = PROBE_ORDER_WATCH,
				     .number = probes_watch(probed->of->vgpu) };

	probed->is_watched = order.number;
	return bf_message_send(probed->sock, &order, sizeof(order), -1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What is kept can be any file, as large as the process likes, unless it is checked first. */
static void take_copy(struct probed *probed, struct attached_probe *attached, struct probe_note *note, int fd)
{
	cleanup_close int file = fd;
	bool is_wrong = file >= 0 && !area_is_copy(attached->probe, file);

	note->text[sizeof(note->text) - 1] = 0;
	probed->last |= attached->bit;
	if (is_wrong)
		copy_keep(attached, probed, PROBE_NO_COPY, -1);
	else
		copy_keep(attached, probed, file < 0 ? note->text : "", bf_take_fd(&file));
}

static void hear(struct probed *probed, struct probe_note *note, int fd)
{
	cleanup_close int file = fd;
	struct attached_probe *attached = probes_find(probed->of, note->number);

	if (note->magic != PROBE_WIRE_MAGIC || note->version != PROBE_WIRE_VERSION)
		return;
	if (note->kind == PROBE_NOTE_LOADED) {
		probes_loaded(probed, note);
		return;
	}
	if (!attached || !probed_is_meant(probed, attached))
		return;
	if (note->kind == PROBE_NOTE_AREA) {
		if (mirror_came(probed, attached, note, file))
			file = -1;
		else
			dump_came(probed, note, bf_take_fd(&file));
	} else if (note->kind == PROBE_NOTE_LAST)
		take_copy(probed, attached, note, bf_take_fd(&file));
	else
		probes_note(attached, probed, note);
}

/* Returns false at the end of the connection, or if a message has the wrong size. */
static bool read_notes(struct probed *probed)
{
	struct probe_note note;
	int fd;

	for (unsigned i = 0; i < READ_AT_ONCE; i++) {
		ssize_t got = bf_message_receive(probed->sock, &note, sizeof(note), &fd, MSG_DONTWAIT);

		if (got == -EAGAIN || got == -EINTR)
			return true;
		if (got != (ssize_t)sizeof(note) || (fd >= 0 && !bf_is_memory_file(fd))) {
			bf_close_handed(&fd, probed->user);
			return false;
		}
		hear(probed, &note, fd);
	}
	return true;
}

static void sock_ready(void *context, uint32_t events)
{
	struct probed *probed = context;

	(void)events;
	gpu_lock(probed->of->vgpu->gpu);
	if (!read_notes(probed)) {
		struct gpu *gpu = probed->of->vgpu->gpu;

		probed_remove(probed);
		gpu_unlock(gpu);
		return;
	}
	gpu_unlock(probed->of->vgpu->gpu);
}

/* Last copies that the process has sent may still be in the socket. */
static void process_over(void *context, uint32_t events)
{
	struct probed *probed = context;
	struct gpu *gpu = probed->of->vgpu->gpu;

	(void)events;
	gpu_lock(gpu);
	for (unsigned i = 0; i < 2 * PROBE_WIRE_PROBES && read_notes(probed); i++)
		;
	probed_remove(probed);
	gpu_unlock(gpu);
}

/* Notes for each probe without a last copy of the process that there is none. */
static void keep_without(struct probed *probed)
{
	struct attached_probe *a;

	LIST_FOREACH(a, &probed->of->attached, next)
		if (probed_is_meant(probed, a) && !(probed->last & a->bit))
			copy_keep(a, probed, "it ended without a last copy", -1);
}

static void free_probed(struct probed *probed, struct loop *loop)
{
	loop_remove(loop, probed->sock_source);
	loop_remove(loop, probed->process_source);
	bf_close_connection(&probed->sock);
	bf_close_fd(&probed->process);
	free(probed);
}

void probed_remove(struct probed *probed)
{
	struct vgpu_probes *of = probed->of;

	LIST_REMOVE(probed, next);
	of->process_count--;
	keep_without(probed);
	dump_gone(probed);
	mirror_gone(probed);
	free_probed(probed, of->vgpu->gpu->loop);
}

/* The vGPU on which the process runs, and its run. As for leases: without gpu::lock, because wardens may wait for a driver
 * call. Only this thread changes the lists. */
static struct vgpu *find_vgpu(const struct gpu *gpu, pid_t pid, uint32_t *run)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		*run = v->runs && v->warden && !v->is_hidden ? warden_run_of(v->warden, pid) : 0;
		if (*run)
			return v;
	}
	return NULL;
}

static struct probed *new_probed(struct vgpu_probes *of, pid_t pid, int connection, int pidfd)
{
	cleanup_connection int sock = connection;
	cleanup_close int process = pidfd;
	struct loop *loop = of->vgpu->gpu->loop;
	struct probed *probed = calloc(1, sizeof(*probed));
	struct bf_status status;

	if (!probed)
		return NULL;
	*probed = (struct probed){
		.of = of, .pid = pid, .sock = bf_take_fd(&sock), .process = bf_take_fd(&process)
	};
	if (!bf_status_read(pid, &status))
		snprintf(probed->program, sizeof(probed->program), "%.31s", status.name);
	bf_plain(probed->program);
	probed->sock_source =
		loop_add(loop, probed->sock, EPOLLIN | EPOLLRDHUP, LOOP_MIDDLE, sock_ready, probed);
	probed->process_source = loop_add(loop, probed->process, EPOLLIN, LOOP_LAST, process_over, probed);
	if (probed->sock_source && probed->process_source) {
		LIST_INSERT_HEAD(&of->processes, probed, next);
		of->process_count++;
		return probed;
	}
	free_probed(probed, loop);
	return NULL;
}

/* A program that has been replaced (exec) connects again before its old connection was seen to end. */
static void drop_former(struct vgpu_probes *of, pid_t pid)
{
	struct probed *p, *after;

	LIST_FOREACH_SAFE(p, &of->processes, next, after)
		if (p->pid == pid)
			probed_remove(p);
}

static void introduce(struct probed *probed)
{
	struct attached_probe *a;
	int rc = 0;

	LIST_FOREACH(a, &probed->of->attached, next)
		if (!rc && probed_is_meant(probed, a))
			rc = probed_send(probed, PROBE_ORDER_ADD, a, 0);
	if (!rc && probes_watch(probed->of->vgpu))
		rc = probed_watch(probed);
	if (rc || probed_send(probed, PROBE_ORDER_READY, NULL, 0))
		probed_remove(probed);
}

/* A process that is on no vGPU gets no probes, and its connection is closed. The process is identified by a pidfd: it lives
 * after the warden has found its PID, so the PID was not another's. */
static void welcome(struct gpu *gpu, int connection)
{
	cleanup_connection int sock = connection;
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);
	struct vgpu_probes *probes;
	struct probed *probed = NULL;
	struct vgpu *vgpu;
	uint32_t run = 0;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return;
	cleanup_close int process = bf_pidfd_open_peer(sock, who.pid);
	vgpu = process < 0 ? NULL : find_vgpu(gpu, who.pid, &run);
	if (!vgpu || bf_pidfd_has_ended(process)) {
		bf_log(BF_LOG_INFO, "process %d is on no vGPU and gets no probes", who.pid);
		return;
	}
	if (bf_handed_is_full(who.uid))
		return;
	bf_handing_allow(sock, true);
	gpu_lock(gpu);
	probes = probes_of(vgpu);
	if (probes)
		drop_former(probes, who.pid);
	if (probes && probes->process_count < PROBED_OF_ONE)
		probed = new_probed(probes, who.pid, bf_take_fd(&sock), bf_take_fd(&process));
	if (probed) {
		probed->run = run;
		probed->user = who.uid;
		introduce(probed);
	}
	gpu_unlock(gpu);
}

/* After some connections other events have their turn, and the loop reports the rest again. A lack of descriptors would be
 * reported without end. Any user can connect, so the server does not rest for any other reason: processes on a vGPU wait
 * for their connection in cuInit. */
static void connection_ready(void *context, uint32_t events)
{
	struct gpu *gpu = context;

	(void)events;
	for (unsigned i = 0; i < ACCEPT_AT_ONCE; i++) {
		int sock = accept4(gpu->probe_listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (sock >= 0) {
			welcome(gpu, sock);
			continue;
		}
		if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
			return;
		loop_change(gpu->loop, gpu->probe_source, 0);
		gpu->probes_rest_ns = bf_now_ns() + REST_MS * 1000000ull;
		return;
	}
}

void probes_look_link(struct gpu *gpu, uint64_t now_ns)
{
	if (!gpu->probes_rest_ns || gpu->probes_rest_ns > now_ns)
		return;
	gpu->probes_rest_ns = 0;
	loop_change(gpu->loop, gpu->probe_source, EPOLLIN);
}

/* Every process that can reach the folder may connect. Its PID decides which probes it gets. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	unlink(path); /* of a server that was killed: this server owns the GPU's socket */
	bf_handing_allow(fd, false);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || chmod(path, 0666) ||
	    listen(fd, BACKLOG))
		return -errno;
	return bf_take_fd(&fd);
}

void probes_begin(struct gpu *gpu)
{
	int fd = socket_path(gpu, gpu->probe_socket, sizeof(gpu->probe_socket))
			 ? -ENAMETOOLONG
			 : listen_at(gpu->probe_socket);

	gpu->probe_listener = fd;
	if (fd >= 0)
		gpu->probe_source = loop_add(gpu->loop, fd, EPOLLIN, LOOP_LAST, connection_ready, gpu);
	if (gpu->probe_source)
		return;
	bf_log(BF_LOG_WARN, "probes cannot be attached: %s: %s", gpu->probe_socket,
	       strerror(fd < 0 ? -fd : errno));
	gpu->probe_socket[0] = 0;
}

void probes_end(struct gpu *gpu)
{
	if (!gpu->probe_socket[0])
		return;
	loop_remove(gpu->loop, gpu->probe_source);
	close(gpu->probe_listener);
	unlink(gpu->probe_socket);
}
