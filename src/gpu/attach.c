/* Attached runs: containers, pods and jobs whose processes belfry has not started. The client sends the listener of
 * their seccomp filter and is gone. The run ends when the kernel reports that the last process with the filter has
 * ended. There is no keeper: if the run must end before, this file ends the processes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/json.h"
#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "base/text.h"
#include "gpu/gpu.h"

enum { ATTACHED_MAX = 4096, ATTACHED_OF_ONE = 1024, CGROUP_ID_MIN = 8 };

struct attached {
	struct gpu *gpu;
	struct run *run;
	uint32_t kind; /* enum protocol_attached_kind */
	char id[PROTOCOL_ID_MAX + 1];
	char pod[PROTOCOL_POD_MAX + 1];	    /* of PROTOCOL_POD */
	char space[PROTOCOL_SPACE_MAX + 1]; /* its namespace */
	int listener;			    /* a second descriptor of it; the warden has the first */
	struct loop_source *source;
	pid_t pid;
	int pidfd; /* of pid; -1: not known */
	/* Only root and the user of belfryd name cgroups: another user's process may be in a cgroup of root's. */
	bool may_kill_cgroup;
};

static const char *const kinds[PROTOCOL_ATTACHED_KINDS] = {
	[PROTOCOL_CONTAINER] = "container",
	[PROTOCOL_POD] = "pod",
	[PROTOCOL_JOB] = "job",
};

const char *attached_kind(const struct attached *attached)
{
	return kinds[attached->kind];
}

const char *attached_id(const struct attached *attached)
{
	return attached->id;
}

void attached_put_json(struct json_object *to, const struct run *run)
{
	if (!run->attached)
		return;
	json_add_text(to, "kind", attached_kind(run->attached));
	json_add_text(to, "id", run->attached->id);
	if (run->attached->kind != PROTOCOL_POD)
		return;
	json_add_text(to, "pod", run->attached->pod);
	json_add_text(to, "namespace", run->attached->space);
	json_add_text(to, "container", run->program);
}

void attached_say(FILE *to, const struct run *run)
{
	const struct attached *attached = run->attached;

	if (attached->kind == PROTOCOL_POD)
		fprintf(to, "The container %s of pod %s in namespace %s is attached to it (ID %s).\n",
			run->program, attached->pod, attached->space, attached->id);
	else
		fprintf(to, "The %s %s is attached to it (ID %s).\n", kinds[attached->kind], run->program,
			attached->id);
}

/* A user who may run programs on a public vGPU may not attach processes: an attached run has no connection that belongs
 * to the user, and only its processes can end it. */
int attach_check(const struct talker *talker, const struct vgpu *vgpu, struct bf_error *err)
{
	if (!bf_is_admin(talker->who.uid) && talker->who.uid != vgpu->owner)
		return bf_fail(err, EPERM,
			       "%s: belongs to user %u; only that user and root may attach programs to it",
			       vgpu->name, vgpu->owner);
	if (vgpu_is_shared(vgpu))
		return bf_fail(
			err, ENOTSUP,
			"%s: its domain '%s' is shared, and programs there must be started with belfry run",
			vgpu->name, vgpu->spec.domain);
	return 0;
}

/* Root attaches the tasks of users' jobs, so runs count for the owner of their vGPU. */
static int check_count(const struct gpu *gpu, uid_t owner, struct bf_error *err)
{
	unsigned all = 0, of_user = 0;

	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		for (const struct run *r = v->runs; r; r = r->next) {
			all += r->attached != NULL;
			of_user += r->attached && v->owner == owner;
		}
	if (all >= ATTACHED_MAX)
		return bf_fail(err, EAGAIN, "%u runs are attached, the most the GPU server takes", all);
	if (!bf_is_admin(owner) && of_user >= ATTACHED_OF_ONE)
		return bf_fail(err, EUSERS, "user %u has %u attached runs, the most one user may have", owner,
			       of_user);
	return 0;
}

