/* belfryd and its GPU server: see hall.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/log.h"
#include "base/message.h"
#include "base/own.h"
#include "client/inside.h"
#include "client/reply.h"
#include "gpu/gpu.h"

static struct hall_message message_of(enum hall_kind kind)
{
	return (struct hall_message){ .magic = HALL_MAGIC, .version = PROTOCOL_VERSION, .kind = kind };
}

static void hall_gone(struct gpu *gpu)
{
	int gone = gpu->hall;

	gpu->hall = -1;
	gpu->hall_is_gone = true;
	gpu_watch_hall(gpu);
	close(gone);
}

/* If a message cannot be sent, belfryd counts as gone. */
static void send_hall(struct gpu *gpu, const struct hall_message *message)
{
	if (gpu->hall < 0)
		return;
	if (send(gpu->hall, message, sizeof(*message), MSG_NOSIGNAL) != (ssize_t)sizeof(*message))
		hall_gone(gpu);
}

static struct hall_gpu use_of(const struct gpu *gpu)
{
	struct hall_gpu use = { .gpu = gpu->which,
				.mem_bytes = gpu->device->mem_bytes,
				.mem_reserved_bytes = gpu_reserved_bytes(gpu, NULL),
				.request_ppm = sched_promised_ppm(gpu->sched),
				.vgpus = gpu->vgpu_count,
				.runs = gpu->run_count,
				.server_pid = getpid() };

	snprintf(use.driver, sizeof(use.driver), "%s", gpu->device->driver_version);
	return use;
}

void gpu_hall_tell_use(struct gpu *gpu)
{
	struct hall_message message = message_of(HALL_USE);

	message.gpu = use_of(gpu);
	send_hall(gpu, &message);
}

void gpu_hall_tell_vgpu(struct gpu *gpu, const struct vgpu *vgpu)
{
	struct hall_message message = message_of(HALL_VGPU);

	message.uid = vgpu->owner;
	message.flags = vgpu->is_ephemeral ? PROTOCOL_EPHEMERAL : 0;
	message.request.spec = vgpu->spec;
	message.request.gpu = gpu->which;
	message.gpu = use_of(gpu);
	memcpy(message.request.name, vgpu->name, sizeof(vgpu->name));
	send_hall(gpu, &message);
	gpu_hall_tell_use(gpu);
}

static void tell_answer(struct gpu *gpu, enum hall_kind kind, const struct protocol_request *request,
			const char *text, bool is_clients)
{
	struct hall_message message = message_of(kind);

	message.gpu = use_of(gpu);
	message.flags = is_clients ? HALL_CLIENTS : 0;
	message.request.op = request->op;
	message.request.flags = request->flags;
	snprintf(message.request.name, sizeof(message.request.name), "%s", request->name);
	snprintf(message.text, sizeof(message.text), "%s", text);
	send_hall(gpu, &message);
}

void gpu_hall_tell_gone(struct gpu *gpu, const struct vgpu *vgpu, const struct hall_account *account)
{
	struct hall_message message = message_of(HALL_GONE);

	message.uid = vgpu->owner;
	message.gpu = use_of(gpu);
	message.account = *account;
	memcpy(message.request.name, vgpu->name, sizeof(vgpu->name));
	send_hall(gpu, &message);
	gpu_hall_tell_use(gpu);
}

void gpu_hall_tell_refused(struct gpu *gpu, const struct protocol_request *request, const char *why,
			   bool is_clients)
{
	tell_answer(gpu, HALL_REFUSED, request, why, is_clients);
}

void gpu_hall_tell_done(struct gpu *gpu, const struct protocol_request *request, bool is_clients)
{
	tell_answer(gpu, HALL_DONE, request, "", is_clients);
}

bool gpu_hall_ask_save(struct gpu *gpu, uint32_t ticket)
{
	struct hall_message message = message_of(HALL_SAVE);

	message.ticket = ticket;
	send_hall(gpu, &message);
	return gpu->hall >= 0;
}

bool gpu_hall_tell_event(struct gpu *gpu, const struct event *event)
{
	struct hall_message message = message_of(HALL_EVENT);

	message.event = *event;
	return gpu->hall >= 0 && send(gpu->hall, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) ==
					 (ssize_t)sizeof(message);
}

void gpu_hall_tell_all(struct gpu *gpu)
{
	struct hall_message message = message_of(HALL_READY);

	message.gpu = use_of(gpu);
	send_hall(gpu, &message);
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (!v->is_hidden)
			gpu_hall_tell_vgpu(gpu, v);
}

void gpu_hall_tell_failed(int hall, const char *why)
{
	struct hall_message message = message_of(HALL_FAILED);

	snprintf(message.text, sizeof(message.text), "%s", why);
	if (send(hall, &message, sizeof(message), MSG_NOSIGNAL) < 0)
		bf_log(BF_LOG_ERROR, "%s", why);
}