static int check_message(const struct protocol_attached *message, int listener, struct bf_error *err)
{
	if (message->magic != PROTOCOL_MAGIC || message->version != PROTOCOL_VERSION || listener < 0 ||
	    !bf_is_listener(listener)) /* any other file would never report the end of the run */
		return bf_fail(err, EPROTO, "an attached run must begin with the listener of its filter");
	if (!message->kind || message->kind >= PROTOCOL_ATTACHED_KINDS)
		return bf_fail(err, EINVAL, "kind %u: not a container, a pod or a job", message->kind);
	if (!message->id[0] || !memchr(message->id, 0, sizeof(message->id)) ||
	    !memchr(message->name, 0, sizeof(message->name)) ||
	    !memchr(message->pod, 0, sizeof(message->pod)) ||
	    !memchr(message->space, 0, sizeof(message->space)))
		return bf_fail(err, EINVAL, "an attached run has an ID of 1 to %d bytes", PROTOCOL_ID_MAX);
	return 0;
}

/* Clients read process IDs from messages of runtimes. The ID may be another process's by now, such as that of a service with a
 * filter of its own. So it must be the process that connected, a child of it, or in a PID namespace below, as a container is. */
static bool may_be_first(pid_t pid, const struct bf_status *status, const struct ucred *who)
{
	return status->filters && (pid == who->pid || status->parent == who->pid || status->is_nested);
}

/* The process is killed if the run must end, so it must be one with a filter, and of the client's user. If it has ended
 * already, or has another ID here, the run goes on without it. */
static int open_first(struct attached *attached, pid_t pid, const struct ucred *who)
{
	cleanup_close int pidfd = pid > 1 ? bf_pidfd_open(pid) : -ESRCH;
	struct bf_status status;

	if (pidfd < 0 || bf_status_read(pid, &status) || !may_be_first(pid, &status, who))
		return -ESRCH;
	if (!bf_is_admin(who->uid) && bf_euid_of(pid) != who->uid)
		return -EPERM;
	attached->pid = pid;
	attached->pidfd = bf_take_fd(&pidfd);
	return 0;
}

static struct attached *attached_new(struct gpu *gpu, const struct protocol_attached *message,
				     const struct ucred *who)
{
	struct attached *attached = calloc(1, sizeof(*attached));

	if (!attached)
		return NULL;
	attached->gpu = gpu;
	attached->kind = message->kind;
	attached->may_kill_cgroup = bf_is_admin(who->uid);
	attached->listener = attached->pidfd = -1;
	snprintf(attached->id, sizeof(attached->id), "%s", message->id);
	snprintf(attached->pod, sizeof(attached->pod), "%s", message->pod);
	snprintf(attached->space, sizeof(attached->space), "%s", message->space);
	bf_plain(attached->id);
	bf_plain(attached->pod);
	bf_plain(attached->space);
	if (open_first(attached, message->pid, who))
		bf_log(BF_LOG_INFO, "%s %s: process %d is not known here", kinds[message->kind], attached->id,
		       message->pid);
	return attached;
}

static struct run *run_new(const struct talker *talker, const struct protocol_attached *message,
			   struct attached *attached)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	*run = (struct run){ .vgpu = talker->vgpu,
			     .number = ++talker->vgpu->gpu->next_run,
			     .sock = -1,
			     .uid = talker->who.uid,
			     .program_pid = attached->pid,
			     .attached = attached };
	snprintf(run->program, sizeof(run->program), "%.63s",
		 message->name[0] ? message->name : attached->id);
	bf_plain(run->program);
	attached->run = run;
	return run;
}

static void hung_up(void *context, uint32_t events)
{
	struct attached *attached = context;
	struct gpu *gpu = attached->gpu;

	(void)events;
	gpu_lock(gpu);
	run_end(attached->run, NULL);
	gpu_unlock(gpu);
}

/* Without events: only the end of the last process is reported here. The warden receives the notifications. */
static int watch(struct attached *attached, int listener, struct bf_error *err)
{
	attached->listener = fcntl(listener, F_DUPFD_CLOEXEC, 3);
	if (attached->listener < 0)
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	attached->source =
		loop_add(attached->gpu->loop, attached->listener, 0, LOOP_MIDDLE, hung_up, attached);
	return attached->source ? 0
				: bf_fail(err, errno, "the listener cannot be watched: %s", strerror(errno));
}

static int start(struct talker *talker, const struct protocol_attached *message, struct attached *attached,
		 int listener, struct bf_error *err)
{
	cleanup_close int filter = listener;
	struct run *run = run_new(talker, message, attached);
	int rc = run ? watch(attached, filter, err) : bf_fail(err, ENOMEM, "out of memory");

	/* The software GPU serves these programs through a socket at which they can only open files, so it need not
	 * know them: see soft/driver/server.h. */
	if (!rc)
		rc = run_begin(run, getpid(), bf_take_fd(&filter), NULL, err);
	if (rc)
		free(run);
	return rc;
}

int attach_start(struct talker *talker, const struct protocol_attached *message, int listener,
		 struct bf_error *err)
{
	cleanup_close int filter = listener;
	struct gpu *gpu = talker->gpu;
	struct attached *attached;
	int rc = check_message(message, filter, err);

	if (!rc)
		rc = check_count(gpu, talker->vgpu->owner, err);
	if (!rc) /* the domain may have become a shared one since the request */
		rc = attach_check(talker, talker->vgpu, err);
	if (rc)
		return rc;
	attached = attached_new(gpu, message, &talker->who);
	if (!attached)
		return bf_fail(err, ENOMEM, "out of memory");
	rc = start(talker, message, attached, bf_take_fd(&filter), err);
	if (rc)
		attached_end(gpu, attached, false);
	else
		bf_log(BF_LOG_INFO, "%s: %s %s is attached", talker->vgpu->name, kinds[attached->kind],
		       attached->id);
	return rc;
}

/* The cgroup of a process in the unified hierarchy, "/path". */
static int cgroup_of(pid_t pid, char *to, size_t room)
{
	char path[32], line[4096];
	cleanup_file FILE *file = NULL;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		return snprintf(to, room, "%s", line + 3) < (int)room ? 0 : -ENAMETOOLONG;
	}
	return -ENOENT;
}

static bool has_ended(int pidfd)
{
	struct pollfd fd = { pidfd, POLLIN, 0 };

	return poll(&fd, 1, 0) != 0;
}

/* A cgroup that is named after the run is the run's own. Without cgroups a container is in the cgroup of the process that
 * started it, which must not be killed. */
static bool is_cgroup_of(const char *cgroup, const char *id)
{
	return strlen(id) >= CGROUP_ID_MIN && !strchr(id, '/') && strstr(cgroup, id) &&
	       !strstr(cgroup, "/..");
}

static void kill_cgroup(const struct attached *attached)
{
	static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	char cgroup[4096], path[sizeof(cgroup) + 64];

	/* If the process still lives, the cgroup is its own. */
	if (cgroup_of(attached->pid, cgroup, sizeof(cgroup)) || has_ended(attached->pidfd) ||
	    !is_cgroup_of(cgroup, attached->id))
		return;
	for (unsigned i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		cleanup_close int fd = -1;

		snprintf(path, sizeof(path), "%s%s/cgroup.kill", mounts[i], cgroup);
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && write(fd, "1", 1) == 1)
			return;
	}
}

/* The init of a PID namespace takes all processes of the namespace with it, those of `exec` included. */
static void kill_all(const struct attached *attached)
{
	if (attached->pidfd < 0 || has_ended(attached->pidfd))
		return;
	if (attached->may_kill_cgroup)
		kill_cgroup(attached);
	bf_pidfd_kill(attached->pidfd, SIGKILL);
}

void attached_end(struct gpu *gpu, struct attached *attached, bool is_killed)
{
	if (!attached)
		return;
	if (is_killed)
		kill_all(attached);
	loop_remove(gpu->loop, attached->source);
	if (attached->listener >= 0)
		close(attached->listener);
	if (attached->pidfd >= 0)
		close(attached->pidfd);
	free(attached);
}