static void settings_changed(struct gpu *gpu, const struct settings *settings)
{
	struct sched_options options;
	bool has_other_domains = strcmp(gpu->settings.public_domains, settings->public_domains) != 0;
	bool is_other =
		memcmp(gpu->settings.policy, settings->policy, sizeof(settings->policy)) != 0 ||
		memcmp(gpu->settings.policy_set, settings->policy_set, sizeof(settings->policy_set)) != 0;

	gpu_lock(gpu);
	pthread_mutex_lock(&gpu->policy_lock);
	gpu->settings = *settings;
	pthread_mutex_unlock(&gpu->policy_lock);
	options = gpu_sched_options(gpu);
	sched_configure(gpu->sched, &options, bf_now_ns());
	gate_allow_traps(gpu->gate, gpu_has_traps(gpu));
	work_setup(gpu);
	if (has_other_domains)
		domains_renumber(gpu);
	gpu_unlock(gpu);
	/* Only the main thread creates wardens, and this is the main thread. */
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->warden)
			warden_set_permits(v->warden, settings->permits, settings->permit_count);
	turner_wake(gpu);
	if (is_other) /* otherwise a policy that a client loaded stays */
		policy_configure(gpu);
}

/* Takes the connection. belfryd reserves the name, or counts the change, until it receives HALL_REFUSED. */
static void turn_away(struct gpu *gpu, int sock, const struct protocol_request *request,
		      const struct bf_error *why)
{
	struct protocol_reply reply = reply_of(why);

	if (request->op == PROTOCOL_CREATE || protocol_is_run(request->op) || request->op == PROTOCOL_SET)
		gpu_hall_tell_refused(gpu, request, why->text, true);
	reply_send(sock, &reply, NULL, 0);
	bf_close_connection(&sock);
}

static void request_came(struct gpu *gpu, const struct hall_message *message, int sock)
{
	struct bf_error err = { 0 };
	struct ucred who = { .pid = message->pid, .uid = message->uid, .gid = message->gid };
	struct talker *talker = NULL, own = { .sock = -1, .who = who };

	if (sock >= 0) {
		talker = talker_add(gpu, sock, &who, &err);
		if (!talker) {
			turn_away(gpu, sock, &message->request, &err);
			return;
		}
	}
	if (talker)
		talker->is_own = message->flags & HALL_OWN;
	talker_request(gpu, talker ? talker : &own, &message->request);
}

/* A message, and its descriptor or -1. kind is 0 if there is none. False: belfryd has closed the connection, or the
 * message is invalid. */
static bool receive(int sock, struct hall_message *message, int *fd)
{
	ssize_t got = bf_message_receive(sock, message, sizeof(*message), fd, MSG_DONTWAIT);

	if (got == -EAGAIN) {
		message->kind = 0;
		return true;
	}
	if (got == (ssize_t)sizeof(*message) && message->magic == HALL_MAGIC &&
	    message->version == PROTOCOL_VERSION)
		return true;
	if (*fd >= 0)
		close(*fd);
	return false;
}

void gpu_hall_hear(struct gpu *gpu)
{
	struct hall_message message;
	int fd;

	if (!receive(gpu->hall, &message, &fd)) {
		bf_log(BF_LOG_INFO, "belfryd has gone");
		hall_gone(gpu);
		return;
	}
	message.text[sizeof(message.text) - 1] = 0;
	switch (message.kind) {
	case HALL_SETTINGS:
		settings_changed(gpu, &message.settings);
		break;
	case HALL_REQUEST:
		request_came(gpu, &message, fd);
		return;
	case HALL_SAVED:
		talkers_saved(gpu, &message);
		break;
	case HALL_END:
		gpu->is_ending = true;
		break;
	default:
		break;
	}
	if (fd >= 0)
		close(fd);
}

int gpu_hall_listen(struct gpu *gpu, struct bf_error *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask;
	int rc;

	if (!gpu->socket[0])
		return 0;
	if (sock < 0)
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	memcpy(address.sun_path, gpu->socket, sizeof(address.sun_path));
	unlink(gpu->socket); /* belfryd has found that no process listens on it */
	mask = umask(0177);
	rc = bind(sock, (struct sockaddr *)&address, sizeof(address)) || listen(sock, 4) ? -errno : 0;
	umask(mask);
	if (rc)
		return bf_fail(err, -rc, "%s: %s", gpu->socket, strerror(-rc));
	gpu->listen_fd = bf_take_fd(&sock);
	return 0;
}

/* Programs of a private belfryd run as the same user as it does. A belfryd of root may have other seccomp filters
 * than this process. */
static bool is_program(int sock, const struct ucred *who)
{
	pid_t pid;
	enum inside_where where = inside_look(sock, inside_floor(true), &pid);

	return where != INSIDE_NOT && !(where == INSIDE_LEFT && who->uid == 0);
}

/* Another belfryd has connected. It replaces the previous one. */
void gpu_hall_accept(struct gpu *gpu)
{
	cleanup_close int sock = accept4(gpu->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (sock < 0 || getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length) || who.uid != geteuid())
		return;
	if (is_program(sock, &who)) {
		bf_log(BF_LOG_WARN, "process %d is no belfryd: it is, or may be, inside a run", who.pid);
		return;
	}
	if (gpu->hall >= 0)
		hall_gone(gpu);
	talkers_saved(gpu, NULL);
	gpu->hall = bf_take_fd(&sock);
	gpu_watch_hall(gpu);
	gpu->hall_is_gone = false;
	bf_log(BF_LOG_INFO, "belfryd is process %d now", who.pid);
	gpu_hall_tell_all(gpu);
}
